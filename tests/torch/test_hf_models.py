"""Small models of transformers with random weights: training steps and generation as in eager.

transformers is no requirement of lazyt: `make test-models` installs it and runs these.
"""

import copy

import lazyt
import pytest
import torch
import torchvision_library

torchvision_library.stand_in()
transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test-models")
pytestmark = pytest.mark.slow

SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}


def ids(*shape):
    return torch.randint(3, 100, shape)


def gpt2():
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=64)
    tokens = ids(2, 12)
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens, "labels": tokens}


def bert():
    config = transformers.BertConfig(vocab_size=100, **SMALL)
    tokens = ids(2, 12)
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.tensor([0, 1])}
    return transformers.BertForSequenceClassification(config), batch


def t5():
    config = transformers.T5Config(
        num_layers=2, d_model=32, num_heads=2, d_kv=16, d_ff=64, vocab_size=100, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config), {"input_ids": ids(2, 12), "labels": ids(2, 8)}


def llama():
    config = transformers.LlamaConfig(num_key_value_heads=1, vocab_size=100, **SMALL)
    tokens = ids(2, 12)
    return transformers.LlamaForCausalLM(config), {"input_ids": tokens, "labels": tokens}


def mixtral():
    config = transformers.MixtralConfig(num_key_value_heads=1, vocab_size=100, num_local_experts=4, **SMALL)
    tokens = ids(2, 12)
    return transformers.MixtralForCausalLM(config), {"input_ids": tokens, "labels": tokens}


def whisper():
    config = transformers.WhisperConfig(
        encoder_layers=2,
        decoder_layers=2,
        d_model=32,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        vocab_size=100,
        max_source_positions=20,
        num_mel_bins=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    return model, {"input_features": torch.randn(2, 8, 40), "labels": ids(2, 8)}


def vit():
    config = transformers.ViTConfig(image_size=16, patch_size=4, num_labels=4, **SMALL)
    model = transformers.ViTForImageClassification(config)
    return model, {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([0, 3])}


def losses(model, batch, device, steps=4):
    model = model.to(device)
    batch = {name: t.to(device) for name, t in batch.items()}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    out = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        out.append(loss.item())
    return torch.tensor(out)


@pytest.mark.parametrize("make", [gpt2, bert, t5, llama, mixtral, whisper, vit])
def test_training_steps_equal_eager(make):
    model, batch = make()
    model.eval()  # without dropout
    on_device = copy.deepcopy(model)
    lazyt.metrics.reset()
    actual = losses(on_device, batch, "lazyt")
    torch.testing.assert_close(actual, losses(model, batch, "cpu"), rtol=1e-4, atol=1e-5)
    assert lazyt.metrics.counters()["UncachedCompile"] <= 3
    assert set(lazyt.metrics.fallbacks()) <= {"aten::_local_scalar_dense"}


@pytest.mark.parametrize("make", [gpt2, llama])
def test_greedy_generation_gives_the_tokens_of_eager(make):
    model, _ = make()
    model.eval()
    prompt = ids(1, 5)
    options = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **options)
    actual = copy.deepcopy(model).to("lazyt").generate(prompt.to("lazyt"), **options)
    assert torch.equal(actual.cpu(), expected)
