"""Write the reference values of the conformance suite, tests/conformance/corpus/*.lzt. Needs torch; by hand.

    make_conformance_corpus.py [FOLDER]

A file holds cases; a case is lines

    case NAME
    program(...) {          the program's text, as `ir/text.h` describes it
    }
    in V V V ...            for each input: its elements in row-major order of its dims, whatever its strides
    out REL ABS V V V ...   for each output: the same, and its error bound: |got - V| <= ABS + REL * |V|

Values are computed by PyTorch in float64 from inputs that the dtype of the program holds exactly. Bounds are
in units of the dtype's epsilon: a few for what is rounded once or twice, as many as there are terms, times
the sum of the terms' magnitudes, for sums. Random operators are computed here from rule PRG-7 alone.
"""

import math
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
EPS = {"f32": 2.0**-23, "f64": 2.0**-52}
NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.bool: "b1",
    torch.int32: "i32",
    torch.uint8: "u8",
}
torch.manual_seed(0)


class Arg(str):
    """Text of an argument that is no tensor."""


def number(v, digits: int = 17) -> str:
    if isinstance(v, bool):
        return "1" if v else "0"
    if isinstance(v, int):
        return str(v)
    if math.isnan(v):
        return "nan"
    if math.isinf(v):
        return "inf" if v > 0 else "-inf"
    if v == int(v) and abs(v) < 1e15:
        return str(int(v))
    return repr(v) if digits == 17 else f"{v:.{digits}g}"


def numbers(t: torch.Tensor, digits: int = 17) -> str:
    return " ".join(number(v, digits) for v in t.reshape(-1).tolist())


def type_of(t: torch.Tensor) -> str:
    text = f"{NAMES[t.dtype]}[{','.join(map(str, t.shape))}]"
    return text if t.is_contiguous() else text + "{" + ",".join(map(str, t.stride())) + "}"


def literal(v) -> str:
    if isinstance(v, Arg):
        return str(v)
    if v is None:
        return "none"
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, float):
        return number(v) if "e" in repr(v) or "." in repr(v) and v != int(v) else repr(v)
    if isinstance(v, torch.dtype):
        return f"dtype({NAMES[v]})"
    if isinstance(v, (list, tuple)):
        if v and isinstance(v[0], bool):
            return f"bools[{','.join('true' if x else 'false' for x in v)}]"
        return f"ints[{','.join(map(str, v))}]"
    return str(v)


class Corpus:
    def __init__(self, name: str, note: str, digits: int = 17):
        self.name, self.lines = name, [f"# {note} Written by tools/build/make_conformance_corpus.py."]
        self.digits = digits

    def case(self, name, op, args, call, rel=2.0, terms=0.0, exact=False, host=()):
        """`args`: tensors, lists of tensors, and the rest as it stands in the schema. `call` maps the tensors
        in float64 to the results. `terms`: bound of a sum, in epsilons of the dtype times this magnitude.
        `host`: (dtype text, value) of host scalars, which stand in args as Arg("%h0"), ..."""
        tensors = []
        for a in args:
            tensors += (
                [a]
                if isinstance(a, torch.Tensor)
                else [t for t in a if isinstance(t, torch.Tensor)]
                if isinstance(a, list)
                else []
            )
        unique = []
        for t in tensors:
            if not any(t is u for u in unique):
                unique.append(t)
        ids = {id(t): f"%{i}" for i, t in enumerate(unique)}
        wide = {id(t): t.double() if t.is_floating_point() else t for t in unique}
        scalars = [f"%{len(unique) + i}" for i in range(len(host))]

        def text(a):
            if isinstance(a, torch.Tensor):
                return ids[id(a)]
            if isinstance(a, list) and any(isinstance(t, torch.Tensor) for t in a):
                return "[" + ", ".join("none" if t is None else ids[id(t)] for t in a) + "]"
            if isinstance(a, Arg) and a.startswith("%h"):
                return scalars[int(a[2:])]
            return literal(a)

        def widened(a):
            if isinstance(a, torch.Tensor):
                return wide[id(a)]
            if isinstance(a, Arg) and a.startswith('"'):
                return a[1:-1]
            return (
                [None if t is None else wide[id(t)] for t in a]
                if isinstance(a, list) and any(isinstance(t, torch.Tensor) for t in a)
                else a
            )

        results = call(*[widened(a) for a in args])
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        dtype = next((t.dtype for t in unique if t.is_floating_point()), torch.float32)
        results = [
            (r if isinstance(r, tuple) else (r, dtype if r.is_floating_point() else r.dtype)) for r in results
        ]
        first = len(unique) + len(host)
        outs = [f"%{first + i}" for i in range(len(results))]
        inputs = [f"{ids[id(t)]}: {type_of(t)}" for t in unique]
        inputs += [f"{s}: host weak {kind}" for s, (kind, _) in zip(scalars, host, strict=True)]
        types = [f"{NAMES[d]}[{','.join(map(str, r.shape))}]" for r, d in results]
        self.lines += [
            f"case {name}",
            f"program({', '.join(inputs)}) {{",
            f"  {', '.join(outs)} = {op}({', '.join(text(a) for a in args)}) : {', '.join(types)}",
            f"  return {', '.join(outs)}",
            "}",
        ]
        self.lines += [("in " + numbers(t, self.digits)).strip() for t in unique]
        self.lines += [f"in {number(v)}" for _, v in host]
        for r, d in results:
            eps = 0.0 if exact or not d.is_floating_point else EPS[NAMES[d]]
            self.lines.append(f"out {rel * eps:.3g} {terms * eps:.3g} {numbers(r, self.digits)}".strip())

    def write(self, folder: Path):
        (folder / f"{self.name}.lzt").write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def grid(*shape, scale=1.0, dtype=torch.float32, positive=False):
    """Numbers of few bits, so that every dtype holds them exactly."""
    t = torch.randint(-64, 65, shape).double() / 32 * scale
    return (t.abs() + 0.125 if positive else t).to(dtype)


def permuted(t):
    """The same values, laid out column-major."""
    return t.t().contiguous().t()


