"""f32 products and convolutions are as exact as multiply-adds in f32, by whatever the CPU has for them;
products of f64 are as exact as eager's, those of integers equal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

pytestmark = [
    pytest.mark.skipif(os.environ.get("LAZYT_BACKEND") != "onednn", reason="of the oneDNN plugin alone"),
    pytest.mark.usefixtures("no_islands"),
]
DEVICE = "lazyt"
CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
HAS_TILES = "amx_bf16" in CPU
# Below, at and beyond what is packed at a time, with ends of tiles.
SIZES = [
    (128, 128, 128),
    (65, 130, 257),
    (300, 33, 513),
    (1030, 100, 96),
    (97, 600, 1040),
    (256, 64, 31),
    (250, 250, 250),
]


def matrix(rows: int, columns: int, turned: bool = False, batch: tuple[int, ...] = ()) -> torch.Tensor:
    t = torch.randn(*batch, columns, rows) if turned else torch.randn(*batch, rows, columns)
    return t.mT if turned else t


def check(f, *operands: torch.Tensor) -> None:
    """f on the device errs by what f32 may round, of the magnitudes of what it adds up."""
    exact = f(*(t.double() for t in operands))
    magnitude = f(*(t.double().abs() for t in operands))
    got = f(*(t.to(DEVICE) for t in operands)).cpu().double()
    eager = f(*operands).double()
    error, eagers = (((x - exact).abs() / magnitude).max().item() for x in (got, eager))
    assert error <= max(2.0**-21, 1.5 * eagers)


@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_a_product_is_as_exact_as_f32_allows(size, turned):
    torch.manual_seed(0)
    m, n, k = size
    check(torch.mm, matrix(m, k, turned[0]), matrix(k, n, turned[1]))


@pytest.mark.parametrize("batch", [2, 5])
def test_products_of_a_batch(batch):
    torch.manual_seed(0)
    check(torch.bmm, matrix(70, 200, True, (batch,)), matrix(200, 130, False, (batch,)))
    check(torch.matmul, matrix(70, 200, False, (batch,)), matrix(200, 130, True))
    # Behind the ends of a matrix lies the next, not zeros.
    check(torch.bmm, matrix(250, 250, False, (batch,)), matrix(250, 256, False, (batch,)))
    check(torch.bmm, matrix(256, 250, True, (batch,)), matrix(250, 250, True, (batch,)))


@pytest.mark.parametrize(
    "addend",
    [(130,), (1,), (300, 1), (300, 130), "turned"],
    ids=["a row", "a number", "a column", "a matrix", "a turned matrix"],
)
def test_what_is_added(addend):
    torch.manual_seed(0)
    c = matrix(300, 130, True) if addend == "turned" else torch.randn(*addend)
    a, b = matrix(300, 513), matrix(513, 130)
    check(torch.addmm, c, a, b)
    check(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), c, a, b)


def test_numbers_that_change_from_run_to_run():
    torch.manual_seed(0)
    c, a, b = torch.randn(130), matrix(300, 200), matrix(200, 130)
    for alpha in (1.0, 0.5, -3.0):
        check(lambda c, a, b, alpha=alpha: torch.addmm(c, a, b, beta=alpha * 2, alpha=alpha), c.abs(), a, b)


def test_operands_of_several_magnitudes():
    torch.manual_seed(0)
    a, b = matrix(256, 256), matrix(256, 256)
    for exponent in (-60, -20, 20, 60):
        check(torch.mm, a * 2.0**exponent, b)
        check(torch.mm, a * 2.0**exponent, b * 2.0**-exponent)
    check(torch.mm, a * torch.logspace(-20, 20, 256), b)
    check(torch.mm, a * torch.logspace(-20, 20, 256).unsqueeze(1), b)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 3e38, -3.4e38])
def test_what_is_not_finite_or_overflows_is_eagers(value):
    torch.manual_seed(0)
    a, b = matrix(256, 256), matrix(256, 256)
    for where in (a, b):
        before = where[3, 5].item()
        where[3, 5] = value
        want, got = a @ b, (a.to(DEVICE) @ b.to(DEVICE)).cpu()
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
        assert torch.equal(got.isinf(), want.isinf()) and torch.equal(got.isnan(), want.isnan())
        where[3, 5] = before
    # Where products of both signs overflow, infinity or NaN is a matter of the order of the sum.
    a *= 1e25
    b *= 1e25
    ones = torch.ones(256)
    want = torch.addmm(ones, a, b)
    got = torch.addmm(ones.to(DEVICE), a.to(DEVICE), b.to(DEVICE)).cpu()
    assert torch.equal(got.isfinite(), want.isfinite())


def test_the_smallest_numbers_keep_their_digits():
    torch.manual_seed(0)
    a, b = matrix(256, 256), matrix(256, 256)
    for x, y in ((1e-36, 1.0), (1e-20, 1e-16), (1e-30, 1e5)):
        check(torch.mm, a * x, b * y)
    torch.testing.assert_close((a.to(DEVICE) * 1e-44 @ b.to(DEVICE)).cpu(), a * 1e-44 @ b, rtol=0, atol=1e-42)


def test_zeros_give_zeros():
    zero, some = torch.zeros(256, 256), torch.randn(256, 256)
    assert torch.equal((zero.to(DEVICE) @ some.to(DEVICE)).cpu(), zero)
    assert torch.equal((some.to(DEVICE) @ zero.to(DEVICE)).cpu(), zero)


def test_a_product_after_one_that_tiles_could_not_compute():
    torch.manual_seed(0)
    a, b = matrix(256, 256), matrix(256, 256)
    bad = a.clone()
    bad[0, 0] = float("inf")
    for operand in (a, bad, a, bad):
        got = (operand.to(DEVICE) @ b.to(DEVICE)).cpu()
        torch.testing.assert_close(got, operand @ b, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_threads_change_no_bit():
    torch.manual_seed(0)
    before = torch.get_num_threads()
    operands = [
        (matrix(1030, 520), matrix(520, 300)),
        (matrix(70, 90, batch=(3,)), matrix(90, 130, batch=(3,))),
    ]
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append([(a.to(DEVICE) @ b.to(DEVICE)).cpu() for a, b in operands])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], other, strict=True))


def draw(dtype: torch.dtype, rows: int, columns: int, turned: bool = False, batch: tuple[int, ...] = ()):
    if dtype.is_floating_point:
        return matrix(rows, columns, turned, batch).to(dtype)
    t = torch.randint(0, 100, (*batch, columns, rows) if turned else (*batch, rows, columns), dtype=dtype)
    return t.mT if turned else t


def check_own(f, *operands: torch.Tensor) -> None:
    """Integers are eager's; what f64 adds up in another order errs by as many roundings at most."""
    got, want = f(*(t.to(DEVICE) for t in operands)).cpu(), f(*operands)
    assert got.dtype == want.dtype and got.shape == want.shape
    if not want.dtype.is_floating_point:
        assert torch.equal(got, want)
        return
    magnitude = f(*(t.abs() for t in operands))
    assert ((got - want).abs() <= 2.0**-47 * magnitude).all()


