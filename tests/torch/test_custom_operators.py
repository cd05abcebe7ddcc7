"""Operators that a program defines with torch.library are recorded by name; their bodies never see the device."""

import lazyt
import pytest
import torch

D = "lazyt"
seen: list[str] = []  # devices on which bodies ran


@pytest.fixture(autouse=True)
def start():
    seen.clear()
    lazyt.metrics.reset()


@torch.library.custom_op("lazyt_test::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    seen.append(x.device.type)
    return x * factor


@scaled.register_fake
def _(x, factor):
    return torch.empty_like(x)


scaled.register_autograd(lambda ctx, g: (scaled(g, ctx.factor), None), setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]))


@pytest.mark.pending
def test_it_is_recorded_by_its_name():
    x = torch.ones(3, device=D)
    y = scaled(x + 1, 3.0) - 1
    assert "lazyt_test::scaled" in lazyt.graph(y)
    assert y.tolist() == [5, 5, 5]
    assert set(seen) == {"cpu"}
    assert not [n for n in lazyt.metrics.counters() if n == "aten::scaled"]


def test_its_gradient_is_recorded_too():
    x = torch.ones(3, device=D, requires_grad=True)
    (scaled(x, 3.0) * x).sum().backward()
    assert x.grad.tolist() == [6, 6, 6]
    assert set(seen) == {"cpu"}


def test_without_a_fake_kernel_it_runs_on_the_host():
    @torch.library.custom_op("lazyt_test::evens", mutates_args=())
    def evens(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.device.type)
        return torch.from_numpy(x.numpy()[::2].copy())

    y = evens(torch.arange(5.0, device=D) * 2)
    assert y.device.type == D and y.tolist() == [0, 4, 8]
    assert seen == ["cpu"]
    assert lazyt.metrics.counters()["lazyt_test::evens"] == 1  # counted with what ran on the host


@torch.library.custom_op("lazyt_test::bump", mutates_args=("x",))
def bump(x: torch.Tensor, n: int) -> None:
    seen.append(x.device.type)
    x.numpy()[:] += n


@torch.library.custom_op("lazyt_test::swap_halves", mutates_args=("xs", "count"))
def swap_halves(xs: list[torch.Tensor], count: torch.Tensor, scale: float) -> torch.Tensor:
    seen.append(xs[0].device.type)
    total = sum(x.sum() for x in xs) * scale
    for x in xs:
        x.copy_(x.roll(x.shape[0] // 2, 0))
        count += 1
    return total


@swap_halves.register_fake
def _(xs, count, scale):
    return xs[0].new_empty(())


@pytest.mark.pending
def test_one_that_writes_is_recorded_as_if_it_returned_what_it_writes():
    x = torch.zeros(2, 3, device=D)
    other = x + 1
    bump(x[1], 4)
    y = x * 2
    assert seen == [] and "lazyt_test::bump" in lazyt.graph(y)
    assert x.tolist() == [[0, 0, 0], [4, 4, 4]] and y.tolist() == [[0, 0, 0], [8, 8, 8]]
    assert other.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert x._version == 1
    assert set(seen) == {"cpu"}
    assert lazyt.metrics.counters().get("FlushHostOperator", 0) == 0  # nothing was cut for it


def test_one_that_writes_lists_and_returns_is_as_eager_step_after_step():
    def program(device):
        a, b = torch.arange(4.0).to(device), torch.arange(12.0).to(device).view(4, 3)
        count = torch.zeros(2, dtype=torch.int64, device=device)
        totals = []
        for step in range(4):
            part = b[:, 1]  # strided
            totals.append(swap_halves([a, part], count[1:], 0.5 + step))
            a += 1
            if device == D:
                lazyt.mark_step()
        return [*totals, a, b, count]

    for eager, lazy in zip(program("cpu"), program(D), strict=True):
        torch.testing.assert_close(lazy.cpu(), eager)


def test_one_that_writes_twice_the_same_memory_is_as_eager():
    x = torch.arange(4.0, device=D)
    bump(x, 1)
    bump(x[::2], 10)
    bump(x.view(2, 2).t(), 100)
    assert x.tolist() == [111, 102, 113, 104]


def test_what_a_writing_operator_gives_is_differentiable_by_its_own_rule():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.clone()
            bump(y.detach(), 3)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = torch.ones(3, device=D, requires_grad=True)
    y = Scale.apply(x)
    y.sum().backward()
    assert y.tolist() == [4, 4, 4] and x.grad.tolist() == [2, 2, 2]


def test_without_a_fake_kernel_one_that_writes_runs_on_the_host_and_is_counted():
    with torch.library._scoped_library("lazyt_test", "FRAGMENT") as library:
        library.define("grow(Tensor(a!) x, int n) -> ()")
        library.impl("grow", lambda x, n: x.resize_(n).fill_(7) is None or None, "CPU")
        x = torch.ones(2, device=D) * 2
        torch.ops.lazyt_test.grow(x, 5)
        assert x.tolist() == [7] * 5
        assert lazyt.metrics.counters()["lazyt_test::grow"] == 1


@pytest.mark.pending
def test_a_composite_operator_decomposes():
    with torch.library._scoped_library("lazyt_test", "FRAGMENT") as library:
        library.define("doubled(Tensor x) -> Tensor")
        library.impl("doubled", lambda x: x + x, "CompositeImplicitAutograd")
        x = torch.ones(2, device=D, requires_grad=True)
        y = torch.ops.lazyt_test.doubled(x)
        assert "aten::add" in lazyt.graph(y)
        y.sum().backward()
        assert x.grad.tolist() == [2, 2]


@pytest.mark.pending
def test_a_name_may_come_again_with_another_schema():
    x = torch.ones(2, device=D)
    for schema, body, args, expected in (
        ("again(Tensor x) -> Tensor", lambda x: x * 2, (), [2, 2]),
        ("again(Tensor x, int n) -> Tensor", lambda x, n: x * n, (5,), [5, 5]),
    ):
        with torch.library._scoped_library("lazyt_test", "FRAGMENT") as library:
            library.define(schema)
            library.impl("again", body, "CompositeExplicitAutograd")
            library.impl("again", lambda x, *args: torch.empty_like(x), "Meta")
            y = torch.ops.lazyt_test.again(x, *args)
            assert "lazyt_test::again" in lazyt.graph(y)
            assert y.tolist() == expected


@pytest.mark.pending
def test_a_kernel_may_come_long_after_the_schema():
    x = torch.arange(4.0, device=D)
    with torch.library._scoped_library("lazyt_test", "FRAGMENT") as library:
        library.define("patient(Tensor x) -> Tensor")
        for n in range(2, 5):  # calls that no tape knows
            (x + x.new_ones(n, 1)).sum().item()
        library.impl("patient", lambda x: x * 2, "CompositeExplicitAutograd")
        library.impl("patient", lambda x: torch.empty_like(x), "Meta")
        y = torch.ops.lazyt_test.patient(x)
        assert "lazyt_test::patient" in lazyt.graph(y)
        assert y.tolist() == [0, 2, 4, 6]
