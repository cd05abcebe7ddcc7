"""Backwards that a known step follows without autograd's engine: gradients, errors and what hooks see stay those of the engine."""

import copy
import os
import threading

import lazyt
import pytest
import torch
import torch.nn.functional as F
from lstm_by_hand import Cell
from torch import nn
from torch.utils.checkpoint import checkpoint


def followed() -> int:
    return lazyt.metrics.counter_value("BackwardFollowed") or 0


@pytest.fixture(autouse=True)
def _counts():
    lazyt.wait_device_ops()
    lazyt.use_backend(os.environ["LAZYT_BACKEND"])  # nothing is known
    lazyt.metrics.reset()


def leaf(seed: int, *shape: int, device: str = "lazyt") -> torch.Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return values.to(device).requires_grad_()


def both(program, steps: int = 8) -> list[int]:
    """Runs program(step, device) step by step on the device and in eager, whose results it must give. Returns the steps whose
    backwards were followed."""
    known = []
    for step in range(steps):
        before = followed()
        ours = program(step, "lazyt")
        lazyt.mark_step()
        if followed() > before:
            known.append(step)
        for a, b in zip(ours, program(step, "cpu"), strict=True):
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=1e-5, atol=1e-6)
            else:
                assert a == b, f"step {step}: {a}, in eager {b}"
    return known


def gradients(*leaves):
    return [0 if w.grad is None else w.grad.clone() for w in leaves]


class Images(nn.Module):
    """Statistics that are written, writes in place, windows."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
        )

    def forward(self, x):
        return self.layers(x.reshape(-1, 1, 8, 8)).log_softmax(1)


class Text(nn.Module):
    """Dropout, norms, attention, embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)

    def forward(self, x):
        return self.layer(self.embedding(x.abs().mul(4).long().reshape(4, -1).clamp(max=9)))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize(("model", "shape"), [(Cell, (3, 2, 5)), (Images, (2, 64)), (Text, (4, 6))])
def test_training_is_followed_and_equal_bit_for_bit(model, shape, optimizer, monkeypatch):
    def trained(steps: int = 8):
        torch.manual_seed(0)
        m = model().to("lazyt")
        o = optimizer(m.parameters(), lr=0.001)
        losses = []
        for i in range(steps):
            x = torch.randn(*shape, generator=torch.Generator().manual_seed(i)).to("lazyt")
            loss = m(x).square().sum()
            o.zero_grad()
            loss.backward()
            o.step()
            losses.append(loss.item())
        return losses, [p.detach().cpu() for p in m.parameters()]

    ours = trained()
    assert followed() == 8 - 2  # recorded, followed by the engine's calls, then known
    monkeypatch.setattr(lazyt._backward, "_followed", False)
    engines = trained()
    assert followed() == 6
    assert ours[0] == engines[0]
    assert all(map(torch.equal, ours[1], engines[1]))


def test_a_gradient_and_several_outputs():
    def program(step, device):
        w = leaf(step, 3, 4, device=device)
        a, b = w.exp(), w.sin()
        torch.autograd.backward([a, b.sum()], [a.detach() * 2, None])
        return gradients(w)

    assert both(program) == [2, 3, 4, 5, 6, 7]


def test_numbers_of_the_step():
    """A loss whose scale changes is none that is known; one that stays is."""

    def program(scale_of):
        def run(step, device):
            w = leaf(1, 3, device=device)
            (w.exp() * scale_of(step)).sum().backward()
            return gradients(w)

        return run

    assert both(program(lambda step: 1.0 + step)) == []
    assert both(program(lambda step: 0.5)) != []
    assert both(program(lambda step: [2.0, 3.0][step % 2]), 12)[-4:] == [8, 9, 10, 11]