OWN = [torch.float64, torch.int64, torch.int32, torch.int16, torch.uint8]
# Below, at and beyond 8 rows and 64 columns, where rows are packed; 128 rows, 256 of depth, ends of vectors.
OWN_SIZES = [(3, 5, 7), (7, 64, 40), (8, 64, 256), (9, 63, 40), (135, 81, 257), (300, 65, 513), (20, 200, 1)]


@pytest.mark.parametrize("dtype", OWN, ids=str)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_products_of_doubles_and_integers(dtype, turned):
    torch.manual_seed(0)
    for m, n, k in OWN_SIZES:
        check_own(torch.mm, draw(dtype, m, k, turned[0]), draw(dtype, k, n, turned[1]))
        check_own(torch.bmm, draw(dtype, m, k, turned[0], (3,)), draw(dtype, k, n, turned[1], (3,)))


@pytest.mark.parametrize("dtype", OWN[:2], ids=str)
def test_what_is_added_to_products_of_doubles_and_integers(dtype):
    torch.manual_seed(0)
    a, b = draw(dtype, 150, 300), draw(dtype, 300, 70)
    for addend in (draw(dtype, 1, 70), draw(dtype, 150, 1), draw(dtype, 150, 70), draw(dtype, 150, 70, True)):
        check_own(torch.addmm, addend, a, b)
        check_own(lambda c, a, b: torch.addmm(c, a, b, beta=2, alpha=3), addend.abs(), a.abs(), b.abs())


