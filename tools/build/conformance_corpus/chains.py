"""Programs of several pointwise operators, which a backend may run as one kernel: what it keeps between them,
where rows of operands repeat, what is left of the last tile of elements."""

import math

import torch
from conformance_corpus.corpus import NAMES, Corpus, grid, literal, number, numbers, permuted, type_of

aten = torch.ops.aten
# More than one tile of the widest machine there is, and a rest in all of them.
N = 300


class Value:
    def __init__(self, name: str, value: torch.Tensor, dtype: torch.dtype):
        self.name, self.value, self.dtype = name, value, dtype


class Program:
    """A program whose values are computed in float64 as it is written; operands are such that float32 holds
    each exactly."""

    def __init__(self, *inputs: torch.Tensor):
        self.inputs = [
            Value(f"%{i}", t.double() if t.is_floating_point() else t, t.dtype) for i, t in enumerate(inputs)
        ]
        self.types = [type_of(t) for t in inputs]
        self.lines: list[str] = []

    def __call__(self, op: str, *args, dtype: torch.dtype | None = None) -> Value:
        packet, _, overload = op.partition(".")
        values = [a.value if isinstance(a, Value) else a for a in args]
        if packet == "_to_copy":
            result = values[0].to(torch.float64 if dtype.is_floating_point else dtype)
            args = [args[0], dtype, None, None, None, False, None]
        else:
            call = getattr(getattr(aten, packet), overload or "default")
            known = list(zip(call._schema.arguments, values, strict=True))
            named = {a.name: v for a, v in known if a.kwarg_only}
            result = call(*[v for a, v in known if not a.kwarg_only], **named)
        kind = dtype or (torch.float32 if result.is_floating_point() else result.dtype)
        out = Value(f"%{len(self.inputs) + len(self.lines)}", result, kind)
        text = ", ".join(a.name if isinstance(a, Value) else literal(a) for a in args)
        self.lines.append(
            f"  {out.name} = aten::{op}({text}) : {NAMES[kind]}[{','.join(map(str, result.shape))}]"
        )
        return out

    def case(self, c: Corpus, name: str, *results: Value, rel: float = 0.0) -> None:
        taken = ", ".join(f"{v.name}: {t}" for v, t in zip(self.inputs, self.types, strict=True))
        c.lines += [f"case {name}", f"program({taken}) {{", *self.lines]
        c.lines += [f"  return {', '.join(r.name for r in results)}", "}"]
        c.lines += [("in " + numbers(v.value)).strip() for v in self.inputs]
        c.lines += [f"out {number(rel * 2.0**-23)} 0 {numbers(r.value)}" for r in results]


def cheap(p: Program, a: Value, b: Value) -> Value:
    """A value that is read at once and again later."""
    c = p("relu", p("sub.Tensor", p("mul.Scalar", p("add.Tensor", p("mul.Tensor", a, b), a, 1), 0.5), b, 1))
    d = p("sub.Tensor", p("mul.Tensor", p("add.Tensor", c, a, 1), b), c, 1)
    return p("mul.Scalar", p("abs", d), 0.25)


def odd(n: int) -> torch.Tensor:
    """Numbers with the special ones among them."""
    t = grid(n)
    t[::7], t[3::11], t[5::13], t[6::17] = math.nan, math.inf, -math.inf, 0.0
    return t


