"""Programs that read operands and results again and again, with elementary functions in between: onednn keeps
some of them in registers, of which an elementary function overwrites half."""

import random

import lazyt
import pytest
import torch

DEVICE = "lazyt"
N = 3 * 1024 + 37  # whole tiles and a part of one

pytestmark = pytest.mark.usefixtures("no_islands")

CONTINUOUS = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.maximum,
    torch.minimum,
    lambda a, b: a.abs() - b,
    lambda a, b: (a * 0.5).relu() + b,
]
CHEAP = [*CONTINUOUS, torch.copysign, lambda a, b: torch.where(a > b, a, b * 0.5)]
ELEMENTARY = [
    torch.tanh,
    torch.sigmoid,
    torch.erf,
    lambda x: torch.exp(-x.abs()),
    lambda x: torch.log1p(x.abs()),
]


def program(seed: int, elementary: float):
    """About 16 operators on three operands; each reads what came shortly before, or an operand."""
    draws = random.Random(seed)
    steps = []
    for k in range(16):
        one = draws.random() < elementary
        recent = range(max(0, k - 3), k + 3)
        f = draws.choice(ELEMENTARY if one else CONTINUOUS if elementary else CHEAP)
        steps.append((f, [draws.choice(recent) for _ in range(1 if one else 2)]))

    def run(*operands):
        values = list(operands)
        for f, read in steps:
            values.append(f(*(values[r] for r in read)).clamp(-4, 4))
        return values[-3:]

    return run


def drawn(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(N).to(dtype) for _ in range(3)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_cheap_operators_alone_are_exact(seed, dtype):
    run, operands = program(seed, 0), drawn(dtype)
    for got, want in zip(run(*(t.to(DEVICE) for t in operands)), run(*operands), strict=True):
        assert torch.equal(got.cpu(), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_elementary_functions_between_readers(seed, dtype):
    run, operands = program(seed, 0.3), drawn(dtype)
    exact = run(*(t.double() for t in operands))
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12  # differences of near values and their products
    for got, want in zip(run(*(t.to(DEVICE) for t in operands)), exact, strict=True):
        torch.testing.assert_close(got.cpu().double(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("length", [1, 64, 127, 128, 129, 1000, 40_000, 300_001])
def test_lengths(length):
    torch.manual_seed(0)
    a, b = torch.randn(length), torch.randn(length)

    def chain(a, b):
        c = ((a * b + a) * 0.5 - b).relu()
        return ((c + a) * b - c).abs() * 0.25

    assert torch.equal(chain(a.to(DEVICE), b.to(DEVICE)).cpu(), chain(a, b))


def test_a_result_over_an_operand_that_was_kept():
    torch.manual_seed(0)
    host = [torch.randn(N) for _ in range(2)]
    device = [t.to(DEVICE) for t in host]
    for a, b in (host, device):
        for _ in range(3):
            c = a * b + a
            a.copy_((c - b) * a + c)
            b.mul_(0.5).add_(a * 0.25)
    for got, want in zip(device, host, strict=True):
        assert torch.equal(got.cpu(), want)


@pytest.mark.parametrize("length", [128, 1000, 40_000])
def test_an_operand_that_is_read_again_behind_the_result_over_it(length):
    """The result has its memory (it is donated), and is computed first."""
    torch.manual_seed(0)
    host = [torch.randn(length) for _ in range(2)]
    device = [t.to(DEVICE) for t in host]
    lazyt.mark_step()
    lazyt.wait_device_ops()

    def step(a, b):
        before = a.clone()
        return a.add_(b) * before

    want, got = step(*host), step(*device)
    lazyt.mark_step()
    assert torch.equal(got.cpu(), want)
    assert torch.equal(device[0].cpu(), host[0])
