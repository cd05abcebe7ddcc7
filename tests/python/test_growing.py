"""Steps whose sizes grow: the program of the next size is compiled before it is recorded."""

import os
import subprocess
import sys

import lazyt
import pytest
import torch
import torch.nn.functional as F


def counts() -> tuple[int, int]:
    return tuple(lazyt.metrics.counter_value(name) for name in ("UncachedCompile", "CompiledAhead"))


def added(before: tuple[int, int]) -> tuple[int, int]:
    lazyt.wait_device_ops()
    return tuple(now - then for now, then in zip(counts(), before, strict=True))


class Reader(torch.nn.Module):
    """A layer that keeps keys and values of what it has read."""

    def __init__(self, width: int):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    def forward(self, x, kept):
        q, k, v = (y.unflatten(2, (2, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, 2))
        if kept:
            k, v = torch.cat([kept[0], k], 2), torch.cat([kept[1], v], 2)
        kept[:] = k, v
        y = F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        return x + self.out(y.transpose(1, 2).flatten(2))


def read(device: str, width: int, steps: int) -> list[torch.Tensor]:
    torch.manual_seed(width)
    model = Reader(width).to(device)
    x, kept, seen = torch.randn(1, 5, width).to(device), [], []
    with torch.no_grad():
        for _ in range(steps):
            x = torch.tanh(model(x, kept)[:, -1:])
            seen.append(x.cpu())
    return seen


def test_a_growing_text_is_compiled_ahead_and_equal_to_eager():
    before, followed = counts(), lazyt.metrics.counter_value("FollowedAhead")
    got = read("lazyt", 24, 20)
    compiled, ahead = added(before)
    assert (compiled, ahead) == (20, 20 - 5)  # the first two read more than a token, and three are a line
    # As soon as three are a line the next is expected.
    assert lazyt.metrics.counter_value("FollowedAhead") - followed == 20 - 5
    torch.testing.assert_close(got, read("cpu", 24, 20))
    before = counts()
    torch.testing.assert_close(read("lazyt", 24, 20), got, rtol=0, atol=0)
    assert added(before) == (0, 0)


def test_of_a_step_of_two_programs_both_are_followed():
    def step(device: str, kept: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list]:
        kept = torch.cat([kept, kept[-1:] + 1])  # whole numbers: sums are exact in any order
        total = (kept * kept).sum().item()  # one program
        seen = torch.cat([seen, torch.ones(1, dtype=torch.bool, device=device)])
        return kept, seen, [total, (seen & ~seen.logical_not()).all().item()]  # another

    def steps(device: str, count: int) -> list:
        kept, seen = torch.ones(3, 4, device=device), torch.ones(2, dtype=torch.bool, device=device)
        made = []
        for _ in range(count):
            kept, seen, values = step(device, kept, seen)
            made += values
        return made

    before, followed = counts(), lazyt.metrics.counter_value("FollowedAhead")
    got = steps("lazyt", 20)
    compiled, ahead = added(before)
    # As soon as three of each are a line the next is expected.
    assert ahead >= compiled - 2 * 5
    assert lazyt.metrics.counter_value("FollowedAhead") - followed >= compiled - 2 * 5
    torch.testing.assert_close(got, steps("cpu", 20))


def test_sizes_that_stop_growing_cost_one_guess():
    def step(n: int) -> torch.Tensor:
        x = torch.arange(float(n))
        want = (x * 3).cumsum(0)
        torch.testing.assert_close((x.to("lazyt") * 3).cumsum(0).cpu(), want)

    before = counts()
    for n in (201, 202, 203, 204, 190, 250, 251, 252, 253, 203):
        step(n)
    assert added(before) == (9, 2)


def test_results_whose_sizes_jump_are_right():
    """A pooling by 4 has as many results three times in a row, and one more the fourth time."""
    before = counts()
    for n in range(301, 330):
        x = torch.randn(1, 1, n)
        got = F.max_pool1d(x.to("lazyt") * 2, 4)
        assert got.shape == F.max_pool1d(x * 2, 4).shape
        torch.testing.assert_close(got.cpu(), F.max_pool1d(x * 2, 4))
    assert added(before) == (29, 0)


def test_dims_that_count_up_are_no_sizes():
    x = torch.randn(3, 3, 3, 3)
    before = counts()
    for dim in (0, 1, 2, 3, 3):
        got = torch.cat([x.to("lazyt") * 5, x.to("lazyt")], dim).cumsum(dim)
        torch.testing.assert_close(got.cpu(), torch.cat([x * 5, x], dim).cumsum(dim))
    assert added(before)[1] == 0


def test_sizes_as_numbers_grow_too():
    before = counts()
    for n in range(401, 409):
        x = torch.randn(n)
        got = torch.cat(
            [torch.zeros(n, device="lazyt"), x.to("lazyt"), torch.full((n,), 2.0, device="lazyt")]
        )
        torch.testing.assert_close(got.cpu(), torch.cat([torch.zeros(n), x, torch.full((n,), 2.0)]))
    assert added(before) == (8, 5)


def test_squares_are_not_taken_for_lines():
    for n in range(3, 12):
        x = torch.randn(n, n)
        torch.testing.assert_close(
            torch.softmax(x.to("lazyt") @ x.to("lazyt"), 1).cpu(), torch.softmax(x @ x, 1)
        )


def test_gradients_of_growing_steps():
    def train(device: str) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = torch.nn.Linear(8, 8).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for n in range(3, 14):
            x = torch.randn(n, 8).to(device)
            optimizer.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().cpu())
        return losses

    torch.testing.assert_close(train("lazyt"), train("cpu"))


