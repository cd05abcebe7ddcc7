"""Recurrent layers and cells give eager's values and gradients, each cell as a kernel of the backend's own."""

import copy

import pytest
import torch
from torch import nn

import lazyt

# Of a backend that computes 16-bit floats in f32: rounded once where eager rounds after each operator.
BOUNDS = {torch.float32: (1e-5, 1e-6), torch.float64: (1e-12, 1e-13), torch.bfloat16: (3e-2, 2e-2), torch.float16: (4e-3, 3e-3)}


def close(got, want, dtype):
    rtol, atol = BOUNDS[dtype]
    torch.testing.assert_close(got.cpu(), want, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", list(BOUNDS), ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_layers_equal_eager(kind, bias, dtype):
    torch.manual_seed(0)
    eager, x = kind(6, 5, 2, bias=bias, dtype=dtype), torch.randn(4, 3, 6, dtype=dtype)
    lazy = copy.deepcopy(eager).to("lazyt")
    lazyt.metrics.reset()
    want, got = eager(x)[0], lazy(x.to("lazyt"))[0]
    want.square().mean().backward()
    got.square().mean().backward()
    close(got, want, dtype)
    for g, w in zip(lazy.parameters(), eager.parameters(), strict=True):
        close(g.grad, w.grad, dtype)
    assert not lazyt.metrics.fallbacks()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_both_directions_and_the_gradients_of_what_they_begin_with(kind):
    torch.manual_seed(0)
    eager = kind(6, 5, 2, bidirectional=True, batch_first=True)
    lazy = copy.deepcopy(eager).to("lazyt")
    x, states = torch.randn(3, 9, 6), [torch.randn(4, 3, 5) for _ in range(2 if kind is nn.LSTM else 1)]
    grads = []
    for model, device in ((eager, "cpu"), (lazy, "lazyt")):
        given = [t.to(device).requires_grad_() for t in (x, *states)]
        output, final = model(given[0], tuple(given[1:]) if len(states) == 2 else given[1])
        loss = output.square().mean() + sum(t.square().mean() for t in (final if len(states) == 2 else [final]))
        grads.append(torch.autograd.grad(loss, [*given, *model.parameters()]))
    for w, g in zip(*grads, strict=True):
        torch.testing.assert_close(g.cpu(), w, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("result", [0, 1])
def test_the_gradient_of_one_result_alone(result):
    torch.manual_seed(0)
    eager, x = nn.LSTMCell(6, 5), torch.randn(3, 6)
    lazy = copy.deepcopy(eager).to("lazyt")
    eager(x)[result].sum().backward()
    lazy(x.to("lazyt"))[result].sum().backward()
    for g, w in zip(lazy.parameters(), eager.parameters(), strict=True):
        close(g.grad, w.grad, torch.float32)


def test_a_state_that_is_no_row_major_tensor():
    torch.manual_seed(0)
    cell, x = nn.LSTMCell(4, 5), torch.randn(3, 4)
    h, c = torch.randn(5, 3).t(), torch.randn(3, 10)[:, ::2]
    with torch.no_grad():
        want = cell(x, (h, c))
        got = cell.to("lazyt")(x.to("lazyt"), (h.to("lazyt"), c.to("lazyt")))
    for g, w in zip(got, want, strict=True):
        close(g, w, torch.float32)
