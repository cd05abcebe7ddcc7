"""What `lazyt new-plugin` writes, as a vendor meets it: an empty folder, the installed SDK, its README."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.skipif(not (BIN / "lazyt").exists(), reason="the lazyt command is not installed")

# The README's commands in their order: one of the builds, then the check, then the training.
STEPS = {"c": ["plain", "meson", "cmake"], "cpp": ["plain", "meson", "cmake"], "rust": ["cargo"]}
NEEDS = {"plain": "cc", "meson": "meson", "cmake": "cmake", "cargo": "cargo"}


def shell(command: str, folder: Path, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LAZYT_")}
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, capture_output=True, text=True, timeout=280,
        env=clean | {"PATH": path, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands(folder: Path) -> list[str]:
    readme = (folder / "README.md").read_text()
    return re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)


def ways() -> list:
    found = []
    for language in STEPS:
        for how in STEPS[language]:
            slow = language == "cpp" and how != "plain"
            found.append(pytest.param(language, how, marks=pytest.mark.slow if slow else ()))
    return found


@pytest.mark.parametrize("language, how", ways())
def test_the_commands_of_its_readme_build_check_and_train(language, how, tmp_path):
    if not shutil.which(NEEDS[how], path=f"{BIN}:{os.environ['PATH']}"):
        pytest.skip(f"{NEEDS[how]} is not installed")
    shell(f"lazyt new-plugin acme --lang {language} --folder .", tmp_path)
    *builds, check, train = commands(tmp_path)
    assert len(builds) == len(STEPS[language])

    shell(builds[STEPS[language].index(how)], tmp_path)
    library = tmp_path / "build" / "lazyt_acme.so"
    assert "acme: loaded" in shell(f"lazyt doctor {library.with_suffix('.json')}", tmp_path)
    symbols = shell(f"nm -D --defined-only {library}", tmp_path).splitlines()
    assert [line.split()[-1] for line in symbols] == ["lazyt_plugin_entry_v1"]
    assert " 0 fail, 0 crash, 0 timeout" in shell(check, tmp_path)
    assert "LAZYT_FALLBACK=deny" in train
    if how == STEPS[language][0]:
        assert "acme: " in shell(train, tmp_path, LAZYT_LAYERS="validate:abort")


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_sources_compile_without_warnings(language, tmp_path):
    shell(f"lazyt new-plugin acme --lang {language} --folder .", tmp_path)
    compiler = {"c": "cc -std=c11", "cpp": "c++ -std=c++20 -Wno-missing-field-initializers"}[language]
    warnings = "-Wall -Wextra -Werror -fvisibility=hidden -fsyntax-only"
    shell(f'{compiler} {warnings} -I"$(lazyt sdk include)" *.{language}', tmp_path)


def test_a_backend_in_rust_has_no_unsafe_code(tmp_path):
    shell("lazyt new-plugin acme --lang rust --folder .", tmp_path)
    sources = {path.name: path.read_text() for path in (tmp_path / "src").glob("*.rs")}
    assert "#![deny(unsafe_code)]" in sources["lib.rs"]
    assert [name for name, text in sources.items() if re.search(r"\bunsafe\b|allow\(unsafe", text)] == []


def test_it_refuses_the_rest_with_reasons(tmp_path):
    shell("lazyt new-plugin acme --folder .", tmp_path)
    shell(commands(tmp_path)[0], tmp_path)
    script = (
        "import torch, lazyt\n"
        "try: torch.ones(2, device='lazyt').cos().cpu()\n"
        "except NotImplementedError as e: print(e)\n"
    )
    library = str(tmp_path / "build" / "lazyt_acme.so")
    said = shell(f'python -c "{script}"', tmp_path, LAZYT_BACKEND=library, LAZYT_FALLBACK="deny")
    assert "aten::cos: acme does not have this operator" in said


def test_names_and_folders_that_cannot_be_are_refused(tmp_path):
    for arguments, why in (("Acme", "LIB-8"), ("acme --folder /proc", "not an empty folder")):
        command = [BIN / "lazyt", "new-plugin", *arguments.split()]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, why in done.stderr) == (1, True), done
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not shutil.which("cc"), reason="cc is not installed")
def test_programs_that_it_compiles_are_written_beside_the_whole_ones_and_can_be_run(tmp_path):
    shell("lazyt new-plugin acme --lang c --folder .", tmp_path)
    shell(commands(tmp_path)[0], tmp_path)
    (tmp_path / "step.py").write_text(
        "import torch, lazyt\n"
        "x = torch.arange(12.0, device='lazyt').reshape(3, 4)\n"
        "print(((x * 2).erfinv() + (x - 1).relu()).cpu())\n"  # erfinv is nobody's but the host's
    )
    shell("LAZYT_DUMP=programs LAZYT_BACKEND=$PWD/build/lazyt_acme.so python step.py", tmp_path)
    assert (tmp_path / "programs" / "program_0.lzp").exists()
    pieces = sorted((tmp_path / "programs").glob("program_0.segment_*.lzp"))
    assert pieces
    for piece in pieces:
        assert "on acme: compiled" in shell(f"lazyt run {piece} --backend $PWD/build/lazyt_acme.so", tmp_path)
    (tmp_path / "whole.py").write_text("import torch, lazyt\nprint(torch.ones(2, device='lazyt') + 1)\n")
    shell("LAZYT_DUMP=whole LAZYT_BACKEND=$PWD/build/lazyt_acme.so python whole.py", tmp_path)
    assert [p.name for p in (tmp_path / "whole").iterdir()] == ["program_0.lzp"]


def test_every_part_of_the_sdk_lies_where_the_command_says(tmp_path):
    lines = shell("lazyt sdk", tmp_path).splitlines()
    parts = [line.split() for line in lines if not line.startswith(" ")]
    assert {name for name, _ in parts} >= {"include", "ops", "rust", "schema", "templates"}
    for name, path in parts:
        assert Path(path).exists(), name
        assert shell(f"lazyt sdk {name}", tmp_path).strip() == path
