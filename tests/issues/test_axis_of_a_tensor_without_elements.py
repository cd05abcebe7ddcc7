"""Eager's cummax and cummin do not look at the dim of a tensor without elements; the program was refused when it ran."""

import pytest
import torch


@pytest.mark.parametrize("dim", [-2, -1, 5])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_any_axis_does(name, shape, dim):
    expected = getattr(torch.zeros(shape), name)(dim)
    values, indices = getattr(torch.zeros(shape, device="lazyt"), name)(dim)
    assert torch.equal(values.cpu(), expected.values) and torch.equal(indices.cpu(), expected.indices)
