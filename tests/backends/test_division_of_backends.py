"""Integers are divided exactly: below 2^51 backends may do so in doubles, beyond not."""

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
