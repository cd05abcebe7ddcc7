"""LIB-1, LIB-2: each plugin exports its entry and nothing else, and binds at once without the host.

Arguments: plugin libraries, and folders that are searched for lazyt_*.so.
"""

import os
import subprocess
import sys
from pathlib import Path

ENTRY = "lazyt_plugin_entry_v1"


def names(library: Path, *options: str) -> list[str]:
    """Dynamic symbols of the library, without their version."""
    out = subprocess.run(["nm", "-D", "--format=posix", *options, str(library)], check=True, capture_output=True, text=True)
    return [line.split()[0].split("@")[0] for line in out.stdout.splitlines()]


def problems(library: Path) -> list[str]:
    found = []
    exported = names(library, "--defined-only")
    if exported != [ENTRY]:
        found.append(f"exports {', '.join(exported) or 'nothing'}; it must export {ENTRY} alone (LIB-1)")
    hosts = [n for n in names(library, "--undefined-only") if "lazyt" in n]
    if hosts:
        found.append(f"needs {', '.join(hosts)} of the host (LIB-2)")
    # A process that is not a lazyt host: whatever is missing here only the host could supply.
    probe = f"import ctypes, os; ctypes.CDLL({str(library)!r}, mode=os.RTLD_NOW | os.RTLD_LOCAL)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=dict(os.environ))
    if done.returncode != 0:
        found.append("does not bind at once: " + (done.stderr.strip().splitlines() or ["killed"])[-1] + " (LIB-2)")
    return found


def main() -> int:
    libraries = []
    for argument in map(Path, sys.argv[1:]):
        libraries += sorted(argument.glob("lazyt_*.so")) if argument.is_dir() else [argument]
    failures = 0
    for library in libraries:
        for problem in problems(library):
            failures += 1
            print(f"{library}: {problem}")
    print(f"{len(libraries)} plugins, {failures} problems")
    return 1 if failures or not libraries else 0


if __name__ == "__main__":
    sys.exit(main())
