"""linear_cross_entropy chooses its precision by the device's name: results are those of the CPU's choice."""

import pytest
import torch

options = pytest.importorskip("torch.nn.modules.linear_cross_entropy_options")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_chunked_linear_cross_entropy(as_eager, dtype):
    def program(device):
        x, weight = torch.linspace(-2, 2, 48).reshape(8, 6), torch.linspace(-1, 1, 96).reshape(16, 6).sin()
        target = torch.arange(8) * 2
        return torch.nn.functional.linear_cross_entropy(
            x.to(device, dtype), weight.to(device, dtype), target.to(device), reduction="none", options=options.LinearCrossEntropyOptions()
        )

    as_eager(program)
