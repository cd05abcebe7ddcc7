"""A batch without images was refused as a program (PRG-10) where interpolate() was asked for; eager gives one without images."""

import pytest
import torch
from torch.nn import functional


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_an_empty_batch(as_eager, mode):
    def program(device):
        x = torch.zeros(0, 2, 3, 2, device=device, requires_grad=True)
        y = functional.interpolate(x, scale_factor=2, mode=mode)
        y.sum().backward()
        return y, x.grad

    as_eager(program)


@pytest.mark.parametrize("shape", [(1, 0, 3, 2), (1, 1, 0, 2)])
def test_no_channels_or_rows(as_eager, shape):
    as_eager(lambda device: functional.interpolate(torch.zeros(shape, device=device), scale_factor=2), raises=RuntimeError)
