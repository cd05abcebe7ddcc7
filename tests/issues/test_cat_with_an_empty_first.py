"""torch.cat ignores tensors of shape [0]; the rank of the first operand is not the rank of the result."""

import pytest
import torch


@pytest.mark.parametrize("dim", [-1, -2, 0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_cat_takes_the_rank_of_the_result(dim, dtype):
    empty, a, b = torch.empty(0, dtype=dtype), torch.randn(2, 3), torch.randn(2, 3)
    expected = torch.cat([empty, a, b], dim)
    actual = torch.cat([t.to("lazyt") for t in (empty, a, b)], dim)
    assert actual.dtype == expected.dtype
    assert torch.equal(actual.cpu(), expected)
