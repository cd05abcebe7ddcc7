"""Totals of few elements each (channels, a batch of one), which a backend may compute as other operators."""

import itertools
import os

import pytest
import torch

pytestmark = pytest.mark.usefixtures("no_islands")

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.uint8, torch.bool)
NEAR = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 4e-3}
# What is walked, and which dims are reduced: rows, columns, both, all.
SHAPES = [((33, n), 1) for n in (1, 2, 3, 4, 7, 12, 13)] + [((n, 33), 0) for n in (1, 2, 5, 16, 17)]
SHAPES += [
    ((5, 3, 7), 1),
    ((3, 5, 1, 4), (0, 2)),
    ((2, 9, 3), (0, 2)),
    ((4, 2, 2), (1, 2)),
    ((1, 1), (0, 1)),
    ((3, 2), (0, 1)),
]
if os.environ.get("LAZYT_FAKE_CUDA_LIBRARIES"):
    SHAPES = SHAPES[::4]  # each is a program, which a C++ compiler builds for the stand-ins
TOTALS = {
    "sum": lambda x, d: x.sum(d),
    "mean": lambda x, d: x.mean(d),
    "amax": lambda x, d: x.amax(d),
    "amin": lambda x, d: x.amin(d),
    "prod": lambda x, d: x.prod(d if isinstance(d, int) else d[0]),
    "any": lambda x, d: x.any(d),
    "all": lambda x, d: x.all(d, keepdim=True),
    "norm": lambda x, d: torch.linalg.vector_norm(x, 2, d),
    "norm of order 1": lambda x, d: torch.linalg.vector_norm(x, 1, d, keepdim=True),
}


def values(shape, dtype):
    torch.manual_seed(0)
    if dtype == torch.bool:
        return torch.rand(shape) < 0.7
    return (
        (torch.randn(shape, dtype=torch.float64) * 3).to(dtype)
        if dtype.is_floating_point
        else torch.randint(0, 9, shape).to(dtype)
    )


def compare(function, *operands):
    want, got = function(*operands), function(*(t.to("lazyt") for t in operands))
    want, got = (t if isinstance(t, tuple) else (t,) for t in (want, got))
    for w, g in zip(want, got, strict=True):
        near = NEAR.get(w.dtype, 0)
        torch.testing.assert_close(g.cpu(), w, rtol=near, atol=near * 10, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS + WHOLE, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("total", TOTALS)
def test_totals(total, dtype):
    if dtype in WHOLE and total in ("mean", "norm", "norm of order 1"):
        pytest.skip("of floats")
    for shape, dims in SHAPES:
        x = values(shape, dtype)
        if total == "prod" and dtype in FLOATS:
            x = x.sign() * (1 + x.abs() / 20)  # eager rounds products of halves once a factor
        compare(lambda x, d=dims: TOTALS[total](x, d), x)


@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_what_is_computed_before_and_behind(shape, dims):
    x, y = values(shape, torch.float32), values(shape[-1:], torch.float32)

    def both(x, y):
        made = torch.tanh(x * y + 1) - torch.arange(shape[-1], device=x.device)
        return made, made.sum(dims), (made * made).mean(dims).sqrt() + 1, made.amax(dims)

    compare(both, x, y)


def test_operands_of_other_layouts():
    x = values((6, 3, 5, 8), torch.float32)
    for t in (
        x.contiguous(memory_format=torch.channels_last),
        x.transpose(0, 3),
        x[::2, :, 1:4],
        x[:, :1].expand(6, 3, 5, 8),
    ):
        for dims in (1, 2, (1, 2)):
            compare(lambda t, d=dims: t.sum(d), t)


def test_nothing_is_minus_zero_and_nothing_overflows():
    for shape, dims in SHAPES:
        got = torch.full(shape, -0.0).to("lazyt").sum(dims).cpu()
        assert torch.equal(torch.signbit(got), torch.zeros(got.shape, dtype=torch.bool)), shape
        large = torch.full(shape, 1e30)  # whose squares eager's vectors overflow
        want = torch.linalg.vector_norm(large.double(), 2, dims).float()
        torch.testing.assert_close(torch.linalg.vector_norm(large.to("lazyt"), 2, dims).cpu(), want)
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0])
    for n in (1, 2, 3):
        x = torch.tensor(list(itertools.product(special.tolist(), repeat=n)))
        for total in ("sum", "amax", "amin", "prod", "norm"):
            compare(lambda x, f=TOTALS[total]: f(x, 1), x)
            compare(lambda x, f=TOTALS[total]: f(x, 0), x.t().contiguous())


def test_a_total_that_is_written_over_what_it_reads():
    for shape, dims in SHAPES:
        x, y = values(shape, torch.float32), None

        def step(x, d=dims):
            kept = x.mean(d, keepdim=True)
            for _ in range(3):
                x = x - kept * 0.5
                kept = kept * 0.5 + x.mean(d, keepdim=True)
            return x, kept

        compare(step, x)
        on = x.to("lazyt")
        on.mul_(2).add_(on.sum(dims, keepdim=True))
        y = x * 2
        torch.testing.assert_close(on.cpu(), y + y.sum(dims, keepdim=True), rtol=1e-5, atol=1e-5)
