"""The functions of the package's top level."""

import ctypes
import json
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils.dlpack import DLDeviceType

from . import _C, metrics
from ._code import to_code


def mark_step(device: torch.device | str | None = None, wait: bool = False) -> None:
    """Cuts the trace here and starts running it; a hint, never needed.

    Returns at once: recording goes on while the step runs. `wait=True` waits for it.
    """
    _check_device(device)
    _C.count("MarkStep")
    _C.flush("MarkStep")
    if wait:
        _C.wait()


def wait_device_ops(devices: Sequence[str] | None = None) -> None:
    """Waits until everything recorded so far has run."""
    for device in devices or ():
        _check_device(device)
    _C.wait()


def sync_multi(
    tensors: Sequence[torch.Tensor], devices: Sequence[str] | None = None, wait: bool = True
) -> None:
    """Cuts the trace so that these tensors are computed. `wait=True` waits for them."""
    for device in devices or ():
        _check_device(device)
    if any(_is_ours(t) and _C.is_pending(t) for t in tensors):
        _C.flush("ValueNeeded")
    if wait:
        _C.wait()


def to_lazy(value: Any) -> Any:
    """A tensor, a module, or any nest of them, moved to the device."""
    return _move(value, "lazyt")


def to_eager(value: Any) -> Any:
    """A tensor, a module, or any nest of them, moved to the CPU. A result is computed once and kept."""
    return _move(value, "cpu")


def from_dlpack(value: Any) -> torch.Tensor:
    """Another library's tensor (`__dlpack__`) on the device, not copied where the backend can use its memory.

    The memory stays its owner's, who must not write to it while the tensor lives; what is written to the
    tensor does not reach the owner.
    """
    # A CUDA tensor's producer makes it safe to read on the legacy default stream: the backend waits for that.
    where = getattr(value, "__dlpack_device__", lambda: (DLDeviceType.kDLCPU, 0))()
    stream = {"stream": 1} if where[0] == DLDeviceType.kDLCUDA else {}
    try:
        capsule = value.__dlpack__(max_version=(1, 1), **stream)
    except TypeError:  # from before DLPack 1.0
        capsule = value.__dlpack__(**stream)
    tensor = _C.from_dlpack(capsule)
    return tensor if tensor is not None else torch.from_dlpack(capsule).to("lazyt")


def graph(tensor: torch.Tensor | None = None) -> str:
    """The pending program that computes a tensor, or all that is pending: shapes, dtypes, source lines."""
    return _C.graph(_pending(tensor))


def code(tensor: torch.Tensor | None = None) -> str:
    """The pending program as Python calls: pasted, they run eagerly."""
    return to_code(_C.nodes(_pending(tensor)))


def explain() -> str:
    """Why traces were cut, what was compiled and what ran on the host, since the last reset."""
    return metrics.explanation()


def backend() -> dict[str, Any]:
    """The backend in use: name, version, description, vendor, path, score, device. Loads it."""
    return _C.backend()


def backends() -> list[dict[str, Any]]:
    """The backends that can be found, and for each how it was found and whether something is wrong."""
    return json.loads(_C.backends())["candidates"]


def use_backend(name: str) -> None:
    """Goes on with another backend: a name, a path, or a list in order of preference ('cuda,onednn').

    Tensors move along. If it cannot be loaded, the error says what was tried, and the old one stays.
    """
    _C.use_backend(name)


_kernels: dict[str, Any] = {}  # keeps what backends call


def add_kernel(name: str, kernel: Any, *, entry: str = "", user_data: int = 0) -> None:
    """Hands the backend in use a kernel for an operator that `torch.library` defines, 'mylib::op'.

    kernel: a C function of type lazyt_kernel_function_t (of ctypes, or its address), for backends whose memory the
    CPU reaches; or a text of CUDA C that has the function `entry`. The operator needs a fake kernel, as for
    torch.compile. A backend that takes none, or not this kind, is an error. `use_backend` leaves it behind.
    """
    if isinstance(kernel, str):
        _C.add_kernel(name, 0, user_data, kernel, entry)
    else:
        address = kernel if isinstance(kernel, int) else ctypes.cast(kernel, ctypes.c_void_p).value or 0
        if not address:
            raise ValueError(f"add_kernel: the kernel of '{name}' is a null pointer")
        _C.add_kernel(name, address, user_data, "", "")
    _kernels[name] = kernel


def set_fallback(policy: str) -> None:
    """What happens to an operator that the backend lacks: 'allow' the host to run it, 'warn', or 'deny'."""
    _C.set_fallback(policy)


def fallback() -> str:
    """The policy: 'allow', 'warn' or 'deny'."""
    return _C.fallback()


def _is_ours(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "lazyt"


def _check_device(device: torch.device | str | None) -> None:
    if device and torch.device(device) not in (torch.device("lazyt"), torch.device("lazyt", 0)):
        raise ValueError(f"there is no lazyt device '{device}'; there is one, lazyt:0")


def _move(value: Any, device: str) -> Any:
    def one(leaf: Any) -> Any:
        return leaf.to(device) if isinstance(leaf, torch.Tensor | torch.nn.Module) else leaf

    return _pytree.tree_map(one, value)


def _pending(tensor: torch.Tensor | None) -> torch.Tensor | None:
    if tensor is not None and not _is_ours(tensor):
        raise ValueError(f"the tensor is on {tensor.device}: only tensors on lazyt have a pending program")
    return tensor
