"""Operators that no plugin need know: made of those that it takes, on PyTorch's own samples, with no host island."""

import itertools
import os

import lazyt
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map

# By the name of PyTorch's sample generator.
NAMES = (
    "addbmm addr cdist clamp_max clamp_min count_nonzero deg2rad diag diag_embed diagonal_copy dist eye floor_divide heaviside ldexp"
    " linalg.cross linspace logaddexp logaddexp2 logit nansum nn.functional.channel_shuffle nn.functional.fold"
    " nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d"
    " nn.functional.adaptive_max_pool3d nn.functional.avg_pool3d nn.functional.bilinear nn.functional.embedding_bag"
    " nn.functional.glu nn.functional.hardshrink nn.functional.max_pool3d nn.functional.max_unpool1d"
    " nn.functional.max_unpool2d nn.functional.max_unpool3d nn.functional.pixel_unshuffle nn.functional.prelu"
    " nn.functional.soft_margin_loss nn.functional.softshrink nn.functional.unfold rad2deg renorm rot90 rsub sinc special.entr"
    " special.xlog1py std_mean trace unfold vdot"
).split()
VARIANTS = {
    "nn.functional.pad": ("reflect", "replicate"),
    "nn.functional.interpolate": ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear"),
}
HALVES = (torch.bfloat16, torch.float16)
FLOATS = (torch.float32, torch.float64, *HALVES)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool)
# Of each operator and dtype; each is a program, which a C++ compiler builds for the stand-ins.
MOST_SAMPLES = 8 if os.environ.get("LAZYT_FAKE_CUDA_LIBRARIES") else 40

# Of products, whose sums are added up in another order.
NEAR = {"addbmm": {"rtol": 1e-5, "atol": 1e-4}}

# What is left to the host.
LEFT = {
    "addbmm": ("aten::addbmm",),  # whole numbers
    "addr": ("aten::addr",),  # truth values
    "cdist": ("aten::_cdist_forward", "aten::_cdist_backward"),  # norms other than 1 and 2, of nothing
    "nn.functional.avg_pool3d": ("aten::avg_pool3d",),  # whole numbers
    "nn.functional.max_pool3d": ("aten::max_pool3d_with_indices",),  # whole numbers
    "nn.functional.bilinear": ("aten::_trilinear",),  # whole numbers, nothing
    # The largest of a bag, gradients by how often a row is read.
    "nn.functional.embedding_bag": ("aten::_embedding_bag", "aten::_embedding_bag_backward"),
    "unfold": ("aten::unfold_backward",),  # of a number
    "heaviside": ("aten::heaviside",),  # truth values
    "nn.functional.hardshrink": ("aten::hardshrink", "aten::hardshrink_backward"),  # halves
    "nn.functional.softshrink": ("aten::softshrink", "aten::softshrink_backward"),  # halves
    "ldexp": ("aten::ldexp",),  # halves
    "logit": ("aten::logit", "aten::logit_backward"),  # limits of halves
    "rot90": ("aten::rot90",),  # by no quarter
    "linspace": ("aten::linspace",),  # whole numbers, halves, one step
    # Of bytes.
    "nn.functional.interpolate": ("aten::upsample_bilinear2d", "aten::upsample_bicubic2d"),
    "nn.functional.unfold": ("aten::im2col", "aten::col2im"),  # of nothing
    "nansum": ("aten::nansum",),  # truth values
    "trace": ("aten::index_fill",),  # of its gradient, whose value is a tensor
}


def operators():
    for op in op_db:
        if op.name in NAMES or op.variant_test_name in VARIANTS.get(op.name, ()):
            for dtype in DTYPES:
                if dtype in op.dtypes:
                    yield pytest.param(
                        op,
                        dtype,
                        id=f"{op.name}{op.variant_test_name and '.' + op.variant_test_name}-{str(dtype)[6:]}",
                    )


def widened(t):
    return (
        t.detach().float().requires_grad_(t.requires_grad)
        if isinstance(t, torch.Tensor) and t.dtype in HALVES
        else t
    )


def results(op, sample, device, grads):
    def move(t):
        if not isinstance(t, torch.Tensor):
            return torch.device(device) if isinstance(t, str) and t == "cpu" else t
        return t.detach().to(device).requires_grad_(t.requires_grad)

    sample = sample.transform(move)
    out = op(sample.input, *sample.args, **sample.kwargs)
    out = [t for t in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(t, torch.Tensor)]
    leaves = []
    tree_map(
        lambda t: leaves.append(t) if isinstance(t, torch.Tensor) and t.requires_grad else None,
        [sample.input, sample.args, sample.kwargs],
    )
    given = []
    if grads and leaves:
        differentiable = [t for t in out if t.requires_grad]
        torch.manual_seed(7)
        directions = [
            torch.randn(t.shape, dtype=torch.float64).to(t.dtype).to(device) for t in differentiable
        ]
        given = [
            g
            for g in torch.autograd.grad(differentiable, leaves, directions, allow_unused=True)
            if g is not None
        ]
    return [t.detach().cpu() for t in (*out, *given)]


