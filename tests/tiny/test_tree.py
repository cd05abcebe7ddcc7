"""The shape of the tree: includes point one way, every source is built."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A folder may include itself and those before it: the way of a tensor from its end. Only `loader` and `exec`
# are exchanged, because `loader` owns the handles over the C tables and `exec` calls through them.
ORDER = ["base", "ir", "layers", "loader", "exec", "cache", "partition", "passes", "trace", "frontend"]
SOURCES = {".c", ".cpp", ".h", ".hpp"}


def sources(folder: str) -> list[Path]:
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in SOURCES and p.is_file())


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("folder", ORDER)
def test_core_includes_point_one_way(folder):
    later = set(ORDER[ORDER.index(folder) + 1 :])
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(f"core/{folder}")
        for name in includes(path)
        if name.split("/")[0] in later
    ]
    assert wrong == []


def test_libtorch_is_included_only_by_the_frontend():
    libtorch = ("ATen/", "torch/", "c10/")
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources("core") + sources("abi")
        if path.relative_to(ROOT / "core" if "core" in path.parts else ROOT).parts[0] != "frontend"
        for name in includes(path)
        if name.startswith(libtorch)
    ]
    assert wrong == []


def test_abi_and_plugins_include_nothing_of_core():
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources("abi") + sources("plugins")
        for name in includes(path)
        if name.split("/")[0] in ORDER
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", ["core", "plugins", "python", "tools", "tests"])
def test_every_source_is_named_in_a_build_file(folder):
    def built(path: Path) -> bool:
        for parent in [p for p in path.parents if p.is_relative_to(ROOT) and (p / "meson.build").exists()]:
            build = (parent / "meson.build").read_text(encoding="utf-8")
            name = path.relative_to(parent)
            # A list of stems, for one target each, is the other way to name files.
            spellings = [name.as_posix(), name.stem, name.stem.removeprefix("lazyt_")]
            if any(f"'{spelling}'" in build for spelling in spellings):
                return True
        return False

    lost = [str(p.relative_to(ROOT)) for p in sources(folder) if p.suffix in {".c", ".cpp"} and not built(p)]
    assert lost == []
