"""torch.compile: a graph that it captures is recorded when it is called, and at once where that is known.

lazyt compiles whole steps, across the graphs of torch.compile and what lies between them, so a graph is no program of its own: its
operators are recorded as those of the program without torch.compile would be. Once a step is known, a call of the
graph is one look at its arguments: neither Python nor PyTorch run what lies between them and the results.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from . import _C


def _is_pure(node: fx.Node) -> bool:
    """Not so operators of higher order and those of libraries, whose own code may do more than compute."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target.namespace in ("aten", "prims")
    return not isinstance(node.target, torch._ops.OperatorBase)


def _recorded(graph: fx.GraphModule, inputs: list[Any]) -> Callable[[list[Any]], Sequence[Any]]:
    """A graph as AOTAutograd makes them: of PyTorch's operators, without writes, forward and backward apart."""
    from functorch.compile import make_boxed_func

    if not all(map(_is_pure, graph.graph.nodes)):
        return make_boxed_func(graph.forward)
    known = _C.CapturedGraph()

    def call(arguments: list[Any]) -> Sequence[Any]:
        results = known.follow(arguments)
        if isinstance(results, _C.Place):
            place, results = results, graph.forward(*arguments)
            known.learn(arguments, results, place)
        arguments.clear()
        return results

    call._boxed_call = True  # type: ignore[attr-defined]  # takes a list, which it empties
    return call


def record(graph: fx.GraphModule, inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """The backend "lazyt" of torch.compile."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    # What the backward computes again is one with what the forward computed: both are in the same program.
    return aot_autograd(fw_compiler=_recorded, partition_fn=min_cut_rematerialization_partition)(graph, inputs)


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
