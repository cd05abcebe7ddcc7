"""What crossing the ABI costs: an empty execute against a virtual call, a program handed over, `lazyt list`.

Nanoseconds are medians of rounds in turn; instructions are callgrind's, the figure that a busy machine does not
change (the count of few calls is taken from that of many: start-up does not count). Needs valgrind for them,
and `ninja -C build bench/boundary_cpp tools/lazyt`. --check: exit status 1 if a target is missed.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VIRTUAL, SHARED, TABLE, HANDLES = (
    "virtual call, its event made",
    "virtual call, one event for all",
    "execute, through the table",
    "execute, through the host's handles",
)
HAND_OVER = ["10 nodes", "1000 nodes", "10000 nodes"]
FEW, MANY = 1000, 3000
CANDIDATES = 20


def output(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done


def instructions(command: list[str], environment: dict[str, str]) -> int:
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    found = re.search(r"Collected : (\d+)", output(valgrind + command, environment).stderr)
    return int(found[1]) if found else sys.exit("callgrind said nothing")


def list_of_twenty(build: Path, environment: dict[str, str]) -> dict[str, float]:
    """`lazyt list` over manifests, none of whose libraries is opened."""
    command = [str((build / "tools" / "lazyt").resolve()), "list"]
    with tempfile.TemporaryDirectory() as folder:
        for i in range(CANDIDATES):
            manifest = json.loads((build / "plugins" / "null" / "lazyt_null.json").read_text())
            manifest |= {"name": f"backend_{i}", "library": f"lazyt_backend_{i}.so"}
            Path(folder, f"lazyt_backend_{i}.json").write_text(json.dumps(manifest))
            shutil.copy(build / "plugins" / "null" / "lazyt_null.so", Path(folder, f"lazyt_backend_{i}.so"))
        environment = {**environment, "LAZYT_PLUGIN_PATH": folder}
        report = json.loads(output([*command, "--json"], environment).stdout)["candidates"]
        found = [c for c in report if c["name"].startswith("backend_") and c["reason"] == "found"]
        if len(found) != CANDIDATES:
            sys.exit(f"lazyt list found {len(found)} candidates, not {CANDIDATES}")
        seconds = []
        for _ in range(10):
            begin = time.perf_counter()
            output(command, environment)
            seconds.append(time.perf_counter() - begin)
        row = {"ns": statistics.median(seconds) * 1e9}
        if shutil.which("valgrind"):
            row["instructions"] = instructions(command, environment)
        return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=200000)
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    parser.add_argument("--json", metavar="FILE", help="write the numbers")
    args = parser.parse_args()
    binary = str(args.build / "bench" / "boundary_cpp")
    if not Path(binary).exists():
        sys.exit(f"{binary} is not built: ninja -C {args.build} bench/boundary_cpp")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LAZYT_")}
    environment["LAZYT_PLUGIN_PATH"] = str((args.build / "plugins" / "null").resolve())

    cases = [VIRTUAL, SHARED, TABLE, HANDLES, *HAND_OVER]
    times: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(args.rounds):
        for case in cases:
            said = output([binary, "--only", case, "--calls", str(args.calls)], environment).stdout
            times[case].append(float(said))
    rows = {case: {"ns": statistics.median(times[case])} for case in cases}
    if shutil.which("valgrind"):
        for case in cases:
            few, many = (
                instructions([binary, "--only", case, "--calls", str(n)], environment) for n in (FEW, MANY)
            )
            rows[case]["instructions"] = (many - few) / (MANY - FEW)
    rows[f"lazyt list, {CANDIDATES} candidates"] = list_of_twenty(args.build, environment)

    print(f"{'':<40}{'ns':>14}{'instructions':>16}")
    for case, row in rows.items():
        counted = f"{row['instructions']:>16,.0f}" if "instructions" in row else f"{'no valgrind':>16}"
        print(f"{case:<40}{row['ns']:>14,.1f}{counted}")
    figure = "instructions" if "instructions" in rows[VIRTUAL] else "ns"
    ratio, least = (rows[TABLE][figure] / rows[base][figure] for base in (VIRTUAL, SHARED))
    growth = rows[HAND_OVER[1]][figure] / rows[HAND_OVER[0]][figure]
    print(
        f"an empty execute is {ratio:.2f} of a virtual call and its event, {least:.2f} where that is shared, too"
    )
    print(
        f"handing over 1,000 nodes is {growth:.2f} of handing over 10 (1: nothing is copied), both by {figure}"
    )
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return int(args.check and (least >= 2 or growth > 1.05))


if __name__ == "__main__":
    sys.exit(main())
