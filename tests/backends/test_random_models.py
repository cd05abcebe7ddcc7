"""Random networks train as eager trains them (tests/torch/model_fuzzer.py; run it by hand for more)."""

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "torch"))
import model_fuzzer  # noqa: E402

# The stand-ins for CUDA compile each kernel for a second.
MODELS = 2 if os.environ.get("LAZYT_FAKE_CUDA_LIBRARIES") else 40


def test_a_few_networks():
    said = []
    assert model_fuzzer.fuzz(seed=1, models=MODELS, say=said.append) == 0, "\n".join(said)


@pytest.mark.slow
def test_many_networks():
    said = []
    assert model_fuzzer.fuzz(seed=2, models=10 * MODELS, say=said.append) == 0, "\n".join(said)


def test_what_is_off_is_told(monkeypatch):
    train = model_fuzzer.train

    def off(case, device, dtype, shift=0):
        seen = train(case, device, dtype, shift)
        return [(name, t * 2 if device == "lazyt" and name == "loss" else t) for name, t in seen]

    monkeypatch.setattr(model_fuzzer, "train", off)
    case = model_fuzzer.make(1, 0)
    assert model_fuzzer.check(case).startswith("loss is off by")
