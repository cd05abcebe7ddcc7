"""transformers' Trainer with accelerate on the device: eager's losses, checkpoints that go on exactly.

Neither is a requirement of lazyt: `make test-models` installs them and runs these.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (importlib.util.find_spec("transformers") and importlib.util.find_spec("accelerate")),
        reason="transformers or accelerate is not installed: make test-models",
    ),
]

SCALING = ("aten::_amp_", "aten::_fused_")
NO_DROPOUT = {"model": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}}


@pytest.fixture
def train(tmp_path):
    """Trains in a process of its own: accelerate chooses a device once."""

    def run(device, folder="out", checkpoint=None, **options):
        options_given = dict(options)
        options = json.dumps({"save_strategy": "no", **options})
        program = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "hf_trainer.py")]
        arguments = [device, str(tmp_path / folder), options, json.dumps(checkpoint)]
        done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads(done.stdout.splitlines()[-1])
        assert result["device"] == device
        # Scaling and the step that it may skip are kernels that not every backend has.
        scaling = {n for n in result.get("host", []) if options_given.get("fp16") and n.startswith(SCALING)}
        assert set(result.get("host", [])) - scaling <= {"aten::_local_scalar_dense"}
        return result

    return run


def test_losses_and_evaluations_equal_eager(train):
    actual, expected = train("lazyt", **NO_DROPOUT), train("cpu", **NO_DROPOUT)
    assert len(actual["loss"]) == 12 and len(actual["eval_loss"]) == 2
    for what in ("loss", "grad_norm", "eval_loss"):
        assert actual[what] == pytest.approx(expected[what], rel=1e-3), what
    # The first steps and evaluations; logging reads values, so a step is some programs.
    assert actual["compiled"] <= 10


def test_accumulated_gradients_and_another_optimizer_equal_eager(train):
    options = {**NO_DROPOUT, "gradient_accumulation_steps": 2, "optim": "adafactor"}
    assert train("lazyt", **options)["loss"] == pytest.approx(train("cpu", **options)["loss"], rel=1e-3)


def test_recomputed_activations_change_nothing(train):
    whole, recomputed = train("lazyt"), train("lazyt", gradient_checkpointing=True)
    assert recomputed["loss"] == pytest.approx(whole["loss"], rel=1e-3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_is_near_eagers(train, precision):
    options = {**NO_DROPOUT, "gradient_accumulation_steps": 2}
    actual = train("lazyt", **{precision: True}, **options)
    expected = train("cpu", bf16=precision == "bf16", **options)  # accelerate has no fp16 on the CPU
    assert actual["loss"] == pytest.approx(expected["loss"], rel=0.02)
    assert actual["grad_norm"] == pytest.approx(expected["grad_norm"], rel=0.1)
    assert actual["precision"] == [precision, "torch.float32", precision == "fp16"]


@pytest.mark.parametrize("options", [{}, {"fp16": True}])
def test_a_checkpoint_goes_on_with_the_same_dropout(train, tmp_path, options):
    whole = train("lazyt", save_strategy="steps", save_steps=6, **options)
    rest = train("lazyt", "again", str(tmp_path / "out" / "checkpoint-6"), **options)
    assert rest["loss"] == pytest.approx(whole["loss"], rel=1e-5)
