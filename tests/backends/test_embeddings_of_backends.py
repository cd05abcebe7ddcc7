"""Embeddings whose rows their reader's kernel may look up, and their gradients: values are eager's."""

import copy

import lazyt  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "lazyt"

pytestmark = pytest.mark.usefixtures("no_islands")


class Model(nn.Module):
    def __init__(self, width=24, context=12):
        super().__init__()
        self.tokens, self.places, self.kinds = (
            nn.Embedding(30, width),
            nn.Embedding(context, width),
            nn.Embedding(2, width, padding_idx=0),
        )
        self.norm = nn.LayerNorm(width)


def tokens_and_places(m, ids):
    return m.norm(m.tokens(ids) + m.places(torch.arange(ids.shape[1], device=ids.device)))


def part_of_the_places(m, ids):
    start = torch.arange(3, 3 + ids.shape[1], device=ids.device)
    return m.tokens(ids) * 2 + m.places(start.unsqueeze(0)), start


def steps(m, ids):
    every = torch.arange(1, 1 + 2 * ids.shape[1], 2, device=ids.device)
    return (m.places(every) * 3).sum(1) + m.tokens(ids).sum((0, 2))


def three(m, ids):
    x = m.tokens(ids) + m.kinds(ids % 2) + m.places(torch.arange(ids.shape[1], device=ids.device)[None])
    return F.gelu(m.norm(x)).sum((0, 1)), x


def read_by_several(m, ids):
    x = m.tokens(ids)
    return x * x, x.sum(-1), m.norm(m.places(ids % 5)), m.kinds(ids % 2).relu() + 1


def behind_a_product(m, ids):
    x = torch.mm(m.tokens.weight[:4], m.norm.weight[:, None] + m.norm.bias) / len(m.norm.weight)
    return x * 2 + m.places(ids.flatten()[:4] % 5)


def indices_lie_apart(m, ids):
    return m.tokens(ids.t()) + m.places(ids.t()[:1] % 5), m.tokens(ids.int()) - 1, m.tokens(ids[0, 0]).exp()


def transposed_weight(m, ids):
    w = m.tokens.weight.t().contiguous().t()
    return F.embedding(ids, w) + F.embedding(ids[:1], w[::2][:15] if ids.max() < 15 else w)


BODIES = [
    tokens_and_places,
    part_of_the_places,
    steps,
    three,
    read_by_several,
    indices_lie_apart,
    behind_a_product,
    transposed_weight,
]


def run(m, ids, body, lr):
    out = []
    optimizer = torch.optim.SGD(m.parameters(), lr=lr)
    for _ in range(3):  # the rows that are read are those before the step
        optimizer.zero_grad()
        results = body(m, ids)
        results = results if isinstance(results, tuple) else (results,)
        sum((r * r.detach().cos()).sum() for r in results if r.is_floating_point()).backward()
        optimizer.step()
        out += [*results, *(p.grad for p in m.parameters() if p.grad is not None)]
    return [t.detach().cpu().double() for t in [*out, *m.parameters()]]


@pytest.mark.parametrize("width", [24, 7, 320])
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_values_and_gradients_are_eager_s(body, width):
    torch.manual_seed(width)
    ids = torch.randint(30, (3, 5))
    m = Model(width)
    want = run(copy.deepcopy(m), ids, body, 1e-3)
    got = run(copy.deepcopy(m).to(DEVICE), ids.to(DEVICE), body, 1e-3)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4 * max(1, w.abs().max().item()))


@pytest.mark.parametrize("context", [5, 12])
def test_many_rows_in_halves(context):
    torch.manual_seed(1)
    m = Model(512, context).to(torch.bfloat16)
    ids = torch.randint(30, (80, 5))
    body = lambda m, ids: m.tokens(ids) + m.places(torch.arange(5, device=ids.device)) * 3  # noqa: E731
    got, want = body(copy.deepcopy(m).to(DEVICE), ids.to(DEVICE)), body(m, ids)
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0)


@pytest.mark.parametrize("bad", [30, -1])
def test_an_index_out_of_range_is_an_error(bad):
    m = Model().to(DEVICE)
    ids = torch.tensor([[1, bad, 2]]).to(DEVICE)
    with pytest.raises((IndexError, RuntimeError), match="index out of range in self"):
        (m.tokens(ids) + 1).cpu()
    with pytest.raises((IndexError, RuntimeError), match="index out of range in self"):
        (m.places(torch.arange(13, device=DEVICE)) + 1).cpu()
    with pytest.raises((IndexError, RuntimeError), match="index out of range in self"):
        m.places(torch.arange(13, device=DEVICE)).mul(2).sum().backward()
        m.places.weight.grad.cpu()
