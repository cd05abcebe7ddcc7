"""Gradients of slices of a tensor are added up as eager adds them, to the sign of a zero."""

import pytest
import torch

LENGTH = 7


def gradients(function, *shapes, dtype=torch.float32, device):
    torch.manual_seed(3)
    leaves = [torch.randn(shape).to(dtype).to(device).requires_grad_() for shape in shapes]
    function(*leaves).backward()
    return [leaf.grad.cpu() for leaf in leaves]


def same_bits(a, b):
    return torch.equal(a, b) and torch.equal(torch.signbit(a), torch.signbit(b))


def recurrent(x, w):
    h = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        h = torch.relu(x[:, t] * w + h)
    return h.sum()


def neighbours(x):
    """Each element is met twice."""
    return sum((x[:, t] * x[:, t - 1] * (t + 1)).sum() for t in range(1, x.shape[1]))


def halves(x):
    """As rotary embeddings turn them."""
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return (x * x + torch.cat((-second, first), -1) * 0.5).relu().sum()


def with_gaps(x):
    return (x[1] * -0.0).sum() + (x[4] * 3).sum() + (x * -0.0).sum()


def overlapping(x):
    return (x[0:4] * x[2:6]).sum() + (x[1:5] * x[1:5] * x[3]).sum()


def written(x):
    y = torch.zeros_like(x)
    for t in range(x.shape[0]):
        y[t] = x[t] * x[t - 1]
    return (y * y).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("function", [neighbours, halves, with_gaps, overlapping, written])
def test_sums_of_gradients_of_slices_have_eagers_bits(function, dtype):
    shape = (LENGTH, 6, 4)
    for a, b in zip(
        gradients(function, shape, dtype=dtype, device="cpu"),
        gradients(function, shape, dtype=dtype, device="lazyt"),
        strict=True,
    ):
        assert same_bits(a, b)


def test_a_loop_over_a_sequence_gives_eagers_gradients():
    shapes = (3, LENGTH, 5), (3, 5)
    for a, b in zip(
        gradients(recurrent, *shapes, device="cpu"),
        gradients(recurrent, *shapes, device="lazyt"),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
