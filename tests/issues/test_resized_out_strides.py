"""An out= tensor that is resized takes the layout that eager gives it."""

import torch


def test_a_resized_out_is_laid_out_as_the_operands(as_eager):
    def program(device):
        x = torch.arange(48.0, device=device).reshape(2, 3, 4, 2).to(memory_format=torch.channels_last)
        return torch.add(x, 1, out=torch.zeros((3, 6, 2, 2), dtype=torch.bfloat16, device=device))

    as_eager(program)


def test_results_keep_eagers_layout(as_eager):
    def program(device):
        x = torch.arange(48.0, device=device).reshape(2, 3, 4, 2).to(memory_format=torch.channels_last)
        return x.roll(1, -1), torch.empty_strided((2, 3), (1, 2), device=device).fill_(2).cumsum(0)

    as_eager(program)
