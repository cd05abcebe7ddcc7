"""A transposed convolution of bfloat16 with oneDNN was rounded, then its bias added and rounded again: where both cancel,
the result was some units off."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch, lazyt
dims = int(sys.argv[1])
conv = getattr(torch.nn.functional, f"conv_transpose{dims}d")
torch.manual_seed(0)
x, w, b = (torch.randn(s).bfloat16() for s in ((2, 4, *[5] * dims), (4, 3, *[3] * dims), (3,)))
b *= 100
bias = b.view(-1, *[1] * dims)
exact = conv(x.double(), w.double(), b.double(), stride=2)
got = conv(x.to("lazyt"), w.to("lazyt"), b.to("lazyt"), stride=2).cpu().double()
# Half a unit in the last place of bfloat16, and a little of float32 of the bias.
print(bool(((got - exact).abs() <= 2.0**-8 * exact.abs() * 1.001 + 2.0**-20 * bias.double().abs()).all()))
"""


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_transposed_convolution_is_rounded_once(dims):
    env = {**os.environ, "LAZYT_BACKEND": "onednn"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(dims)], capture_output=True, text=True, env=env)
    assert done.stdout == "True\n", done.stderr
