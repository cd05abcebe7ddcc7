"""Where all elements are one number, so is their mean: norms give 0, not its rounding times 1 / sqrt(eps)."""

import lazyt
import pytest
import torch
from torch.nn import functional as F

# Of which no number's sums are exact.
NUMBERS = [0.1, 3.3, -7.7]
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def largest(t: torch.Tensor) -> float:
    return t.cpu().abs().max().item()


def is_zero(norm: torch.Tensor, number: float) -> bool:
    """Plugins other than onednn may round as they add up."""
    rounding = 0 if lazyt.backend()["name"] == "onednn" else 4 * abs(number) * torch.finfo(norm.dtype).eps
    return largest(norm) <= rounding / 1e-5**0.5


@pytest.mark.parametrize("length", [7, 64, 1000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layer_norm_and_deviations_of_rows(dtype, length):
    for number in NUMBERS:
        x = torch.full((3, length), number, dtype=dtype).to("lazyt")
        assert is_zero(F.layer_norm(x, (length,)), number)
        eps = torch.finfo(dtype).eps
        assert largest(x.std(1)) <= abs(number) * eps
        assert torch.allclose(torch.var_mean(x, 1)[1].cpu(), torch.tensor(number, dtype=dtype), rtol=eps)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("width", [7, 250])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_of_channels(dtype, width, memory_format):
    for number in NUMBERS:
        x = torch.full((2, 8, 5, width), number, dtype=dtype).contiguous(memory_format=memory_format)
        x = x.to("lazyt")
        assert is_zero(F.group_norm(x, 4), number)
        assert is_zero(F.instance_norm(x), number)
        assert is_zero(F.batch_norm(x, None, None, training=True), number)


def test_what_is_far_from_zero_varies_as_in_double():
    """The variance of small differences about a large mean."""
    torch.manual_seed(0)
    x = 1000 + torch.randn(8, 4096)
    expected = F.layer_norm(x.double(), (4096,))
    assert (F.layer_norm(x.to("lazyt"), (4096,)).cpu() - expected).abs().max() < 2e-4
    assert torch.allclose(x.to("lazyt").var(1).cpu().double(), x.double().var(1), rtol=1e-6)
    nan = torch.full((2, 100), float("nan")).to("lazyt")
    assert F.layer_norm(nan, (100,)).isnan().all().item() and nan.var(1).isnan().all().item()
