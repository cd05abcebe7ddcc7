"""A loss over classes with the log softmax that it reads, which may be one kernel, and their gradients."""

import lazyt
import pytest
import torch
import torch.nn.functional as F

DEVICE = "lazyt"
SHAPES = {"one": (7,), "rows": (6, 5), "wide": (3, 3000), "many": (2100, 3), "picture": (2, 4, 3, 5)}


def loss_alone(x, t, **options):
    return (F.cross_entropy(x, t, **options),)


def softmax_is_answered(x, t, **options):
    y = F.log_softmax(x, 1 if x.dim() > 1 else 0)
    return F.nll_loss(y, t, **options), y


def softmax_is_read(x, t, **options):
    y = F.log_softmax(x * 2, 1 if x.dim() > 1 else 0)
    return F.nll_loss(y, t, **options), torch.cat([y, y.exp()])


def softmax_has_another_gradient(x, t, **options):
    y = F.log_softmax(x, 1 if x.dim() > 1 else 0)
    return F.nll_loss(y, t, **options) + y.square().sum(), F.nll_loss(y, t.flip(0) if t.dim() else t)


def another_axis(x, t, **options):
    return (F.nll_loss(F.log_softmax(x, 0) if x.dim() > 1 else x, t, **options),)


def scaled(x, t, **options):
    return (F.cross_entropy(x, t, **options) * 0.25 + x.mean(),)


def smoothed(x, t, **options):
    return (F.cross_entropy(x, t, label_smoothing=0.1, **options),)


def run(body, x, t, between, **options):
    x = x.detach().requires_grad_()
    out = body(x, t, **options)
    if between:
        lazyt.mark_step()
    if options.get("reduction") == "none":
        torch.autograd.backward(out[0], torch.arange(1, out[0].numel() + 1).to(x).view_as(out[0]))
    else:
        out[0].backward()
    return [r.detach().cpu().float() for r in (*out, x.grad)]


def inputs(shape, dtype, channels_last=False):
    torch.manual_seed(len(shape))
    x = torch.randn(shape, dtype=dtype) * 3
    classes = shape[1] if len(shape) > 1 else shape[0]
    t = torch.randint(classes, shape[:1] + shape[2:] if len(shape) > 1 else ())
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x, t


def compare(body, x, t, between=False, **options):
    want = run(body, x.float() if x.dtype in (torch.bfloat16, torch.float16) else x, t, False, **options)
    moved = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    got = run(body, x.to(DEVICE), t.to(DEVICE), between, **moved)
    close = {torch.float32: 2e-5, torch.float64: 1e-6, torch.bfloat16: 4e-2, torch.float16: 4e-3}[x.dtype]
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(
            g, w, rtol=close, atol=close * max(1, w.nan_to_num().abs().max().item()), equal_nan=True
        )
    assert set(lazyt.metrics.fallbacks()) <= {"aten::_local_scalar_dense"}


@pytest.fixture(autouse=True)
def no_counts():
    lazyt.metrics.reset()


BODIES = [
    loss_alone,
    softmax_is_answered,
    softmax_is_read,
    softmax_has_another_gradient,
    another_axis,
    scaled,
    smoothed,
]
CASES = [
    (body, name, reduction)
    for body in BODIES
    for name, shape in SHAPES.items()
    for reduction in ("mean", "sum", "none")
    if (body is not another_axis or len(shape) == 2)
    and (reduction != "none" or body not in (scaled, smoothed, softmax_has_another_gradient))
]


@pytest.mark.parametrize(("body", "shape", "reduction"), CASES)
def test_values_and_gradients_are_eager_s(body, shape, reduction):
    compare(body, *inputs(SHAPES[shape], torch.float32), reduction=reduction)


@pytest.mark.parametrize("between", [False, True], ids=["one program", "backward apart"])
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16], ids=lambda d: str(d).removeprefix("torch.")
)
@pytest.mark.parametrize("body", [loss_alone, softmax_is_answered])
def test_other_types_and_programs(body, dtype, between):
    compare(body, *inputs((6, 5), dtype), between)
    compare(body, *inputs((2, 4, 3, 5), dtype, channels_last=True), between)


def test_what_is_ignored_and_weights():
    x, t = inputs((40, 5), torch.float32)
    t[::3] = -100
    compare(loss_alone, x, t)
    compare(loss_alone, x, t, weight=torch.rand(5))
    compare(loss_alone, x, t.clamp(0), weight=torch.rand(5), ignore_index=2, reduction="sum")
    compare(loss_alone, x, torch.full_like(t, -100))  # the mean of nothing is NaN
    x, t = inputs((2, 4, 3, 5), torch.float32, channels_last=True)
    t[0, 1] = 3
    compare(loss_alone, x, t, weight=torch.rand(4), ignore_index=3)
    compare(loss_alone, x, t.permute(0, 2, 1).contiguous().permute(0, 2, 1), reduction="none")


def test_infinities_come_out_as_they_do_alone():
    x, t = inputs((6, 5), torch.float32)
    x[0, 1], x[1, 2], x[2, 3] = float("-inf"), float("inf"), float("nan")
    t[0], t[3] = 1, 0
    compare(loss_alone, x, t, reduction="none")


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_target_out_of_range_is_an_error(reduction):
    x, t = inputs((6, 5), torch.float32)
    t[3] = 5
    with pytest.raises((IndexError, RuntimeError), match="Target 5 is out of bounds"):
        F.cross_entropy(x.to(DEVICE), t.to(DEVICE), reduction=reduction).cpu()
