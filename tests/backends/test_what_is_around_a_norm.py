"""Pointwise operators around a norm, which may be computed with it: values are eager's."""

import copy
import os

import lazyt
import pytest
import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "lazyt"


@pytest.fixture(autouse=True)
def no_islands():
    lazyt.metrics.reset()
    yield
    if os.environ.get("LAZYT_BACKEND") == "cuda":  # onednn leaves some forms of f64 to the host
        assert set(lazyt.metrics.fallbacks()) <= {"aten::_local_scalar_dense"}


def conv(c, k=1):
    return nn.Conv2d(c, c, k, padding=k // 2, bias=False)


class Residual(nn.Module):
    """ReLU behind a norm and behind a sum with a norm, which later layers read."""

    def __init__(self, c):
        super().__init__()
        self.conv1, self.norm1, self.conv2, self.norm2 = (
            conv(c, 3),
            nn.BatchNorm2d(c),
            conv(c),
            nn.BatchNorm2d(c),
        )

    def forward(self, x):
        x = F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + x)
        return F.relu(self.norm2(self.conv2(x)) + x)


class Branches(nn.Module):
    """The sum of two and of three norms, whose gradient is one."""

    def __init__(self, c):
        super().__init__()
        self.convs, self.norms = (
            nn.ModuleList(conv(c) for _ in range(4)),
            nn.ModuleList(nn.BatchNorm2d(c) for _ in range(4)),
        )

    def forward(self, x):
        a, b, c, d = (norm(conv(x)) for norm, conv in zip(self.norms, self.convs, strict=True))
        return F.relu(a + b) * 2 + F.relu(c + d + a)


class ReadElsewhere(nn.Module):
    """The norm's result, what follows it and the gradients on the way are read by others, too."""

    def __init__(self, c):
        super().__init__()
        self.conv, self.norm, self.free = (
            conv(c),
            nn.BatchNorm2d(c),
            nn.BatchNorm2d(c, affine=False, track_running_stats=False),
        )

    def forward(self, x):
        y = self.norm(self.conv(x))
        z = F.silu(y) + x.mean()
        w = self.free(z)
        return w + z, y.amax((2, 3)), torch.sigmoid(w).flatten(1).cumsum(1), F.gelu(w.flatten(1)).view_as(w)


class First(nn.Module):
    """The norm's operand is the residual; a norm in evaluation, whose gradient is asked for."""

    def __init__(self, c):
        super().__init__()
        self.conv, self.norm, self.frozen = conv(c), nn.BatchNorm2d(c), nn.BatchNorm2d(c).eval()

    def forward(self, x):
        x = F.relu(self.conv(x))
        x = x + torch.tanh(self.norm(x))
        return F.hardtanh(self.frozen(x) * x) + self.norm(x)


class Lines(nn.Module):
    """Layer, RMS and group norm with residuals around them."""

    def __init__(self, c):
        super().__init__()
        self.group, self.layer, self.rms = nn.GroupNorm(2, c), nn.LayerNorm(5), nn.RMSNorm(5, eps=1e-5)
        self.weight = nn.Parameter(torch.randn(5, 5))

    def forward(self, x):
        x = x + F.relu(self.group(x) + x)
        x = x + torch.matmul(F.gelu(self.layer(x) * 2), self.weight)
        return x + (self.rms(x.flatten(0, 1)).view_as(x) - x).sigmoid(), F.relu(self.layer(x))


def run(model, x, steps=2):
    out = []
    for _ in range(steps):
        model.zero_grad(set_to_none=True)
        x = x.detach().requires_grad_()
        results = model(x)
        results = results if isinstance(results, tuple) else (results,)
        sum((r * r.detach().cos()).sum() for r in results).backward()
        out += [*results, x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]
    return [t.detach().float().cpu() for t in [*out, *model.buffers()]]


@pytest.mark.parametrize("layout", ["rows", "channels_last", "one_image"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16], ids=lambda d: str(d).removeprefix("torch.")
)
@pytest.mark.parametrize("kind", [Residual, Branches, ReadElsewhere, First, Lines], ids=lambda k: k.__name__)
def test_values_and_gradients_are_eager_s(kind, dtype, layout):
    torch.manual_seed(1)
    model = kind(4).to(dtype)
    x = torch.randn(1 if layout == "one_image" else 6, 4, 9, 5, dtype=dtype)
    if layout == "channels_last":
        x, model = x.to(memory_format=torch.channels_last), model.to(memory_format=torch.channels_last)
    want = run(
        copy.deepcopy(model).float() if dtype == torch.bfloat16 else copy.deepcopy(model),
        x.float() if dtype == torch.bfloat16 else x,
    )
    got = run(copy.deepcopy(model).to(DEVICE), x.to(DEVICE))
    if (
        dtype == torch.bfloat16
    ):  # about as far from f32 as eager is: a rounding decides which elements ReLU lets through
        eager = run(model, x)
        for g, e, w in zip(got, eager, want, strict=True):
            assert (g - w).norm() <= 1.5 * (e - w).norm() + 0.3 * w.norm() + 1e-3
        return
    tolerance = {torch.float32: 2e-4, torch.float64: 1e-6}[dtype]
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance * max(1, w.abs().max().item()))


def test_values_are_safe_where_a_channel_has_two_halves():
    """The gradient's elements then take as many bytes as the statistics, in whose place they must not be."""
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()
    )
    x = torch.randn(2, 8)
    want = run(copy.deepcopy(model), x)
    got = run(copy.deepcopy(model).to(DEVICE), x.to(DEVICE))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-3 * max(1, w.abs().max().item()))
