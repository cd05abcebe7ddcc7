"""Layer, RMS, group and batch norm, and their backwards."""

import torch
from conformance_corpus.corpus import Corpus, grid


def make(folder):
    c = Corpus("normalizations", "Layer, RMS, group and batch norm, and their backwards.", digits=9)
    aten = torch.ops.aten
    for tag, shape, own in (
        ("rows", (4, 6), [6]),
        ("two_dims", (2, 3, 4), [3, 4]),
        ("wide", (3, 300), [300]),
        ("long", (1, 1100), [1100]),
    ):
        x, g, w, b = grid(*shape), grid(*shape), grid(*own), grid(*own)
        for kind, ww, bb in (("", w, b), ("_plain", None, None), ("_weight", w, None))[
            : 1 if tag in ("wide", "long") else 3
        ]:
            c.case(
                f"layer_norm_{tag}{kind}",
                "aten::native_layer_norm",
                [x, own, ww, bb, 1e-5],
                lambda *a: list(aten.native_layer_norm(*a)),
                rel=32,
                terms=32,
            )
        mean, rstd = aten.native_layer_norm(x.double(), own, None, None, 1e-5)[1:]
        c.case(
            f"layer_norm_backward_{tag}",
            "aten::native_layer_norm_backward",
            [g, x, own, mean.float(), rstd.float(), w, b, [True, True, True]],
            lambda *a: list(aten.native_layer_norm_backward(*a)),
            rel=64,
            terms=256,
        )
        inverse = (x.double().square().mean([-1 - d for d in range(len(own))], keepdim=True) + 1e-5).rsqrt()
        c.case(
            f"rms_norm_{tag}",
            "aten::_fused_rms_norm",
            [x, own, w, 1e-5],
            lambda x, own, w, e, r=inverse: [x * r * w, r],
            rel=32,
            terms=32,
        )
        c.case(
            f"rms_norm_backward_{tag}",
            "aten::_fused_rms_norm_backward",
            [g, x, own, inverse.float(), w, [True, True]],
            rms_norm_backward,
            rel=64,
            terms=256,
        )
    x, g = grid(2, 4, 3, 5), grid(2, 4, 3, 5)
    last = x.to(memory_format=torch.channels_last)
    w, b = grid(4), grid(4)
    for tag, y in (("", x), ("_channels_last", last)):
        g = g.contiguous(memory_format=torch.channels_last if tag else torch.contiguous_format)
        for groups in (1, 2, 4):
            out, mean, rstd = aten.native_group_norm(
                x.double(), w.double(), b.double(), 2, 4, 15, groups, 1e-5
            )
            c.case(
                f"group_norm_{groups}{tag}",
                "aten::native_group_norm",
                [y, w, b, 2, 4, 15, groups, 1e-5],
                lambda x, *a: list(aten.native_group_norm(x.contiguous(), *a)),
                rel=32,
                terms=32,
            )
            c.case(
                f"group_norm_backward_{groups}{tag}",
                "aten::native_group_norm_backward",
                [g, y, mean.float(), rstd.float(), w, 2, 4, 15, groups, [True, True, True]],
                lambda g, x, *a: list(aten.native_group_norm_backward(g.contiguous(), x.contiguous(), *a)),
                rel=64,
                terms=256,
            )
        mean, var = grid(4), grid(4, positive=True)
        for training in (True, False):
            c.case(
                f"batch_norm_{'train' if training else 'eval'}{tag}",
                "aten::_native_batch_norm_legit_functional",
                [y, w, b, mean, var, training, 0.1, 1e-5],
                lambda x, w, b, m, v, t, p, e: list(batch_norm(x, w, b, m, v, t, p, e)),
                rel=32,
                terms=32,
            )
            saved = (
                x.double().mean((0, 2, 3)).float(),
                (x.double().var((0, 2, 3), correction=0) + 1e-5).rsqrt().float(),
            )
            c.case(
                f"batch_norm_backward_{'train' if training else 'eval'}{tag}",
                "aten::native_batch_norm_backward",
                [g, y, w, mean, var, *saved, training, 1e-5, [True, True, True]],
                lambda g, x, *a: list(aten.native_batch_norm_backward(g.contiguous(), x.contiguous(), *a)),
                rel=64,
                terms=256,
            )
        c.case(
            f"batch_norm_no_training{tag}",
            "aten::_native_batch_norm_legit_no_training",
            [y, w, b, mean, var, 0.1, 1e-5],
            lambda x, *a: [batch_norm(x, *a[:4], False, *a[4:])[0], torch.zeros(0), torch.zeros(0)],
            rel=32,
            terms=32,
        )
        c.case(
            f"batch_norm_no_stats{tag}",
            "aten::_native_batch_norm_legit.no_stats",
            [y, w, b, True, 0.1, 1e-5],
            lambda x, w, b, t, p, e: list(batch_norm(x, w, b, 0, 0, t, p, e)[:3]),
            rel=32,
            terms=32,
        )
    c.write(folder)


def rms_norm_backward(g, x, own, rstd, w, mask):
    dims = [-1 - d for d in range(len(own))]
    h = g * w
    gx = rstd * h - x * rstd**3 * (h * x).mean(dims, keepdim=True)
    return [gx, (g * x * rstd).sum(list(range(x.dim() - len(own))))]


def batch_norm(x, w, b, mean, var, training, momentum, eps):
    """All five results of _native_batch_norm_legit_functional."""
    dims = [d for d in range(x.dim()) if d != 1]
    n = x.numel() // x.shape[1]
    m, v = (x.mean(dims), x.var(dims, correction=0)) if training else (mean, var)
    shape = [1, -1] + [1] * (x.dim() - 2)
    inv = (v + eps).rsqrt()
    y = (x - m.view(shape)) * (inv * w).view(shape) + b.view(shape)
    if not training:
        return y, torch.zeros(0), torch.zeros(0), mean, var
    return y, m, inv, momentum * m + (1 - momentum) * mean, momentum * v * n / (n - 1) + (1 - momentum) * var
