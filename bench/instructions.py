"""Instructions per recorded operator, by callgrind: the figure that a busy machine does not change.

Needs valgrind and `ninja -C build bench/record_cpp`. The count of few rounds is taken from that of many, so
that start-up and the first recording do not count; what the executor thread does is in it.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

CALLS, FEW, MANY = 500, 4, 14


def instructions(binary: Path, case: str, device: str, rounds: int, plugins: str) -> int:
    process = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(binary)]
        + ["--only", case, "--device", device, "--calls", str(CALLS), "--rounds", str(rounds)],
        env={**os.environ, "LAZYT_BACKEND": "null", "LAZYT_PLUGIN_PATH": plugins},
        capture_output=True,
        text=True,
    )
    found = re.search(r"Collected : (\d+)", process.stderr)
    if process.returncode or not found:
        sys.exit(f"callgrind failed on {case} ({device}):\n{process.stdout}{process.stderr}")
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument(
        "cases", nargs="*", default=["add", "add, requires_grad", "add_", "mul by a scalar", "slice", "t"]
    )
    args = parser.parse_args()
    binary, plugins = args.build / "bench" / "record_cpp", str((args.build / "plugins" / "null").resolve())
    if not binary.exists():
        sys.exit(f"{binary} is not built: ninja -C {args.build} bench/record_cpp")
    print(f"{'instructions per operator':<28}{'eager':>10}{'lazyt':>10}{'ratio':>8}")
    for case in args.cases:
        eager, lazy = (
            (
                instructions(binary, case, device, MANY, plugins)
                - instructions(binary, case, device, FEW, plugins)
            )
            / (CALLS * (MANY - FEW))
            for device in ("cpu", "lazyt")
        )
        print(f"{case:<28}{eager:>10.0f}{lazy:>10.0f}{lazy / eager:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