@pytest.mark.parametrize("dtype", OWN[:2], ids=str)
def test_operands_whose_rows_or_columns_share_elements_or_lie_apart(dtype):
    torch.manual_seed(0)
    wide = draw(dtype, 200, 300)
    layouts = [
        lambda t: t[:, :1].expand(200, 100),
        lambda t: t[:1, :100].expand(200, 100),
        lambda t: t[:, ::3],
        lambda t: t[::2, ::3].mT.contiguous().mT[:100].repeat(2, 1),
        lambda t: t.as_strided((200, 100), (1, 2)),
        lambda t: t.as_strided((200, 100), (1, 300)),
        lambda t: t.as_strided((200, 100), (100, 1)),
    ]
    for left in layouts:
        for right in layouts:
            check_own(torch.mm, left(wide), right(wide).mT)
            check_own(torch.mm, left(wide).mT, right(wide))


@pytest.mark.parametrize("dtype", OWN[:2], ids=str)
def test_threads_change_no_bit_of_products_of_doubles_and_integers(dtype):
    torch.manual_seed(0)
    operands = [
        (draw(dtype, 300, 270), draw(dtype, 270, 500)),
        (draw(dtype, 70, 90, True, (3,)), draw(dtype, 90, 130, True, (3,))),
    ]
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append([(a.to(DEVICE) @ b.to(DEVICE)).cpu() for a, b in operands])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(results[0], other, strict=True))


def test_products_of_one_program_that_are_alike_keep_their_own_operands():
    """Those that differ in operands alone share a primitive; numbers, additions, layouts set them apart."""
    torch.manual_seed(0)
    a, b, c = (matrix(90, 90) for _ in range(3))
    row = torch.randn(90)

    def f(a, b, c, row):
        results = [a]
        for other in (b, c, b):  # a loop unrolled
            results.append(results[-1] @ other * 0.1)
        results += [a @ b.t(), a @ c.t(), a.t() @ b]
        results += [torch.addmm(row, a, b), torch.addmm(row, a, c), torch.addmm(c, a, b)]
        results += [
            torch.addmm(c, a, b, beta=0.5),
            torch.addmm(c, a, b, alpha=2),
            torch.addmm(c, a, b, alpha=3),
        ]
        return torch.cat(results)

    before = torch.get_num_threads()
    want, on_device = f(a, b, c, row), [t.to(DEVICE) for t in (a, b, c, row)]
    try:
        for threads in (1, 2, 2, 1):
            torch.set_num_threads(threads)
            torch.testing.assert_close(f(*on_device).cpu(), want, rtol=1e-4, atol=1e-4)
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not HAS_TILES, reason="the CPU has no tiles")
@pytest.mark.parametrize("isa", ["", "avx512"])
def test_tiles_are_used_unless_older_instructions_are_asked_for(isa):
    program = "import torch, lazyt; a = torch.randn(256, 256).to('lazyt'); print((a @ a).sum().item())"
    environment = {**os.environ, "LAZYT_ONEDNN_ISA": isa, "LAZYT_ONEDNN_PROFILE": "1"}
    out = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert ("amx_bf16" in out.stderr) == (isa == ""), out.stderr


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_scaled_and_added_of_rows_apart(dtype):
    torch.manual_seed(0)
    c, x, y = (torch.randn(s).to(dtype) for s in ((2, 33, 17), (2, 40, 50), (2, 50, 20)))

    def all_of(c, x, y):
        x, y = x[:, 3:36, 2:42], y[:, 5:45, 1:18]
        return (
            torch.addmm(c[0], x[0], y[0], alpha=0.5),
            torch.addmm(c[0], x[0], y[0], alpha=0.5, beta=2),
            torch.addbmm(c[0], x[:1], y[:1], alpha=0.5),
            torch.baddbmm(c, x, y, alpha=-2),
        )

    exact = all_of(*(t.double() for t in (c, x, y)))
    for got, want in zip(all_of(*(t.to(DEVICE) for t in (c, x, y))), exact, strict=True):
        torch.testing.assert_close(
            got.cpu(), want.to(dtype), rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-4
        )


