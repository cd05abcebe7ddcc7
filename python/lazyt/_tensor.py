"""The few places of PyTorch's Python that treat devices by name."""

import functools

import torch
from torch import _tensor_str
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from . import _C


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
    """Other libraries read the backend's memory if they can be told not to write to it, else a copy."""
    device_of, export = torch.Tensor.__dlpack_device__, torch.Tensor.__dlpack__
    host = (DLDeviceType.kDLCPU, 0)

    def is_ours(tensor):
        return not has_torch_function_unary(tensor) and tensor.device.type == "lazyt"

    @functools.wraps(device_of)
    def dlpack_device(self):
        if not is_ours(self):
            return device_of(self)
        kind, index = _C.dlpack_device(self)
        return DLDeviceType(kind), index

    @functools.wraps(export)
    def dlpack(self, *args, **kwargs):
        if not is_ours(self) or args:
            return export(self, *args, **kwargs)
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if self.is_conj():
            raise BufferError("Can't export tensors with the conjugate bit set")
        version, copy = kwargs.get("max_version"), kwargs.get("copy")
        own = self.__dlpack_device__()
        wanted = kwargs.get("dl_device") or own
        why = "the tensor is exported as a copy: the consumer asked for one, or for another device"
        if not copy and tuple(wanted) == own:
            why = "the consumer knows no DLPack 1.0, and would not learn that it may not write"
            if version is not None and version[0] >= 1:
                if (capsule := _C.to_dlpack(self)) is not None:
                    return capsule
                why = "the backend exports no memory for it"
        if copy is False or tuple(wanted) != host:
            raise BufferError(f"lazyt: this tensor cannot be exported without a copy in host memory: {why}")
        options = {name: kwargs[name] for name in ("max_version",) if name in kwargs}
        return export(self.cpu(), **options)

    torch.Tensor.__dlpack_device__ = dlpack_device  # type: ignore[method-assign]
    torch.Tensor.__dlpack__ = dlpack  # type: ignore[method-assign]

    # PyTorch imports read-only memory as if it could be written.
    take = torch.utils.dlpack.from_dlpack

    @functools.wraps(take)
    def from_dlpack(ext_tensor, *args, **kwargs):
        lazy = isinstance(ext_tensor, torch.Tensor) and ext_tensor.device.type == "lazyt"
        if lazy and kwargs.get("copy") is None:
            kwargs["copy"] = True
        return take(ext_tensor, *args, **kwargs)

    torch.utils.dlpack.from_dlpack = torch.from_dlpack = from_dlpack


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
