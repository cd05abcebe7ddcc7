"""Pointwise operators behind a matrix product, which may be computed with it: values are eager's, also of what others read."""

import lazyt  # noqa: F401
import pytest
import torch
import torch.nn.functional as F

DEVICE = "lazyt"

pytestmark = pytest.mark.usefixtures("no_islands")


def residual(x, w, b, y):
    """A reshape between the product and what reads it; the addend is read elsewhere, too."""
    start = torch.layer_norm(y * 2, y.shape[-1:])
    return start + F.linear(x, w, b).view_as(y), start


def activation(x, w, b, y):
    """The product is read by the gradient's formula as well, which comes later."""
    h = F.linear(x, w, b)
    return torch.mm(F.gelu(h), w), h.flatten().cumsum(0)


def several(x, w, b, y):
    h = F.linear(x, w, b)
    return h.relu() * 2, h.sigmoid() + y.view_as(h), h.t()


def broadcast(x, w, b, y):
    h = F.linear(x, w)
    return (h * b + b.sum()).clamp(min=0).view_as(y).transpose(0, 1)


def wider(x, w, b, y):
    return (F.linear(x, w).double() + 1) ** 2, F.linear(x, w) > b


def again(x, w, b, y):
    h = torch.addmm(b, x, w.t())
    z = (h * h + h).view_as(y)
    return z.sigmoid() if z.dtype == torch.bfloat16 else z.exp()  # exp makes one rounding of a half a fourth of the result


def in_place(x, w, b, y):
    z = y.clone()
    z += F.linear(x, w).view_as(z)
    z.mul_(2)
    return z


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("rows,k", [(1, 9), (6, 40), (36, 1024)])  # one row; some; sums that are cut
@pytest.mark.parametrize("function", [residual, activation, several, broadcast, wider, again, in_place], ids=lambda f: f.__name__)
def test_values_are_eager_s(function, rows, k, dtype):
    torch.manual_seed(k)
    x, w, b, y = torch.randn(rows, k), torch.randn(20, k) / k**0.5, torch.randn(20), torch.randn(rows // 2 or 1, 2 if rows > 1 else 1, 20)
    operands = [t.to(dtype) for t in (x, w, b, y)]
    want, got = function(*operands), function(*(t.to(DEVICE) for t in operands))
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.05}[dtype]
    for w_, g in zip(*((r if isinstance(r, tuple) else (r,)) for r in (want, got)), strict=True):
        assert g.dtype == w_.dtype
        if w_.dtype == torch.bool:
            assert (g.cpu() != w_).float().mean() <= (0.05 if dtype == torch.bfloat16 else 0)
        else:
            torch.testing.assert_close(g.cpu(), w_, rtol=tolerance, atol=tolerance * max(1, w_.abs().max().item()))


def test_gradients_behind_products_are_eager_s():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[m for _ in range(3) for m in (torch.nn.Linear(24, 24), torch.nn.ReLU(), torch.nn.Linear(24, 24), torch.nn.GELU())])
    x = torch.randn(10, 24)
    model(x).square().mean().backward()
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.to(DEVICE)
    model(x.to(DEVICE)).square().mean().backward()
    for w, p in zip(want, model.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), w, rtol=1e-5, atol=1e-7)
