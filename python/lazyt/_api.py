"""The functions of the package's top level."""

import ctypes
import json
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils.dlpack import DLDeviceType

from . import _C, metrics
from . import device as device_module
from ._code import to_code


def mark_step(device: torch.device | str | None = None, wait: bool = False) -> None:
    """Cuts the trace here and starts running it; a hint, never needed.

    Returns at once: recording goes on while the step runs. `wait=True` waits for it. Without a device: on all.
    """
    index = _index(device)
    _C.count("MarkStep")
    _C.flush("MarkStep", index)
    if wait:
        _C.wait(index)


def wait_device_ops(devices: Sequence[str] | None = None) -> None:
    """Waits until everything recorded so far has run, on these devices or on all."""
    for device in devices or (None,):
        _C.wait(_index(device))


def sync_multi(
    tensors: Sequence[torch.Tensor], devices: Sequence[str] | None = None, wait: bool = True
) -> None:
    """Cuts the trace so that these tensors are computed. `wait=True` waits for them."""
    indices = [_index(device) for device in devices or (None,)]
    if any(_is_ours(t) and _C.is_pending(t) for t in tensors):
        _C.flush("ValueNeeded")
    for index in indices if wait else ():
        _C.wait(index)


def to_lazy(value: Any) -> Any:
    """A tensor, a module, or any nest of them, moved to the current device."""
    return _move(value, "lazyt")


def to_eager(value: Any) -> Any:
    """A tensor, a module, or any nest of them, moved to the CPU. A result is computed once and kept."""
    return _move(value, "cpu")


def from_dlpack(value: Any) -> torch.Tensor:
    """Another library's tensor (`__dlpack__`) on the current device, not copied where the backend can use its memory.

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


def backend(device: torch.device | str | None = None) -> dict[str, Any]:
    """The backend of a device, the current one if none is named: name, version, description, vendor, path, score,
    device, device_index (the plugin's). Loads it."""
    index = _index(device)
    return _C.backend(-1 if index is None else index)


def devices() -> list[dict[str, Any]]:
    """The process's devices in order: what `backend` says of each, and lazyt (its name), programs (compiled ones
    that are kept), busy (seconds in which its executor worked), memory. Loads their backends.

    LAZYT_DEVICES=onednn,cuda:1 lists them; without it they are all devices of LAZYT_BACKEND's plugin.
    """
    return [
        {"lazyt": f"lazyt:{i}"}
        | _C.backend(i)
        | {
            "programs": _C.program_count(i),
            "busy": _C.executor_busy_seconds(i),
            "memory": dict(_C.memory_stats(i)),
        }
        for i in range(_C.device_count())
    ]


def backends() -> list[dict[str, Any]]:
    """The backends that can be found, and for each how it was found and whether something is wrong."""
    return json.loads(_C.backends())["candidates"]


def use_backend(name: str, device: torch.device | str | None = None) -> None:
    """Goes on with another backend on a device, the current one if none is named: a name, a path, either with the number
    of the backend's device ('cuda:1'), or a list in order of preference ('cuda,onednn').

    Tensors move along. If it cannot be loaded, the error says what was tried, and the old one stays.
    """
    index = _index(device)
    _C.use_backend(name, -1 if index is None else index)


_kernels: dict[str, Any] = {}  # keeps what backends call


def _three(sizes: Sequence[int]) -> list[int]:
    if len(sizes) > 3 or any(size < 1 for size in sizes):
        raise ValueError(f"add_kernel: {list(sizes)} are no sizes of a grid or a block: one to three numbers from 1 on")
    return [*sizes, *(1,) * (3 - len(sizes))] if sizes else [0, 0, 0]


def add_kernel(
    name: str,
    kernel: Any,
    *,
    entry: str = "",
    user_data: int = 0,
    grid: Sequence[int] = (),
    block: Sequence[int] = (),
) -> None:
    """Hands the current device's backend a kernel for an operator that `torch.library` defines, 'mylib::op'.

    kernel: a C function of type lazyt_kernel_function_t (of ctypes, or its address), for backends whose memory the
    CPU reaches; or a text of CUDA C with the __device__ function `entry`, which every thread calls (grid and block: up to
    three sizes; without them each element of the first result has a thread, 256 in a block). What the function is handed:
    lazyt/ext/draft/custom_kernel.h. The operator needs a fake kernel, as for torch.compile. A backend that takes none, or not this kind, is an error. `use_backend` leaves it behind.
    """
    if isinstance(kernel, str):
        _C.add_kernel(name, 0, user_data, kernel, entry, _three(grid), _three(block))
    else:
        address = kernel if isinstance(kernel, int) else ctypes.cast(kernel, ctypes.c_void_p).value or 0
        if not address:
            raise ValueError(f"add_kernel: the kernel of '{name}' is a null pointer")
        _C.add_kernel(name, address, user_data, "", "", _three(()), _three(()))
    _kernels[name] = kernel


def set_fallback(policy: str) -> None:
    """What happens to an operator that the backend lacks: 'allow' the host to run it, 'warn', or 'deny'."""
    _C.set_fallback(policy)


def fallback() -> str:
    """The policy: 'allow', 'warn' or 'deny'."""
    return _C.fallback()


def _is_ours(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "lazyt"


def _index(device: torch.device | str | None) -> int | None:
    if device is None:
        return None
    try:
        return device_module._index(device)
    except RuntimeError as error:
        raise ValueError(f"there is no lazyt device '{device}': {error}") from None


def _move(value: Any, device: str) -> Any:
    def one(leaf: Any) -> Any:
        return leaf.to(device) if isinstance(leaf, torch.Tensor | torch.nn.Module) else leaf

    return _pytree.tree_map(one, value)


def _pending(tensor: torch.Tensor | None) -> torch.Tensor | None:
    if tensor is not None and not _is_ours(tensor):
        raise ValueError(f"the tensor is on {tensor.device}: only tensors on lazyt have a pending program")
    return tensor
