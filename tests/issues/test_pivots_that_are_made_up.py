"""Shapes of ldl_solve were asked of eager's kernel with pivots of zero, which LAPACK counts from one: before PyTorch 2.13,
which looks at them, it wrote beside the memory of the result."""

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_ldl_solve_is_eager_s(dtype):
    a = torch.randn(6, 6, dtype=dtype)
    a, b = a + a.mT, torch.randn(6, 3, dtype=dtype)
    factors, pivots = torch.linalg.ldl_factor(a)
    expected = torch.linalg.ldl_solve(factors, pivots, b)
    given = torch.linalg.ldl_solve(factors.to("lazyt"), pivots.to("lazyt"), b.to("lazyt"))
    torch.testing.assert_close(given.cpu(), expected)
    with pytest.raises(RuntimeError, match="shape|batch|rows|size"):
        torch.linalg.ldl_solve(factors.to("lazyt"), pivots.to("lazyt"), b[:5].to("lazyt"))
