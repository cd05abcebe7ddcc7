"""What `lazyt new-plugin` writes, as a vendor meets it: an empty folder, the installed SDK, the commands of its README."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
LAZYT = shutil.which("lazyt", path=str(Path(sys.executable).parent)) or shutil.which("lazyt")
pytestmark = pytest.mark.skipif(LAZYT is None, reason="the lazyt command is not installed")

PLAIN = {
    "c": 'mkdir -p build && cp lazyt_acme.json build/ && cc -std=c11 -Wall -Wextra -Werror -O2 -fPIC -shared '
    '-fvisibility=hidden -I"$(lazyt sdk include)" *.c -lm -o build/lazyt_acme.so',
}
BUILDS = {
    "plain": None,
    "meson": "PKG_CONFIG_PATH=$(lazyt sdk pkgconfig) meson setup build && ninja -C build",
    "cmake": 'cmake -S . -B build -Dlazyt_DIR="$(lazyt sdk cmake)" && cmake --build build',
}
NEEDS = {"plain": "cc", "meson": "meson", "cmake": "cmake"}


def shell(command: str, folder: Path, **environment: str) -> str:
    path = os.pathsep.join([str(Path(LAZYT).parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LAZYT_")}
    done = subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, timeout=280,
        env=clean | {"PATH": path, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(language: str, how: str, folder: Path) -> Path:
    command = BUILDS[how] or PLAIN[language]
    if not shutil.which(NEEDS[how]):
        pytest.skip(f"{NEEDS[how]} is not installed")
    shell(f"lazyt new-plugin acme --lang {language} --folder .", folder)
    shell(command, folder)
    return folder / "build" / "lazyt_acme.so"


@pytest.mark.parametrize("how", BUILDS)
@pytest.mark.parametrize("language", PLAIN)
def test_a_new_plugin_builds_from_the_installed_sdk_and_keeps_the_rules(language, how, tmp_path):
    library = build(language, how, tmp_path)
    assert "acme: loaded" in shell(f"lazyt doctor {library.with_suffix('.json')}", tmp_path)
    symbols = shell(f"nm -D --defined-only {library}", tmp_path).split()
    assert [s for s in symbols if "lazyt" in s] == ["lazyt_plugin_entry_v1"]
    assert " 0 fail, 0 crash, 0 timeout" in shell(f"lazyt conformance {library}", tmp_path)


@pytest.mark.parametrize("language", PLAIN)
def test_a_new_plugin_trains_a_perceptron_without_the_host(language, tmp_path):
    library = build(language, "plain", tmp_path)
    environment = {"LAZYT_BACKEND": str(library), "LAZYT_FALLBACK": "deny", "LAZYT_LAYERS": "validate:abort"}
    assert "acme: " in shell(f"{sys.executable} train.py", tmp_path, **environment)


def test_a_new_plugin_refuses_the_rest_with_reasons(tmp_path):
    library = build("c", "plain", tmp_path)
    script = (
        "import torch, lazyt\n"
        "try: torch.ones(2, device='lazyt').double().cos().cpu()\n"
        "except NotImplementedError as e: print(e)\n"
    )
    said = shell(f"{sys.executable} -c \"{script}\"", tmp_path, LAZYT_BACKEND=str(library), LAZYT_FALLBACK="deny")
    assert "acme does not have this operator" in said


def test_names_that_cannot_be_are_refused(tmp_path):
    for arguments, why in (("Acme", "LIB-8"), ("acme --folder /proc", "not an empty folder")):
        done = subprocess.run(f"{LAZYT} new-plugin {arguments}", shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, why in done.stderr) == (1, True), done
    assert not list(tmp_path.iterdir())
