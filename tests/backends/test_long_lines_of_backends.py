"""Few long lines, which a GPU cuts into parts: values and places are eager's, whichever part has them."""

import lazyt  # noqa: F401
import pytest
import torch

DEVICE = "lazyt"
N = 40_000

pytestmark = pytest.mark.usefixtures("no_islands")


def same(function, *args, **tolerances):
    want, got = function(*args), function(*(a.to(DEVICE) for a in args))
    want, got = (w if isinstance(w, (tuple, list)) else (w,) for w in (want, got))
    for w, g in zip(want, got, strict=True):
        assert g.dtype == w.dtype
        torch.testing.assert_close(g.cpu(), w, equal_nan=True, **(tolerances or {"rtol": 0, "atol": 0}))


def laid(n: int, lines: int, columns: bool, dtype=torch.float32) -> tuple[torch.Tensor, int]:
    """Few different values, so that there are ties; and the dim along which the lines go."""
    torch.manual_seed(n)
    x = torch.randint(-40, 40, (lines, n)).div(8).to(dtype) if dtype.is_floating_point else torch.randint(-40, 40, (lines, n)).to(dtype)
    return (x.t().contiguous(), 0) if columns else (x, 1)


LAYS = [(1, False), (3, False), (3, True)]


@pytest.mark.parametrize("lines,columns", LAYS)
@pytest.mark.parametrize("n", [N, 16_384])
def test_extremes_are_the_first_ones(n, lines, columns):
    x, dim = laid(n, lines, columns)
    same(lambda x: [*x.max(dim), *x.min(dim), x.argmax(dim), x.argmin(), *x.aminmax(dim=dim)], x)
    for place in (0, n // 2, n - 1):  # a NaN counts as the largest and as the smallest; of two the first
        y = x.clone()
        y.select(dim, place)[0] = y.select(dim, n - 1)[0] = float("nan")
        same(lambda x: [*x.max(dim), *x.min(dim), x.argmax(), *x.aminmax(dim=dim)], y)


def test_extremes_of_other_dtypes_and_strides():
    for dtype in (torch.int64, torch.uint8, torch.bfloat16):
        x = laid(N, 2, False, dtype)[0].abs()
        same(lambda x: [*x.max(1), x.argmin(), x[:, ::2].argmax(1)], x)


@pytest.mark.parametrize("lines,columns", LAYS)
def test_variances_and_log_sum_exp(lines, columns):
    x, dim = laid(N, lines, columns, torch.float64)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        y = (x + 100).to(dtype)
        exact = [v.to(dtype) for v in (*torch.var_mean(y.double(), dim), y.double().std(), y.double().var(dim, correction=0))]
        mine = y.to(DEVICE)
        for got, want in zip((*torch.var_mean(mine, dim), mine.std(), mine.var(dim, correction=0)), exact, strict=True):
            torch.testing.assert_close(got.cpu(), want, rtol=tolerance, atol=0)
        torch.testing.assert_close(mine.logsumexp(dim).cpu(), y.double().logsumexp(dim).to(dtype), rtol=tolerance, atol=0)
    assert (x * 0).to(DEVICE).var().item() == 0


def test_log_sum_exp_of_infinities():
    infinity = float("inf")
    x = torch.full((4, N), -infinity)
    x[1, 5], x[2, N - 1], x[3, 0] = infinity, 3, float("nan")
    same(lambda x: x.logsumexp(1), x, rtol=1e-6, atol=0)


@pytest.mark.parametrize("lines,columns", LAYS)
def test_running_totals(lines, columns):
    x, dim = laid(N, lines, columns)
    same(lambda x: x.cumsum(dim), x)  # of eighths: exact
    same(lambda x: x.sign().add(x == 0).cumprod(dim), x)
    same(lambda x: (x * 8).long().cumsum(dim), x)
    same(lambda x: x.logcumsumexp(dim), x, rtol=1e-4, atol=1e-4)
    y = x.clone()
    y.select(dim, N // 3)[0] = float("nan")
    y.select(dim, N // 4)[0] = float("inf")
    y.select(dim, N // 5)[0] = float("-inf")
    zeros = torch.where(x > 0, 0.0, -0.0)  # equal to each other: the last one's place counts
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for values in (y, zeros):
            same(lambda x: [*x.cummax(dim), *x.cummin(dim)], values.to(dtype))


@pytest.mark.parametrize("k", [1, 1000])
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_of_a_long_line_by_value(k, largest):
    x = torch.randperm(2 * N).float().view(2, N)
    x[1, N // 2] = float("nan")
    same(lambda x: x.topk(k, largest=largest), x)


def test_the_first_of_a_long_line_of_ties():
    x = laid(N, 2, False)[0]
    values, places = x.to(DEVICE).topk(70)
    torch.testing.assert_close(values.cpu(), x.topk(70).values, rtol=0, atol=0)
    torch.testing.assert_close(x.gather(1, places.cpu()), values.cpu(), rtol=0, atol=0)
    assert all(len(set(row)) == 70 for row in places.tolist())


@pytest.mark.parametrize("count,share", [(257, 1.0), (5000, 0.5)])
def test_many_sources_of_one_place(count, share):
    """A padding token: most of the sources, or all of them, go to one place."""
    torch.manual_seed(0)
    index = torch.where(torch.rand(count) < share, 4, torch.randint(0, 9, (count,)))
    source, into = torch.randint(-8, 8, (count, 2)).float() / 8, torch.randn(9, 2).round()
    same(lambda s, i, t: t.index_add(0, i, s), source, index, into)
    same(lambda s, i, t: t.long().index_add(0, i, (s * 8).long(), alpha=-3), source, index, into)
    same(lambda s, i, t: torch.index_put(t, (i,), s, accumulate=True), source, index, into)
    wide = index[:, None].expand(-1, 2)
    for reduce in ("sum", "amax", "amin", "mean"):
        for include in (True, False):
            same(lambda s, i, t, r=reduce, n=include: t.scatter_reduce(0, i, s, r, include_self=n), source, wide, into, rtol=1e-6, atol=1e-6)
    same(lambda s, i, t: t.scatter_reduce(0, i, s.sign() + (s == 0), "prod"), source, wide, into)
    grad = torch.randint(-8, 8, (count, 2)).float() / 8
    for padding, by_frequency in ((-1, False), (4, False), (-1, True)):
        same(
            lambda g, i, p=padding, f=by_frequency: torch.ops.aten.embedding_dense_backward(g, i, 9, p, f),
            grad,
            index,
            rtol=1e-6,
            atol=1e-6,
        )


def test_what_several_blocks_add_up_is_the_same_in_every_run():
    """The last block of a sum adds the parts: its counters are as before when it is done (from the third run on in a graph)."""
    torch.manual_seed(1)
    x, a, b = torch.randn(2, N), torch.randn(40, 4096), torch.randn(4096, 48)
    moved = [t.to(DEVICE) for t in (x, a, b)]
    runs = [[t.cpu() for t in (moved[0].sum(1), moved[0].t().contiguous().sum(0), moved[1] @ moved[2])] for _ in range(5)]
    for run in runs:
        for got, first, want in zip(run, runs[0], (x.sum(1), x.sum(1), a @ b), strict=True):
            assert torch.equal(got, first)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)