def make(folder):
    c = Corpus("chains", "Programs of several pointwise operators.")
    for n in (1, 31, 128, N, 8192 + 130):
        few = torch.arange(n) % 17
        a, b = (grid(n), grid(n)) if n < 1000 else ((few - 8).float() / 4, (few % 5).float() / 2)
        p = Program(a, b)
        p_out = cheap(p, *p.inputs)
        p.case(c, f"cheap_{n}", p_out)

    # Several values that live at once; results that are also read later.
    p = Program(grid(N), grid(N), grid(N))
    x, y, z = p.inputs
    s, d, m = p("add.Tensor", x, y, 1), p("sub.Tensor", x, z, 1), p("mul.Tensor", y, z)
    e = p("mul.Tensor", s, d)
    f = p("add.Tensor", p("sub.Tensor", e, m, 1), s, 1)
    p.case(c, "kept", e, p("sub.Tensor", f, d, 1), m, p("neg", s))

    # The later operand is the one at hand.
    p = Program(grid(N), grid(N, positive=True))
    x, y = p.inputs
    t = p("mul.Tensor", x, y)
    p.case(
        c,
        "at_hand",
        p("sub.Tensor", x, p("abs", t), 1),
        p("div.Tensor", x, p("exp2", p("floor", t))),
        p("copysign.Tensor", x, p("neg", t)),
        p("copysign.Tensor", p("neg", t), x),
        p("rsub.Scalar", t, 3, 1),
    )

    # Comparisons with either operand at hand, of numbers and of none; bools that are read as bytes.
    p = Program(odd(N), grid(N))
    x, y = p.inputs
    held = p("neg", x)
    bools = [
        p(f"{k}.Tensor", p("neg", x) if k in ("lt", "ge") else held, y)
        for k in ("lt", "le", "gt", "ge", "eq", "ne")
    ]
    back = [p(f"{k}.Tensor", y, p("abs", x)) for k in ("lt", "le", "gt", "ge", "eq", "ne")]
    p.case(c, "compared", *bools, *back)
    p = Program(odd(N), grid(N), torch.rand(N) < 0.5, torch.rand(N) < 0.5)
    x, y, u, v = p.inputs
    low, high = p("lt.Scalar", p("neg", y), 0.5), p("ge.Scalar", p("abs", y), 1)
    both = [p(k, low, high) for k in ("logical_and", "logical_or", "logical_xor")]
    p.case(
        c,
        "chosen",
        p("where.self", both[0], p("neg", x), y),
        p("where.self", p("logical_not", both[1]), x, p("abs", y)),
        p("where.self", p("logical_or", u, both[2]), p("relu", y), p("neg", y)),
        p("logical_and", p("logical_not", v), low),
        p("isnan", p("neg", x)),
        p("masked_fill.Scalar", p("abs", y), p("logical_xor", u, v), 1.5),
        p("mul.Tensor", p("neg", y), p("_to_copy", u, dtype=torch.float32)),
    )

    # Bounds: NaN on either side is the result, whichever is at hand, a number or not.
    p = Program(odd(N), odd(N).flip(0))
    x, y = p.inputs
    p.case(
        c,
        "bounded",
        p("maximum", p("neg", x), y),
        p("minimum", p("neg", x), y),
        p("maximum", y, p("abs", x)),
        p("minimum", y, p("abs", x)),
        p("clamp", p("neg", x), -0.5, 0.75),
        p("clamp", p("neg", y), None, math.nan),
        p("clamp", p("abs", y), math.nan, None),
        p("relu", p("neg", y)),
    )

    # Rows, columns and single elements that repeat; rows long enough for blocks of their own, and short ones.
    for rows, columns in ((3, N), (40, 7), (2, 1), (9, 257)):
        p = Program(grid(rows, columns), grid(columns), grid(rows, 1), grid(1), permuted(grid(rows, columns)))
        x, row, column, one, turned = p.inputs
        t = p("add.Tensor", p("mul.Tensor", x, row), column, 1)
        u = p("sub.Tensor", p("mul.Tensor", t, one), row, 1)
        p.case(
            c,
            f"broadcast_{rows}x{columns}",
            u,
            p("add.Tensor", p("mul.Tensor", u, column), t, 1),
            p("sub.Tensor", turned, p("abs", t), 1),
            p("gt.Tensor", u, column),
            p("add.Tensor", row, p("neg", row), 1),
        )

    # What fused code gives to a sum, by rows, by columns and whole.
    for rows, columns in ((3, N), (N, 3), (40, 7), (1, 1)):
        p = Program(grid(rows, columns), grid(columns))
        x, row = p.inputs
        t = p("relu", p("sub.Tensor", p("mul.Tensor", x, row), x, 1))
        p.case(
            c,
            f"summed_{rows}x{columns}",
            p("sum.dim_IntList", t, [1], False, None),
            p("sum.dim_IntList", p("abs", t), [0], False, None),
            p("sum", p("neg", t), None),
            t,
        )

    # Integers that become floats, and floats that become integers and bools.
    for dtype in (torch.int8, torch.uint8, torch.int32):
        low = 0 if dtype == torch.uint8 else -100
        p = Program(torch.randint(low, 101, (N,), dtype=dtype), grid(N))
        x, y = p.inputs
        wide = p("_to_copy", x, dtype=torch.float32)
        t = p("mul.Scalar", p("add.Tensor", wide, p("relu", y), 1), 0.5)
        p.case(
            c,
            f"integers_{NAMES[dtype]}",
            p("_to_copy", p("abs", t), dtype=torch.int32),
            p("_to_copy", p("clamp", t, 0, 100), dtype=torch.uint8),
            p("_to_copy", p("round", p("relu", t)), dtype=dtype) if dtype != torch.int8 else p("neg", t),
            p("_to_copy", p("relu", y), dtype=torch.bool),
        )

    # One operand.
    p = Program(odd(N))
    (x,) = p.inputs
    t = p("mul.Scalar", x, 2)
    p.case(
        c,
        "one_operand",
        *[p(k, p("mul.Scalar", x, 2)) for k in ("floor", "ceil", "round", "trunc", "sign", "abs")],
        p("neg", t),
        p("mul.Tensor", t, t),
    )
    p = Program(grid(N, positive=True))
    (x,) = p.inputs
    p.case(
        c,
        "one_operand_rounded",
        *[
            p(k, p("mul.Scalar", x, 2))
            for k in ("sqrt", "rsqrt", "reciprocal", "exp", "expm1", "log1p", "tanh", "sigmoid", "erf")
        ],
        rel=4,
    )

    # Multiplied and added, as eager rounds it (these products need no rounding).
    p = Program(grid(N), grid(N), grid(N))
    x, y, z = p.inputs
    t = p("abs", y)
    p.case(
        c,
        "multiplied_and_added",
        p("addcmul", p("neg", x), y, z, 1),
        p("addcmul", x, t, z, 0.5),
        p("addcmul", x, z, t, 2),
        p("add.Tensor", p("neg", x), y, 0.5),
        p("add.Tensor", y, p("neg", x), 0.5),
    )

    # Operands that do not lie in rows, over more than one block: in 16 bits they are converted as they are gathered.
    for op in ("maximum", "fmod.Tensor"):
        p = Program(permuted(grid(30, 40)), grid(30, 40, positive=True))
        p.case(c, f"turned_{op.split('.')[0]}", p(op, *p.inputs))

    # A sum so long that it is taken in pieces, of 65536 elements and of others; its totals in f64, too.
    for rows in (5 * 65536, 3 * 65536 + 7):
        p = Program(grid(1, 3))
        t = p("neg", p("expand", p.inputs[0], [rows, 3], False))
        p.case(c, f"summed_in_pieces_{rows}", p("sum", t, None), p("amax", t, [], False))
    p = Program(torch.tensor([[2.0**24, 1.0], [3.0, 2.0**30]], dtype=torch.float64))
    t = p("neg", *p.inputs, dtype=torch.float64)
    p.case(
        c,
        "summed_in_f64",
        p("sum.dim_IntList", t, [1], False, None, dtype=torch.float64),
        p("sum.dim_IntList", t, [0], False, None, dtype=torch.float64),
        p("sum", t, None, dtype=torch.float64),
    )
    c.write(folder)
