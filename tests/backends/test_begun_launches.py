"""A known program that is waited for begins to run while the rest of it is recorded; nothing else changes."""

import copy
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lazyt
import pytest
import torch

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("LAZYT_BACKEND") != "onednn",
        reason="of these backends only onednn's device is synchronous",
    ),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: nothing is begun"),
]

LAYERS, WIDTH = 10, 768  # 2.25 MiB a layer: a piece each


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    layers = [m for _ in range(LAYERS) for m in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]
    return torch.nn.Sequential(*layers).requires_grad_(False)


@pytest.fixture
def on_device(model):
    """The model on the device, once known."""
    there = copy.deepcopy(model).to("lazyt")
    for _ in range(2):
        there(torch.ones(1, WIDTH).to("lazyt")).sum().item()
    lazyt.metrics.reset()
    return there


def begun() -> int:
    return lazyt.metrics.counter_value("LaunchBegun") or 0


def run(program: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=os.environ | env, capture_output=True, text=True
    )


def equal(got: float, want: float) -> None:
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def inputs(count: int = 1) -> list[torch.Tensor]:
    return [torch.randn(1, WIDTH) for _ in range(count)]


def test_a_step_that_is_waited_for_begins_before_it_is_recorded(model, on_device):
    for x in inputs(4):
        equal(on_device(x.to("lazyt")).sum().item(), model(x).sum().item())
    assert begun() >= 4
    assert not lazyt.metrics.counter_value("UncachedCompile")


def test_the_first_time_and_later_ones_are_equal_bit_by_bit(model):
    there = copy.deepcopy(model).to("lazyt")
    x = inputs()[0].to("lazyt")
    results = [(there(x) * 3).sum().item() for _ in range(4)]
    assert len(set(results)) == 1
    assert begun() > 0


def test_whole_programs_are_equal_bit_by_bit():
    program = f"""
    import torch, lazyt
    torch.manual_seed(0)
    layers = [m for _ in range({LAYERS}) for m in (torch.nn.Linear({WIDTH}, {WIDTH}), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers).requires_grad_(False)
    x = torch.randn(1, {WIDTH})
    there = model.to("lazyt")
    numbers = [there(x.to("lazyt")).sum().item().hex() for _ in range(3)]
    print(numbers, lazyt.metrics.counter_value("LaunchBegun") or 0)
    """
    values, number = run(program).stdout.rsplit(None, 1)
    whole, none = run(program, LAZYT_PIECE_BYTES="0").stdout.rsplit(None, 1)
    assert (values, none) == (whole, "0")
    assert int(number) > 0


def test_steps_that_differ_in_a_size_share_the_pieces_without_it(model, on_device):
    """A tail that grows is in one piece of a new program; the others are compiled for the first one."""
    shared = []  # what is begun for the next step may be counted in this one, or in that
    for n in range(2, 8):
        x, tail = inputs()[0], torch.randn(n)
        before = lazyt.metrics.counter_value("SharedExecutable")
        equal(
            (on_device(x.to("lazyt")).sum() * tail.to("lazyt").sum()).item(),
            (model(x).sum() * tail.sum()).item(),
        )
        shared.append(lazyt.metrics.counter_value("SharedExecutable") - before)
    assert sum(shared[1:]) >= len(shared[1:]) * LAYERS / 2, shared
    # The layers are alike and their weights are not: one piece that keeps nothing serves them all.
    x = inputs()[0]
    equal(on_device(x.to("lazyt")).sum().item(), model(x).sum().item())


def layered(model, x, tail):
    """Each layer has the tail's size in it: no piece is there from a step with another."""
    for linear in model[::2]:
        x = linear((x[:, :1] * tail).sum() + x).tanh()
    return x.sum()


