"""Pointwise operators behind a convolution or a pool, which may be computed with it: values are eager's."""

import copy

import lazyt
import pytest
import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "lazyt"


@pytest.fixture(autouse=True)
def no_islands(request):
    lazyt.metrics.reset()
    yield
    islands = {"aten::_local_scalar_dense"}
    if lazyt.backend()["name"] == "onednn" and "float64" in request.node.name:  # oneDNN convolves none
        islands |= {"aten::convolution", "aten::convolution_backward"}
    assert set(lazyt.metrics.fallbacks()) <= islands


class Activations(nn.Module):
    """ReLU behind each, so its gradient stands behind theirs; one that is read elsewhere, too."""

    def __init__(self, c):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1, groups=g) for g in (1, 2, 1))
        self.up = nn.ConvTranspose2d(c, c, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        x = F.relu(self.convs[0](x))
        y = F.silu(self.convs[1](x)) + x
        z = F.relu(self.up(F.max_pool2d(y, 2) * 2))
        return F.relu(self.convs[2](z)), z.sum((2, 3)), y.flatten(1).cumsum(1)


class Pools(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 1)

    def forward(self, x):
        y, places = F.max_pool2d(self.conv(x).tanh(), 3, 2, 1, return_indices=True)
        z = torch.sigmoid(y) + places.to(y.dtype) / 100
        w = F.avg_pool2d(torch.relu(x), 2).exp()
        return z, F.adaptive_avg_pool2d(w, 3) * 2 + 1, F.adaptive_max_pool2d(z.detach(), 2).clamp(max=1)


class Residual(nn.Module):
    """The sum of gradients of two branches and the norm in evaluation, behind convolutions."""

    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2, self.skip = (nn.Conv2d(c, c, k, padding=k // 2) for k in (3, 3, 1))
        self.norm = nn.BatchNorm2d(c).eval()
        self.norm.running_mean.uniform_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = F.relu(x)
        x = F.relu(self.norm(self.conv2(F.relu(self.conv1(x)))) + self.skip(x))
        return F.relu(self.norm(self.conv1(x)) + x).flatten(1)


class Shapes(nn.Module):
    """What follows has other dims, other strides, another type, or operands that come later."""

    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3)

    def forward(self, x):
        y = self.conv(x)
        a = y.flatten(1).relu()
        b = self.conv(x * 2).transpose(1, 2) * 3
        c = self.conv(x * 3).double().add(1).to(y.dtype)
        d = self.conv(x * 4) * y.sum((0, 2, 3), keepdim=True)
        return a, b, c, d, self.conv(x[:0]).relu()


def run(model, x):
    out = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        x = x.detach().requires_grad_()
        results = model(x)
        results = results if isinstance(results, tuple) else (results,)
        sum((r * r.detach().cos()).sum() for r in results).backward()
        out += [*results, x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]
    return [t.detach().cpu().double() for t in out]


@pytest.mark.parametrize("layout", ["rows", "channels_last", "one_image"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("kind", [Activations, Pools, Residual, Shapes], ids=lambda k: k.__name__)
def test_values_and_gradients_are_eager_s(kind, dtype, layout):
    torch.manual_seed(3)
    model = kind(4).to(dtype)
    x = torch.randn(1 if layout == "one_image" else 3, 4, 10, 6, dtype=dtype)
    if layout == "channels_last":
        x, model = x.to(memory_format=torch.channels_last), model.to(memory_format=torch.channels_last)
    want = run(copy.deepcopy(model), x)
    got = run(copy.deepcopy(model).to(DEVICE), x.to(DEVICE))
    tolerance = 2e-4 if dtype == torch.float32 else 1e-9
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(
            g, w, rtol=tolerance, atol=tolerance * max([1, *w.abs().flatten().tolist()])
        )


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16], ids=lambda d: str(d).removeprefix("torch.")
)
def test_halves_are_rounded_after_each_operator(dtype):
    torch.manual_seed(4)
    x, w = (
        torch.randint(-3, 4, shape).to(dtype) for shape in ((2, 3, 8, 8), (5, 3, 3, 3))
    )  # sums without rounding

    def results(x, w):
        return [
            F.conv2d(x, w).div(3).mul(7).relu(),
            F.max_pool2d(x, 2).div(3).mul(7),
            F.avg_pool2d(x, 2).add(0.1).mul(3),
        ]

    for got, want in zip(results(x.to(DEVICE), w.to(DEVICE)), results(x, w), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0)


@pytest.mark.parametrize(
    "made", [F.linear, F.conv2d, lambda x, w: F.max_pool2d(x, 1)], ids=["linear", "conv", "pool"]
)
def test_dropout_is_the_same_behind_what_computes_its_operand(made):
    torch.manual_seed(5)
    x, w = torch.randn(4, 6, 6, 6).to(DEVICE), torch.randn(6, 6).to(DEVICE)
    w = w if made is F.linear else w[:, :, None, None]
    w = w.clone().requires_grad_()
    results = []
    for apart in (True, False):
        w.grad = None
        torch.manual_seed(6)
        y = made(x, w).relu()
        if apart:
            y.cpu()
        y = F.dropout(y, 0.4) * 2
        if w.requires_grad and y.requires_grad:
            y.square().sum().backward()
        results.append([y.detach().cpu(), *([w.grad.cpu()] if w.grad is not None else [])])
    for apart, together in zip(*results, strict=True):
        torch.testing.assert_close(apart, together, rtol=1e-6, atol=1e-5)
    assert 0.2 < (results[0][0] == 0).float().mean() < 0.9
