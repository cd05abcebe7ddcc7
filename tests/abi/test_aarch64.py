"""The other architecture, by a cross compiler and an emulator where they are installed (gcc-aarch64-linux-gnu, qemu-user):
the layout of the ABI, a plugin with a host in little, and what the loader here says of such a library."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
sys.path.append(str(ROOT / "tools" / "build"))
import abi_layout  # noqa: E402

CC = "aarch64-linux-gnu-gcc"
RUNNER = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
INCLUDE = f"-I{ROOT / 'abi' / 'include'}"
C_INCLUDE = f"-I{ROOT / 'abi' / 'c'}"
pytestmark = pytest.mark.skipif(not shutil.which(CC), reason=f"{CC} is not installed")
emulated = pytest.mark.skipif(not shutil.which(RUNNER[0]), reason=f"{RUNNER[0]} is not installed")


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shared(sources: list[Path], library: Path) -> Path:
    flags = [
        "-std=gnu11",
        "-O2",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-pthread",
        INCLUDE,
        C_INCLUDE,
    ]
    run(CC, *flags, *sources, "-lm", "-o", library)
    names = run("aarch64-linux-gnu-nm", "-D", "--defined-only", library).split()
    assert names[2::3] == ["lazyt_plugin_entry_v1"]
    return library


@emulated
def test_the_layout_is_that_of_every_64_bit_target():
    assert abi_layout.layout([CC], runner=RUNNER) == abi_layout.LAYOUT.read_text()


@emulated
def test_a_plugin_computes_on_aarch64(tmp_path):
    torch = pytest.importorskip("torch")
    program = tmp_path / "program_0.lzp"
    code = "import torch, lazyt; torch.relu(torch.arange(4.0).to('lazyt')).cpu()"
    environment = {"LAZYT_BACKEND": "null", "LAZYT_DUMP": str(tmp_path)}
    assert torch
    subprocess.run(
        ["env", *[f"{k}={v}" for k, v in environment.items()], sys.executable, "-c", code], check=True
    )
    plugin = shared(
        [ROOT / "tests" / "conformance" / "mutants" / "plugin.c"], tmp_path / "lazyt_reference.so"
    )
    host = tmp_path / "host"
    run(CC, "-std=gnu11", INCLUDE, ROOT / "tests" / "abi" / "evolution" / "host.c", "-ldl", "-o", host)
    assert run(*RUNNER, host, plugin, program).splitlines()[-1] == "ran: 0 2 0 4"


@pytest.mark.parametrize("sources", ["plugins/null", "abi/templates/c"])
def test_the_null_plugin_and_the_c_template_are_built_for_aarch64(sources, tmp_path):
    library = shared(sorted((ROOT / sources).glob("*.c")), tmp_path / "lazyt_other.so")
    if not (BIN / "lazyt").exists():
        pytest.skip("the lazyt command is not installed")
    done = subprocess.run([BIN / "lazyt", "doctor", library], capture_output=True, text=True)
    assert "wrong-architecture" in done.stdout and "the library is for aarch64, 64-bit" in done.stdout


CROSS = """
[binaries]
c = 'aarch64-linux-gnu-gcc'
cpp = 'aarch64-linux-gnu-g++'
ar = 'aarch64-linux-gnu-ar'
pkg-config = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '/usr/aarch64-linux-gnu']
[built-in options]
c_args = ['-idirafter', '/usr/include']
cpp_args = ['-idirafter', '/usr/include']
[properties]
needs_exe_wrapper = true
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
"""


@emulated
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-g++"), reason="aarch64-linux-gnu-g++ is not installed")
def test_core_and_command_are_built_for_aarch64_and_load_plugins_there(tmp_path):
    """liblazyt.so without the frontend, the command and null by Meson; their libraries are headers alone."""
    cross, build = tmp_path / "aarch64.ini", tmp_path / "build"
    cross.write_text(CROSS)
    off = [f"-D{name}=disabled" for name in ("torch", "ts", "onednn", "cuda", "tests", "bench")]
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    run(*meson, "setup", build, ROOT, "--cross-file", cross, "-Dbuildtype=plain", *off)
    done = subprocess.run(
        ["ninja", "-C", build, "core/liblazyt.so", "plugins/null/lazyt_null.so", "tools/lazyt"],
        capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    template = shared(sorted((ROOT / "abi" / "templates" / "c").glob("*.c")), tmp_path / "lazyt_acme.so")
    command = [*RUNNER, build / "tools" / "lazyt"]
    assert "null: loaded" in run(*command, "doctor", build / "plugins" / "null" / "lazyt_null.so")
    assert "acme" in run(*command, "info", template)
