"""What is written from fewer elements is an expanded value of the program: PyTorch's kernels may read past one."""

import pytest
import torch
from torch.nn import functional as F


def written(device, *shape, value=1.59, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device=device).fill_(torch.tensor(value))


def rows(device):
    """Five rows that are one."""
    row = torch.tensor([[[0.5, -1.0, 3.0, 2.0]]], device=device)
    return torch.zeros(2, 6, 4, device=device).copy_(row)


CALLS = {
    "median": lambda d: written(d, 5, 3, dtype=torch.bfloat16).median(1).values,
    "median of all": lambda d: rows(d).median(),
    "nanmedian": lambda d: rows(d).nanmedian(1).values,
    "group_norm": lambda d: F.group_norm(rows(d), 2),
    "channels last": lambda d: F.group_norm(
        rows(d)[..., None].expand(2, 6, 4, 3).to(memory_format=torch.channels_last), 2
    ),
    "embedding_bag": lambda d: F.embedding_bag(
        torch.empty(3, 2, dtype=torch.long, device=d).fill_(torch.tensor(4)),
        torch.arange(12.0, device=d).view(6, 2),
    ),
    "pdist": lambda d: F.pdist(rows(d)[0]),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_values_are_eagers(as_eager, name):
    as_eager(lambda device: CALLS[name](device))


def test_rolling_nothing_along_a_dim_that_is_not_there(as_eager):
    as_eager(
        lambda device: (
            torch.zeros(0, device=device).roll(1, -2) + 1,
            torch.zeros(0, 3, device=device).roll([1, 2], [-7, 9]),
        )
    )
