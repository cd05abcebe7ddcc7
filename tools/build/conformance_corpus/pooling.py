"""Maximum over windows: exact."""

import torch
from conformance_corpus.corpus import Corpus, grid


def make(folder):
    c = Corpus("pooling", "Maximum over windows: exact.")
    for name, size, kernel, stride, padding in (
        ("plain", 6, 2, 2, 0),
        ("overlapping", 5, 3, 1, 0),
        ("padded", 5, 3, 2, 1),
    ):
        # All different, so that the index is the only one.
        x = (torch.randperm(2 * 2 * size * size).double().reshape(2, 2, size, size) / 16 - 3).float()
        rest = [[kernel] * 2, [stride] * 2, [padding] * 2, [1, 1], False]
        y, indices = torch.ops.aten.max_pool2d_with_indices(x.double(), *rest)
        c.case(
            f"max_pool2d_{name}",
            "aten::max_pool2d_with_indices",
            [x, *rest],
            lambda *p: list(torch.ops.aten.max_pool2d_with_indices(*p)),
            exact=True,
        )
        c.case(
            f"max_pool2d_backward_{name}",
            "aten::max_pool2d_with_indices_backward",
            [grid(*y.shape), x, *rest, indices],
            torch.ops.aten.max_pool2d_with_indices_backward.default,
            terms=32,
        )
    c.write(folder)
