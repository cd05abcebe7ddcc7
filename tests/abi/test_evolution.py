"""The evolution drill: a change of each kind that a minor may make, plugins and hosts of before and after it each
with each; and the tool that keeps abi/layout.txt refuses what a minor must not do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent / "evolution"
sys.path += [str(ROOT / "tools" / "build"), str(HERE)]
import abi_layout  # noqa: E402
from changes import CHANGES, FORBIDDEN, MINOR  # noqa: E402

BIN = Path(sys.executable).parent
needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="cc is not installed")
RAN = "ran: 0 2 0 4"

# What a host prints with a plugin: [kind][(host is new, plugin is new)].
EXPECTED = {
    "slot": {
        (False, False): ["said: trim", RAN],
        (False, True): ["said: trim", RAN],
        (True, False): ["no prefetch", "said: trim", RAN],
        (True, True): ["said: prefetch", "said: trim", RAN],
    },
    "field": {
        (False, False): ["said: trim", RAN],
        (False, True): ["said: trim", "said: no priority", RAN],
        (True, False): ["said: trim", RAN],
        (True, True): ["said: trim", "said: priority 7", RAN],
    },
    "enum": {
        (False, False): ["said: trim", RAN],
        (False, True): ["said: trim", "refused for reason 10: aten::relu: on battery"],
        (True, False): ["said: trim", RAN],
        (True, True): ["said: trim", "refused for want of power"],
    },
    "extension": {
        (False, False): ["said: trim", RAN],
        (False, True): ["said: trim", RAN],
        (True, False): ["said: trim", "no drill", RAN],
        (True, True): ["said: trim", "drill: 42", RAN],
    },
    "deprecation": {
        (False, False): ["said: trim", RAN],
        (False, True): ["said: trim", RAN],
        (True, False): ["said: trim", RAN],
        (True, True): ["said: trim_to", RAN],
    },
}


def run(*command: object, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LAZYT_")} | environment
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=clean, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def edited(folder: Path, *edits: tuple[str, str, str]) -> Path:
    """The headers with edits, in `folder`."""
    shutil.copytree(ROOT / "abi" / "include", folder)
    for file, old, new in edits:
        text = (folder / file).read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} times: {old}"
        (folder / file).write_text(text.replace(old, new))
    return folder


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The block of a program: relu of four numbers."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("program")
    code = "import torch, lazyt; torch.relu(torch.arange(4.0).to('lazyt')).cpu()"
    run(sys.executable, "-c", code, LAZYT_BACKEND="null", LAZYT_DUMP=str(folder))
    return folder / "program_0.lzp"


def compiled(kind: str, include: Path, after: bool, folder: Path) -> tuple[Path, Path]:
    """Host and plugin by these headers."""
    host, plugin = folder / f"host_{after:d}", folder / f"lazyt_reference_{after:d}.so"
    flags = [
        "-std=gnu11",
        "-g",
        "-Wall",
        "-Werror",
        "-Wno-unused-function",
        f"-I{include}",
        f"-DCHANGE_{kind}",
    ]
    flags += ["-DAFTER=1"] if after else []
    run("cc", *flags, HERE / "host.c", "-ldl", "-o", host)
    only = folder / "exports.map"
    only.write_text("{ global: lazyt_plugin_entry_v1; local: *; };\n")
    shared = ["-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,--version-script={only}", "-pthread"]
    run("cc", *flags, *shared, HERE / "plugin.c", "-o", plugin)
    return host, plugin


@needs_cc
@pytest.mark.parametrize("kind", CHANGES)
def test_plugins_and_hosts_of_before_and_after_work_with_each_other(kind, tmp_path, program):
    before = edited(tmp_path / "before")
    after = edited(tmp_path / "after", MINOR, *CHANGES[kind])
    assert abi_layout.forbidden(abi_layout.layout(["cc"], before), abi_layout.layout(["cc"], after)) == []

    old, new = compiled(kind, before, False, tmp_path), compiled(kind, after, True, tmp_path)
    for (host_new, plugin_new), lines in EXPECTED[kind].items():
        said = run((old, new)[host_new][0], (old, new)[plugin_new][1], program).splitlines()
        assert said == lines, f"{'new' if host_new else 'old'} host, {'new' if plugin_new else 'old'} plugin"

    # The host of this tree is of the minor before, too.
    if (BIN / "lazyt").exists():
        assert "reference: loaded" in run(BIN / "lazyt", "doctor", new[1])
    if shutil.which(
        "abidiff"
    ):  # libabigail agrees: what the entry's types lead to has not changed incompatibly
        done = subprocess.run(["abidiff", "--no-added-syms", old[1], new[1]], capture_output=True, text=True)
        assert done.returncode & ~4 == 0, done.stdout  # 4: some type grew; 8 would be: incompatible


@needs_cc
@pytest.mark.slow
@pytest.mark.parametrize("kind", CHANGES)
def test_the_suite_of_the_minor_before_finds_no_fault_in_a_plugin_of_the_one_after(kind, tmp_path):
    if not (BIN / "lazyt").exists():
        pytest.skip("the lazyt command is not installed")
    after = edited(tmp_path / "after", MINOR, *CHANGES[kind])
    plugin = compiled(kind, after, True, tmp_path)[1]
    said = run(BIN / "lazyt", "conformance", plugin, "--profile", "quick")
    assert " 0 fail, 0 crash, 0 timeout" in said


@needs_cc
def test_a_plugin_that_needs_a_later_host_is_refused_with_the_reason(tmp_path):
    after = edited(tmp_path / "after", MINOR)
    source = tmp_path / "plugin.c"
    source.write_text(f'#include "{ROOT}/tests/conformance/mutants/plugin.c"\n')
    text = (ROOT / "tests" / "conformance" / "mutants" / "plugin.c").read_text()
    needs = text.replace(
        ".abi_minor = LAZYT_ABI_MINOR,", ".abi_minor = LAZYT_ABI_MINOR, .min_host_minor = 1,"
    )
    assert needs != text
    source.write_text(needs)
    plugin = tmp_path / "lazyt_reference.so"
    run("cc", "-std=gnu11", "-shared", "-fPIC", "-pthread", f"-I{after}", source, "-o", plugin)
    if not (BIN / "lazyt").exists():
        pytest.skip("the lazyt command is not installed")
    done = subprocess.run([BIN / "lazyt", "doctor", plugin], capture_output=True, text=True)
    assert "host-too-old" in done.stdout and "needs a host of ABI 1.1" in done.stdout, done.stdout


@needs_cc
@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_tool_refuses_what_a_minor_must_not_do(what, tmp_path):
    file, old, new, sentence = FORBIDDEN[what]
    changed = edited(tmp_path / "changed", (file, old, new))
    refused = abi_layout.forbidden(abi_layout.LAYOUT.read_text(), abi_layout.layout(["cc"], changed))
    assert any(sentence in line for line in refused), refused


def test_a_field_in_padding_that_older_writers_leave_is_refused():
    then = "lazyt_x_t: 16 bytes\n     0    8 struct_size\n     8    4 a\n"
    now = then + "    12    4 b\n"
    assert abi_layout.forbidden(then, now) == [
        "lazyt_x_t: 'b' lies at 12, within the 16 bytes that older writers fill"
    ]
