"""Recurrent cells are recorded as one operator each, and give eager's values and gradients."""

import copy

import pytest
import torch
from torch import nn

import lazyt


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_layers_equal_eager(kind, bias):
    torch.manual_seed(0)
    eager, x = kind(6, 5, 2, bias=bias), torch.randn(7, 3, 6)
    lazy = copy.deepcopy(eager).to("lazyt")
    lazyt.metrics.reset()
    for _ in range(3):
        want, got = eager(x)[0], lazy(x.to("lazyt"))[0]
        want.square().mean().backward()
        got.square().mean().backward()
        lazyt.mark_step()
    torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-6)
    for g, w in zip(lazy.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(g.grad.cpu(), w.grad, rtol=1e-4, atol=1e-6)
    assert not lazyt.metrics.fallbacks()


def test_a_cell_is_one_operator():
    cell, x = nn.LSTMCell(6, 5).to("lazyt"), torch.randn(3, 6).to("lazyt")
    with torch.no_grad():
        text = lazyt.graph(cell(x)[0])
    assert text.count("aten::_thnn_fused_lstm_cell") == 1
    assert "aten::sigmoid" not in text


def test_the_gradient_of_the_cell_state_alone():
    torch.manual_seed(0)
    eager, x = nn.LSTMCell(6, 5), torch.randn(3, 6)
    lazy = copy.deepcopy(eager).to("lazyt")
    eager(x)[1].sum().backward()
    lazy(x.to("lazyt"))[1].sum().backward()
    for g, w in zip(lazy.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(g.grad.cpu(), w.grad, rtol=1e-4, atol=1e-6)


def test_cells_run_on_the_host_too():
    torch.manual_seed(0)
    operands = [torch.randn(3, 20), torch.randn(3, 20), torch.randn(3, 5)]
    host = torch.ops.aten._thnn_fused_lstm_cell(*operands)
    lazy = torch.ops.aten._thnn_fused_lstm_cell(*(t.to("lazyt") for t in operands))
    for h, z in zip(host, lazy, strict=True):
        torch.testing.assert_close(z.cpu(), h, rtol=1e-5, atol=1e-6)
