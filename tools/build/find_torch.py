"""Say where the torch package of this Python keeps libtorch, as key<TAB>value lines, without importing it.

Importing torch would cost seconds at each configure and would load whatever backend is installed.
"""

import importlib.util
import re
import sys
from pathlib import Path


def main() -> int:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        print(f"no torch package in {sys.prefix}", file=sys.stderr)
        return 1
    root = Path(spec.origin).parent
    include, lib = root / "include", root / "lib"
    if not (include / "ATen" / "core" / "Tensor.h").exists():
        print("the torch package has no C++ headers", file=sys.stderr)
        return 1
    if not list(lib.glob("libtorch_cpu.*")):
        print("the torch package has no libtorch_cpu", file=sys.stderr)
        return 1
    version = re.search(r"__version__ = ['\"]([^'\"]+)", (root / "version.py").read_text())
    print(f"version\t{version[1] if version else 'unknown'}")
    print(f"include\t{include}")
    print(f"include\t{include / 'torch' / 'csrc' / 'api' / 'include'}")
    print(f"lib\t{lib}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
