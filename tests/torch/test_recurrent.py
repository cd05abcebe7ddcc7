"""Recurrent cells, and layers over a sequence, are recorded as one operator each, and give eager's values and gradients."""

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


@pytest.mark.pending
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


KINDS = {nn.LSTM: 2, nn.GRU: 1}  # how many states


def pair(kind, *args, **options):
    """A layer on both devices, its input, its states, and both again for lazyt."""
    torch.manual_seed(0)
    eager = kind(*args, **options)
    count = eager.num_layers * (2 if eager.bidirectional else 1)
    x = torch.randn((3, 7, 6) if eager.batch_first else (7, 3, 6))
    states = [torch.randn(count, 3, 5) for _ in range(KINDS[kind])]
    operands = [t.requires_grad_() for t in (x, *states)]
    others = [t.detach().to("lazyt").requires_grad_() for t in operands]
    return eager, copy.deepcopy(eager).to("lazyt"), operands, others


def run(model, operands):
    x, *states = operands
    output, final = model(x, tuple(states) if len(states) == 2 else states[0])
    return [output, *(final if isinstance(final, tuple) else [final])]


def gradients(results, wanted, **options):
    loss = sum((i + 1) * t.square().sum() for i, t in enumerate(results))
    return torch.autograd.grad(loss, wanted, **options)


def all_close(got, want):
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.cpu(), w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2},
        {"bidirectional": True, "num_layers": 2},
        {"batch_first": True},
        {"bias": False, "bidirectional": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_results_and_gradients_of_a_layer(kind, options):
    eager, lazy, operands, others = pair(kind, 6, 5, **options)
    want, got = run(eager, operands), run(lazy, others)
    all_close(got, want)
    all_close(
        gradients(got, [*others, *lazy.parameters()]), gradients(want, [*operands, *eager.parameters()])
    )


@pytest.mark.parametrize("result", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_one_result_of_a_layer_alone(kind, result):
    eager, lazy, operands, others = pair(kind, 6, 5)
    want, got = run(eager, operands)[result], run(lazy, others)[result]
    all_close(gradients([got], others), gradients([want], operands))


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_short_sequences(kind, length):
    eager, lazy, operands, others = pair(kind, 6, 5, bidirectional=True)
    operands[0], others[0] = (t[:length].detach().requires_grad_() for t in (operands[0], others[0]))
    want, got = run(eager, operands), run(lazy, others)
    all_close(gradients(got, [*others, *lazy.parameters()]), gradients(want, [*operands, *eager.parameters()]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.pending
def test_a_layer_is_one_operator_whatever_its_length(kind):
    name = f"lazyt::{kind.__name__.lower()}_layer"
    for length in (3, 9):
        layer, x = kind(6, 5, 2).to("lazyt"), torch.randn(length, 2, 6).to("lazyt")
        layer(x)[0].square().sum().backward()
        text = lazyt.graph(layer.weight_hh_l0.grad)
        assert text.count(name + "(") == text.count(name + "_backward(") == 2
        assert "_thnn_fused" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_a_layers_gradients(kind):
    eager, lazy, operands, others = pair(kind, 6, 5, bidirectional=True)
    both = []
    for model, given in ((eager, operands), (lazy, others)):
        first = gradients(run(model, given), given, create_graph=True)
        both.append(gradients(first, [*given, *model.parameters()]))
    all_close(both[1], both[0])


def test_one_tensor_as_both_states():
    eager, lazy, (x, h, _), (lazy_x, lazy_h, _) = pair(nn.LSTM, 6, 5)
    want, got = run(eager, [x, h, h]), run(lazy, [lazy_x, lazy_h, lazy_h])
    for create_graph in (True, False):
        all_close(
            gradients(got, [lazy_h], create_graph=create_graph, retain_graph=True),
            gradients(want, [h], create_graph=create_graph, retain_graph=True),
        )


@pytest.mark.parametrize("kind", KINDS)
def test_transforms_of_torch_func_see_through_a_layer(kind):
    eager, lazy, operands, others = pair(kind, 6, 5)

    def loss(model):
        return lambda p, x: torch.func.functional_call(model, p, (x,))[0].square().sum()

    want = torch.func.grad(loss(eager))(dict(eager.named_parameters()), operands[0].detach())
    got = torch.func.grad(loss(lazy))(dict(lazy.named_parameters()), others[0].detach())
    all_close(got.values(), want.values())


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_shapes_raise_what_eager_raises(kind):
    layer = kind(6, 5)
    operands = [torch.randn(7, 3, 6), *(torch.zeros(1, 3, 4) for _ in range(KINDS[kind]))]
    raised = []
    for device in ("cpu", "lazyt"):
        with pytest.raises(RuntimeError) as error:
            run(layer.to(device), [t.to(device) for t in operands])
        raised.append(str(error.value))
    assert raised[0] == raised[1]


def test_no_workspace_is_computed_where_nothing_is_learned():
    lazy, x = nn.LSTM(6, 5).to("lazyt"), torch.randn(7, 3, 6).to("lazyt")
    with torch.no_grad():
        output = lazy(x)[0]
    lazyt.mark_step()
    want = copy.deepcopy(lazy).cpu()(x.cpu())[0]
    torch.testing.assert_close(output.cpu(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_run_on_the_host_too(kind):
    """By their CPU kernels, as an island where a backend refuses them whole and in pieces."""
    torch.manual_seed(0)
    operator = getattr(torch.ops.lazyt, f"{kind.__name__.lower()}_layer")
    operands = [torch.randn(s) for s in ([4, 3, 6], *([3, 5] for _ in range(KINDS[kind])))]
    gates = 5 * (4 if kind is nn.LSTM else 3)
    operands += [torch.randn(s) for s in ([gates, 6], [gates, 5], [gates], [gates])]
    for reverse in (False, True):
        host = operator(*operands, reverse)
        lazy = operator(*(t.to("lazyt") for t in operands), reverse)
        all_close(lazy, host)
