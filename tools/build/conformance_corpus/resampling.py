"""Averages over windows, other sizes of images, and their gradients."""

import torch
from conformance_corpus.corpus import Corpus, grid


def last_channels(t):
    """The same values with channels last."""
    return t.to(memory_format=torch.channels_last)


def make(folder):
    c = Corpus("resampling", "Averages over windows, other sizes of images, and their gradients.")
    aten = torch.ops.aten
    image, volume = grid(1, 2, 6, 5), grid(1, 2, 4, 5, 4)
    for name, x in (("", image), ("_last", last_channels(image))):
        for rest in (
            [[2, 2], [2, 2], [0, 0], False, True, None],
            [[3, 2], [2, 1], [1, 1], True, False, None],
            [[3, 3], [1, 2], [1, 0], False, True, 5],
        ):
            variant = "_".join(str(v) for v in (rest[0][0], rest[1][0], rest[2][0])) + name
            c.case(f"avg_pool2d_{variant}", "aten::avg_pool2d", [x, *rest], aten.avg_pool2d, rel=4, terms=32)
            g = grid(*aten.avg_pool2d(x, *rest).shape)
            c.case(
                f"avg_pool2d_backward_{variant}",
                "aten::avg_pool2d_backward",
                [g, x, *rest],
                aten.avg_pool2d_backward,
                rel=4,
                terms=32,
            )
        for size in ([3, 2], [1, 1], [4, 5]):
            variant = f"{size[0]}_{size[1]}{name}"
            c.case(
                f"adaptive_avg_pool2d_{variant}",
                "aten::_adaptive_avg_pool2d",
                [x, size],
                aten._adaptive_avg_pool2d,
                rel=4,
                terms=64,
            )
            g = grid(1, 2, *size)
            c.case(
                f"adaptive_avg_pool2d_backward_{variant}",
                "aten::_adaptive_avg_pool2d_backward",
                [g, x],
                aten._adaptive_avg_pool2d_backward,
                rel=4,
                terms=32,
            )
        c.case(
            f"adaptive_max_pool2d{name}",
            "aten::adaptive_max_pool2d",
            [x, [3, 2]],
            lambda *p: list(aten.adaptive_max_pool2d(*p)),
            exact=True,
        )
        for size in ([9, 4], [12, 10]):
            variant = f"{size[0]}{name}"
            shapes = [size, [1, 2, 6, 5]]
            g = grid(1, 2, *size)
            c.case(
                f"upsample_nearest2d_{variant}",
                "aten::upsample_nearest2d",
                [x, size, None, None],
                aten.upsample_nearest2d,
                exact=True,
            )
            c.case(
                f"upsample_nearest2d_backward_{variant}",
                "aten::upsample_nearest2d_backward",
                [g, *shapes, None, None],
                aten.upsample_nearest2d_backward,
                terms=16,
            )
            for corners in (False, True):
                kind = f"{variant}{'_corners' if corners else ''}"
                # Weights are computed in f32.
                c.case(
                    f"upsample_bilinear2d_{kind}",
                    "aten::upsample_bilinear2d",
                    [x, size, corners, None, None],
                    aten.upsample_bilinear2d,
                    rel=8,
                    terms=64,
                )
                c.case(
                    f"upsample_bilinear2d_backward_{kind}",
                    "aten::upsample_bilinear2d_backward",
                    [g, *shapes, corners, None, None],
                    aten.upsample_bilinear2d_backward,
                    rel=8,
                    terms=64,
                )
    c.case(
        "avg_pool1d",
        "aten::avg_pool1d",
        [grid(2, 3, 7), [3], [2], [1], False, True],
        aten.avg_pool1d,
        rel=4,
        terms=16,
    )
    c.case(
        "adaptive_avg_pool1d",
        "aten::adaptive_avg_pool1d",
        [grid(2, 3, 7), [3]],
        aten.adaptive_avg_pool1d,
        rel=4,
        terms=16,
    )
    c.case(
        "avg_pool3d",
        "aten::avg_pool3d",
        [volume, [2] * 3, [2] * 3, [0] * 3, False, True, None],
        aten.avg_pool3d,
        rel=4,
        terms=32,
    )
    c.case(
        "adaptive_avg_pool3d",
        "aten::_adaptive_avg_pool3d",
        [volume, [2, 3, 2]],
        aten._adaptive_avg_pool3d,
        rel=4,
        terms=64,
    )
    distinct = torch.randperm(volume.numel()).reshape(volume.shape).float()
    c.case(
        "max_pool3d",
        "aten::max_pool3d_with_indices",
        [distinct, [2] * 3, [2] * 3, [1] * 3, [1] * 3, False],
        lambda *p: list(aten.max_pool3d_with_indices(*p)),
        exact=True,
    )
    points = grid(1, 3, 4, 2, scale=0.625)
    for mode, kind in enumerate(("bilinear", "nearest")):
        for padding, edge in enumerate(("zeros", "border", "reflection")):
            for corners in (False, True):
                c.case(
                    f"grid_sampler_2d_{kind}_{edge}{'_corners' if corners else ''}",
                    "aten::grid_sampler_2d",
                    [image, points + 0.001953125 if mode else points, mode, padding, corners],
                    aten.grid_sampler_2d,
                    rel=8,
                    terms=256,
                )
    c.write(folder)
