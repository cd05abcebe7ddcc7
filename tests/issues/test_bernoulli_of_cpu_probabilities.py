"""x.bernoulli_(p) with p on the CPU was refused as operands of two devices: every accelerator moves p."""

import pytest
import torch


def test_they_move_to_the_tensor():
    p = torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    x = torch.full((2, 4), 3.0, device="lazyt").bernoulli_(p)
    assert x.cpu().tolist() == [p.tolist()] * 2
    assert torch.zeros(3, device="lazyt").bernoulli_(torch.tensor(1.0)).cpu().tolist() == [1.0] * 3


def test_what_is_read_elsewhere_must_not_lie_on_the_cpu():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.zeros(3, device="lazyt").add_(torch.ones(3))
