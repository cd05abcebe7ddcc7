"""Chains over more than lies in a cache, whose last operands a kernel reads late: onednn asks for them ahead,
up to the end of each tensor and past it."""

import lazyt  # noqa: F401
import pytest
import torch

DEVICE = "lazyt"
N = 700_001  # no multiple of a tile

pytestmark = pytest.mark.usefixtures("no_islands")

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.bool]


def drawn(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randint(-3, 4, (N,)).to(dtype) for _ in range(4)]


def chained(a, b, c, d):
    """c and d are read by the last of the operators."""
    x = torch.where((a == 1) | (a == 2), b, a)
    x = torch.where((x == 0) & (a != 3), a, x)
    return torch.where(x == 2, c, d)


def same(f, *operands):
    want = f(*operands)
    got = f(*(t.to(DEVICE) for t in operands))
    assert got.dtype == want.dtype
    assert torch.equal(got.cpu(), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_operands_of_the_last_operators(dtype):
    same(chained, *drawn(dtype))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.bfloat16], ids=str)
def test_operands_of_other_dtypes(dtype):
    a, b, c, _ = drawn(torch.float32)
    late = drawn(dtype)[3]
    same(lambda a, b, c, d: ((a * b - c).abs() * 0.5 + a).relu() * d.float(), a, b, c, late)


def test_rows_that_repeat_and_parts_of_tensors():
    a, b, c, d = (t[: N - N % 7].view(7, -1) for t in drawn(torch.float32))
    f = lambda a, b, c, d: ((a * b - c).abs() * 0.5 + a).relu() * d  # noqa: E731
    same(f, a, b, c, d[3])
    same(f, a, b, c, d[:, 5:6])
    same(f, a[:, 1:], b[:, 1:], c[:, 1:], d[:, 1:])
