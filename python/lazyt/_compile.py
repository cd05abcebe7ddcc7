"""torch.compile: the graph that it captures is recorded when it is called, as the program it stands for would be.

lazyt compiles whole steps, across the graphs of torch.compile and what lies between them, so each graph is run as it is:
values, autograd and errors are those of the program without torch.compile.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx


def record(graph: fx.GraphModule, inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """The backend "lazyt" of torch.compile."""
    return graph.forward


def _is_of_device(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "lazyt"


def _uses_device(graph: fx.GraphModule, inputs: list[Any]) -> bool:
    return any(_is_of_device(i) for i in inputs) or any(
        _is_of_device(node.meta.get("example_value")) for node in graph.graph.nodes
    )


def install() -> None:
    """Graphs with tensors of the device are recorded also under torch.compile's default backend, whose code
    generator knows no device that records."""
    inductor = torch._TorchCompileInductorWrapper
    generate = inductor.__call__

    def compile_graph(self, model_: fx.GraphModule, inputs_: list[Any], **options: Any) -> Callable[..., Any]:
        if _uses_device(model_, inputs_):
            return record(model_, inputs_)
        return generate(self, model_, inputs_, **options)

    inductor.__call__ = compile_graph  # type: ignore[method-assign]
