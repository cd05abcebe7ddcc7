"""What the host reads of a program may be a view of a value that lies in another order (a column-major matrix with a dim more): it was
handed over in that order."""

import pytest
import torch

SOURCE = torch.tensor([[0.7, -0.1, -0.95], [0.3, -0.15, 0.4]])
VIEWS = {
    "unsqueeze": lambda y: y.unsqueeze(0),
    "reshape": lambda y: y.reshape(1, 2, 1, 3),
    "view": lambda y: y.view(2, 1, 3),
}


def matrix(device: str) -> torch.Tensor:
    return torch.empty_strided((2, 3), (1, 2), device=device).copy_(SOURCE.to(device))


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("in_place", [False, True], ids=["", "in place"])
def test_a_masked_write_through_a_view(name, in_place):
    def f(device):
        x = matrix(device)
        y = x.mul_(2) if in_place else x * 2
        z = VIEWS[name](y)
        z[z > 0] = torch.tensor(1.0, dtype=torch.float64)  # a number of a wider dtype: onednn and cuda leave it to the host
        return y, z + 1

    for got, want in zip(f("lazyt"), f("cpu"), strict=True):
        assert torch.equal(got.cpu(), want)
        assert got.stride() == want.stride()
