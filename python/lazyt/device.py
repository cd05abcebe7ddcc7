"""`torch.lazyt`: what PyTorch and its users expect of a device's module. There is one device, lazyt:0."""

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch

from . import _C

_initialized = True
_forked = False

Stream = torch.Stream
Event = torch.Event  # one with enable_timing cuts the trace where it is recorded
default_generators = (_C.default_generator(),)


def _lazy_init() -> None:
    """Called by PyTorch at each first use of the device: it is ready since the import."""


def init() -> None:
    """There for programs that call it on other devices."""


def is_initialized() -> bool:
    return True


def is_available() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def _index(device: Any) -> int:
    if isinstance(device, int):
        index = device
    else:
        wanted = torch.device(device) if device is not None else torch.device("lazyt", 0)
        if wanted.type != "lazyt":
            raise ValueError(f"expected a lazyt device, got '{wanted}'")
        index = wanted.index or 0
    if index not in (0, -1):
        raise RuntimeError(f"there is no device lazyt:{index}; there is one, lazyt:0")
    return 0


def set_device(device: Any) -> None:
    _index(device)


class device:
    """Context manager that selects a device. There is one, so it only checks."""

    def __init__(self, device: Any):
        self.idx = _index(device)

    def __enter__(self) -> "device":
        return self

    def __exit__(self, *_: object) -> None:
        return None


class device_of(device):
    """Context manager that selects the device of a tensor or storage; on other devices it does nothing."""

    def __init__(self, obj: Any):
        super().__init__(0)


def get_device_name(device: Any = None) -> str:
    _index(device)
    return str(_C.backend()["device"])


def synchronize(device: Any = None) -> None:
    """Waits until everything recorded so far has run."""
    _index(device)
    _C.wait()


def current_stream(device: Any = None) -> torch.Stream:
    """The one stream: order is the runtime's business."""
    _index(device)
    return torch.accelerator.current_stream()


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
    _index(device)
    return dict(_C.memory_stats())


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
    _index(device)
    return torch.accelerator.get_memory_info(0)


# Random numbers: one generator. Seed and offset are data of a program, so seeding never waits.


def manual_seed(seed: int) -> None:
    default_generators[0].manual_seed(int(seed))


manual_seed_all = manual_seed


def seed() -> int:
    """Seeds with a number that differs each time, and returns it."""
    return default_generators[0].seed()


seed_all = seed


def initial_seed() -> int:
    return default_generators[0].initial_seed()


def get_rng_state(device: Any = "lazyt") -> torch.Tensor:
    _index(device)
    return default_generators[0].get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "lazyt") -> None:
    _index(device)
    default_generators[0].set_state(new_state.cpu())


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for state in new_states:
        set_rng_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return _forked


def _after_fork() -> None:
    global _forked
    _forked = _C.mark_forked()
