"""Sizes whose product 64 bits do not hold wrapped around, or failed while a lock was held that the storage's end waited for."""

import pytest
import torch

CASES = {
    "elements": lambda d: torch.empty((2**33, 2**31 + 1), device=d),
    "bytes": lambda d: torch.empty(2**61, dtype=torch.float64, device=d),
    "bytes, by one": lambda d: torch.empty(2**61 + 1, dtype=torch.float64, device=d),
    "four dims": lambda d: torch.empty((2**20, 2**20, 2**20, 2**20), device=d),
    "all elements one": lambda d: torch.empty_strided((2**40, 2**40), (0, 0), device=d),
    "resized": lambda d: torch.empty(4, dtype=torch.float64, device=d).resize_(2**61 + 1),
    "resized, elements": lambda d: torch.empty(4, device=d).resize_(2**33, 2**31 + 1),
    "expanded": lambda d: torch.empty(1, 1, device=d).expand(2**40, 2**40),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_eagers_error(case):
    said = []
    for device in ("cpu", "lazyt"):
        with pytest.raises(RuntimeError) as error:
            CASES[case](device)
        said.append(str(error.value).split("\n")[0].split(" with sizes")[0])
    assert said[0] == said[1]


def test_the_device_goes_on():
    for case in CASES.values():
        with pytest.raises(RuntimeError):
            case("lazyt")
    x = torch.empty(4, device="lazyt")
    with pytest.raises(RuntimeError):
        x.resize_(2**62)
    assert x.shape == (4,) and (torch.ones(3, device="lazyt") + 1).tolist() == [2.0] * 3


@pytest.mark.parametrize("sizes", [(2**40, 2**40, 0), (0, 2**40, 2**40)])
def test_without_elements_it_is_made_or_refused(sizes):
    try:
        assert torch.empty(sizes, device="lazyt").shape == sizes
    except RuntimeError as error:
        assert "overflow" in str(error)
