"""Other sizes of an image and borders around it: results and gradients as eager's, with no host island."""

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("no_islands")

SIZES = {1: (7,), 2: (5, 9), 3: (3, 4, 6)}
NEAR = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}
MODES = [(n, mode) for n in (1, 2, 3) for mode in ("nearest", "nearest-exact")]
MODES += [(1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear")]


def image(n, dtype, sizes=None):
    torch.manual_seed(n)
    return (torch.randn(2, 3, *(sizes or SIZES[n]), dtype=torch.float64) * 5).to(dtype)


def compare(function, x, near=None):
    """Of a gradient that differs from element to element, too, where there is one."""
    near = NEAR[x.dtype] * 10 if near is None else near
    floating = x.is_floating_point()
    eager, ours = x.clone().requires_grad_(floating), x.to("lazyt").requires_grad_(floating)
    want, got = function(eager), function(ours)
    torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=near, atol=near)
    if floating:
        grad = torch.randn(want.shape, dtype=torch.float64).to(want.dtype)
        want.backward(grad)
        got.backward(grad.to("lazyt"))
        torch.testing.assert_close(ours.grad.cpu(), eager.grad, rtol=near, atol=near)


@pytest.mark.parametrize("dtype", NEAR, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize(("n", "mode"), MODES, ids=lambda v: str(v))
def test_sizes(n, mode, dtype):
    for sizes in ({"size": [s * 2 for s in SIZES[n]]}, {"size": [s + 3 for s in SIZES[n]]}, {"size": [1] * n}):
        for corners in (None,) if mode.startswith("nearest") else (False, True):
            compare(lambda t, s=sizes, c=corners: F.interpolate(t, mode=mode, align_corners=c, **s), image(n, dtype))


@pytest.mark.parametrize("scale", [2.01, 0.51, 1.3, 10.3])
@pytest.mark.parametrize(("n", "mode"), MODES, ids=lambda v: str(v))
def test_scales_that_are_not_the_quotient_of_sizes(n, mode, scale):
    for dtype in (torch.float32, torch.float64):
        compare(lambda t: F.interpolate(t, mode=mode, scale_factor=scale), image(n, dtype))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_planes_of_many_rows(mode):
    for size in ((40, 62), (50, 80)):  # PyTorch ignores the scale of the first
        x = image(2, torch.float32, [s // 2 for s in size])
        compare(lambda t: F.interpolate(t, mode=mode, scale_factor=(2.01, 2.02)), x)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_images_of_bytes(n, mode):
    x = image(n, torch.float32).abs().mul(50).to(torch.uint8)
    for size in ([s * 2 for s in SIZES[n]], [s + 3 for s in SIZES[n]]):
        compare(lambda t, s=size: F.interpolate(t, mode=mode, size=s), x, 0)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=lambda d: str(d)[6:])
def test_antialias(mode, dtype):
    if mode == "lanczos":
        try:
            F.interpolate(image(2, dtype), size=(1, 1), mode=mode, antialias=True)
        except ValueError:
            pytest.skip("eager refuses it, too (PyTorch 2.11)")
    for size in ({"size": (3, 4)}, {"size": (7, 20)}, {"size": (1, 1)}, {"scale_factor": 0.4}):
        compare(lambda t, s=size: F.interpolate(t, mode=mode, antialias=True, **s), image(2, dtype))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_channels_last(mode):
    for channels in (3, 8):
        x = torch.randn(2, channels, 5, 9).contiguous(memory_format=torch.channels_last)
        compare(lambda t: F.interpolate(t, mode=mode, size=(7, 13)), x, 1e-4)


@pytest.mark.parametrize("dtype", [*NEAR, torch.int64, torch.int32, torch.uint8, torch.complex64], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_borders(n, mode, dtype):
    for pads in ([1, 2], [0, 2], [2, 0], [-1, 2], [-1, -1], [0, 0]):  # negative: cut off
        compare(lambda t, p=pads: F.pad(t, p * n, mode=mode), image(n, dtype), 0 if dtype.is_complex else NEAR.get(dtype, 0) * 2)
    compare(lambda t: F.pad(t, [1] * 2 * n, mode=mode), image(n, dtype)[0], NEAR.get(dtype, 0) * 2)  # no batch


def test_borders_of_channels_last():
    x = torch.randn(2, 8, 20, 24).contiguous(memory_format=torch.channels_last)
    for mode in ("reflect", "replicate"):
        compare(lambda t, m=mode: F.pad(t, [1, 2, 3, 0], mode=m), x)


def test_long_rows_of_a_border():
    for width in (15, 16, 17, 31, 33, 64, 255, 256, 257, 1000):
        for dtype in (torch.uint8, torch.float16, torch.float32, torch.float64):
            compare(lambda t: F.pad(t, [2, 1, 1, 1], mode="reflect"), image(2, dtype, (4, width)), NEAR.get(dtype, 0) * 10)
