"""A part of a tensor seen in a wider dtype, where the whole tensor is no multiple of that dtype's size."""

import torch


def test_read(as_eager):
    as_eager(lambda device: torch.arange(7, dtype=torch.uint8, device=device)[:4].view(torch.int32) + 1)


def test_written(as_eager):
    def program(device):
        x = torch.arange(7, dtype=torch.uint8, device=device)
        x[:4].view(torch.int32).add_(1)
        return x

    as_eager(program)


def test_written_at_a_place_that_moves(as_eager):
    def program(device):
        x = torch.arange(21, dtype=torch.uint8, device=device)
        for k in range(0, 16, 4):
            x[k : k + 4].view(torch.int32).add_(1)
            x.sum().item()
        return x

    as_eager(program)


def test_without_elements_over_less_than_one(as_eager):
    def program(device):
        x = torch.ones(2, device=device).any()
        x.set_(x.untyped_storage(), 0, (0,))
        x = x.view(torch.int32)
        return x.masked_fill(x > 0, -1)

    as_eager(program)
