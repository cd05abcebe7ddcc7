"""Operators that programs define are recorded by name from their first call on."""

import functools
from typing import Any

import torch

from . import _C


def _then_record(owner: Any, name: str) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args, **kwargs):
        result = original(*args, **kwargs)
        _C.record_late_operators()
        return result

    setattr(owner, name, call)


def patch() -> None:
    _then_record(torch.library.Library, "impl")  # custom_op, register_kernel and the others end there
    _then_record(type(torch.ops), "load_library")