def pointwise(folder):
    c = Corpus("pointwise", "Pointwise operators: one rounding or two.")
    a, b, row, col = grid(3, 5), grid(3, 5), grid(5), grid(3, 1)
    pos = grid(3, 5, positive=True)
    for alpha in (1, 2):
        c.case(f"add_alpha{alpha}", "aten::add.Tensor", [a, b, alpha], lambda x, y, s: x + s * y, terms=8)
    c.case("add_broadcast", "aten::add.Tensor", [col, row, 1], lambda x, y, s: x + y)
    c.case("add_strided", "aten::add.Tensor", [permuted(a), b, 1], lambda x, y, s: x + y)
    c.case("add_empty", "aten::add.Tensor", [grid(0, 5), row, 1], lambda x, y, s: x + y)
    c.case("add_rank0", "aten::add.Tensor", [grid(), a, 1], lambda x, y, s: x + y)
    c.case(
        "add_i64",
        "aten::add.Tensor",
        [torch.arange(6), torch.arange(6) * 7, 3],
        lambda x, y, s: x + s * y,
        exact=True,
    )
    c.case("add_f64", "aten::add.Tensor", [a.double(), b.double(), 1], lambda x, y, s: x + y)
    c.case("add_scalar", "aten::add.Scalar", [a, 1.5, 1], lambda x, v, s: x + v)
    c.case("sub", "aten::sub.Tensor", [a, b, 1], lambda x, y, s: x - y)
    c.case("mul", "aten::mul.Tensor", [a, b], lambda x, y: x * y)
    c.case("mul_broadcast", "aten::mul.Tensor", [a, row], lambda x, y: x * y)
    c.case("mul_scalar", "aten::mul.Scalar", [a, 0.5], lambda x, v: x * v)
    c.case("mul_host_scalar", "aten::mul.Scalar", [a, Arg("%h0")], lambda x, v: x * 0.1, host=[("f64", 0.1)])
    c.case("div", "aten::div.Tensor", [a, pos], lambda x, y: x / y)
    c.case(
        "div_by_zero",
        "aten::div.Tensor",
        [torch.tensor([1.0, -1.0, 0.0]), torch.zeros(3)],
        lambda x, y: x / y,
    )
    c.case("div_scalar", "aten::div.Scalar", [a, 3.0], lambda x, v: x / v)
    c.case("sqrt", "aten::sqrt", [pos], torch.sqrt)
    c.case("sqrt_negative", "aten::sqrt", [torch.tensor([-1.0, 0.0, 4.0, math.inf])], torch.sqrt)
    c.case("relu", "aten::relu", [a], torch.relu, exact=True)
    c.case("relu_nan", "aten::relu", [torch.tensor([math.nan, -math.inf, math.inf])], torch.relu, exact=True)
    c.case("relu_strided", "aten::relu", [permuted(a)], torch.relu, exact=True)
    c.case("neg", "aten::neg", [a], torch.neg, exact=True)
    c.case("exp", "aten::exp", [a], torch.exp, rel=4)
    c.case(
        "threshold_backward",
        "aten::threshold_backward",
        [a, b, 0],
        lambda g, x, t: torch.where(x > 0, g, 0.0),
        exact=True,
    )
    c.case("addcmul", "aten::addcmul", [a, b, pos, 0.5], lambda x, y, z, v: x + v * y * z, rel=4, terms=16)
    c.case(
        "to_f64",
        "aten::_to_copy",
        [a, torch.float64, None, None, None, False, None],
        lambda x, *_: [(x, torch.float64)],
        exact=True,
    )
    c.case(
        "to_i64",
        "aten::_to_copy",
        [a, torch.int64, None, None, None, False, None],
        lambda x, *_: x.to(torch.int64),
        exact=True,
    )
    c.case(
        "to_bool",
        "aten::_to_copy",
        [a, torch.bool, None, None, None, False, None],
        lambda x, *_: x != 0,
        exact=True,
    )
    c.case(
        "full",
        "aten::full",
        [[2, 3], 1.5, torch.float32, None, None, None],
        lambda *_: torch.full((2, 3), 1.5).double(),
        exact=True,
    )
    c.case(
        "full_i64",
        "aten::full",
        [[4], 7, torch.int64, None, None, None],
        lambda *_: torch.full((4,), 7),
        exact=True,
    )
    c.write(folder)


def functions(folder):
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


def views(folder):
    c = Corpus("views", "Rearrangements: exact.")
    a, cube = grid(3, 5), grid(2, 3, 4)
    c.case("permute", "aten::permute", [cube, [2, 0, 1]], lambda x, d: x.permute(d), exact=True)
    c.case("permute_strided", "aten::permute", [permuted(a), [1, 0]], lambda x, d: x.permute(d), exact=True)
    c.case("reshape", "aten::reshape", [cube, [6, 4]], lambda x, s: x.reshape(s), exact=True)
    c.case("reshape_strided", "aten::reshape", [permuted(a), [15]], lambda x, s: x.reshape(s), exact=True)
    c.case("expand", "aten::expand", [grid(3, 1), [2, 3, 4], False], lambda x, s, i: x.expand(s), exact=True)
    c.case("slice", "aten::slice.Tensor", [a, 1, 1, 4, 1], lambda x, d, s, e, t: x[:, 1:4], exact=True)
    c.case("slice_step", "aten::slice.Tensor", [a, 1, 0, 5, 2], lambda x, d, s, e, t: x[:, 0:5:2], exact=True)
    c.write(folder)


def reductions(folder):
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


