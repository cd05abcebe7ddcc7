"""What reads and writes at places, pools and resamples gives eager's values, whatever the dtype and size."""

import lazyt
import pytest
import torch
import torch.nn.functional as F

DEVICE = "lazyt"


@pytest.fixture(autouse=True)
def no_islands():
    torch.manual_seed(0)
    lazyt.metrics.reset()
    yield
    assert set(lazyt.metrics.fallbacks()) <= {"aten::_local_scalar_dense"}


def check(function, *args, rtol=2e-5, atol=5e-6):
    want = function(*args)
    got = function(*(a.to(DEVICE) if torch.is_tensor(a) else a for a in args))
    want, got = (w if isinstance(w, (tuple, list)) else (w,) for w in (want, got))
    for w, g in zip(want, got, strict=True):
        assert g.dtype == w.dtype
        torch.testing.assert_close(g.cpu(), w, rtol=rtol, atol=atol, equal_nan=True)


def values(*shape, dtype):
    x = torch.randint(-8, 9, shape)
    return x > 0 if dtype == torch.bool else (x.abs() if dtype == torch.uint8 else x).to(dtype)


DTYPES = [
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_reads_and_writes_in_other_dtypes(dtype):
    x, v = values(7, 5, dtype=dtype), values(9, 5, dtype=dtype)
    index, grid = torch.tensor([6, 0, 3, 0, 1, 6, 6, 2, 0]), torch.randint(0, 7, (9, 5))
    check(lambda x, i: x[i], x, index)
    check(lambda x, i: x.index_select(0, i), x, index.int())
    check(lambda x, g: x.gather(0, g), x, grid)
    check(lambda x, i, v: x.index_put((i,), v, accumulate=True), x, index, v)
    check(lambda x, i, v: x.index_add(0, i, v), x, index, v)
    check(lambda x, g, v: x.scatter_add(0, g, v), x, grid, v)
    check(lambda x, i, v: x.index_copy(0, i, v), x, torch.tensor([6, 0, 3]), v[:3])
    check(lambda x, m, v: x.masked_scatter(m, v), x, x != 0, v)
    if dtype != torch.bool:
        for reduce in ("amax", "amin", "mean", "prod"):
            check(lambda x, g, v, r=reduce: x.scatter_reduce(0, g, v, r), x, grid, v, rtol=1e-2)


def test_writes_into_slices_of_tensors_that_do_not_lie_in_rows():
    x, v = torch.randn(6, 5, 4), torch.randn(3, 4)

    def write(x, v, i):
        x = x.clone().transpose(0, 2)
        x[:, 1, i] = v.t()
        x[i] += 1
        return x.contiguous()

    check(write, x, v, torch.tensor([0, 2, 3]))


# More than a block of a GPU sorts at once, most of them to few places.
@pytest.mark.parametrize("count", [1, 63, 2048, 5000])
def test_sums_over_many_places_of_one_element(count):
    index = torch.randint(0, 1000, (count,)) ** 2 // 100000
    grad, table = torch.randn(count, 3), torch.randn(11, 3)

    def backward(table, index, grad):
        table = table.detach().requires_grad_()
        F.embedding(index, table).backward(grad)
        return table.grad

    check(backward, table, index, grad, rtol=1e-4, atol=1e-4)
    check(lambda t, i, g: t.index_add(0, i, g), table, index, grad, rtol=1e-4, atol=1e-4)
    once = [
        torch.zeros(11, 3, device=DEVICE).index_add(0, index.to(DEVICE), grad.to(DEVICE)).cpu()
        for _ in range(2)
    ]
    assert torch.equal(*once)


def test_of_several_writes_to_a_place_the_last_counts():
    index = torch.randint(0, 9, (3000,))
    out = (
        torch.zeros(9, device=DEVICE)
        .index_put((index.to(DEVICE),), torch.arange(3000.0, device=DEVICE))
        .cpu()
    )
    want = [(index == k).nonzero().max().item() for k in range(9)]
    assert out.tolist() == want


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.take(i * 5),
        lambda x, i: x.gather(0, i[:, None]),
        lambda x, i: x.scatter(0, i[:, None], 1.0),
        lambda x, i: x.scatter_add(0, i[:, None], x[:2, :1]),
        lambda x, i: x.index_put((i,), x[:2]),
        lambda x, i: x.index_add(0, i, x[:2]),
        lambda x, i: x.index_copy(0, i, x[:2]),
        lambda x, i: x.index_fill(0, i, 2.0),
        lambda x, i: F.nll_loss(x[:2], i),
        lambda x, i: x.masked_scatter(x == x, i.to(x.dtype)),
    ],
)
def test_what_is_out_of_range_is_an_error_and_the_next_step_is_none(function):
    x, bad = torch.randn(5, 3).to(DEVICE), torch.tensor([1, 700]).to(DEVICE)
    with pytest.raises((IndexError, RuntimeError), match="out of (bounds|range)|number of ones"):
        function(x, bad).cpu()
    assert torch.equal(x[bad.clamp(max=2)].cpu(), x.cpu()[[1, 2]])


def outcome(function):
    try:
        return function().cpu().tolist()
    except (IndexError, RuntimeError) as error:
        return type(error), str(error).splitlines()[0].removeprefix("[OUT_OF_RANGE] ")


