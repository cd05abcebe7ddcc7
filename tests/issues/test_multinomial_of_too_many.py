"""multinomial took more categories than eager does."""

import torch


def test_the_bound_is_that_of_eager(as_eager):
    def program(device):
        return torch.multinomial(torch.ones(1, device=device).expand(2**24 + 1), 1)

    as_eager(program, raises=RuntimeError)
