"""What a mask of the device picked from a CPU tensor was taken for a tensor of the device, with no error."""

import pytest
import torch


@pytest.mark.parametrize(
    "pick", [lambda x, m: x[m], lambda x, m: x.masked_select(m)], ids=["index", "masked_select"]
)
def test_what_is_picked_from_lies_elsewhere(pick):
    mask = torch.tensor([True, False, True], device="lazyt")
    with pytest.raises(
        RuntimeError,
        match="Expected all tensors to be on the same device, but found at least two devices, lazyt:0 and cpu",
    ):
        pick(torch.arange(3), mask)


def test_a_mask_on_the_cpu_picks_from_the_device():
    x = torch.arange(3, device="lazyt")
    assert x[torch.tensor([True, False, True])].tolist() == [0, 2]
