"""Mutants of the oneDNN plugin's kernels, drawn by a seed: what share of them do the tests kill?

A mutant is one change of one line of a kernel's source: a sign, a bound, a stride, a tail left out, a type,
an operator. Its source alone is compiled, with the options of the build folder, and linked with the objects
there. It is killed if the conformance suite fails on it, or, with --backends, tests/backends. Survivors are
printed: each is the same program by another name, or a case that is missing. A minute or so for each mutant.

    ninja -C build plugins/onednn/lazyt_onednn.so tests/conformance/lazyt-conformance
    python tests/conformance/mutants/machine_made.py --count 50 --seed 1
"""

import argparse
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "plugins" / "onednn" / "kernels"
LIBRARY = "plugins/onednn/lazyt_onednn.so"
# What is looked for, and what it becomes. Operators have spaces around them, brackets of templates have none.
CHANGES = {
    "sign": [(r" \+ ", " - "), (r" - ", " + "), (r" \+= ", " -= "), (r" -= ", " += ")],
    "bound": [
        (r" < ", " <= "),
        (r" <= ", " < "),
        (r" > ", " >= "),
        (r" >= ", " > "),
        (r" \+ 1\b", ""),
        (r" - 1\b", ""),
    ],
    "stride": [
        (r"\bstep\[0\]", "step[1]"),
        (r"\bstep\[1\]", "step[0]"),
        (r"strides\[0\]", "strides[1]"),
        (r"\boffsets\[1\]", "offsets[0]"),
        (r"(?<=\* )\w+_(?:step|stride)\b", "1"),
    ],
    "tail": [
        (r"\bif \(\w+ (?:<|==) (?:n|width|count|end)\)", "if (false)"),
        (r"\bif \(!rest\)", "if (true)"),
    ],
    "dtype": [
        (r"\bdouble\b", "float"),
        (r"\bCompute<T>", "T"),
        (r"\buint32_t\b", "uint16_t"),
        (r"\bfloat\b", "double"),
    ],
    "operator": [
        (r" && ", " || "),
        (r" \|\| ", " && "),
        (r"std::min\b", "std::max"),
        (r"std::max\b", "std::min"),
        (r" \* ", " + "),
    ],
}


@dataclass
class Mutant:
    source: Path
    line: int
    kind: str
    text: str  # the whole source

    def describe(self) -> str:
        before = self.source.read_text(encoding="utf-8").splitlines()[self.line].strip()
        after = self.text.splitlines()[self.line].strip()
        return f"{self.kind}: {self.source.relative_to(ROOT)}:{self.line + 1}\n  - {before}\n  + {after}"


def is_code(line: str) -> bool:
    return not re.match(r"\s*(//|#|using |template|namespace|constexpr auto k)", line) and '"' not in line


def draw(generator: random.Random, sources: list[Path]) -> Mutant:
    """A kind first, so that common operators do not crowd out the rest; then a place."""
    while True:
        kind = generator.choice(list(CHANGES))
        pattern, replacement = generator.choice(CHANGES[kind])
        places = []
        for source in sources:
            for number, line in enumerate(source.read_text(encoding="utf-8").splitlines()):
                code = line.split("//")[0]
                if is_code(line):
                    places += [(source, number, m.span()) for m in re.finditer(pattern, code)]
        if not places:
            continue
        source, number, (begin, end) = generator.choice(places)
        lines = source.read_text(encoding="utf-8").splitlines()
        lines[number] = lines[number][:begin] + replacement + lines[number][end:]
        return Mutant(source, number, kind, "\n".join(lines) + "\n")


