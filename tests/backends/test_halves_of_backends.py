"""What halves lose in a compiling backend: one rounding of each result, of weights and sums nothing."""

import pytest
import torch
import torch.nn.functional as F

DEVICE = "lazyt"
HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("sizes", [((7, 5), (11, 9)), ((12, 10), (5, 7))])
def test_weights_of_resampling_are_not_rounded_to_halves(sizes, dtype):
    torch.manual_seed(0)
    x = (torch.rand(2, 3, *sizes[0]) + 1).to(dtype)
    resample = lambda t: F.interpolate(t, size=sizes[1], mode="bilinear", align_corners=False)  # noqa: E731
    got, exact = resample(x.to(DEVICE)).cpu(), resample(x.double())
    ulp = torch.finfo(dtype).eps  # between 1 and 2
    assert (got.double() - exact).abs().max() <= 0.51 * ulp


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("causal", [False, True])
def test_each_gradient_of_attention_in_halves_is_written(causal, dtype):
    torch.manual_seed(0)
    operands = [torch.randn(2, 3, 20, 16).to(dtype) for _ in range(3)]
    grad = torch.randn(2, 3, 20, 16).to(dtype)

    def gradients(device, kind):
        leaves = [t.to(kind).to(device).requires_grad_() for t in operands]
        F.scaled_dot_product_attention(*leaves, is_causal=causal).backward(grad.to(kind).to(device))
        return [t.grad.cpu().float() for t in leaves]

    for got, exact in zip(gradients(DEVICE, dtype), gradients("cpu", torch.float32), strict=True):
        torch.testing.assert_close(got, exact, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [1, 2, 7, 64, 2047, 2048, 5000])
def test_signs_of_halves_keep_every_bit(n, dtype):
    """Of all values, NaN and subnormal ones among them; as bits where elements lie in pairs, as numbers where not."""
    bits = torch.arange(n, dtype=torch.int32) * 31337 % 65536
    x = bits.to(torch.uint16).view(dtype)
    y = bits.flip(0).to(torch.uint16).view(dtype)
    y[y.isnan()] = -1  # the sign of a NaN is not kept where it is rounded
    for f in (
        lambda x, y: -x,
        lambda x, y: x.abs(),
        lambda x, y: torch.copysign(x, y),
        lambda x, y: -torch.copysign(x.abs(), -y),
        lambda x, y: x[1:].neg(),
        lambda x, y: x.view(1, -1).neg() if n % 2 else x.view(2, -1).t().neg(),
    ):
        want, got = f(x, y), f(x.to("lazyt"), y.to("lazyt")).cpu()
        assert torch.equal(got.isnan(), want.isnan())
        same = ~want.isnan()
        assert torch.equal(got[same].view(torch.int16), want[same].view(torch.int16))
