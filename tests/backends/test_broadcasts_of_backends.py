"""Operands that do not lie as the result does: broadcast, slices, turned. Rows about as long as vectors."""

import os

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.usefixtures("no_islands")

LENGTHS = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 49, 63, 64, 65, 100, 127, 129, 255, 257, 300, 511]
if os.environ.get("LAZYT_FAKE_CUDA_LIBRARIES"):  # they compile each kernel for a second
    LENGTHS = [1, 17, 129]
DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.bool,
]
# Of an operand beside one of [6, 11, n]: its shapes (None: n), and what it may be of a larger tensor.
SHAPES = [(6, 11, 1), (6, 1, None), (1, 11, None), (1, 1, None), (11, None), (6, 1, 1), (1, 11, 1)]
PARTS = {
    "a part of each row": lambda t: t[..., 2:-1],
    "every second": lambda t: torch.cat([t, t], -1)[..., 3 : 2 * t.shape[-1] - 3 : 2],
    "turned": lambda t: t[..., 3:].transpose(0, 2).contiguous().transpose(0, 2),
    "other rows": lambda t: torch.cat([t, t])[::2, ..., 3:],
}


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2 if dtype == torch.bool else 50, shape, generator=generator).to(dtype)


def check(f, *operands: Tensor) -> None:
    expected, found = f(*operands), f(*(t.to("lazyt") for t in operands))
    assert found.dtype == expected.dtype
    assert torch.equal(found.cpu(), expected), [(t.shape, t.stride()) for t in operands]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
def test_broadcast_operands(dtype):
    for n in LENGTHS:
        x = values((6, 11, n), dtype, n)
        for shape in SHAPES:
            y = values(tuple(n if s is None else s for s in shape), dtype, 1)
            check(lambda x, y: torch.where(x > y, x, y), x, y)
            check(lambda x, y: (x.int() + y.int()).sum(1), x, y)  # totals have blocks of their own


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("part", PARTS)
def test_operands_that_are_parts(part, dtype):
    for n in LENGTHS:
        x, y = values((6, 11, n), dtype, n), values((6, 11, n + 3), dtype, 2)
        check(lambda x, y: torch.where(x > PARTS[part](y), x, PARTS[part](y)), x, y)
        check(lambda x, y: torch.cat([x, PARTS[part](y)], -1), x, y)


@pytest.mark.parametrize("n", LENGTHS)
def test_what_is_written_over_is_computed_once(n):
    """A row's last elements, where vectors would lie over some that are done."""

    def f(x: Tensor) -> Tensor:
        x = x * 1
        for _ in range(3):
            x[:, 1:].mul_(3).add_(x[:, :1])
        return x

    check(f, values((40, n), torch.float32, n))


@pytest.mark.parametrize("n", [16, 17, 33, 48])
def test_a_row_that_repeats_is_whole_behind_a_short_block(n):
    x, w = values((5, 33, n), torch.float32, 3), values((n,), torch.float32, 4)
    check(lambda x, w: (x * w).sum(1), x, w)
