"""Integers, doubles and running extremes of the oneDNN plugin: eager's values to the bit, no host island."""

import os

import lazyt
import pytest
import torch

pytestmark = pytest.mark.skipif(
    os.environ.get("LAZYT_BACKEND") != "onednn", reason="of the oneDNN plugin alone"
)
DEVICE = "lazyt"
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.fixture(autouse=True)
def no_islands():
    lazyt.metrics.reset()
    yield
    assert not lazyt.metrics.fallbacks()


def same(function, *args):
    want, got = function(*args), function(*(a.to(DEVICE) for a in args))
    want, got = (w if isinstance(w, (tuple, list)) else (w,) for w in (want, got))
    for w, g in zip(want, got, strict=True):
        assert g.dtype == w.dtype
        torch.testing.assert_close(g.cpu(), w, rtol=0, atol=0, equal_nan=True)


def any_integers(dtype, *shape):
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max, shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("how", ["trunc", "floor", "fmod", "remainder"])
def test_quotients_of_integers_are_exact_up_to_the_largest(dtype, large, how):
    torch.manual_seed(0)
    limits = torch.iinfo(dtype)
    edge = limits.max if large or dtype == torch.int32 else 2**51 - 1
    a = torch.tensor([edge, -edge, edge - 1, 7, -7, 1, 0, limits.min if large else -edge], dtype=dtype)
    b = torch.tensor([1, 2, -2, 3, -3, 7, edge, -edge, edge - 1], dtype=dtype)
    a = torch.cat(
        [a, torch.randint(-edge, edge, (1200,), dtype=dtype), torch.randint(-50, 50, (1200,), dtype=dtype)]
    )
    a, b = a[:, None], torch.cat([b, torch.randint(2, 9, (4,), dtype=dtype)])
    divide = {
        "trunc": lambda p, q: torch.div(p, q, rounding_mode="trunc"),
        "floor": lambda p, q: torch.div(p, q, rounding_mode="floor"),
        "fmod": torch.fmod,
        "remainder": torch.remainder,
    }[how]
    same(divide, a, b)
    same(lambda p: divide(p, torch.full_like(p, -1)), a[a != limits.min])  # eager traps on the smallest


@pytest.mark.parametrize("dtype", INTEGERS)
def test_products_of_integers_wrap_as_eagers(dtype):
    torch.manual_seed(0)
    a, b, c = any_integers(dtype, 70, 300), any_integers(dtype, 300, 37), any_integers(dtype, 70, 37)
    same(torch.mm, a, b)
    same(lambda p, q: p.t() @ q.t(), b, a)
    same(lambda p, q: p[::2, 1:-1:3] @ q[1:-1:3, 1::2], a, b)
    same(lambda r, p, q: torch.addmm(r, p, q, beta=3, alpha=2), c, a, b)
    same(torch.mv, a, b[:, 0].contiguous())
    same(torch.mv, a.t(), c[:, 1])
    same(lambda p, q: p[:1] @ q, a, b)
    same(torch.dot, a[0], b[:, 5])
    same(torch.addmv, c[:, 0], a, b[:, 2])
    same(lambda p, q: torch.matmul(p.reshape(5, 14, 300), q), a, b)
    same(lambda p, q: torch.bmm(p.reshape(7, 10, 300), q.expand(7, 300, 37)), a, b)


def test_products_of_doubles():
    torch.manual_seed(0)
    a, b = torch.randn(70, 300, dtype=torch.float64), torch.randn(300, 37, dtype=torch.float64)

    def close(function, *args):
        got = function(*(x.to(DEVICE) for x in args)).cpu()
        torch.testing.assert_close(got, function(*args), rtol=1e-12, atol=1e-12)

    close(torch.mm, a, b)
    close(lambda p, q: p.t() @ q.t(), b, a)
    close(torch.mv, a, b[:, 0])
    close(lambda p, q: torch.addmv(q[:37, 3], p.t(), p[:, 2]), b, a.t())
    close(torch.dot, a[0], b[:, 1])
    close(lambda p, q: torch.addmm(q[:1], p, q, beta=0.5, alpha=-2), a, b)


