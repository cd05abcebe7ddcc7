"""Names the device at `import torch` (entry point group torch.backends), and does nothing more.

A module of its own, beside the package: importing the package loads the runtime, also into a program that
uses another device. So kernels are registered by `import lazyt`, or by the first use of `device="lazyt"`:
it calls `torch.lazyt._lazy_init`.

The name alone makes lazyt the answer of `torch.accelerator`, and PyTorch's autograd engine knows one accelerator
in a process: with another's name given, it refuses the backward of CUDA's tensors (pytorch#161129, since 2.8).
So where PyTorch has a device of its own, nothing is named before `import lazyt`, unless LAZYT_BACKEND asks for it.
"""

import os
import sys
import types


class _NamedDevice(types.ModuleType):
    """`torch.lazyt` until the package takes its place: answers what torch asks unbidden, else loads it."""

    _initialized = False
    _seed: int | None = None

    def is_available(self) -> bool:
        self._lazy_init()  # who asks, as a DataLoader that pins memory, goes on to what only the runtime answers
        return True

    def is_initialized(self) -> bool:
        return False

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        type(self)._seed = int(seed)

    manual_seed = manual_seed_all

    def _lazy_init(self) -> None:
        import lazyt  # noqa: F401

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        import lazyt.device

        return getattr(lazyt.device, name)


def _torch_has_a_device() -> bool:
    import torch

    cuda = torch.backends.cuda.is_built() and torch.cuda.device_count() > 0  # asks NVML: makes no context
    return cuda or (torch.xpu._is_compiled() and torch.xpu.device_count() > 0)


def autoload() -> None:
    """Called by torch at its import."""
    if os.environ.get("LAZYT_BACKEND") or not _torch_has_a_device():
        name_device()


def name_device() -> None:
    """Makes `device="lazyt"` known; again, without effect, by the package."""
    import torch

    if "torch.lazyt" not in sys.modules:
        torch.utils.rename_privateuse1_backend("lazyt")
        torch._register_device_module("lazyt", _NamedDevice("torch.lazyt"))
        if torch.initial_seed() != torch.Generator().initial_seed():  # named late, behind torch.manual_seed
            _NamedDevice._seed = torch.initial_seed()


def seed_before_load() -> int | None:
    """The seed that `torch.manual_seed` set before the package was loaded."""
    return _NamedDevice._seed
