"""Autograd's stand-in for absent gradients is plain zeros here: eager's marked ones changed the dtype of what read them."""

import torch


def test_second_gradients_of_a_smoothed_cross_entropy():
    def second(device):
        torch.manual_seed(0)
        x, target = torch.randn(5, 4).to(device).requires_grad_(), torch.arange(5).to(device) % 4
        loss = torch.nn.functional.cross_entropy(x, target, label_smoothing=0.1)
        (gradient,) = torch.autograd.grad((loss * torch.randn(()).to(device)).abs(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), x)[0].cpu()

    torch.testing.assert_close(second("lazyt"), second("cpu"))


def test_a_marked_zero_is_zeros():
    zeros = torch._efficientzerotensor(2, 3, device="lazyt", dtype=torch.float64)
    assert torch.equal((zeros + 1).cpu(), torch.ones(2, 3, dtype=torch.float64))
