"""Registers the device with PyTorch, once per process."""

import atexit
import os
import sys
from pathlib import Path

import _lazyt_autoload
import torch

try:
    from . import _C
except ModuleNotFoundError as error:
    raise ImportError("this lazyt was built without its PyTorch frontend (meson -Dtorch=enabled)") from error

_done = False


def initialize() -> None:
    global _done
    if _done:
        return
    _done = True
    _lazyt_autoload.name_device()
    # User lines are those outside of these folders.
    _C.initialize(
        [f"{Path(str(module.__file__)).parent}{os.sep}" for module in (torch, sys.modules[__package__])]
    )

    from . import _backward, _compile, _data_parallel, _library, _optimizer, _plugins, _tensor, device

    for folder, found_by in _plugins.folders():
        _C.add_plugin_folder(folder, found_by)

    sys.modules["torch.lazyt"] = device
    torch.lazyt = device  # type: ignore[attr-defined]
    if (seed := _lazyt_autoload.seed_before_load()) is not None:
        device.manual_seed_all(seed)
    torch.utils.generate_methods_for_privateuse1_backend()
    _tensor.patch()
    _library.patch()
    _optimizer.install()
    _compile.install()
    _backward.install()
    _data_parallel.install()
    # Backward then records on the caller's thread: cheaper, and errors know the user's line. The setting is
    # per thread; threads that start later get it from the recorder.
    torch.autograd.set_multithreading_enabled(False)
    atexit.register(_C.shutdown)
    os.register_at_fork(after_in_child=device._after_fork)