@pytest.mark.parametrize(
    "dtype", [*INTEGERS, torch.bool, torch.float32, torch.float64, torch.bfloat16, torch.float16]
)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_keep_the_latest_of_equals(name, dtype):
    torch.manual_seed(0)
    x = torch.randint(0, 9, (5, 600)).to(dtype)
    if dtype.is_floating_point:
        x[0, 300] = x[0, 310] = torch.nan
        x[1, 0] = torch.nan
        x[2, 7], x[2, 8] = torch.inf, -torch.inf
        x[3] = torch.randn(600).to(dtype).sort(descending=name == "cummin")[0]
    function = getattr(torch, name)
    same(lambda t: function(t, 1), x)
    same(lambda t: function(t, 0), x)
    same(lambda t: function(t[:, ::3], -1), x)


def test_functions_of_doubles_at_their_edges():
    inf, nan = torch.inf, torch.nan
    x = torch.tensor(
        [-inf, -2, -1, -0.0, 0, 1e-300, 0.5, 700, 800, -700, -800, inf, nan] * 9, dtype=torch.float64
    )
    for function in torch.log1p, torch.sigmoid, torch.nn.functional.silu:
        got, want = function(x.to(DEVICE)).cpu(), function(x)
        torch.testing.assert_close(got, want, rtol=1e-15, atol=1e-300, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_inverse_error_function_from_one_end_to_the_other(dtype):
    near_one = 1 - torch.logspace(-16, -1, 999, dtype=torch.float64)
    x = torch.cat(
        [
            torch.linspace(-1.1, 1.1, 2001, dtype=torch.float64),
            near_one,
            -near_one,
            torch.logspace(-300, -1, 999, dtype=torch.float64),
        ]
    )
    x = torch.cat(
        [x, torch.tensor([1.0, -1, torch.nan, torch.inf, -torch.inf, 0, -0.0], dtype=torch.float64)]
    ).to(dtype)
    got, want = torch.erfinv(x.to(DEVICE)).cpu(), torch.erfinv(x.double()).to(dtype)
    bound = 2e-15 if dtype == torch.float64 else 6e-8
    torch.testing.assert_close(got, want, rtol=bound, atol=1e-45, equal_nan=True)


def test_the_logarithm_of_gamma_near_its_zeros_and_poles():
    inf = torch.inf
    edges = torch.tensor(
        [0.0, -0.0, 1.0, 2.0, -1.0, -2.0, -8388608.0, inf, -inf, torch.nan, 1e-45, -1e-45, 3e38, 1e38, -1e30]
    )
    roots = torch.tensor(
        [1.0, 2.0, -2.4570247, -2.7476827, -3.1435809, -3.9552945, -4.0393618, -4.9915447, 0.5, 8.0, -15.0]
    )
    steps = torch.arange(-300, 301)
    near = (roots.view(torch.int32)[:, None] + steps[None, :].int()).view(torch.float32)
    wide = torch.randint(-(2**31), 2**31 - 1, (40_001,)).int().view(torch.float32)
    for x in (edges, near, wide, torch.linspace(-20, 20, 10_001)):
        got, expected = x.to(DEVICE).lgamma().cpu(), x.double().lgamma()
        unit = torch.finfo(torch.float32).eps * expected.abs().clamp_min(torch.finfo(torch.float32).tiny)
        finite = expected.abs() < torch.finfo(torch.float32).max
        assert ((got.double() - expected).abs() <= 2 * unit)[finite].all()
        torch.testing.assert_close(got[~finite], expected.float()[~finite], rtol=0, atol=0, equal_nan=True)
    assert not torch.signbit(torch.tensor([1.0, 2.0]).to(DEVICE).lgamma().cpu()).any()


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 15, 64, 100, 517, 1100])
def test_extremes_of_runs_of_every_length(count, dtype):
    torch.manual_seed(count)
    x = torch.randn(4, count).mul(100).to(dtype) if dtype.is_floating_point else any_integers(dtype, 4, count)
    x[0, count // 2] = torch.finfo(dtype).max if dtype.is_floating_point else torch.iinfo(dtype).max
    x[1, count - 1] = torch.finfo(dtype).min if dtype.is_floating_point else torch.iinfo(dtype).min
    same(lambda t: t.amax(1), x)
    same(lambda t: t.amin(1), x)
    same(torch.max, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "bounds", [{}, {"nan": torch.inf}, {"nan": torch.nan}, {"posinf": 7.0}, {"neginf": -3.0, "nan": 2.0}]
)
def test_what_is_no_number_becomes_one(bounds, dtype):
    limits = torch.finfo(dtype)
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, limits.max, limits.min, 0.0, -0.0, 1.5], dtype=dtype)
    same(lambda t: torch.nan_to_num(t, **bounds), x.repeat(40))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 15, 16, 31, 33, 64, 65, 127, 200, 512, 577, 1100])
