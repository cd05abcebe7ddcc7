"""Views and copies by every name that they have, and what makes tensors of nothing."""

import torch
from conformance_corpus.corpus import Arg, Corpus, grid, permuted

NOWHERE = [Arg("layout(0)"), Arg("device(0)"), None]  # layout, device, pinned memory


def make(folder):
    c = Corpus("arrangements", "Views and copies by each of their names, and what makes tensors of nothing.")
    a, cube, flags = grid(3, 5), grid(2, 3, 4), grid(3, 5) > 0
    long = torch.arange(24).view(2, 3, 4)

    def exact(name, op, args, call):
        c.case(name, f"aten::{op}", args, call, exact=True)

    for tag, v in (("", a), ("_strided", permuted(a)), ("_bool", flags)):
        exact(f"t{tag}", "t", [v], torch.t)
        exact(f"alias{tag}", "alias", [v], lambda x: x)
        exact(f"clone{tag}", "clone", [v, None], lambda x, _: x)
        exact(f"lift{tag}", "lift_fresh_copy", [v], lambda x: x)
        exact(f"flip{tag}", "flip", [v, [1]], torch.flip)
        exact(f"unfold{tag}", "unfold", [v, 1, 3, 2], lambda x, d, n, s: x.unfold(d, n, s))
        exact(f"diagonal{tag}", "diagonal", [v, 1, 0, 1], torch.diagonal)
        exact(f"unsqueeze{tag}", "unsqueeze", [v, 1], torch.unsqueeze)
        exact(f"select{tag}", "select.int", [v, 1, -2], torch.select)
        exact(f"stack{tag}", "stack", [[v, v.flip(0).contiguous()], 1], torch.stack)
        exact(f"chunk{tag}", "chunk", [v, 2, 1], lambda x, n, d: list(x.chunk(n, d)))
        exact(f"unbind{tag}", "unbind.int", [v, 0], lambda x, d: list(x.unbind(d)))
        for name in ("tril", "triu"):
            for k in (0, 1, -2, 9):
                at = str(k).replace("-", "m")
                exact(f"{name}_{at}{tag}", name, [v, k], getattr(torch, name))
    exact("t_of_line", "t", [grid(5)], torch.t)
    exact("flip_two", "flip", [cube, [0, 2]], torch.flip)
    exact("diagonal_of_batch", "diagonal", [cube, -1, 1, 2], torch.diagonal)
    exact("triu_of_batch", "triu", [cube, 1], torch.triu)
    exact("transpose", "transpose.int", [cube, 0, 2], torch.transpose)
    exact("transpose_i64", "transpose.int", [long, 1, 2], torch.transpose)
    exact("view", "view", [cube, [4, -1]], lambda x, s: x.reshape(s))
    exact("squeeze", "squeeze.dims", [grid(1, 3, 1, 4), [0, 2]], lambda x, d: x.squeeze((0, 2)))
    exact("squeeze_nothing", "squeeze.dims", [cube, [0, 1]], lambda x, d: x)
    exact("as_strided", "as_strided", [cube, [3, 2], [1, 5], 4], torch.as_strided)
    exact("as_strided_overlapping", "as_strided", [grid(9), [4, 3], [2, 1], 0], torch.as_strided)
    exact("stack_i64", "stack", [[long, long + 1, long + 2], 0], torch.stack)
    exact("split", "split.Tensor", [a, 2, 1], lambda x, n, d: list(x.split(n, d)))
    exact("split_sizes", "split_with_sizes", [a, [1, 0, 4], 1], lambda x, n, d: list(x.split(n, d)))
    exact("chunk_uneven", "chunk", [grid(7), 3, 0], lambda x, n, d: list(x.chunk(n, d)))
    constant = Arg('"constant"')
    for tag, pad in (("", [1, 2]), ("_two", [1, 0, 0, 2]), ("_cut", [-1, 1, 2, -1])):
        exact(
            f"pad{tag}",
            "pad",
            [a, pad, constant, 1.5],
            lambda x, p, m, v: torch.nn.functional.pad(x, p, m, v),
        )
    for mode in ("reflect", "replicate", "circular"):
        exact(
            f"pad_{mode}",
            "pad",
            [cube, [1, 2], Arg(f'"{mode}"'), None],
            lambda x, p, m, _: torch.nn.functional.pad(x, p, m),
        )

    exact("copy", "copy", [a, permuted(grid(3, 5)), False], lambda x, s, _: s)
    exact("copy_broadcast", "copy", [a, grid(5), False], lambda x, s, _: s.expand(3, 5))
    exact("copy_of_i64", "copy", [grid(2, 3, 4), long, False], lambda x, s, _: s.double())
    exact("fill_number", "fill.Scalar", [a, 1.5], lambda x, v: torch.full_like(x, v))
    exact("fill_i64", "fill.Scalar", [long, -7], lambda x, v: torch.full_like(x, v))
    exact("fill_tensor", "fill.Tensor", [a, torch.tensor(2.5)], lambda x, v: v.expand(3, 5))
    f32, i64, b1 = torch.float32, torch.int64, torch.bool

    for name, value in (("zeros", 0), ("ones", 1)):
        exact(
            f"{name}_like",
            f"{name}_like",
            [a, None, *NOWHERE, None],
            lambda x, *_, v=value: torch.full_like(x, v),
        )
        exact(
            f"{name}_like_i64",
            f"{name}_like",
            [a, i64, *NOWHERE, None],
            lambda x, *_, v=value: torch.full(x.shape, v, dtype=i64),
        )
        for dtype, tag in ((f32, ""), (i64, "_i64"), (b1, "_bool")):
            exact(
                f"{name}{tag}",
                name,
                [[2, 3], dtype, *NOWHERE],
                lambda s, t, *_, v=value: torch.full(s, v, dtype=t),
            )
        exact(f"{name}_of_none", name, [[0, 3], f32, *NOWHERE], lambda s, t, *_: torch.zeros(s))
    exact("full_like", "full_like", [a, -2.5, None, *NOWHERE, None], lambda x, v, *_: torch.full_like(x, v))
    exact(
        "full_like_bool",
        "full_like",
        [flags, True, None, *NOWHERE, None],
        lambda x, v, *_: torch.full_like(x, v),
    )
    exact("new_zeros", "new_zeros", [a, [4], None, *NOWHERE], lambda x, s, *_: torch.zeros(s))
    exact("new_full", "new_full", [a, [4], 3.5, None, *NOWHERE], lambda x, s, v, *_: torch.full(s, v))
    exact(
        "new_full_i64",
        "new_full",
        [a, [4], 3, i64, *NOWHERE],
        lambda x, s, v, t, *_: torch.full(s, v, dtype=t),
    )
    exact("scalar", "scalar_tensor", [1.5, f32, *NOWHERE], lambda v, *_: torch.tensor(v))
    exact("scalar_i64", "scalar_tensor", [-3, i64, *NOWHERE], lambda v, *_: torch.tensor(v))
    exact("eye", "eye", [4, f32, *NOWHERE], lambda n, *_: torch.eye(n))
    exact("eye_bool", "eye", [3, b1, *NOWHERE], lambda n, *_: torch.eye(n, dtype=b1))
    exact("arange", "arange", [7, i64, *NOWHERE], lambda end, *_: torch.arange(end))
    exact("arange_f32", "arange", [3.5, f32, *NOWHERE], lambda end, *_: torch.arange(end))
    exact("arange_from", "arange.start", [-2, 5, i64, *NOWHERE], lambda a, b, *_: torch.arange(a, b))
    for tag, (first, end, step) in {"by_3": (-4, 9, 3), "down": (5, -6, -2), "of_none": (2, 2, 1)}.items():
        exact(
            f"arange_{tag}",
            "arange.start_step",
            [first, end, step, i64, *NOWHERE],
            lambda a, b, s, *_: torch.arange(a, b, s),
        )
    exact(
        "arange_by_quarters",
        "arange.start_step",
        [-1.0, 2.0, 0.25, f32, *NOWHERE],
        lambda a, b, s, *_: torch.arange(a, b, s),
    )
    for tag, (first, end, steps) in {
        "": (-1.0, 2.0, 13),
        "_down": (3.0, -1.0, 9),
        "_of_one": (2.0, 5.0, 1),
    }.items():
        for dtype in (f32, torch.float64):
            c.case(
                f"linspace{tag}{'' if dtype == f32 else '_f64'}",
                "aten::linspace",
                [first, end, steps, dtype, *NOWHERE],
                lambda a, b, n, t, *_: [(torch.linspace(a, b, n, dtype=torch.float64), t)],
                terms=4,
            )
    c.write(folder)