def test_which_element_is_derived():
    def program(step, device):
        w = leaf(1, 6, device=device)
        w.exp()[step // 3].backward()
        return gradients(w)

    both(program, 12)


def test_which_row_of_a_parameter_is_used():
    w = {d: leaf(1, 8, 4, device=d) for d in ("lazyt", "cpu")}

    def program(step, device):
        w[device].grad = None
        w[device][step].square().sum().backward()
        return gradients(w[device])

    both(program)


def test_which_row_of_a_parameter_is_used_beside_all():
    """The place moves, stays, and moves again."""
    rows = [0, 1, 2, 3, 4, *[5] * 6, 7, 5, 2]
    w = {d: leaf(1, 8, 4, device=d) for d in ("lazyt", "cpu")}

    def program(step, device):
        w[device].grad = None
        row = w[device][rows[step]].square().sum()
        (row + (w[device] * w[device]).sum()).backward()
        return gradients(w[device])

    both(program, len(rows))


def test_a_leaf_of_another_shape():
    def program(step, device):
        w = leaf(step, 6, device=device).detach().view(*([(2, 3), (3, 2)][step == 5])).requires_grad_()
        w.view(6).exp().sum().backward()
        return gradients(w)

    assert both(program) == [2, 3, 4, 6, 7]


def test_rows_of_a_data_set_may_move():
    data, w = {d: leaf(1, 32, 4, device=d).detach() for d in ("lazyt", "cpu")}, {}

    def program(step, device):
        w[device] = leaf(2, 4, 3, device=device)
        (data[device][2 * step : 2 * step + 2] @ w[device]).square().sum().backward()
        return gradients(w[device])

    both(program, 12)


def test_dropout_draws_anew():
    for step in range(6):
        torch.manual_seed(step)
        x = leaf(1, 200)
        y = F.dropout(x, 0.5)
        y.sum().backward()
        lazyt.mark_step()
        assert torch.equal(x.grad.cpu() != 0, y.detach().cpu() != 0)
    assert followed() == 4


@pytest.mark.parametrize("cut", [True, False], ids=["a program each", "one program"])
def test_gradients_are_added_up(cut):
    w = {d: [leaf(1, 3, device=d), leaf(2, 2, 3, device=d)] for d in ("lazyt", "cpu")}

    def program(step, device):
        v, u = w[device]
        v.grad = u.grad = None
        for i in range(4):
            ((v + u) * u * (i + 1.0)).sum().backward()
            if cut:
                lazyt.mark_step()
        return [*gradients(v, u), v.grad._version, u.grad.stride()]

    both(program, 8)
    # None and a gradient, each number of the four; all but the steps that are recorded and those that the engine runs once more.
    assert followed() >= 16


def test_gradients_that_are_set_to_zero():
    w = {d: leaf(1, 3, device=d) for d in ("lazyt", "cpu")}

    def program(step, device):
        v = w[device]
        if step > 0:
            v.grad.zero_()
        before = v.grad
        (v * v).sum().backward()
        return [*gradients(v), before is v.grad or step == 0]

    assert len(both(program)) >= 4


def test_a_gradient_that_two_leaves_share():
    w = {d: [leaf(i, 3, device=d) for i in (1, 2)] for d in ("lazyt", "cpu")}

    def program(step, device):
        one, two = w[device]
        one.grad = torch.ones(3).to(device)
        two.grad = one.grad if step % 2 else one.grad.clone()
        (one * two.exp()).sum().backward()
        return gradients(one, two)

    both(program, 12)


def test_a_gradient_that_is_also_read():
    w = {d: leaf(1, 3, device=d) for d in ("lazyt", "cpu")}

    def program(step, device):
        v = w[device]
        v.grad = torch.full((3,), 2.0).to(device)
        (v * v.grad).sum().backward() if step % 3 else (v * v.grad.clone()).sum().backward()
        return gradients(v)

    both(program, 12)


def test_a_second_backward_is_refused_as_ever():
    for step in range(6):
        w = leaf(1, 3)
        loss = w.exp().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()
        lazyt.mark_step()
    assert followed() == 4


def test_a_graph_that_is_kept_gives_gradients_twice():
    def program(step, device):
        w = leaf(step, 3, device=device)
        loss = w.exp().sum()
        loss.backward(retain_graph=True)
        first = w.grad.clone()
        loss.backward()
        return [first, *gradients(w)]

    assert both(program) == [2, 3, 4, 5, 6, 7]


def test_a_graph_that_was_kept_so_far_and_is_not():
    for step in range(6):
        w = leaf(1, 3)
        loss = w.exp().sum()
        loss.backward(retain_graph=step < 5)
        w.grad = None
        if step == 5:
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                loss.backward()
        else:
            loss.backward()
        lazyt.mark_step()
    assert followed() == 4


def test_a_graph_that_grad_let_go_is_gone():
    for step in range(6):
        w = leaf(1, 3)
        loss = w.exp().sum()
        if step == 5:
            torch.autograd.grad(loss, w)
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                loss.backward()
        else:
            loss.backward()
        lazyt.mark_step()
    assert followed() == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y.add_(1),
        lambda y: y.detach().zero_(),
        lambda y: y.copy_(torch.zeros(3, 3)),
        lambda y: y.t_(),
        lambda y: y.resize_(1, 9),
        lambda y: y.set_(torch.zeros(9, device=y.device).view(3, 3)),
    ],
    ids=["add_", "of detach", "copy_", "t_", "resize_", "set_"],
)
def test_what_was_kept_and_then_written_is_an_error_as_ever(change):
    """At the step whose backward would have been followed."""
    for step in range(6):
        w, y = leaf(1, 3, 3), torch.randn(3, 3).to("lazyt")
        loss = (w * y).sum()
        if step == 5:
            with torch.no_grad():
                change(y)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            loss.backward()
        lazyt.mark_step()
    assert followed() == 3


