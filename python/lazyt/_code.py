"""A recorded program as Python: calls of torch.ops on CPU tensors, to be pasted and run eagerly."""

from collections.abc import Callable
from typing import Any

import torch

_DTYPES = {
    "b1": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f4e2m1fnx2": "float4_e2m1fn_x2",
}
_MEMORY_FORMATS = ["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"]


def _full(value: Callable[[list[str]], str]) -> Callable[[list[str]], str]:
    return lambda a: f"torch.empty({a[0]}, dtype={a[1]}){value(a)}"


# Random operators of the device, by eager ones of the same distribution: eager draws other numbers.
_RANDOM: dict[str, Callable[[list[str]], str]] = {
    "lazyt::dropout": lambda a: f"torch.ops.aten.native_dropout.default({a[0]}, {a[1]}, True)",
    "lazyt::bernoulli": lambda a: f"torch.ops.aten.bernoulli.default({a[0]})",
    "lazyt::uniform": _full(lambda a: f".uniform_({a[2]}, {a[3]})"),
    "lazyt::normal": _full(lambda a: f".normal_({a[2]}, {a[3]})"),
    "lazyt::randint": _full(lambda a: f".random_({a[2]}, {a[3]})"),
}


def _dtype(name: str) -> str:
    return f"torch.{_DTYPES.get(name, name)}"


def _type(result: tuple) -> str:
    _, dtype, dims = result
    return f"{_DTYPES.get(dtype, dtype)}[{', '.join(map(str, dims))}]"


def _number(value: float | complex) -> str:
    if isinstance(value, complex):
        return f"complex({_number(value.real)}, {_number(value.imag)})"
    return repr(value) if value - value == 0 else f"float('{value}')"


def _argument(value: Any, kind: str) -> str:
    if isinstance(value, tuple):
        tag, payload = value
        return {"%": f"v{payload}", "dtype": _dtype(payload), "device": "torch.device('cpu')"}[tag]
    if isinstance(value, list):
        return "[" + ", ".join(_argument(v, kind) for v in value) + "]"
    if isinstance(value, int) and not isinstance(value, bool):
        if "Layout" in kind:
            return "torch.strided"
        if "MemoryFormat" in kind:
            return f"torch.{_MEMORY_FORMATS[value]}"
    if isinstance(value, float | complex):
        return _number(value)
    return repr(value)


def _schema(op: str, overload: str) -> torch._C.FunctionSchema | None:
    try:
        return torch._C._get_schema(op, overload)
    except RuntimeError:
        return None


def _call(node: dict[str, Any]) -> str:
    op, overload, args = node["op"], node["overload"], node["args"]
    if op in _RANDOM:
        return _RANDOM[op]([_argument(a, "") for a in args])
    schema = _schema(op, overload)
    texts = []
    for i, value in enumerate(args):
        argument = schema.arguments[i] if schema and i < len(schema.arguments) else None
        text = _argument(value, str(argument.real_type) if argument else "")
        texts.append(f"{argument.name}={text}" if argument and argument.kwarg_only else text)
    return f"torch.ops.{op.replace('::', '.')}.{overload or 'default'}({', '.join(texts)})"


def _targets(node: dict[str, Any]) -> str:
    names = [f"v{id}" for id, _, _ in node["results"]]
    schema = _schema(node["op"], node["overload"])
    is_list = schema is not None and len(schema.returns) == 1 and "[]" in str(schema.returns[0].type)
    is_list |= schema is not None and len(schema.returns) == 1 and "List" in str(schema.returns[0].type)
    return ", ".join(names) + ("," if is_list and len(names) == 1 else "")


def _example(step: dict[str, Any]) -> str:
    (_, dtype, dims) = step["results"][0]
    if step["kind"] == "host_scalar":
        return "1" if dtype[0] in "iu" else "True" if dtype == "b1" else "1.0"
    maker = "ones" if dtype[0] in "fc" or dtype == "bf16" else "zeros"
    return f"torch.{maker}({list(dims)}, dtype={_dtype(dtype)})"


def to_code(steps: list[dict[str, Any]]) -> str:
    """A function of the program's inputs, and a call of it with made-up ones."""
    inputs = [s for s in steps if s["kind"] in ("input", "host_scalar")]
    names = [f"v{s['results'][0][0]}" for s in inputs]
    lines = ["import torch", "", "", f"def program({', '.join(names)}):"]
    for step, name in zip(inputs, names, strict=True):
        what = "number" if step["kind"] == "host_scalar" else "tensor"
        lines.append(f"    # {name}: {what} {_type(step['results'][0])}")
    for step in steps:
        if step["kind"] == "constant":
            id, dtype, dims = step["results"][0]
            read = f"torch.frombuffer(bytearray({step['bytes']!r}), dtype={_dtype(dtype)})"
            lines.append(f"    v{id} = {read}.reshape({list(dims)})")
        elif step["kind"] == "node":
            types = ", ".join(_type(r) for r in step["results"])
            where = f"  {step['file']}:{step['line']}" if step["file"] else ""
            lines.append(f"    {_targets(step)} = {_call(step)}  # {types}{where}")
    outputs = [f"v{s['results'][0][0]}" for s in steps if s["kind"] == "output"]
    lines.append(f"    return [{', '.join(outputs)}]")
    lines += ["", "", f"results = program({', '.join(_example(s) for s in inputs)})"]
    return "\n".join(lines) + "\n"
