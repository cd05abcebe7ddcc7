"""Convolutions whose windows libraries get wrong: kernels that padding swallows, that step further than they
reach, that meet few pixels. Values and gradients are as near to double as the dtype allows."""

import lazyt
import pytest
import torch

DEVICE = "lazyt"
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.fixture(autouse=True)
def no_islands():
    lazyt.metrics.reset()
    yield
    assert set(lazyt.metrics.fallbacks()) <= {"aten::_local_scalar_dense"}


def results(device: str, dtype: torch.dtype, operands: list, transposed: bool, options: dict) -> list:
    dims = operands[0].dim() - 2
    convolve = getattr(torch, f"conv{'_transpose' if transposed else ''}{dims}d")
    x, w, bias = (t.to(device, dtype).detach().requires_grad_() for t in operands)
    y = convolve(x, w, bias, **options)
    seed = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(operands[0].dtype)
    y.backward(seed.to(device, dtype))
    return [t.detach().cpu().double() for t in (y, x.grad, w.grad, bias.grad)]


def check(dtype: torch.dtype, size: tuple, weights: tuple, transposed: bool = False, **options) -> None:
    torch.manual_seed(0)
    channels = weights[1] * options.get("groups", 1) if transposed else weights[0]
    operands = [torch.randn(s).to(dtype) for s in (size, weights, (channels,))]
    exact = results("cpu", torch.float64, operands, transposed, options)
    for _ in range(3):  # what is read though nobody wrote it differs from run to run
        got = results(DEVICE, dtype, operands, transposed, options)
        for name, a, b in zip(("y", "x", "w", "bias"), got, exact, strict=True):
            assert a.shape == b.shape
            error = (a - b).abs().max() / b.abs().max().clamp_min(1e-30)
            assert error <= TOLERANCE[dtype], f"{name}: {error}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("depth", "kernel", "stride", "padding"),
    [(7, 7, 2, 3), (2, 5, 2, 4), (4, 7, 3, 4), (5, 7, 2, 5), (16, 7, 2, 3)],
)
def test_strides_through_a_padded_depth(dtype, depth, kernel, stride, padding):
    # The first convolution of many video networks is a kernel of 7 with stride 2.
    options = {"stride": (stride, 1, 1), "padding": (padding, 1, 1)}
    check(dtype, (2, 16, depth, 5, 5), (16, 16, kernel, 3, 3), **options)
    check(dtype, (1, 3, depth, 9, 9), (8, 3, kernel, 3, 3), **options)
    check(dtype, (2, 32, depth, 5, 5), (32, 16, kernel, 3, 3), groups=2, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_strides_over_short_lines(dtype):
    check(dtype, (2, 32, 5, 1), (32, 32, 3, 3), stride=(1, 2), padding=1)
    check(dtype, (5, 80, 3, 2), (64, 20, 5, 3), stride=(1, 3), padding=(1, 2), groups=4)
    options = {"stride": (1, 1, 3), "padding": (2, 2, 1), "dilation": (1, 2, 1), "groups": 4}
    check(dtype, (5, 64, 2, 5, 1), (64, 20, 5, 3, 3), True, **options)
    check(dtype, (2, 16, 1), (16, 16, 3), stride=2, padding=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_strides_wider_than_the_kernel(dtype):
    check(dtype, (2, 32, 8, 8, 8), (64, 32, 1, 1, 1), stride=2)
    check(dtype, (5, 16, 8, 7, 3), (32, 16, 1, 1, 2), stride=(3, 2, 1))
    check(dtype, (2, 32, 12, 8, 8), (16, 32, 2, 1, 3), stride=(3, 1, 1))
    check(dtype, (2, 32, 9, 9), (16, 32, 1, 1), stride=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padding_wider_than_half_of_windows_with_gaps(dtype):
    options = {"stride": (1, 3), "padding": (10, 11), "dilation": 2}
    check(dtype, (2, 2, 12, 12), (1, 2, 7, 7), **options)
    check(dtype, (2, 4, 12, 12), (6, 2, 7, 7), groups=2, **options)
    options = {"stride": (1, 2), "padding": (2, 5), "dilation": (2, 1)}
    check(dtype, (1, 1, 12, 3), (1, 2, 7, 7), True, **options)
    check(dtype, (1, 4, 12, 3), (4, 3, 7, 7), True, groups=2, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_channel_at_a_time_through_a_depth(dtype):
    check(dtype, (1, 2, 2, 6, 10), (2, 1, 3, 1, 3), stride=(1, 3, 1), padding=(1, 0, 1), groups=2)
    check(dtype, (2, 8, 8, 3, 8), (8, 1, 3, 3, 3), padding=1, groups=8)
    check(dtype, (2, 16, 1, 7, 5), (16, 1, 2, 1, 5), padding=(1, 0, 2), groups=16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_few_pixels(dtype):
    check(dtype, (1, 32, 3, 15), (128, 32, 3, 3), stride=(2, 1), padding=1)
    check(dtype, (1, 256, 2, 2), (512, 256, 3, 3), stride=2, padding=1)
    check(dtype, (1, 128, 2, 2), (128, 32, 3, 3), True, padding=1)


def test_a_kernel_that_meets_padding_alone():
    torch.manual_seed(0)
    x, w, bias = torch.randn(2, 3, 1, 5), torch.randn(4, 3, 3, 3), torch.randn(4)
    found = torch.conv2d(x.to(DEVICE), w.to(DEVICE), bias.to(DEVICE), (2, 1), (3, 1), (2, 1)).cpu()
    assert torch.equal(found, bias[:, None, None].expand(2, 4, 2, 5))


@pytest.mark.parametrize(
    ("size", "stride"), [((2, 3, 14, 14), 2), ((2, 6, 28, 28), 2), ((1, 7, 28, 28), 4), ((2, 5, 32, 32), 2), ((3, 1, 16), 2)]
)
def test_single_pixels_of_few_channels(size, stride):
    # Their gradient of weights was wrong without AVX-512: oneDNN's writes past its scratch.
    for out in (1, 16, 48):
        check(torch.float32, size, (out, size[1]) + (1,) * (len(size) - 2), stride=stride)


@pytest.mark.parametrize("channels", [5, 8, 11, 15])
def test_single_pixels_of_few_channels_in_bf16(channels):
    # With AVX512-BF16 oneDNN's gradient of their weights wrote over that of the input, which lies behind its scratch.
    for width in (9, 13):
        check(torch.bfloat16, (2, 4, 1), (4, 1, 1), True)  # other memory before it
        check(torch.bfloat16, (1, channels, 6, width), (8, channels, 1, 1), stride=(3, 1), dilation=(1, 2))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("size", "weights", "transposed", "options"),
    [
        ((2, 8, 6, 13, 13), (4, 4, 7, 7, 7), False, {"stride": (1, 2, 2), "padding": (6, 3, 3), "groups": 2}),
        ((3, 2, 9, 1, 4), (2, 4, 3, 5, 3), True, {"stride": (2, 3, 1), "padding": (1, 2, 0)}),
        ((1, 4, 9, 2, 7), (4, 2, 5, 7, 3), True, {"padding": (3, 3, 1)}),
        ((2, 34, 2, 6, 12), (8, 17, 3, 3, 3), False, {"stride": (1, 3, 3), "padding": (2, 1, 1), "groups": 2}),
        ((1, 16, 6, 12, 3), (1, 16, 7, 2, 3), False, {"stride": (2, 1, 1), "padding": (2, 0, 2)}),
    ],
)
def test_windows_deeper_or_higher_than_what_they_move_over(threads, size, weights, transposed, options):
    # With AVX512-BF16 oneDNN's gradient of weights was wrong; by two threads it waited for ever.
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(torch.bfloat16, size, weights, transposed, **options)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("transposed", [False, True])
def test_windows_that_a_library_has_no_kernel_for(dtype, transposed):
    """Padding that reaches past a 3-d kernel; many taps, without AVX-512."""
    check(dtype, (2, 4, 5, 6, 7), (4, 4, 1, 1, 1), transposed, padding=1)
    check(dtype, (1, 6, 6, 6, 6), (6, 2, 2, 3, 2), transposed, padding=(2, 0, 3), groups=3)
    check(dtype, (2, 2, 7, 7, 7), (2, 4 if transposed else 1, 7, 7, 7), transposed, stride=(1, 2, 2), padding=(6, 3, 3), groups=2)
    check(dtype, (1, 12, 7, 7, 7), (12, 24, 5, 5, 5) if transposed else (24, 12, 5, 5, 5), transposed, padding=(4, 4, 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gaps_between_lines_of_windows_over_few_channels(dtype):
    gaps = {"padding": (0, 3), "dilation": (2, 3)}
    check(dtype, (1, 99, 17, 28), (66, 3, 1, 2), groups=33, **gaps)
    check(dtype, (2, 6, 9, 28), (4, 3, 2, 2), groups=2, **gaps)
    check(dtype, (2, 17, 9, 40), (16, 17, 2, 3), padding=(0, 4), dilation=(3, 2))
    check(dtype, (2, 3, 9, 40), (3, 1, 3, 3), padding=2, dilation=2, groups=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_over_long_lines_with_wide_padding_and_gaps(dtype):
    check(dtype, (1, 4, 2, 57), (4, 4, 1, 3), stride=(1, 2), padding=(0, 16), dilation=(1, 20))
    check(dtype, (1, 16, 3, 33), (16, 16, 2, 5), stride=(1, 2), padding=(0, 24), dilation=(1, 6))
    check(dtype, (2, 16, 3, 57), (16, 2, 1, 5), stride=(1, 3), padding=(0, 18), dilation=(1, 9), groups=8)
    check(dtype, (2, 8, 57), (8, 8, 5), stride=2, padding=18, dilation=9)
