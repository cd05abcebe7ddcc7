"""The end of an optimizer's step is the natural end of a program: the trace is cut there."""

from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import _C


def _flush_after_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.device.type == "lazyt":
                _C.flush("OptimizerStep")
                return


# For torch.compile of a step: called, not traced. (What torch.compiler.disable sets, without importing the compiler.)
_flush_after_step._torchdynamo_disable = True  # type: ignore[attr-defined]


def install() -> None:
    register_optimizer_step_post_hook(_flush_after_step)
