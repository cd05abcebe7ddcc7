"""The fuzzer of random programs (program_fuzzer.py): a short run with a fresh seed, and that it shrinks what it finds."""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import program_fuzzer


def test_programs_do_on_lazyt_what_they_do_eagerly():
    seed = random.SystemRandom().randrange(1 << 30)
    report = program_fuzzer.fuzz(seed, 0, 300, 100, seconds=40)
    assert not report["failures"], f"program_fuzzer.py --seed {seed} --programs 300 --batch 100"
    assert report["programs"] >= 100


def test_a_difference_is_found_and_shrinks(monkeypatch):
    original = program_fuzzer.run

    def wrong(statements, device):
        seen = original(statements, device)
        if device == "lazyt" and "x1" in seen.tensors and any("relu" in s for s in statements):
            seen.tensors["x1"]["version"] += 1
        return seen

    monkeypatch.setattr(program_fuzzer, "run", wrong)
    program = ["x0 = torch.ones(3, device=D)", "x2 = x0 + 1", "x1 = x0.relu()", "x0.mul_(2)", "log(x0.sum().item())"]
    differences = program_fuzzer.check(program, "")
    assert [kind for kind, _ in differences] == ["version"]
    assert program_fuzzer.shrink(program, "version", "") == ["x0 = torch.ones(3, device=D)", "x1 = x0.relu()"]
