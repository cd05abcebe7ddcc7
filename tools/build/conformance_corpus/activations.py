"""Activations and their gradients, at their kinks, far out, and of what is no number."""

import math

import torch
from conformance_corpus.corpus import Arg, Corpus, grid

INF, NAN = math.inf, math.nan
SIXTH = (torch.ones(()) / 6).item()  # PyTorch's, of f32 for f64 as well
# Where pieces meet, both sides of it, and far out.
KINKS = [-3.0, 3.0, -1.0, 1.0, 0.0, 6.0, -6.0, 2.5, -2.5, 0.5, -0.5, 20.0, -20.0, 2.0, -2.0, 3.5]


def make(folder):
    c = Corpus("activations", "Activations and their gradients.")
    aten = torch.ops.aten
    x = torch.tensor(KINKS)
    g = grid(16, positive=True)
    odd = torch.tensor([NAN, INF, -INF, 1.0])

    def both(name, op, values, call, rest=(), **bound):
        """Of f32 and of f64."""
        for tag, dtype in (("", torch.float32), ("_f64", torch.float64)):
            tensors = [v.to(dtype) for v in values]
            c.case(name + tag, op, [*tensors, *rest], call, **bound)

    forward = {
        "relu6": ([], {"exact": True}),
        "hardswish": ([], {"rel": 8}),
        "hardsigmoid": ([], {"rel": 8}),
        "leaky_relu": ([0.125], {"rel": 2}),
        "elu": ([1.5, 1.25, 0.75], {"rel": 8, "terms": 2}),
        "celu": ([1.5], {"rel": 8, "terms": 2}),
        "softplus": ([2.0, 3.0], {"rel": 8, "terms": 2}),
        "hardtanh": ([-1.0, 2.0], {"exact": True}),
        "threshold": ([1.0, 7.0], {"exact": True}),
        "silu": ([], {"rel": 8}),
        "mish": ([], {"rel": 16}),
    }
    for name, (rest, bound) in forward.items():
        call = getattr(aten, name).default
        both(f"{name}_kinks", f"aten::{name}", [x], call, rest, **bound)
    for form in ("none", "tanh"):
        text = Arg(f'"{form}"')
        # 1 + erf(x) cancels: in units of the result near 1, not of itself.
        both(
            f"gelu_{form}",
            "aten::gelu",
            [x],
            lambda v, f: aten.gelu(v, approximate=f),
            [text],
            rel=8,
            terms=32,
        )
        both(
            f"gelu_backward_{form}",
            "aten::gelu_backward",
            [g, x],
            lambda d, v, f: aten.gelu_backward(d, v, approximate=f),
            [text],
            rel=16,
            terms=64,
        )
    for name, call in {
        "relu6": lambda v: v.clamp(0, 6),
        "hardswish": lambda v: v * (v + 3).clamp(0, 6) / 6,
        "hardsigmoid": lambda v: (v + 3).clamp(0, 6) / 6,
    }.items():
        c.case(f"{name}_odd", f"aten::{name}", [odd], call, rel=8)

    # The second result is PyTorch's own matter; its gradient gets it back.
    for name, v in (("kinks", x), ("odd", odd)):
        both(
            f"log_sigmoid_{name}",
            "aten::log_sigmoid_forward",
            [v],
            lambda y: [torch.nn.functional.logsigmoid(y), torch.exp(-y.abs())],
            rel=8,
            returned=1,
        )
    for dtype, tag in ((torch.float32, ""), (torch.float64, "_f64")):
        c.case(
            f"log_sigmoid_backward{tag}",
            "aten::log_sigmoid_backward",
            [g.to(dtype), x.to(dtype), torch.exp(-x.to(dtype).abs())],
            lambda d, v, _: d * torch.sigmoid(-v),
            rel=8,
            terms=2,
        )

    gradients = {
        "hardtanh": ([-1.0, 2.0], lambda d, v, low, high: torch.where((v > low) & (v < high), d, 0)),
        "hardsigmoid": ([], lambda d, v: torch.where((v > -3) & (v < 3), d * SIXTH, 0)),
        "hardswish": ([], hardswish_gradient),
        "leaky_relu": ([0.125, False], lambda d, v, slope, _: torch.where(v > 0, d, d * slope)),
        "softplus": ([2.0, 3.0], lambda d, v, b, t: torch.where(v * b > t, d, d * torch.sigmoid(v * b))),
        "threshold": ([1.0], lambda d, v, t: torch.where(v <= t, 0, d)),
        "silu": ([], lambda d, v: d * torch.sigmoid(v) * (1 + v * (1 - torch.sigmoid(v)))),
    }
    for name, (rest, call) in gradients.items():
        both(f"{name}_backward_kinks", f"aten::{name}_backward", [g, x], call, rest, rel=8, terms=4)
    # A NaN stays one: a gradient that hides it is looked for long. (PyTorch hides it at ends of lines.)
    of_nan, g_of_nan = torch.tensor([NAN] * 64), grid(64)
    both("hardswish_backward_nan", "aten::hardswish_backward", [g_of_nan, of_nan], hardswish_gradient, rel=8)
    for is_result, slope in ((False, elu_slope), (True, elu_slope_of_result)):
        tag = "_of_result" if is_result else ""
        v = x.clamp(min=-1) if is_result else x

        def elu_backward(d, alpha, scale, input_scale, _, y, slope=slope):
            return d * slope(y, alpha, scale, input_scale)

        for dtype, of in ((torch.float32, ""), (torch.float64, "_f64")):
            for d, values, kind in ((g, v, "kinks"), (g_of_nan, of_nan, "nan")):
                c.case(
                    f"elu_backward{tag}_{kind}{of}",
                    "aten::elu_backward",
                    [d.to(dtype), 1.5, 1.25, 0.75, is_result, values.to(dtype)],
                    elu_backward,
                    rel=8,
                    terms=4,
                )
    c.case(
        "native_dropout_backward",
        "aten::native_dropout_backward",
        [grid(3, 5), grid(3, 5) > 0, 2.0],
        lambda d, mask, scale: d * mask * scale,
        exact=True,
    )
    c.write(folder)


def hardswish_gradient(d, v):
    return torch.where(v >= 3, d, torch.where(v <= -3, 0, d * (v / 3 + 0.5)))


def elu_slope(v, alpha, scale, input_scale):
    return torch.where(v > 0, scale, alpha * scale * input_scale * torch.exp(v * input_scale))


def elu_slope_of_result(y, alpha, scale, input_scale):
    return torch.where(y > 0, scale, (y + alpha * scale) * input_scale)
