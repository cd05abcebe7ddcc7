"""A part is put into a tensor of another dtype: eager converts it, and so does the program, as a plugin is told that what is moved keeps
its dtype (PRG-10)."""

import pytest
import torch

OPERATORS = {
    "slice_scatter": lambda x, part: x.slice_scatter(part[:, :2], 1, 1, 3),
    "select_scatter": lambda x, part: x.select_scatter(part[0], 0, 1),
    "diagonal_scatter": lambda x, part: x.diagonal_scatter(part[0, :3]),
    "as_strided_scatter": lambda x, part: x.as_strided_scatter(part[0, :2], (2,), (3,), 1),
}


@pytest.mark.parametrize("of", [torch.float32, torch.uint8])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_part_of_another_dtype(name, of):
    torch.manual_seed(0)
    x, part = torch.randint(0, 9, (3, 4)).to(of), torch.rand(3, 4, dtype=torch.float64) * 9
    got = OPERATORS[name](x.to("lazyt"), part.to("lazyt")).cpu()
    want = OPERATORS[name](x, part)
    assert got.dtype == want.dtype and torch.equal(got, want)
