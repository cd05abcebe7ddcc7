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

    def stage(*arguments: str, says: str, out: str = "out", **environment: str):
        (tmp_path / "says").write_text(says)
        paths = {"LAZYT_GPU_VENV": str(tmp_path / "venv"), "LAZYT_GPU_BUILD": str(tmp_path)}
        done = run("--out", str(tmp_path / out), *arguments, **paths, **environment)
        return done, (tmp_path / out / "report.md").read_text()

    return stage


def test_a_dry_run_finds_every_file_and_option():
    done = run("--dry-run")
    assert done.returncode == 0, done.stdout
    for line in run("--list").stdout.splitlines():
        assert f"== {line.split()[0]}\n" in done.stdout


def test_a_dry_run_tells_what_is_not_there():
    # Beside the real one, so that it finds the tree.
    broken = SCRIPT.with_name("broken_run.sh")
    try:
        broken.write_text(
            SCRIPT.read_text().replace("--samples 2", "--smples 2").replace("safety.py", "safty.py")
        )
        done = run("--dry-run", script=broken)
    finally:
        broken.unlink()
    assert done.returncode == 1
    assert "tests/torch/opinfo.py has no option --smples" in done.stdout
    assert "examples/safty.py: is not there" in done.stdout


def test_a_stage_that_passes_is_not_run_again_and_one_that_fails_is_told(machine, tmp_path):
    done, report = machine("loading", says="exit 0")
    assert done.returncode == 0, done.stdout
    assert "| loading | passed |" in report
    assert "lazyt info cuda" in report
    done, report = machine("conformance", says="exit 3")
    assert done.returncode == 1
    assert "| conformance | failed (3) |" in report
    assert "| loading | passed |" in report
    assert "| steps | not run |" in report


def test_the_first_command_that_fails_ends_its_stage(machine, tmp_path):
    machine("loading", says='test "$1" = list')
    assert (tmp_path / "called").read_text().split() == ["list", "doctor"]


def test_a_stage_that_hangs_is_ended(machine):
    done, report = machine("operators", says="sleep 60", STAGE_S="1")
    assert done.returncode == 1
    assert "did not end within 1 s" in report


def test_stages_take_half_an_hour_down_to_what_a_session_can_do_without():
    limits = dict(line.split() for line in run("--list").stdout.splitlines())
    assert list(limits)[:3] == ["machine", "build", "loading"]
    assert all(0 < int(s) <= 590 for s in limits.values())
    first = [int(s) for s in limits.values()][: list(limits).index("tutorial_ts")]
    assert sum(first) <= 1800


def test_a_budget_leaves_stages_for_the_next_call_which_needs_no_files_of_the_last(machine):
    both = ("loading", "operators")
    done, report = machine("--budget", "120", *both, says="exit 0", out="first")
    assert done.returncode == 3
    assert "| loading | passed |" in report and "| operators | not run |" in report
    assert "the budget does not suffice for: operators" in done.stdout
    done, report = machine("--budget", "400", "operators", says="exit 0", out="second")
    assert done.returncode == 0
    assert "| loading | passed |" in report and "| operators | passed |" in report


def test_without_names_what_was_never_run_comes_before_what_did_not_pass(machine, tmp_path):
    kept = tmp_path / "report"
    kept.mkdir()
    stages = [line.split()[0] for line in run("--list").stdout.splitlines()]
    for name in stages:
        if name != "operators":
            (kept / f"{name}.status").write_text("failed (1)\t1\n" if name == "conformance" else "passed\t1\n")
    done, report = machine(says="exit 0")
    assert done.returncode == 0, done.stdout
    begun = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert begun == ["== operators", "== conformance"]
    assert "| operators | passed |" in report and "| conformance | passed |" in report


def test_wrong_arguments_are_status_2():
    assert run("--budget", "ten").returncode == 2
    assert run("--out").returncode == 2
    assert run("no_such_stage").returncode == 2
    assert run("--no-such-option").returncode == 2
