"""Calls that eager refuses, the first time and every time."""

import torch


def test_sign_and_clamp_of_complex_numbers(as_eager):
    as_eager(lambda d: torch.ones(3, dtype=torch.complex64, device=d).sign(), raises=True)
    as_eager(lambda d: torch.ones(3, dtype=torch.complex64, device=d).clamp(0, 1), raises=True)


def test_subtraction_of_booleans(as_eager):
    as_eager(lambda d: torch.ones(3, dtype=torch.bool, device=d) - torch.tensor(False), raises=True)


def test_argmax_of_booleans(as_eager):
    as_eager(lambda d: torch.ones(3, dtype=torch.bool, device=d).argmax(), raises=True)


def test_complex_into_real(as_eager):
    as_eager(lambda d: torch.ones(2, device=d).mul_(torch.ones(2, dtype=torch.complex64, device=d)), raises=True)


def test_index_put_of_another_dtype(as_eager):
    def program(device):
        x = torch.ones(2, 3, device=device)
        x[:, torch.tensor([0, 1]).to(device)] = torch.tensor(0.2, dtype=torch.float64)

    as_eager(program, raises=True)


def test_indexed_write_from_itself(as_eager):
    def program(device):
        x = torch.ones(1, 1, 1, device=device)
        x[torch.zeros(1, 3, dtype=torch.long).to(device)] = x

    as_eager(program, raises=True)


def test_a_shape_known_without_overlap_is_none_with_it(as_eager):
    def program(device):
        x, y = torch.ones(4, device=device), torch.ones(4, device=device)
        x[:1].eq_(y[:1])
        x[:1].eq_(x)

    as_eager(program, raises=True)
