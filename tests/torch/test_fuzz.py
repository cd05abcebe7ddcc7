"""The fuzzer of random programs (program_fuzzer.py): a short run with a fresh seed; and it shrinks what it finds."""

import os
import subprocess
import sys
from pathlib import Path

FUZZER = Path(__file__).parent / "program_fuzzer.py"

# The fuzzer on a device that counts a version too many behind relu.
WRONG = """
import program_fuzzer
original = program_fuzzer.run

def wrong(statements, device):
    seen = original(statements, device)
    if device == "lazyt" and "x1" in seen.tensors and any("relu" in s for s in statements):
        seen.tensors["x1"]["version"] += 1
    return seen

program_fuzzer.run = wrong
ones = "x0 = torch.ones(3, device=D)"
program = [ones, "x2 = x0 + 1", "x1 = x0.relu()", "x0.mul_(2)", "log(x0.sum().item())"]
assert [kind for kind, _ in program_fuzzer.check(program, "")] == ["version"]
assert program_fuzzer.shrink(program, "version", "") == [ones, "x1 = x0.relu()"]
"""


def run(*args):
    """In a process of its own: it forks, and children must be the first to use the device."""
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, cwd=FUZZER.parent, env={**os.environ, "LAZYT_BACKEND": "ts"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_programs_do_on_lazyt_what_they_do_eagerly():
    shown = run(str(FUZZER), "--programs", "300", "--batch", "100", "--seconds", "40")
    print(shown)  # the seed
    assert " 0 programs" not in shown


def test_a_difference_is_found_and_shrinks():
    run("-c", WRONG)
