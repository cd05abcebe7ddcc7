"""What fails in a backward pass names the line of the forward call: they all said `loss.backward()` before."""

import re
import threading

import lazyt
import pytest
import torch

pytestmark = pytest.mark.pending


def line_of(mark: str) -> str:
    """Of this file, the place of the line that ends in the mark."""
    with open(__file__, encoding="utf-8") as f:
        return f"{__file__}:{next(i for i, text in enumerate(f, 1) if text.rstrip().endswith('# ' + mark))}"


def loss_of(w, index):
    picked = (w * 2).gather(0, index)  # the gather
    return picked.sum()


def test_an_error_names_the_forward_line():
    w = torch.ones(4, device="lazyt", requires_grad=True)
    loss_of(w, torch.tensor([1, 9], device="lazyt")).backward()
    with pytest.raises(RuntimeError, match="index 9 is out of bounds") as error:
        w.grad.cpu()
    assert f"aten::scatter_add, node 4, {line_of('the gather')}" in str(error.value)


def lines_of(t: torch.Tensor, op: str) -> set[str]:
    return set(re.findall(rf"= {op}\(.*# (\S+)$", lazyt.graph(t), re.M))


def test_gradients_of_gradients_do_too():
    x = torch.rand(3, device="lazyt", requires_grad=True)
    y = x.sin()  # the sine
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    g.square().sum().backward()
    assert lines_of(x.grad, "aten::cos") == lines_of(x.grad, "aten::neg") == {line_of("the sine")}


def test_python_that_the_engine_calls_keeps_its_line():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g.erf()  # the user's backward

    x = torch.rand(3, device="lazyt", requires_grad=True)
    y = Twice.apply(x)
    y.register_hook(lambda g: g.tanh())  # the hook
    y.sum().backward()
    assert lines_of(x.grad, "aten::erf") == {line_of("the user's backward")}
    assert lines_of(x.grad, "aten::tanh") == {line_of("the hook")}


def test_each_thread_has_its_own():
    x = torch.rand(3, device="lazyt", requires_grad=True)
    seen = []

    def other():
        z = torch.rand(3, device="lazyt", requires_grad=True)
        z.cosh().sum().backward()  # the other thread
        seen.append(lines_of(z.grad, "aten::sinh"))
        lazyt.mark_step()

    y = x.sin()  # this thread
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    y.sum().backward()
    assert lines_of(x.grad, "aten::cos") == {line_of("this thread")}
    assert seen == [{line_of("the other thread")}]
