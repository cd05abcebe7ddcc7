"""Tensors whose conjugation or sign is only noted, in operators that get them as they are: copies and products."""

import torch


def z(device, *shape):
    return torch.complex(torch.arange(6.0), torch.arange(6.0) - 2).reshape(*shape).to(device)


def test_copies_to_and_from_the_host(as_eager):
    as_eager(lambda d: (z(d, 6).conj(), z(d, 6).conj().imag, torch.fft.ifft(torch.arange(6.0).to(d))))


def test_products(as_eager):
    as_eager(lambda d: (z(d, 2, 3).conj() @ z(d, 3, 2), torch.vdot(z(d, 6), z(d, 6).conj()), z(d, 6).conj().clone()))


def test_writes_through_a_conjugate(as_eager):
    def program(device):
        x, y, w = z(device, 6), z(device, 6), z(device, 2, 3)
        x.conj().copy_(y)
        y.conj().imag.fill_(3)
        w.conj().addmm_(z(device, 2, 3)[:, :2], z(device, 2, 3))
        return x, y, w

    as_eager(program)


def test_a_host_number(as_eager):
    as_eager(lambda d: z(d, 6) * torch.tensor(1 + 2j).conj())
