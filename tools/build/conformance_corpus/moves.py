"""Elements at other places: exact."""

import torch
from conformance_corpus.corpus import Corpus, grid, permuted


def make(folder):
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
