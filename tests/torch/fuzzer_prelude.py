"""What statements of the fuzzer's programs call: numbers that are the same on every device."""

import lazyt  # noqa: F401
import torch


def R(seed, *shape, dtype=torch.float32):
    """Small numbers, the same on every device; whole ones for integers."""
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) < 0.5
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(-4, 5, shape, generator=g).to(dtype)
    numbers = torch.randn(shape, generator=g).to(dtype)
    return numbers + (1j * torch.randn(shape, generator=g) if dtype.is_complex else 0)


def I(seed, n, *shape):  # noqa: E743
    """Indices below n."""
    return torch.randint(0, max(n, 1), shape, generator=torch.Generator().manual_seed(seed))
