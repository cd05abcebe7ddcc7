"""Prints where the oneDNN wheels of this Python lie: include\tPATH, lib\tPATH. Exit status 1 and the reason if they don't."""

import importlib.metadata
import sys


def main() -> int:
    found = {}
    for package, wanted, key in (("onednn-devel-cpu-gomp", "include/dnnl.h", "include"), ("onednn-cpu-gomp", "libdnnl.so.3", "lib")):
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            print(f"the Python package {package} is not installed", file=sys.stderr)
            return 1
        at = [f for f in files if str(f).endswith(wanted)]
        if not at:
            print(f"the Python package {package} has no {wanted}", file=sys.stderr)
            return 1
        found[key] = at[0].locate().resolve().parent
    for key, path in found.items():
        print(f"{key}\t{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
