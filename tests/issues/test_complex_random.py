"""Complex random numbers: each part has half of the variance."""

import torch


def test_parts_of_complex_numbers():
    z = torch.randn(20000, dtype=torch.complex64, device="lazyt")
    parts = torch.view_as_real(z).cpu()
    assert abs(parts.var().item() - 0.5) < 0.03 and abs(parts.mean().item()) < 0.03
    assert abs((parts[:, 0] * parts[:, 1]).mean().item()) < 0.03
    u = torch.view_as_real(torch.rand(20000, dtype=torch.complex64, device="lazyt")).cpu()
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean().item() - 0.5) < 0.02


def test_what_follows_draws_other_numbers():
    torch.manual_seed(3)
    z = torch.view_as_real(torch.rand(64, dtype=torch.complex64, device="lazyt")).cpu().flatten()
    after = torch.rand(128, device="lazyt").cpu()
    assert not set(z.tolist()) & set(after.tolist())
