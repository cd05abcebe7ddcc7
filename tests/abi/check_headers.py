"""Each ABI header compiles alone, in every language version that is promised, without a warning."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[2] / "abi" / "include"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cc", nargs="+", default=["cc"], help="C compiler")
    parser.add_argument("--cxx", nargs="+", default=["c++"], help="C++ compiler")
    args = parser.parse_args()
    versions = [(args.cc, "c", v) for v in ("c11", "c17")]
    versions += [(args.cxx, "c++", v) for v in ("c++11", "c++17", "c++20")]
    headers = sorted(INCLUDE.rglob("*.h"))
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for header in headers:
            # Included twice: the guard is part of the promise.
            name = header.relative_to(INCLUDE)
            source = Path(folder) / "alone"
            source.write_text(f'#include "{name}"\n#include "{name}"\nint main(void) {{ return 0; }}\n')
            for compiler, language, version in versions:
                command = [*compiler, "-x", language, f"-std={version}", *WARNINGS, f"-I{INCLUDE}", str(source)]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode != 0:
                    failures += 1
                    print(f"{name} as {version}:\n{done.stderr}")
    print(f"{len(headers)} headers, {len(versions)} language versions, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
