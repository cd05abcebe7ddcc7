"""Matrix products and convolutions."""

import torch
from conformance_corpus.corpus import Corpus, grid, permuted


def make(folder):
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
        c.convolution(name, x, w, v, rest)
    c.write(folder)
