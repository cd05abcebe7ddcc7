"""Random operators have no values to compare: their distributions are, and that cuts change nothing.

A difference of values between two devices is no finding where eager itself draws. Then the results of many seeds are
compared, all elements together (Kolmogorov-Smirnov) and each element's mean; and on lazyt one seed must give the same
bits with and without a cut behind every operator.
"""

from __future__ import annotations

import unittest.mock

import lazyt
import torch
from scipy.stats import ks_2samp
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

REPEATS = 64
P_VALUE = 1e-7  # thousands of comparisons are made


class Draws(TorchDispatchMode):
    """Notes whether anything that ran draws random numbers."""

    drawn = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.drawn |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


class Cuts(TorchDispatchMode):
    """Ends a program behind every operator."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        lazyt.mark_step()
        return result


def with_seed(seed: int, function, *args):
    """Samples that seed themselves do not."""
    torch.manual_seed(seed)
    with unittest.mock.patch("torch.manual_seed"):
        return function(*args)


def draws(function, *args) -> bool:
    """Whether the results depend on the seed: attention without dropout is marked as drawing, too."""
    with Draws() as mode:
        first = tree_leaves(with_seed(0, function, *args))

    def differ(seed: int) -> bool:
        pairs = zip(first, tree_leaves(with_seed(seed, function, *args)), strict=True)
        return any(
            isinstance(a, torch.Tensor) and (a.shape != b.shape or not torch.allclose(numbers(a), numbers(b), 0, 0, equal_nan=True))
            for a, b in pairs
        )

    return mode.drawn and any(differ(seed) for seed in range(1, 17))


def numbers(t: torch.Tensor) -> torch.Tensor:
    return (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).double().flatten()


def blurred(t: torch.Tensor, width: float) -> torch.Tensor:
    """Few distinct values, as dropout makes them, differ by roundings between devices: to Kolmogorov and Smirnov, wholly."""
    return t + (torch.rand(t.shape, generator=torch.Generator().manual_seed(1), dtype=t.dtype) - 0.5) * width


def distributions_differ(function, device: str, tensors_of) -> str | None:
    """Between function("cpu") and function(device); tensors_of gives the CPU tensors of what it returns."""
    sides = []
    for side in ("cpu", device):
        runs = [tensors_of(with_seed(seed, function, side)) for seed in range(REPEATS)]
        sides.append([torch.stack([numbers(r[i]) for r in runs]) for i in range(len(runs[0]))])
    for i, (a, b) in enumerate(zip(*sides, strict=True)):
        if a.numel() == 0:
            continue
        width = 1e-3 * float(a[a.isfinite()].abs().max()) if bool(a.isfinite().any()) else 0.0
        p = ks_2samp(blurred(a, width).flatten(), blurred(b, width).flatten(), nan_policy="omit").pvalue
        if p < P_VALUE:
            return f"result {i}: distributions differ (p = {p:.1g}): means {a.mean():.4g} and {b.mean():.4g}"
        spread = ((a.var(0) + b.var(0)) / REPEATS).sqrt() + 1e-5 * (1 + a.abs().amax(0))
        if bool(((a.mean(0) - b.mean(0)).abs() > 8 * spread).any()):
            return f"result {i}: means of elements differ"
    return None


def cuts_matter(function, device: str, tensors_of) -> str | None:
    whole = tensors_of(with_seed(0, function, device))
    with Cuts():
        parts = with_seed(0, function, device)
    for i, (a, b) in enumerate(zip(whole, tensors_of(parts), strict=True)):
        if not torch.allclose(numbers(a), numbers(b), rtol=1e-5, atol=1e-6, equal_nan=True):
            return f"result {i}: a cut behind every operator changes it"
    return None
