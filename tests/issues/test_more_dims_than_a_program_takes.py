"""An operator of a tensor with more than 64 dims was recorded, and then failed every result of its program."""

import torch

import lazyt

MANY = [1] * 64 + [4]


def test_values_are_those_of_eager(as_eager):
    def program(device):
        x = torch.arange(4.0, device=device)
        y = x.view(MANY) * 2
        z = (y + y.exp()).relu_()
        return y.dim(), y.squeeze(), z.sum(), z.view(4) + x, z.squeeze() * 3

    as_eager(program)


def test_a_tensor_that_comes_with_them(as_eager):
    as_eager(lambda device: torch.arange(4.0).view(MANY).to(device).view(4) + 1)


def test_what_is_recorded_beside_it_stays():
    lazyt.metrics.reset()
    x = torch.arange(4.0, device="lazyt") + 1
    assert (x.view(MANY) - 1).sum().item() == 6
    assert x.tolist() == [1, 2, 3, 4]
    assert "more dims" in str(lazyt.metrics.fallback_reasons())
