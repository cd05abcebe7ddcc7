"""Pointwise operators: one rounding or two."""

import math

import torch
from conformance_corpus.corpus import Arg, Corpus, grid, permuted


def make(folder):
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
    yes_yes, yes_no = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for alpha in (0, 1, 2):
        of_bools = [yes_yes, yes_no, alpha]
        c.case(
            f"add_bool_alpha{alpha}",
            "aten::add.Tensor",
            of_bools,
            lambda x, y, s: torch.add(x, y, alpha=s),
            exact=True,
        )
    c.case(
        "add_bool_host_alpha",
        "aten::add.Tensor",
        [yes_yes, yes_no, Arg("%h0")],
        lambda x, y, s: x,
        exact=True,
        host=[("b1", 0)],
    )
    c.case("add_bool_scalar", "aten::add.Scalar", [yes_yes, True, 0], lambda x, v, s: x, exact=True)
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
