"""On the host inside a step, as_strided reads what the program says it reads: a row-major operand."""

import os
import subprocess
import sys

PROGRAM = """
import lazyt, torch
def program(device):
    x = (torch.arange(24.0, device=device).reshape(2, 3, 4) + 1).transpose(1, 2) * 2
    x[:, 1:].as_strided((2, 2), (3, 1), 1).add_(100)
    y = (torch.arange(16.0, device=device).reshape(1, 4, 2, 2) * 1).contiguous(memory_format=torch.channels_last) + 1
    y.as_strided((4,), (3,), 2).zero_()
    return x, y
for a, b in zip(program("lazyt"), program("cpu")):
    assert a.stride() == b.stride()
    torch.testing.assert_close(a.cpu(), b)
"""


def test_as_strided_of_a_permuted_result():
    refuse = "aten::as_strided,aten::as_strided_scatter,aten::slice_scatter,aten::permute"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**os.environ, "LAZYT_BACKEND": "ts", "LAZYT_TS_REFUSE": refuse}
    )
    assert done.returncode == 0, done.stdout + done.stderr
