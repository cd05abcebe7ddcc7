"""Weight norm, which is outside the opset, stays on the device: models of speech are full of it."""

import copy

import lazyt
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


def layer(kind, dim):
    return weight_norm(nn.Conv1d(6, 4, 3) if kind == "conv" else nn.Linear(6, 4), dim=dim)


@pytest.mark.parametrize(
    ("kind", "dim"), [("conv", 0), ("conv", 1), ("conv", 2), ("linear", 0), ("linear", 1), ("linear", None)]
)
def test_training_with_it_stays_on_the_device(kind, dim):
    model = layer(kind, dim)
    x = torch.randn(2, 6, 9) if kind == "conv" else torch.randn(2, 6)

    def steps(device):
        m = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            m(x.to(device)).square().sum().backward()
            optimizer.step()
        return [p.detach().cpu() for p in m.parameters()]

    lazyt.metrics.reset()
    torch.testing.assert_close(steps("lazyt"), steps("cpu"), rtol=1e-4, atol=1e-5)
    assert not lazyt.metrics.fallbacks()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dim", [0, 2])
def test_results_and_their_dtypes_are_as_eager(dtype, dim):
    v, grad = torch.randn(3, 4, 5, dtype=dtype), torch.randn(3, 4, 5, dtype=dtype)
    g = torch.randn(*((3, 1, 1) if dim == 0 else (1, 1, 5)), dtype=dtype)

    def call(device):
        on = [t.to(device) for t in (grad, v, g)]
        w, norms = torch._weight_norm_interface(on[1], on[2], dim)
        return [t.cpu() for t in (w, norms, *torch.ops.aten._weight_norm_interface_backward(*on, norms, dim))]

    torch.testing.assert_close(call("lazyt"), call("cpu"))


def test_gradients_of_gradients():
    v, g = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 1, dtype=torch.float64)

    def call(device):
        on = [t.to(device).requires_grad_() for t in (v, g)]
        first = torch.autograd.grad(torch._weight_norm(*on).pow(3).sum(), on, create_graph=True)
        return [t.cpu() for t in torch.autograd.grad(sum(t.square().sum() for t in first), on)]

    torch.testing.assert_close(call("lazyt"), call("cpu"))
