"""Random calls are as near to double as eager's (operator_fuzzer.py; run it by hand for more)."""

import os
import random

import operator_fuzzer
import pytest

# The stand-ins for CUDA compile each kernel for a second.
CALLS = 4 if os.environ.get("LAZYT_FAKE_CUDA_LIBRARIES") else 200


@pytest.mark.parametrize("family", operator_fuzzer.FAMILIES, ids=lambda f: f.__name__)
def test_a_few_calls(family):
    r, done = random.Random(1), 0
    while done < CALLS:
        if found := operator_fuzzer.case(r, family.__name__):
            assert not found[1], ": ".join(found)
            done += 1


def test_what_is_off_is_told(monkeypatch):
    on_device = operator_fuzzer.on_device
    monkeypatch.setattr(operator_fuzzer, "on_device", lambda x: on_device(x) * 1.5)
    r = random.Random(1)
    found = [operator_fuzzer.case(r, "product") for _ in range(20)]
    assert any("off by" in words[1] for words in found if words)
