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


def _patch_tolist() -> None:
    """Values are read behind autograd's back, as from memory: a part of split() can still be read when its base was
    written since."""
    original = torch.Tensor.tolist

    @functools.wraps(original)
    def tolist(self):
        if has_torch_function_unary(self) or self.device.type != "lazyt":
            return original(self)
        with torch.no_grad():
            return original(self)

    torch.Tensor.tolist = tolist  # type: ignore[method-assign]


def _patch_chunked_loss() -> None:
    """linear_cross_entropy looks its precision up by the device's name: it finds the CPU's, so results are the same."""
    try:
        from torch.nn.modules import linear_cross_entropy_options as module
    except ImportError:  # PyTorch before 2.13
        return
    for (kind, dtype), default in list(module._AUTO_DEFAULTS.items()):
        if kind == "cpu":
            module._AUTO_DEFAULTS["lazyt", dtype] = default
    options = module.LinearCrossEntropyOptions
    original = options._resolve_auto_acc_dtype

    def resolve(dtype, device):
        ours = device is not None and device.type == "lazyt"
        return original(dtype, torch.device("cpu") if ours else device)

    options._resolve_auto_acc_dtype = staticmethod(resolve)


def _patch_dlpack() -> None:
    """Other libraries know no lazy device: they get the values, in host memory, as a copy."""
    device_of, export = torch.Tensor.__dlpack_device__, torch.Tensor.__dlpack__

    @functools.wraps(device_of)
    def dlpack_device(self):
        if not has_torch_function_unary(self) and self.device.type == "lazyt":
            return DLDeviceType.kDLCPU, 0
        return device_of(self)

    @functools.wraps(export)
    def dlpack(self, *args, **kwargs):
        if has_torch_function_unary(self) or self.device.type != "lazyt":
            return export(self, *args, **kwargs)
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if kwargs.get("copy") is False:
            raise BufferError("lazyt: a tensor of the device is exported as a copy; copy=False cannot be kept")
        return export(self.cpu(), *args, **kwargs)

    torch.Tensor.__dlpack_device__ = dlpack_device  # type: ignore[method-assign]
    torch.Tensor.__dlpack__ = dlpack  # type: ignore[method-assign]


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
    _patch_dlpack()
    _patch_tolist()
    _patch_chunked_loss()
