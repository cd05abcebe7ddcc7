"""add() of bools with alpha=False added all the same where kernels are the toolkit's."""

import pytest
import torch


@pytest.mark.parametrize("alpha", [False, True, 0, 2])
def test_alpha_says_whether_what_is_added_counts(as_eager, alpha):
    def program(device):
        a, b = torch.tensor([[True, True, False, False], [True, False, True, False]], device=device)
        return torch.add(a, b, alpha=alpha), a.clone().add_(b, alpha=alpha), torch.add(a, True, alpha=alpha)

    as_eager(program)
