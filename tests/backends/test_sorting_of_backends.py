"""Lines in order: equal elements, NaN, infinities and both zeros, in every dtype."""

import lazyt  # noqa: F401
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
    torch.int16,
    torch.uint8,
]

pytestmark = pytest.mark.usefixtures("no_islands")


def lines(dtype: torch.dtype, n: int, values: int) -> torch.Tensor:
    """Seven of n elements; of floats some lines have a NaN, or are nothing else."""
    torch.manual_seed(0)
    x = torch.randint(0, values, (7, n)).to(dtype)
    if dtype.is_floating_point:
        x -= values // 2
        x[0, 0] = x[1, :] = x[6, n // 2] = float("nan")
        x[2, n // 2], x[4, 0] = float("inf"), -float("inf")
        x[3, n - 1] = -0.0
    return x


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("values", [3, 200])
@pytest.mark.parametrize("n", [1, 2, 5, 64, 1000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lines_in_order(dtype, n, values):
    x = lines(dtype, n, values)
    on_device = x.to(DEVICE)
    for descending in (False, True):
        want = torch.sort(x, dim=1, stable=True, descending=descending)
        got = torch.sort(on_device, dim=1, stable=True, descending=descending)
        same(got.values, want.values)
        assert torch.equal(got.indices.cpu(), want.indices)
        k = min(n, 3)
        same(
            torch.topk(on_device, k, 1, largest=descending).values,
            torch.topk(x, k, 1, largest=descending).values,
        )


@pytest.mark.parametrize("values", [3, 200])
@pytest.mark.parametrize("n", [1, 2, 5, 64, 1000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_element_of_the_order(dtype, n, values):
    x = lines(dtype, n, values)
    on_device = x.to(DEVICE)
    for k in {1, (n + 1) // 2, n}:
        got = torch.kthvalue(on_device, k, 1)
        same(got.values, torch.kthvalue(x, k, 1).values)
        same(x.gather(1, got.indices.cpu()[:, None])[:, 0], got.values.cpu())
    got = on_device.median(1)
    same(got.values, x.median(1).values)
    same(x.gather(1, got.indices.cpu()[:, None])[:, 0], got.values.cpu())


@pytest.mark.parametrize("k", [3, 50, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_lines_that_do_not_lie_in_rows(dtype, k):
    x = lines(dtype, 64, 200)
    in_columns = x.t().contiguous().to(DEVICE)  # lines along its first dim, and along its transpose's last
    want, order = torch.topk(x, k, 1), torch.sort(x, dim=1, stable=True)
    same(torch.topk(in_columns.t(), k, 1).values, want.values)
    same(torch.topk(in_columns, k, 0).values, want.values.t())
    got, turned = torch.sort(in_columns.t(), dim=1, stable=True), torch.sort(in_columns, dim=0, stable=True)
    same(got.values, order.values)
    same(turned.values, order.values.t())
    assert torch.equal(got.indices.cpu(), order.indices) and torch.equal(
        turned.indices.cpu(), order.indices.t()
    )
    same(torch.kthvalue(in_columns.t(), k, 1).values, order.values[:, k - 1])
