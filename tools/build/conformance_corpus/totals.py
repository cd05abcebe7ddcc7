"""Reductions: means, products, extremes, truth, norms; over all, along dims, kept and not, of odd values."""

import math

import torch
from conformance_corpus.corpus import Corpus, distinct, grid, permuted

INF, NAN = math.inf, math.nan
DIMS = {"first": [0], "last": [2], "outer": [0, 2], "all": [0, 1, 2]}


def make(folder):
    c = Corpus("totals", "Reductions, over all and along dims.")
    cube, i = grid(2, 3, 4), torch.tensor([[3, -2, 7], [5, 11, -4]])
    tiny = grid(2, 3, 4, positive=True).clamp(max=1.5)
    flags = torch.tensor([[True, False, True], [True, True, True]])
    odd = torch.tensor([[1.0, NAN, 2.0], [INF, 3.0, -1.0], [-INF, 0.5, INF]])
    one = grid(1)

    c.case("mean", "aten::mean", [cube, None], lambda x, t: x.mean(), terms=64)
    c.case("mean_f64", "aten::mean", [cube.double(), None], lambda x, t: x.mean(), terms=64)
    c.case("mean_of_one", "aten::mean", [one, None], lambda x, t: x.mean())
    c.case("mean_strided", "aten::mean", [permuted(grid(3, 5)), None], lambda x, t: x.mean(), terms=64)
    for tag, dims in DIMS.items():
        for keep in (False, True):
            c.case(
                f"mean_{tag}{'_kept' if keep else ''}",
                "aten::mean.dim",
                [cube, dims, keep, None],
                lambda x, d, k, t: x.mean(d, keepdim=k),
                terms=64,
            )
    c.case(
        "mean_odd", "aten::mean.dim", [odd, [1], False, None], lambda x, d, k, t: x.mean(d, keepdim=k), rel=4
    )

    c.case("prod", "aten::prod", [tiny, None], lambda x, t: x.prod(), rel=32)
    c.case("prod_i64", "aten::prod", [i, None], lambda x, t: x.prod(), exact=True)
    c.case("prod_of_bools", "aten::prod", [flags, None], lambda x, t: x.prod(), exact=True)
    c.case("prod_of_none", "aten::prod", [grid(0), None], lambda x, t: x.prod(), exact=True)
    for dim in (0, 1):
        for keep in (False, True):
            tag = f"{dim}{'_kept' if keep else ''}"
            rest = [dim, keep, None]
            c.case(
                f"prod_{tag}", "aten::prod.dim_int", [tiny, *rest], lambda x, d, k, t: x.prod(d, k), rel=16
            )
            c.case(
                f"prod_i64_{tag}",
                "aten::prod.dim_int",
                [i, *rest],
                lambda x, d, k, t: x.prod(d, k),
                exact=True,
            )
    c.case("prod_odd", "aten::prod.dim_int", [odd, 1, False, None], lambda x, d, k, t: x.prod(d, k), rel=4)

    for name in ("amin", "amax"):
        call = getattr(torch, name)
        for tag, dims in {**DIMS, "none": []}.items():
            for keep in (False, True):
                c.case(
                    f"{name}_{tag}{'_kept' if keep else ''}",
                    f"aten::{name}",
                    [cube, dims, keep],
                    call,
                    exact=True,
                )
        c.case(f"{name}_odd", f"aten::{name}", [odd, [1], False], call, exact=True)
        c.case(f"{name}_i64", f"aten::{name}", [i, [0], False], call, exact=True)
        c.case(f"{name}_strided", f"aten::{name}", [permuted(grid(3, 5)), [1], False], call, exact=True)
    for name in ("max", "min"):
        call = getattr(torch, name)
        c.case(name, f"aten::{name}", [cube], call, exact=True)
        c.case(f"{name}_odd", f"aten::{name}", [odd], call, exact=True)
        c.case(f"{name}_i64", f"aten::{name}", [i], call, exact=True)
        c.case(f"{name}_of_lowest", f"aten::{name}", [torch.tensor([-INF, -INF])], call, exact=True)

    some = torch.tensor([[[0.0, 0.0], [0.5, 0.0]], [[1.0, -1.0], [NAN, 2.0]]])
    for name in ("any", "all"):
        call = getattr(torch, name)
        for tag, v in (("", some), ("_bool", flags), ("_i64", i - 3), ("_of_none", grid(0))):
            c.case(f"{name}{tag}", f"aten::{name}", [v], call, exact=True)
        for dim in (0, 1):
            for keep in (False, True):
                tag = f"{dim}{'_kept' if keep else ''}"
                c.case(f"{name}_{tag}", f"aten::{name}.dim", [some, dim, keep], call, exact=True)
                c.case(f"{name}_bool_{tag}", f"aten::{name}.dim", [flags, dim, keep], call, exact=True)
        for tag, dims in (("outer", [0, 2]), ("every", None)):
            for keep in (False, True):
                c.case(
                    f"{name}_dims_{tag}{'_kept' if keep else ''}",
                    f"aten::{name}.dims",
                    [some, dims, keep],
                    lambda x, d, k, f=call: f(x, dim=d, keepdim=k),
                    exact=True,
                )

    far = distinct(3, 4)
    orders = {"0": 0.0, "1": 1.0, "2": 2.0, "3": 3.0, "half": 0.5, "inf": INF, "minf": -INF}
    for tag, p in orders.items():
        rel = 32 if p == 0.5 else 16
        c.case(
            f"norm_{tag}", "aten::norm.Scalar", [far, p], lambda x, q: torch.linalg.vector_norm(x, q), rel=rel
        )
        c.case(
            f"norm_dim_{tag}",
            "aten::norm.ScalarOpt_dim",
            [far, p, [1], False],
            lambda x, q, d, k: torch.linalg.vector_norm(x, q, d, k),
            rel=rel,
        )
        c.case(
            f"vector_norm_{tag}",
            "aten::linalg_vector_norm",
            [far, p, [0], True, None],
            lambda x, q, d, k, t: torch.linalg.vector_norm(x, q, d, k),
            rel=rel,
        )
    c.case(
        "norm_default",
        "aten::norm.ScalarOpt_dim",
        [far, None, [0, 1], True],
        lambda x, q, d, k: torch.linalg.vector_norm(x, 2, d, k),
        rel=16,
    )
    c.case(
        "vector_norm_all",
        "aten::linalg_vector_norm",
        [cube, 2.0, None, False, None],
        lambda x, q, d, k, t: torch.linalg.vector_norm(x),
        rel=16,
    )
    for name, op, p in (
        ("norm_as_f64", "norm.ScalarOpt_dim_dtype", 2.0),
        ("vector_norm_as_f64", "linalg_vector_norm", 1.0),
    ):
        c.case(
            name,
            f"aten::{op}",
            [far, p, [1], False, torch.float64],
            lambda x, q, d, k, t: [(torch.linalg.vector_norm(x, q, d, k), t)],
            rel=16,
        )
    c.write(folder)
