"""Operands too large to be shown to eager's kernels were shown to PyTorch's meta kernels alone, which let a few wrong calls
pass: backends read out of bounds. Sizes here are beyond 16 MiB, and of products and convolutions beyond 256 KiB."""

import pytest
import torch
from torch.nn import functional as F


def large(device):
    return torch.ones(1500, 3000, device=device)


def places(*sizes, device):
    return torch.zeros(sizes, dtype=torch.long, device=device)


CALLS = {
    "softmax": lambda d: large(d).softmax(5),
    "log_softmax": lambda d: large(d).log_softmax(2),
    "sort": lambda d: large(d).sort(4),
    "argsort": lambda d: large(d).argsort(-3),
    "topk": lambda d: large(d).topk(5, 5),
    "index_select": lambda d: large(d).index_select(0, places(2, 2, device=d)),
    "index_select by fractions": lambda d: large(d).index_select(0, torch.ones(2, device=d)),
    "index_add": lambda d: large(d).index_add(0, places(3, device=d), torch.ones(3, 7, device=d)),
    "index_reduce": lambda d: large(d).index_reduce(
        0, places(3, device=d), torch.ones(3, 7, device=d), "amax"
    ),
    "index_put": lambda d: large(d).index_put((places(3, device=d),), torch.ones(7, device=d)),
    "gather": lambda d: large(d).gather(0, places(3, 4000, device=d)),
    "gcd of fractions": lambda d: torch.gcd(large(d), large(d)),
    "bits of fractions": lambda d: large(d) & large(d),
    "targets of another dtype": lambda d: F.cross_entropy(
        large(d), torch.ones(1500, dtype=torch.int32, device=d)
    ),
    "bias of a linear": lambda d: F.linear(
        torch.ones(300, 500, device=d), torch.ones(5, 500, device=d), torch.ones(7, device=d)
    ),
    "short bias of a linear": lambda d: F.linear(
        torch.ones(300, 500, device=d), torch.ones(5, 500, device=d), torch.ones(3, device=d)
    ),
    "sizes of a product": lambda d: torch.ones(300, 500, device=d) @ torch.ones(400, 5, device=d),
    "sizes of a large product": lambda d: large(d) @ torch.ones(400, 5, device=d),
    "weights of another dtype": lambda d: (
        torch.ones(300, 500, device=d) @ torch.ones(500, 5, device=d, dtype=torch.float64)
    ),
    "bias of a convolution": lambda d: F.conv2d(
        torch.ones(1, 3, 300, 300, device=d), torch.ones(2, 3, 3, 3, device=d), torch.ones(7, device=d)
    ),
    "channels of a convolution": lambda d: F.conv2d(
        torch.ones(1, 1, 500, 500, device=d), torch.ones(2, 3, 3, 3, device=d)
    ),
    "bias of a transposed convolution": lambda d: F.conv_transpose2d(
        torch.ones(1, 3, 300, 300, device=d), torch.ones(3, 2, 3, 3, device=d), torch.ones(7, device=d)
    ),
    "padding below zero": lambda d: F.conv2d(
        torch.ones(1, 3, 300, 300, device=d), torch.ones(2, 3, 3, 3, device=d), padding=-1
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_eager_refuses_is_refused_where_it_is_called(case):
    with pytest.raises(Exception) as eager:  # noqa: PT011
        CALLS[case]("cpu")
    with pytest.raises(type(eager.value)) as lazy:
        CALLS[case]("lazyt")
    first = [str(e.value).split("\n")[0] for e in (lazy, eager)]
    # Behind a bracket stand sizes: an empty batch may stand for a large one.
    assert first[0].split("[")[0] == first[1].split("[")[0]


RIGHT = {
    "groups": lambda d: F.group_norm(torch.ones(2, 32, 300, 300, device=d), 32),
    "a part of a row": lambda d: large(d).topk(500)[0],
    "sizes among the numbers": lambda d: F.layer_norm(large(d), [3000]),
    "a convolution in groups": lambda d: F.conv2d(
        torch.ones(2, 64, 40, 40, device=d),
        torch.ones(64, 2, 3, 3, device=d),
        torch.ones(64, device=d),
        groups=32,
    ),
    "a batch of products": lambda d: torch.baddbmm(
        torch.ones(3, 1, 300, device=d), torch.ones(3, 200, 300, device=d), torch.ones(3, 300, 300, device=d)
    ),
    "a row and a bias": lambda d: torch.addmm(
        torch.ones(1, 500, device=d), torch.ones(300, 500, device=d), torch.ones(500, 500, device=d)
    ),
    "a linear of three dims": lambda d: F.linear(
        torch.ones(3, 100, 500, device=d), torch.ones(5, 500, device=d), torch.ones(5, device=d)
    ),
    "places by the hundred": lambda d: large(d).gather(1, places(1500, 100, device=d)),
    "repeated": lambda d: large(d).repeat_interleave(2, 0),
    "joined": lambda d: torch.cat([large(d), large(d)[:7]]),
    "windows": lambda d: F.avg_pool2d(torch.ones(1, 2, 1500, 1500, device=d), 100, 50),
    "resized": lambda d: F.interpolate(
        torch.ones(1, 2, 1500, 1500, device=d), size=(13, 17), mode="bilinear"
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_eager_takes_is_taken(case):
    torch.testing.assert_close(RIGHT[case]("lazyt").cpu(), RIGHT[case]("cpu"), rtol=1e-4, atol=1e-4)


def test_the_generator_of_the_cpu_is_left_alone():
    x, before = large("lazyt"), torch.get_rng_state()
    x.uniform_()
    x.bernoulli_(0.5)
    torch.bernoulli(x)
    F.dropout(x, 0.5)
    torch.multinomial(x, 3)
    torch.rand_like(x)
    torch.rrelu(x, training=True)
    torch.poisson(x)
    assert torch.equal(torch.get_rng_state(), before)
