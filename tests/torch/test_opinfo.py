"""A fixed sample of PyTorch's OpInfo (opinfo.py); the whole of it is a command of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="PyTorch's OpInfo needs it")


def test_a_sample_of_operators_is_as_eager():
    tool = Path(__file__).parent / "opinfo.py"
    categories = [word for c in ("float32", "int64", "backward", "inplace", "out") for word in ("--category", c)]
    run = subprocess.run(
        [sys.executable, str(tool), "--every", "31", "--samples", "3", *categories], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
