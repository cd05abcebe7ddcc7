"""A Python package may bring plugins: the entry points of the group `lazyt.plugins`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

lazyt = pytest.importorskip("lazyt")
NULL = Path(lazyt.__file__).parent / "plugins" / "lazyt_null.so"

SHOW = "import json, lazyt; print(lazyt._C.backends())"


def install(site: Path, value: str) -> None:
    info = site / "acme_lazyt-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-lazyt\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lazyt.plugins]\nacme = {value}\n")
    (site / "acme_lazyt" / "plugins").mkdir(parents=True)
    (site / "acme_lazyt" / "__init__.py").write_text("raise SystemExit('its code is not run')\n")


def run(site: Path) -> tuple[list[dict], str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LAZYT_")}
    path = os.pathsep.join(filter(None, [str(site), clean.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", SHOW],
        env=clean | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["candidates"], done.stderr


@pytest.mark.skipif(not NULL.exists(), reason="the null plugin is not installed")
def test_a_package_brings_a_plugin_and_none_of_its_code_is_run(tmp_path):
    install(tmp_path, "acme_lazyt:plugins")
    shutil.copy(NULL, tmp_path / "acme_lazyt" / "plugins" / "lazyt_acme.so")
    candidates, _ = run(tmp_path)
    (mine,) = [c for c in candidates if c["found_by"] == "entry point acme"]
    assert (mine["name"], mine["reason"]) == ("acme", "found")
    assert candidates[-1] == mine


def test_an_entry_point_that_leads_nowhere_is_told(tmp_path):
    for value in ("acme_lazyt:gone", "no_such_package"):
        site = tmp_path / value.replace(":", "_")
        site.mkdir()
        install(site, value)
        candidates, said = run(site)
        assert [c for c in candidates if "entry point" in c["found_by"]] == []
        assert f"entry point acme = '{value}' of lazyt.plugins" in said
