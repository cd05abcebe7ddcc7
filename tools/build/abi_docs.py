"""The pages of sdk_docs/abi that the headers are the source of: rules.md and reference.md.

abi_docs.py RUNNER           writes them; RUNNER: build/tests/conformance/lazyt-conformance, which knows the cases
abi_docs.py RUNNER --check   says which is not what the headers say (a test of the suite `conformance`)
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "abi" / "include" / "lazyt"
PAGES = ROOT / "sdk_docs" / "abi"
sys.path.append(str(ROOT / "tests" / "conformance"))
import rules  # noqa: E402

NOTE = "<!-- Written by tools/build/abi_docs.py from the headers: change those. -->\n"
FIRST = ["lazyt.h", "base.h", "dtype.h", "status.h", "plugin.h", "device.h", "buffer.h", "event.h", "program.h"]
MOST = 6  # cases that are named
HOW = {"LAZYT_EXTERN_C", "LAZYT_EXPORT"}  # of the compiler
SKIPPED = {"ops.h"}  # a table of numbers, generated from ops.toml


def headers() -> list[Path]:
    found = [p for p in HEADERS.rglob("*.h") if p.name not in SKIPPED]
    order = {name: i for i, name in enumerate(FIRST)}
    return sorted(found, key=lambda p: (order.get(p.name, len(order)), p.as_posix()))


def title(header: Path) -> str:
    return "lazyt/" + header.relative_to(HEADERS).as_posix()


def cases(runner: str) -> dict[str, list[str]]:
    """Rule -> the conformance cases that cite it."""
    found: dict[str, list[str]] = {}
    listed = subprocess.run([runner, "--list"], check=True, capture_output=True, text=True).stdout
    for line in sorted(listed.splitlines()):
        name, *cited = line.split()
        name = "Ops.*" if name.startswith("Ops.") else name  # the corpus
        for rule in cited:
            if name not in found.setdefault(rule, []):
                found[rule].append(name)
    return found


def told(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:MOST])
    return shown + (f" and {len(names) - MOST} more" if len(names) > MOST else "")


def rules_page(runner: str) -> str:
    cited = cases(runner)
    lines = [
        "# Rules",
        "",
        NOTE,
        "What a plugin or the host must keep, by number, as the headers say it, and the cases of `lazyt conformance` that can",
        "find it broken (`lazyt conformance acme --filter CASE` runs one). A rule without a case says why.",
    ]
    for header in headers():
        known = rules.rules([str(header)])
        if not known:
            continue
        lines += ["", f"## [{title(header)}](../../abi/include/{title(header)})", "", "| rule | | cases |", "|---|---|---|"]
        for rule, text in known.items():
            names = told(cited[rule]) if rule in cited else f"none: {rules.WITHOUT_CASE[rule]}"
            lines.append(f"| {rule} | {text.replace('|', '&#124;')} | {names} |")
    return "\n".join(lines) + "\n"


def prose(comment: str) -> str:
    """A C comment's text."""
    body = comment.strip().removeprefix("/*").removesuffix("*/")
    lines = [re.sub(r"^ ?\* ?", "", line.rstrip()) for line in body.strip("\n").splitlines()]
    return "\n".join(lines).strip()


def split(text: str) -> tuple[str, list[str]]:
    """The comment at the header's top, and the declarations with what stands before each."""
    top, rest = text.split("*/", 1)
    rest = re.sub(r'^#(ifndef|endif|include|ifdef|if|else).*$|^extern "C" \{$|^\}$', "", rest, flags=re.MULTILINE)
    return prose(top + "*/"), [block.strip("\n") for block in re.split(r"\n\s*\n", rest) if block.strip()]


def name_of(block: str) -> str:
    bare = re.sub(r"/\*.*?\*/", "", block, flags=re.DOTALL).strip()
    for pattern in (r"static inline [^(]*?(\w+)\(", r"\}\s*(\w+);", r"^typedef .*\(\*(\w+)\)", r"\b(lazyt_\w+)\s*\(", r"#define (\w+)", r"(\w+);"):
        if match := re.search(pattern, bare):
            return match[1]
    return ""


def reference_page() -> str:
    lines = [
        "# Reference",
        "",
        NOTE,
        "Header by header: the contract at its top, then each declaration with its own. `[any]`, `[device]` and `[init]` are the",
        "thread tags (C-9), the words in round brackets tell who owns a pointer (C-8). Rules: [rules.md](rules.md).",
        "",
        "| header | declares |",
        "|---|---|",
    ]
    parts = []
    for header in headers():
        contract, blocks = split(header.read_text(encoding="utf-8"))
        contract = contract.split("\nSPDX-License-Identifier")[0].strip()
        declared = [(name_of(block), block) for block in blocks]
        shown = [(name, block) for name, block in declared if name and not name.endswith("_H_") and name not in HOW]
        anchor = title(header).replace("/", "").replace(".", "")
        summary = contract.split("\n", 1)[0].split(" - ", 1)[-1]
        lines.append(f"| [{title(header)}](#{anchor}) | {summary} |")
        parts += ["", f"## {title(header)}", "", "```text", contract, "```"]
        for name, block in shown:
            parts += ["", f"### {name}", "", "```c", block, "```"]
    return "\n".join(lines + parts) + "\n"


def pages(runner: str) -> dict[Path, str]:
    return {PAGES / "rules.md": rules_page(runner), PAGES / "reference.md": reference_page()}


def main() -> int:
    made = pages(sys.argv[1])
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the headers say: run tools/build/abi_docs.py {sys.argv[1]}")
        return 1 if stale else 0
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