def test_sums_of_runs_of_every_length(count, dtype):
    torch.manual_seed(count)
    x = torch.rand(3, count).to(dtype)
    bound = 2e-7 if dtype == torch.float32 else 1e-14  # the reference adds up in f64 too
    for function in lambda t: t.sum(1), lambda t: t.norm(dim=1), torch.sum:
        got, exact = function(x.to(DEVICE)).cpu(), function(x.double())
        torch.testing.assert_close(got.double(), exact, rtol=bound, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32])
@pytest.mark.parametrize("n", [5, 128, 1000, 70_001])
def test_a_step_over_the_memory_of_what_dies(n, dtype):
    """Each step's operands are given up to its results; what is read again in the step keeps its value."""

    def step(x, y):
        first = (x * y + x).abs() + x
        second = first - x * y
        return second, x + 0, first

    x, y = (torch.arange(n) % 7 - 3).to(dtype), (torch.arange(n) % 5 - 2).to(dtype)
    a, b = x.to(DEVICE), y.to(DEVICE)
    for _ in range(4):
        (x, y, kept), (a, b, also) = step(x, y), step(a, b)
        lazyt.mark_step()
        x, y, a, b = x.clamp(-9, 9), y.clamp(-9, 9), a.clamp(-9, 9), b.clamp(-9, 9)
        lazyt.mark_step()
        for want, got in ((x, a), (y, b), (kept, also)):
            assert torch.equal(got.cpu(), want)


def test_a_number_that_is_minus_zero_or_nan():
    x = torch.tensor([1.5, -2.0, 0.0, -0.0, float("nan"), float("inf")] * 50)
    nan = float("nan")
    for f in (
        lambda x: torch.copysign(x * 2, torch.tensor(-0.0, device=x.device)),
        lambda x: (x + 1) * -0.0,
        lambda x: (x * 2).clamp(min=nan),
        lambda x: (x * 2).clamp(max=nan),
        lambda x: (x * 2).clamp(min=0.5),
        lambda x: (x * 2).clamp(max=-0.5),
    ):
        want, got = f(x), f(x.to(DEVICE)).cpu()
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(got.signbit()[want == want], want.signbit()[want == want])


CHAINS_OF_F64 = {
    "cheap": lambda x, y, m: (x * 2 - y).clamp(-1, 1).abs() / 3 + (-x).floor() * y.trunc(),
    "chosen": lambda x, y, m: torch.where(m, x * y, torch.where(x > y, x - 3, y + 0.5)),
    "bools": lambda x, y, m: ((x < y) & ~m) | (x >= 1.5),
    "bools as numbers": lambda x, y, m: x * m + (x > 0).double() * y,
    "signs": lambda x, y, m: torch.copysign(x.sign() * 1.5, -y) + y.sqrt().nan_to_num(7.0),
    "extremes": lambda x, y, m: (
        torch.maximum(x * 1.0, y) - torch.minimum(x, y * 1.0) + torch.ceil(x) + torch.round(y)
    ),
    "kept twice": lambda x, y, m: ((z := x * y) + 1) * (z - 2) * z,
    "lerp": lambda x, y, m: torch.lerp(x, y, 0.25) * torch.lerp(x, y, 0.75),
    "a number of each row": lambda x, y, m: (x.view(-1, 1, 1) * y.view(1, -1) - 1).clamp(min=-2)[:3],
    "library": lambda x, y, m: x.sigmoid() * y.tanh() + (x * 0.5).exp() * y.erf() - x.expm1() * torch.exp2(y),
    "gradients": lambda x, y, m: (
        torch.ops.aten.elu_backward(x, 1.0, 1.0, 1.0, False, y)
        + torch.ops.aten.softplus_backward(x, y, 1.0, 20.0)
    ),
    "cut quotients": lambda x, y, m: torch.div(x * 9, y, rounding_mode="trunc") * 2,
    "total": lambda x, y, m: (x * y + 1).sum(),
}


