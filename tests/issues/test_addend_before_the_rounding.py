"""A product of bfloat16 matrices with oneDNN was rounded, then its addend added and rounded again: where both cancel,
baddbmm was some units off."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch, lazyt
beta, alpha = float(sys.argv[1]), float(sys.argv[2])
torch.manual_seed(0)
a, b = torch.randn(3, 33, 40).bfloat16(), torch.randn(3, 40, 17).bfloat16()
c = (-alpha / beta * (a.float() @ b.float()) * 1.01).bfloat16()
for f, operands in ((torch.baddbmm, (c, a, b)), (torch.addmm, (c[0], a[0], b[0]))):
    exact = f(*(t.double() for t in operands), beta=beta, alpha=alpha)
    got = f(*(t.to("lazyt") for t in operands), beta=beta, alpha=alpha).cpu().double()
    # Half a unit in the last place of bfloat16, and a little of float32 of what cancels.
    print(bool(((got - exact).abs() <= 2.0**-8 * exact.abs() * 1.001 + 2.0**-19 * (beta * operands[0].double()).abs() + 1e-4).all()))
"""


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 2)])
def test_a_product_with_an_addend_is_rounded_once(beta, alpha):
    env = {**os.environ, "LAZYT_BACKEND": "onednn"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(beta), str(alpha)], capture_output=True, text=True, env=env)
    assert done.stdout == "True\nTrue\n", done.stderr
