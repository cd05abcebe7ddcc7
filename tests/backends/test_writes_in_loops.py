"""Tensors that a loop fills part by part have eager's content, whoever else reads what was there before."""

import pytest
import torch

LENGTH = 6


def filled(x, w):
    y = torch.zeros_like(x)
    h = torch.zeros_like(w)
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] * w + h)
        y[:, t] = h
    return y


def added_to(x, w):
    y = x * 1
    for t in range(x.shape[1]):
        y[:, t] += w
        y[:, :t] *= 0.5
    return y


def read_before_written(x, w):
    y = x * w[:, None]
    before = []
    for t in range(1, x.shape[1]):
        before.append(y[:, t] * 2)
        y[:, t] = y[:, t - 1] + 1
        before.append(y.clone())
    return torch.cat([b.reshape(-1) for b in before] + [y.reshape(-1)])


def second_order(x, w):
    """Without gradients: it writes over what they need."""
    y = x * 1
    for t in range(2, x.shape[1]):
        y[:, t] = y[:, t - 1] * 0.5 + y[:, t - 2] * w
    return y


def both_kept(x, w):
    y = x + w[:, None]
    z = y.clone()
    for t in range(x.shape[1]):
        z[:, t] = w
    return torch.stack([y, z])


def restored(x, w):
    y = x.clone()
    saved = y[:, 2].clone()
    y[:, 2] = w
    z = y.sum(1)
    y[:, 2] = saved
    return y + z[:, None]


def own_place(x, w):
    x[:, 1] = w  # of the caller
    x[:, 3:5] = x[:, 1:3] + w[:, None]
    return x * 2


FUNCTIONS = [filled, added_to, read_before_written, both_kept, restored]


def operands(device, dtype=torch.float32):
    torch.manual_seed(4)
    return [torch.randn(3, LENGTH, 40).to(dtype).to(device), torch.randn(3, 40).to(dtype).to(device)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", [*FUNCTIONS, second_order, own_place])
def test_what_a_loop_writes_is_eagers(function, dtype):
    want_operands, got_operands = operands("cpu", dtype), operands("lazyt", dtype)
    for _ in range(3):  # recorded, compiled, followed
        want, got = function(*want_operands), function(*got_operands)
        torch.testing.assert_close(got.cpu(), want)
    for got, want in zip(got_operands, want_operands, strict=True):
        torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_its_gradients_are_eagers(function):
    want_operands, got_operands = operands("cpu"), operands("lazyt")
    for each in (*want_operands, *got_operands):
        each.requires_grad_()
    for each in (want_operands, got_operands):
        function(*each).square().sum().backward()
    for got, want in zip(got_operands, want_operands, strict=True):
        torch.testing.assert_close(got.grad.cpu(), want.grad)


def test_a_cache_that_is_written_in_place_keeps_its_place():
    cache = torch.zeros(4, 64, 32, device="lazyt")
    view = cache[1]
    for t in range(8):
        cache[:, t] = float(t)
        assert cache.sum().item() == 4 * 32 * t * (t + 1) / 2
    assert torch.equal(view.cpu(), cache.cpu()[1])
