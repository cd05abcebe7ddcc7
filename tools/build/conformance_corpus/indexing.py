"""Reads and writes at places that tensors name; of several writes to a place the last counts."""

import torch
from conformance_corpus.corpus import Arg, Corpus, grid, permuted


def make(folder):
    c = Corpus(
        "indexing",
        "Reads and writes at places that tensors name; of several writes to a place the last counts.",
    )
    aten = torch.ops.aten
    table, cube = grid(6, 4), grid(3, 4, 5)
    i, j = torch.tensor([2, 0, 2]), torch.tensor([[1], [-1]])
    flat, twice = torch.tensor([5, 0, 5]), torch.tensor([3, 1, 3, 0])
    for name, indices in (
        ("first", [i]),
        ("second", [None, j]),
        ("both", [i, torch.tensor([0, 3, 0])]),
        ("broadcast", [i, j]),
        ("apart", [i, None, torch.tensor([4, 0, -2])]),
    ):
        x = cube if name != "both" else table
        c.case(f"index_{name}", "aten::index.Tensor", [x, indices], aten.index, exact=True)
        v = grid(*aten.index(x, indices).shape)
        c.case(
            f"index_put_accumulate_{name}",
            "aten::index_put",
            [x, indices, v, True],
            aten.index_put,
            terms=16,
        )
    c.case("index_strided", "aten::index.Tensor", [permuted(table), [flat]], aten.index, exact=True)
    c.case(
        "index_nothing",
        "aten::index.Tensor",
        [table, [torch.zeros(0, dtype=torch.int64)]],
        aten.index,
        exact=True,
    )
    for name, indices in (("", [i]), ("_both", [None, i, torch.tensor([4, 0, -2])])):
        c.case(f"unsafe_index{name}", "aten::_unsafe_index.Tensor", [cube, indices], aten.index, exact=True)
        v = torch.ones(aten.index(cube, indices).shape)
        c.case(
            f"unsafe_index_put{name}",
            "aten::_unsafe_index_put",
            [cube, indices, v, True],
            aten.index_put,
            terms=16,
        )
    once = torch.tensor([4, 1])
    c.case("index_put", "aten::index_put", [table, [once], grid(2, 4), False], aten.index_put, exact=True)
    c.case("index_put_row", "aten::index_put", [table, [once], grid(4), False], aten.index_put, exact=True)
    c.case(
        "index_put_i64",
        "aten::index_put",
        [torch.arange(6), [flat], torch.arange(3), True],
        aten.index_put,
        exact=True,
    )

    def last(x, _dim, index, source):  # PyTorch leaves open which one stays
        x = x.clone()
        for k, at in enumerate(index.tolist()):
            x[at] = source[k]
        return x

    c.case("index_copy_twice", "aten::index_copy", [table, 0, flat, grid(3, 4)], last, exact=True)
    for dim, index in ((0, flat), (1, twice)):
        source = grid(3, 4) if dim == 0 else grid(6, 4)
        c.case(
            f"index_add_{dim}",
            "aten::index_add",
            [table, dim, index, source, 1],
            lambda x, d, k, s, v: x.index_add(d, k, s),
            terms=16,
        )
        c.case(
            f"index_add_scaled_{dim}",
            "aten::index_add",
            [table, dim, index, source, -0.5],
            lambda x, d, k, s, v: x.index_add(d, k, s, alpha=v),
            terms=16,
        )
        c.case(
            f"index_fill_{dim}",
            "aten::index_fill.int_Scalar",
            [table, dim, index, 1.5],
            aten.index_fill,
            exact=True,
        )
    c.case("take", "aten::take", [table, torch.tensor([[0, 23], [-1, 7]])], aten.take, exact=True)
    c.case(
        "embedding_backward_padding",
        "aten::embedding_dense_backward",
        [grid(4, 4), twice, 6, 3, False],
        aten.embedding_dense_backward,
        terms=8,
    )
    c.case(
        "embedding_backward_frequency",
        "aten::embedding_dense_backward",
        [grid(4, 4), twice, 6, -1, True],
        aten.embedding_dense_backward,
        rel=4,
        terms=8,
    )
    many = torch.randint(0, 7, (1500,))
    c.case(
        "embedding_backward_many",
        "aten::embedding_dense_backward",
        [grid(1500, 1), many, 7, -1, False],
        aten.embedding_dense_backward,
        terms=1500,
    )
    for dim in (0, 1):
        into = torch.argsort(torch.rand(6, 4), dim)[:3, :3]
        into = into.contiguous()
        c.case(
            f"scatter_src_{dim}",
            "aten::scatter.src",
            [table, dim, into, grid(3, 3)],
            aten.scatter,
            exact=True,
        )
        c.case(
            f"scatter_value_{dim}", "aten::scatter.value", [table, dim, into, -2.5], aten.scatter, exact=True
        )
        again = torch.randint(0, table.shape[dim], (5, 4))
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            for include in (True, False):
                c.case(
                    f"scatter_reduce_{reduce}_{dim}{'' if include else '_alone'}",
                    "aten::scatter_reduce.two",
                    [table, dim, again, grid(5, 4), Arg(f'"{reduce}"'), include],
                    lambda x, d, k, s, r, keep: x.scatter_reduce(d, k, s, r, include_self=keep),
                    rel=16,
                    terms=16,
                )
    c.case(
        "masked_scatter",
        "aten::masked_scatter",
        [table, table > 0, grid(24)],
        aten.masked_scatter,
        exact=True,
    )
    c.case(
        "masked_scatter_row",
        "aten::masked_scatter",
        [table, torch.tensor([True, False, False, True]), grid(3, 4)],
        aten.masked_scatter,
        exact=True,
    )
    edges = grid(9).sort().values
    for right in (False, True):
        name = "right" if right else "left"
        search = [edges, grid(3, 5), False, right, None, None]
        c.case(
            f"searchsorted_{name}",
            "aten::searchsorted.Tensor",
            search,
            lambda s, v, o, r, _side, _by: torch.searchsorted(s, v, right=r),
            exact=True,
        )
        c.case(
            f"bucketize_{name}",
            "aten::bucketize.Tensor",
            [grid(3, 5), edges, False, right],
            lambda v, s, o, r: torch.bucketize(v, s, right=r),
            exact=True,
        )
    rows = grid(3, 7).sort(1).values
    c.case(
        "searchsorted_rows",
        "aten::searchsorted.Tensor",
        [rows, grid(3, 4), False, False, None, None],
        lambda s, v, *_: torch.searchsorted(s, v),
        exact=True,
    )
    loose = grid(8)
    c.case(
        "searchsorted_sorter",
        "aten::searchsorted.Tensor",
        [loose, grid(5), False, False, None, loose.argsort()],
        lambda s, v, o, r, _side, by: torch.searchsorted(s, v, sorter=by),
        exact=True,
    )
    c.write(folder)
