"""What depends on numbers alone: computed once, and what a number does not choose is not computed."""

import os

import lazyt
import pytest
import torch

DEVICE = "lazyt"
ROUNDS_TWICE = os.environ.get("LAZYT_ONEDNN_ISA") == "portable"  # in a multiply-add
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def interpolated(found: torch.Tensor, expected: torch.Tensor) -> None:
    exact = {} if ROUNDS_TWICE else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(found.cpu(), expected, equal_nan=True, **exact)


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(torch.signbit(found.cpu())[numbers], torch.signbit(expected)[numbers])


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_program_interpolates_by_every_weight(dtype):
    torch.manual_seed(0)
    a, b = torch.randn(2, 1037).to(dtype)
    x, y = a.to(DEVICE), b.to(DEVICE)
    torch.lerp(x, y, 0.1).cpu()
    before = lazyt.metrics.counter_value("UncachedCompile")
    for weight in (0.1, 0.3, 0.5, 0.7, -0.2, -0.9, 1.0, 0.0, 3.5, float("inf"), float("nan")):
        interpolated(torch.lerp(x, y, weight), torch.lerp(a, b, weight))
    assert lazyt.metrics.counter_value("UncachedCompile") == before


def test_a_choice_among_sums_and_in_place():
    torch.manual_seed(0)
    for weight in (0.25, 0.75):
        a, b = torch.randn(2, 64, 300)
        x, y = a.to(DEVICE), b.to(DEVICE)
        total = (torch.lerp(x, y, weight) * y).sum(1)
        x.lerp_(y, weight)
        expected = torch.lerp(a, b, weight)
        torch.testing.assert_close(total.cpu(), (expected * b).sum(1))
        torch.testing.assert_close(x.cpu(), expected)


def test_two_choices_of_one_kernel():
    torch.manual_seed(0)
    a, b, c = torch.randn(3, 5000)
    x, y, z = (t.to(DEVICE) for t in (a, b, c))
    for first, second in ((0.2, 0.3), (0.2, 0.8), (0.9, 0.1), (0.6, 0.7)):
        found = torch.lerp(torch.lerp(x, y, first), z, second).cpu()
        torch.testing.assert_close(found, torch.lerp(torch.lerp(a, b, first), c, second))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "bounds", [(0, 1000, 1), (1000, 0, -1), (0, -5, -1), (0.5, 77.25, 0.125), (-3, 3, 0.75), (5, 5, 1)]
)
def test_ranges_are_those_of_eager(dtype, bounds):
    same(torch.arange(*bounds, dtype=dtype, device=DEVICE), torch.arange(*bounds, dtype=dtype))


def test_a_range_times_a_number_keeps_the_sign_of_zero():
    for factor in (-1.0, -0.5, 2.0):
        expected = torch.arange(600).double() * factor
        same(torch.arange(600, device=DEVICE).double() * factor, expected)
        same(torch.arange(600, device=DEVICE).double() * factor + 0.0, expected + 0.0)
        same(
            (torch.arange(600, device=DEVICE).double() + 3.0) * factor,
            (torch.arange(600).double() + 3.0) * factor,
        )


def test_more_numbers_than_a_kernel_has_room_for():
    torch.manual_seed(0)
    a, b = torch.randn(2, 700)
    x, y = a.to(DEVICE), b.to(DEVICE)
    for k in range(90):
        weight = 0.3 + k / 200
        a, x = torch.lerp(a, b, weight), torch.lerp(x, y, weight)
    torch.testing.assert_close(x.cpu(), a)


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_positive_is_chosen(dtype):
    values = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 6e-8, -6e-8]
    a = torch.tensor(values * 40, dtype=dtype)
    g = torch.randn(a.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    x, y = a.to(DEVICE), g.to(DEVICE)
    leaky, chosen = torch.nn.functional.leaky_relu, torch.where
    same(leaky(x, 0.25), leaky(a, 0.25))
    same(
        torch.ops.aten.leaky_relu_backward(y, x, 0.25, False),
        torch.ops.aten.leaky_relu_backward(g, a, 0.25, False),
    )
    same(chosen(x > 0, y, x), chosen(a > 0, g, a))
    same(chosen(x > 0, 2.0, y * 0.5), chosen(a > 0, 2.0, g * 0.5))
    condition = x > 0  # which somebody else reads, too
    same(chosen(condition, y * 0.5, x), chosen(a > 0, g * 0.5, a))
    assert torch.equal(condition.cpu(), a > 0)
    same(chosen(x > 0, x, chosen(y > 0, y, x)), chosen(a > 0, a, chosen(g > 0, g, a)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_weights_of_elements_interpolate_as_in_eager(dtype):
    torch.manual_seed(0)
    a, b, w = torch.randn(3, 1037).to(dtype)
    w[:12] = torch.tensor([0.5, -0.5, 0, 1, -0.0, 2, 0.4999, 0.5001, -1, float("inf"), float("nan"), -3]).to(
        dtype
    )
    x, y, weight = (t.to(DEVICE) for t in (a, b, w))
    interpolated(torch.lerp(x, y, weight), torch.lerp(a, b, w))
    interpolated(torch.lerp(x, 2.0 * y, weight.abs()), torch.lerp(a, 2.0 * b, w.abs()))
    interpolated(torch.lerp(x[:12], y[0], weight[:12]), torch.lerp(a[:12], b[0], w[:12]))
    # What it is made of, read by others, too.
    near = w.abs() < 0.5
    found = torch.where(weight.abs() < 0.5, torch.lerp(x, y, weight), y - x)
    interpolated(found, torch.where(near, torch.lerp(a, b, w), b - a))
