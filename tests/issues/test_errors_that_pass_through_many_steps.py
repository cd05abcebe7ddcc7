"""The error of a step that failed grew by a line in each step behind it."""

import pytest
import torch

import lazyt


def test_the_first_step_behind_is_named():
    x = torch.zeros(4, device="lazyt")
    y = x[torch.tensor([9], device="lazyt")]
    for _ in range(50):
        y = y + 1
        lazyt.mark_step()
    with pytest.raises(IndexError) as caught:
        y.cpu()
    assert "out of bounds" in str(caught.value)
    assert str(caught.value).count("has this error") <= 1
    assert len(str(caught.value).splitlines()) < 12
