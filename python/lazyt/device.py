"""`torch.lazyt`: what PyTorch and its users expect of a device's module. Which devices there are: `lazyt.devices()`."""

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch

from . import _C

_initialized = True
_forked = False

Stream = torch.Stream
Event = torch.Event  # one with enable_timing cuts the trace where it is recorded


def _lazy_init() -> None:
    """Called by PyTorch at each first use of the device: it is ready since the import."""


def init() -> None:
    """There for programs that call it on other devices."""


def is_initialized() -> bool:
    return True


def is_available() -> bool:
    return True


def device_count() -> int:
    """Those that LAZYT_DEVICES lists, else those of the backend, which is loaded for this. It never changes."""
    return _C.device_count()


def current_device() -> int:
    """Of this thread: where `device="lazyt"` is."""
    return _C.current_device()


def _index(device: Any) -> int:
    if device is None:
        return current_device()
    if isinstance(device, int):
        index = device
    else:
        wanted = torch.device(device)
        if wanted.type != "lazyt":
            raise ValueError(f"expected a lazyt device, got '{wanted}'")
        index = -1 if wanted.index is None else wanted.index
    if index < 0:
        return current_device()
    if index > 0 and index >= (count := device_count()):
        there = "is one, lazyt:0" if count == 1 else f"are {count}, lazyt:0 to lazyt:{count - 1}"
        raise RuntimeError(f"there is no device lazyt:{index}; there {there}")
    return index


def set_device(device: Any) -> None:
    """Of this thread."""
    _C.set_device(_index(device))


class device:
    """Context manager that selects a device; a negative number selects nothing."""

    def __init__(self, device: Any):
        self.idx = _index(device)

    def __enter__(self) -> "device":
        self.before = current_device()
        _C.set_device(self.idx)
        return self

    def __exit__(self, *_: object) -> None:
        _C.set_device(self.before)


class device_of(device):
    """Context manager that selects the device of a tensor or storage; on other devices it does nothing."""

    def __init__(self, obj: Any):
        super().__init__(obj.device if obj.device.type == "lazyt" else None)


def get_device_name(device: Any = None) -> str:
    return str(_C.backend(_index(device))["device"])


def synchronize(device: Any = None) -> None:
    """Waits until everything recorded so far has run there."""
    _C.wait(_index(device))


def current_stream(device: Any = None) -> torch.Stream:
    """The one stream of the thread and device: order is the runtime's business."""
    return torch.accelerator.current_stream(_index(device))


def default_stream(device: Any = None) -> torch.Stream:
    """Streams are the traces of threads: each thread's own is its default."""
    return current_stream(device)


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None) -> Any:
    """Context manager that selects a stream; None selects nothing."""
    return nullcontext() if stream is None else stream


def empty_cache() -> None:
    """Asks the backend to free what it only keeps for later."""
    torch.accelerator.empty_cache()


def memory_stats(device: Any = None) -> dict[str, int]:
    """bytes_in_use, peak_bytes_in_use, bytes_reserved, derived_bytes (kept forms of inputs)."""
    return dict(_C.memory_stats(_index(device)))


def memory_allocated(device: Any = None) -> int:
    return memory_stats(device)["bytes_in_use"]


def max_memory_allocated(device: Any = None) -> int:
    return memory_stats(device)["peak_bytes_in_use"]


def memory_reserved(device: Any = None) -> int:
    return memory_stats(device)["bytes_reserved"]


def max_memory_reserved(device: Any = None) -> int:
    return memory_reserved(device)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free bytes and all bytes, as far as the backend knows them."""
    return torch.accelerator.get_memory_info(_index(device))


# Random numbers: a generator for each device. Seed and offset are data of a program, so seeding never waits.


def _generator(device: Any = None) -> torch.Generator:
    return _C.default_generator(_index(device))


def __getattr__(name: str) -> Any:
    if name == "default_generators":  # as many as there are devices
        return tuple(_generator(i) for i in range(device_count()))
    raise AttributeError(f"module 'torch.lazyt' has no attribute '{name}'")


def manual_seed(seed: int) -> None:
    """Of the current device."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    # Also of devices that nothing has asked for: seeding loads no plugin.
    _C.seed_all(int(seed))


def seed() -> int:
    """Seeds the current device with a number that differs each time, and returns it."""
    return _generator().seed()


def seed_all() -> None:
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    return _generator().initial_seed()


def get_rng_state(device: Any = "lazyt") -> torch.Tensor:
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "lazyt") -> None:
    _generator(device).set_state(new_state.cpu())


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return _forked


def _after_fork() -> None:
    global _forked
    _forked = _C.mark_forked()
