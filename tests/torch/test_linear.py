"""Linear layers are recorded as one operator, their gradients as another; what can be seen is eager's."""

import itertools

import lazyt
import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

D = "lazyt"


def recorded(run):
    """How often each operator was recorded."""
    lazyt.metrics.reset()
    run()
    names = [n for n in lazyt.metrics.counter_names() if n.startswith("lazyt::")]
    return {n.removeprefix("lazyt::"): lazyt.metrics.counter_value(n) for n in names}


# The products that they stand for are counted under the names that users of torch._lazy know.
BOTH = ["linear", "addmm", "linear_backward", "mm", "sum"]


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 1, 3, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_one_operator_and_its_gradients_are_another(shape, bias):
    layer, x = torch.nn.Linear(4, 5, bias).to(D), torch.randn(shape).to(D).requires_grad_()
    gradient = torch.randn(*shape[:-1], 5).to(D)
    assert recorded(lambda: layer(x).backward(gradient)) == dict.fromkeys(BOTH, 1)


def operands(device, shape, order, weight_order, bias, dtype):
    torch.manual_seed(0)

    def make(*sizes):
        if not dtype.is_floating_point and not dtype.is_complex:
            return torch.randint(-5, 5, sizes).to(device)
        return torch.randn(sizes, dtype=dtype).to(device)

    x = make(*shape)
    if order == "column" and len(shape) > 1:
        x = make(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
    if order == "expanded" and len(shape) > 1:
        x = make(*shape[1:]).expand(shape)
    w = make(5, shape[-1]) if weight_order == "row" else make(shape[-1], 5).t()
    return x.detach(), w.detach(), {"none": None, "row": make(5), "too short": make(3), "0-dim": make()}[bias]


def outcome(device, layout, needs):
    """Result and gradients, or the error."""
    x, w, b = operands(device, *layout)
    try:
        for t, needed in zip((x, w, b), needs, strict=True):
            if needed and t is not None:
                t.requires_grad_()
        y = functional.linear(x, w, b)
        if y.requires_grad:
            (y * y).sum().abs().backward()
    except RuntimeError as e:
        return str(e)
    tensors = [y.detach()] + [t.grad if t is not None and t.requires_grad else None for t in (x, w, b)]
    return [t if t is None else (t.cpu(), t.stride()) for t in tensors]


SHAPES = [(3, 4), (4,), (2, 3, 4), (1, 4), (2, 2, 3, 4), (0, 4), (3, 1)]
ORDERS = ["row", "column", "expanded"]
BIASES = ["none", "row", "too short", "0-dim"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_gradients_strides_and_errors_are_those_of_eager(shape, dtype):
    asked = list(itertools.product([False, True], repeat=3)) if dtype == torch.float32 else [(False,) * 3]
    if dtype in (torch.bfloat16, torch.complex64):
        asked.append((True,) * 3)
    for layout in itertools.product([shape], ORDERS, ["row", "column"], BIASES, [dtype]):
        for needs in asked:
            expected, ours = outcome("cpu", layout, needs), outcome(D, layout, needs)
            if isinstance(expected, str) or isinstance(ours, str):
                assert ours == expected, (layout, needs)
                continue
            for a, b in zip(ours, expected, strict=True):
                assert (a is None) == (b is None), (layout, needs)
                if b is not None:
                    assert a[1] == b[1], (layout, needs)
                    torch.testing.assert_close(a[0], b[0], msg=lambda m, at=(layout, needs): f"{at}: {m}")


def test_an_operand_that_no_gradient_needs_may_be_written_afterwards():
    layer, x = torch.nn.Linear(4, 5).to(D).requires_grad_(False), torch.randn(3, 4).to(D).requires_grad_()
    h = x * 2
    y = layer(h)
    h.relu_()
    y.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), (2 * layer.weight.sum(0)).cpu().expand(3, 4))


def test_an_operand_that_a_gradient_needs_may_not():
    layer, h = torch.nn.Linear(4, 5).to(D), torch.randn(3, 4).to(D)
    y = layer(h)
    h.relu_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_dispatch_mode_sees_the_calls_of_the_composite():
    class Names(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.append(function._schema.name)
            return function(*args, **(kwargs or {}))

    def seen(device):
        layer, x = torch.nn.Linear(4, 5).to(device), torch.randn(3, 4).to(device).requires_grad_()
        gradient = torch.ones(3, 5).to(device)
        with Names() as both:
            layer(x).backward(gradient)
        y = layer(x)
        with Names() as backward:
            y.backward(gradient)
        return both.seen, [name for name in backward.seen if name.endswith("mm")]

    assert seen(D) == seen("cpu")


def test_gradients_called_by_name_are_those_of_the_composite():
    x, g, w = torch.randn(2, 3, 4), torch.randn(2, 3, 5), torch.randn(5, 4)
    for mask in itertools.product([False, True], repeat=3):
        expected = torch.ops.aten.linear_backward(x, g, w, mask)
        ours = torch.ops.aten.linear_backward(x.to(D), g.to(D), w.to(D), mask)
        for a, b in zip(ours, expected, strict=True):
            assert (a is None) == (b is None)
            if b is not None:
                torch.testing.assert_close(a.cpu(), b)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.ops.aten.linear_backward(x.to(D), g.to(D), w.t().to(D), [True, False, False])
