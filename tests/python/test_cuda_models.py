"""Whole models on the CUDA plugin, whose driver and compiler are stand-ins on the host: values, launches, real NVRTC."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(os.environ.get("LAZYT_FAKE_CUDA_LIBRARIES", ROOT / "build/tests/cuda/fake"))

# What a step may launch. A change that needs more says why here.
MOST_KERNELS = {
    "tutorial CNN, Adadelta": 37,
    "GPT 4 x 256, AdamW": 171,
    "GPT 4 x 256, inference": 54,
    "GPT 4 x 256, inference in bf16": 65,
    "MLP 20 x 32, SGD momentum": 84,
    "MLP 20 x 32, Adam": 105,
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not (FAKE / "lazyt_fake_cuda.so").exists(), reason="the CUDA plugin's stand-ins are not built")
def test_models_follow_eager_in_few_launches_and_their_kernels_compile_for_every_architecture(tmp_path):
    results = tmp_path / "results.json"
    bench = [sys.executable, ROOT / "bench/kernels.py", "--fake", FAKE, "--json", results, "--only", "tutorial;GPT 4;MLP"]
    check = [sys.executable, ROOT / "tests/cuda/check_nvrtc.py", "--"]
    # check_nvrtc.py chooses the folder of texts; the bench takes it from there.
    done = subprocess.run([str(a) for a in check + bench], capture_output=True, text=True, timeout=880)
    if done.returncode == 77:
        pytest.skip("the wheel nvidia-cuda-nvrtc is missing")
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    rows = json.loads(results.read_text())
    assert {name: row["kernels"] for name, row in rows.items() if row["kernels"] > MOST_KERNELS[name]} == {}
    assert all(not row["islands"] and not row["difference"] for row in rows.values())
    assert " 0 failures" in done.stdout
