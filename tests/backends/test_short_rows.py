"""Operands that begin anew after a few elements (numbers a row, a row for all, parts of rows): values are eager's."""

import pytest
import torch

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
