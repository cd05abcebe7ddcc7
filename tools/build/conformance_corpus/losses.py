"""Losses over images, and of probabilities."""

import torch
from conformance_corpus.corpus import Corpus, grid, listed


def make(folder):
    c = Corpus("losses", "Losses over images, and of probabilities.")
    aten = torch.ops.aten
    x, target, weight = grid(2, 3, 4, 5), torch.randint(0, 3, (2, 4, 5)), grid(3, positive=True)
    target[0, 0] = -100
    for reduction, name in enumerate(("none", "mean", "sum")):
        for tag, w in (("", None), ("_weighted", weight)):
            c.case(
                f"nll_loss2d_{name}{tag}",
                "aten::nll_loss2d_forward",
                [x, target, w, reduction, -100],
                listed(aten.nll_loss2d_forward),
                rel=4,
                terms=256,
            )
            wide = None if w is None else w.double()
            loss, total = aten.nll_loss2d_forward(x.double(), target, wide, reduction, -100)
            c.case(
                f"nll_loss2d_backward_{name}{tag}",
                "aten::nll_loss2d_backward",
                [grid(*loss.shape), x, target, w, reduction, -100, total.float()],
                aten.nll_loss2d_backward,
                rel=8,
            )
        p, t = grid(3, 5, scale=0.2, positive=True), (grid(3, 5) > 0).float()
        gout = grid(3, 5) if reduction == 0 else grid()
        c.case(
            f"bce_backward_{name}",
            "aten::binary_cross_entropy_backward",
            [gout, p, t, grid(3, 5, positive=True), reduction],
            aten.binary_cross_entropy_backward,
            rel=16,
            terms=16,
        )
    c.write(folder)
