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

    torch.Tensor.__dlpack_device__ = dlpack_device  # type: ignore[method-assign]


def _patch_storage_files() -> None:
    """Legacy serialisation reads and writes a storage at its address, which nobody can read here."""
    write, read = torch.UntypedStorage._write_file, torch.UntypedStorage._set_from_file

    def write_file(self, *args):
        return write(self.cpu() if self.device.type == "lazyt" else self, *args)

    def set_from_file(self, *args):
        if self.device.type != "lazyt":
            return read(self, *args)
        host = torch.UntypedStorage(self.nbytes())
        read(host, *args)
        return self.copy_(host)

    torch.UntypedStorage._write_file = write_file  # type: ignore[method-assign]
    torch.UntypedStorage._set_from_file = set_from_file  # type: ignore[method-assign]


def patch() -> None:
    _patch_repr()
    _patch_storage_files()
    _patch_dlpack_device()
