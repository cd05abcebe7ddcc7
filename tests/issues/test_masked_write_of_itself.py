"""x[mask] = x raises what eager raises, although the mask's elements are not known when it is recorded."""

import torch


def test_values_share_memory_with_what_is_written(as_eager):
    def program(device):
        x = torch.arange(3, device=device)
        x[torch.tensor([True, False, True], device=device)] = x
        return x

    as_eager(program, raises=RuntimeError)


def test_a_view_of_the_same_elements(as_eager):
    def program(device):
        x = torch.ones(2, 3, device=device)
        x[torch.tensor([True, True], device=device)] = x.view(2, 3)
        return x

    as_eager(program, raises=RuntimeError)
