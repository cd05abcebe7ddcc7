"""sdk_docs/first_plugin.md and packaging.md, followed command by command in an empty folder."""

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
BIN = Path(sys.executable).parent
DOCS = Path(__file__).resolve().parents[2] / "sdk_docs"
pytestmark = pytest.mark.skipif(not (BIN / "lazyt").exists(), reason="the lazyt command is not installed")


def commands(text: str) -> list[str]:
    return [textwrap.dedent(c) for c in re.findall(r"^( *```sh\n.*?)```", text, re.DOTALL | re.MULTILINE)]


def follow(blocks: list[str], folder: Path, **environment: str) -> str:
    script = "\n".join(block.removeprefix("```sh\n") for block in blocks)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LAZYT_")}
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-ec", script], cwd=folder, capture_output=True, text=True, timeout=280,
        env=clean | {"PATH": path, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "language", ["C", pytest.param("C++", marks=pytest.mark.slow), pytest.param("Rust", marks=pytest.mark.slow)]
)
def test_the_first_plugin_takes_six_steps_and_no_ten_minutes(language, tmp_path):
    section = re.search(rf"^## {re.escape(language)}\n(.*?)(?=^## )", (DOCS / "first_plugin.md").read_text(), re.S | re.M)[1]
    steps = re.findall(r"^\d\. ", section, re.MULTILINE)
    blocks = commands(section)
    assert len(steps) == len(blocks) == 6
    begin = time.monotonic()
    said = follow(blocks, tmp_path)
    assert "acme: loaded" in said and " 0 fail, 0 crash, 0 timeout" in said and "points are told right" in said
    assert time.monotonic() - begin < 300  # the other half is the reader's
    own = re.search(r"(\d+) lines", section)
    sources = [*(tmp_path / "acme").glob("acme.c*"), *(tmp_path / "acme").glob("src/lib.rs")]
    assert len(sources) == 1 and len(sources[0].read_text().splitlines()) == int(own[1])


def test_a_wheel_brings_the_plugin(tmp_path):
    build, use = commands((DOCS / "packaging.md").read_text())
    make = ["lazyt new-plugin acme --lang c", "cd acme"]
    compile_it = commands((DOCS / "first_plugin.md").read_text())[2]
    site = tmp_path / "site"
    said = follow(
        [*make, compile_it, build, use], tmp_path,
        PIP_NO_BUILD_ISOLATION="0", PIP_NO_INDEX="1", PIP_TARGET=str(site), PYTHONPATH=str(site),
    )  # fmt: skip
    assert "['entry point acme']" in said and "points are told right" in said
    (wheel,) = (tmp_path / "acme" / "dist").glob("*.whl")
    assert re.fullmatch(r"acme_lazyt-0\.1\.0-py3-none-(linux|manylinux)\w+\.whl", wheel.name)
    files = sorted(p.name for p in (site / "acme_lazyt").rglob("*") if p.is_file() and p.suffix != ".pyc")
    assert files == ["__init__.py", "lazyt_acme.json", "lazyt_acme.so"]  # no host among them
