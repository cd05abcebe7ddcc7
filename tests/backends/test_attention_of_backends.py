"""Attention of parts of one tensor, whose gradients may be written as one: values are eager's."""

import copy

import lazyt  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "lazyt"

pytestmark = pytest.mark.usefixtures("no_islands")


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def packed(m, x):
    q, k, v = (heads(y, 4) for y in m.first(x).split(m.width, 2))
    return joined(F.scaled_dot_product_attention(q, k, v, is_causal=True))


def keys_and_values(m, x):
    """A later part has its own elements before it; the queries come from elsewhere."""
    q, (k, v) = heads(m.second(x), 4), (heads(y, 4) for y in m.first(x)[..., : 2 * m.width].chunk(2, 2))
    return joined(F.scaled_dot_product_attention(q, k, v))


def others_read_them(m, x):
    q, k, v = m.first(x).split(m.width, 2)
    y = joined(F.scaled_dot_product_attention(heads(q, 4), heads(k, 4) * 2, heads(v, 4)))
    return y + v


def one_head(m, x):
    q, k, v = (y.unsqueeze(1) for y in m.first(x).split(m.width, 2))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)


def along_tokens(m, x):
    """The gradients are joined along another dim."""
    y = m.second(torch.cat([x, x * 2, x * 3], 1))
    q, k, v = (heads(z, 2) for z in y.split(x.shape[1], 1))
    return joined(F.scaled_dot_product_attention(q, k, v))


def heads_apart(m, x):
    """Heads come first within each row, so the gradients lie as no view of one tensor."""
    q, k, v = m.first(x).unflatten(-1, (4, -1)).transpose(1, 2).chunk(3, -1)
    return joined(F.scaled_dot_product_attention(q, k, v))


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width, self.first, self.second = width, nn.Linear(width, 3 * width), nn.Linear(width, width)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("shape", [(2, 9, 16), (1, 40, 8)], ids=str)
@pytest.mark.parametrize(
    "body",
    [packed, keys_and_values, others_read_them, one_head, along_tokens, heads_apart],
    ids=lambda f: f.__name__,
)
def test_gradients_are_eager_s(body, shape, dtype):
    torch.manual_seed(7)
    m, x, results = Model(shape[-1]).to(dtype), torch.randn(shape, dtype=dtype), []
    for device in ("cpu", DEVICE):
        moved, at = copy.deepcopy(m).to(device), x.clone().to(device).requires_grad_()
        y = body(moved, at)
        (y * y.detach().cos()).sum().backward()
        results.append(
            [t.detach().cpu() for t in (y, at.grad, *(p.grad for p in moved.parameters())) if t is not None]
        )
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    for w, g in zip(*results, strict=True):
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance * max(1, w.abs().max().item()))
