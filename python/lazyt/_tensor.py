"""The few places of PyTorch's Python that treat devices by name."""

import functools

import torch
from torch import _tensor_str
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType


def _patch_repr() -> None:
    """Prints the values of a copy on the CPU: printing looks at elements one by one."""
    original = _tensor_str._tensor_str

    @functools.wraps(original)
    def values(self, indent):
        return original(self.cpu() if self.device.type == "lazyt" else self, indent)

    _tensor_str._tensor_str = values


def _patch_dlpack_device() -> None:
    """PyTorch compares the device's name with "privateuse1", which a renamed device no longer has."""
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def dlpack_device(self):
        if not has_torch_function_unary(self) and self.device.type == "lazyt":
            return DLDeviceType.kDLExtDev, self.device.index or 0
        return original(self)

    torch.Tensor.__dlpack_device__ = dlpack_device


def patch() -> None:
    _patch_repr()
    _patch_dlpack_device()
