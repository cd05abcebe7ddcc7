"""Sizes: one operator on what is large, long, odd or of many dims, and values close together.

A plugin that claims few operators meets no chains: its kernels' blocks, tails and limits are met here. Most
values are small integers, whose sums and products every order of adding gives exactly, in few characters.
"""

import math

import torch
from conformance_corpus.corpus import Arg, Corpus, permuted

INF = math.inf
# Close together around 0, and far out; every dtype holds them.
NEAR = [1 / 1024, *(k / 64 for k in range(1, 17, 2))]
FAR = [k / 16 for k in (5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 68, 80, 104, 116, 128, 152, 192)]
SHAPE = (2, 3, 2, 1, 3)
ORDERS = ([4, 3, 2, 1, 0], [0, 2, 4, 1, 3], [3, 0, 1, 4, 2], [0, 1, 2, 4, 3])
SOME_DIMS = ([1, 3], [0, 4], [3, 4], [1, 2, 4], [0, 1, 2, 3, 4])


def make(folder):
    c = Corpus(
        "sizes",
        "One operator on what is large, long, odd or of many dims, and values close together.",
        digits=8,
    )
    unary(c)
    binary(c)
    matrices(c)
    dims_in_turn(c)
    rows(c)
    places(c)
    windows(c)
    c.write(folder)


def small(*shape, low=-3, high=3, dtype=torch.float32):
    """Small integers."""
    return torch.randint(low, high + 1, shape).to(dtype)


def digit(*shape):
    """Integers of one character."""
    return small(*shape, low=0, high=9)


