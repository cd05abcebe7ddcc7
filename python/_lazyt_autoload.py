"""Names the device at `import torch` (entry point group torch.backends), and does nothing more.

A module of its own, beside the package: importing the package loads the runtime, also into a program that
uses another device. So kernels are registered by `import lazyt`, or by the first use of `device="lazyt"`:
it calls `torch.lazyt._lazy_init`. (The name alone already makes lazyt the answer of `torch.accelerator`.)
"""

import sys
import types


class _NamedDevice(types.ModuleType):
    """`torch.lazyt` until the package takes its place: answers what torch asks unbidden, else loads it."""

    _initialized = False
    _seed: int | None = None

    def is_available(self) -> bool:
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


def autoload() -> None:
    """Called by torch at its import; again, without effect, by the package."""
    import torch

    if "torch.lazyt" not in sys.modules:
        torch.utils.rename_privateuse1_backend("lazyt")
        torch._register_device_module("lazyt", _NamedDevice("torch.lazyt"))


def seed_before_load() -> int | None:
    """The seed that `torch.manual_seed` set before the package was loaded."""
    return _NamedDevice._seed