@pytest.mark.parametrize("n", [1, 7, 8, 63, 64, 65, 1000, 70001])
@pytest.mark.parametrize("name", CHAINS_OF_F64)
def test_chains_of_f64(name, n):
    torch.manual_seed(0)
    if name == "a number of each row":
        n = min(n, 1000)
    x, y = torch.randn(n, dtype=torch.float64) * 3, torch.randn(n, dtype=torch.float64) * 3
    m = torch.rand(n) < 0.5
    special = torch.tensor(
        [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e300, 5e-324], dtype=torch.float64
    )
    if n >= 64 and name != "total":
        x[:7], y[7:14], x[14:21], y[14:21] = special, special, special, special.flip(0)
    want = CHAINS_OF_F64[name](x, y, m)
    got = CHAINS_OF_F64[name](*(t.to("lazyt") for t in (x, y, m))).cpu()
    torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13, equal_nan=True)


CHAINS_OF_INTEGERS = {
    "arithmetic": lambda x, y, m: (x * 3 - y) * (y - x) + 5,
    "from a number": lambda x, y, m: 7 - (x - (y - x)),
    "scaled": lambda x, y, m: torch.addcmul(x, x, y, value=-3).add(y, alpha=5) * (2 + x.add(y, alpha=11)),
    "signs": lambda x, y, m: (x * 1).sign() * -y + (x + 0).abs() - (y - y.sign()).sign(),
    "bits": lambda x, y, m: ((x & y) | ~(x ^ 7)) ^ (y | 12),
    "bounds": lambda x, y, m: torch.minimum(torch.maximum(x, y + 1), -x).clamp(-1000, 2**31 - 1),
    "chosen": lambda x, y, m: torch.where(m, x * y, torch.where(x > y, x - 3, y)),
    "bools": lambda x, y, m: ((x < y) & ~m) | (x >= 1) | ((x + 1 <= y) ^ (x != 3)) | (x * 2 == y),
    "bools as numbers": lambda x, y, m: x * m + (x > 0) * y - (~m).to(x.dtype),
    "numbers as bools": lambda x, y, m: (x & 1).bool() | torch.logical_not(y & 2),
    "kept twice": lambda x, y, m: ((z := x * y) + 1) * (z - 2) * z * z,
    "squares": lambda x, y, m: (x + y).square() - x * x,
    "a row and a column": lambda x, y, m: (x[:300].view(-1, 1) * y[:700].view(1, -1) - 1).clamp(min=-2) & 255,
    "every other": lambda x, y, m: x[::2] * 3 + y[::2],
    "total": lambda x, y, m: ((x * y + 1).sum(), torch.maximum(x * 2, y).amax(), (x ^ y).amin()),
    "division among them": lambda x, y, m: (
        torch.div(x * 3 + 1, y | 1, rounding_mode="floor") - x % ((y & 15) + 1)
    ),
    "floats beside them": lambda x, y, m: (x * 2 + 1, (x & 3).float() * 0.5, y.double() + 0.25),
    "in place": lambda x, y, m: (x.clone().mul_(y).add_(x).neg_(), y),
}


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool], ids=str)
@pytest.mark.parametrize("name", CHAINS_OF_INTEGERS)
def test_chains_of_integers(name, dtype):
    torch.manual_seed(0)
    for n in (1, 7, 8, 63, 64, 129, 1000, 70001):
        x, y = torch.randint(2, (2, n)).bool() if dtype == torch.bool else any_integers(dtype, 2, n)
        m = torch.rand(n) < 0.5
        if n >= 64 and dtype != torch.bool:
            limits = torch.iinfo(dtype)
            x[:4] = torch.tensor([limits.min, limits.max, 0, 1], dtype=dtype)
            y[20:40] = x[20:40] = torch.arange(20).sub(5).to(dtype)
        try:
            CHAINS_OF_INTEGERS[name](x, y, m)
        except RuntimeError:
            assert dtype not in (torch.int32, torch.int64)  # eager lacks it, or a number is too large
            return
        same(CHAINS_OF_INTEGERS[name], x, y, m)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.float32], ids=str)