def shuffled(*shape):
    """Different integers, in no order."""
    n = math.prod(shape)
    return (torch.randperm(n) - n // 2).reshape(shape).float()


def turned(t):
    """The same values, the last two dims laid out the other way round."""
    return t.transpose(-2, -1).contiguous().transpose(-2, -1)


def unary(c):
    aten = torch.ops.aten
    positive = torch.tensor([*NEAR, *FAR, *(1 + k / 64 for k in range(-7, 9, 2))])
    signed = torch.tensor([-v for v in reversed(NEAR + FAR)] + [0.0] + NEAR + FAR)
    inner = signed[signed.abs() < 1]
    halves = torch.arange(-30, 31) / 4

    for name in ("relu", "neg", "abs", "sign", "relu6", "logical_not"):
        c.case(f"{name}_close", f"aten::{name}", [signed], getattr(aten, name), exact=True)
    for name in ("floor", "ceil", "round", "trunc", "frac"):
        c.case(f"{name}_close", f"aten::{name}", [halves], getattr(aten, name), exact=True)
    smooth = ("exp", "expm1", "sin", "cos", "atan", "tanh", "sigmoid", "erf", "silu", "hardswish", "square")
    for name in smooth:
        c.case(f"{name}_close", f"aten::{name}", [signed], getattr(aten, name), rel=8, terms=2)
    for name in ("sqrt", "rsqrt", "log"):
        c.case(f"{name}_close", f"aten::{name}", [positive], getattr(aten, name), rel=8, terms=2)
    above = signed[signed > -1]
    c.case("log1p_close", "aten::log1p", [above], aten.log1p, rel=8, terms=2)
    c.case("reciprocal_close", "aten::reciprocal", [signed[signed != 0]], aten.reciprocal, rel=8)
    c.case("asin_close", "aten::asin", [inner], aten.asin, rel=8, terms=2)
    for form in ("none", "tanh"):
        c.case(
            f"gelu_{form}_close",
            "aten::gelu",
            [signed, Arg(f'"{form}"')],
            lambda v, f: aten.gelu(v, approximate=f),
            rel=8,
            terms=32,
        )
    for name, rest, bound in (
        ("clamp", [-0.25, 7.0], {"exact": True}),
        ("clamp_min", [-0.125], {"exact": True}),
        ("clamp_max", [8.5], {"exact": True}),
        ("hardtanh", [-5.0, 9.0], {"exact": True}),
        ("leaky_relu", [0.125], {"rel": 2}),
        ("elu", [1.0, 1.0, 1.0], {"rel": 8, "terms": 2}),
        ("softplus", [1.0, 20.0], {"rel": 8, "terms": 2}),
        ("pow.Tensor_Scalar", [3.0], {"rel": 8}),
    ):
        tag = name.split(".")[0]
        c.case(f"{tag}_number_close", f"aten::{name}", [signed, *rest], operator(name), **bound)
    # Of many elements and of many dims.
    c.case("relu_many", "aten::relu", [small(51, 59, low=-1, high=3)], aten.relu, exact=True)
    of_dims = {
        "rank5": small(2, 3, 1, 2, 5),
        "rank6": small(2, 1, 3, 2, 1, 5),
        "rank5_strided": small(2, 3, 1, 2, 5).permute(4, 1, 0, 3, 2),
        "column": small(131, 1),
        "i64": small(2, 3, 1, 2, 5, dtype=torch.int64),
        "f64": small(2, 3, 1, 2, 5, dtype=torch.float64),
    }
    for tag, x in of_dims.items():
        for name in ("relu", "neg", "abs") if tag.startswith("rank5") else ("relu",):
            c.case(f"{name}_{tag}", f"aten::{name}", [x], getattr(aten, name), exact=True)


def operator(name):
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def binary(c):
    line = small(67, low=-8, high=8) / 4
    pairs = {
        "line": (line, line + small(67, low=-1, high=1) / 8),
        "broadcast": (small(7, 1, 3), small(1, 9, 1)),
        "rank5": (small(2, 3, 1, 2, 3), small(2, 1, 3, 2, 1)),
        "rank6": (small(2, 1, 2, 2, 1, 3), small(1, 3, 1, 2, 2, 3)),
        "middle": (small(6, 1, 11), small(6, 1, 11)),
        "column": (small(13, 7), small(13, 1)),
        "strided": (small(3, 2, 5, 2).permute(2, 0, 3, 1), turned(small(5, 3, 2, 2))),
    }
    for tag, (x, y) in pairs.items():
        c.case(f"add_{tag}", "aten::add.Tensor", [x, y, 1], lambda x, y, _: x + y, exact=True)
        c.case(f"mul_{tag}", "aten::mul.Tensor", [x, y], torch.mul)
        c.case(f"maximum_{tag}", "aten::maximum", [x, y], torch.maximum, exact=True)
        c.case(f"where_{tag}", "aten::where.self", [y > 0, x, y], torch.where, exact=True)
        if tag not in ("line", "broadcast", "rank5"):
            continue
        by = torch.where(y == 0, 7.0, y)
        c.case(f"div_{tag}", "aten::div.Tensor", [x, by], torch.div)
        c.case(f"sub_{tag}", "aten::sub.Tensor", [x, y, 1], lambda x, y, _: x - y, exact=True)
        c.case(f"minimum_{tag}", "aten::minimum", [x, y], torch.minimum, exact=True)
        for name in ("lt", "eq") if tag != "line" else ("lt", "le", "gt", "ge", "eq", "ne"):
            c.case(f"{name}_{tag}", f"aten::{name}.Tensor", [x, y], getattr(torch, name), exact=True)
        base = x.abs() + 0.5
        c.case(f"pow_{tag}", "aten::pow.Tensor_Tensor", [base, y], torch.pow, rel=8)
    for name in ("fmod", "remainder"):
        whole = [small(67, low=-9, high=9), small(67, low=1, high=5) * (small(67, low=0, high=1) * 2 - 1)]
        c.case(f"{name}_line", f"aten::{name}.Tensor", whole, getattr(torch, name), exact=True)
    c.case("add_scalar_line", "aten::add.Scalar", [line, 0.375, 1], lambda x, v, _: x + v)
    c.case("mul_scalar_line", "aten::mul.Scalar", [line, 0.375], torch.mul)
    c.case(
        "addcmul_line",
        "aten::addcmul",
        [small(67), small(67), line, 0.5],
        lambda x, y, z, v: x + v * y * z,
        rel=4,
        terms=16,
    )
    for dtype, tag in ((torch.int64, "i64"), (torch.float64, "f64")):
        p, q = small(2, 3, 1, 2, 3, dtype=dtype), small(2, 1, 3, 2, 1, dtype=dtype)
        c.case(f"add_rank5_{tag}", "aten::add.Tensor", [p, q, 2], lambda x, y, s: x + s * y, exact=True)
        c.case(f"mul_rank5_{tag}", "aten::mul.Tensor", [p, q], torch.mul, exact=True)
    outer = [small(59, 1, low=0, high=4), small(51, low=0, high=5)]
    c.case("add_many", "aten::add.Tensor", [*outer, 1], lambda x, y, _: x + y, exact=True)


def matrices(c):
    aten = torch.ops.aten

    def case(name, op, args, call):
        c.case(name, f"aten::{op}", args, call, exact=True)

    def added(s, x, y, beta, alpha):
        return beta * s + alpha * (x @ y)

    for inner in (65, 130, 257):
        a, b = small(2, inner), small(inner, 3)
        case(f"mm_inner_{inner}", "mm", [a, b], torch.mm)
    a, b = small(3, 130), small(130, 2)
    case("mm_inner_left", "mm", [permuted(a), b], torch.mm)
    case("mm_inner_right", "mm", [a, permuted(b)], torch.mm)
    case("mm_inner_f64", "mm", [permuted(a.double()), permuted(b.double())], torch.mm)
    case("mm_one_row", "mm", [small(1, 130), small(130, 5)], torch.mm)
    case("mm_one_column", "mm", [small(5, 130), small(130, 1)], torch.mm)
    case("mm_one_long_row", "mm", [small(1, 2), small(2, 259)], torch.mm)
    case("mm_one_long_column", "mm", [small(259, 2), small(2, 1)], torch.mm)
    case("mm_outer", "mm", [small(17, 1), small(1, 19)], torch.mm)
    case("addmm_inner", "addmm", [small(2), a, b, 1, 1], added)
    case("addmm_inner_scaled", "addmm", [small(3, 2), permuted(a), permuted(b), 0.5, 2], added)
    a, b = small(2, 4, 65), small(2, 65, 3)
    case("bmm_inner", "bmm", [a, b], torch.bmm)
    case("baddbmm_inner", "baddbmm", [small(4, 3), a, b, 1, 1], added)
    case("bmm_inner_strided", "bmm", [turned(small(2, 3, 130)), turned(small(2, 130, 2))], torch.bmm)
    case("matmul_inner", "matmul", [small(2, 1, 3, 65), small(2, 65, 3)], torch.matmul)
    case("linear_inner", "linear", [small(2, 2, 130), small(3, 130), small(3)], aten.linear)
    case("linear_inner_plain", "linear", [small(3, 257), small(2, 257), None], aten.linear)
    case("mv_inner", "mv", [small(3, 257), small(257)], torch.mv)
    case("mv_rows", "mv", [small(131, 5), small(5)], torch.mv)
    case("addmv_inner", "addmv", [small(3), small(3, 130), small(130), 1, 1], added)
    case("dot_inner", "dot", [small(515), small(515)], torch.dot)

    # Many results, of one character each.
    left, right = small(71, 3, low=0, high=1), small(3, 73, low=0, high=3)
    case("mm_many", "mm", [left, right], torch.mm)
    case("addmm_many", "addmm", [small(73, low=0, high=1), left[:, :2].contiguous(), right[:2], 1, 1], added)
    case("bmm_more", "bmm", [small(3, 23, 2, low=0, high=1), small(3, 2, 29, low=0, high=4)], torch.bmm)


def dims_in_turn(c):
    """Every dim, kept and not: of size 1, and the fourth and fifth."""
    aten = torch.ops.aten
    whole, unequal, few = small(*SHAPE), shuffled(*SHAPE), small(*SHAPE, low=-1, high=1)
    last = small(3, 2, 1, 5), shuffled(3, 2, 1, 5), small(3, 2, 1, 5, low=-1, high=1)
    for rank, of in ((5, (whole, unequal, few)), (4, last)):
        x = of[0]
        for dim in range(5) if rank == 5 else (2, 3):
            tag = f"rank{rank}_{dim}"
            in_dim(c, tag, *of, dim, False)
            if dim > 2:
                in_dim(c, f"{tag}_kept", *of, dim, True)
            c.case(f"cumsum_{tag}", "aten::cumsum", [x, dim, None], lambda x, d, t: x.cumsum(d), exact=True)
            c.case(f"softmax_{tag}", "aten::_softmax", [x, dim, False], aten._softmax, rel=32, terms=1)
            # So named it has no case of 16 bits: PyTorch rounds the logarithm there before it subtracts.
            c.case(
                f"log_softmax_large_{tag}",
                "aten::_log_softmax",
                [x, dim, False],
                aten._log_softmax,
                rel=16,
                terms=32,
            )
    for dim in (0, 2, 4):
        over(c, f"strided_{dim}", whole.permute(3, 1, 4, 0, 2), few, [dim], dim == 4)
    for dims in SOME_DIMS:
        for keep in (False, True) if 3 in dims else (False,):
            tag = f"dims_{''.join(map(str, dims))}{'_kept' if keep else ''}"
            over(c, tag, whole, few, dims, keep)


def over(c, tag, x, z, dims, keep):
    """What takes several dims."""
    rest = [dims, keep, None]
    c.case(f"sum_{tag}", "aten::sum.dim_IntList", [x, *rest], lambda x, d, k, t: x.sum(d, k), exact=True)
    c.case(f"mean_{tag}", "aten::mean.dim", [x, *rest], lambda x, d, k, t: x.mean(d, k), terms=16)
    c.case(f"amax_{tag}", "aten::amax", [x, dims, keep], torch.amax, exact=True)
    c.case(f"amin_{tag}", "aten::amin", [x, dims, keep], torch.amin, exact=True)
    c.case(
        f"var_{tag}",
        "aten::var.correction",
        [x, dims, 0, keep],
        lambda x, d, n, k: x.var(d, correction=n, keepdim=k),
        rel=16,
        terms=8,
    )
    for name, call in (("any", torch.any), ("all", torch.all)) if len(dims) > 1 else ():
        c.case(
            f"{name}_{tag}",
            f"aten::{name}.dims",
            [z, dims, keep],
            lambda x, d, k, f=call: f(x, dim=d, keepdim=k),
            exact=True,
        )


def in_dim(c, tag, x, y, z, dim, keep):
    """What takes one dim."""
    over(c, tag, x, z, [dim], keep)
    c.case(
        f"prod_{tag}", "aten::prod.dim_int", [x, dim, keep, None], lambda x, d, k, t: x.prod(d, k), exact=True
    )
    for name in ("any", "all"):
        c.case(f"{name}_{tag}", f"aten::{name}.dim", [z, dim, keep], getattr(torch, name), exact=True)
    c.case(f"argmax_{tag}", "aten::argmax", [y, dim, keep], torch.argmax, exact=True)
    c.case(
        f"max_dim_{tag}",
        "aten::max.dim",
        [y, dim, keep],
        lambda x, d, k: list(torch.max(x, d, k)),
        exact=True,
    )


def rows(c):
    """Long rows and columns, whose ends count."""
    aten = torch.ops.aten
    for tag, x, y, dim in (
        ("row", small(1, 257), shuffled(1, 257), 1),
        ("column", small(130, 2), shuffled(130, 2), 0),
    ):
        over(c, tag, x, x, [dim], False)
        for name in ("argmax", "argmin") if dim == 1 else ("argmax",):
            c.case(f"{name}_{tag}", f"aten::{name}", [y, dim, True], getattr(torch, name), exact=True)
        c.case(f"cumsum_{tag}", "aten::cumsum", [x, dim, None], lambda x, d, t: x.cumsum(d), exact=True)
        c.case(f"softmax_{tag}", "aten::_softmax", [x, dim, False], aten._softmax, rel=32, terms=1)
        c.case(
            f"log_softmax_{tag}", "aten::_log_softmax", [x, dim, False], aten._log_softmax, rel=16, terms=32
        )
        c.case(f"logsumexp_{tag}", "aten::logsumexp", [x, [dim], False], aten.logsumexp, rel=16, terms=8)
    c.case(
        "layer_norm_row",
        "aten::native_layer_norm",
        [small(1, 257), [257], small(257), small(257), 1e-5],
        lambda *a: list(aten.native_layer_norm(*a)),
        rel=32,
        terms=32,
    )
    c.case(
        "layer_norm_rank4",
        "aten::native_layer_norm",
        [small(2, 3, 1, 5, 2), [1, 5, 2], small(1, 5, 2), small(1, 5, 2), 1e-5],
        lambda *a: list(aten.native_layer_norm(*a)),
        rel=32,
        terms=32,
    )

    long = digit(1, 5003)
    c.case(
        "sum_long",
        "aten::sum.dim_IntList",
        [long, [1], True, None],
        lambda x, d, k, t: x.sum(d, k),
        exact=True,
    )
    c.case(
        "sum_all_long", "aten::sum", [long[:, 1031:2062].contiguous(), None], lambda x, t: x.sum(), exact=True
    )
    c.case("sum_long_i64", "aten::sum", [digit(1031).long(), None], lambda x, t: x.sum(), exact=True)
    c.case(
        "mean_long",
        "aten::mean.dim",
        [long[:, :1031].contiguous(), [1], False, None],
        lambda x, d, k, t: x.mean(d, k),
        terms=16,
    )
    c.case(
        "var_long",
        "aten::var.correction",
        [digit(1031), [0], 1, False],
        lambda x, d, n, k: x.var(d, correction=n, keepdim=k),
        rel=16,
        terms=8,
    )
    low = digit(1, 2003).clamp(max=8)
    low[0, 2001] = 9
    c.case("argmax_long", "aten::argmax", [low, 1, False], torch.argmax, exact=True)
    c.case("amax_long", "aten::amax", [low[:, 1000:].contiguous(), [1], False], torch.amax, exact=True)
    walk = small(1, 517, low=-1, high=1)
    c.case("cumsum_long", "aten::cumsum", [walk, 1, None], lambda x, d, t: x.cumsum(d), exact=True)
    # Twos and signs among ones, at the end as well.
    factors = torch.ones(1, 1031)
    factors[0, ::97], factors[0, [5, 700, 1029]], factors[0, 1030] = 2, -1, 2
    c.case(
        "prod_long",
        "aten::prod.dim_int",
        [factors, 1, False, None],
        lambda x, d, k, t: x.prod(d, k),
        exact=True,
    )
    # Decided by one element near the end of a row, and by none.
    flags = torch.zeros(2, 517, dtype=torch.bool)
    flags[0, 515] = True
    c.case("any_long", "aten::any.dim", [flags, 1, False], torch.any, exact=True)
    c.case("all_long", "aten::all.dim", [~flags, 1, False], torch.all, exact=True)
    # Equal chances of sixteen among many without any.
    x = torch.full((1, 517), -INF)
    x[0, [*range(7, 500, 34), 516]] = 1
    c.case("softmax_long", "aten::_softmax", [x, 1, False], aten._softmax, rel=32, terms=1)
    x = torch.full((1, 517), -1.0)
    x[0, ::2] = 1
    x[0, 516] = 0  # mean 0, variance 516 / 517, which eps makes 4
    c.case(
        "layer_norm_long",
        "aten::native_layer_norm",
        [x, [517], None, None, 4 - 516 / 517],
        lambda *a: list(aten.native_layer_norm(*a)),
        rel=32,
        terms=32,
    )


def places(c):
    """Elements at other places."""
    aten = torch.ops.aten

    def case(name, op, args, call):
        c.case(name, f"aten::{op}", args, call, exact=True)

    x, y = digit(3, 2, 3, 1, 4), digit(2, 3, 2, 4)
    for dims in ORDERS:
        case(f"permute_{''.join(map(str, dims))}", "permute", [x, dims], lambda x, d: x.permute(d))
    case("permute_strided", "permute", [x.permute(2, 4, 0, 1, 3), [4, 0, 3, 1, 2]], lambda x, d: x.permute(d))
    for a, b in ((0, 4), (1, 2), (3, 4)):
        case(f"transpose_{a}{b}", "transpose.int", [x, a, b], torch.transpose)
    case("reshape_rank5", "reshape", [x, [2, 9, 1, 4]], lambda x, s: x.reshape(s))
    case("reshape_rank5_strided", "reshape", [x.permute(4, 2, 0, 3, 1), [6, 12]], lambda x, s: x.reshape(s))
    case(
        "expand_rank5", "expand", [digit(2, 1, 3, 1, 4), [2, 2, 3, 3, 4], False], lambda x, s, _: x.expand(s)
    )
    case("expand_rank6", "expand", [digit(2, 1, 3), [2, 1, 3, 2, 5, 3], False], lambda x, s, _: x.expand(s))
    for dim, start, end, step in ((2, 1, 3, 1), (4, 0, 4, 3), (3, 0, 1, 1), (0, 2, 3, 1)):
        case(
            f"slice_{dim}",
            "slice.Tensor",
            [x, dim, start, end, step],
            lambda x, d, a, b, s: x.narrow(d, a, b - a).index_select(d, torch.arange(0, b - a, s)),
        )
    for dim, at in ((0, 2), (2, 1), (3, 0), (4, 3)):
        case(f"select_{dim}", "select.int", [x, dim, at], torch.select)
    for dim in range(4):
        other = digit(*(n + 1 if k == dim else n for k, n in enumerate(y.shape)))
        case(f"cat_rank4_{dim}", "cat", [[y, other, turned(y)], dim], torch.cat)
    for dim in (0, 3, 4):
        case(f"stack_rank4_{dim}", "stack", [[y, digit(2, 3, 2, 4)], dim], torch.stack)
    for dims in ([3], [4], [1, 2, 4]):
        case(f"flip_{''.join(map(str, dims))}", "flip", [x, dims], torch.flip)
    for shifts, dims in (([3], [4]), ([1, -2], [0, 2]), ([2, 1, -1], [4, 3, 1])):
        case(f"roll_{''.join(map(str, dims))}", "roll", [x, shifts, dims], torch.roll)
    for tag, pads in (
        ("last", [1, 2]),
        ("three", [1, 0, 2, 1, 0, 3]),
        ("five", [1, 0, 0, 1, 1, 1, 0, 1, 1, 0]),
    ):
        case(f"constant_pad_{tag}", "constant_pad_nd", [x, pads, 7.0], aten.constant_pad_nd)
    for dim in (0, 2, 4):
        n = x.shape[dim]
        index = torch.randint(0, n, (6,))
        case(f"index_select_rank5_{dim}", "index_select", [x, dim, index], aten.index_select)
    for dim in range(4):
        into = torch.randint(0, y.shape[dim], (2, 2, 2, 3))
        case(f"gather_rank4_{dim}", "gather", [y, dim, into, False], lambda x, d, i, _: x.gather(d, i))
    case("repeat_rank4", "repeat", [y, [2, 1, 1, 2]], lambda x, r: x.repeat(r))
    case("unsqueeze_rank5", "unsqueeze", [x, 5], torch.unsqueeze)
    case("squeeze_rank5", "squeeze.dims", [x, [3]], lambda x, d: x.squeeze(3))
    at = torch.randint(0, 130, (3, 1, 2, 2))
    case("embedding_rank4", "embedding", [digit(130, 3), at, -1, False, False], aten.embedding)
    case("permute_rank5_i64", "permute", [x.long(), ORDERS[1]], lambda x, d: x.permute(d))
    case("permute_rank5_f64", "permute", [x.double(), ORDERS[2]], lambda x, d: x.permute(d))

    # Of many elements.
    sheet, tile, other, block = digit(51, 59), digit(10, 59), digit(11, 59), digit(5, 7, 8, 11)
    case("permute_many", "permute", [block, [1, 3, 0, 2]], lambda x, d: x.permute(d))
    case("transpose_many", "transpose.int", [sheet, 0, 1], torch.transpose)
    case("reshape_many", "reshape", [permuted(sheet), [3009]], lambda x, s: x.reshape(s))
    case("expand_many", "expand", [digit(1, 59), [51, 59], False], lambda x, s, _: x.expand(s))
    case("slice_more", "slice.Tensor", [other, 1, 1, 58, 2], lambda x, d, a, b, s: x[:, a:b:s])
    case("cat_many", "cat", [[tile, other, tile, tile, tile], 0], torch.cat)
    case("flip_more", "flip", [other, [0, 1]], torch.flip)
    case("roll_more", "roll", [tile, [7, -5], [0, 1]], torch.roll)
    case("constant_pad_many", "constant_pad_nd", [digit(23, 31), [9, 17, 16, 14], 5.0], aten.constant_pad_nd)
    index = torch.randint(0, 5, (51,))
    case("index_select_many", "index_select", [digit(5, 59), 0, index], aten.index_select)
    case("embedding_many", "embedding", [digit(5, 59), index, -1, False, False], aten.embedding)
    into = torch.randint(0, 51, (5, 59))
    case("gather_many", "gather", [sheet, 0, into, False], lambda x, d, i, _: x.gather(d, i))


def windows(c):
    aten = torch.ops.aten
    x, w, v = small(1, 5, 9, 11), small(2, 5, 3, 3), small(2)
    c.convolution("odd", x, w, v, [[1, 1], [1, 1], [1, 1], False, [0, 0], 1])
    c.case(
        "convolution_odd_strided",
        "aten::convolution",
        [x, w, v, [2, 3], [0, 1], [2, 1], False, [0, 0], 1],
        aten.convolution,
        terms=45 * 32,
    )
    image, x = shuffled(1, 2, 9, 11), small(1, 2, 9, 11)
    for tag, kernel, stride, padding, ceil in (
        ("odd", [3, 3], [2, 2], [1, 1], False),
        ("uneven", [3, 2], [2, 3], [1, 0], False),
        ("ceil", [2, 4], [2, 3], [0, 0], True),
    ):
        c.case(
            f"max_pool2d_{tag}",
            "aten::max_pool2d_with_indices",
            [image, kernel, stride, padding, [1, 1], ceil],
            lambda *a: list(aten.max_pool2d_with_indices(*a)),
            exact=True,
        )
        for include in (True, False):
            c.case(
                f"avg_pool2d_{tag}{'' if include else '_alone'}",
                "aten::avg_pool2d",
                [x, kernel, stride, padding, ceil, include, None],
                aten.avg_pool2d,
                rel=4,
                terms=32,
            )
    c.case(
        "adaptive_avg_pool2d_odd",
        "aten::_adaptive_avg_pool2d",
        [x, [4, 3]],
        aten._adaptive_avg_pool2d,
        rel=4,
        terms=64,
    )