CONVOLUTIONS = {
    "3x3": ((4, 64, 14, 13), (96, 64, 3, 3), {"padding": 1}),
    "3x3 strided": ((4, 64, 15, 16), (96, 64, 3, 3), {"padding": 1, "stride": 2}),
    "dilated": ((2, 64, 20, 20), (64, 64, 3, 3), {"padding": (2, 1), "dilation": 2}),
    "wide padding": ((2, 64, 9, 9), (64, 64, 3, 2), {"padding": 3}),
    "1x1": ((4, 64, 14, 14), (128, 64, 1, 1), {}),
    "1-d": ((4, 64, 200), (96, 64, 5), {"padding": 2}),
    "1-d strided": ((4, 64, 400), (96, 64, 5), {"padding": 4, "stride": 3}),
    "1-d dilated": ((2, 96, 300), (80, 96, 4), {"padding": 7, "dilation": 3}),
    "1-d, a tap that meets nothing": ((2, 64, 3), (64, 64, 2), {"padding": 500, "stride": 7, "dilation": 3}),
    "3-d": ((2, 64, 5, 6, 7), (64, 64, 2, 3, 3), {"padding": 1}),
    "few channels": ((4, 3, 20, 20), (64, 3, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("last", [False, True], ids=["", "channels last"])
def test_a_convolution_and_its_gradients_are_as_exact_as_f32_allows(name, last):
    torch.manual_seed(0)
    size, weights, options = CONVOLUTIONS[name]
    convolve = (None, torch.conv1d, torch.conv2d, torch.conv3d)[len(size) - 2]
    x, w, bias = torch.randn(size), torch.randn(weights), torch.randn(weights[0])
    if last and x.dim() == 4:
        x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
    seed = torch.randn(convolve(x, w, bias, **options).shape)

    def all_of(x, w, bias, seed):
        """The result and its gradients; each is a sum of products."""
        operands = [t.detach().requires_grad_() for t in (x, w, bias)]
        y = convolve(*operands, **options)
        return [y, *torch.autograd.grad(y, operands, seed)]

    exact = all_of(*(t.double() for t in (x, w, bias, seed)))
    magnitude = all_of(*(t.double().abs() for t in (x, w, bias, seed)))
    eager = all_of(x, w, bias, seed)
    for got, e, m, y in zip(
        all_of(*(t.to(DEVICE) for t in (x, w, bias, seed))), exact, magnitude, eager, strict=True
    ):
        assert got.shape == e.shape
        some = m.clamp(min=1e-300)  # what no product joins is 0
        error, eagers = (((t.detach().cpu().double() - e).abs() / some).max().item() for t in (got, y))
        assert error <= max(2.0**-21, 1.5 * eagers)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 3e38])
def test_a_convolution_of_what_is_not_finite_is_eagers(value):
    torch.manual_seed(0)
    x, w = torch.randn(4, 64, 14, 14), torch.randn(64, 64, 3, 3)
    x[1, 2, 3, 4] = value
    want = torch.conv2d(x, w, padding=1)
    got = torch.conv2d(x.to(DEVICE), w.to(DEVICE), padding=1).cpu()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3, equal_nan=True)


def test_a_transposed_convolution():
    torch.manual_seed(0)
    x, w = torch.randn(4, 96, 14, 14), torch.randn(96, 64, 3, 3)
    for stride in (1, 2):
        want = torch.conv_transpose2d(x, w, torch.ones(64), stride=stride, padding=1)
        got = torch.conv_transpose2d(
            x.to(DEVICE), w.to(DEVICE), torch.ones(64).to(DEVICE), stride=stride, padding=1
        )
        torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 13, 16, 17])
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
def test_a_product_of_few_rows_with_any_addend(rows, turned):
    torch.manual_seed(0)
    for columns, depth in ((5, 7), (64, 33), (300, 128), (601, 700)):  # the last: a matrix of 1.6 MB
        x, bias, whole = torch.randn(rows, depth), torch.randn(columns), torch.randn(rows, columns)
        w = torch.randn(columns, depth) if turned else torch.randn(depth, columns)

        def f(x, w, bias, whole):
            matrix = w.t() if turned else w
            by_columns = x.t().contiguous().t() @ matrix
            return torch.cat(
                [
                    x @ matrix,
                    by_columns,
                    *(torch.addmm(c, x, matrix) for c in (bias, whole, whole.t().contiguous().t())),
                ]
            )

        got = f(*(t.to(DEVICE) for t in (x, w, bias, whole))).cpu()
        torch.testing.assert_close(got, f(x, w, bias, whole), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(
    HAS_TILES or "avx512f" not in CPU or "LAZYT_ONEDNN_ISA" in os.environ,
    reason="tiles and narrower registers add up in other orders",
)
@pytest.mark.parametrize("columns, depth", [(6, 256), (70, 300), (301, 1040)])
def test_a_row_of_a_few_is_multiplied_as_it_is_alone(columns, depth):
    torch.manual_seed(0)
    x, w = torch.randn(16, depth).to(DEVICE), torch.randn(columns, depth).to(DEVICE)
    alone = torch.cat([F.linear(x[i : i + 1], w) for i in range(16)])
    for rows in range(2, 17):
        assert torch.equal(F.linear(x[:rows], w).cpu(), alone[:rows].cpu())
