"""`x[mask] = values` runs on the device where the values do not depend on how many places the mask chooses: bit by bit what eager
writes, and no host island."""

import warnings

import lazyt
import pytest
import torch

DEVICE = "lazyt"
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


def written(x, mask, values, places=(), accumulate=False):
    """A write into a copy of x behind `places` full dims, and what reads it in the same step."""
    y = x.clone()
    index = (*places, mask)
    if accumulate:
        y.index_put_(index, values, accumulate=True)
    else:
        y[index] = values
    return y, y == y


def check(x, mask, values, places=(), accumulate=False, islands=()):
    want = written(x, mask, values, places, accumulate)
    lazyt.metrics.reset()
    moved = [t.to(DEVICE) if torch.is_tensor(t) else t for t in (x, mask, values)]
    got = written(*moved, places, accumulate)
    for g, w in zip(got, want, strict=True):
        assert g.stride() == w.stride()
        assert torch.equal(g.cpu(), w)
    assert set(lazyt.metrics.fallbacks()) == set(islands)


def of(*shape, dtype=torch.float32):
    x = torch.randint(-9, 9, shape)
    return x > 0 if dtype == torch.bool else (x.abs() if dtype == torch.uint8 else x).to(dtype)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("accumulate", [False, True], ids=["", "accumulated"])
def test_one_number_and_rows_of_each_dtype(dtype, accumulate):
    x, mask = of(7, 5, dtype=dtype), torch.rand(7, 5) < 0.5
    check(x, mask, of(dtype=dtype), accumulate=accumulate)
    check(x, mask, of(1, dtype=dtype), accumulate=accumulate)
    check(x, mask[:, 0], of(5, dtype=dtype), accumulate=accumulate)
    if not accumulate:
        check(x, mask, 1)


@pytest.mark.parametrize(
    ("shape", "before", "of_mask", "of_values"),
    [
        ((6, 4, 3), 0, 1, (3,)),
        ((6, 4, 3), 0, 1, (4, 3)),
        ((6, 4, 3), 0, 1, (4, 1)),
        ((6, 4, 3), 0, 1, (1, 4, 3)),
        ((6, 4, 3), 0, 1, (1, 1, 3)),
        ((6, 4, 3), 0, 2, (3,)),
        ((6, 4, 3), 0, 2, (1, 3)),
        ((6, 4, 3), 0, 3, (1,)),
        ((6, 4, 3), 0, 3, (1, 1, 1, 1)),
        ((6, 4, 3), 1, 1, (3,)),
        ((6, 4, 3), 1, 1, (1, 3)),
        ((6, 4, 3), 1, 1, (6, 1, 3)),
        ((6, 4, 3), 1, 2, (6, 1)),
        ((6, 4, 3), 1, 2, (1, 1)),
        ((6, 4, 3), 2, 1, (4, 1)),
        ((6, 4, 3), 2, 1, (6, 1, 1)),
        ((6, 4, 3), 2, 1, (6, 4, 1)),
        ((6, 4, 3), 0, 0, (4, 3)),
        ((1, 4, 1), 0, 2, (1,)),
        ((), 0, 0, ()),
    ],
)
def test_masks_of_any_dims_and_values_that_spread(shape, before, of_mask, of_values):
    x = torch.randn(shape)
    mask = torch.rand(shape[before : before + of_mask]) < 0.5
    places = (slice(None),) * before
    for m in (mask, ~mask, torch.zeros_like(mask), torch.ones_like(mask)):
        # Of a mask without dims Python asks the value.
        check(x, m, torch.randn(of_values), places, islands=() if of_mask else ["aten::_local_scalar_dense"])


def test_a_mask_of_bytes_and_numbers_of_another_dtype():
    x, mask = torch.randn(5, 4), torch.rand(5, 4) < 0.5
    for dtype in (torch.int64, torch.int32, torch.bool, torch.float16, torch.bfloat16):
        check(x, mask, of(dtype=dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that masks of bytes are deprecated
        check(x, mask[:, 0].to(torch.uint8) * 3, torch.randn(4))


def test_special_numbers_and_bits_of_those_that_stay():
    x = torch.tensor([float("nan"), -0.0, 0.0, float("inf"), -float("inf"), 1e-42])
    got = written(x.to(DEVICE), torch.tensor([0, 0, 0, 1, 0, 0], device=DEVICE).bool(), torch.tensor(-0.0, device=DEVICE))[0]
    want = written(x, torch.tensor([0, 0, 0, 1, 0, 0]).bool(), torch.tensor(-0.0))[0]
    assert torch.equal(got.cpu().view(torch.int32), want.view(torch.int32))


def test_the_mask_is_of_what_is_written():
    def f(device):
        x = torch.linspace(-1, 1, 24, device=device).reshape(4, 6)
        y = x.t() * 2
        y[y > 0] = 0.5
        y[1:, ::2][y[1:, ::2] < -1] = y[0, 0]
        y[:, y.sum(0) < -3] *= 1  # how many: by the host
        return x, y

    for got, want in zip(f(DEVICE), f("cpu"), strict=True):
        assert torch.equal(got.cpu(), want)


def test_gradients_of_what_is_written_and_of_what_is_left():
    def f(device):
        x = torch.linspace(-1, 1, 12, device=device).reshape(3, 4).requires_grad_()
        v = torch.tensor([0.5, 2.0, -1.0, 4.0], device=device, requires_grad=True)
        y = x * 3
        y[torch.tensor([True, False, True], device=device)] = v
        (y * y).sum().backward()
        return x.grad, v.grad

    for got, want in zip(f(DEVICE), f("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), want)


def test_values_of_each_place_run_on_the_host_and_too_few_are_eagers_error():
    x, mask = torch.randn(6), torch.tensor([True, False, True, True, False, False])
    check(x, mask, torch.randn(3), islands=["aten::index_put"])
    with pytest.raises(Exception, match="shape mismatch"):
        written(x.to(DEVICE), mask.to(DEVICE), torch.randn(2, device=DEVICE))[0].cpu()