def contractions(folder):
    c = Corpus("contractions", "Matrix products and convolutions.")
    a, b, bias = grid(3, 8), grid(8, 4), grid(4)
    c.case("mm", "aten::mm", [a, b], torch.mm, terms=8 * 32)
    c.case("mm_strided", "aten::mm", [permuted(a), permuted(b)], torch.mm, terms=8 * 32)
    c.case("mm_column", "aten::mm", [a, b[:, :1]], torch.mm, terms=8 * 32)
    c.case("mm_row", "aten::mm", [a.t().contiguous()[:, :1].t(), b], torch.mm, terms=8 * 32)
    c.case("mm_empty_inner", "aten::mm", [grid(2, 0), grid(0, 3)], torch.mm, exact=True)
    c.case("mm_f64", "aten::mm", [a.double(), b.double()], torch.mm, terms=8 * 32)
    c.case(
        "addmm", "aten::addmm", [bias, a, b, 1, 1], lambda x, y, z, p, q: torch.addmm(x, y, z), terms=9 * 32
    )
    c.case(
        "addmm_scaled",
        "aten::addmm",
        [grid(3, 4), a, b, 0.5, 2],
        lambda x, y, z, p, q: torch.addmm(x, y, z, beta=p, alpha=q),
        terms=9 * 64,
    )
    for name, channels, out, size, kernel, stride, padding, dilation, groups in (
        ("plain", 2, 3, 6, 3, 1, 0, 1, 1),
        ("padded", 1, 2, 5, 3, 1, 1, 1, 1),
        ("strided", 2, 2, 7, 3, 2, 1, 1, 1),
        ("grouped", 4, 4, 4, 3, 1, 1, 1, 2),
        ("dilated", 1, 1, 7, 3, 1, 0, 2, 1),
    ):
        x, w, v = grid(2, channels, size, size), grid(out, channels // groups, kernel, kernel), grid(out)
        rest = [[stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], groups]
        work = channels // groups * kernel * kernel
        y = torch.ops.aten.convolution(x.double(), w.double(), v.double(), *rest)
        c.case(
            f"convolution_{name}",
            "aten::convolution",
            [x, w, v, *rest],
            torch.ops.aten.convolution.default,
            terms=work * 32,
        )
        g = grid(*y.shape)
        spots = y.shape[0] * y.shape[2] * y.shape[3]
        c.case(
            f"convolution_backward_{name}",
            "aten::convolution_backward",
            [g, x, w, [out], *rest, [True, True, True]],
            lambda *p: list(torch.ops.aten.convolution_backward.default(*p)),
            terms=max(spots, work * out) * 16,
        )
    c.write(folder)


def pooling(folder):
    c = Corpus("pooling", "Maximum over windows: exact.")
    for name, size, kernel, stride, padding in (
        ("plain", 6, 2, 2, 0),
        ("overlapping", 5, 3, 1, 0),
        ("padded", 5, 3, 2, 1),
    ):
        # All different, so that the index is the only one.
        x = (torch.randperm(2 * 2 * size * size).double().reshape(2, 2, size, size) / 16 - 3).float()
        rest = [[kernel] * 2, [stride] * 2, [padding] * 2, [1, 1], False]
        y, indices = torch.ops.aten.max_pool2d_with_indices(x.double(), *rest)
        c.case(
            f"max_pool2d_{name}",
            "aten::max_pool2d_with_indices",
            [x, *rest],
            lambda *p: list(torch.ops.aten.max_pool2d_with_indices(*p)),
            exact=True,
        )
        c.case(
            f"max_pool2d_backward_{name}",
            "aten::max_pool2d_with_indices_backward",
            [grid(*y.shape), x, *rest, indices],
            torch.ops.aten.max_pool2d_with_indices_backward.default,
            terms=32,
        )
    c.write(folder)


def foreach(folder):
    c = Corpus("foreach", "Lists of tensors, as optimizers use them.")
    a, b, d = ([grid(2, 3), grid(4), grid()] for _ in range(3))
    pos = [t.abs() + 0.5 for t in a]
    c.case(
        "add_list",
        "aten::_foreach_add.List",
        [a, b, 1],
        lambda x, y, s: [p + q for p, q in zip(x, y, strict=True)],
    )
    c.case(
        "add_list_alpha",
        "aten::_foreach_add.List",
        [a, b, -0.5],
        lambda x, y, s: [p + s * q for p, q in zip(x, y, strict=True)],
        terms=8,
    )
    c.case(
        "add_list_host_alpha",
        "aten::_foreach_add.List",
        [a, b, Arg("%h0")],
        lambda x, y, s: [p - 0.25 * q for p, q in zip(x, y, strict=True)],
        terms=8,
        host=[("f64", -0.25)],
    )
    c.case("add_scalar", "aten::_foreach_add.Scalar", [a, 1.5], lambda x, s: [p + s for p in x])
    c.case(
        "mul_list", "aten::_foreach_mul.List", [a, b], lambda x, y: [p * q for p, q in zip(x, y, strict=True)]
    )
    c.case("mul_scalar", "aten::_foreach_mul.Scalar", [a, 0.75], lambda x, s: [p * s for p in x])
    c.case(
        "div_list",
        "aten::_foreach_div.List",
        [a, pos],
        lambda x, y: [p / q for p, q in zip(x, y, strict=True)],
    )
    c.case("div_scalar", "aten::_foreach_div.Scalar", [a, 3.0], lambda x, s: [p / s for p in x])
    c.case(
        "addcmul_scalar",
        "aten::_foreach_addcmul.Scalar",
        [a, b, d, 0.5],
        lambda x, y, z, v: [p + v * q * r for p, q, r in zip(x, y, z, strict=True)],
        rel=4,
        terms=16,
    )
    c.case("sqrt", "aten::_foreach_sqrt", [pos], lambda x: [p.sqrt() for p in x])
    c.write(folder)


def indexing(folder):
    c = Corpus(
        "indexing",
        "Reads and writes at places that tensors name; of several writes to a place the last counts.",
    )
    aten = torch.ops.aten
    table, cube = grid(6, 4), grid(3, 4, 5)
    i, j = torch.tensor([2, 0, 2]), torch.tensor([[1], [-1]])
    flat, twice = torch.tensor([5, 0, 5]), torch.tensor([3, 1, 3, 0])
    for name, indices in (
        ("first", [i]),
        ("second", [None, j]),
        ("both", [i, torch.tensor([0, 3, 0])]),
        ("broadcast", [i, j]),
        ("apart", [i, None, torch.tensor([4, 0, -2])]),
    ):
        x = cube if name != "both" else table
        c.case(f"index_{name}", "aten::index.Tensor", [x, indices], aten.index, exact=True)
        v = grid(*aten.index(x, indices).shape)
        c.case(
            f"index_put_accumulate_{name}",
            "aten::index_put",
            [x, indices, v, True],
            aten.index_put,
            terms=16,
        )
    c.case("index_strided", "aten::index.Tensor", [permuted(table), [flat]], aten.index, exact=True)
    c.case(
        "index_nothing",
        "aten::index.Tensor",
        [table, [torch.zeros(0, dtype=torch.int64)]],
        aten.index,
        exact=True,
    )
    for name, indices in (("", [i]), ("_both", [None, i, torch.tensor([4, 0, -2])])):
        c.case(f"unsafe_index{name}", "aten::_unsafe_index.Tensor", [cube, indices], aten.index, exact=True)
        v = torch.ones(aten.index(cube, indices).shape)
        c.case(
            f"unsafe_index_put{name}",
            "aten::_unsafe_index_put",
            [cube, indices, v, True],
            aten.index_put,
            terms=16,
        )
    once = torch.tensor([4, 1])
    c.case("index_put", "aten::index_put", [table, [once], grid(2, 4), False], aten.index_put, exact=True)
    c.case("index_put_row", "aten::index_put", [table, [once], grid(4), False], aten.index_put, exact=True)
    c.case(
        "index_put_i64",
        "aten::index_put",
        [torch.arange(6), [flat], torch.arange(3), True],
        aten.index_put,
        exact=True,
    )

    def last(x, _dim, index, source):  # PyTorch leaves open which one stays
        x = x.clone()
        for k, at in enumerate(index.tolist()):
            x[at] = source[k]
        return x

    c.case("index_copy_twice", "aten::index_copy", [table, 0, flat, grid(3, 4)], last, exact=True)
    for dim, index in ((0, flat), (1, twice)):
        source = grid(3, 4) if dim == 0 else grid(6, 4)
        c.case(
            f"index_add_{dim}",
            "aten::index_add",
            [table, dim, index, source, 1],
            lambda x, d, k, s, v: x.index_add(d, k, s),
            terms=16,
        )
        c.case(
            f"index_add_scaled_{dim}",
            "aten::index_add",
            [table, dim, index, source, -0.5],
            lambda x, d, k, s, v: x.index_add(d, k, s, alpha=v),
            terms=16,
        )
        c.case(
            f"index_fill_{dim}",
            "aten::index_fill.int_Scalar",
            [table, dim, index, 1.5],
            aten.index_fill,
            exact=True,
        )
    c.case("take", "aten::take", [table, torch.tensor([[0, 23], [-1, 7]])], aten.take, exact=True)
    c.case(
        "embedding_backward_padding",
        "aten::embedding_dense_backward",
        [grid(4, 4), twice, 6, 3, False],
        aten.embedding_dense_backward,
        terms=8,
    )
    c.case(
        "embedding_backward_frequency",
        "aten::embedding_dense_backward",
        [grid(4, 4), twice, 6, -1, True],
        aten.embedding_dense_backward,
        rel=4,
        terms=8,
    )
    many = torch.randint(0, 7, (1500,))
    c.case(
        "embedding_backward_many",
        "aten::embedding_dense_backward",
        [grid(1500, 1), many, 7, -1, False],
        aten.embedding_dense_backward,
        terms=1500,
    )
    for dim in (0, 1):
        into = torch.argsort(torch.rand(6, 4), dim)[:3, :3]
        into = into.contiguous()
        c.case(
            f"scatter_src_{dim}",
            "aten::scatter.src",
            [table, dim, into, grid(3, 3)],
            aten.scatter,
            exact=True,
        )
        c.case(
            f"scatter_value_{dim}", "aten::scatter.value", [table, dim, into, -2.5], aten.scatter, exact=True
        )
        again = torch.randint(0, table.shape[dim], (5, 4))
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            for include in (True, False):
                c.case(
                    f"scatter_reduce_{reduce}_{dim}{'' if include else '_alone'}",
                    "aten::scatter_reduce.two",
                    [table, dim, again, grid(5, 4), Arg(f'"{reduce}"'), include],
                    lambda x, d, k, s, r, keep: x.scatter_reduce(d, k, s, r, include_self=keep),
                    rel=16,
                    terms=16,
                )
    c.case(
        "masked_scatter",
        "aten::masked_scatter",
        [table, table > 0, grid(24)],
        aten.masked_scatter,
        exact=True,
    )
    c.case(
        "masked_scatter_row",
        "aten::masked_scatter",
        [table, torch.tensor([True, False, False, True]), grid(3, 4)],
        aten.masked_scatter,
        exact=True,
    )
    edges = grid(9).sort().values
    for right in (False, True):
        name = "right" if right else "left"
        search = [edges, grid(3, 5), False, right, None, None]
        c.case(
            f"searchsorted_{name}",
            "aten::searchsorted.Tensor",
            search,
            lambda s, v, o, r, _side, _by: torch.searchsorted(s, v, right=r),
            exact=True,
        )
        c.case(
            f"bucketize_{name}",
            "aten::bucketize.Tensor",
            [grid(3, 5), edges, False, right],
            lambda v, s, o, r: torch.bucketize(v, s, right=r),
            exact=True,
        )
    rows = grid(3, 7).sort(1).values
    c.case(
        "searchsorted_rows",
        "aten::searchsorted.Tensor",
        [rows, grid(3, 4), False, False, None, None],
        lambda s, v, *_: torch.searchsorted(s, v),
        exact=True,
    )
    loose = grid(8)
    c.case(
        "searchsorted_sorter",
        "aten::searchsorted.Tensor",
        [loose, grid(5), False, False, None, loose.argsort()],
        lambda s, v, o, r, _side, by: torch.searchsorted(s, v, sorter=by),
        exact=True,
    )
    c.write(folder)


def moves(folder):
    c = Corpus("moves", "Elements at other places: exact.")
    aten = torch.ops.aten
    a, cube = grid(3, 5), grid(2, 3, 4)

    def case(name, op, args, call, variant=""):
        c.case(name + variant, op, args, call, exact=True)

    for dim in (0, 1):
        parts = [grid(*((n, 4) if dim == 0 else (4, n))) for n in (1, 0, 3)]
        case(f"cat_{dim}", "aten::cat", [parts, dim], torch.cat)
    case("cat_strided", "aten::cat", [[permuted(a), a], 1], torch.cat)
    case("roll", "aten::roll", [a, [2, -1], [0, 1]], torch.roll)
    case("roll_flat", "aten::roll", [a, [4], []], torch.roll)
    case("repeat", "aten::repeat", [a, [2, 1, 3]], lambda x, r: x.repeat(r))
    for name, pads in (("", [1, 2]), ("_two", [1, 0, 2, 1]), ("_cut", [-1, 2, 0, -1])):
        case(f"constant_pad{name}", "aten::constant_pad_nd", [a, pads, 1.5], aten.constant_pad_nd)
    case("reflection_pad1d", "aten::reflection_pad1d", [a, [2, 3]], aten.reflection_pad1d)
    case("reflection_pad2d", "aten::reflection_pad2d", [cube, [2, 1, 0, 2]], aten.reflection_pad2d)
    case("replication_pad2d", "aten::replication_pad2d", [cube, [2, 3, 1, 4]], aten.replication_pad2d)
    case("slice_scatter", "aten::slice_scatter", [a, grid(3, 2), 1, 0, 4, 2], aten.slice_scatter)
    case("select_scatter", "aten::select_scatter", [a, grid(3), 1, 4], aten.select_scatter)
    case("diagonal_scatter", "aten::diagonal_scatter", [a, grid(3), 1, 0, 1], aten.diagonal_scatter)
    case(
        "as_strided_scatter",
        "aten::as_strided_scatter",
        [a, grid(2, 2), [2, 2], [5, 2], 1],
        aten.as_strided_scatter,
    )
    case("slice_backward", "aten::slice_backward", [grid(3, 2), [3, 5], 1, 1, 5, 2], aten.slice_backward)
    case("select_backward", "aten::select_backward", [grid(3), [3, 5], 1, 2], aten.select_backward)
    case("pixel_shuffle", "aten::pixel_shuffle", [grid(2, 8, 2, 3), 2], aten.pixel_shuffle)
    c.write(folder)


def last_channels(t):
    """The same values with channels last."""
    return t.to(memory_format=torch.channels_last)


def resampling(folder):
    c = Corpus("resampling", "Averages over windows, other sizes of images, and their gradients.")
    aten = torch.ops.aten
    image, volume = grid(1, 2, 6, 5), grid(1, 2, 4, 5, 4)
    for name, x in (("", image), ("_last", last_channels(image))):
        for rest in (
            [[2, 2], [2, 2], [0, 0], False, True, None],
            [[3, 2], [2, 1], [1, 1], True, False, None],
            [[3, 3], [1, 2], [1, 0], False, True, 5],
        ):
            variant = "_".join(str(v) for v in (rest[0][0], rest[1][0], rest[2][0])) + name
            c.case(f"avg_pool2d_{variant}", "aten::avg_pool2d", [x, *rest], aten.avg_pool2d, rel=4, terms=32)
            g = grid(*aten.avg_pool2d(x, *rest).shape)
            c.case(
                f"avg_pool2d_backward_{variant}",
                "aten::avg_pool2d_backward",
                [g, x, *rest],
                aten.avg_pool2d_backward,
                rel=4,
                terms=32,
            )
        for size in ([3, 2], [1, 1], [4, 5]):
            variant = f"{size[0]}_{size[1]}{name}"
            c.case(
                f"adaptive_avg_pool2d_{variant}",
                "aten::_adaptive_avg_pool2d",
                [x, size],
                aten._adaptive_avg_pool2d,
                rel=4,
                terms=64,
            )
            g = grid(1, 2, *size)
            c.case(
                f"adaptive_avg_pool2d_backward_{variant}",
                "aten::_adaptive_avg_pool2d_backward",
                [g, x],
                aten._adaptive_avg_pool2d_backward,
                rel=4,
                terms=32,
            )
        c.case(
            f"adaptive_max_pool2d{name}",
            "aten::adaptive_max_pool2d",
            [x, [3, 2]],
            lambda *p: list(aten.adaptive_max_pool2d(*p)),
            exact=True,
        )
        for size in ([9, 4], [12, 10]):
            variant = f"{size[0]}{name}"
            shapes = [size, [1, 2, 6, 5]]
            g = grid(1, 2, *size)
            c.case(
                f"upsample_nearest2d_{variant}",
                "aten::upsample_nearest2d",
                [x, size, None, None],
                aten.upsample_nearest2d,
                exact=True,
            )
            c.case(
                f"upsample_nearest2d_backward_{variant}",
                "aten::upsample_nearest2d_backward",
                [g, *shapes, None, None],
                aten.upsample_nearest2d_backward,
                terms=16,
            )
            for corners in (False, True):
                kind = f"{variant}{'_corners' if corners else ''}"
                # Weights are computed in f32.
                c.case(
                    f"upsample_bilinear2d_{kind}",
                    "aten::upsample_bilinear2d",
                    [x, size, corners, None, None],
                    aten.upsample_bilinear2d,
                    rel=8,
                    terms=64,
                )
                c.case(
                    f"upsample_bilinear2d_backward_{kind}",
                    "aten::upsample_bilinear2d_backward",
                    [g, *shapes, corners, None, None],
                    aten.upsample_bilinear2d_backward,
                    rel=8,
                    terms=64,
                )
    c.case(
        "avg_pool1d",
        "aten::avg_pool1d",
        [grid(2, 3, 7), [3], [2], [1], False, True],
        aten.avg_pool1d,
        rel=4,
        terms=16,
    )
    c.case(
        "adaptive_avg_pool1d",
        "aten::adaptive_avg_pool1d",
        [grid(2, 3, 7), [3]],
        aten.adaptive_avg_pool1d,
        rel=4,
        terms=16,
    )
    c.case(
        "avg_pool3d",
        "aten::avg_pool3d",
        [volume, [2] * 3, [2] * 3, [0] * 3, False, True, None],
        aten.avg_pool3d,
        rel=4,
        terms=32,
    )
    c.case(
        "adaptive_avg_pool3d",
        "aten::_adaptive_avg_pool3d",
        [volume, [2, 3, 2]],
        aten._adaptive_avg_pool3d,
        rel=4,
        terms=64,
    )
    distinct = torch.randperm(volume.numel()).reshape(volume.shape).float()
    c.case(
        "max_pool3d",
        "aten::max_pool3d_with_indices",
        [distinct, [2] * 3, [2] * 3, [1] * 3, [1] * 3, False],
        lambda *p: list(aten.max_pool3d_with_indices(*p)),
        exact=True,
    )
    points = grid(1, 3, 4, 2, scale=0.625)
    for mode, kind in enumerate(("bilinear", "nearest")):
        for padding, edge in enumerate(("zeros", "border", "reflection")):
            for corners in (False, True):
                c.case(
                    f"grid_sampler_2d_{kind}_{edge}{'_corners' if corners else ''}",
                    "aten::grid_sampler_2d",
                    [image, points + 0.001953125 if mode else points, mode, padding, corners],
                    aten.grid_sampler_2d,
                    rel=8,
                    terms=256,
                )
    c.write(folder)


def losses(folder):
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


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox 4x32-10 of Salmon et al., 2011."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return tuple(c)


# The vectors that Random123 publishes.
assert philox((0,) * 4, (0,) * 2) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
assert philox((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
assert philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)) == (
    0xD16CFE09,
    0x94FDCCEB,
    0x5001E420,
    0x24126EA1,
)


def word(seed: int, offset: int, i: int) -> int:
    """Word i by PRG-7."""
    counter = (offset + i // 4) & 0xFFFFFFFFFFFFFFFF
    seed &= 0xFFFFFFFFFFFFFFFF
    return philox((counter & 0xFFFFFFFF, counter >> 32, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[i % 4]


def wide_word(seed: int, offset: int, i: int) -> int:
    return word(seed, offset, 2 * i) | word(seed, offset, 2 * i + 1) << 32


def f32(v: float) -> float:
    return torch.tensor(v, dtype=torch.float64).float().item()


def random(folder):
    c = Corpus("random", "Random operators by rule PRG-7.")
    # Seeds that a double holds: the corpus is read as such.
    for seed, offset in ((0, 0), (1, 5), (0x12345690ABCDEF, 2**32 - 1), (-1, 2**40)):
        tag = f"s{seed & 0xFFFF:x}_o{offset:x}"
        host = [("i64", seed), ("i64", offset)]
        stream = [Arg("%h0"), Arg("%h1")]
        u = [(word(seed, offset, i) >> 8) * 2.0**-24 for i in range(130)]

        def uniform(*_, u=u):
            return torch.tensor([f32(f32(v * 3.0) - 1.0) for v in u], dtype=torch.float64)

        # from + (to - from) * u in two roundings: exact.
        c.case(
            f"uniform_{tag}",
            "lazyt::uniform",
            [[130], torch.float32, -1.0, 2.0, *stream],
            uniform,
            exact=True,
            host=host,
        )
        v = [(wide_word(seed, offset, i) >> 11) * 2.0**-53 for i in range(9)]
        c.case(
            f"uniform_f64_{tag}",
            "lazyt::uniform",
            [[9], torch.float64, 0.0, 1.0, *stream],
            lambda *_, v=v: [(torch.tensor(v, dtype=torch.float64), torch.float64)],
            exact=True,
            host=host,
        )

        def normal(*_, seed=seed, offset=offset):
            out = []
            for k in range(0, 66, 2):
                u1 = ((word(seed, offset, k) >> 8) + 1) * 2.0**-24
                u2 = (word(seed, offset, k + 1) >> 8) * 2.0**-24
                r = math.sqrt(-2 * math.log(u1))
                out += [r * math.cos(2 * math.pi * u2), r * math.sin(2 * math.pi * u2)]
            return torch.tensor([2.0 * x + 0.5 for x in out[:65]], dtype=torch.float64)

        c.case(
            f"normal_{tag}",
            "lazyt::normal",
            [[65], torch.float32, 0.5, 2.0, *stream],
            normal,
            rel=8,
            terms=64,
            host=host,
        )
        x = grid(6, 11)

        def dropout(t, *_, u=u):
            keep = torch.tensor([a >= f32(0.3) for a in u[:66]]).reshape(6, 11)
            return [torch.where(keep, t * f32(1 / (1 - f32(0.3))), 0.0), keep]

        c.case(f"dropout_{tag}", "lazyt::dropout", [x, 0.3, *stream], dropout, rel=4, host=host)
        p = (torch.arange(66) / 65).reshape(6, 11)
        c.case(
            f"bernoulli_{tag}",
            "lazyt::bernoulli",
            [p, *stream],
            lambda p, *_, u=u: (torch.tensor(u[:66], dtype=torch.float64).reshape(6, 11) < p).double(),
            exact=True,
            host=host,
        )
        # One word an element whatever the dtype.
        c.case(
            f"bernoulli_f64_{tag}",
            "lazyt::bernoulli",
            [p.double()[:3], *stream],
            lambda p, *_, u=u: (torch.tensor(u[:33], dtype=torch.float64).reshape(3, 11) < p).double(),
            exact=True,
            host=host,
        )
        for dtype in (torch.int64, torch.int32, torch.float32):
            draw = wide_word if dtype == torch.int64 else word
            low, high = -3, 1000

            def randint(*_, seed=seed, offset=offset, draw=draw, dtype=dtype, low=low, high=high):
                drawn = [low + draw(seed, offset, i) % (high - low) for i in range(67)]
                return [(torch.tensor(drawn), dtype)]

            c.case(
                f"randint_{NAMES[dtype]}_{tag}",
                "lazyt::randint",
                [[67], dtype, low, high, *stream],
                randint,
                exact=True,
                host=host,
            )
    c.write(folder)


def distinct(*shape, dtype=torch.float32):
    """Different numbers, in no order."""
    n = math.prod(shape)
    return ((torch.randperm(n) - n // 2).double() / 64).reshape(shape).to(dtype)


def listed(call):
    return lambda *args: list(call(*args))


def along(folder):
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
    c.write(folder)


def normalizations(folder):
    c = Corpus("normalizations", "Layer, RMS, group and batch norm, and their backwards.", digits=9)
    aten = torch.ops.aten
    for tag, shape, own in (
        ("rows", (4, 6), [6]),
        ("two_dims", (2, 3, 4), [3, 4]),
        ("wide", (3, 300), [300]),
        ("long", (1, 1100), [1100]),
    ):
        x, g, w, b = grid(*shape), grid(*shape), grid(*own), grid(*own)
        for kind, ww, bb in (("", w, b), ("_plain", None, None), ("_weight", w, None))[
            : 1 if tag in ("wide", "long") else 3
        ]:
            c.case(
                f"layer_norm_{tag}{kind}",
                "aten::native_layer_norm",
                [x, own, ww, bb, 1e-5],
                lambda *a: list(aten.native_layer_norm(*a)),
                rel=32,
                terms=32,
            )
        mean, rstd = aten.native_layer_norm(x.double(), own, None, None, 1e-5)[1:]
        c.case(
            f"layer_norm_backward_{tag}",
            "aten::native_layer_norm_backward",
            [g, x, own, mean.float(), rstd.float(), w, b, [True, True, True]],
            lambda *a: list(aten.native_layer_norm_backward(*a)),
            rel=64,
            terms=256,
        )
        inverse = (x.double().square().mean([-1 - d for d in range(len(own))], keepdim=True) + 1e-5).rsqrt()
        c.case(
            f"rms_norm_{tag}",
            "aten::_fused_rms_norm",
            [x, own, w, 1e-5],
            lambda x, own, w, e, r=inverse: [x * r * w, r],
            rel=32,
            terms=32,
        )
        c.case(
            f"rms_norm_backward_{tag}",
            "aten::_fused_rms_norm_backward",
            [g, x, own, inverse.float(), w, [True, True]],
            rms_norm_backward,
            rel=64,
            terms=256,
        )
    x, g = grid(2, 4, 3, 5), grid(2, 4, 3, 5)
    last = x.to(memory_format=torch.channels_last)
    w, b = grid(4), grid(4)
    for tag, y in (("", x), ("_channels_last", last)):
        g = g.contiguous(memory_format=torch.channels_last if tag else torch.contiguous_format)
        for groups in (1, 2, 4):
            out, mean, rstd = aten.native_group_norm(
                x.double(), w.double(), b.double(), 2, 4, 15, groups, 1e-5
            )
            c.case(
                f"group_norm_{groups}{tag}",
                "aten::native_group_norm",
                [y, w, b, 2, 4, 15, groups, 1e-5],
                lambda x, *a: list(aten.native_group_norm(x.contiguous(), *a)),
                rel=32,
                terms=32,
            )
            c.case(
                f"group_norm_backward_{groups}{tag}",
                "aten::native_group_norm_backward",
                [g, y, mean.float(), rstd.float(), w, 2, 4, 15, groups, [True, True, True]],
                lambda g, x, *a: list(aten.native_group_norm_backward(g.contiguous(), x.contiguous(), *a)),
                rel=64,
                terms=256,
            )
        mean, var = grid(4), grid(4, positive=True)
        for training in (True, False):
            c.case(
                f"batch_norm_{'train' if training else 'eval'}{tag}",
                "aten::_native_batch_norm_legit_functional",
                [y, w, b, mean, var, training, 0.1, 1e-5],
                lambda x, w, b, m, v, t, p, e: list(batch_norm(x, w, b, m, v, t, p, e)),
                rel=32,
                terms=32,
            )
            saved = (
                x.double().mean((0, 2, 3)).float(),
                (x.double().var((0, 2, 3), correction=0) + 1e-5).rsqrt().float(),
            )
            c.case(
                f"batch_norm_backward_{'train' if training else 'eval'}{tag}",
                "aten::native_batch_norm_backward",
                [g, y, w, mean, var, *saved, training, 1e-5, [True, True, True]],
                lambda g, x, *a: list(aten.native_batch_norm_backward(g.contiguous(), x.contiguous(), *a)),
                rel=64,
                terms=256,
            )
        c.case(
            f"batch_norm_no_training{tag}",
            "aten::_native_batch_norm_legit_no_training",
            [y, w, b, mean, var, 0.1, 1e-5],
            lambda x, *a: [batch_norm(x, *a[:4], False, *a[4:])[0], torch.zeros(0), torch.zeros(0)],
            rel=32,
            terms=32,
        )
        c.case(
            f"batch_norm_no_stats{tag}",
            "aten::_native_batch_norm_legit.no_stats",
            [y, w, b, True, 0.1, 1e-5],
            lambda x, w, b, t, p, e: list(batch_norm(x, w, b, 0, 0, t, p, e)[:3]),
            rel=32,
            terms=32,
        )
    c.write(folder)


def rms_norm_backward(g, x, own, rstd, w, mask):
    dims = [-1 - d for d in range(len(own))]
    h = g * w
    gx = rstd * h - x * rstd**3 * (h * x).mean(dims, keepdim=True)
    return [gx, (g * x * rstd).sum(list(range(x.dim() - len(own))))]


def batch_norm(x, w, b, mean, var, training, momentum, eps):
    """All five results of _native_batch_norm_legit_functional."""
    dims = [d for d in range(x.dim()) if d != 1]
    n = x.numel() // x.shape[1]
    m, v = (x.mean(dims), x.var(dims, correction=0)) if training else (mean, var)
    shape = [1, -1] + [1] * (x.dim() - 2)
    inv = (v + eps).rsqrt()
    y = (x - m.view(shape)) * (inv * w).view(shape) + b.view(shape)
    if not training:
        return y, torch.zeros(0), torch.zeros(0), mean, var
    return y, m, inv, momentum * m + (1 - momentum) * mean, momentum * v * n / (n - 1) + (1 - momentum) * var


def products(folder):
    c = Corpus(
        "products",
        "More matrix products and convolutions: batches, splits of long sums, windows of one to three dims.",
        digits=9,
    )
    aten = torch.ops.aten
    for tag, (batch, m, k, n) in {
        "few": (3, 5, 7, 6),
        "many": (132, 5, 1, 5),
        "long": (1, 6, 520, 5),
        "tiles": (1, 66, 9, 70),
        "rows": (2, 1, 9, 40),
        "columns": (2, 40, 9, 1),
    }.items():
        a, b = grid(batch, m, k), grid(batch, k, n)
        c.case(f"bmm_{tag}", "aten::bmm", [a, b], torch.bmm, terms=4 * k)
        if tag in ("tiles", "many", "long"):
            continue
        turned = (
            a.transpose(1, 2).contiguous().transpose(1, 2),
            b.transpose(1, 2).contiguous().transpose(1, 2),
        )
        c.case(f"bmm_{tag}_strided", "aten::bmm", list(turned), torch.bmm, terms=4 * k)
    a, b = grid(3, 5, 7), grid(3, 7, 6)
    c.case(
        "baddbmm",
        "aten::baddbmm",
        [grid(5, 6), a, b, 0.5, 2],
        lambda s, x, y, beta, alpha: torch.baddbmm(s, x, y, beta=beta, alpha=alpha),
        rel=4,
        terms=64,
    )
    c.case(
        "addmm_column",
        "aten::addmm",
        [grid(5, 1), a[0].clone(), b[0].clone(), 1, 1],
        lambda s, x, y, *_: torch.addmm(s, x, y),
        terms=32,
    )
    c.case(
        "addmm_beta_zero",
        "aten::addmm",
        [torch.full((6,), math.nan), a[0].clone(), b[0].clone(), 0, 1],
        lambda s, x, y, *_: x @ y,
        terms=32,
    )
    c.case(
        "addmm_host",
        "aten::addmm",
        [grid(6), a[0].clone(), b[0].clone(), Arg("%h0"), Arg("%h1")],
        lambda s, x, y, *_: torch.addmm(s, x, y, beta=0.25, alpha=1.5),
        rel=4,
        terms=64,
        host=[("f64", 0.25), ("f64", 1.5)],
    )
    c.case(
        "addmv",
        "aten::addmv",
        [grid(5), grid(5, 7), grid(7), 1, 1],
        lambda s, x, y, *_: torch.addmv(s, x, y),
        terms=32,
    )
    c.case("mv", "aten::mv", [grid(5, 300), grid(300)], torch.mv, terms=1200)
    c.case("dot", "aten::dot", [grid(300), grid(300)], torch.dot, terms=1200)
    c.case("linear", "aten::linear", [grid(2, 3, 7), grid(6, 7), grid(6)], aten.linear, terms=32)
    c.case("linear_plain", "aten::linear", [grid(3, 7), grid(6, 7), None], aten.linear, terms=32)
    c.case("matmul_broadcast", "aten::matmul", [grid(2, 1, 3, 5), grid(4, 5, 6)], torch.matmul, terms=32)
    c.case("matmul_vector", "aten::matmul", [grid(2, 3, 5), grid(5)], torch.matmul, terms=32)
    c.case(
        "mm_i64",
        "aten::mm",
        [torch.randint(-9, 9, (6, 7)), torch.randint(-9, 9, (7, 6))],
        lambda x, y: (x.double() @ y.double()).long(),
        exact=True,
    )
    c.case(
        "mm_i32",
        "aten::mm",
        [torch.randint(-9, 9, (6, 7)).int(), torch.randint(-9, 9, (7, 6)).int()],
        lambda x, y: (x.double() @ y.double()).int(),
        exact=True,
    )
    shapes = {
        "1d": ((2, 3, 11), (4, 3, 3), dict(stride=[2], padding=[1])),
        "3d": ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), dict(padding=[1, 0, 1])),
        "depthwise": ((2, 4, 6, 6), (4, 1, 3, 3), dict(padding=[1, 1], groups=4)),
        "channels_last": ((2, 8, 5, 6), (6, 8, 3, 3), dict(padding=[1, 1])),
        "wide": ((1, 3, 7, 9), (36, 3, 3, 3), dict(stride=[1, 2], padding=[2, 1], dilation=[2, 1])),
        "transposed": (
            (2, 6, 4, 5),
            (6, 5, 3, 3),
            dict(stride=[2, 2], padding=[1, 0], output_padding=[1, 0], transposed=True),
        ),
        "transposed_grouped": (
            (2, 6, 4, 5),
            (6, 3, 3, 2),
            dict(stride=[2, 1], dilation=[1, 2], groups=2, transposed=True),
        ),
        "transposed_1d": ((2, 5, 7), (5, 6, 4), dict(stride=[3], padding=[1], transposed=True)),
    }
    for tag, (xs, ws, options) in shapes.items():
        axes = len(xs) - 2
        x, w = grid(*xs), grid(*ws)
        if tag == "channels_last":
            x = x.to(memory_format=torch.channels_last)
        transposed, groups = options.get("transposed", False), options.get("groups", 1)
        geometry = [
            options.get("stride", [1] * axes),
            options.get("padding", [0] * axes),
            options.get("dilation", [1] * axes),
            transposed,
            options.get("output_padding", [0] * axes),
            groups,
        ]
        bias = grid(ws[1] * groups if transposed else ws[0])
        y = aten.convolution(x.double(), w.double(), bias.double(), *geometry)
        terms = 4 * ws[1] * math.prod(ws[2:])
        c.case(
            f"convolution_{tag}",
            "aten::convolution",
            [x, w, bias, *geometry],
            lambda x, *a: aten.convolution(x, *a).contiguous(),
            rel=4,
            terms=max(terms, 4 * ws[0] * math.prod(ws[2:]) // groups),
        )
        g = grid(*y.shape)
        if tag == "channels_last":
            g = g.to(memory_format=torch.channels_last)
        c.case(
            f"convolution_backward_{tag}",
            "aten::convolution_backward",
            [g, x, w, [bias.numel()], *geometry, [True, True, True]],
            lambda *a: [r.contiguous() for r in aten.convolution_backward(*a)],
            rel=8,
            terms=4 * max(y.numel() // y.shape[1], ws[0] * math.prod(ws[2:])),
        )
    c.write(folder)


def attention(folder):
    c = Corpus("attention", "Scaled dot product attention and its backward.", digits=9)
    for tag, (heads, n, s, e) in {
        "small": ((2, 3), 5, 7, 4),
        "tiles": ((1, 1), 70, 40, 5),
        "wide": ((1, 1), 5, 6, 136),
    }.items():
        q, k, v = grid(*heads, n, e), grid(*heads, s, e), grid(*heads, s, e)
        g = grid(*heads, n, e)
        mask = grid(1, 1, n, s)
        for kind, causal, m in (("", False, None), ("_causal", True, None), ("_mask", False, mask))[
            : 3 if tag == "small" else 2 if tag == "tiles" else 1
        ]:

            def forward(q, k, v, p, causal, m, scale):
                scores = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
                scores = scores if m is None else scores + m
                if causal:
                    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
                return [torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)]

            c.case(
                f"flash_{tag}{kind}",
                "aten::_scaled_dot_product_flash_attention_for_cpu",
                [q, k, v, 0.0, causal, m, None],
                forward,
                rel=64,
                terms=64,
            )
            out, lse = forward(
                q.double(), k.double(), v.double(), 0.0, causal, None if m is None else m.double(), None
            )

            def gradients(g, q, k, v, out, lse, p, causal, m, scale, forward=forward):
                leaves = [t.detach().requires_grad_() for t in (q, k, v)]
                with torch.enable_grad():
                    y = forward(*leaves, p, causal, m, scale)[0]
                return list(torch.autograd.grad(y, leaves, g))

            c.case(
                f"flash_backward_{tag}{kind}",
                "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
                [g, q, k, v, out.float(), lse.float(), 0.0, causal, m, None],
                gradients,
                rel=128,
                terms=1024,
            )
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
    c.write(folder)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/conformance/corpus"
    folder.mkdir(parents=True, exist_ok=True)
    # The last draws after the others: their values stay what they were.
    makers = (
        pointwise,
        views,
        reductions,
        contractions,
        pooling,
        foreach,
        random,
        functions,
        along,
        normalizations,
        products,
        attention,
        indexing,
        moves,
        resampling,
        losses,
    )
    for make in makers:
        make(folder)
    print(f"{sum(f.stat().st_size for f in folder.glob('*.lzt'))} bytes in {folder}")


if __name__ == "__main__":
    main()
