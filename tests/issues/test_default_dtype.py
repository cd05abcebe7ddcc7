"""torch.set_default_dtype() changes the dtype of results whose operands are the same."""

import torch


def test_results_follow_the_default_dtype(as_eager):
    def program(device):
        x = torch.arange(3, device=device)
        before = x / 2
        torch.set_default_dtype(torch.float64)
        try:
            during = x / 2, x.sin(), x == 0.1
        finally:
            torch.set_default_dtype(torch.float32)
        return before, *during, x / 2

    as_eager(program)
