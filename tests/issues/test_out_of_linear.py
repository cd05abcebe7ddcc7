"""F.linear(out=) of operands that its one operator does not take (one dim) met an internal assert."""

import pytest
import torch


@pytest.mark.parametrize("operands", [((4, 3), (3,), None), ((3,), (5, 3), (5,)), ((3,), (3,), None), ((2, 4, 3), (5, 3), (5,))])
def test_linear_into_a_given_tensor(as_eager, operands):
    def program(device):
        torch.manual_seed(0)
        x, w, b = (None if shape is None else torch.randn(shape).to(device) for shape in operands)
        out = torch.empty(0, device=device)
        result = torch._C._nn.linear(x, w, b, out=out)
        return result, out

    as_eager(program)
