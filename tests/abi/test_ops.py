"""abi/ops.toml: what is generated from it is fresh, and it says what PyTorch says."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools" / "build"


def run(tool: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(TOOLS / tool), *arguments], capture_output=True, text=True, timeout=300, cwd=ROOT
    )


def test_generated_files_are_fresh():
    result = run("generate_ops.py", "--check")
    assert result.returncode == 0, result.stderr


def test_no_number_is_used_twice():
    table = (ROOT / "abi" / "ops.toml").read_text(encoding="utf-8")
    numbers = re.findall(r"^number = (\d+)$", table, re.MULTILINE)
    assert len(numbers) == len(set(numbers)) > 200


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_schemas_and_promotion_are_pytorchs():
    result = run("check_ops_against_torch.py")
    assert result.returncode == 0, result.stdout + result.stderr
