"""Elementary functions, activations and their gradients, losses, indexing."""

import torch
from conformance_corpus.corpus import Corpus, grid, permuted


def make(folder):
    c = Corpus("functions", "Elementary functions, activations and their gradients, losses, indexing.")
    aten = torch.ops.aten
    a, b, g = grid(3, 5), grid(3, 5), grid(3, 5)
    pos, inner = grid(3, 5, positive=True), grid(3, 5, scale=0.25)
    rounding = ["abs", "sign", "sgn", "floor", "ceil", "round", "trunc", "frac", "square", "isnan", "isinf"]
    smooth = [
        "exp2",
        "expm1",
        "sin",
        "cos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "sigmoid",
        "erf",
        "erfc",
        "silu",
        "mish",
    ]
    for name in [*rounding, *smooth, "relu6", "hardswish", "hardsigmoid"]:
        c.case(name, f"aten::{name}", [a], getattr(aten, name), rel=8, terms=2)
    for name in ["log", "log2", "log10", "log1p", "rsqrt", "reciprocal"]:
        c.case(name, f"aten::{name}", [pos], getattr(aten, name), rel=8, terms=2)
    for name in ["asin", "acos", "atanh", "erfinv"]:
        c.case(name, f"aten::{name}", [inner], getattr(aten, name), rel=8, terms=2)
    for name in ["maximum", "minimum", "fmax", "fmin"]:
        c.case(name, f"aten::{name}", [a, b], getattr(aten, name), exact=True)
    for name in ["hypot", "atan2"]:
        c.case(name, f"aten::{name}", [a, b], getattr(aten, name), rel=8, terms=2)
    for name in ["eq", "ne", "lt", "le", "gt", "ge"]:
        c.case(name, f"aten::{name}.Tensor", [a, a.flip(0).contiguous()], getattr(aten, name), exact=True)
    c.case("where", "aten::where.self", [a > 0, a, b], torch.where, exact=True)
    for name in ["sigmoid_backward", "tanh_backward"]:
        c.case(name, f"aten::{name}", [g, inner], getattr(aten, name), rel=8, terms=2)
    c.case("silu_backward", "aten::silu_backward", [g, a], aten.silu_backward, rel=8, terms=8)
    for reduction, name in enumerate(("none", "mean", "sum")):
        gout = grid(3, 5) if reduction == 0 else grid()
        c.case(f"mse_loss_{name}", "aten::mse_loss", [a, b, reduction], aten.mse_loss, rel=4, terms=256)
        c.case(
            f"mse_loss_backward_{name}",
            "aten::mse_loss_backward",
            [gout, a, b, reduction],
            aten.mse_loss_backward,
            rel=8,
            terms=8,
        )
        for loss in ("smooth_l1_loss", "huber_loss"):
            c.case(
                f"{loss}_{name}",
                f"aten::{loss}",
                [a, b, reduction, 0.5],
                getattr(aten, loss),
                rel=4,
                terms=256,
            )
            c.case(
                f"{loss}_backward_{name}",
                f"aten::{loss}_backward",
                [gout, a, b, reduction, 0.5],
                getattr(aten, loss + "_backward"),
                rel=8,
                terms=8,
            )
        p, t = inner.abs() + 0.125, (b > 0).float()
        c.case(
            f"bce_{name}",
            "aten::binary_cross_entropy",
            [p, t, None, reduction],
            aten.binary_cross_entropy,
            rel=8,
            terms=256,
        )
        c.case(
            f"bce_with_logits_{name}",
            "aten::binary_cross_entropy_with_logits",
            [a, t, pos, None, reduction],
            aten.binary_cross_entropy_with_logits,
            rel=8,
            terms=256,
        )
    table, places = grid(6, 4), torch.tensor([[0, 5], [3, 3]])
    c.case("embedding", "aten::embedding", [table, places, -1, False, False], aten.embedding, exact=True)
    c.case(
        "embedding_backward",
        "aten::embedding_dense_backward",
        [grid(2, 2, 4), places, 6, -1, False],
        aten.embedding_dense_backward,
        terms=8,
    )
    for dim, index in ((0, torch.tensor([5, 0, 5])), (1, torch.tensor([3, 1]))):
        c.case(
            f"index_select_{dim}", "aten::index_select", [table, dim, index], aten.index_select, exact=True
        )
        c.case(
            f"index_select_strided_{dim}",
            "aten::index_select",
            [permuted(table), dim, index],
            aten.index_select,
            exact=True,
        )
        into = torch.randint(0, table.shape[dim], (3, 4))
        c.case(
            f"gather_{dim}",
            "aten::gather",
            [table, dim, into, False],
            lambda x, d, i, s: x.gather(d, i),
            exact=True,
        )
        c.case(
            f"scatter_add_{dim}",
            "aten::scatter_add",
            [table, dim, into, grid(3, 4)],
            aten.scatter_add,
            terms=32,
        )
        c.case(f"softmax_{dim}", "aten::_softmax", [table, dim, False], aten._softmax, rel=8, terms=2)
        c.case(f"cumsum_{dim}", "aten::cumsum", [table, dim, None], lambda x, d, t: x.cumsum(d), terms=16)
        c.case(
            f"argmax_{dim}",
            "aten::argmax",
            [torch.randperm(24).reshape(6, 4).float(), dim, False],
            aten.argmax,
            exact=True,
        )
    w = grid(4, positive=True)
    c.case(
        "layer_norm",
        "aten::native_layer_norm",
        [table, [4], w, w, 1e-5],
        lambda *p: list(aten.native_layer_norm(*p)),
        rel=16,
        terms=64,
    )
    c.write(folder)
