"""Pointwise operators of numbers, of integers and of bools; bounds, choices, interpolations."""

import math

import torch
from conformance_corpus.corpus import Arg, Corpus, grid, permuted

INF, NAN = math.inf, math.nan


def make(folder):
    c = Corpus("numbers", "Pointwise operators of numbers, of integers and of bools.")
    a, b, pos = grid(3, 5), grid(3, 5), grid(3, 5, positive=True)
    row = grid(5)
    i = torch.tensor([-7, -3, -2, -1, 0, 1, 2, 3, 7, 100, -100, 12])
    j = torch.tensor([2, -2, 3, -3, 5, -5, 7, 1, -1, 9, 11, -4])
    flags = torch.tensor([True, False, True, True])
    others = torch.tensor([True, True, False, True])

    c.case("sub_scalar", "aten::sub.Scalar", [a, 1.5, 1], lambda x, v, s: x - v)
    c.case("sub_scalar_alpha", "aten::sub.Scalar", [a, 1.5, 2], lambda x, v, s: x - v * s, terms=8)
    c.case("sub_scalar_i64", "aten::sub.Scalar", [i, 3, 2], lambda x, v, s: x - v * s, exact=True)

    # Division of floats as it is rounded: both sides of what a quotient could round to, and zeros.
    x = torch.tensor([5.5, -5.5, 6.0, -6.0, 0.25, -0.25, 1.0, -1.0, 0.0, 7.0, -7.0, 4.5])
    y = torch.tensor([2.0, 2.0, -3.0, 3.0, 0.5, 0.5, -0.75, 0.75, 2.0, 1.75, 1.75, -1.5])
    for mode, call in (("floor", torch.floor), ("trunc", torch.trunc)):
        text = Arg(f'"{mode}"')
        for tag, p, q in (("", x, y), ("_f64", x.double(), y.double())):
            c.case(
                f"div_{mode}{tag}",
                "aten::div.Tensor_mode",
                [p, q, text],
                lambda v, w, _, f=call: f(v / w),
                exact=True,
            )
        c.case(
            f"div_{mode}_scalar",
            "aten::div.Scalar_mode",
            [x, 0.75, text],
            lambda v, w, _, f=call: f(v / w),
            exact=True,
        )
        for dtype in (torch.int64, torch.int32):
            tag = "i64" if dtype == torch.int64 else "i32"
            c.case(
                f"div_{mode}_{tag}",
                "aten::div.Tensor_mode",
                [i.to(dtype), j.to(dtype), text],
                lambda v, w, m: torch.div(v, w, rounding_mode=m),
                exact=True,
            )
            c.case(
                f"div_{mode}_scalar_{tag}",
                "aten::div.Scalar_mode",
                [i.to(dtype), -3, text],
                lambda v, w, m: torch.div(v, w, rounding_mode=m),
                exact=True,
            )
    c.case("div_none", "aten::div.Tensor_mode", [a, pos, None], lambda v, w, _: v / w)
    for name, call in (("remainder", torch.remainder), ("fmod", torch.fmod)):
        overloads = [("Tensor", (x, y), (i, j)), ("Scalar", (x, -1.75), (i, -3))]
        for overload, floats, whole in overloads:
            op, tag = f"aten::{name}.{overload}", "" if overload == "Tensor" else "_scalar"
            c.case(f"{name}{tag}", op, list(floats), call, exact=True)
            c.case(f"{name}{tag}_i64", op, list(whole), call, exact=True)
        c.case(f"{name}_broadcast", f"aten::{name}.Tensor", [permuted(a), row.abs() + 0.5], call, exact=True)
    for name, call in {
        "and": torch.bitwise_and,
        "or": torch.bitwise_or,
        "xor": torch.bitwise_xor,
    }.items():
        op = f"aten::bitwise_{name}"
        c.case(f"bitwise_{name}_i64", f"{op}.Tensor", [i, j], call, exact=True)
        c.case(f"bitwise_{name}_i32", f"{op}.Tensor", [i.int(), j.int()], call, exact=True)
        c.case(f"bitwise_{name}_bool", f"{op}.Tensor", [flags, others], call, exact=True)
        c.case(f"bitwise_{name}_scalar", f"{op}.Scalar", [i, 6], call, exact=True)
    for name, call in (("left", torch.bitwise_left_shift), ("right", torch.bitwise_right_shift)):
        by = torch.tensor([0, 1, 2, 3, 4, 5, 31, 40, 2, 1, 3, 7])
        c.case(f"shift_{name}", f"aten::bitwise_{name}_shift.Tensor", [i, by], call, exact=True)
    for tag, v in (("i64", i), ("i32", i.int()), ("bool", flags)):
        c.case(f"bitwise_not_{tag}", "aten::bitwise_not", [v], torch.bitwise_not, exact=True)

    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        call = getattr(torch, name)
        edges = torch.tensor([1.5, -1.5, 0.0, NAN, INF, -INF])
        c.case(f"{name}_scalar", f"aten::{name}.Scalar", [edges, 1.5], call, exact=True)
        c.case(f"{name}_scalar_i64", f"aten::{name}.Scalar", [i, 2], call, exact=True)
        c.case(f"{name}_odd", f"aten::{name}.Tensor", [edges, edges.flip(0)], call, exact=True)
        c.case(f"{name}_i64", f"aten::{name}.Tensor", [i, i.flip(0)], call, exact=True)

    special = [0.0, 1.0, -1.0, 2.0, -2.0, 0.5, INF, -INF, NAN, 3.0, -0.5]
    base = torch.tensor(special)
    for exponent in (0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 2.5, -3.0):
        # The root of minus infinity is no number by a root and infinity by a power: PyTorch has both.
        v = base[base != -INF] if abs(exponent) == 0.5 else base
        tag = str(exponent).replace(".", "_").replace("-", "m")
        c.case(f"pow_{tag}", "aten::pow.Tensor_Scalar", [v, exponent], lambda p, e: p**e, rel=8)
    for exponent in (0, 1, 2, 3, 5):
        c.case(f"pow_i64_{exponent}", "aten::pow.Tensor_Scalar", [i, exponent], lambda p, e: p**e, exact=True)
    n = len(special)
    pairs = [base.repeat_interleave(n), base.repeat(n)]
    c.case("pow", "aten::pow.Tensor_Tensor", pairs, torch.pow, rel=8)
    c.case("pow_f64", "aten::pow.Tensor_Tensor", [t.double() for t in pairs], torch.pow, rel=8)
    c.case("pow_of_2", "aten::pow.Scalar", [2.0, base], lambda v, e: torch.pow(2.0, e), rel=8)
    c.case(
        "xlogy",
        "aten::xlogy.Tensor",
        [torch.tensor([0.0, 0.0, 0.0, 2.0, 1.5, 0.0]), torch.tensor([0.0, NAN, INF, 0.0, 3.0, -1.0])],
        torch.special.xlogy,
        rel=8,
        terms=2,
    )

    c.case("tan", "aten::tan", [a], torch.tan, rel=16, terms=2)
    c.case("acosh", "aten::acosh", [pos + 1], torch.acosh, rel=8, terms=2)
    # Both have zeros within the range: in units of their terms.
    c.case(
        "lgamma",
        "aten::lgamma",
        [torch.cat([pos.view(-1), a.view(-1) * 4 - 0.25])],
        torch.lgamma,
        rel=16,
        terms=32,
    )
    c.case("digamma", "aten::digamma", [pos], torch.digamma, rel=16, terms=32)
    odd = torch.tensor([NAN, INF, -INF, 1.5, -2.0, 0.0])
    for name in ("exp", "expm1", "log1p", "tanh", "sigmoid", "erf", "atan", "sinh", "cosh", "asinh", "exp2"):
        c.case(f"{name}_odd", f"aten::{name}", [odd], getattr(torch, name), rel=8, terms=2)
    for name in ("abs", "neg", "sign", "floor", "ceil", "round", "trunc", "isnan", "isinf"):
        c.case(f"{name}_odd", f"aten::{name}", [odd], getattr(torch, name), exact=True)
    halves = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.25, -0.75])
    c.case("round_to_even", "aten::round", [halves], torch.round, exact=True)
    for name in ("abs", "neg", "sign", "square"):
        c.case(f"{name}_i64", f"aten::{name}", [i], getattr(torch, name), exact=True)
    c.case("nan_to_num", "aten::nan_to_num", [odd, 0.5, 100.0, -50.0], torch.nan_to_num, exact=True)
    c.case(
        "nan_to_num_of_nan",
        "aten::nan_to_num",
        [torch.tensor([NAN, 1.5, -2.0]), None, None, None],
        torch.nan_to_num,
        exact=True,
    )
    for name in ("maximum", "minimum"):
        c.case(f"{name}_odd", f"aten::{name}", [odd, odd.flip(0)], getattr(torch, name), exact=True)
        c.case(f"{name}_i64", f"aten::{name}", [i, j], getattr(torch, name), exact=True)
    for name in ("fmax", "fmin"):
        c.case(f"{name}_odd", f"aten::{name}", [odd, odd.flip(0)], getattr(torch, name), exact=True)

    low, high = torch.full((5,), -0.5), grid(3, 5, positive=True)
    c.case("clamp_tensor", "aten::clamp.Tensor", [a, low, high], torch.clamp, exact=True)
    c.case("clamp_tensor_above", "aten::clamp.Tensor", [a, None, high], torch.clamp, exact=True)
    c.case("clamp_tensor_crossed", "aten::clamp.Tensor", [a, high, low], torch.clamp, exact=True)
    for name, bound in (("clamp_min", 0.25), ("clamp_max", 0.25)):
        c.case(name, f"aten::{name}", [a, bound], getattr(torch, name), exact=True)
        c.case(f"{name}_odd", f"aten::{name}", [odd, bound], getattr(torch, name), exact=True)
        c.case(f"{name}_i64", f"aten::{name}", [i, 2], getattr(torch, name), exact=True)

    mask = grid(3, 5) > 0
    c.case("where_number", "aten::where.ScalarSelf", [mask, 1.5, a], torch.where, exact=True)
    c.case("where_or_number", "aten::where.ScalarOther", [mask, a, -INF], torch.where, exact=True)
    c.case("where_broadcast", "aten::where.self", [grid(3, 1) > 0, row, a], torch.where, exact=True)
    c.case("where_i64", "aten::where.self", [i > 0, i, j], torch.where, exact=True)
    # What is not chosen leaves no trace.
    c.case("where_odd", "aten::where.self", [odd > 0, odd, torch.zeros(6)], torch.where, exact=True)
    c.case(
        "masked_fill_tensor",
        "aten::masked_fill.Tensor",
        [a, row > 0, torch.tensor(2.5)],
        lambda v, m, f: v.masked_fill(m, f),
        exact=True,
    )
    c.case("addcdiv", "aten::addcdiv", [a, b, pos, -0.5], lambda v, p, q, s: v + s * p / q, rel=4, terms=16)
    c.case(
        "addcdiv_broadcast",
        "aten::addcdiv",
        [row, b, pos, 2.0],
        lambda v, p, q, s: v + s * p / q,
        rel=4,
        terms=32,
    )
    for weight in (0.0, 0.25, 0.5, 0.75, 1.0):
        tag = str(weight).replace(".", "_")
        c.case(
            f"lerp_{tag}",
            "aten::lerp.Scalar",
            [a, b, weight],
            lambda p, q, w: p + w * (q - p),
            terms=8,
        )
    c.case("lerp_tensor", "aten::lerp.Tensor", [a, b, grid(3, 5)], lambda p, q, w: p + w * (q - p), terms=32)
    # Exact at both ends, which one form of it would not be.
    ends = torch.tensor([0.0, 1.0, 0.0, 1.0])
    far = [torch.tensor([1e8, 1e8, -3.0, 0.125]), torch.tensor([1.0, 1.0, 1e8, 1e8])]
    c.case(
        "lerp_ends", "aten::lerp.Tensor", [*far, ends], lambda p, q, w: torch.where(w == 0, p, q), exact=True
    )
    c.write(folder)
