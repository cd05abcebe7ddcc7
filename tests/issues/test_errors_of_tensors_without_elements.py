"""A tensor without elements was read without a look at whether what made it had failed."""

import pytest
import torch

CALLS = {
    "index_select": lambda device: torch.zeros(3, 0, device=device).index_select(0, torch.tensor([3], device=device)),
    "embedding": lambda device: torch.nn.functional.embedding(torch.tensor([3], device=device), torch.zeros(3, 0, device=device)),
}


@pytest.mark.parametrize("read", [torch.Tensor.cpu, torch.Tensor.tolist], ids=["cpu", "tolist"])
@pytest.mark.parametrize("call", CALLS)
def test_an_index_is_out_of_range(call, read):
    for device in ("cpu", "lazyt"):
        with pytest.raises(RuntimeError, match="INDICES element is out of DATA bounds, id=3 axis_dim=3"):
            read(CALLS[call](device))
