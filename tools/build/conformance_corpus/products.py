"""More matrix products and convolutions: batches, splits of long sums, windows of one to three dims."""

import math

import torch
from conformance_corpus.corpus import Arg, Corpus, grid


def make(folder):
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
