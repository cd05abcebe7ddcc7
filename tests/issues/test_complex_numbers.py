"""Complex numbers beside real tensors: onednn said "an argument is no number" of comparisons and fills; and its kernels on
the host read complex128 numbers from addresses that are not aligned for them, which ended the process."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch

def outcomes(device):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64):
        for number in (1j, 1 + 0j, 0j):
            for name, call in CALLS.items():
                x = torch.tensor([1, 0, 2]).to(device, dtype)
                try:
                    result = call(x, number).cpu()
                    yield dtype, number, name, result.dtype, result.tolist()
                except Exception as e:
                    yield dtype, number, name, type(e).__name__, str(e).splitlines()[0]

CALLS = {
    "eq": lambda x, n: x == n,
    "ne_": lambda x, n: x.ne_(n),
    "lt": lambda x, n: x < n if x.dtype != torch.float16 else x,  # ComplexHalf has words of its own
    "add": lambda x, n: x + n,
    "mul_": lambda x, n: x.mul_(n),
    "where": lambda x, n: torch.where(x > 0, x, n) if not x.is_complex() else x,
    "fill_": lambda x, n: x.fill_(n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype, device=x.device),
    "masked_fill": lambda x, n: x.masked_fill(x == 1, n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([0], device=x.device), n),
    "setitem": lambda x, n: (x.__setitem__(0, n), x)[1],
    "setitem by mask": lambda x, n: (x.__setitem__(torch.tensor([True, False, True], device=x.device), torch.tensor([n], device=x.device)), x)[1],
    "pad": lambda x, n: torch.constant_pad_nd(x, (1, 1), n),
}
for eager, lazy in zip(outcomes("cpu"), outcomes("lazyt"), strict=True):
    same = eager == tuple(str(v).replace("lazyt", "cpu") if isinstance(v, str) else v for v in lazy)
    assert same, (eager, lazy)
"""


@pytest.mark.parametrize("env", [{}, {"LAZYT_TS_REFUSE": "aten::add.Tensor,aten::mul.Tensor,aten::eq.Scalar"}, {"LAZYT_BACKEND": "onednn"}], ids=["ts", "on the host", "onednn"])
def test_they_mean_what_they_mean_eagerly(env):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr[-1000:]
