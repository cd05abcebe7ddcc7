"""Write or check abi/layout.txt: sizes, offsets and slots of every struct and the value of every macro of the ABI.

The headers are read for names only; the numbers come from the compiler. Lines of a released minor never change: `--append`
writes what a new minor adds at the ends, and refuses all else; `--check` reports what differs; `--write` is for
drafts.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "abi" / "include"
LAYOUT = ROOT / "abi" / "layout.txt"
# Records that are read at a stride, so that they may grow, without a struct_size of their own (C-3).
RECORDS = "value node arg input output constant note symbol expr execute_input program".split()
# Not part of the layout: guards, helpers of the compiler, and what every minor changes.
SKIPPED = re.compile(r"_H_$|^LAZYT_(EXPORT|EXTERN_C|STR|HAS_FIELD)$|^LAZYT_ABI_|_COUNT$")


def headers(include: Path = INCLUDE) -> list[Path]:
    """All headers of the stable ABI; drafts are not frozen."""
    return sorted(p for p in (include / "lazyt").rglob("*.h") if "draft" not in p.parts)


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


def program(include: Path) -> str:
    lines = ["#include <stdio.h>", "#include <inttypes.h>"]
    lines += [f'#include "{h.relative_to(include)}"' for h in headers(include)]
    lines += [
        "#define FIELD(type, field) \\",
        '  printf("  %4zu %4zu %s\\n", offsetof(type, field), sizeof(((type *)0)->field), #field)',
        "int main(void) {",
    ]
    for header in headers(include):
        text = strip_comments(header.read_text())
        lines.append(f'  printf("\\n# {header.relative_to(include)}\\n");')
        for name in macros(text):
            lines.append(f'  printf("{name} = %" PRId64 "\\n", (int64_t)({name}));')
        for name, fields in structs(text).items():
            lines.append(f'  printf("{name}: %zu bytes\\n", sizeof({name}));')
            lines += [f"  FIELD({name}, {field});" for field in fields]
    lines += ["  return 0;", "}"]
    return "\n".join(lines)


def layout(compiler: list[str], include: Path = INCLUDE, runner: list[str] | None = None) -> str:
    """By this compiler; runner: what runs its programs, if not this machine itself."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "layout.c", Path(folder) / "layout"
        source.write_text(program(include))
        subprocess.run([*compiler, "-std=c11", f"-I{include}", str(source), "-o", str(binary)], check=True)
        numbers = subprocess.run(
            [*(runner or []), str(binary)], check=True, capture_output=True, text=True
        ).stdout
    return (
        "Layout of the ABI on 64-bit targets, written by tools/build/abi_layout.py: of each struct its size and\n"
        "offset, size and name of its fields; of each macro its value. A line of a released minor never changes.\n"
        + numbers
    )


def parse(text: str) -> tuple[dict[str, int], dict[str, tuple[int, dict[str, tuple[int, int]]]]]:
    """Of a layout: values of macros; of each struct its size, and offset and size of its fields."""
    values: dict[str, int] = {}
    structs: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {}
    fields: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        if macro := re.fullmatch(r"(LAZYT_\w+) = (-?\d+)", line):
            values[macro[1]] = int(macro[2])
        elif struct := re.fullmatch(r"(lazyt_\w+): (\d+) bytes", line):
            fields = {}
            structs[struct[1]] = (int(struct[2]), fields)
        elif field := re.fullmatch(r" +(\d+) +(\d+) (\w+)", line):
            fields[field[3]] = (int(field[1]), int(field[2]))
    return values, structs


def forbidden(then: str, now: str) -> list[str]:
    """What the new layout does that a minor must not do (C-2): each as a sentence."""
    found = []
    (old_values, old_structs), (new_values, new_structs) = parse(then), parse(now)
    for name, value in old_values.items():
        if name not in new_values:
            found.append(f"{name} was {value} and is gone")
        elif new_values[name] != value:
            found.append(f"{name} was {value} and is {new_values[name]}")
    for name, (old_size, old_fields) in old_structs.items():
        if name not in new_structs:
            found.append(f"{name} is gone")
            continue
        new_size, new_fields = new_structs[name]
        for field, (offset, size) in old_fields.items():
            was = f"{name}: '{field}' was at {offset}, {size} bytes"
            if field not in new_fields:
                found.append(f"{was}, and is gone")
            elif new_fields[field] != (offset, size):
                found.append(was + ", and is at {}, {} bytes".format(*new_fields[field]))
        for field, (offset, _) in new_fields.items():
            if field not in old_fields and offset < old_size:
                found.append(
                    f"{name}: '{field}' lies at {offset}, within the {old_size} bytes that older writers fill"
                )
        grows = "struct_size" in old_fields or name.removeprefix("lazyt_").removesuffix("_t") in RECORDS
        if new_size != old_size and not grows:
            found.append(f"{name}: has no struct_size and no stride: it can never grow")
        if new_size < old_size:
            found.append(f"{name} had {old_size} bytes and has {new_size}")
    return found


def is_draft(include: Path = INCLUDE) -> bool:
    draft = re.search(r"#define LAZYT_ABI_DRAFT (\d+)", (include / "lazyt" / "base.h").read_text())
    return draft is None or draft[1] != "0"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--check", action="store_true", help="exit with 1 if the headers and layout.txt differ"
    )
    action.add_argument(
        "--append", action="store_true", help="write layout.txt, if lines were only added at the ends"
    )
    action.add_argument(
        "--write", action="store_true", help="write layout.txt, whatever changed; in a draft only"
    )
    parser.add_argument("--cc", nargs="+", default=["cc"], help="C compiler")
    args = parser.parse_args()
    now = layout(args.cc)
    then = LAYOUT.read_text() if LAYOUT.exists() else ""
    if now == then:
        return 0
    refused = forbidden(then, now)
    for sentence in refused:
        print(sentence)
    if args.write:
        if not is_draft():
            print("The ABI is released: only --append is possible, and what is above needs a new major")
            return 1
    elif refused or args.check:
        print(
            "The layout of the ABI changed. "
            + (
                "That breaks plugins: not in a minor"
                if refused
                else "For a new minor: tools/build/abi_layout.py --append"
            )
            + ("; in a draft: raise LAZYT_ABI_DRAFT, then --write" if is_draft() else "")
        )
        return 1
    LAYOUT.write_text(now)
    return 0


if __name__ == "__main__":
    sys.exit(main())