def test_an_operator_that_refuses_the_next_size_is_refused():
    """An index that grows along a dim of which there are five."""
    x = torch.randn(5, 4)
    for n in range(2, 6):
        index = torch.zeros(n, 2, dtype=torch.int64)
        got = torch.gather(x.to("lazyt") * 2, 1, index.to("lazyt"))
        torch.testing.assert_close(got.cpu(), torch.gather(x * 2, 1, index))
    index = torch.zeros(6, 2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="Size does not match"):
        torch.gather(x, 1, index)
    with pytest.raises(RuntimeError, match="Size does not match"):
        torch.gather(x.to("lazyt") * 2, 1, index.to("lazyt"))


def grown(i: int, x: torch.Tensor, n: int, kept: torch.Tensor) -> torch.Tensor:
    """The i-th of some operators over x, which has a dim of n elements, and what is kept of other steps."""
    last = x.shape[-1]
    same = torch.ones(last, device=x.device)
    return [
        lambda: torch.cat([x, x.new_ones(*x.shape[:-1], 2)], -1),
        lambda: x.transpose(0, -1) * 1.5,
        lambda: torch.softmax(x, -1),
        lambda: x + same,
        lambda: x.masked_fill(x > 0.3, 0.5),
        lambda: x.sum(0, keepdim=True) + x,
        lambda: x.clone() @ torch.ones(last, 3, device=x.device),
        lambda: torch.where(x > same, x, same),
        lambda: kept[:n, : 2 * n : 2] * 2 + x.sum(),
        lambda: kept[: n + 1].t().clone() + 1,
        lambda: x.mul_(0.5).relu_(),
        lambda: x.cumsum(-1)[..., : last // 2 + 1],
        lambda: torch.stack([x, x + 1], 1).flatten(0, 1),
        lambda: x.reshape(-1).unsqueeze(0) - kept.mean(),
        lambda: x.expand(2, *x.shape).contiguous().flatten(0, 1),
        lambda: x[:, torch.arange(last, device=x.device).flip(0)] + torch.arange(last, device=x.device),
        lambda: (
            x
            * (torch.arange(0, 3 * n, 2, device=x.device).sum() + torch.arange(n, 2 * n, device=x.device)[-1])
        ),
        lambda: x[..., :1].expand_as(x) * x.amax(-1, keepdim=True),
    ][i]()


@pytest.mark.parametrize("seed", range(40))
def test_random_steps_that_grow(seed):
    """Values, sizes, strides: what a step is expected to be is not taken for what it is."""
    drawn = torch.Generator().manual_seed(seed)
    kept = torch.randn(12, 24, generator=drawn)
    operators = torch.randint(18, (6,), generator=drawn).tolist()
    grows = 1 + seed % 2

    def step(device: str, n: int, x: torch.Tensor) -> torch.Tensor:
        x, buffer = x.to(device), kept.to(device)
        for i in operators:
            x = grown(i, x, n, buffer)
            x = x if x.dim() == 2 else x.reshape(x.shape[0], -1)
        return x

    for n in range(1 + seed % 3, 11, grows):
        x = torch.randn(n, n + 1 if seed % 5 else 4, generator=drawn)
        want, refused = None, None
        try:
            want = step("cpu", n, x.clone())
        except RuntimeError as e:
            refused = e
        if refused is not None:
            with pytest.raises(RuntimeError):
                step("lazyt", n, x.clone()).cpu()
            continue
        got = step("lazyt", n, x.clone())
        assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
        torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-4)


