"""A command that ended just after its plugin was released crashed now and then: the plugin was unloaded on one
thread while the process ran exit handlers, the plugin's among them, on another."""

import subprocess
import sys
from pathlib import Path

import lazyt
import pytest

PROGRAM = """
import torch, lazyt
grid = torch.zeros(1, 2, 2, 2, device="lazyt")
torch.nn.functional.grid_sample(torch.ones(1, 1, 4, 4, device="lazyt"), grid, mode="bicubic", align_corners=False).cpu()
"""


def test_refused_programs_end_with_status_1_each_time(tmp_path, monkeypatch):
    monkeypatch.setenv("LAZYT_DUMP", str(tmp_path))
    monkeypatch.setenv("LAZYT_BACKEND", "ts")
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
    program = next(p for p in sorted(tmp_path.glob("*.lzp")) if b"grid_sampler_2d" in p.read_bytes())
    command = [Path(lazyt.__file__).parent / "bin" / "lazyt", "run", "--backend", "onednn", program]
    monkeypatch.delenv("LAZYT_DUMP")
    first = subprocess.run(command, capture_output=True, text=True)
    if "there is no backend" in first.stderr:
        pytest.skip("onednn is not built")
    assert "does not take all of the program" in first.stderr
    for _ in range(80):
        assert subprocess.run(command, capture_output=True).returncode == 1