class Builder:
    def __init__(self, build: Path, isa: str):
        self.build, self.isa = build, isa
        ninja = ["ninja", "-C", str(build), "-t", "commands", LIBRARY]
        listed = subprocess.run(ninja, capture_output=True, text=True, check=True).stdout.splitlines()
        self.link = shlex.split(next(c for c in reversed(listed) if f"-o {LIBRARY}" in c))
        archives = {}
        for command in listed:
            if match := re.search(r"\b(?:gcc-)?ar\b \S+ (plugins/onednn/\S+\.a) (.*)$", command):
                archives[match[1]] = match[2].split()
        # Objects instead of archives, so that one of them can be another.
        self.link = [part for word in self.link for part in archives.get(word, [word])]
        self.compiles = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))

    def compiled(self, source: Path) -> tuple[list[str], str] | None:
        """The command that compiles it, of those for this CPU's instruction set; its object."""
        for entry in self.compiles:
            words = shlex.split(entry["command"])
            name = entry.get("output", words[words.index("-o") + 1])
            isas = re.search(r"onednn_(portable|avx2|avx512)(?:_tile)?\.a", name)
            if (self.build / entry["file"]).resolve() == source and (not isas or isas[1] == self.isa):
                return words, name
        return None

    def make(self, mutant: Mutant, folder: Path) -> Path | None:
        """The plugin with the mutant, or nothing if it does not compile."""
        found = self.compiled(mutant.source)
        if not found:
            return None
        words, name = found
        text, own = folder / mutant.source.name, folder / "mutant.o"
        text.write_text(mutant.text, encoding="utf-8")
        words = [w for w in words if not w.endswith("ccache")]
        words[words.index("-o") + 1] = str(own)
        words[words.index("-c") + 1] = str(text)
        words = [
            w
            for i, w in enumerate(words)
            if w != "-MD" and w not in ("-MQ", "-MF") and words[i - 1] not in ("-MQ", "-MF")
        ]
        words[1:1] = ["-iquote", str(mutant.source.parent), "-w"]
        if subprocess.run(words, cwd=self.build, capture_output=True, check=False).returncode:
            return None
        library = folder / "lazyt_onednn.so"
        link = [str(own) if w == name else w for w in self.link]
        link[link.index("-o") + 1] = str(library)
        subprocess.run(link, cwd=self.build, capture_output=True, check=True)
        shutil.copy(self.build / "plugins/onednn/lazyt_onednn.json", folder)
        return library


def fails(command: list[str], **environment: str) -> bool:
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            check=False,
            timeout=900,
            env={**os.environ, **environment},
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def killer(library: Path, build: Path, backends: bool, jobs: int) -> str:
    """Which suite fails on it; empty if none does."""
    suite = [
        str(build / "tests/conformance/lazyt-conformance"),
        str(library),
        "--jobs",
        str(jobs),
        "--timeout",
        "60",
    ]
    if fails([*suite, "--artifacts", str(library.parent)]):
        return "conformance"
    tests = [sys.executable, "-m", "pytest", "-q", "-x", "-n", str(jobs), "tests/backends"]
    if backends and fails(tests, LAZYT_BACKEND="onednn", LAZYT_PLUGIN_PATH=str(library.parent)):
        return "tests/backends"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="sources whose name contains this")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--isa", default="avx512", help="what this CPU runs: avx512, avx2, portable")
    parser.add_argument(
        "--backends", action="store_true", help="tests/backends too, on what conformance lets live"
    )
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    builder, generator = Builder(build, arguments.isa), random.Random(arguments.seed)
    sources = sorted(s for s in KERNELS.glob("*.cpp") if arguments.only in s.name)
    killed, made, drawn = 0, 0, 0
    with tempfile.TemporaryDirectory() as place:
        same = builder.make(
            Mutant(sources[0], 0, "none", sources[0].read_text(encoding="utf-8")), Path(place)
        )
        if same is None or killer(same, build, arguments.backends, arguments.jobs):
            print("the tests fail on the plugin as it is, or it does not build")
            return 1
    while made < arguments.count and drawn < 20 * arguments.count:
        drawn += 1
        mutant = draw(generator, sources)
        with tempfile.TemporaryDirectory() as place:
            library = builder.make(mutant, Path(place))
            if library is None:  # the compiler kills it
                continue
            made += 1
            by = killer(library, build, arguments.backends, arguments.jobs)
            killed += bool(by)
            print(f"{made}. {'killed by ' + by if by else 'SURVIVES'}, {mutant.describe()}", flush=True)
    share = 100 * killed / max(made, 1)
    print(f"{killed} of {made} mutants killed ({share:.0f} %), seed {arguments.seed}", end="; ")
    print(f"{drawn - made} more did not compile")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
