"""Prints where cuda.h and nvrtc.h lie: include\tPATH. Wheels of this Python first, then the system's toolkit.

Headers are all that a build needs: the libraries are opened when the plugin runs. Exit status 1 and why
if one of the headers is nowhere.
"""

import importlib.metadata
import os
import sys
from pathlib import Path

WHEELS = {
    "cuda.h": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    "nvrtc.h": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
}


def of_wheel(header: str) -> Path | None:
    for package in WHEELS[header]:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == header and (path := Path(file.locate())).exists():
                return path.resolve().parent
    return None


def of_toolkit(header: str) -> Path | None:
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda", "/usr"):
        if home and (Path(home) / "include" / header).exists():
            return Path(home).resolve() / "include"
    return None


def main() -> int:
    found = {}
    for header in WHEELS:
        found[header] = of_wheel(header) or of_toolkit(header)
        if not found[header]:
            wheel = WHEELS[header][0]
            print(f"{header} not found (wheel {wheel}, or a CUDA toolkit in CUDA_HOME)", file=sys.stderr)
            return 1
    for path in dict.fromkeys(found.values()):
        print(f"include\t{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
