"""Trains a small GPT-2 with transformers' Trainer; prints losses as JSON.

hf_trainer.py DEVICE FOLDER OPTIONS CHECKPOINT     options and checkpoint as JSON; test_hf_trainer.py runs it
"""

import json
import sys

import torch
import torchvision_library

torchvision_library.stand_in()
import transformers  # noqa: E402

device, folder, options, checkpoint = (
    sys.argv[1],
    sys.argv[2],
    json.loads(sys.argv[3]),
    json.loads(sys.argv[4]),
)
if device == "lazyt":
    import lazyt.integrations.accelerate

    lazyt.integrations.accelerate.enable()

transformers.set_seed(3)
small = {
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 32,
    "vocab_size": 100,
    "n_positions": 32,
    **options.pop("model", {}),
}
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**small))
data = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(100, (64, 16))]
arguments = transformers.TrainingArguments(
    folder,
    max_steps=12,
    per_device_train_batch_size=4,
    learning_rate=1e-3,
    warmup_steps=3,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=6,
    report_to=[],
    disable_tqdm=True,
    use_cpu=device == "cpu",
    **options,
)
trainer = transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8])
trainer.train(resume_from_checkpoint=checkpoint)

log = trainer.state.log_history
result = {name: [row[name] for row in log if name in row] for name in ("loss", "grad_norm", "eval_loss")}
result["device"] = next(trainer.model.parameters()).device.type
if device == "lazyt":
    result["host"] = sorted(lazyt.metrics.fallbacks())
    scaler = trainer.accelerator.scaler
    weight = next(trainer.model.parameters())
    result["precision"] = [trainer.accelerator.mixed_precision, str(weight.dtype), scaler is not None]
    result["compiled"] = lazyt.metrics.counter_value("UncachedCompile")
print(json.dumps(result))
