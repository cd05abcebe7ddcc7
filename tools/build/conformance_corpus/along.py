"""Along one dim or some: softmax, variances, extremes, running sums, sorting."""

import math

import torch
from conformance_corpus.corpus import Corpus, distinct, grid, listed, permuted


def make(folder):
    c = Corpus(
        "along", "Along one dim or some: softmax, variances, extremes, running sums, sorting.", digits=9
    )
    aten = torch.ops.aten
    a, cube, long, wide = grid(3, 5), grid(2, 3, 4), grid(1, 1100), grid(3, 40)
    many = {
        "rows": (a, 1),
        "columns": (a, 0),
        "middle": (cube, 1),
        "wide": (wide, 1),
        "long": (long, 1),
        "strided": (permuted(a), 1),
    }
    for tag, (x, d) in many.items():
        g, short = grid(*x.shape), tag != "long"
        soft = torch.softmax(x.double(), d).float()
        c.case(f"softmax_{tag}", "aten::_softmax", [x, d, False], aten._softmax, rel=32, terms=1)
        c.case(
            f"softmax_backward_{tag}",
            "aten::_softmax_backward_data",
            [g, soft, d, torch.float32],
            lambda g, y, d, t: (g - (g * y).sum(d, keepdim=True)) * y,
            rel=8,
            terms=32,
        )
        c.case(f"log_softmax_{tag}", "aten::_log_softmax", [x, d, False], aten._log_softmax, rel=16, terms=32)
        c.case(f"logsumexp_{tag}", "aten::logsumexp", [x, [d], False], aten.logsumexp, rel=16, terms=8)
        c.case(
            f"var_{tag}",
            "aten::var.correction",
            [x, [d], 1, True],
            lambda x, d, k, keep: x.var(d, correction=k, keepdim=keep),
            rel=16,
            terms=8,
        )
        c.case(
            f"cumsum_{tag}",
            "aten::cumsum",
            [x, d, None],
            lambda x, d, t: x.cumsum(d),
            rel=4,
            terms=4 * x.shape[d],
        )
        for name in ("cummax", "cummin") if short else ():
            c.case(
                f"{name}_{tag}",
                f"aten::{name}",
                [x, d],
                listed(getattr(aten, name)),
                exact=True,
            )
        unequal = distinct(*x.shape)
        for name in ("argmax", "argmin"):
            c.case(f"{name}_{tag}", f"aten::{name}", [unequal, d, False], getattr(aten, name), exact=True)
        for name in ("max", "min") if short else ():
            c.case(
                f"{name}_dim_{tag}",
                f"aten::{name}.dim",
                [unequal, d, True],
                listed(getattr(aten, name).dim),
                exact=True,
            )
        c.case(
            f"sort_{tag}",
            "aten::sort",
            [unequal, d, tag == "rows"],
            lambda x, d, down: list(torch.sort(x, d, down)),
            exact=True,
        )
        c.case(
            f"topk_{tag}",
            "aten::topk",
            [unequal, 2, d, tag != "wide", True],
            lambda x, k, d, most, s: list(torch.topk(x, k, d, most, s)),
            exact=True,
        )
    c.case(
        "softmax_infinite",
        "aten::_softmax",
        [torch.tensor([[-math.inf, 0.0, 1.0], [-math.inf] * 3, [math.nan, 0, 1]]), 1, False],
        aten._softmax,
        rel=16,
    )
    c.case("logsumexp_all", "aten::logsumexp", [cube, [0, 2], True], aten.logsumexp, rel=16, terms=8)
    c.case(
        "logsumexp_infinite",
        "aten::logsumexp",
        [torch.tensor([[-math.inf] * 2, [math.inf, 0.0], [1.0, -math.inf]]), [1], False],
        aten.logsumexp,
        rel=8,
        terms=2,
    )
    c.case(
        "std",
        "aten::std.correction",
        [cube, [0, 2], 0, False],
        lambda x, d, k, keep: x.std(d, correction=k, keepdim=keep),
        rel=16,
        terms=8,
    )
    c.case(
        "var_mean",
        "aten::var_mean.correction",
        [cube + 100, [1], 1, False],
        lambda x, d, k, keep: list(torch.var_mean(x, d, correction=k, keepdim=keep)),
        rel=16,
        terms=128,
    )
    c.case(
        "var_all",
        "aten::var.correction",
        [cube, None, 1, False],
        lambda x, d, k, keep: x.var(correction=k),
        rel=16,
        terms=8,
    )
    c.case(
        "argmax_all", "aten::argmax", [distinct(4, 300), None, False], lambda x, d, k: x.argmax(), exact=True
    )
    c.case(
        "max_dim_nan",
        "aten::max.dim",
        [torch.tensor([[1.0, math.nan, 3.0, math.nan], [2.0, 5.0, 1.0, 0.0]]), 1, False],
        lambda x, d, k: list(aten.max.dim(x, d, k)),
        exact=True,
    )
    c.case(
        "max_dim_i64",
        "aten::max.dim",
        [torch.tensor([[3, -7, 2**40], [5, 9, 1]]), 1, False],
        lambda x, d, k: list(aten.max.dim(x, d, k)),
        exact=True,
    )
    c.case(
        "aminmax", "aten::aminmax", [cube, None, False], lambda x, d, k: list(torch.aminmax(x)), exact=True
    )
    c.case(
        "aminmax_dim",
        "aten::aminmax",
        [cube, 1, True],
        lambda x, d, k: list(torch.aminmax(x, dim=d, keepdim=k)),
        exact=True,
    )
    c.case(
        "cumsum_i64",
        "aten::cumsum",
        [torch.arange(1, 601).reshape(2, 300), 1, None],
        lambda x, d, t: x.cumsum(d),
        exact=True,
    )
    c.case(
        "cumprod", "aten::cumprod", [grid(3, 9, positive=True), 1, None], lambda x, d, t: x.cumprod(d), rel=32
    )
    c.case("logcumsumexp", "aten::logcumsumexp", [wide, 1], aten.logcumsumexp, rel=32, terms=16)
    c.case(
        "logcumsumexp_infinite",
        "aten::logcumsumexp",
        [torch.tensor([-math.inf, -math.inf, 0.0, 1.0, math.inf, 2.0]), 0],
        aten.logcumsumexp,
        rel=8,
        terms=2,
    )
    c.case(
        "cummax_nan",
        "aten::cummax",
        [torch.tensor([1.0, 1.0, math.nan, 2.0, math.nan]), 0],
        lambda x, d: list(aten.cummax(x, d)),
        exact=True,
    )
    c.case(
        "sort_stable",
        "aten::sort.stable",
        [torch.tensor([[2.0, 1.0, 2.0, math.nan, 1.0, math.nan]]), True, 1, False],
        lambda x, s, d, down: list(torch.sort(x, dim=d, descending=down, stable=s)),
        exact=True,
    )
    c.case(
        "sort_stable_down",
        "aten::sort.stable",
        [torch.tensor([[2.0, 1.0, 2.0, math.nan, 1.0, math.nan]]), True, 1, True],
        lambda x, s, d, down: list(torch.sort(x, dim=d, descending=down, stable=s)),
        exact=True,
    )
    c.case(
        "sort_runs",
        "aten::sort",
        [distinct(1, 4200), 1, False],
        lambda x, d, down: list(torch.sort(x, d, down)),
        exact=True,
    )
    c.case(
        "topk_runs",
        "aten::topk",
        [distinct(2200), 7, 0, True, True],
        lambda x, k, d, most, s: list(torch.topk(x, k, d, most, s)),
        exact=True,
    )
    for name, k in (("kthvalue", [3]), ("median", [])):
        op = "aten::kthvalue" if name == "kthvalue" else "aten::median.dim"
        f = (
            (lambda x, k, d, keep: list(torch.kthvalue(x, k, d, keep)))
            if k
            else (lambda x, d, keep: list(torch.median(x, d, keep)))
        )
        c.case(name, op, [distinct(3, 7), *k, 1, False], f, exact=True)
        c.case(f"{name}_columns", op, [distinct(6, 7), *k, 0, True], f, exact=True)
        c.case(f"{name}_runs", op, [distinct(1, 2100), *k, 1, False], f, exact=True)
    c.case(
        "median_nan",
        "aten::median.dim",
        [torch.tensor([[1.0, math.nan, 3.0], [2.0, 5.0, 1.0]]), 1, False],
        lambda x, d, k: list(torch.median(x, d, k)),
        exact=True,
    )
    rows = torch.tensor([[3, -2, 7, 6, 1], [0, 5, -9, 4, 2], [-4, -1, -2, -8, -3]], dtype=torch.int32)
    c.case("cummax_rows_i32", "aten::cummax", [rows, 1], lambda x, d: list(torch.cummax(x, d)), exact=True)
    c.case(
        "max_dim_rows_i32",
        "aten::max.dim",
        [rows, 1, True],
        lambda x, d, k: list(torch.max(x, d, k)),
        exact=True,
    )
    c.case("argmin_rows_i32", "aten::argmin", [rows, 1, False], torch.argmin, exact=True)
    c.write(folder)
