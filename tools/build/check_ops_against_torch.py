"""Compare abi/ops.toml with the operators of the installed PyTorch.

Names, overloads and schemas of every aten:: operator must be PyTorch's, without alias marks, and none of
them may write an operand. Promotion is tried out: the dtype that PyTorch computes must be the one that the
entry's `promote` says. Operators that an older PyTorch lacks are listed and are no failure.
"""

import itertools
import re
import sys
from pathlib import Path

import torch
from generate_ops import ROOT, Op, read_table

# Alias marks: Tensor(a), Tensor(a -> *), Tensor(a!).
MARK = re.compile(r"\(([a-z](\|[a-z])*!?( -> \*)?)\)")
# What promotion is tried with. float16 stays out: a few kernels of the CPU lack it.
DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float32, torch.float64]


def torch_schemas() -> dict[str, str]:
    out = {}
    for schema in torch._C._jit_get_all_schemas():
        name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        out[name] = str(schema)[str(schema).index("(") :]
    return out


def schema_errors(ops: list[Op]) -> tuple[list[str], list[str]]:
    have = torch_schemas()
    errors, lacking = [], []
    for op in ops:
        if not op.name.startswith("aten::"):
            continue
        theirs = have.get(op.full_name)
        if theirs is None:
            lacking.append(op.full_name)
        elif re.search(r"\([a-z]!", theirs):
            errors.append(f"{op.full_name}: writes an operand: {theirs}")
        elif MARK.sub("", theirs) != op.schema:
            errors.append(f"{op.full_name}: PyTorch has {MARK.sub('', theirs)}, ops.toml {op.schema}")
    return errors, lacking


def expected_dtype(op: Op, operands: list, call: dict) -> torch.dtype:
    common = operands[0]
    for other in operands[1:]:
        # A tensor of the dtype so far; with a dim as soon as an operand has one, for numbers are weak.
        common = torch.empty([0], dtype=torch.result_type(common, other))
    common = common.dtype
    kind = op.promote
    if kind == "div_mode":
        kind = "float" if call.get("rounding_mode") is None else "common"
    if kind == "compare":
        return torch.bool
    if kind == "float" and not (common.is_floating_point or common.is_complex):
        return torch.get_default_dtype()
    return common


def example(type_: str, dtype: torch.dtype):
    if type_.startswith("Tensor[]"):
        return [torch.ones(2, dtype=dtype)]
    if type_.startswith("Tensor"):
        return torch.ones(2, dtype=dtype)
    return 2.0 if dtype.is_floating_point else (True if dtype == torch.bool else 2)


def promotion_errors(ops: list[Op]) -> list[str]:
    errors = []
    for op in ops:
        if op.promote == "none" or not op.name.startswith("aten::"):
            continue
        packet = getattr(torch.ops.aten, op.name.removeprefix("aten::"), None)
        function = getattr(packet, op.overload or "default", None)
        if function is None:
            continue
        tried, wrong = 0, []
        for dtypes in itertools.product(DTYPES, repeat=min(len(op.promote_args), 2)):
            errors_of_one = try_promotion(op, function, dtypes)
            if errors_of_one is None:
                continue
            tried += 1
            wrong += errors_of_one
        if not tried:
            errors.append(f"{op.full_name}: PyTorch takes none of the combinations tried")
        errors += wrong[:3]
    return errors


# Shapes of self and of what is put into it, and where.
INTO = {
    "aten::slice_scatter": ((2,), (2,), {}),
    "aten::select_scatter": ((2,), (), {"dim": 0, "index": 1}),
    "aten::diagonal_scatter": ((2, 2), (2,), {}),
    "aten::as_strided_scatter": ((4,), (2,), {"size": [2], "stride": [2]}),
}


def try_into(op: Op, function, dtypes) -> list[str]:
    self, src, where = INTO[op.name]
    result = function(torch.ones(self, dtype=dtypes[0]), torch.ones(src, dtype=dtypes[1]), **where)
    return [] if result.dtype == dtypes[0] else [f"{op.full_name}: {dtypes} give {result.dtype}"]


def try_promotion(op: Op, function, dtypes) -> list[str] | None:
    """None if PyTorch refuses the combination."""
    if op.promote == "into":
        return try_into(op, function, dtypes)
    by_name = dict(itertools.zip_longest(op.promote_args, dtypes, fillvalue=dtypes[-1]))
    call, operands = {}, []
    for a in op.arguments:
        if a.name in by_name:
            value = example(a.type, by_name[a.name])
            if a.type.startswith("Tensor[]"):  # a list promotes among its elements
                value = [torch.ones(2, dtype=d) for d in (torch.int64, *dtypes)]
                operands += value
            else:
                operands.append(value)
            call[a.name] = value
        elif a.name == "condition":
            call[a.name] = torch.ones(2, dtype=torch.bool)
        elif a.name == "rounding_mode":
            call[a.name] = "floor" if dtypes[0] == torch.int64 else None
        elif a.default is None:
            return None
    positional = [call.pop(a.name) for a in op.arguments if a.name in call and not a.keyword_only]
    try:
        result = function(*positional, **call)
    except (RuntimeError, NotImplementedError):
        return None
    want = expected_dtype(op, operands, call)
    if result.dtype == want:
        return []
    return [f"{op.full_name}: {dtypes} give {result.dtype}, promote = {op.promote} says {want}"]


def main() -> int:
    ops = read_table(Path(ROOT) / "abi" / "ops.toml")
    errors, lacking = schema_errors(ops)
    errors += promotion_errors(ops)
    for line in errors:
        print(line)
    for name in lacking:
        print(f"{name}: not in PyTorch {torch.__version__}")
    print(f"{len(ops)} operators, {len(errors)} errors, {len(lacking)} not in this PyTorch")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
