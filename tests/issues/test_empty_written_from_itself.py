"""x[i] = x is refused also where x has no elements: eager looks at overlap before it looks at the index."""

import pytest
import torch


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_a_tensor_without_elements_overlaps_itself(as_eager, shape):
    def program(device):
        x = torch.zeros(shape, device=device)
        x[[0, 0]] = x

    as_eager(program, raises=RuntimeError)


def test_a_view_of_it_does_not(as_eager):
    def program(device):
        x = torch.zeros(0, 3, device=device)
        x[[0, 0]] = x.view(0, 3)

    as_eager(program, raises=IndexError)
