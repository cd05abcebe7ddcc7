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

# Beside the pole of a logarithm roundings are large; away from it a thousandth is a bug. Bits show what was rounded, a variance of
# equal numbers is zero or what is left of them, and which of several bad indices an error names is any. A view whose history was written
# over cannot be read where the write was wrong either.
JUDGED = """
from program_fuzzer import check

def kinds(*program):
    return [kind for kind, _ in check(list(program), "")]

pole = ["x0 = torch.zeros(2, 3, device=D)", "x0[1] = 0.65", "x1 = torch.nn.functional.batch_norm(x0, None, None, training=True)"]
assert kinds(*pole, "x2 = x1.log1p() if D == 'cpu' else (x1 + 1.5e-7 * (x1 < 0)).log1p()") == []
assert kinds(*pole, "x2 = x1.log1p() if D == 'cpu' else (x1 + 3e-6 * (x1 < 0)).log1p()") == ["value"]
assert kinds("x0 = R(1, 3, 4).to(D)", "x1 = x0.sin() if D == 'cpu' else x0.sin() * 1.001") == ["value"]
assert kinds("x0 = R(1, 9).to(D)", "x1 = x0.floor() if D == 'cpu' else x0.floor() + 1") == ["value"]
bits = "x2 = x1.view(torch.int16)"
assert kinds("x0 = R(1, 4).to(D)", "x1 = x0.exp() if D == 'cpu' else x0.exp() * (1 + 2.4e-7)", bits) == []
assert kinds("x0 = R(1, 4).to(D)", "x1 = x0.exp() if D == 'cpu' else x0.exp() * (1 + 1e-5)", bits) == ["value"]
assert kinds("x1 = R(1, 4).to(D) if D == 'cpu' else R(1, 4).to(D) * (1 + 2.4e-7)", bits) == ["value"]  # no rounding of eager's
same = "x0 = torch.full((6, 4, 3), 3.0, dtype=torch.float64, device=D).erf().float()"
assert kinds(same, "x1 = x0.var() * (D == 'cpu')", "x2 = x1 > 0") == []
assert kinds("x0 = R(1, 9).to(D) / 1000", "x1 = x0.var() * (D == 'cpu')", "x2 = x1 > 0") == ["value"]
far = "x1 = R(1, 4).to(D)[I(628, 7, 4, 3).to(D) if D == 'cpu' else I(628, 7, 4, 3).flip(0).to(D)]"
assert kinds(far) == []
view = ["x0 = torch.ones(4, 2, device=D).requires_grad_() * 2", "x1 = x0.chunk(2)[0]", "with torch.no_grad(): x0.add_(1)"]
assert kinds(*view, "x0.view(-1).index_put_((I(1, 99, 3).to(D),), torch.tensor(1.0).to(D), accumulate=True)") == []
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


def test_roundings_are_told_from_differences():
    run("-c", JUDGED)
