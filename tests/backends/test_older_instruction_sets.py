"""What depends on the CPU's instructions, as on older CPUs: there onednn computes by other kernels, and without oneDNN's where that has
none for bf16 or rounds sums of bytes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.environ.get("LAZYT_BACKEND") != "onednn", reason="instruction sets are onednn's")
HERE = Path(__file__).parent
FILES = ["products", "bytes", "halves", "recurrent", "packed_weights", "division", "special_values"]


@pytest.mark.parametrize("isa", ["avx2", "portable"])
def test_products_and_halves(isa):
    files = [str(HERE / f"test_{name}_of_backends.py") for name in FILES]
    out = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files],
        env={**os.environ, "LAZYT_ONEDNN_ISA": isa},
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stdout[-4000:]


@pytest.mark.parametrize("isa", ["avx2", "portable"])
def test_a_product_is_our_own(isa):
    program = "import torch, lazyt; a = torch.randn(96, 80).to('lazyt'); print((a @ a.t()).sum().item())"
    environment = {**os.environ, "LAZYT_ONEDNN_ISA": isa, "LAZYT_ONEDNN_PROFILE": "1"}
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert "matmul own:packed" in out.stderr
