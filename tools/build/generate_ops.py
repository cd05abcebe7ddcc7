"""Make abi/include/lazyt/ops.h and core/ir/ops_generated.inc from abi/ops.toml.

generate_ops.py            write them
generate_ops.py --check    fail, naming the file, if one is stale
"""

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMOTE = {
    "none": "kNone",
    "common": "kCommon",
    "float": "kFloat",
    "compare": "kCompare",
    "div_mode": "kDivMode",
    "into": "kInto",
}
FIELDS = {
    "number", "name", "overload", "version", "schema", "promote", "promote_args", "static_scalars",
    "moving", "random", "rule", "decomposition",
}  # fmt: skip
# Integer arguments of these names count dims of an operand.
AXIS_NAMES = {"dim", "dims", "dim0", "dim1", "dim2"}


class BadTable(Exception):
    pass


@dataclass
class Argument:
    type: str
    name: str
    default: str | None
    keyword_only: bool


@dataclass
class Op:
    number: int
    name: str
    version: int
    schema: str
    overload: str = ""
    promote: str = "none"
    promote_args: list[str] = field(default_factory=list)
    static_scalars: list[str] = field(default_factory=list)
    moving: list[str] = field(default_factory=list)
    random: bool = False
    rule: str = ""
    decomposition: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def macro(self) -> str:
        """LAZYT_OP_ADD_TENSOR; leading underscores go (C++ reserves double ones), aten:: is not spelled."""
        space, _, name = self.name.partition("::")
        parts = ([] if space == "aten" else [space]) + [name, self.overload]
        return "LAZYT_OP_" + "_".join(p.strip("_").upper() for p in parts if p)

    @property
    def arguments(self) -> list[Argument]:
        inside = self.schema[1 : self.schema.index(") ->")]
        out, keyword_only = [], False
        for text in split_commas(inside):
            if text == "*":
                keyword_only = True
                continue
            declared, equals, default = text.partition("=")
            type_, _, name = declared.rpartition(" ")
            out.append(Argument(type_, name, default if equals else None, keyword_only))
        return out

    @property
    def result_count(self) -> int:
        text = self.schema[self.schema.index(") ->") + 4 :].strip()
        results = split_commas(text[1:-1]) if text.startswith("(") else [text]
        return -1 if any("[]" in r for r in results) else len(results)

    def mask(self, names) -> int:
        index = {a.name: i for i, a in enumerate(self.arguments)}
        lost = set(names) - set(index)
        if lost:
            raise BadTable(f"{self.full_name}: no argument {', '.join(sorted(lost))}")
        return sum(1 << index[n] for n in names)


def split_commas(text: str) -> list[str]:
    """Splits at commas outside brackets and quotes."""
    parts = re.findall(r"(?:[^,\[\]\"']|\[[^\]]*\]|\"[^\"]*\"|'[^']*')+", text)
    return [p.strip() for p in parts if p.strip()]


def read_table(path: Path) -> list[Op]:
    ops = []
    for row in tomllib.loads(path.read_text(encoding="utf-8"))["op"]:
        if unknown := set(row) - FIELDS:
            raise BadTable(f"{row.get('name')}: unknown field {', '.join(sorted(unknown))}")
        ops.append(Op(**row))
    check_table(ops)
    return ops


def check_table(ops: list[Op]):
    for what in ("number", "full_name", "macro"):
        seen = set()
        for op in ops:
            value = getattr(op, what)
            if value in seen:
                raise BadTable(f"{op.full_name}: {what} {value} is taken")
            seen.add(value)
    if [op.number for op in ops] != sorted(op.number for op in ops):
        raise BadTable("operators stand in the order of their numbers")
    for op in ops:
        if op.number < 1 or op.version < 1 or op.promote not in PROMOTE:
            raise BadTable(f"{op.full_name}: number and version from 1, promote one of {', '.join(PROMOTE)}")
        if (op.promote == "none") != (not op.promote_args):
            raise BadTable(f"{op.full_name}: promote and promote_args come together")
        types = {a.name: a.type for a in op.arguments}
        op.mask(op.promote_args)
        op.mask(op.static_scalars)
        op.mask(op.moving)
        if both := set(op.static_scalars) & set(op.moving):
            raise BadTable(f"{op.full_name}: {', '.join(both)} is static or moves")
        for name in [*op.static_scalars, *op.moving]:
            if not types[name].startswith(("Scalar", "float")):
                raise BadTable(f"{op.full_name}: {name} is no number but {types[name]}")
        if op.random and (not op.rule or types.get("seed") != "int" or types.get("offset") != "int"):
            raise BadTable(f"{op.full_name}: a random operator has a rule, int seed and int offset")
        if len(op.arguments) > 64:
            raise BadTable(f"{op.full_name}: more than 64 arguments")


def header(ops: list[Op]) -> str:
    lines = [
        "/* ops.h - numbers of the operators of opset 1. Generated from abi/ops.toml; do not edit.",
        " *",
        " * A node holds its operator by name and overload, and by this number when it has one. Numbers are",
        " * never reused. A plugin may switch on the number or compare names.",
        " * SPDX-License-Identifier: BSL-1.0 */",
        "#ifndef LAZYT_OPS_H_",
        "#define LAZYT_OPS_H_",
        "",
        "#include <stdint.h>",
        "",
        "#define LAZYT_OPSET 1",
        "",
        "typedef uint32_t lazyt_op_t;",
        "#define LAZYT_OP_NONE ((lazyt_op_t)0) /* not in the opset: see the name */",
    ]
    lines += [f"#define {op.macro} ((lazyt_op_t){op.number}) /* {op.full_name} */" for op in ops]
    lines += [f"#define LAZYT_OP_COUNT {ops[-1].number + 1}", "", "#endif /* LAZYT_OPS_H_ */", ""]
    return "\n".join(lines)


def c_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def registry(ops: list[Op]) -> str:
    lines = ["// Generated from abi/ops.toml by tools/build/generate_ops.py; do not edit."]
    for op in ops:
        axes = [a.name for a in op.arguments if a.name in AXIS_NAMES and re.match(r"(Sym)?Int|int", a.type)]
        row = [
            c_string(op.name), c_string(op.overload), c_string(op.schema), op.number, op.version,
            f"Promote::{PROMOTE[op.promote]}", "true" if op.random else "false", len(op.arguments),
            op.result_count, hex(op.mask(op.promote_args)), hex(op.mask(op.static_scalars)),
            hex(op.mask(op.moving)), hex(op.mask(axes)), c_string(op.decomposition),
        ]  # fmt: skip
        lines.append("{" + ", ".join(str(item) for item in row) + "},")
    return "\n".join(lines) + "\n"


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    arguments = parser.parse_args()
    try:
        ops = read_table(ROOT / "abi" / "ops.toml")
    except BadTable as error:
        print(f"abi/ops.toml: {error}", file=sys.stderr)
        return 1
    files = {"abi/include/lazyt/ops.h": header(ops), "core/ir/ops_generated.inc": registry(ops)}
    stale = []
    for name, text in files.items():
        path = ROOT / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
    if arguments.check and stale:
        print(f"stale: {', '.join(stale)}; run tools/build/generate_ops.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
