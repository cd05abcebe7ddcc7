"""Integers are divided exactly: below 2^51 backends may do so in doubles, beyond not."""

import os

import pytest
import torch

EDGE = 1 << 51
DIVISIONS = {
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
}


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """Every pair of numbers beside the edge, small and long ones; then random ones of any length."""
    torch.manual_seed(1)
    chosen = [
        1,
        -1,
        2,
        -2,
        3,
        7,
        -7,
        EDGE - 1,
        1 - EDGE,
        EDGE - 2,
        -EDGE,
        EDGE // 2,
        (1 << 40) + 3,
        94906265,
        -94906267,
    ]
    numbers = torch.tensor(chosen)
    long = torch.randint(1 - EDGE, EDGE, (20000,))
    short = long >> torch.randint(0, 51, (20000,))
    first = torch.cat(
        [numbers.repeat_interleave(len(chosen)), long, short, short.clamp(-(1 << 48), 1 << 48) * 5]
    )
    second = torch.cat(
        [numbers.repeat(len(chosen)), short.roll(1), long.roll(7) >> 20, short.clamp(-(1 << 48), 1 << 48)]
    )
    return first, torch.where(second == 0, 1, second)


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("beyond", [False, True], ids=["below the edge", "beyond it"])
def test_integers_are_divided_exactly(name, dtype, beyond):
    first, second = operands()
    if beyond:
        first = first * 1025 + 511
    elif dtype == torch.int64:
        first = first.clamp(1 - EDGE, EDGE - 1)
    first, second = first.to(dtype), second.to(dtype)
    second = torch.where(second == 0, 3, second)
    divide = DIVISIONS[name]
    assert torch.equal(divide(first.to("lazyt"), second.to("lazyt")).cpu(), divide(first, second))


AS_ON_CUDA = pytest.mark.skipif(
    os.environ.get("LAZYT_BACKEND") == "cuda", reason="as on CUDA, where nobody looks"
)
IN_PLACE = {
    "remainder_": lambda a, b: a.remainder_(b),
    "floor_divide_": lambda a, b: a.floor_divide_(b),
    "div_": lambda a, b: a.div_(b, rounding_mode="trunc"),
}


@AS_ON_CUDA
@pytest.mark.parametrize("name", [*DIVISIONS, *IN_PLACE])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("elements", [3, 5000])
def test_integers_by_zero_are_eagers_error(name, dtype, elements):
    divide = (DIVISIONS | IN_PLACE)[name]
    zeros = torch.ones(elements, dtype=dtype)
    zeros[-2] = 0
    # The number is no part of the program, which 3 made.
    for by in (zeros, 3, 0):
        a, divisor = torch.ones(elements, dtype=dtype), by if isinstance(by, int) else by.to("lazyt")
        lazy = a.to("lazyt")
        if isinstance(by, int) and by:
            assert torch.equal(divide(lazy, divisor).cpu(), divide(a, by))
            continue
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide(a, by)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide(lazy, divisor).cpu()


@AS_ON_CUDA
def test_a_total_of_quotients_by_zero_is_an_error_too():
    a, b = torch.arange(600).view(20, 30).to("lazyt"), torch.ones(20, 30, dtype=torch.int64)
    b[7, 3] = 0
    b = b.to("lazyt")
    for dim in (0, 1):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            (a // b).sum(dim).cpu()
    assert (a // b.clamp(min=1)).sum().item() == 600 * 599 // 2
