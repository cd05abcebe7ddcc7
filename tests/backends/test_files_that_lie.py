"""A program file may say any dtype of any value: `lazyt run` computes what that means, or says why not."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import lazyt
import pytest

COMMAND = Path(lazyt.__file__).parent / "bin" / "lazyt"
NARROW, WIDE, FLOAT, HALF = 3, 9, 13, 11  # i8, i64, f64, bf16 (abi/include/lazyt/dtype.h)

PROGRAMS = {
    "attention": "q, k, v = (r(1, 2, 40, 8).requires_grad_() for _ in range(3)); F.scaled_dot_product_attention(q, k, v).sum().backward(); look(k.grad)",
    "convolution": "look(F.conv2d(r(2, 3, 9, 9), r(8, 3, 3, 3), r(8), padding=1))",
    "product": "look(torch.baddbmm(r(2, 5, 7), r(2, 5, 6), r(2, 6, 7)))",
    "windows": "look(F.adaptive_avg_pool2d(r(2, 3, 9, 7), (4, 3)))",
    "resampling": "look(F.grid_sample(F.interpolate(r(2, 3, 5, 5), scale_factor=2, mode='bilinear'), r(2, 4, 4, 2).tanh(), align_corners=False))",
    "norm": "x = r(4, 33).requires_grad_(); F.layer_norm(x, (33,)).square().sum().backward(); look(x.grad)",
    "places": "i = r(2, 8).argsort(1); look(r(2, 8).gather(1, i).index_add(0, i[0] % 2, r(8, 8)).cumsum(0).topk(3)[0])",
    "loss": "x = r(6, 9).requires_grad_(); F.cross_entropy(x, torch.arange(6, device=D)).backward(); look(x.grad)",
}
RECORDED = """
import torch
from torch.nn import functional as F
D = "lazyt"
torch.manual_seed(0)
r = lambda *dims: torch.randn(*dims).to(D)
look = lambda t: t.cpu()
"""


def dtypes_of(block: bytes) -> list[int]:
    """Where the dtypes of a block's values lie."""
    start, count, stride = struct.unpack_from("<3Q", block, 32)
    return [start + i * stride for i in range(count)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_dtype_that_is_not_true_ends_in_a_result_or_an_error(name, tmp_path):
    environment = {**os.environ, "LAZYT_DUMP": str(tmp_path / "programs"), "LAZYT_LAYERS": ""}
    subprocess.run([sys.executable, "-c", RECORDED + PROGRAMS[name]], env=environment, check=True)
    block = max((tmp_path / "programs").glob("*.lzp"), key=lambda file: file.stat().st_size).read_bytes()
    (size,) = struct.unpack_from("<Q", block, 8)
    changed, ended, said = tmp_path / "changed.lzp", set(), ""
    del environment["LAZYT_DUMP"]
    for place in dtypes_of(block):
        for dtype in (NARROW, WIDE, FLOAT, HALF):
            data = bytearray(block[:size])  # a block alone has no hash
            struct.pack_into("<I", data, place, dtype)
            changed.write_bytes(data)
            done = subprocess.run([COMMAND, "run", changed, "--backend", environment["LAZYT_BACKEND"]], env=environment, capture_output=True, text=True, timeout=60)
            assert done.returncode in (0, 1), f"dtype {dtype} at {place}: {done.returncode}, {done.stderr}"
            ended.add(done.returncode)
            said += done.stderr
    assert 1 in ended and "PRG-" in said
