"""Draws that the plugin does not take: torch.randn in float16 failed with oneDNN, "no host implementation of lazyt::normal",
and a plugin without random operators had none at all. They are the numbers that the rules fix, whoever makes them."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, torch, lazyt
from torch.nn import functional as F

D, floats = "lazyt", (torch.float32, torch.float64, torch.float16, torch.bfloat16)
draws = {
    "uniform": lambda d: torch.rand(7, 3, device=D, dtype=d),
    "normal": lambda d: torch.empty(21, device=D, dtype=d).normal_(1, 2),
    "bernoulli": lambda d: torch.bernoulli(torch.linspace(0, 1, 22).to(D, d)),
    "dropout": lambda d: F.dropout(torch.linspace(-1, 1, 23).to(D, d), 0.3),
    "randint": lambda d: torch.randint(-3, 1000, (21,), device=D, dtype=d),
    "complex": lambda d: torch.view_as_real(torch.randn(5, device=D, dtype={torch.float64: torch.complex128}.get(d, torch.complex64))),
}
draws = {f"{n} {d}": (lambda f=f, d=d: f(d)) for n, f in draws.items() for d in floats}
draws |= {f"randint {d}": lambda d=d: torch.randint(0, 100, (9,), device=D, dtype=d) for d in (torch.int64, torch.int32, torch.uint8)}
draws["all of int64"] = lambda: torch.empty(5, dtype=torch.int64, device=D).random_()
shown = {}
for name, draw in draws.items():
    torch.manual_seed(7)
    got = draw()
    shown[name] = (str(got.dtype), got.double().flatten().tolist())
own = [f"aten::{n}" for n in ("uniform", "normal", "bernoulli", "randint", "dropout")]
print(json.dumps((shown, [n for n in own if n in lazyt.metrics.fallback_reasons()])))
"""
ALL = "lazyt::uniform,lazyt::normal,lazyt::bernoulli,lazyt::dropout,lazyt::randint"


def draws(**env):
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def taken():
    return draws(LAZYT_BACKEND="ts")


@pytest.mark.parametrize("env", [{"LAZYT_BACKEND": "ts", "LAZYT_TS_REFUSE": ALL}, {"LAZYT_BACKEND": "onednn"}], ids=["all", "halves"])
def test_the_numbers_are_those_of_a_plugin_that_takes_them(taken, env):
    (expected, none), (got, on_host) = taken, draws(**env)
    assert none == []
    assert len(on_host) == (5 if "LAZYT_TS_REFUSE" in env else 0)  # halves are made of f32 on the device
    assert got.keys() == expected.keys()
    for name, (dtype, numbers) in expected.items():
        bound = (0.008 if "bfloat16" in name else 0.001 if "float16" in name else 1e-6) if name[0] in "nc" else 0  # ln, sin, cos
        assert got[name] == [dtype, pytest.approx(numbers, rel=bound, abs=bound)], name
