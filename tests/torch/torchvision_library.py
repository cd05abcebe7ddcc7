"""torchvision's Python part without its C++ library, which may want CUDA: timm and transformers import it."""

import importlib.util

import torch

_kept = []


def stand_in() -> None:
    """Declares the operators that importing torchvision asks for, where its own library did not load."""
    if not importlib.util.find_spec("torchvision"):
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
