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


def test_what_it_writes_comes_back():
    @torch.library.custom_op("lazyt_test::bump", mutates_args=("x",))
    def bump(x: torch.Tensor, n: int) -> None:
        seen.append(x.device.type)
        x.numpy()[:] += n

    x = torch.zeros(2, 3, device=D)
    bump(x[1], 4)
    assert x.tolist() == [[0, 0, 0], [4, 4, 4]]
    assert x._version == 1
    assert seen == ["cpu"]


def test_a_composite_operator_decomposes():
    with torch.library._scoped_library("lazyt_test", "FRAGMENT") as library:
        library.define("doubled(Tensor x) -> Tensor")
        library.impl("doubled", lambda x: x + x, "CompositeImplicitAutograd")
        x = torch.ones(2, device=D, requires_grad=True)
        y = torch.ops.lazyt_test.doubled(x)
        assert "aten::add" in lazyt.graph(y)
        y.sum().backward()
        assert x.grad.tolist() == [2, 2]


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
