"""Totals of slices: rows and columns that lie in memory, but apart."""

import pytest
import torch

SLICES = {
    "inner": lambda x: x[..., 1:-1, 2:-1],
    "columns": lambda x: x[..., 2:-1],
    "every second row": lambda x: x[..., ::2, :],
    "short rows": lambda x: x[..., :50],
    "turned": lambda x: x.transpose(-1, -2)[..., 1:, :],
    "of both ends": lambda x: x[1:, ..., :-1],
}
TOTALS = {
    "sum": torch.sum,
    "amax": torch.amax,
    "amin": torch.amin,
    "any": torch.any,
    "norm": lambda x, dim: torch.linalg.vector_norm(x.float(), dim=dim),
}
SHAPES = [(9, 300), (70, 700), (3, 20, 200), (2, 3, 7, 260), (5, 70000)]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.bool], ids=str
)
@pytest.mark.parametrize("name", SLICES)
def test_as_eager(name, dtype):
    torch.manual_seed(len(name))
    for shape in SHAPES:
        # Quarters: sums of few are exact in any order.
        x = (
            (torch.randint(-4, 5, shape) / 4).to(dtype)
            if dtype.is_floating_point
            else torch.randint(0, 2, shape).to(dtype)
        )
        part, lazy = SLICES[name](x), SLICES[name](x.to("lazyt"))
        for total in TOTALS.values():
            for dim in (-1, -2, 0):
                torch.testing.assert_close(total(lazy, dim=dim).cpu(), total(part, dim=dim))
