"""The fuzzer of random programs (program_fuzzer.py): a short run with a fresh seed; it shrinks what it finds."""

import subprocess
import sys
from pathlib import Path

FUZZER = Path(__file__).parent / "program_fuzzer.py"


def test_random_programs_do_what_they_do_eagerly():
    run = subprocess.run(
        [sys.executable, str(FUZZER), "--programs", "200", "--seconds", "40", "--most", "2"], capture_output=True, text=True
    )
    print(run.stdout)  # begins with the seed
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_failing_program_shrinks():
    sys.path.insert(0, str(FUZZER.parent))
    import program_fuzzer

    statements = [f"x{i}" for i in range(40)]
    assert program_fuzzer.reduce(statements, lambda s: "x7" in s and "x31" in s, 10) == ["x7", "x31"]
