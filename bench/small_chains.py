"""The chains that chains.py times, and floor.py without lazyt."""

import torch
from torch import Tensor


def cheap(a: Tensor, b: Tensor) -> Tensor:
    """10 operators of an instruction or two each."""
    c = ((a * b + a) * 0.5 - b).relu()
    return ((c + a) * b - c).abs() * 0.25


def dear(a: Tensor, b: Tensor) -> Tensor:
    """10 operators, four of them of the elementary functions."""
    c = torch.tanh(a * b) + torch.exp(-a.abs())
    return torch.tanh(c) * torch.exp(-c.abs()) + a