def test_ranges_of_every_start_and_step(dtype):
    ranges = [(0, 1000, 1), (3, 70, 1), (0, 70_001, 3), (200, -50, -7), (5, 6, 9), (2**31 - 9, 2**31 - 1, 2)]
    for limits in ranges:
        if dtype != torch.uint8 or (0 <= limits[0] < 250 and 0 <= limits[1] < 250):
            with_a_range = lambda x, r=limits: torch.arange(*r, dtype=dtype, device=x.device) + x  # noqa: E731
            same(with_a_range, torch.zeros((), dtype=dtype))
    same(
        lambda x: torch.arange(-(2**61), 2**61, 2**60, device=x.device) * 5 + x,
        torch.zeros(1, dtype=torch.int64),
    )
    for diagonal in (-700, -3, 0, 1, 699):
        same(lambda x, d=diagonal: x.tril(d) - x.triu(d), torch.ones(700, 613, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("count", [1, 31, 32, 511, 513, 1024, 2000, 70001])
def test_products_and_truths_of_long_rows(count, dtype):
    torch.manual_seed(0)
    x = (torch.rand(3, count, dtype=torch.float64) * 0.02 + 0.99).to(dtype)
    if dtype == torch.int64:
        x = torch.randint(1, 8, (3, count)) * 2 - 1
    x[1, count // 2] = 0
    x[2, count - 1] = 3
    exact = x.double().prod(1) if dtype.is_floating_point else x.prod(1)
    torch.testing.assert_close(x.to(DEVICE).prod(1).cpu(), exact.to(x.prod(1).dtype), rtol=2e-7, atol=0)
    same(lambda t: t.all(1), x)
    same(lambda t: t.any(1), x)
    same(lambda t: (1 - t.to(torch.uint8)).bool().any(1), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("row", [255, 256, 300, 512, 1024, 8192, 16384])
def test_rows_that_repeat(row, dtype):
    torch.manual_seed(0)
    x, bias = torch.randn(37, row).to(dtype), torch.randn(row).to(dtype)
    mask, column = torch.rand(row) < 0.5, torch.randn(37, 1).to(dtype)
    one_each = torch.randn(37, 3, row).to(dtype)

    def results(x, bias, mask, column, one_each):
        yield torch.maximum(x, bias) - 1
        yield torch.where(mask, x * 2, bias)
        yield (x * bias[1:].sum()) * 0 + torch.minimum(bias, x.abs())
        yield (x + bias) * column
        yield one_each * bias + x[:, None]
        yield torch.maximum(x.view(-1)[: row * 5].view(5, row), bias.view(1, row))

    want = list(results(x, bias, mask, column, one_each))
    got = [t.cpu() for t in results(*(t.to("lazyt") for t in (x, bias, mask, column, one_each)))]
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.float32], ids=str)
def test_operands_that_no_result_depends_on(dtype):
    i, x = torch.arange(1000).to(dtype), torch.linspace(-1, 1, 1000)
    for f in (
        lambda i, x: torch.where(i.isinf(), x, x * 2),
        lambda i, x: (x > 0) | i.isnan(),
        lambda i, x: i.isinf(),
        lambda i, x: (i.isnan(), x.exp(), i.isinf().sum(), torch.full_like(x, 3) + x[3]),
    ):
        torch.testing.assert_close(lazyt.to_eager(f(i.to("lazyt"), x.to("lazyt"))), f(i, x))


@pytest.mark.parametrize("start, end", [(0, 1), (-1.1, 7.3), (3.7, -0.01), (1e30, -1e30), (0.1, 0.1)])
def test_evenly_spaced_numbers_are_rounded_once(start, end):
    for steps in (2, 3, 7, 100, 1001, 40_000):
        got = torch.linspace(start, end, steps, device="lazyt").cpu()
        assert torch.equal(got, torch.linspace(start, end, steps))
