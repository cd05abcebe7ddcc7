"""Random programs do on lazyt what they do eagerly (program_fuzzer.py)."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

FUZZER = Path(__file__).parent / "program_fuzzer.py"


def fuzz(*options: object) -> None:
    seed = random.SystemRandom().randrange(1 << 30)  # a failure prints it
    command = [sys.executable, str(FUZZER), "--seed", str(seed), "--json", *map(str, options)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode in (0, 1), process.stderr
    report = json.loads(process.stdout.splitlines()[-1])
    assert report["programs"] > 0
    assert not report["failures"], process.stderr


def test_random_programs_mean_what_they_mean_eagerly():
    fuzz("--programs", 2000, "--seconds", 20, "--most", 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_thousands_of_random_programs_mean_what_they_mean_eagerly():
    fuzz("--programs", 20000, "--seconds", 1200, "--batch", 40)


def test_a_failing_program_shrinks():
    sys.path.insert(0, str(FUZZER.parent))
    import program_fuzzer

    statements = [f"x{i}" for i in range(40)]
    assert program_fuzzer.reduce(statements, lambda s: "x7" in s and "x31" in s, 10) == ["x7", "x31"]