def test_what_was_written_behind_autograd_so_far_and_is_not():
    for step in range(6):
        w, y = leaf(1, 3, 3), torch.randn(3, 3).to("lazyt")
        loss = (w * y).sum()
        if step == 5:
            with torch.no_grad():
                y.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            y.data.add_(1)
            loss.backward()
        lazyt.mark_step()


def test_what_was_kept_and_then_replaced_is_read_as_it_is_now():
    def program(step, device):
        w, y = leaf(step, 3, device=device), torch.ones(3).to(device)
        other = torch.full((3,), 2.0).to(device)
        loss = (w * y).sum() + (w * other).sum()
        if step == 5:
            y.data = other
        loss.backward()
        return gradients(w)

    assert both(program) == [2, 3, 4, 6, 7]


def test_a_parameter_replaced_before_the_backward():
    def program(step, device):
        w, v = leaf(step, 3, device=device), leaf(step + 1, 3, device=device)
        loss = (w * v).sum() + (v * v).sum()
        if step == 5:
            v.data = w.data
        loss.backward()
        return gradients(w, v)

    assert 5 not in both(program)


@pytest.mark.parametrize("kind", ["tensor", "retain_grad", "node", "node before", "leaf", "accumulated"])
def test_hooks_are_called_when_there_are_any(kind):
    def program(step, device):
        w, seen = leaf(step, 3, device=device), []
        y = w.exp()
        z = (y * 2).sum()
        if step >= 5:
            if kind == "tensor":
                y.register_hook(lambda g: g * 3)
            elif kind == "retain_grad":
                y.retain_grad()
            elif kind == "node":
                y.grad_fn.register_hook(lambda *_: seen.append("node"))
            elif kind == "node before":
                y.grad_fn.register_prehook(lambda g: (g[0] * 5,))
            elif kind == "leaf":
                w.register_hook(lambda g: g + 1)
            else:
                w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.shape))
        z.backward()
        return [*gradients(w), *([y.grad] if kind == "retain_grad" and step >= 5 else []), seen]

    assert both(program) == [2, 3, 4]


def test_hooks_of_saved_tensors():
    def program(step, device):
        w, seen = leaf(step, 3, device=device), []
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: seen.append(1) or t * 2)
        if step == 5:
            with hooks:
                y = w.exp().sin()
        else:
            y = w.exp().sin()
        y.sum().backward()
        return [*gradients(w), len(seen)]

    assert both(program) == [2, 3, 4, 6, 7]


def test_hooks_of_one_saved_tensor(monkeypatch):
    monkeypatch.setattr(lazyt._backward, "_followed", True)

    def program(step, device):
        w, seen = leaf(step, 3, device=device), []
        y = w.exp()
        if step == 5:
            y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: seen.append(1) or t)
        y.sum().backward()
        return [*gradients(w), len(seen)]

    assert both(program) == [2, 3, 4]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_what_the_engine_alone_can_do():
    def program(step, device):
        w, v = leaf(step, 3, device=device), leaf(step + 1, 3, device=device)
        Doubled.apply(w).sum().backward()
        checkpoint(lambda x: x.exp().sin(), v, use_reentrant=False).sum().backward()
        u = leaf(2, 3, device=device)
        (g,) = torch.autograd.grad(u.exp().sum(), u, create_graph=True)
        g.square().sum().backward()
        x, y = leaf(3, 3, device=device), leaf(4, 3, device=device)
        (x * y).sum().backward(inputs=[x])
        return gradients(w, v, u, x, y)

    assert both(program, 5) == []


