"""Lists of tensors, as optimizers use them."""

from conformance_corpus.corpus import Arg, Corpus, grid


def make(folder):
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
