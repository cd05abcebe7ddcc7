"""Scaled dot product attention and its backward."""

import math

import torch
from conformance_corpus.corpus import Corpus, grid


def forward(q, k, v, p, causal, m, scale):
    scores = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    scores = scores if m is None else scores + m
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    return [torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)]


def with_weights(q, k, v, m, p, causal, dropped, scale, gqa):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    weights = torch.softmax(scores, -1)
    return [weights @ v, weights]


def gradients(g, q, k, v, out, lse, p, causal, m, scale):
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    with torch.enable_grad():
        y = forward(*leaves, p, causal, m, scale)[0]
    return list(torch.autograd.grad(y, leaves, g))


def flash(c, tag, heads, n, s, e, kinds):
    q, k, v = grid(*heads, n, e), grid(*heads, s, e), grid(*heads, s, e)
    g = grid(*heads, n, e)
    mask = grid(1, 1, n, s)
    for kind, causal, m in (("", False, None), ("_causal", True, None), ("_mask", False, mask))[:kinds]:
        c.case(
            f"flash_{tag}{kind}",
            "aten::_scaled_dot_product_flash_attention_for_cpu",
            [q, k, v, 0.0, causal, m, None],
            forward,
            rel=64,
            terms=64,
        )
        m64 = None if m is None else m.double()
        out, lse = forward(q.double(), k.double(), v.double(), 0.0, causal, m64, None)
        c.case(
            f"flash_backward_{tag}{kind}",
            "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
            [g, q, k, v, out.float(), lse.float(), 0.0, causal, m, None],
            gradients,
            rel=128,
            terms=1024,
        )


def make(folder):
    c = Corpus("attention", "Scaled dot product attention and its backward.", digits=9)
    flash(c, "small", (2, 3), 5, 7, 4, kinds=3)
    flash(c, "tiles", (1, 1), 70, 40, 5, kinds=2)
    flash(c, "wide", (1, 1), 5, 6, 136, kinds=1)
    q, k, v = grid(1, 4, 6, 5), grid(1, 2, 8, 5), grid(1, 2, 8, 3)
    c.case(
        "grouped_heads",
        "aten::scaled_dot_product_attention",
        [q, k, v, None, 0.0, False, 0.5, True],
        lambda q, k, v, m, p, causal, scale, gqa: (
            torch.softmax(q @ k.repeat_interleave(2, 1).transpose(-1, -2) * scale, -1)
            @ v.repeat_interleave(2, 1)
        ),
        rel=64,
        terms=64,
    )
    q, k, v = grid(2, 6, 5), grid(2, 8, 5), grid(2, 8, 5)
    seen = torch.rand(6, 8) > 0.3
    seen[2] = False
    c.case(
        "bool_mask",
        "aten::scaled_dot_product_attention",
        [q, k, v, seen, 0.0, False, None, False],
        lambda q, k, v, m, p, causal, scale, gqa: (
            torch.softmax((q @ k.transpose(-1, -2) / math.sqrt(5)).masked_fill(~m, -math.inf), -1) @ v
        ).nan_to_num(0.0),
        rel=64,
        terms=64,
    )
    with torch.random.fork_rng():  # came later: the areas behind draw what they drew
        flash(c, "one_query", (1, 1), 1, 300, 4, kinds=1)
        flash(c, "odd_widths", (1, 1), 12, 35, 40, kinds=1)
        for tag, causal in (("", False), ("_causal", True)):
            c.case(
                f"math{tag}",
                "aten::_scaled_dot_product_attention_math",
                [grid(2, 3, 4), grid(2, 5, 4), grid(2, 5, 6), None, 0.0, causal, None, None, False],
                with_weights,
                rel=64,
                terms=64,
            )
    c.write(folder)
