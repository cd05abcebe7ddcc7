"""Writes through a tensor whose elements share memory, where eager allows them."""

import torch


def test_masked_fill_of_an_expanded_tensor(as_eager):
    def program(device):
        x = torch.tensor([-2, 1, 2], device=device)
        y = x.unfold(0, 1, 2).expand(2, 2, 1)
        y[y > 0] = 0
        return x, y

    as_eager(program)


def test_fill_of_an_expanded_tensor(as_eager):
    def program(device):
        x = torch.ones(3, 1, device=device)
        x.expand(3, 4).fill_(2)
        return x

    as_eager(program)


def test_addition_to_overlapping_windows(as_eager):
    def program(device):
        x = torch.arange(4.0, device=device)
        x.as_strided((2, 2), (1, 1)).add_(1)
        return x

    as_eager(program)
