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


def attended(q, k, v, **options):
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, **options)
    (y.float() * torch.arange(y.shape[-1], device=y.device)).sum().backward()
    return [t.detach().cpu().float() for t in (y, q.grad, k.grad, v.grad)]


TILES = {
    "more than a tile, whole packs": (torch.float32, (1, 2, 70, 64), 70, 64, {"is_causal": True}),
    "more queries than keys, causal": (torch.float32, (1, 2, 70, 16), 45, 16, {"is_causal": True}),
    "fewer queries than keys, causal": (torch.float32, (1, 2, 45, 16), 70, 24, {"is_causal": True}),
    "more keys than a tile, causal": (torch.float32, (1, 3, 301, 16), 290, 16, {"is_causal": True}),
    "doubles, causal": (torch.float64, (2, 2, 71, 18), 71, 18, {"is_causal": True}),
    "no whole packs": (torch.float32, (1, 1, 37, 10), 41, 10, {}),
    "one element": (torch.float32, (2, 1, 5, 1), 3, 1, {}),
    "wide heads": (torch.float32, (1, 1, 19, 200), 33, 200, {}),
    "very wide heads": (torch.float32, (1, 1, 9, 520), 11, 520, {}),
    "values of another width": (torch.float32, (1, 2, 35, 24), 34, 40, {}),
    "halves": (torch.bfloat16, (1, 2, 40, 32), 40, 32, {"is_causal": True}),
    "doubles": (torch.float64, (1, 2, 40, 18), 33, 18, {}),
    "a mask": (torch.float32, (1, 2, 40, 16), 33, 16, {"attn_mask": True}),
}


@pytest.mark.parametrize("case", list(TILES))
def test_tiles_of_attention_are_eager_s(case):
    dtype, of_queries, keys, width, options = TILES[case]
    torch.manual_seed(3)
    q = torch.randn(of_queries, dtype=dtype)
    k = torch.randn(*of_queries[:2], keys, of_queries[3], dtype=dtype)
    v = torch.randn(*of_queries[:2], keys, width, dtype=dtype)
    if "attn_mask" in options:
        options = {"attn_mask": torch.rand(of_queries[2], keys) < 0.8}
    wanted = attended(q, k, v, **options)
    moved = {n: o.to(DEVICE) if isinstance(o, torch.Tensor) else o for n, o in options.items()}
    got = attended(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE), **moved)
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-4
    for w, g in zip(wanted, got, strict=True):
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance * max(1, w.abs().max().item()))


def test_attention_of_tensors_at_odd_addresses_is_eager_s():
    """Rows of whole packs that begin one element behind a whole pack's address."""
    torch.manual_seed(3)
    flat = [torch.randn(2 * 40 * 16 + 1) for _ in range(3)]

    def all_of(device):
        return attended(*(t.to(device)[1:].view(1, 2, 40, 16) for t in flat), is_causal=True)

    for w, g in zip(all_of("cpu"), all_of(DEVICE), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4 * max(1, w.abs().max().item()))
