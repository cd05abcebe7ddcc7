"""Pools of images and volumes: results, places and gradients as eager's, with no host island."""

import os

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("no_islands")

SIZES = {2: (9, 7), 3: (5, 6, 7)}
NEAR = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}
if os.environ.get(
    "LAZYT_FAKE_CUDA_LIBRARIES"
):  # each is a program, which a C++ compiler builds for the stand-ins
    NEAR = {d: NEAR[d] for d in (torch.float32, torch.bfloat16)}
MAX = {2: F.max_pool2d, 3: F.max_pool3d}
MEAN = {2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE_MAX = {2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
ADAPTIVE_MEAN = {2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


def images(n, dtype=torch.float32):
    """A batch, one that lies with channels last, one without a batch's dim."""
    torch.manual_seed(n)
    x = torch.randint(-20, 20, (2, 3, *SIZES[n])).to(dtype)  # some are equal
    return x, x.contiguous(memory_format=FORMATS[n]), x[0]


def compare(function, x):
    near = NEAR[x.dtype]
    eager, ours = x.clone().requires_grad_(), x.to("lazyt").requires_grad_()
    want, got = function(eager), function(ours)
    if isinstance(want, tuple):
        assert torch.equal(got[1].cpu(), want[1])
        want, got = want[0], got[0]
    torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=near, atol=near, equal_nan=True)
    grad = torch.randn(want.shape, dtype=torch.float64).to(want.dtype)
    want.backward(grad)
    got.backward(grad.to("lazyt"))
    exact = eager.grad
    if x.dtype in (torch.bfloat16, torch.float16):  # eager adds some up in halves
        wide = x.float().requires_grad_()
        made = function(wide)
        (made[0] if isinstance(made, tuple) else made).backward(grad.float())
        exact = wide.grad.to(x.dtype)
    torch.testing.assert_close(ours.grad.cpu(), exact, rtol=near, atol=near)


WINDOWS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 1},
    {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
]


@pytest.mark.parametrize("dtype", NEAR, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("n", [2, 3])
def test_the_largest_of_windows(n, dtype):
    for x in images(n, dtype):
        for window in (*WINDOWS, {"kernel_size": 2, "dilation": 2, "padding": 1}):
            compare(lambda t, w=window: MAX[n](t, return_indices=True, **w), x)


@pytest.mark.parametrize(
    ("n", "dtype"), [(n, d) for n in (2, 3) for d in NEAR if n == 2 or d.itemsize > 2], ids=lambda v: str(v)
)  # eager has no means of volumes of halves
def test_means_of_windows(n, dtype):
    for x in images(n, dtype):
        for window in (
            *WINDOWS,
            {"kernel_size": 3, "padding": 1, "count_include_pad": False},
            {"kernel_size": 2, "divisor_override": 3},
        ):
            compare(lambda t, w=window: MEAN[n](t, **w), x)


@pytest.mark.parametrize("n", [2, 3])
def test_windows_that_differ_from_axis_to_axis(n):
    window = {"kernel_size": (1, 2, 3)[-n:], "stride": (2, 1, 2)[-n:], "padding": (0, 1, 1)[-n:]}
    for x in images(n):
        compare(lambda t: MAX[n](t, return_indices=True, **window), x)
        compare(lambda t: MEAN[n](t, **window), x)


@pytest.mark.parametrize("dtype", NEAR, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("n", [2, 3])
def test_windows_that_share_an_image_out(n, dtype):
    for x in images(n, dtype):
        for size in (1, 2, (4, 3, 5)[-n:], SIZES[n]):
            compare(lambda t, s=size: ADAPTIVE_MEAN[n](t, s), x)
            compare(lambda t, s=size: ADAPTIVE_MAX[n](t, s, return_indices=True), x)


@pytest.mark.parametrize("n", [2, 3])
def test_the_largest_is_the_first_of_equals_and_the_last_nan(n):
    x = images(n)[0]
    x[..., 1, 2] = x[..., 2, 1] = float("nan")
    x[1] = 0
    compare(lambda t: MAX[n](t, 3, 2, return_indices=True), x)
    compare(lambda t: ADAPTIVE_MAX[n](t, 2, return_indices=True), x)


def test_places_outside_of_a_volume_get_nothing():
    grad, x = torch.ones(1, 1, 2, 2, 2), torch.ones(1, 1, 4, 4, 4)
    places = torch.tensor([0, 9, 2**40, -1, 64, 5, 63, -(2**50)]).reshape(grad.shape)
    args = ([2] * 3, [2] * 3, [0] * 3, [1] * 3, False)
    want = torch.zeros(64).index_fill(0, torch.tensor([0, 5, 9, 63]), 1.0)
    backward = torch.ops.aten.max_pool3d_with_indices_backward
    got = backward(grad.to("lazyt"), x.to("lazyt"), *args, places.to("lazyt")).cpu().flatten()
    assert set(got.nonzero().flatten().tolist()) <= set(want.nonzero().flatten().tolist())
