"""Sums, and what is made of them."""

import torch
from conformance_corpus.corpus import Corpus, grid, permuted


def make(folder):
    c = Corpus("reductions", "Sums, and what is made of them.")
    a, cube, logits = grid(3, 5), grid(2, 3, 4), grid(4, 7)
    c.case(
        "sum_dims",
        "aten::sum.dim_IntList",
        [cube, [0, 2], False, None],
        lambda x, d, k, t: x.sum(d),
        terms=8 * 16,
    )
    c.case(
        "sum_keepdim",
        "aten::sum.dim_IntList",
        [a, [1], True, None],
        lambda x, d, k, t: x.sum(d, keepdim=True),
        terms=5 * 10,
    )
    c.case(
        "sum_strided",
        "aten::sum.dim_IntList",
        [permuted(a), [0], False, None],
        lambda x, d, k, t: x.sum(d),
        terms=3 * 6,
    )
    c.case(
        "sum_empty",
        "aten::sum.dim_IntList",
        [grid(0, 3), [0], False, None],
        lambda x, d, k, t: x.sum(d),
        exact=True,
    )
    soft = torch.log_softmax(logits.double(), 1).float()
    c.case(
        "log_softmax",
        "aten::_log_softmax",
        [logits, 1, False],
        lambda x, d, h: torch.log_softmax(x, d),
        rel=8,
        terms=8,
    )
    large = logits * 40
    c.case(
        "log_softmax_large",
        "aten::_log_softmax",
        [large, 1, False],
        lambda x, d, h: torch.log_softmax(x, d),
        rel=8,
        terms=160,
    )
    grad = grid(4, 7)
    c.case(
        "log_softmax_backward",
        "aten::_log_softmax_backward_data",
        [grad, soft, 1, torch.float32],
        lambda g, o, d, t: g - o.exp() * g.sum(d, keepdim=True),
        rel=8,
        terms=128,
    )
    labels = torch.tensor([0, 3, 6, 3])
    weight = grid(7, positive=True)
    for name, w, reduction, ignore in (
        ("mean", None, 1, -100),
        ("sum", None, 2, -100),
        ("none", None, 0, -100),
        ("ignored", None, 1, 3),
        ("weighted", weight, 1, -100),
    ):

        def forward(x, t, ww, r, i):
            return list(torch.ops.aten.nll_loss_forward(x, t, ww, r, i))

        c.case(
            f"nll_loss_{name}",
            "aten::nll_loss_forward",
            [soft, labels, w, reduction, ignore],
            forward,
            rel=4,
            terms=64,
        )
        wide = None if w is None else w.double()
        loss, total = torch.ops.aten.nll_loss_forward(soft.double(), labels, wide, reduction, ignore)
        gout, total = grid(*loss.shape, positive=True), total.float()

        def backward(g, x, t, ww, r, i, tw):
            return torch.ops.aten.nll_loss_backward(g, x, t, ww, r, i, tw)

        c.case(
            f"nll_loss_backward_{name}",
            "aten::nll_loss_backward",
            [gout, soft, labels, w, reduction, ignore, total],
            backward,
            rel=8,
        )
    c.write(folder)
