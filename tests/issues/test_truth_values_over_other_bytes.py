"""A bool view of another dtype's storage: what was written through it made the bytes beside it 0 or 1."""

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_a_write_leaves_the_bytes_beside_it(as_eager, dtype):
    def program(device):
        x = torch.arange(2, 14, device=device).to(dtype)
        x.view(torch.bool)[:2] = True
        return x

    as_eager(program)


def test_a_write_with_steps(as_eager):
    def program(device):
        x = torch.arange(2, 14, dtype=torch.uint8, device=device)
        x.view(torch.bool).as_strided((2, 2), (5, 2), 1).fill_(False)
        return x

    as_eager(program)


def test_a_write_at_a_place_that_changes(as_eager):
    def program(device):
        x = torch.arange(2, 14, dtype=torch.uint8, device=device)
        for place in range(4):
            x.view(torch.bool)[place] = place % 2 == 0
        return x

    as_eager(program)
