"""Run fuzz targets within the limits on time and memory that every input must keep.

    fuzz.py [--build build-fuzz] [TARGET...]    the kept inputs, then new ones for --seconds or --runs
    fuzz.py --minimise TARGET...                keep the fewest inputs that reach what all found ones reach

Inputs that reach new code are kept in the build folder; --minimise moves what is worth it to corpus/TARGET.
An input that broke something is given with the command that repeats it: it goes into corpus/TARGET as
regression_WHAT.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Of one input: seconds, megabytes at a time, megabytes in one allocation.
LIMITS = ["-timeout=10", "-rss_limit_mb=2048", "-malloc_limit_mb=256"]
PROGRAMS = ("program_file", "program_block", "passes", "text")
MAX_SIZE = {**dict.fromkeys(PROGRAMS, 4096), "environment": 512, "search": 256}
# Counts of loops over folders say nothing new, and libFuzzer's book-keeping of them costs most of its time.
OPTIONS = {"search": ["-use_counters=0", "-entropic=0"]}


def targets() -> list[str]:
    return sorted(path.name for path in (HERE / "corpus").iterdir() if path.is_dir())


def seeds(build: Path, target: str) -> Path:
    """Programs of the other tests; they are not kept twice."""
    folder = build / "tests/fuzz/seeds" / ("text" if target == "text" else "programs")
    if not folder.exists():
        sources = [
            *(ROOT / "tests/conformance/corpus").glob("*.lzt"),
            *(ROOT / "tests/passes/cases").glob("*.txt"),
        ]
        made = folder.with_name(f"{folder.name}.{os.getpid()}")
        made.mkdir(parents=True)
        if target == "text":
            for source in sources:
                text = source.read_text(encoding="utf-8")
                for i, program in enumerate(text.split("program(")[1:]):
                    (made / f"{source.stem}_{i}").write_text("program(" + program.split("\n}")[0] + "\n}\n")
        else:
            subprocess.run([build / "tests/fuzz/fuzz_seed_programs", made, *sources], check=True)
        try:
            made.rename(folder)
        except OSError:  # another run was faster
            shutil.rmtree(made)
    return folder


def command(build: Path, target: str, *options: str) -> list[str]:
    dictionary = HERE / f"{target}.dict"
    return [
        str(build / f"tests/fuzz/fuzz_{target}"),
        *LIMITS,
        f"-max_len={MAX_SIZE.get(target, 1024)}",
        *OPTIONS.get(target, []),
        *([f"-dict={dictionary}"] if dictionary.exists() else []),
        *options,
    ]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAZYT_")}
    return {
        **kept,
        "LAZYT_LOG": "error",
        "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }


def run(build: Path, target: str, seconds: int, runs: int, seed: int) -> bool:
    found = build / "tests/fuzz/found" / target
    broken = build / "tests/fuzz/broken" / target
    for folder in (found, broken):
        folder.mkdir(parents=True, exist_ok=True)
    amount = [f"-runs={runs}"] if runs else [f"-max_total_time={seconds}"]
    line = command(
        build, target, *amount, f"-seed={seed}", f"-artifact_prefix={broken}/", "-print_final_stats=1"
    )
    folders = [found, HERE / "corpus" / target]
    if target in PROGRAMS:
        folders.append(seeds(build, target))
    line += [str(folder) for folder in folders]
    print("$ " + " ".join(line), flush=True)
    ended = subprocess.run(line, env=environment(), stderr=subprocess.PIPE, text=True, errors="replace")
    log = ended.stderr.splitlines()
    cover = next((text.split("cov: ")[1].split()[0] for text in reversed(log) if " cov: " in text), "?")
    stats = {text.split()[0][6:-1]: text.split()[-1] for text in log if text.startswith("stat::")}
    print(
        f"{target}: {stats.get('number_of_executed_units', '?')} inputs, "
        f"{stats.get('average_exec_per_sec', '?')} a second, {cover} edges, seed {seed}: "
        + ("ok" if ended.returncode == 0 else f"FAILED ({ended.returncode})")
    )
    if ended.returncode != 0:
        print(ended.stderr[-20000:])
        for path in sorted(broken.iterdir(), key=lambda path: path.stat().st_mtime)[-1:]:
            print(f"repeat it: {build}/tests/fuzz/fuzz_{target} {path}")
    return ended.returncode == 0


def minimise(build: Path, target: str) -> bool:
    corpus = HERE / "corpus" / target
    merged = build / "tests/fuzz/merged" / target
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    kept = sorted(corpus.glob("regression_*"))
    folders = [merged, corpus, build / "tests/fuzz/found" / target]
    known = set()
    if target in PROGRAMS:
        folders.append(seeds(build, target))
        known = {path.read_bytes() for path in folders[-1].iterdir()}
    # Of inputs that reach the same code, one.
    line = command(build, target, "-set_cover_merge=1", "-use_counters=0")
    if subprocess.run([*line, *map(str, folders)], env=environment()).returncode:
        return False
    for path in corpus.iterdir():
        if path not in kept:
            path.unlink()
    for path in merged.iterdir():
        if path.read_bytes() not in known:
            shutil.copyfile(path, corpus / path.name)
    print(f"{target}: {sum(1 for _ in corpus.iterdir())} inputs kept")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"of {', '.join(targets())}; default: all"
    )
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build-fuzz", help="build folder with -Dfuzz=true"
    )
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int, default=0, help="inputs, whatever time they take")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument("--minimise", action="store_true")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    ok = True
    for target in arguments.targets or targets():
        if arguments.minimise:
            ok &= minimise(build, target)
        else:
            ok &= run(build, target, arguments.seconds, arguments.runs, arguments.seed)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