PROGRAM = """
import torch, lazyt
for n in range(4, 12):
    x = torch.randn(n)
    assert torch.equal((x.to("lazyt") * 2).cpu(), x * 2)
lazyt.wait_device_ops()
print("ahead", lazyt.metrics.counter_value("CompiledAhead"))
"""


def run_with(value: str) -> subprocess.CompletedProcess:
    env = os.environ | {"LAZYT_COMPILE_AHEAD": value}
    return subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env)


@pytest.mark.parametrize(("value", "ahead"), (("0", "ahead 0"), ("1", "ahead 5"), ("", "ahead 5")))
def test_it_can_be_switched_off(value, ahead):
    done = run_with(value)
    assert done.stdout.strip() == ahead, done.stderr


def test_a_wrong_value_of_the_variable_is_an_error():
    done = run_with("perhaps")
    assert done.returncode == 1
    assert "LAZYT_COMPILE_AHEAD" in done.stderr


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64))
def test_what_cat_makes_lies_as_eagers(dtype):
    def parts() -> list[list[torch.Tensor]]:
        a = torch.ones(2, 3, 4, 5).to(dtype)
        return [
            [a, a],
            [a[:, :1], a, a[:, 1:]],
            [a.to(memory_format=torch.channels_last)] * 2,
            [a.to(memory_format=torch.channels_last), a],
            [a.transpose(1, 2), a.transpose(1, 2)],
            [a[..., :0], a],
            [torch.ones(0).to(dtype), a],
            [a[:, :, ::2], a[:, :, 1::2]],
            [a.expand(2, 3, 4, 5), a[:1].expand(2, 3, 4, 5)],
        ]

    for tensors in parts():
        for dim in range(-4, 4):
            try:
                want, error = torch.cat(tensors, dim), None
            except RuntimeError as e:
                want, error = None, str(e)
            try:
                got = torch.cat([t.to("lazyt") for t in tensors], dim)
            except RuntimeError as e:
                assert str(e) == error
                continue
            assert error is None
            # copies of views lie as the device's copies do, so they are asked for again
            again = torch.cat([t.to("lazyt").cpu() for t in tensors], dim)
            assert (got.shape, got.stride(), got.dtype) == (want.shape, again.stride(), want.dtype)
            assert torch.equal(got.cpu(), want)


def test_errors_of_cat_are_eagers():
    a, b = torch.ones(2, 3), torch.ones(3, 3)
    for tensors, dim in (([a, b], 1), ([a, a], 2), ([a, torch.ones(2)], 0), ([], 0)):
        with pytest.raises((RuntimeError, IndexError, ValueError)) as eager:
            torch.cat(tensors, dim)
        if tensors:
            with pytest.raises(eager.type) as ours:
                torch.cat([t.to("lazyt") for t in tensors], dim)
            assert str(ours.value) == str(eager.value)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
@pytest.mark.parametrize("lengths", ((1, 9), (7, 7), (3, 1), (900, 800)))
def test_what_attention_makes_lies_as_eagers(dtype, lengths):
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, lengths[0], 8).to(dtype), torch.randn(2, 3, lengths[1], 8).to(dtype)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    for view in (
        lambda t: t,
        lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
        lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
        lambda t: torch.cat([t, t], 3)[..., :8],
        lambda t: t[:1].expand(t.shape),
    ):
        want = flash(view(q), view(k), view(k))
        got = flash(view(q.to("lazyt")), view(k.to("lazyt")), view(k.to("lazyt")))
        for g, w in zip(got, want, strict=True):
            assert (g.shape, g.stride(), g.dtype) == (w.shape, w.stride(), w.dtype)


@pytest.mark.parametrize(
    "sizes",
    (
        (2, 3, 4, 9),
        (1, 1, 1, 9),
        (2, 1, 4, 1),
        (1, 3, 4, 9),
        (4, 9),
        (2, 3, 4, 8),
        (2, 2, 4, 9),
        (4, 1, 4, 9),
    ),
)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bool))
@pytest.mark.parametrize("causal", (False, True))
def test_attention_with_a_mask_is_eagers(sizes, dtype, causal):
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 9, 8)
    mask = (torch.rand(sizes) > 0.3).to(dtype)

    def result(device: str):
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        there = [t.to(device) for t in (q, k, k)]
        try:
            return [t.cpu() for t in flash(*there, is_causal=causal, attn_mask=mask.to(device))]
        except RuntimeError as e:
            return str(e).partition("\n")[0]

    want, got = result("cpu"), result("lazyt")
    if isinstance(want, str):
        assert got == want
        return
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.stride(), g.dtype) == (w.shape, w.stride(), w.dtype)
        torch.testing.assert_close(g, w)
