"""The depth of a program is data: a chain of a million pending operators is one program like any other.

    python tests/torch/test_depth.py [operators]      prints what it took
"""

import os
import subprocess
import sys
import time

import pytest


def chain(operators: int) -> None:
    os.environ.setdefault("LAZYT_DEADLINE", "3600")  # compiling so much is slow where others compute, too
    import lazyt
    import torch

    x = start = torch.zeros(4, device="lazyt", dtype=torch.int64)
    begin = time.monotonic()
    for i in range(operators):
        x = x + start if i % 2 else x.bitwise_xor(start + i % 3) if i % 1000 == 0 else x + 1
    recorded = time.monotonic()
    pending = lazyt._C.pending_ops()
    values = x.tolist()
    done = time.monotonic()
    y = torch.zeros(4, dtype=torch.int64)
    for i in range(operators):
        y = y + 0 if i % 2 else y.bitwise_xor(torch.full((4,), i % 3)) if i % 1000 == 0 else y + 1
    assert values == y.tolist(), (values, y.tolist())
    launches = lazyt.metrics.counters().get("UncachedCompile", 0)
    print(f"{pending} pending operators in {launches} program(s): recorded in {recorded - begin:.1f} s, "
          f"compiled and run in {done - recorded:.1f} s")  # fmt: skip
    assert pending >= operators and launches == 1


def run(operators: int, **options: str) -> None:
    env = {**os.environ, "LAZYT_BACKEND": "ts", "LAZYT_MAX_PENDING": str(4 * operators), **options}
    done = subprocess.run([sys.executable, __file__, str(operators)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


@pytest.mark.pending
def test_a_chain_of_thirty_thousand_is_one_program():
    run(30_000)


@pytest.mark.slow
def test_a_chain_of_a_million_is_one_program():
    run(1_000_000)


if __name__ == "__main__":
    os.environ.setdefault("LAZYT_MAX_PENDING", "4000000")
    chain(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
