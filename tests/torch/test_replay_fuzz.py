"""Random steps with deviations: bit-equal with and without replay (replay_fuzzer.py; run it by hand for more)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def test_a_few_programs_are_bit_equal():
    import replay_fuzzer

    said = []
    assert replay_fuzzer.fuzz(seed=1, programs=20, batch=20, say=said.append) == 0, "\n".join(said)


@pytest.mark.slow
def test_programs_are_bit_equal():
    import replay_fuzzer

    said = []
    assert replay_fuzzer.fuzz(seed=2, programs=600, batch=100, say=said.append) == 0, "\n".join(said)