@pytest.mark.parametrize(("op", "dtype"), list(operators()))
def test_samples_of_pytorch(op, dtype):
    torch.manual_seed(0)
    grads = dtype in FLOATS and op.supports_autograd
    samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grads), MOST_SAMPLES))
    assert samples
    lazyt.metrics.reset()
    for sample in samples:
        want = results(op, sample, "cpu", grads)
        got = results(op, sample, "lazyt", grads)
        if dtype not in HALVES:
            torch.testing.assert_close(got, want, equal_nan=True, **NEAR.get(op.name, {}))
            continue
        # Eager rounds halves between the parts of some, and adds up their gradients in halves: nearer to f32 is right, too.
        exact = results(op, sample.transform(widened), "cpu", grads)
        near = 5e-2 if dtype == torch.bfloat16 else 1e-2
        for w, e, g in zip(want, exact, got, strict=True):
            assert g.dtype == w.dtype
            if not torch.allclose(g, w, equal_nan=True, rtol=near, atol=near):
                torch.testing.assert_close(g.to(e.dtype), e, equal_nan=True, rtol=near, atol=near)
    assert set(lazyt.metrics.fallbacks()) <= set(LEFT.get(op.name, ()))


SPECIAL = torch.tensor(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.5,
        float("inf"),
        -float("inf"),
        float("nan"),
        1e-40,
        3e38,
        -3e38,
        88.0,
    ]
)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.logaddexp(a, b),
        lambda a, b: torch.logaddexp2(a, b),
        lambda a, b: torch.heaviside(a, b),
        lambda a, b: torch.floor_divide(a, b),
        lambda a, b: torch.clamp_min(a, b),
        lambda a, b: torch.clamp_max(a, b),
        lambda a, b: torch.special.xlog1py(a, b),
        lambda a, b: torch.nn.functional.prelu(a, b.reshape(-1)[:1]),
        lambda a, b: torch.special.entr(a),
        lambda a, b: torch.sinc(a),
        lambda a, b: torch.logit(a),
        lambda a, b: torch.logit(a, 1e-3),
        lambda a, b: torch.nn.functional.hardshrink(a),
        lambda a, b: torch.nn.functional.softshrink(a),
        lambda a, b: torch.nansum(a, 1),
        lambda a, b: torch.count_nonzero(a, 0),
        lambda a, b: torch.nn.functional.glu(a),
    ],
    ids="logaddexp logaddexp2 heaviside floor_divide clamp_min clamp_max xlog1py prelu entr sinc logit logit_eps hardshrink softshrink nansum count_nonzero glu".split(),
)
@pytest.mark.usefixtures("no_islands")
def test_special_values(function):
    a, b = (t.contiguous() for t in torch.meshgrid(SPECIAL, SPECIAL, indexing="ij"))
    want, got = function(a, b), function(a.to("lazyt"), b.to("lazyt"))
    torch.testing.assert_close(got.cpu(), want, equal_nan=True)


@pytest.mark.usefixtures("no_islands")
def test_large_whole_numbers_are_exact():
    x = torch.randint(-9, 9, (5, 5))

    def call(x):
        return [
            torch.addr(x, x[:, 0], x[0], alpha=2**60 + 1, beta=2**40 + 1),
            torch.rsub(x, x, alpha=2**53 + 1),
        ]

    for got, want in zip(call(x.to("lazyt")), call(x), strict=True):
        assert torch.equal(got.cpu(), want)


