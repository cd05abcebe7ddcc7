"""Operands that begin anew after a few elements (numbers a row, a row for all, parts of rows): values are eager's."""

import os

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("no_islands")

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int16, torch.uint8)
# More elements than a block has, in rows that no power of two divides, and in ones longer than a block.
SHAPES = [(700, 1), (700, 2), (333, 3), (97, 5, 3), (61, 17), (23, 3, 31), (9, 129), (3, 700)]


def operand(shape, dtype):
    torch.manual_seed(sum(shape))
    return torch.randint(0, 50, shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_and_numbers_beside_them(shape, dtype):
    x, row, number = operand(shape, dtype), operand(shape[-1:], dtype), operand((*shape[:-1], 1), dtype)
    first = operand((shape[0], *(1 for _ in shape[1:])), dtype)

    def call(x, row, number, first):
        return (
            x + row,
            x * number + 1,
            torch.where(x > row, number, x),
            (x + first) * row + number,
            number + row,
            x.flip(0) + row,
        )

    for want, got in zip(
        call(x, row, number, first), call(*(t.to("lazyt") for t in (x, row, number, first))), strict=True
    ):
        torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parts_of_rows(shape, dtype):
    x = operand(shape, dtype)

    def call(x):
        parts = [
            x[..., : max(1, shape[-1] // 2)] + 1,
            x[..., ::2] + 1,
            x[1::3] + x[:1],
            x.transpose(0, -1) + 1,
        ]
        return [*parts, x[..., 1:] + x[..., :-1]] if shape[-1] > 1 else parts

    for want, got in zip(call(x), call(x.to("lazyt")), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=lambda d: str(d)[6:])
def test_places_of_extremes(dtype):
    for n in (1, 2, 3, 5, 6, 7, 9):
        x = operand((300, n), dtype) // 8  # some are equal
        if dtype.is_floating_point:
            x.view(-1)[::17] = float("nan")

        def call(x):
            return *x.max(1), *x.min(1), x.argmax(1), x.argmin(1)

        for want, got in zip(call(x), call(x.to("lazyt")), strict=True):
            torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0, equal_nan=True)


def short_rows(n, dtype):
    torch.manual_seed(n)
    x = torch.randn(53, n)  # 53: no whole number of vectors
    x[3] = -torch.inf
    x[7, n // 2] = torch.inf
    x[11, 0] = torch.nan
    x[20, n - 1] = -torch.inf
    x[30] = 1e4
    return x.to(dtype), torch.randn(53, n).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("n", [1, 2, 4, 5, 6, 9, 12, 16, 17, 31, 33, 63, 64, 65, 255, 257])
def test_softmax_and_its_kin_of_short_rows(n, dtype):
    if os.environ.get("LAZYT_BACKEND") == "cuda" and (n not in (1, 5, 33) or dtype != torch.float32):
        pytest.skip("a kernel for each: some are enough")
    x, g = short_rows(n, dtype)
    aten = torch.ops.aten

    def call(x, g):
        y, logs = torch.softmax(x, 1), torch.log_softmax(x, 1)
        return (
            y,
            logs,
            aten._softmax_backward_data(g, y, 1, dtype),
            aten._log_softmax_backward_data(g, logs, 1, dtype),
            torch.softmax(x.view(53, 1, n), 1),  # of one element
            torch.softmax(x[1:, : n // 2 + 1], 1),  # rows that lie apart
            torch.softmax(x.t(), 0),
            torch.logsumexp(x, 1),
            torch.logsumexp(x, 1, keepdim=True) + x,
        )

    tolerance = {torch.float32: 4e-6, torch.float64: 1e-14, torch.bfloat16: 2e-2}[dtype]
    for want, got in zip(call(x, g), call(x.to("lazyt"), g.to("lazyt")), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_a_row_is_the_same_in_whatever_company():
    for n in (1, 3, 5, 12, 17, 40):
        x = torch.randn(50, n)
        whole = torch.softmax(x.to("lazyt"), 1).cpu()
        for rows in (1, 15, 16, 17, 49):
            assert torch.equal(torch.softmax(x[:rows].to("lazyt"), 1).cpu(), whole[:rows])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("n", [1, 2, 4, 7, 12, 16, 33, 64])
def test_norms_of_short_rows(n, dtype):
    if os.environ.get("LAZYT_BACKEND") == "cuda" and (n not in (1, 7, 33) or dtype != torch.float32):
        pytest.skip("a kernel for each: some are enough")
    torch.manual_seed(n)
    x, w, b = (torch.randn(*shape, dtype=torch.float64) for shape in ((53, n), (n,), (n,)))
    x[20] += 3000  # far from zero
    x[30] = 5

    def call(x, w, b):
        y, mean, rstd = torch.native_layer_norm(x, [n], w, b, 1e-5)
        return y, mean, rstd, F.layer_norm(x, [n]), F.rms_norm(x, [n], w, eps=1e-5)

    x, w, b = x.to(dtype), w.to(dtype), b.to(dtype)
    exact = [t.double() for t in call(x.double(), w.double(), b.double())]
    eager = [t.double() for t in call(x, w, b)]
    got = [t.cpu().double() for t in call(*(t.to("lazyt") for t in (x, w, b)))]
    for want, e, g in zip(exact, eager, got, strict=True):
        # No further off than eager, but for roundings of what is summed, a row at a time.
        off, allowed = (g - want).abs().amax(-1), (e - want).abs().amax(-1)
        step = torch.finfo(dtype).eps * (1 + want.abs().amax(-1) + x.double().abs().amax(-1))
        assert bool((off <= 2 * allowed + 16 * step).all()), (off - 2 * allowed).max()


def test_a_row_of_equal_elements_has_no_variance():
    """Without an epsilon nothing hides a variance that rounding has made negative."""
    x = torch.tensor([0.1, 1 / 3, 1e-3, 77.7])[:, None].expand(4, 7).contiguous()
    rstd = torch.native_layer_norm(x.to("lazyt"), [7], None, None, 0.0)[2].cpu()
    assert not bool(rstd.isnan().any()), rstd


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("n", [1, 2, 4, 7, 12, 16, 33, 64, 65, 255, 257])
def test_gradients_of_norms_of_short_rows(n, dtype):
    if os.environ.get("LAZYT_BACKEND") == "cuda" and (n not in (1, 7, 33) or dtype != torch.float32):
        pytest.skip("a kernel for each: some are enough")
    torch.manual_seed(n)
    x, g, w, b = (torch.randn(*shape, dtype=torch.float64).to(dtype) for shape in ((533, n), (533, n), (n,), (n,)))
    x[20] += 300
    x[30] = 5

    def call(x, g, w, b):
        _, mean, rstd = torch.native_layer_norm(x, [n], w, b, 1e-5)
        back = torch.ops.aten.native_layer_norm_backward
        operand, weight = x.detach().requires_grad_(), w.detach().requires_grad_()
        F.rms_norm(operand, [n], weight, eps=1e-5).backward(g)
        return (
            *back(g, x, [n], mean, rstd, w, b, [True, True, True]),
            back(g, x, [n], mean, rstd, None, None, [True, False, False])[0],
            *back(g, x, [n], mean, rstd, w, b, [False, True, True])[1:],
            operand.grad,
            weight.grad,
        )

    exact = call(*(t.double() for t in (x, g, w, b)))
    eager, got = call(x, g, w, b), call(*(t.to("lazyt") for t in (x, g, w, b)))
    # What rounding x and its mean makes of a row, by its gradient's factors; of a weight it is that of all rows.
    rstd = torch.native_layer_norm(x.double(), [n], None, None, 1e-5)[2][:, 0]
    of_row = g.double().abs().amax(-1) * (1 + x.double().abs().amax(-1) * rstd)
    for i, (want, e, mine) in enumerate(zip(exact, eager, got, strict=True)):
        off, allowed = (mine.cpu().double() - want).abs(), (e.double() - want).abs()
        step = torch.finfo(dtype).eps * (of_row * rstd * (1 + w.double().abs().max()) if want.dim() > 1 else of_row.sum())
        if want.dim() > 1:
            off, allowed = off.amax(-1), allowed.amax(-1)
        assert bool((off <= 2 * allowed + 2 * step).all()), (i, ((off - 2 * allowed) / step).max())
