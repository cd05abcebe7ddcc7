"""Where a tensor has no dims, or no elements, eager does not look at the dim that a call names: a plugin did, and read outside of its
tables (flip), left the result unwritten (topk), or the program was refused (cat)."""

import pytest
import torch


@pytest.mark.parametrize("dims", [(-1,), (0,), ()])
def test_flip(as_eager, dims):
    as_eager(lambda device: torch.tensor(2.5, device=device).flip(dims))


def test_the_gradient_of_flip(as_eager):
    def program(device):
        x = torch.tensor(2.5, device=device, requires_grad=True)
        x.square().flip(0).backward()
        return x.grad

    as_eager(program)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("k", [0, 1])
def test_topk(as_eager, k, dtype):
    as_eager(lambda device: tuple(torch.tensor(2, dtype=dtype, device=device).topk(k)))


@pytest.mark.parametrize("dim", [-2, -1, 0, 1])
def test_cat_of_what_has_no_elements(as_eager, dim):
    as_eager(lambda device: torch.cat([torch.zeros(0, device=device)] * 2, dim))
    if dim > -2:
        as_eager(lambda device: torch.cat([torch.zeros(0, device=device), torch.ones(2, 3, device=device)], dim))
