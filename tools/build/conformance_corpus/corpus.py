"""What the cases of all areas are written with."""

import math
from pathlib import Path

import torch

EPS = {"f32": 2.0**-23, "f64": 2.0**-52}
NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.bool: "b1",
    torch.int32: "i32",
    torch.uint8: "u8",
    torch.int8: "i8",
}


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
        if any(isinstance(x, float) for x in v):
            return f"doubles[{','.join(number(float(x)) for x in v)}]"
        return f"ints[{','.join(map(str, v))}]"
    return str(v)


class Corpus:
    def __init__(self, name: str, note: str, digits: int = 17):
        self.name, self.lines = name, [f"# {note} Written by tools/build/make_conformance_corpus.py."]
        self.digits = digits

    def case(self, name, op, args, call, rel=2.0, terms=0.0, exact=False, host=(), returned=None):
        """`args`: tensors, lists of tensors, and the rest as it stands in the schema. `call` maps the tensors
        in float64 to the results. `terms`: bound of a sum, in epsilons of the dtype times this magnitude.
        `host`: (dtype text, value) of host scalars, which stand in args as Arg("%h0"), ...
        `returned`: how many of the results the program returns, the first ones; all by default."""
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
            f"  return {', '.join(outs[:returned])}",
            "}",
        ]
        self.lines += [("in " + numbers(t, self.digits)).strip() for t in unique]
        self.lines += [f"in {number(v)}" for _, v in host]
        for r, d in results[:returned]:
            eps = 0.0 if exact or not d.is_floating_point else EPS[NAMES[d]]
            self.lines.append(f"out {rel * eps:.3g} {terms * eps:.3g} {numbers(r, self.digits)}".strip())

    def convolution(self, name, x, w, bias, rest):
        """A case of it, and one of its gradients. rest: the arguments from the strides on."""
        y = torch.ops.aten.convolution(x.double(), w.double(), bias.double(), *rest)
        terms, out = w[0].numel(), w.shape[0]
        self.case(
            f"convolution_{name}",
            "aten::convolution",
            [x, w, bias, *rest],
            torch.ops.aten.convolution.default,
            terms=terms * 32,
        )
        self.case(
            f"convolution_backward_{name}",
            "aten::convolution_backward",
            [grid(*y.shape), x, w, [out], *rest, [True, True, True]],
            lambda *p: list(torch.ops.aten.convolution_backward.default(*p)),
            terms=max(y[:, 0].numel(), terms * out) * 16,
        )

    def write(self, folder: Path):
        (folder / f"{self.name}.lzt").write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def grid(*shape, scale=1.0, dtype=torch.float32, positive=False):
    """Numbers of few bits, so that every dtype holds them exactly."""
    t = torch.randint(-64, 65, shape).double() / 32 * scale
    return (t.abs() + 0.125 if positive else t).to(dtype)


def permuted(t):
    """The same values, laid out column-major."""
    return t.t().contiguous().t()


def distinct(*shape, dtype=torch.float32):
    """Different numbers, in no order."""
    n = math.prod(shape)
    return ((torch.randperm(n) - n // 2).double() / 64).reshape(shape).to(dtype)


def listed(call):
    return lambda *args: list(call(*args))