@pytest.mark.usefixtures("no_islands")
def test_numbers_for_operands():
    x, n = torch.randn(5, 6), torch.tensor(1.5)
    for f in (
        torch.floor_divide,
        torch.logaddexp,
        torch.heaviside,
        torch.clamp_min,
        torch.rsub,
        torch.special.xlog1py,
    ):
        torch.testing.assert_close(f(x.to("lazyt"), n).cpu(), f(x, n), equal_nan=True)
    torch.testing.assert_close((2 // x.to("lazyt")).cpu(), 2 // x)


def test_negative_places_are_cut_off_by_the_host():
    x = torch.randn(1, 2, 6, 6)
    for mode in ("reflect", "replicate"):
        got = torch.nn.functional.pad(x.to("lazyt"), (-1, 2, 1, -2), mode=mode)
        assert torch.equal(got.cpu(), torch.nn.functional.pad(x, (-1, 2, 1, -2), mode=mode))


@pytest.mark.usefixtures("no_islands")
def test_windows_that_overlap_and_come_back():
    for kernel, dilation, padding, stride in [
        (3, 1, 1, 1),
        (2, 1, 0, 2),
        ((3, 2), (1, 2), (1, 0), (2, 1)),
        (3, 2, 2, 3),
    ]:
        x = torch.randn(2, 3, 12, 10, requires_grad=True)
        options = {"dilation": dilation, "padding": padding, "stride": stride}

        def call(device, x=x, kernel=kernel, options=options):
            on = x.detach().to(device).requires_grad_()
            columns = torch.nn.functional.unfold(on, kernel, **options)
            image = torch.nn.functional.fold(columns * columns, on.shape[2:], kernel, **options)
            return [t.cpu() for t in (columns, image, *torch.autograd.grad(image.square().sum(), on))]

        torch.testing.assert_close(call("lazyt"), call("cpu"))


@pytest.mark.usefixtures("no_islands")
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_rows(mode, dtype):
    torch.manual_seed(0)
    near = 2e-2 if dtype in HALVES else 1e-5
    table = torch.randint(-8, 8, (10, 4)).to(dtype)
    index, offsets = torch.randint(10, (17,)), torch.tensor([0, 3, 3, 9, 17])
    calls = [
        (index, offsets[:4], {}),  # one bag is empty
        (index.int(), offsets[:4].int(), {"padding_idx": 3}),
        (index, offsets, {"include_last_offset": True}),
        (index[:16].reshape(4, 4), None, {}),
    ]
    if mode == "sum":
        calls.append((index, offsets[:4], {"per_sample_weights": torch.rand(17).to(dtype)}))
        calls.append((index, offsets[:4], {"per_sample_weights": torch.rand(17).to(dtype), "padding_idx": 3}))

    def call(device, index, offsets, options):
        t = table.to(device).requires_grad_()
        options = {
            k: v.to(device).requires_grad_() if isinstance(v, torch.Tensor) else v for k, v in options.items()
        }
        leaves = [t, *(v for v in options.values() if isinstance(v, torch.Tensor))]
        offsets = None if offsets is None else offsets.to(device)
        out = torch.nn.functional.embedding_bag(index.to(device), t, offsets, mode=mode, **options)
        grads = torch.autograd.grad(
            out, leaves, torch.linspace(-1, 1, out.numel()).view(out.shape).to(device, dtype)
        )
        return [v.detach().cpu() for v in (out, *grads)]

    for arguments in calls:
        torch.testing.assert_close(call("lazyt", *arguments), call("cpu", *arguments), rtol=near, atol=near)


def test_a_bag_of_a_row_that_is_not_there():
    table, index, offsets = torch.randn(4, 2), torch.tensor([0, 4]), torch.tensor([0])
    with pytest.raises((IndexError, RuntimeError), match="out of|range|index"):
        torch.nn.functional.embedding_bag(
            index.to("lazyt"), table.to("lazyt"), offsets.to("lazyt"), mode="sum"
        ).cpu()


@pytest.mark.usefixtures("no_islands")
def test_slopes_that_were_drawn_are_those_of_the_gradient():
    x = torch.randn(40)
    for training in (True, False):
        on = x.to("lazyt").requires_grad_()
        out = torch.nn.functional.rrelu(on, 0.1, 0.3, training=training)
        (grad,) = torch.autograd.grad(out.sum(), on)
        torch.testing.assert_close(grad.cpu(), out.detach().cpu() / x)


@pytest.mark.usefixtures("no_islands")
def test_norms_of_any_order():
    x = torch.randn(3, 4, 5)
    for order in (3, 0.5, -1, 1.5):
        for dim in (None, 1, (0, 2)):
            want = torch.linalg.vector_norm(x, order, dim)
            torch.testing.assert_close(torch.linalg.vector_norm(x.to("lazyt"), order, dim).cpu(), want)


@pytest.mark.usefixtures("no_islands")
def test_ones_where_the_row_is_the_column():
    for sizes in ((3,), (3, 5), (5, 3), (1, 1)):
        for dtype in DTYPES:
            assert torch.equal(
                torch.eye(*sizes, dtype=dtype, device="lazyt").cpu(), torch.eye(*sizes, dtype=dtype)
            )


@pytest.mark.usefixtures("no_islands")
def test_windows_along_a_dim_give_their_gradient_back():
    x = torch.randn(3, 20, 4)
    for dim, size, step in [
        (1, 3, 1),
        (1, 4, 2),
        (1, 2, 3),
        (1, 5, 4),
        (1, 20, 1),
        (-1, 2, 1),
        (0, 1, 1),
        (0, 3, 2),
    ]:

        def call(device, dim=dim, size=size, step=step):
            on = x.to(device).requires_grad_()
            windows = on.unfold(dim, size, step)
            return torch.autograd.grad(
                windows, on, torch.arange(windows.numel()).view(windows.shape).to(device, torch.float)
            )[0].cpu()

        torch.testing.assert_close(call("lazyt"), call("cpu"))


def test_complex_numbers_of_which_there_are_none():
    """Written first as a view of stride 2; the host is asked for the same bytes as another dtype."""
    x = torch.randn(120, 1, 1, 3, dtype=torch.complex64).to("lazyt")
    x.set_()
    x.real.mul_(-1)
    assert x.cpu().shape == (0,)
    assert not x.any(-1).cpu()
    assert x.sum().cpu() == 0
