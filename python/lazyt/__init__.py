"""PyTorch programs run lazily on hardware that ships as a plugin.

`import lazyt` registers the device; then `device="lazyt"` is all a program needs. What stands here are hints
(`mark_step`), waiting (`wait_device_ops`), moving (`to_lazy`, `to_eager`), looking inside (`graph`, `code`,
`explain`, `metrics`) and choosing a backend. The command and the conformance suite work without torch.
"""

from importlib.util import find_spec as _find_spec

__all__ = [
    "add_kernel",
    "backend",
    "backends",
    "code",
    "devices",
    "explain",
    "fallback",
    "from_dlpack",
    "graph",
    "mark_step",
    "metrics",
    "set_fallback",
    "sync_multi",
    "to_eager",
    "to_lazy",
    "use_backend",
    "wait_device_ops",
]
__version__ = "0.1.0"

if _find_spec("torch") is not None:
    from . import _setup

    _setup.initialize()

    from . import metrics
    from ._api import (
        add_kernel,
        backend,
        backends,
        code,
        devices,
        explain,
        fallback,
        from_dlpack,
        graph,
        mark_step,
        set_fallback,
        sync_multi,
        to_eager,
        to_lazy,
        use_backend,
        wait_device_ops,
    )
else:

    def __getattr__(name: str):
        if name in __all__:
            raise ImportError(f"lazyt.{name} needs PyTorch, which is not installed")
        raise AttributeError(f"module 'lazyt' has no attribute '{name}'")