@pytest.mark.parametrize("shape", [(3,), (3, 2), (2, 3, 4), (2, 3, 2, 2), (3, 0), (0, 3), (2, 0, 3)])
def test_an_index_out_of_range_is_what_eager_says_of_this_dim(shape):
    for dim, size in enumerate(shape):
        rows = torch.ones(*shape[:dim], 2, *shape[dim + 1 :])
        for function in (
            lambda x, i, v: x[(slice(None),) * dim + (i,)],  # noqa: B023
            lambda x, i, v: x.index_select(dim, i),  # noqa: B023
            lambda x, i, v: x.index_add(dim, i, v),  # noqa: B023
            lambda x, i, v: x.index_copy(dim, i, v),  # noqa: B023
            lambda x, i, v: x.index_fill(dim, i, 2),  # noqa: B023
            lambda x, i, v: F.embedding(i, x) if x.dim() == 2 and x.size(0) else x,
            lambda x, i, v: x.index_put((i,), v) if dim == 0 else x,  # noqa: B023
        ):
            given = torch.zeros(shape), torch.tensor([0, size + 5]), rows
            want, got = (outcome(lambda: function(*(t.to(d) for t in given))) for d in ("cpu", DEVICE))  # noqa: B023
            assert got == want


def test_a_probability_that_is_a_number_of_the_host():
    for p in (0.0, 1.0):
        x = torch.full((3,), 2.0, device=DEVICE).bernoulli_(torch.tensor(p))
        assert x.cpu().tolist() == [p] * 3
    with pytest.raises(RuntimeError, match="p_in >= 0 && p_in <= 1"):
        torch.zeros(3, device=DEVICE).bernoulli_(torch.tensor(1.5)).cpu()
    assert set(lazyt.metrics.fallbacks()) <= {"aten::_functional_assert_async"}  # whether it is one
    lazyt.metrics.reset()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_pools_and_resampling_keep_values_and_layouts(layout, dtype):
    x = torch.randn(2, 6, 13, 9).to(dtype)
    functions = [
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.max_pool2d(x, 2, 1, 0, 2, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
        lambda x: F.interpolate(x, scale_factor=2),
        lambda x: F.interpolate(x, size=(7, 20), mode="bilinear"),
    ]
    for function in functions:

        def both(x, function=function):
            x = x.detach().to(memory_format=layout).requires_grad_()
            y = function(x)
            y.backward(((torch.arange(y.numel(), device=y.device) % 13) - 6).reshape(y.shape).to(y.dtype))
            return y.detach(), x.grad

        loose = dtype == torch.bfloat16
        check(both, x, rtol=2e-2 if loose else 2e-5, atol=2e-2 if loose else 5e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_over_classes_of_images(reduction):
    x, target = torch.randn(3, 5, 40, 41), torch.randint(0, 5, (3, 40, 41))
    target[0, :3] = -100

    def both(x, target, weight):
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(x, target, weight, reduction=reduction)
        loss.sum().backward()
        return loss.detach(), x.grad

    check(both, x, target, torch.rand(5), rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8])
def test_copies_between_tensors_that_lie_along_different_dims(dtype):
    for shape, order in (
        ((40, 70), (1, 0)),
        ((16, 17), (1, 0)),
        ((3, 33, 5, 64), (0, 3, 2, 1)),
        ((33, 2, 40), (2, 1, 0)),
    ):
        x = values(*shape, dtype=dtype)
        check(lambda x, order=order: x.permute(order).contiguous(), x)
        check(lambda x, order=order: torch.cat([x.permute(order), x.permute(order)[:, 1:]], 1), x)
    check(lambda x: x[:, :40].t().flip(0).contiguous(), values(50, 64, dtype=dtype))
    check(lambda x: x.t().expand(2, -1, -1).contiguous(), values(50, 64, dtype=dtype))


@pytest.mark.parametrize("places", [(0,), (0, 5), (1, 1, 0)], ids=str)
@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=str)
def test_an_index_without_elements_may_have_any_rank(shape, places):
    x, index = torch.randn(shape), torch.zeros(places, dtype=torch.long)
    check(lambda x, i: x.scatter(0, i, 0.5), x, index)
    check(lambda x, i, s: x.scatter(0, i, s), x, index, torch.ones(places))
    check(lambda x, i, s: x.scatter_add(0, i, s), x, index, torch.ones(places))
    check(lambda x, i, s: x.scatter_reduce(0, i, s, "amax"), x, index, torch.ones(places))
    check(lambda x, i: x.gather(0, i), x, index)


def test_a_tensor_without_dims_has_no_place_to_turn_round_or_to_sort():
    check(lambda x: x.flip(-1), torch.tensor(2.5))
    for k in (0, 1):
        check(lambda x: tuple(x.topk(k)), torch.tensor(2.5))  # noqa: B023


def test_complex_elements_are_moved():
    x, source = torch.randn(5, 3, dtype=torch.complex64), torch.randn(2, 3, dtype=torch.complex64)
    at = torch.tensor([4, 1])
    check(lambda x, at, s: x.index_copy(0, at, s), x, at, source)
    check(lambda x, at, s: x.index_put((at,), s), x, at, source)
    check(lambda x, at, s: x.scatter(0, at[:, None].expand(2, 3), s), x, at, source)
    check(lambda x, at: x[at], x, at)


@pytest.mark.parametrize("bad", [-1, 77, 2**62, -(2**63), 2**63 - 1])
def test_any_place_outside_is_found(bad):
    x = torch.arange(77.0).expand(4, 77).contiguous().to("lazyt")
    for place in (0, 31, 76):
        index = torch.zeros(4, 77, dtype=torch.int64)
        index[2, place] = bad
        for f in (lambda i: x.gather(1, i), lambda i: x.scatter(1, i, x)):
            with pytest.raises(RuntimeError, match="out of bounds"):
                f(index.to("lazyt")).cpu()
