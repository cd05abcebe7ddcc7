"""Graphs of torch.compile that a known step follows at once: values, writes, views, random numbers and errors stay those of the
calls that they stand for."""

import threading

import lazyt
import pytest
import torch
from lstm_by_hand import Cell
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def followed() -> int:
    return lazyt.metrics.counter_value("GraphFollowed") or 0


def called() -> int:
    return lazyt.metrics.counter_value("GraphCalled") or 0


@pytest.fixture
def counts():
    lazyt.wait_device_ops()
    lazyt.metrics.reset()


def step_of(f, *arguments):
    """f's results on the host; a step."""
    results = f(*arguments)
    lazyt.mark_step()
    return results.cpu()


def trained(compiled: bool, steps: int = 8, read_loss: bool = False):
    torch.manual_seed(0)
    model = Cell().to("lazyt")
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for i in range(steps):
        x = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(i)).to("lazyt")
        loss = forward(x).square().sum()
        if read_loss:
            assert loss.item() == loss.item()  # cuts between forward and backward
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses], [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("read_loss", [False, True], ids=["one program", "loss read"])
def test_training_is_followed_and_equal_bit_for_bit(counts, read_loss):
    losses, parameters = trained(True, read_loss=read_loss)
    assert followed() >= 2 * 5 and called() <= 2 * 3  # forward and backward each
    expected = trained(False, read_loss=read_loss)
    assert losses == expected[0]
    assert all(torch.equal(a, b) for a, b in zip(parameters, expected[1], strict=True))


def test_a_known_step_makes_no_tensors_between_arguments_and_results(counts):
    @torch.compile
    def f(x):
        for _ in range(20):
            x = (x * 2).sin()
        return x

    x = torch.ones(3, device="lazyt")
    for _ in range(4):
        lazyt.metrics.reset()
        step_of(f, x)
    assert followed() == 1
    assert lazyt.metrics.counter_value("CreateLtcTensor") == 1
    assert lazyt.metrics.counter_value("lazyt::sin") == 20  # recorded all the same


def test_other_data_shapes_and_numbers_are_computed_anew(counts):
    f = torch.compile(lambda x, n: x * n + x.sum(), dynamic=True)
    for i in range(12):
        x, n = torch.randn(3 + i % 2), 2 + i % 3
        torch.testing.assert_close(step_of(f, x.to("lazyt"), n), x * n + x.sum())
    assert followed() > 0


def test_aliased_arguments_are_told_from_separate_ones(counts):
    f = torch.compile(lambda x, y: x * 2 + y)
    a, b = torch.randn(4), torch.randn(4)
    on, other = a.to("lazyt"), b.to("lazyt")
    for _ in range(4):
        assert torch.equal(step_of(f, on, on), a * 2 + a)
        assert torch.equal(step_of(f, on, other), a * 2 + b)
        assert torch.equal(step_of(f, other, on), b * 2 + a)


def test_random_numbers_are_drawn_at_each_call(counts):
    f = torch.compile(lambda x: nn.functional.dropout(x, 0.5))
    x = torch.ones(1000, device="lazyt")
    seen = [step_of(f, x) for _ in range(5)]
    assert not any(torch.equal(a, b) for a, b in zip(seen, seen[1:], strict=False))
    assert followed() == 0


def test_results_that_are_views_of_arguments_are_written_through(counts):
    f = torch.compile(lambda x: (x.t(), x + 1))
    for i in range(5):
        x = torch.zeros(2, 3, device="lazyt")
        view, more = f(x)
        view[0, 1] = 5 + i
        lazyt.mark_step()
        assert x[1, 0].item() == 5 + i
        assert more.sum().item() == 6


def test_results_that_share_a_storage_share_writes(counts):
    def f(x):
        y = x * 2
        return y, y[1:]

    compiled = torch.compile(f)
    for _ in range(5):
        whole, part = compiled(torch.ones(3, device="lazyt"))
        part.zero_()
        lazyt.mark_step()
        assert whole.tolist() == [2, 0, 0]


def test_results_are_as_many_tensors_as_they_were(counts):
    from lazyt import _compile

    def f(x):
        y = x * 2
        return y, y.detach(), y, x

    graph = _compile._recorded(torch.fx.symbolic_trace(f), [])
    x = torch.ones(2, device="lazyt")
    for _ in range(4):
        first, other, again, argument = graph([x])
        assert first is again and argument is x
        assert first is not other and first.data_ptr() == other.data_ptr()
        lazyt.mark_step()
    assert followed() > 0


def test_written_arguments_and_buffers_are_written(counts):
    def f(x):
        x.add_(1)
        return x * 2

    compiled = torch.compile(f)
    x = torch.zeros(2, device="lazyt")
    for i in range(1, 6):
        assert step_of(compiled, x).tolist() == [2 * i] * 2
        assert x.tolist() == [i] * 2
        assert x._version == i
    norm = nn.BatchNorm1d(3)
    on = nn.BatchNorm1d(3).to("lazyt")
    of_batch = torch.compile(on)
    for i in range(6):
        batch = torch.randn(8, 3, generator=torch.Generator().manual_seed(i))
        torch.testing.assert_close(step_of(of_batch, batch.to("lazyt")), norm(batch))
    torch.testing.assert_close(on.running_var.cpu(), norm.running_var)
    assert on.num_batches_tracked.item() == 6


def test_an_argument_written_before_the_backward_is_eagers_error(counts):
    f = torch.compile(lambda x, w: (x * w).sin())
    x, w = torch.ones(3, device="lazyt"), torch.ones(3, device="lazyt", requires_grad=True)
    for _ in range(5):
        f(x, w).sum().backward()
        lazyt.mark_step()
    assert followed() > 0
    y = f(x, w).sum()
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_gradients_and_their_absence_take_turns(counts):
    f = torch.compile(lambda x, w: (x * w).exp())
    x, w = torch.randn(3), torch.randn(3)
    for _ in range(4):
        on = w.to("lazyt").requires_grad_()
        (grad,) = torch.autograd.grad(f(x.to("lazyt"), on).sum(), on)
        torch.testing.assert_close(grad.cpu(), x * (x * w).exp())
        with torch.no_grad():
            y = f(x.to("lazyt"), on)
            assert not y.requires_grad
            torch.testing.assert_close(y.cpu(), (x * w).exp())
        with torch.inference_mode():
            assert f(x.to("lazyt"), on).is_inference()
        lazyt.mark_step()


def test_modes_see_the_operators(counts):
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    from lazyt import _compile

    graph = torch.fx.symbolic_trace(lambda x: (torch.sin(x),))
    f = _compile._recorded(graph, [])
    x = torch.ones(2, device="lazyt")
    for _ in range(4):
        f([x])
        lazyt.mark_step()
    assert followed() > 0
    names: list[str] = []
    with Seen():
        f([x])
    assert names == ["aten.sin.default"]


def test_settings_are_those_of_the_call(counts):
    f = torch.compile(lambda x: x + torch.ones(2, dtype=torch.int32, device=x.device) / 2)
    x = torch.zeros(2, dtype=torch.int32, device="lazyt")
    for _ in range(3):
        assert step_of(f, x).dtype == torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert step_of(f, x).dtype == torch.float64
        finally:
            torch.set_default_dtype(torch.float32)


def test_autocast_is_that_of_the_call(counts):
    f = torch.compile(lambda x, w: (x @ w).sin())
    x = torch.ones(3, 3, device="lazyt")
    for _ in range(4):
        assert step_of(f, x, x).dtype == torch.float32
        with torch.autocast("lazyt", torch.bfloat16):
            assert step_of(f, x, x).dtype == torch.bfloat16
    assert followed() > 0


def test_what_operators_of_libraries_do_beside_is_done_at_each_call(counts):
    calls = []

    @torch.library.custom_op("captured::noted", mutates_args=(), device_types="lazyt")
    def noted(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return x * 2

    noted.register_fake(lambda x: torch.empty_like(x))
    f = torch.compile(lambda x: noted(x) + 1)
    for _ in range(5):
        assert step_of(f, torch.ones(2, device="lazyt")).tolist() == [3, 3]
    assert len(calls) == 5


def test_views_of_unknown_sizes_are_arguments(counts):
    """Tracers detach tensors with symbols for sizes under the device's keys."""
    f = torch.compile(lambda x: x.cos() + 1, dynamic=True)
    for n in (4, 6, 8, 4, 6, 8):
        x = torch.randn(n, 3)
        torch.testing.assert_close(step_of(f, x.to("lazyt")[1:, 1:]), x[1:, 1:].cos() + 1)


def test_threads_share_a_compiled_model(counts):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    on = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to("lazyt"))
    on.load_state_dict({f"_orig_mod.{k}": v for k, v in model.state_dict().items()})
    worst: list[float] = []

    def run(seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        for _ in range(30):
            x = torch.randn(3, 4, generator=draw)
            with torch.no_grad():
                worst.append((step_of(on, x.to("lazyt")) - model(x)).abs().max().item())

    run(0)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(1, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(worst) == 120 and max(worst) < 1e-5


def test_a_forgotten_step_is_recorded_again(counts):
    f = torch.compile(lambda x: x.sin() * 2)
    for n in range(1, 300):  # more than tapes that are kept
        with torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=1000):
            x = torch.full((n % 290 + 1,), 0.5, device="lazyt")
            assert torch.allclose(step_of(f, x), torch.tensor(0.5).sin() * 2)
