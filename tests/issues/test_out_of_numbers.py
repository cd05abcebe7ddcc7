"""out= of functions that make a tensor from numbers: arange keeps the shape of one that has as many elements."""

import torch


def test_arange_fills_a_tensor_of_as_many_elements(as_eager):
    def program(device):
        x = torch.ones(2, 3, device=device).t()
        torch.arange(2, 8, out=x)
        return x

    as_eager(program)


def test_others_resize(as_eager):
    def program(device):
        made = [torch.ones(2, 3, device=device, dtype=dtype) for dtype in (torch.float64, torch.int64, torch.float32, torch.float32)]
        torch.arange(4, out=made[0])
        torch.arange(1, 9, 2, out=made[1])
        torch.eye(2, 3, out=made[2])
        torch.linspace(0, 1, 5, out=made[3])
        return (*made, torch.logspace(torch.tensor(0.0, device=device), 2, 3, out=torch.empty(0, device=device)))

    as_eager(program)


def test_lists(as_eager):
    def program(device):
        x = torch.arange(12.0, device=device).view(3, 4)
        parts = [torch.ones(n, device=device) for n in (0, 4, 2)]
        torch.unbind_copy(x, out=parts)
        return (*parts, *torch.split_with_sizes_copy(x, [1, 3], 1))

    as_eager(program)
