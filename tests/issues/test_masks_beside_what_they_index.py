"""x[mask] = values: how many elements a mask has set was guessed when the call was recorded. Values that cannot go into a tensor
without elements were taken, and some calls that eager takes were refused: an index beside a mask, a mask of bytes."""

import pytest
import torch

MASKS = {"one dim": (1,), "all dims": (1, 0, 2), "no dims": ()}


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("shape", [(5, 3, 2), (3,), (1, 5, 2)])
@pytest.mark.parametrize("mask", MASKS)
def test_values_that_do_not_fit_into_a_tensor_without_elements(as_eager, mask, shape, accumulate):
    def program(device):
        x = torch.zeros(1, 0, 2, device=device)
        where = torch.zeros(MASKS[mask], dtype=torch.bool, device=device)
        return x.index_put_((where,), torch.zeros(shape, device=device), accumulate)

    as_eager(program, raises=RuntimeError)


def test_two_dims_where_one_is_indexed(as_eager):
    def program(device):
        x = torch.zeros(1, 0, 2, device=device)
        x[torch.zeros(1, 0, 2, dtype=torch.bool, device=device)] = torch.zeros(0, 2, device=device)

    as_eager(program, raises=RuntimeError)


@pytest.mark.parametrize("value", [(0,), (1,), ()])
def test_values_that_do(as_eager, value):
    def program(device):
        x = torch.zeros(1, 0, 2, device=device)
        x[torch.zeros(1, 0, 2, dtype=torch.bool, device=device)] = torch.ones(value, device=device)
        return x, x._version

    as_eager(program)


@pytest.mark.parametrize("at", [0, 5])
def test_an_index_that_nothing_is_written_by(as_eager, at):
    def program(device):
        x = torch.zeros(2, 0, device=device)
        return x.index_reduce_(0, torch.tensor([0, at], device=device), torch.zeros(2, 0, device=device), "amax")

    as_eager(program, raises=IndexError if at else None)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("values", [(2,), (1,), ()])
def test_a_mask_with_some_elements_beside_an_index(as_eager, values, accumulate):
    def program(device):
        x = torch.zeros(3, 4, device=device)
        where = torch.tensor([True, False, True], device=device), torch.tensor([1, 2], device=device)
        return x.index_put_(where, torch.ones(values, device=device), accumulate=accumulate)

    as_eager(program)


def test_a_mask_with_another_number_of_elements_than_an_index():
    for device in ("cpu", "lazyt"):
        x = torch.zeros(3, 4, device=device)
        with pytest.raises(IndexError, match=r"could not be broadcast together with shapes \[2\], \[3\]"):
            x[torch.tensor([True, False, True], device=device), torch.tensor([1, 2, 3], device=device)] = 1
            x.cpu()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("values", [0, 1, 2])
def test_a_mask_of_bytes(as_eager, values):
    def program(device):
        x = torch.zeros(3, device=device)
        mask = torch.tensor([i < values for i in range(3)], dtype=torch.uint8, device=device)
        x[mask] = torch.arange(1.0, 1 + values, device=device)
        return x

    as_eager(program, raises=RuntimeError if values == 1 else None)


@pytest.mark.parametrize("values", [(), (1,), (2,)])
def test_a_mask_that_is_what_it_writes(as_eager, values):
    def program(device):
        x = torch.tensor([True, False, True], device=device)
        x[x] = torch.zeros(values, dtype=torch.bool, device=device)
        return x

    as_eager(program, raises=RuntimeError if values == (2,) else None)


@pytest.mark.parametrize("rows", [2, 3])
def test_a_tensor_without_elements_written_into_itself(as_eager, rows):
    def program(device):
        x = torch.ones(3, 1, 2, 0, dtype=torch.bool, device=device)
        x[torch.arange(3, device=device) < rows] = x

    as_eager(program, raises=RuntimeError)
