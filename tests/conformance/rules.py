"""The numbered rules of the headers and the operators of the opset, and whether each has a case.

rules.py --cpp OUT HEADER...                 a table for the suite
rules.py --corpus OUT FILE...                the corpus as C++ strings
rules.py --check RUNNER HEADER...            fails on a rule that no case cites and that has no reason below,
                                             and on a citation of a rule that no header has
rules.py --operators OPS_TOML FILE...        the same of operators and the corpus
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

# Rules without a case, and why. A rule that gets a case must leave this list.
WITHOUT_CASE = {
    "C-4": "a form that the compiler checks; every case passes strings so",
    "C-6": "a form that the compiler checks",
    "C-9": "the tags; EXE-9 and EVT-6 have cases",
    "C-11": "units; watched by the suite's host in every case that allocates",
    "BUF-2": "undefined contents: nothing to observe",
    "BUF-3": "a duty of the host",
    "CAP-4": "a duty of the host, which cuts programs",
    "PRG-5": "a duty of the host, checked by its verifier",
    "PRG-10": "a duty of the host, checked by its verifier",
    "C-13": "a duty of the host, checked by the validate layer",
    "LIB-9": "watched by the validate layer in every case",
    "DEV-7": "a duty of the host, checked by the validate layer",
    "EXE-16": "a duty of the host, checked by the validate layer",
}
# Operators without a case, and why.
COMPLEX = "complex numbers do not occur in the corpus"
WITHOUT_OPERATOR_CASE = {
    "aten::empty.memory_format": "its values are nobody's matter",
    "aten::empty_like": "its values are nobody's matter",
    "aten::_scaled_dot_product_fused_attention_overrideable": "results that each plugin chooses",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": "operands that each plugin chooses",
    "aten::view_as_real": COMPLEX,
    "aten::view_as_complex": COMPLEX,
    "aten::complex": COMPLEX,
    "aten::real": COMPLEX,
    "aten::imag": COMPLEX,
    "aten::polar": COMPLEX,
    "aten::_conj_physical": COMPLEX,
    "aten::angle": COMPLEX,
}
RULE = re.compile(r"^ \*  ([A-Z]+-\d+)\s+(.*)$")
MORE = re.compile(r"^ \*\s{7,}(\S.*)$")


def rules(headers: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for header in headers:
        current = None
        for line in Path(header).read_text(encoding="utf-8").splitlines():
            if match := RULE.match(line):
                current, text = match.groups()
                if current in found:
                    sys.exit(f"{header}: {current} is numbered twice")
                found[current] = text.strip()
            elif current and (match := MORE.match(line)):
                found[current] += " " + match.group(1).strip()
            else:
                current = None
    return found


def check(runner: str, headers: list[str]) -> int:
    known = rules(headers)
    listed = subprocess.run([runner, "--list-rules"], check=True, capture_output=True, text=True).stdout
    cited = set(listed.split())
    problems = [f"{rule} is cited, but no header has it" for rule in sorted(cited - known.keys())]
    problems += [
        f"{rule} has no case: {known[rule]}" for rule in known if rule not in cited | WITHOUT_CASE.keys()
    ]
    problems += [
        f"{rule} has a case, but is listed as without" for rule in sorted(cited & WITHOUT_CASE.keys())
    ]
    problems += [
        f"{rule} is listed as without a case, but no header has it"
        for rule in WITHOUT_CASE
        if rule not in known
    ]
    print("\n".join(problems))
    with_case = len(known.keys() & cited)
    print(f"{len(known)} rules: {with_case} with cases, {len(WITHOUT_CASE)} without, for a reason")
    return 1 if problems else 0


def check_operators(table: str, corpus: list[str]) -> int:
    known = set()
    for op in tomllib.loads(Path(table).read_text(encoding="utf-8"))["op"]:
        known.add(op["name"] + ("." + op["overload"] if op.get("overload") else ""))
    texts = [Path(file).read_text(encoding="utf-8") for file in corpus]
    called = {name for text in texts for name in re.findall(r" = ([a-z_]+::[\w.]+)\(", text)}
    problems = [f"{name} has no case" for name in sorted(known - called - WITHOUT_OPERATOR_CASE.keys())]
    problems += [
        f"{name} has a case, but is listed as without"
        for name in sorted(called & WITHOUT_OPERATOR_CASE.keys())
    ]
    problems += [
        f"{name} is no operator of the opset"
        for name in sorted((called | WITHOUT_OPERATOR_CASE.keys()) - known)
    ]
    print("\n".join(problems))
    without = len(WITHOUT_OPERATOR_CASE)
    print(f"{len(known)} operators: {len(known & called)} with cases, {without} without, for a reason")
    return 1 if problems else 0


def quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main() -> int:
    mode, target, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    if mode == "--check":
        return check(target, files)
    if mode == "--operators":
        return check_operators(target, files)
    if mode == "--cpp":
        lines = [f"{{{quote(rule)}, {quote(text)}}}," for rule, text in rules(files).items()]
    else:
        lines = []
        for file in sorted(files):
            text = Path(file).read_text(encoding="utf-8")
            # Longer literals than 64 KiB are joined from parts.
            parts = [text[i : i + 8000] for i in range(0, len(text), 8000)]
            lines.append(f"{{{quote(Path(file).stem)}, " + "\n".join(f'R"lzt({p})lzt"' for p in parts) + "},")
    Path(target).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
