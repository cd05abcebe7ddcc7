"""Compiles kernels with the real NVRTC, which needs no GPU: to machine code and PTX, for every architecture.

check_nvrtc.py FOLDER              the kernels that LAZYT_CUDA_DUMP=FOLDER wrote
check_nvrtc.py -- COMMAND...       those that COMMAND has compiled (it runs with LAZYT_CUDA_DUMP set)

Exit status: 0 all compile, 1 some do not (told with NVRTC's log) or the command failed, 77 the wheel
nvidia-cuda-nvrtc is missing.
"""

import ctypes
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

# The plugin's options (plugins/cuda/codegen/nvrtc.cpp) and the architectures that must compile.
OPTIONS = ["--std=c++17", "--fmad=false", "--device-as-default-execution-space"]
ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]


def find_nvrtc() -> ctypes.CDLL | None:
    """NVRTC of the wheel, opened."""
    for package in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        paths = [Path(f.locate()).resolve() for f in files if ".so" in f.name and ".alt." not in f.name]
        # Its own part first: it is opened by a bare name.
        for path in sorted(paths, key=lambda p: "builtins" not in p.name):
            library = ctypes.CDLL(str(path))
        if paths:
            return library
    return None


class Compiler:
    def __init__(self, library: ctypes.CDLL):
        self.library = library

    def text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        out = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(program, out)
        return out.raw

    def complain(self, source: str, name: str, architecture: str) -> str | None:
        """What NVRTC says, or nothing if there is machine code and PTX."""
        program = ctypes.c_void_p()
        if self.library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), name.encode(), 0, None, None
        ):
            return "no program"
        try:
            options = [f"--gpu-architecture={architecture}", *OPTIONS]
            array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
            if status := self.library.nvrtcCompileProgram(program, len(options), array):
                return f"status {status}: {self.text(program, 'ProgramLog').decode()[:2000]}"
            if not self.text(program, "CUBIN").startswith(b"\x7fELF"):
                return "no machine code"
            return None if b".entry" in self.text(program, "PTX") else "no kernel in the PTX"
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))


# A unit begins with the prelude, which takes as long as several kernels.
KERNELS_OF_A_UNIT = 16


def check(folder: Path, library: ctypes.CDLL) -> int:
    """The number of kernels that do not compile."""
    kernels = sorted(folder.glob("*.cu"))
    # Of a dumped source, everything before the first #line is the same in all.
    texts = {k.name: k.read_text(encoding="utf-8").partition("\n#line ") for k in kernels}
    names = list(texts)
    groups = [names[i : i + KERNELS_OF_A_UNIT] for i in range(0, len(names), KERNELS_OF_A_UNIT)]
    work = [(group, a) for group in groups for a in ARCHITECTURES]
    wrong: dict[tuple[str, str], str] = {}
    compiler = Compiler(library)

    def unit(group: list[str]) -> str:
        return texts[group[0]][0] + "".join("\n#line " + texts[name][2] for name in group)

    def some(first: int, step: int) -> None:
        for group, architecture in work[first::step]:
            if not compiler.complain(unit(group), group[0], architecture):
                continue
            alone = {name: compiler.complain(unit([name]), name, architecture) for name in group}
            said = {name: text for name, text in alone.items() if text}
            wrong.update({(name, architecture): text for name, text in said.items()})
            if not said:
                wrong[group[0], architecture] = "does not compile beside " + ", ".join(group[1:])

    count = len(os.sched_getaffinity(0))
    threads = [threading.Thread(target=some, args=(i, count)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for (name, architecture), said in sorted(wrong.items()):
        print(f"{name} for {architecture}: {said}")
    print(f"{len(kernels)} kernels for {', '.join(ARCHITECTURES)}: {len(wrong)} failures")
    return len(wrong) + (not kernels)


def main() -> int:
    library = find_nvrtc()
    if library is None:
        print("skipped: NVRTC's wheel is not installed (pip install nvidia-cuda-nvrtc)")
        return 77
    if sys.argv[1] != "--":
        return 1 if check(Path(sys.argv[1]), library) else 0
    with tempfile.TemporaryDirectory() as folder:
        status = subprocess.run(
            sys.argv[2:], env={**os.environ, "LAZYT_CUDA_DUMP": folder}, check=False
        ).returncode
        if status:
            print(f"the command ended with {status}")
            return 1
        return 1 if check(Path(folder), library) else 0


if __name__ == "__main__":
    sys.exit(main())
