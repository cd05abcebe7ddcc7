"""Rearrangements: exact."""

from conformance_corpus.corpus import Corpus, grid, permuted


def make(folder):
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
