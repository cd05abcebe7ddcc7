"""glibc 2.28 is the oldest that lazyt supports. Which versions a library asks for is also up to the machine that built it:
on a newer one the linker binds to the newest version of each symbol. So what is held here on any machine is that no source
needs a function that 2.28 lacks; a build on 2.28 (manylinux_2_28) then asks for nothing newer, and is held to that. And,
where the wheel ziglang is installed, which links for any glibc: the core, the command and the null plugin are built for 2.28."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OLDEST = (2, 28)
PACKAGE = next((p for p in map(Path, sys.path) if (p / "lazyt" / "lib").is_dir()), Path()) / "lazyt"
pytestmark = [
    pytest.mark.skipif(not PACKAGE.parts[:-1], reason="lazyt is not installed"),
    pytest.mark.skipif(not shutil.which("objdump"), reason="objdump is not installed"),
]

# Newer than 2.28 by name, and not asked for by a source of ours.
BY_THE_BUILD_MACHINE = {
    "__libc_single_threaded": "libstdc++'s headers use it where the C library has it",
    "pthread_cond_clockwait": "the same; else they wait by pthread_cond_timedwait",
    "stat": "2.28 has it in libc_nonshared.a",
    "stat64": "2.28 has it in libc_nonshared.a",
    "lstat": "2.28 has it in libc_nonshared.a",
    "lstat64": "2.28 has it in libc_nonshared.a",
    "fstat": "2.28 has it in libc_nonshared.a",
    "fstat64": "2.28 has it in libc_nonshared.a",
}


def objects() -> list[Path]:
    folders = [PACKAGE / "lib", PACKAGE / "plugins", PACKAGE / "bin"]
    return sorted(p for folder in folders if folder.is_dir() for p in folder.iterdir() if p.suffix in ("", ".so") and p.is_file())


def symbols(path: Path, defined: bool) -> set[tuple[str, tuple[int, ...]]]:
    """(name, version of glibc) of what an object asks for, or offers."""
    listed = subprocess.run(["objdump", "-T", path], check=True, capture_output=True, text=True).stdout
    found = set()
    for line in listed.splitlines():
        if ("*UND*" in line) != defined and (match := re.search(r"\(?GLIBC_([0-9.]+)\)?\s+(\S+)$", line)):
            found.add((match[2], tuple(map(int, match[1].split(".")))))
    return found


def in_old_glibc() -> set[str]:
    """What this machine's glibc still offers in a version that 2.28 had."""
    libraries = {line.split()[2] for line in subprocess.run(["ldd", sys.executable], capture_output=True, text=True).stdout.splitlines() if "=> /" in line}
    folder = next(Path(p).parent for p in libraries if Path(p).name == "libc.so.6")
    names = set()
    for name in ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"):
        if (folder / name).exists():
            names |= {symbol for symbol, version in symbols(folder / name, defined=True) if version <= OLDEST}
    return names


def test_no_source_needs_a_function_that_is_younger():
    old = in_old_glibc() | BY_THE_BUILD_MACHINE.keys()
    assert len(objects()) >= 4 and {"dlopen", "pow", "pthread_once"} <= old
    young = {p.name: sorted(n for n, v in symbols(p, defined=False) if v > OLDEST and n not in old) for p in objects()}
    assert {name: wanted for name, wanted in young.items() if wanted} == {}


def test_a_plugin_in_c_runs_there_wherever_it_was_built():
    assert max(v for _, v in symbols(PACKAGE / "plugins" / "lazyt_null.so", defined=False)) <= OLDEST


@pytest.mark.skipif(tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))) > OLDEST,
                    reason="this machine's glibc is younger than 2.28: its builds ask for its versions")  # fmt: skip
def test_a_build_on_the_oldest_asks_for_nothing_younger():
    assert {p.name for p in objects() if max((v for _, v in symbols(p, defined=False)), default=OLDEST) > OLDEST} == set()


ZIG = """
[binaries]
c = [{python!r}, '-m', 'ziglang', 'cc', '-target', 'x86_64-linux-gnu.2.28']
cpp = [{python!r}, '-m', 'ziglang', 'c++', '-target', 'x86_64-linux-gnu.2.28']
ar = [{python!r}, '-m', 'ziglang', 'ar']
pkg-config = 'pkg-config'
[built-in options]
c_args = ['-idirafter', '/usr/include']
cpp_args = ['-idirafter', '/usr/include']
[properties]
needs_exe_wrapper = false
[host_machine]
system = 'linux'
cpu_family = 'x86_64'
cpu = 'x86_64'
endian = 'little'
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="the wheel ziglang is not installed")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="written for x86-64")
def test_a_host_for_2_28_with_another_cpp_library_loads_what_was_built_with_this_one(tmp_path):
    """clang and libc++, against gcc and libstdc++: no type of either crosses the boundary."""
    root = Path(__file__).resolve().parents[2]
    cross, build = tmp_path / "zig.ini", tmp_path / "build"
    cross.write_text(ZIG.format(python=sys.executable))
    off = [f"-D{name}=disabled" for name in ("torch", "ts", "onednn", "cuda", "tests", "bench")]
    meson = [sys.executable, "-m", "mesonbuild.mesonmain", "setup", build, root, "--cross-file", cross, "-Dbuildtype=plain"]
    subprocess.run([*meson, *off], check=True, capture_output=True, timeout=300)
    built = [build / name for name in ("core/liblazyt.so", "plugins/null/lazyt_null.so", "tools/lazyt")]
    done = subprocess.run(["ninja", "-C", build, *(p.relative_to(build) for p in built)], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-4000:]
    for path in built:
        assert max(v for _, v in symbols(path, defined=False)) <= OLDEST
        assert b"libstdc++" not in subprocess.run(["objdump", "-p", path], check=True, capture_output=True).stdout
    plugins = [p for p in objects() if p.parent.name == "plugins" and p.name != "lazyt_cuda.so"]
    assert len(plugins) >= 2
    for plugin in plugins:
        said = subprocess.run([build / "tools/lazyt", "doctor", plugin], capture_output=True, text=True, timeout=120).stdout
        assert f"{plugin.stem.removeprefix('lazyt_')}: loaded" in said, said
