"""histc of integers failed with the CPU's error. Accelerators have it, and transformers' mixtures of experts count with it."""

import lazyt
import pytest
import torch

DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def by_hand(values, bins, low, high):
    """As CUDA counts: whole numbers throughout, both ends included, what lies outside counts nowhere."""
    values = values.flatten().tolist()
    if low == high:
        low, high = (min(values), max(values)) if values else (0, 1)
        if low == high:
            low, high = low - 1, high + 1
    counts = [0] * bins
    for v in values:
        if low <= v <= high:
            counts[min((v - low) * bins // (high - low), bins - 1)] += 1
    return counts


BOUNDS = [(0, 7), (2, 5), (-3, 90), (0, 0), (4, 4)]


# The bounds of int64's own values can be too far apart: see below.
@pytest.mark.parametrize(
    ("dtype", "bounds"), [(d, b) for d in DTYPES for b in BOUNDS if d != torch.int64 or b[0] < b[1]], ids=str
)
@pytest.mark.parametrize("bins", [1, 4, 8, 11])
def test_integers_are_counted_on_the_device(dtype, bounds, bins):
    lazyt.metrics.reset()
    for values in (torch.randint(0, 8, (6, 9)), torch.full((5,), 3), torch.tensor(7), torch.tensor([])):
        got = torch.histc(values.to(dtype).to("lazyt"), bins, *bounds)
        assert got.dtype == dtype
        assert got.tolist() == by_hand(values.to(dtype), bins, *bounds)
    assert "aten::histc" not in lazyt.metrics.fallbacks()


def test_tokens_of_each_expert():
    experts = torch.randint(0, 60, (500,))
    got = torch.histc(experts.int().to("lazyt"), bins=60, min=0, max=59)
    assert torch.equal(got.cpu(), torch.bincount(experts, minlength=60).int())


def test_floats_are_counted_as_eager_does():
    x = torch.randn(1000)
    for args in [(7,), (10, -1, 1), (3, 0.25, 0.5)]:
        assert torch.equal(torch.histc(x.to("lazyt"), *args).cpu(), torch.histc(x, *args))


@pytest.mark.parametrize(
    ("call", "error", "why"),
    [
        ((4, 5, 2), RuntimeError, "max must be larger than min"),
        ((0, 0, 7), RuntimeError, "bins must be > 0"),
        # Numbers of parts could exceed 64 bits: not counted at all rather than wrongly.
        ((4, 0, 0), NotImplementedError, "not implemented for 'Long'"),
        ((4, 0, 2**62), NotImplementedError, "not implemented for 'Long'"),
    ],
    ids=str,
)
def test_what_cannot_be_counted_says_so(call, error, why):
    with pytest.raises(error, match=why):
        torch.histc(torch.arange(5, device="lazyt"), *call).cpu()
