"""An operator that eager refuses for a dtype is refused at its line, with eager's words."""

import pytest
import torch


@pytest.mark.parametrize("name", ["pow", "div", "bitwise_left_shift"])
def test_operators_on_bool(as_eager, name):
    def program(device):
        x = torch.ones(3, dtype=torch.bool, device=device)
        return getattr(torch, name)(x, x, **({"rounding_mode": "floor"} if name == "div" else {}))

    as_eager(program, raises=RuntimeError)
