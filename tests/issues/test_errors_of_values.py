"""Errors about values have eager's exception type, and checks that give no result are made: a singular matrix was
inverted in silence, and `except IndexError` around an embedding caught nothing."""

import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F


def at(d, *values):
    return torch.tensor(values, device=d)


CALLS = {
    "index": lambda d: torch.arange(6.0, device=d)[at(d, 9)],
    "index_put": lambda d: torch.zeros(6, device=d).index_put((at(d, 9),), torch.ones(1, device=d)),
    "index_select": lambda d: torch.arange(6.0, device=d).index_select(0, at(d, 9)),
    "index_add": lambda d: torch.zeros(6, device=d).index_add(0, at(d, 9), torch.ones(1, device=d)),
    "index_add of rows": lambda d: torch.zeros(1, 4, device=d).index_add_(0, at(d, 0, 1), torch.ones(2, 4, device=d)),
    "index_reduce": lambda d: torch.zeros(1, 4, device=d).index_reduce(0, at(d, 1), torch.ones(1, 4, device=d), "prod"),
    "index_copy": lambda d: torch.zeros(1, 4, device=d).index_copy(0, at(d, 1), torch.ones(1, 4, device=d)),
    "index_fill": lambda d: torch.zeros(1, 4, device=d).index_fill(0, at(d, 1), 3),
    "take": lambda d: torch.arange(6.0, device=d).take(at(d, 9)),
    "embedding": lambda d: F.embedding(at(d, 9), torch.ones(3, 3, device=d)),
    "cross_entropy": lambda d: F.cross_entropy(torch.ones(2, 3, device=d), at(d, 9, 1)),
    "gather": lambda d: torch.arange(6.0, device=d).gather(0, at(d, 9)),
    "scatter_add": lambda d: torch.zeros(6, device=d).scatter_add(0, at(d, 9), torch.ones(1, device=d)),
    "multi_margin_loss": lambda d: F.multi_margin_loss(torch.ones(2, 3, device=d), at(d, 9, 1)),
    "bernoulli above 1": lambda d: torch.bernoulli(torch.tensor([0.5, 1.5], device=d)),
    "bernoulli of nothing known": lambda d: torch.bernoulli(torch.tensor([float("nan")], device=d)),
    "bernoulli_ below 0": lambda d: torch.empty(2, 3, device=d).bernoulli_(torch.tensor([-0.5, 1, 0], device=d)),
    "cholesky": lambda d: torch.linalg.cholesky(-torch.eye(3, device=d)),
    "cholesky_ex": lambda d: torch.linalg.cholesky_ex(-torch.eye(3, device=d), check_errors=True)[0],
    "inv": lambda d: torch.linalg.inv(torch.zeros(3, 3, device=d)),
    "inv of several": lambda d: torch.inverse(torch.zeros(2, 3, 3, device=d)),
    "solve": lambda d: torch.linalg.solve(torch.zeros(3, 3, device=d), torch.ones(3, device=d)),
    "eigh": lambda d: torch.linalg.eigh(torch.full((3, 3), float("nan"), device=d))[0],
    "lu_factor": lambda d: torch.linalg.lu_factor(torch.zeros(3, 3, device=d))[0],
    "assert": lambda d: torch._assert_async(torch.zeros(1, device=d)),
    "assert with words": lambda d: torch._assert_async(torch.zeros(1, device=d), "my words"),
}


def observe(call, device, look=True):
    try:
        result = call(device)
        if result is not None and look:
            result.cpu()
    except Exception as e:
        return type(e), str(e).splitlines()[0]
    return None, ""


@pytest.mark.parametrize("name", list(CALLS))
def test_the_exception_is_eagers(name):
    kind, words = observe(CALLS[name], "cpu")
    lazy_kind, lazy_words = observe(CALLS[name], "lazyt")
    assert kind is not None
    assert lazy_kind is kind
    assert words in lazy_words


def test_operator_by_operator_the_call_itself_raises_it():
    run = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "LAZYT_EAGER": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.stdout.splitlines() == [f"{name} True" for name in CALLS], run.stderr


def test_what_gives_no_result_runs_for_what_it_does():
    seen = []
    with torch.library._scoped_library("lazyt_issue_effect", "FRAGMENT") as library:
        library.define("look(Tensor x) -> ()")
        library.impl("look", lambda x: seen.append(x.sum().item()), "CompositeExplicitAutograd")
        torch.ops.lazyt_issue_effect.look(torch.ones(3, device="lazyt") * 2)
        library.define("look_cpu(Tensor x) -> ()")
        library.impl("look_cpu", lambda x: seen.append(x.sum().item()), "CPU")
        torch.ops.lazyt_issue_effect.look_cpu(torch.ones(3, device="lazyt") * 3)
    assert seen == [6.0, 9.0]


if __name__ == "__main__":
    for name, call in CALLS.items():
        print(name, observe(call, "lazyt", look=False)[0] is observe(call, "cpu", look=False)[0])