@pytest.mark.parametrize("rows, shared", [(1, True), (20, False)])
def test_layers_that_are_alike_share_a_piece_if_it_keeps_no_weights(model, on_device, rows, shared):
    """One row is multiplied by weights as they lie; for many the weights are packed, and stay so with their executable."""
    if not shared and "amx_tile" in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("tiles may take the weights as they lie")
    x, more = torch.randn(rows, WIDTH), []
    for n in range(2, 6):
        tail = torch.randn(n)
        before = lazyt.metrics.counter_value("SharedExecutable")
        with torch.no_grad():
            got = layered(on_device, x.to("lazyt"), tail.to("lazyt")).item()
            torch.testing.assert_close(got, layered(model, x, tail).item(), rtol=1e-4, atol=1e-3)
        more.append(lazyt.metrics.counter_value("SharedExecutable") - before)
    assert (sum(more) >= len(more) * LAYERS / 2) == shared, more


def test_a_step_that_is_not_waited_for_is_not_begun(on_device):
    for x in inputs(3):
        y = on_device(x.to("lazyt"))
        lazyt.mark_step()
    y.sum().item()
    before = begun()
    for x in inputs(2):
        y = on_device(x.to("lazyt"))
        lazyt.mark_step()
    assert begun() == before


def reading(layers, x: torch.Tensor, kept: torch.Tensor, way: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A step that keeps a row more, and may go another way: at a layer, in the end, or by rows that it keeps."""
    kept = torch.cat([kept, x] if way != 3 else [kept, x, x])
    for i, layer in enumerate(layers):
        x = layer(x)
        if way == 1 and i == 2 * LAYERS - 5:
            x = x * 0.5
        if i == LAYERS:
            x = x + torch.softmax(x @ kept.t(), 1) @ kept
    return x if way != 2 else x.sin(), kept


def test_a_step_of_a_new_size_begins_once_it_is_compiled_ahead(model, on_device):
    counted = ("FollowedAhead", "CompiledAhead")
    x = inputs()[0]
    kept = x[:0]
    there, kept_there = x.to("lazyt"), kept.to("lazyt")
    for _ in range(30):
        x, kept = reading(model, x, kept)
        there, kept_there = reading(on_device, there, kept_there)
        equal(there.cpu(), x)
    followed, ahead = (lazyt.metrics.counter_value(name) for name in counted)
    assert followed >= 24 and ahead >= 24
    assert begun() >= 12  # as many as were compiled before their last gate
    equal(kept_there.cpu(), kept)


@pytest.mark.parametrize("seed", range(6))
def test_steps_that_grow_and_go_other_ways_are_right(model, on_device, seed):
    model = copy.deepcopy(model)  # whose weights change
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(1, WIDTH, generator=drawn)
    kept = x[:0]
    there, kept_there = x.to("lazyt"), kept.to("lazyt")
    for step in range(40):
        way = int(torch.randint(4, (), generator=drawn)) if torch.rand((), generator=drawn) < 0.2 else 0
        if torch.rand((), generator=drawn) < 0.1:
            with torch.no_grad():
                on_device[4].bias += 0.25
                model[4].bias += 0.25
        x, kept = reading(model, x, kept, way)
        there, kept_there = reading(on_device, there, kept_there, way)
        if torch.rand((), generator=drawn) < 0.9:
            equal(there.cpu(), x)
        else:
            lazyt.mark_step()
        if step % 13 == 12:
            kept, kept_there = kept[:2], kept_there[:2]
    equal(kept_there.cpu(), kept)


def test_a_step_that_goes_another_way_is_right(model, on_device):
    """What has begun is dropped, and after a few times not begun any more."""

    def step(layers, x, other: bool):
        for i, layer in enumerate(layers):
            x = layer(x) * 0.5 if other and i >= 2 * LAYERS - 3 else layer(x)
        return x.sum().item()

    on_lazyt, x = list(on_device), inputs()[0]
    for i in range(12):
        other = i % 3 != 2
        equal(step(on_lazyt, x.to("lazyt"), other), step(list(model), x, other))
    assert begun() > 0


def test_a_step_that_ends_early_or_goes_on_is_right(model, on_device):
    x = inputs()[0]
    there = x.to("lazyt")
    for layers in (LAYERS, LAYERS - 3, LAYERS, LAYERS - 1, LAYERS):
        got = on_device[: 2 * layers](there)
        torch.testing.assert_close(got.cpu(), model[: 2 * layers](x))
        torch.testing.assert_close((on_device(there) + 1).cpu(), model(x) + 1)


def test_results_that_somebody_keeps_are_there(model, on_device):
    x = inputs()[0]
    for keep in (False, True, False, True):
        kept, y = [], x.to("lazyt")
        for layer in on_device:
            y = layer(y)
            if keep:
                kept.append(y)
        y.sum().item()
        want = x
        for i, layer in enumerate(model):
            want = layer(want)
            if keep:
                torch.testing.assert_close(kept[i].cpu(), want)
        torch.testing.assert_close(y.cpu(), want)


def test_weights_that_change_between_steps_are_those_of_the_step(model, on_device):
    x = inputs()[0]
    for i in range(4):
        equal(on_device(x.to("lazyt")).sum().item(), model(x).sum().item())
        for m in (model, on_device):
            m[2 * i].weight.mul_(0.5)
            m[2 * i + 2].bias.data = torch.full((WIDTH,), 0.25 * i, device=m[0].weight.device)
    equal(on_device(x.to("lazyt")).sum().item(), model(x).sum().item())


def test_weights_that_change_within_a_step_are_those_of_the_call(model, on_device):
    x = inputs()[0]
    for _ in range(4):
        results = []
        for m, y in ((model, x), (on_device, x.to("lazyt"))):
            y = m[:12](y)
            m[0].weight.mul_(0.9)  # was read by what has begun
            m[18].weight.mul_(1.1)  # is read later
            results.append(m[12:](y).sum().item())
        equal(results[1], results[0])
        torch.testing.assert_close(on_device[0].weight.cpu(), model[0].weight)


def test_numbers_and_random_numbers_are_those_of_the_step(on_device):
    def step(x: torch.Tensor, number: float) -> float:
        x = torch.nn.functional.dropout(x * number, 0.5, training=True)
        for layer in on_device:
            x = layer(x)
        return x.sum().item()

    x = inputs()[0].to("lazyt")

    def run() -> list[float]:
        torch.manual_seed(5)
        return [step(x, 1.0 + i) for i in range(5)]

    first = run()
    assert len(set(first)) == 5
    before = begun()
    assert run() == first
    assert begun() > before


def test_an_error_of_what_has_begun_is_raised_where_the_value_is_wanted(on_device):
    table = torch.randn(4, WIDTH).to("lazyt")

    def step(index: int) -> float:
        return on_device(table[torch.tensor([index]).to("lazyt")]).sum().item()

    good = [step(1) for _ in range(3)]
    assert begun() > 0
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        step(7)
    assert [step(1) for _ in range(3)] == good


def test_what_is_written_in_place_stays_whole(on_device):
    """A step that writes into what it was given is one piece: without memory for it, nothing is written."""
    x, total = inputs()[0].to("lazyt"), torch.zeros(1, WIDTH, device="lazyt")

    def step() -> None:
        nonlocal total
        total += on_device(x)
        total.sum().item()

    for _ in range(3):  # what on_device knows begins like this, and may be begun in vain, twice
        step()
    before = begun()
    for _ in range(4):
        step()
    assert begun() == before


def test_threads_begin_their_own_steps(model, on_device):
    def work(seed: int) -> bool:
        x = torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(seed))
        want = model(x).sum().item()
        return all(abs(on_device(x.to("lazyt")).sum().item() - want) < 1e-3 for _ in range(10))

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(work, range(6)))
    assert begun() > 0


def test_a_wrong_setting_is_named():
    wrong = run("import torch; torch.ones(2).to('lazyt')", LAZYT_PIECE_BYTES="much")
    assert wrong.returncode == 1
    assert "LAZYT_PIECE_BYTES='much' is not valid; use an integer from 0" in wrong.stderr
