"""accelerate, and the Trainer of transformers, on the device.

    import lazyt.integrations.accelerate

    lazyt.integrations.accelerate.enable()  # before the first TrainingArguments or Accelerator
    arguments = transformers.TrainingArguments("out", bf16=True)

Both take a device from a list that lazyt is not in. ACCELERATE_TORCH_DEVICE is the hook they offer, and
chooses the device. What it does not reach is wrapped: transformers' question whether the device knows
bfloat16, accelerate's refusal of fp16 on devices that it does not name (bf16=True is the better choice where
nothing asks for fp16), and the random state that checkpoints keep.
"""

import functools
import importlib
import importlib.util
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import lazyt  # noqa: F401  the device

_RANDOM_STATE = "rng_state_lazyt.pth"
_enabled = False


def enable() -> None:
    """Makes the device the one that accelerate and transformers train on, in this process.

    Raises RuntimeError when accelerate has chosen another device already, ImportError without accelerate.
    """
    global _enabled
    state = importlib.import_module("accelerate.state").PartialState
    if state._shared_state and torch.device(state._shared_state["device"]).type != "lazyt":
        raise RuntimeError(
            f"accelerate runs on {state._shared_state['device']} already: call "
            "lazyt.integrations.accelerate.enable() before the first TrainingArguments or Accelerator"
        )
    os.environ["ACCELERATE_TORCH_DEVICE"] = "lazyt"
    if _enabled:
        return
    _enabled = True
    _allow_float16()
    _keep_random_state_of_accelerate()
    if importlib.util.find_spec("transformers") is not None:
        transformers = importlib.import_module("transformers")
        _know_bfloat16(transformers)
        _keep_random_state_of_trainer(transformers)


class RandomState:
    """The device's random state as an object that `Accelerator.register_for_checkpointing` takes."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"state": torch.lazyt.get_rng_state()}  # type: ignore[attr-defined]

    def load_state_dict(self, saved: dict[str, torch.Tensor]) -> None:
        torch.lazyt.set_rng_state(saved["state"])  # type: ignore[attr-defined]


def _wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


def _allow_float16() -> None:
    """An Accelerator for fp16 is made as one for bf16, which is then told its precision and given its scaler."""
    shared = importlib.import_module("accelerate.state").AcceleratorState._shared_state

    def allowing(original: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(original)

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            call = signature.bind(self, *args, **kwargs)
            known = shared.get("_mixed_precision")
            wanted = (
                call.arguments.get("mixed_precision") or known or os.environ.get("ACCELERATE_MIXED_PRECISION")
            )
            ours = os.environ.get("ACCELERATE_TORCH_DEVICE") == "lazyt" and not call.arguments.get("cpu")
            if not ours or str(wanted) != "fp16" or known not in (None, "fp16"):
                return original(self, *args, **kwargs)
            call.arguments["mixed_precision"] = "bf16"
            if known:
                shared["_mixed_precision"] = "bf16"
            try:
                original(*call.args, **call.kwargs)
                self.scaler = torch.amp.GradScaler(
                    "lazyt", **(self.scaler_handler.to_kwargs() if self.scaler_handler else {})
                )
            finally:
                if shared:
                    shared["_mixed_precision"] = "fp16"

        return init

    _wrap(importlib.import_module("accelerate").Accelerator, "__init__", allowing)


def _keep_random_state_of_accelerate() -> None:
    def registering(original: Callable[..., None]) -> Callable[..., None]:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if self.device.type == "lazyt":
                self.register_for_checkpointing(RandomState())

        return init

    _wrap(importlib.import_module("accelerate").Accelerator, "__init__", registering)


def _know_bfloat16(transformers: Any) -> None:
    def answering(original: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: os.environ.get("ACCELERATE_TORCH_DEVICE") == "lazyt" or original()

    # Modules that import the function by name have it as their own.
    arguments = importlib.import_module("transformers.training_args")
    for module in (transformers.utils.import_utils, transformers.utils, arguments):
        _wrap(module, "is_torch_bf16_gpu_available", answering)


def _keep_random_state_of_trainer(transformers: Any) -> None:
    def saving(original: Callable[..., None]) -> Callable[..., None]:
        def save(self: Any, output_dir: str) -> None:
            original(self, output_dir)
            torch.save(RandomState().state_dict(), Path(output_dir) / _RANDOM_STATE)

        return save

    def loading(original: Callable[..., None]) -> Callable[..., None]:
        def load(self: Any, checkpoint: str | None) -> None:
            original(self, checkpoint)
            if checkpoint and (file := Path(checkpoint) / _RANDOM_STATE).exists():
                RandomState().load_state_dict(torch.load(file))

        return load

    _wrap(transformers.Trainer, "_save_rng_state", saving)
    _wrap(transformers.Trainer, "_load_rng_state", loading)
