"""What `nn.DataParallel` asks of PyTorch's C++ and a PyTorch without CUDA lacks: parts of tensors on several devices.

A program that wraps its model so must run where lazyt is installed, too: PyTorch takes the accelerator that it finds.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def _device(index: int) -> torch.device:
    return torch.device("cpu") if index < 0 else torch.device("lazyt", index)


def _scatter(
    tensor: Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any
) -> list[Tensor]:
    parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    # There may be fewer parts than devices.
    return [part.to(_device(i)) for part, i in zip(parts, devices, strict=False)]


def _gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    to = tensors[0].device if destination is None else _device(destination)
    return torch.cat([t.to(to) for t in tensors], dim)


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    return [tensor.to(_device(i)) for i in devices]


def _broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[Tensor]]:
    return [[t.to(_device(i)) for t in tensors] for i in devices]


def install() -> None:
    for f in (_scatter, _gather, _broadcast, _broadcast_coalesced):
        if not hasattr(torch._C, f.__name__):
            setattr(torch._C, f.__name__, f)
