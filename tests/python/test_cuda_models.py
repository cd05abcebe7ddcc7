"""Whole models on the CUDA plugin, whose driver and compiler are stand-ins on the host: values, launches, real NVRTC."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(os.environ.get("LAZYT_FAKE_CUDA_LIBRARIES", ROOT / "build/tests/cuda/fake"))

# Of bench/models.py those whose name contains one of these: a test each, since NVRTC takes a minute for one.
ROWS = ["tutorial", "64x64, SGD", "GPT 4 x 256, AdamW", "GPT 4 x 256, inference", "GPT 4 x 256, 64 tokens", "MLP"]
# What a step may launch. A change that needs more says why here.
MOST_KERNELS = {
    "tutorial CNN, Adadelta": 22,
    "ResNet-18 64x64, SGD momentum": 131,
    "GPT 4 x 256, AdamW": 81,
    "GPT 4 x 256, inference": 31,
    "GPT 4 x 256, inference in bf16": 33,
    "GPT 4 x 256, 64 tokens in turn": 38,
    "MLP 20 x 32, SGD momentum": 45,
    "MLP 20 x 32, Adam": 46,
}


def test_every_row_has_a_limit():
    code = "import models; print(*models.ROWS, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "bench")
    assert done.returncode == 0, done.stderr
    rows = {line for line in done.stdout.splitlines() if any(part in line for part in ROWS)}
    assert rows - MOST_KERNELS.keys() == set(), "rows of bench/models.py that have no limit in MOST_KERNELS"
    assert MOST_KERNELS.keys() - rows == set(), "limits of MOST_KERNELS that no row of bench/models.py has"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", ROWS)
@pytest.mark.skipif(not (FAKE / "lazyt_fake_cuda.so").exists(), reason="the CUDA plugin's stand-ins are not built")
def test_models_follow_eager_in_few_launches_and_their_kernels_compile_for_every_architecture(part, tmp_path):
    results = tmp_path / "results.json"
    bench = [sys.executable, ROOT / "bench/kernels.py", "--fake", FAKE, "--json", results, "--only", part]
    check = [sys.executable, ROOT / "tests/cuda/check_nvrtc.py", "--"]
    # check_nvrtc.py chooses the folder of texts; the bench takes it from there.
    done = subprocess.run([str(a) for a in check + bench], capture_output=True, text=True, timeout=580)
    if done.returncode == 77:
        pytest.skip("the wheel nvidia-cuda-nvrtc is missing")
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    rows = json.loads(results.read_text())
    assert rows.keys() == {name for name in MOST_KERNELS if part in name}
    assert {name: row["kernels"] for name, row in rows.items() if row["kernels"] > MOST_KERNELS[name]} == {}
    assert all(not row["islands"] and not row["difference"] for row in rows.values())
    assert " 0 failures" in done.stdout
