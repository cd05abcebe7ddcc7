"""Models of timm and transformers with random weights, as their libraries write them: a step of lazyt on the backend of
LAZYT_BACKEND against eager's, in turns within one process, one thread.

A row: inference and training of one model; x eager, the first step's seconds, and which operators ran on the host.
Outputs of inference must be eager's, or the row says so and the bench fails. Where parts of a program depend on data,
they run on the host by nature. The libraries: pip install -r requirements-models.txt -c requirements.txt
"""

import argparse
import copy
import os
import sys
import time
from functools import partial
from pathlib import Path

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("--only", default="", help="models, ';' between: those whose name contains one of these")
PARSER.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
PARSER.add_argument("--rounds", type=int, default=7)
PARSER.add_argument("--list", action="store_true", help="name the models")
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
os.environ.setdefault("LAZYT_BACKEND", "onednn")
os.environ["LAZYT_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402

# Not this folder's: libraries look for modules of such names (kernels).
sys.path[0] = str(Path(__file__).parents[1] / "tests" / "torch")
import torchvision_library  # noqa: E402

DTYPE = getattr(torch, ARGS.dtype)
# What a whole network may lose, relative to its largest output. Halves can send a token to another expert: they may be as
# far from f32 as twice eager's halves are, by the mean of squares.
NEAR, TIMES = 1e-4, 2

# By the size of the images.
TIMM = {
    64: "convnext_atto convmixer_768_32 densenet121 dpn68 edgenext_xx_small efficientnet_b0 fastvit_t8 ghostnet_100"
    " hrnet_w18_small lambda_resnet26t mobilenetv3_small_100 mobilevit_xxs nfnet_f0 poolformer_s12 pvt_v2_b0 regnety_002"
    " repvgg_a0 res2net50_26w_4s resnest14d resnet50 skresnet18 twins_svt_small vgg11 xception41",
    96: "inception_v3",
    224: "cait_xxs24_224 coat_tiny efficientformer_l1 gmlp_ti16_224 levit_128s mixer_s32_224 resmlp_12_224"
    " swin_tiny_patch4_window7_224 tnt_s_patch16_224 vit_tiny_patch16_224 xcit_nano_12_p16_224",
}

# Of transformers, by the prefix of their classes; what their configurations want beside SIZES.
GROUPED = {"num_key_value_heads": 1}
CAUSAL = {
    "Bloom": {"n_layer": 4, "n_head": 4},
    "Cohere": GROUPED,
    "DeepseekV3": {
        **{
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
        },
        **{"moe_intermediate_size": 256, "q_lora_rank": 64, "kv_lora_rank": 64, "qk_rope_head_dim": 16},
        **{"qk_nope_head_dim": 48, "v_head_dim": 64, "first_k_dense_replace": 1},
    },
    "Falcon": {},
    "GPTJ": {"n_embd": 256, "n_layer": 4, "n_head": 4, "rotary_dim": 16},
    "GPTNeoX": {},
    "Gemma2": {**GROUPED, "head_dim": 64},
    "Llama": GROUPED,
    "Mamba": {"state_size": 8},
    "Mistral": GROUPED,
    "Mixtral": {**GROUPED, "num_local_experts": 8},
    "OPT": {"ffn_dim": 1024, "word_embed_proj_dim": 256},
    "Olmo2": {},
    "Phi3": {"pad_token_id": 0},
    "Qwen3": {**GROUPED, "head_dim": 64},
    "Qwen3Moe": {
        **GROUPED,
        "head_dim": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 256,
    },
    "StableLm": {"num_key_value_heads": 4},
}
CLASSIFYING = {
    "Albert": {"embedding_size": 64},
    "Bert": {},
    "Electra": {"embedding_size": 64},
    "FNet": {},
    "MPNet": {},
    "Roberta": {},
}
# What sees: classes, the sides of their images, and their configurations.
STAGES = ["stage1", "stage2", "stage3", "stage4"]
SEEING = {
    "DepthAnythingForDepthEstimation": (
        126,
        {
            "backbone_config": (
                "Dinov2Config",
                {
                    **{
                        "hidden_size": 128,
                        "num_hidden_layers": 4,
                        "num_attention_heads": 4,
                        "image_size": 126,
                    },
                    **{"patch_size": 14, "out_features": STAGES, "reshape_hidden_states": False},
                },
            ),
            **{
                "reassemble_hidden_size": 128,
                "neck_hidden_sizes": [24, 48, 96, 96],
                "fusion_hidden_size": 32,
            },
        },
    ),
    "Mask2FormerForUniversalSegmentation": (
        128,
        {
            "backbone_config": (
                "SwinConfig",
                {"image_size": 128, "embed_dim": 48, "depths": [2, 2, 2, 2], "out_features": STAGES},
            ),
            **{"feature_size": 64, "mask_feature_size": 64, "hidden_dim": 64, "encoder_layers": 2},
            **{"decoder_layers": 3, "num_queries": 20},
        },
    ),
    "SegformerForSemanticSegmentation": (128, {"num_labels": 20}),
    "Swin2SRForImageSuperResolution": (
        48,
        {"embed_dim": 60, "depths": [2, 2], "num_heads": [6, 6], "image_size": 48},
    ),
}
SIZES = {
    **{"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4},
    **{"intermediate_size": 1024, "max_position_embeddings": 128},
}


def of_timm(name, size):
    def make():
        import timm

        count = 2 if size > 200 else 4
        images = torch.randn(count, 3, size, size)
        labels = torch.randint(0, 10, (count,))
        model = timm.create_model(name, num_classes=10)
        return (
            model,
            {"x": images},
            lambda logits: torch.nn.functional.cross_entropy(logits.float(), labels.to(logits.device)),
        )

    return make


def of_transformers(prefix, suffix, more):
    def make():
        import transformers

        config = getattr(transformers, prefix + "Config")(**SIZES, **more)
        model = getattr(transformers, prefix + suffix)(config)
        tokens = torch.randint(3, 1000, (4, 64))
        labels = tokens if suffix == "ForCausalLM" else torch.tensor([0, 1, 1, 0])
        return model, {"input_ids": tokens, "labels": labels}, lambda out: out.loss

    return make


def seeing(name, size, more):
    def make():
        import transformers

        def config(kind, values):
            values = {k: config(*v) if isinstance(v, tuple) else v for k, v in values.items()}
            return getattr(transformers, kind)(**values)

        model = getattr(transformers, name)(config(name[: name.rindex("For")] + "Config", more))
        return (
            model,
            {"pixel_values": torch.randn(2, 3, size, size)},
            lambda out: answer(out).float().square().mean(),
        )

    return make


def models():
    for size, names in TIMM.items():
        for name in names.split():
            yield name, of_timm(name, size)
    for suffix, group in (("ForCausalLM", CAUSAL), ("ForSequenceClassification", CLASSIFYING)):
        for prefix, more in group.items():
            yield prefix, of_transformers(prefix, suffix, more)
    for name, (size, more) in SEEING.items():
        yield name[: name.rindex("For")], seeing(name, size, more)


class Side:
    """A model on one device; a step ends when its results are there."""

    def __init__(self, device, model, batch, loss, training):
        self.device, self.loss, self.training = device, loss, training
        self.model = copy.deepcopy(model).to(DTYPE).to(device).train(training)
        self.batch = {k: (t.to(DTYPE) if t.is_floating_point() else t).to(device) for k, t in batch.items()}
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4, momentum=0.9)

    def __call__(self):
        inputs = tuple(self.batch.values()) if "x" in self.batch else ()
        named = {} if inputs else self.batch
        if self.training:
            self.optimizer.zero_grad()
            out = self.loss(self.model(*inputs, **named))
            out.backward()
            self.optimizer.step()
        else:
            with torch.no_grad():
                out = self.model(*inputs, **named)
        if self.device == "lazyt":
            lazyt.mark_step()
            lazyt.wait_device_ops()
        return out


def answer(out):
    """What a model is asked for: scores, or of images its first result."""
    return out if isinstance(out, torch.Tensor) else out["logits"] if "logits" in out else out[0]


def logits_of(out):
    return answer(out).float().cpu()


def error(got, want, model, batch):
    """At most 1 for what is right; by f32 a difference from eager, in halves how much further from f32 than eager."""
    if DTYPE == torch.float32:
        return ((got - want).abs().max() / want.abs().max().clamp(min=1e-6)).item() / NEAR
    rounded = copy.deepcopy(model).to(DTYPE).float().eval()
    inputs = {k: t.to(DTYPE).float() if t.is_floating_point() else t for k, t in batch.items()}
    with torch.no_grad():
        exact = logits_of(rounded(*inputs.values()) if "x" in inputs else rounded(**inputs))
    far, as_eager = ((t - exact).square().mean().sqrt() for t in (got, want))
    return (far / as_eager.clamp(min=1e-6)).item() / TIMES


def measure(make):
    torch.manual_seed(0)
    model, batch, loss = make()
    row = {}
    for training in (False, True):
        here, eager = (Side(device, model, batch, loss, training) for device in ("lazyt", "cpu"))
        begin = time.perf_counter()
        first = here()
        row["train_first_s" if training else "first_s"] = time.perf_counter() - begin
        want = eager()
        if not training:
            row["error"] = error(logits_of(first), logits_of(want), model, batch)
        for _ in range(3):
            here(), eager()
        lazyt.metrics.reset()
        here()
        row["train_host" if training else "host"] = dict(lazyt.metrics.fallbacks())
        sides = {"lazyt": partial(common.timed, here), "eager": partial(common.timed, eager)}
        times = common.medians(common.interleaved(sides, ARGS.rounds))
        kind = "train" if training else "inference"
        row[f"{kind}_ms"] = times["lazyt"] * 1e3
        row[f"{kind}_x_eager"] = times["eager"] / times["lazyt"]
    return row


def main() -> int:
    torch.set_num_threads(1)
    chosen = [(n, m) for n, m in models() if any(part in n for part in ARGS.only.split(";"))]
    if ARGS.list:
        print("\n".join(name for name, _ in chosen))
        return 0
    torchvision_library.stand_in()
    print(common.header(backend=os.environ["LAZYT_BACKEND"], dtype=ARGS.dtype), flush=True)
    print(f"{'':28s} {'inference':>18s} {'training':>18s}  first steps, on the host", flush=True)
    rows, wrong = {}, []
    for name, make in chosen:
        try:
            row = rows[name] = measure(make)
        except Exception as e:  # of one model; the others are measured
            wrong.append(name)
            print(f"{name:28s} failed: {type(e).__name__}: {str(e).splitlines()[0]}", flush=True)
            continue
        host = {**row["host"], **row["train_host"]}
        print(
            f"{name:28s} {row['inference_ms']:8.2f} ms {row['inference_x_eager']:5.2f} x {row['train_ms']:8.2f} ms"
            f" {row['train_x_eager']:5.2f} x  {row['first_s']:.1f} s, {row['train_first_s']:.1f} s {host or ''}",
            flush=True,
        )
        if not row["error"] <= 1:
            wrong.append(name)
            print(f"{name:28s} WRONG: outputs are off by {row['error']:.1f} x what may be", flush=True)
    common.write_json(ARGS.json, {"rows": rows, "wrong": wrong})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
