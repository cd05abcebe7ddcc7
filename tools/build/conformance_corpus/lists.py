"""Lists of tensors by every name: numbers for all, one each, a tensor for all, lists of their own."""

import torch
from conformance_corpus.corpus import Corpus, grid


def make(folder):
    c = Corpus("lists", "Lists of tensors by each of their names.")
    a, b, d = ([grid(2, 3), grid(4), grid()] for _ in range(3))
    pos = [t.abs() + 0.5 for t in a]
    w = [torch.full_like(t, v) for t, v in zip(a, (0.25, 0.5, 0.75), strict=True)]
    one, three = torch.tensor(0.75), [0.5, -1.5, 2.0]
    factors = torch.tensor(three)

    def each(call):
        """Of the members of lists; what is no list is the same for each."""

        def mapped(*args):
            n = len(args[0]) if isinstance(args[0], list) else len(args[1])
            lists = [x if isinstance(x, list) else [x] * n for x in args]
            return [call(*row) for row in zip(*lists, strict=True)]

        return mapped

    def case(name, op, args, call, **bound):
        c.case(name, f"aten::_foreach_{op}", args, each(call), **bound)

    case("add_numbers", "add.ScalarList", [a, three], lambda x, s: x + s)
    case("add_tensor", "add.Tensor", [a, one, 1], lambda x, s, k: x + s * k)
    case("add_tensor_alpha", "add.Tensor", [a, one, 2.0], lambda x, s, k: x + s * k, terms=8)
    case("sub_list", "sub.List", [a, b, 1], lambda x, y, k: x - k * y)
    case("sub_list_alpha", "sub.List", [a, b, 0.5], lambda x, y, k: x - k * y, terms=8)
    case("sub_scalar", "sub.Scalar", [a, 1.5], lambda x, s: x - s)
    case("sub_numbers", "sub.ScalarList", [a, three], lambda x, s: x - s)
    case("mul_numbers", "mul.ScalarList", [a, three], lambda x, s: x * s)
    case("mul_tensor", "mul.Tensor", [a, one], lambda x, s: x * s)
    case("div_numbers", "div.ScalarList", [a, three], lambda x, s: x / s)
    case("div_tensor", "div.Tensor", [a, one], lambda x, s: x / s)
    for name, join, second in (
        ("addcmul", lambda x, y, z, v: x + v * y * z, b),
        ("addcdiv", lambda x, y, z, v: x + v * y / z, b),
    ):
        third = pos if name == "addcdiv" else d
        case(f"{name}_one", f"{name}.Scalar", [a, second, third, -0.5], join, rel=4, terms=16)
        case(f"{name}_numbers", f"{name}.ScalarList", [a, second, third, three], join, rel=4, terms=32)
        c.case(
            f"{name}_tensor",
            f"aten::_foreach_{name}.Tensor",
            [a, second, third, factors],
            lambda x, y, z, v, f=join: [f(*row) for row in zip(x, y, z, v.unbind(), strict=True)],
            rel=4,
            terms=32,
        )
    case("lerp_list", "lerp.List", [a, b, w], lambda x, y, v: x + v * (y - x), terms=16)
    for weight in (0.25, 0.75):
        tag = str(weight).replace(".", "_")
        case(f"lerp_{tag}", "lerp.Scalar", [a, b, weight], lambda x, y, v: x + v * (y - x), terms=16)
    case(
        "lerp_numbers",
        "lerp.ScalarList",
        [a, b, [0.125, 0.5, 1.0]],
        lambda x, y, v: x + v * (y - x),
        terms=16,
    )
    for name in ("rsqrt", "reciprocal"):
        case(name, name, [pos], getattr(torch, name), rel=4)
    for name in ("neg", "sign", "abs"):
        case(name, name, [a], getattr(torch, name), exact=True)
    case("exp", "exp", [a], torch.exp, rel=4)
    case("zero", "zero", [a], torch.zeros_like, exact=True)
    case("maximum_list", "maximum.List", [a, b], torch.maximum, exact=True)
    case("minimum_list", "minimum.List", [a, b], torch.minimum, exact=True)
    case("maximum_number", "maximum.Scalar", [a, 0.25], lambda x, s: x.clamp(min=s), exact=True)
    case("clamp_min", "clamp_min.Scalar", [a, 0.25], lambda x, s: x.clamp(min=s), exact=True)
    case("clamp_max", "clamp_max.Scalar", [a, 0.25], lambda x, s: x.clamp(max=s), exact=True)
    case("copy", "copy", [a, b, False], lambda x, y, _: y, exact=True)
    for tag, order in (("1", 1.0), ("2", 2.0), ("inf", float("inf"))):
        case(
            f"norm_{tag}",
            "norm.Scalar",
            [a, order, None],
            lambda x, p, _: torch.linalg.vector_norm(x, p),
            rel=16,
        )
    case("pow_number", "pow.Scalar", [pos, 2.5], torch.pow, rel=8)
    case("pow_square", "pow.Scalar", [a, 2.0], torch.pow, rel=4)
    case("pow_list", "pow.List", [pos, b], torch.pow, rel=8)
    case("pow_numbers", "pow.ScalarList", [pos, [2.0, 0.5, -1.5]], torch.pow, rel=8)
    case("pow_of_number", "pow.ScalarAndTensor", [1.5, a], lambda v, e: torch.pow(v, e), rel=8)
    c.write(folder)
