"""Write or check abi/rust/lazyt-sys/src/bindings.rs, from the headers and abi/layout.txt.

    rust_bindings.py --check | --write

The headers are the authority: types and functions are read there, numbers come from layout.txt, and the
bindings assert at compile time that Rust lays out every struct as layout.txt says.
"""

import argparse
import difflib
import re
import sys

from abi_layout import LAYOUT, ROOT, headers, strip_comments

BINDINGS = ROOT / "abi" / "rust" / "lazyt-sys" / "src" / "bindings.rs"
PRIMITIVES = {"void": "c_void", "char": "c_char", "double": "f64", "float": "f32"} | {
    f"{'u' if sign else ''}int{bits}_t": f"{'u' if sign else 'i'}{bits}"
    for bits in (8, 16, 32, 64)
    for sign in (0, 1)
}
SLOT = re.compile(r"^(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)$", re.DOTALL)
KEYWORDS = {"type", "ref", "in", "fn", "move", "where"}


def rust_type(c: str) -> str:
    """The Rust type of a C type: 'const lazyt_program_t *' is *const lazyt_program_t."""
    words = re.sub(r"\bstruct\b", " ", c).replace("*", " * ").split()
    base = next(w for w in words if w not in ("const", "*"))
    result = PRIMITIVES.get(base, base)
    constant = "const" in words[: words.index(base)]
    for word in words[words.index(base) + 1 :]:
        if word == "const":
            constant = True
        else:
            result = f"*{'const' if constant else 'mut'} {result}"
            constant = False
    return result


def name_of(c: str) -> str:
    return f"r#{c}" if c in KEYWORDS else c


def function(returns: str, arguments: str) -> str:
    parts = []
    for argument in [] if arguments.strip() == "void" else arguments.split(","):
        c, name = re.match(r"^(.*?)(\w+)\s*$", argument.strip(), re.DOTALL).groups()
        parts.append(f"{name_of(name)}: {rust_type(c)}")
    result = "" if returns.strip() == "void" else f" -> {rust_type(returns)}"
    return f'Option<unsafe extern "C" fn({", ".join(parts)}){result}>'


def fields(body: str) -> list[tuple[str, str]]:
    found = []
    for declaration in (" ".join(d.split()) for d in body.split(";")):
        if not declaration:
            continue
        if slot := SLOT.match(declaration):
            found.append((slot[2], function(slot[1], slot[3])))
            continue
        c, names = re.match(r"^(.*?[\s*])(\w+(?:\[\d+\])?(?:,\s*\w+)*)$", declaration).groups()
        for name in names.split(","):
            array = re.match(r"^(\w+)\[(\d+)\]$", name.strip())
            found.append(
                (array[1], f"[{rust_type(c)}; {array[2]}]") if array else (name.strip(), rust_type(c))
            )
    return found


def constants(text: str, numbers: dict[str, str]) -> list[str]:
    lines = []
    for m in re.finditer(r"^[ \t]*#define[ \t]+(LAZYT_\w+)[ \t]+(\S.*)$", text, re.MULTILINE):
        name, value = m[1], m[2].strip()
        if value.startswith('"'):
            lines.append(f"pub const {name}: &str = {value};")
        elif name.startswith("LAZYT_ABI_"):
            lines.append(f"pub const {name}: u32 = {value};")
        elif name in numbers:
            cast = re.match(r"^\(\((\w+)\)", value)
            kind = cast[1] if cast else "u64" if "UINT64" in value else "u32"
            number = numbers[name] if not numbers[name].startswith("-") else f"{numbers[name]}i64 as {kind}"
            lines.append(f"pub const {name}: {kind} = {number};")
    return lines


def types(text: str) -> list[str]:
    lines = []
    for m in re.finditer(r"typedef\s+(u?int\d+_t)\s+(lazyt_\w+)\s*;", text):
        lines.append(f"pub type {m[2]} = {PRIMITIVES[m[1]]};")
    for m in re.finditer(r"typedef\s+struct\s+\w+\s+(lazyt_\w+)\s*;|^struct\s+(\w+)\s*;", text, re.MULTILINE):
        lines.append(f"#[repr(C)]\npub struct {m[1] or m[2]} {{\n    _opaque: Opaque,\n}}")
    for m in re.finditer(r"typedef\s+([\w\s*]+?)\(\s*\*\s*(lazyt_\w+)\s*\)\s*\(([^;]*)\)\s*;", text):
        lines.append(f"pub type {m[2]} = {function(m[1], m[3])};")
    for m in re.finditer(r"typedef\s+struct\s+(\w+)\s*\{(.*?)\}\s*\1\s*;", text, re.DOTALL):
        members = "\n".join(f"    pub {name_of(name)}: {kind}," for name, kind in fields(m[2]))
        lines.append(f"#[repr(C)]\n#[derive(Clone, Copy)]\npub struct {m[1]} {{\n{members}\n}}")
    return lines


def layout_asserts(layout: str) -> list[str]:
    lines, struct = [], ""
    for line in layout.splitlines():
        if head := re.match(r"^(\w+): (\d+) bytes$", line):
            struct = head[1]
            lines.append(f"    assert!(size_of::<{struct}>() == {head[2]});")
        elif field := re.match(r"^\s+(\d+)\s+\d+ (\w+)$", line):
            lines.append(f"    assert!(offset_of!({struct}, {name_of(field[2])}) == {field[1]});")
    return lines


def dtype_sizes(text: str) -> str:
    sizes = re.search(r"sizes\[LAZYT_DTYPE_COUNT\] = \{(.*?)\}", text, re.DOTALL)[1].split(",")
    return f"pub const DTYPE_SIZES: [u8; {len(sizes)}] = [{', '.join(s.strip() for s in sizes)}];"


def bindings() -> str:
    layout = LAYOUT.read_text(encoding="utf-8")
    numbers = dict(re.findall(r"^(LAZYT_\w+) = (-?\d+)$", layout, re.MULTILINE))
    parts = ["// Written by tools/build/rust_bindings.py from the C headers; do not edit."]
    for header in headers():
        text = strip_comments(header.read_text(encoding="utf-8"))
        body = constants(text, numbers) + types(text)
        if header.name == "dtype.h":
            body.append(dtype_sizes(text))
        parts += [f"\n// lazyt/{header.name}", *body]
    asserts = "\n".join(layout_asserts(layout))
    parts.append(f'\n#[cfg(target_pointer_width = "64")]\nconst _: () = {{\n{asserts}\n}};')
    return "\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--check", action="store_true", help="exit with 1 if the bindings are not what the headers say"
    )
    action.add_argument("--write", action="store_true")
    now = bindings()
    if parser.parse_args().write:
        BINDINGS.write_text(now, encoding="utf-8")
        return 0
    then = BINDINGS.read_text(encoding="utf-8")
    if now == then:
        return 0
    sys.stdout.writelines(
        difflib.unified_diff(then.splitlines(True), now.splitlines(True), str(BINDINGS), "headers")
    )
    print("The headers changed: tools/build/rust_bindings.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
