"""A number between 0 and 1 written into a tensor of bools is true: a backend took its whole part."""

import torch


def test_they_are_true(as_eager):
    def program(device):
        x = torch.tensor([False, True, True, False], device=device)
        x[x > 0] = 0.11
        y = torch.zeros(3, dtype=torch.bool, device=device)
        return (
            x,
            y.fill_(-0.5),
            y.masked_fill(~y, 0.0),
            torch.full((2,), 0.25, dtype=torch.bool, device=device),
        )

    as_eager(program)
