"""A backward that autograd's engine has run before, in a step that is known, is followed without it.

The graph is PyTorch's own: hooks, gradients of gradients and whatever else is asked of it are the engine's, as ever.
"""

import functools
import logging
from typing import Any

import torch
from torch.autograd import graph

from . import _C

_followed = True


def _watch_saved_tensors() -> None:
    """Hooks of single saved tensors leave no trace that could be seen: once there are any, the engine runs all graphs."""
    saved = torch._C._autograd.SavedTensor
    original = saved.register_hooks

    @functools.wraps(original)
    def register_hooks(self, *args: Any, **kwargs: Any) -> None:
        global _followed
        _followed = False
        original(self, *args, **kwargs)

    saved.register_hooks = register_hooks  # type: ignore[method-assign]


def install() -> None:
    original = graph._engine_run_backward

    def can_follow(t_outputs, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """As torch.autograd.backward() calls it: to all leaves, without a graph of its own."""
        if len(args) != 4 or not kwargs.get("accumulate_grad") or not _followed or graph.log.isEnabledFor(logging.DEBUG):
            return False
        gradients, _, create_graph, inputs = args
        return not create_graph and not inputs and all(type(t) is torch.Tensor for t in (*t_outputs, *gradients))

    @functools.wraps(original)
    def run_backward(t_outputs, *args: Any, **kwargs: Any):
        if not can_follow(t_outputs, args, kwargs):
            _C.note_backward()
            return original(t_outputs, *args, **kwargs)
        gradients, keep_graph, *_ = args
        backward = _C.follow_backward(t_outputs, gradients, keep_graph)
        if backward is None:
            return ()
        result = original(t_outputs, *args, **kwargs)
        backward.learn()
        return result

    graph._engine_run_backward = torch.autograd._engine_run_backward = run_backward
    _watch_saved_tensors()