def test_modes_that_watch():
    def program(step, device):
        w = leaf(step, 3, device=device)
        loss = w.exp().sum()
        if step == 4:
            with torch.autograd.detect_anomaly(check_nan=False):
                loss.backward()
        elif step == 5:
            with torch.autograd.profiler.profile():
                loss.backward()
        elif step == 6:
            with torch.autocast(device, dtype=torch.bfloat16):
                loss.backward()
        else:
            loss.backward()
        return gradients(w)

    assert both(program) == [2, 3, 7]


def test_a_leaf_that_wants_no_gradient_any_more():
    def program(step, device):
        w, v = leaf(step, 3, device=device), leaf(step + 1, 3, device=device)
        loss = (w * v).sum()
        if step == 5:
            v.requires_grad_(False)
        loss.backward()
        return gradients(w, v)

    assert both(program) == [2, 3, 4, 6, 7]


def test_calls_without_history_among_the_same_calls():
    """The same calls of the device, of which another one is the graph's."""

    def program(step, device):
        w, b = leaf(step, 3, device=device), torch.arange(3.0).to(device)
        with torch.set_grad_enabled(step % 2 == 0):
            one = w * b
        with torch.set_grad_enabled(step % 2 == 1):
            other = w * (b + 1)
        (one * other).sum().backward()
        return gradients(w)

    both(program, 12)


def test_another_leaf_over_the_same_bytes():
    def program(step, device):
        w = leaf(step, 3, device=device)
        other = w.detach().requires_grad_()
        used = other if step == 5 else w
        ((w * 2).detach() * used.exp()).sum().backward()
        return gradients(w, other)

    both(program)


def test_leaves_that_share_their_bytes():
    def program(step, device):
        w = leaf(step, 3, device=device)
        other = w.detach().requires_grad_()
        one, two = (w, other) if step % 2 else (other, w)
        (one.exp() * two.sin()).sum().backward()
        return gradients(w, other)

    both(program, 12)


def test_gradients_that_share_their_bytes_are_tensors_of_their_own():
    def program(step, device):
        w, v = leaf(step, 2, 3, device=device), leaf(step + 1, 2, 3, device=device)
        torch.cat([w, v]).exp().sum().backward()
        w.grad.mul_(2)
        return [*gradients(w, v), w.grad._version, v.grad._version]

    assert both(program)[-2:] == [6, 7]


def test_a_value_read_between_forward_and_backward():
    def program(step, device):
        w = leaf(step, 3, device=device)
        loss = w.exp().sum()
        loss.item()
        loss.backward()
        return gradients(w)

    both(program)


def test_gradients_lie_as_the_engine_lays_them():
    def program(step, device):
        w = leaf(step, 4, 3, device=device).detach().t().requires_grad_()
        v = leaf(step, 2, 3, 4, 4, device=device).detach().contiguous(memory_format=torch.channels_last).requires_grad_()
        (w.exp().sum() + v.sin().sum() + v.sum()).backward()
        return [*gradients(w, v), w.grad.stride(), v.grad.stride(), w.grad._version, w.grad._is_view(), w.grad.requires_grad]

    assert both(program) == [2, 3, 4, 5, 6, 7]


def test_gradients_that_the_engine_copies():
    """To leaves that overlap themselves. A copy is a write, which their version tells."""

    def program(step, device):
        w = leaf(step, 3, device=device).detach().expand(4, 3).requires_grad_()
        (w * w.sin()).sum().backward()
        return [*gradients(w), w.grad.stride(), w.grad._version]

    assert both(program) == [2, 3, 4, 5, 6, 7]


def test_threads_train_models_of_their_own():
    results = {}

    torch.manual_seed(0)
    first = Cell()

    def train(name):
        m = copy.deepcopy(first).to("lazyt")
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        for i in range(20):
            o.zero_grad()
            m(torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(i)).to("lazyt")).square().sum().backward()
            o.step()
        results[name] = [p.detach().cpu() for p in m.parameters()]

    threads = [threading.Thread(target=train, args=(i,)) for i in range(4)]
    train("alone")
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(4):
        assert all(map(torch.equal, results[i], results["alone"]))
