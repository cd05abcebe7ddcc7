"""Images sampled at places that a tensor names: results and gradients as eager's, with no host island."""

import os

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("no_islands")

SHAPES = [(2, 3, 5, 7), (1, 9, 1, 4), (2, 20, 8, 8), (0, 3, 4, 4)]
MODES = [(m, p, c) for m in ("bilinear", "nearest") for p in ("zeros", "border", "reflection") for c in (False, True)]


def sampled(x, places, direction, device, mode, padding, corners):
    """The result, and the gradients of both operands where there is a direction."""
    x, places = (t.detach().to(device).requires_grad_(direction is not None) for t in (x, places))
    y = F.grid_sample(x, places, mode=mode, padding_mode=padding, align_corners=corners)
    if direction is None:
        return [y.cpu()]
    y.backward(direction.to(device))
    return [t.detach().cpu() for t in (y, x.grad, places.grad)]


def operands(shape, dtype):
    torch.manual_seed(sum(shape))
    made = (4, 6) if len(shape) == 4 else (2, 3, 4)
    x = torch.randn(*shape, dtype=torch.float64)
    places = torch.randn(shape[0], *made, len(made), dtype=torch.float64) * 1.3
    return x.to(dtype), places.to(dtype), torch.randn(shape[0], shape[1], *made, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize(("mode", "padding", "corners"), MODES)
@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "gradients"])
def test_places_everywhere(mode, padding, corners, dtype, gradients):
    if gradients and os.environ["LAZYT_BACKEND"] != "onednn" and dtype != torch.float32:
        pytest.skip("made of other operators there: one dtype tells")
    near = {torch.float64: 1e-11, torch.float32: 2e-4, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
    for shape in SHAPES:
        x, places, direction = operands(shape, dtype)
        # Of halves eager computes places in halves, and so finds other elements: f32's are right.
        exact = [t.float() if dtype.itemsize == 2 else t for t in (x, places, direction)]
        want = sampled(*exact[:2], exact[2] if gradients else None, "cpu", mode, padding, corners)
        got = sampled(x, places, direction if gradients else None, "lazyt", mode, padding, corners)
        for w, g in zip(want, got, strict=True):
            assert g.dtype == dtype
            torch.testing.assert_close(g.to(w.dtype), w, rtol=near, atol=near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize(("mode", "padding", "corners"), MODES)
def test_places_in_volumes(mode, padding, corners, dtype):
    near = {torch.float64: 1e-11, torch.float32: 2e-4, torch.bfloat16: 3e-2}[dtype]
    for shape in ((2, 3, 5, 4, 6), (1, 2, 1, 3, 2)):
        operand = operands(shape, dtype)
        exact = [t.float() if dtype == torch.bfloat16 else t for t in operand]
        want = sampled(*exact, "cpu", mode, padding, corners)
        for w, g in zip(want, sampled(*operand, "lazyt", mode, padding, corners), strict=True):
            torch.testing.assert_close(g.to(w.dtype), w, rtol=near, atol=near)


@pytest.mark.parametrize("frozen", ["image", "places"])
def test_the_gradient_of_one_operand_alone(frozen):
    x, places, direction = operands((2, 3, 5, 4, 6), torch.float32)
    grads = []
    for device in ("cpu", "lazyt"):
        given = {"image": x.to(device), "places": places.to(device)}
        asked = next(t.requires_grad_() for name, t in given.items() if name != frozen)
        y = F.grid_sample(given["image"], given["places"], align_corners=False)
        grads.append(torch.autograd.grad(y, asked, direction.to(device))[0].cpu())
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("shape", [SHAPES[0], (2, 3, 5, 4, 6)], ids=["image", "volume"])
def test_places_that_are_no_numbers_or_far_away(mode, shape):
    x, places, _ = operands(shape, torch.float32)
    for i, value in enumerate((1e20, -1e20, float("inf"), float("nan"), 3e9)):
        places.view(-1, places.shape[-1])[i, i % 2] = value
    want = sampled(x, places, None, "cpu", mode, "zeros", False)
    got = sampled(x, places, None, "lazyt", mode, "zeros", False)
    # Whether an element at no place is 0 or no number is left open: eager's vectors and its other loop differ.
    for w, g in zip(want, got, strict=True):
        torch.testing.assert_close(torch.where(w.isnan(), 0.0, w), torch.where(g.isnan(), 0.0, g))


def test_an_image_that_lies_channels_last():
    x, places, direction = operands(SHAPES[2], torch.float32)
    want = sampled(x, places, None, "cpu", "bilinear", "zeros", False)
    got = sampled(x.contiguous(memory_format=torch.channels_last), places, None, "lazyt", "bilinear", "zeros", False)
    torch.testing.assert_close(got[0], want[0])
