"""tests/gpu/run.sh as far as it runs without a GPU: what it would do, how it goes on, what it reports."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "gpu" / "run.sh"


def run(*arguments: str, script: Path = SCRIPT, **environment: str) -> subprocess.CompletedProcess:
    command = ["bash", str(script), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )


@pytest.fixture
def machine(tmp_path):
    """An environment whose `lazyt` does what the file `says` tells."""
    command = tmp_path / "venv" / "bin" / "lazyt"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\necho "lazyt $*"\necho "$1" >> {tmp_path}/called\n. {tmp_path}/says\n')
    command.chmod(0o755)

    def stage(name: str, says: str, **environment: str):
        (tmp_path / "says").write_text(says)
        paths = {"LAZYT_GPU_VENV": str(tmp_path / "venv"), "LAZYT_GPU_BUILD": str(tmp_path)}
        done = run("--out", str(tmp_path / "out"), name, **paths, **environment)
        return done, (tmp_path / "out" / "report.md").read_text()

    return stage


def test_a_dry_run_finds_every_file_and_option():
    done = run("--dry-run")
    assert done.returncode == 0, done.stdout
    for stage in run("--list").stdout.split():
        assert f"== {stage}\n" in done.stdout


def test_a_dry_run_tells_what_is_not_there():
    # Beside the real one, so that it finds the tree.
    broken = SCRIPT.with_name("broken_run.sh")
    try:
        broken.write_text(
            SCRIPT.read_text().replace("--every 7", "--evry 7").replace("safety.py", "safty.py")
        )
        done = run("--dry-run", script=broken)
    finally:
        broken.unlink()
    assert done.returncode == 1
    assert "tests/torch/opinfo.py has no option --evry" in done.stdout
    assert "examples/safty.py: is not there" in done.stdout


def test_a_stage_that_passes_is_not_run_again_and_one_that_fails_is_told(machine, tmp_path):
    done, report = machine("loading", "exit 0")
    assert done.returncode == 0, done.stdout
    assert "| loading | passed |" in report
    assert "lazyt info cuda" in report
    done, report = machine("conformance", "exit 3")
    assert done.returncode == 1
    assert "| conformance | failed (3) |" in report
    assert "| loading | passed |" in report
    assert "| steps | not run |" in report


def test_the_first_command_that_fails_ends_its_stage(machine, tmp_path):
    machine("loading", 'test "$1" = list')
    assert (tmp_path / "called").read_text().split() == ["list", "doctor"]


def test_a_stage_that_hangs_is_ended(machine):
    done, report = machine("operators", "sleep 60", STAGE_S="1")
    assert done.returncode == 1
    assert "did not end within 1 s" in report


def test_wrong_arguments_are_status_2():
    assert run("no_such_stage").returncode == 2
    assert run("--no-such-option").returncode == 2
