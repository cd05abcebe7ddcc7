"""LAZYT_CUDA_PROFILE: where the device's time goes, step by step."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.environ.get("LAZYT_BACKEND") != "cuda", reason="an option of cuda")

PROGRAM = """
import lazyt, torch
x = torch.randn(8, 8).to("lazyt")
for _ in range(5):
    (x @ x).relu().sum(0).cpu()
"""


def said(profile: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "LAZYT_CUDA_PROFILE": profile},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_each_kernel_is_told_with_its_time_and_the_node_that_it_was_made_for():
    table = said("2")
    assert "in 3 runs of programs" in table  # from the third run on
    # A product is a kernel of ours or a call of a library, by what the machine has.
    rows = [line.split(maxsplit=4) for line in table.splitlines() if " | " in line]
    assert rows and any("aten::mm" in row[4] for row in rows), table
    for total, runs, mean, least, _ in rows:
        assert int(runs) == 3 and float(least) <= float(mean) <= float(total) + 1
    assert "aten::" not in said("1")


def test_nothing_is_said_unasked():
    assert "runs of programs" not in said("0")
