"""Write or check abi/layout.txt: sizes, offsets and slots of every struct and the value of every macro of the ABI.

The headers are read for names only; the numbers come from the compiler. Lines of a released minor never change:
`--check` reports what differs, `--write` is for a new minor (or a draft).
"""

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "abi" / "include"
LAYOUT = ROOT / "abi" / "layout.txt"
# Not part of the layout: guards, helpers of the compiler, and what every minor changes.
SKIPPED = re.compile(r"_H_$|^LAZYT_(EXPORT|EXTERN_C|STR|HAS_FIELD)$|^LAZYT_ABI_|_COUNT$")


def headers() -> list[Path]:
    """All headers of the stable ABI; drafts are not frozen."""
    return sorted(p for p in (INCLUDE / "lazyt").rglob("*.h") if "draft" not in p.parts)


def strip_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)


def field_names(body: str) -> list[str]:
    names = []
    for declaration in body.split(";"):
        declaration = " ".join(declaration.split())
        if not declaration:
            continue
        if slot := re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration):
            names.append(slot[1])
            continue
        for declarator in declaration.split(","):
            names.append(re.search(r"(\w+)\s*(?:\[[^]]*\])*\s*$", declarator)[1])
    return names


def structs(text: str) -> dict[str, list[str]]:
    found = re.finditer(r"typedef\s+struct\s+(\w+)\s*\{(.*?)\}\s*\1\s*;", text, flags=re.S)
    return {m[1]: field_names(m[2]) for m in found}


def macros(text: str) -> list[str]:
    names = []
    for m in re.finditer(r"^[ \t]*#define[ \t]+(LAZYT_\w+)[ \t]+(\S.*)$", text, flags=re.M):
        if not SKIPPED.search(m[1]) and not m[2].startswith('"'):
            names.append(m[1])
    return names


def program() -> str:
    lines = ["#include <stdio.h>", "#include <inttypes.h>"]
    lines += [f'#include "{h.relative_to(INCLUDE)}"' for h in headers()]
    lines += [
        "#define FIELD(type, field) \\",
        '  printf("  %4zu %4zu %s\\n", offsetof(type, field), sizeof(((type *)0)->field), #field)',
        "int main(void) {",
    ]
    for header in headers():
        text = strip_comments(header.read_text())
        lines.append(f'  printf("\\n# {header.relative_to(INCLUDE)}\\n");')
        for name in macros(text):
            lines.append(f'  printf("{name} = %" PRId64 "\\n", (int64_t)({name}));')
        for name, fields in structs(text).items():
            lines.append(f'  printf("{name}: %zu bytes\\n", sizeof({name}));')
            lines += [f"  FIELD({name}, {field});" for field in fields]
    lines += ["  return 0;", "}"]
    return "\n".join(lines)


def layout(compiler: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "layout.c", Path(folder) / "layout"
        source.write_text(program())
        subprocess.run([*compiler, "-std=c11", f"-I{INCLUDE}", str(source), "-o", str(binary)], check=True)
        numbers = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout
    return (
        "Layout of the ABI on 64-bit targets, written by tools/build/abi_layout.py: of each struct its size and\n"
        "offset, size and name of its fields; of each macro its value. A line of a released minor never changes.\n" + numbers
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="exit with 1 if the headers and layout.txt differ")
    action.add_argument("--write", action="store_true", help="write layout.txt")
    parser.add_argument("--cc", nargs="+", default=["cc"], help="C compiler")
    args = parser.parse_args()
    now = layout(args.cc)
    if args.write:
        LAYOUT.write_text(now)
        return 0
    then = LAYOUT.read_text() if LAYOUT.exists() else ""
    if now == then:
        return 0
    sys.stdout.writelines(difflib.unified_diff(then.splitlines(True), now.splitlines(True), str(LAYOUT), "headers"))
    print("The layout of the ABI changed. For a draft or a new minor: tools/build/abi_layout.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
