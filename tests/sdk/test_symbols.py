"""Plugins that carry copies of one library: each keeps its own, beside a global one and libtorch's."""

import re
import shutil

import pytest
from test_new_plugin import pytestmark, shell  # noqa: F401

# `sgemm_` is a name that libtorch exports, too: with the wrong one a plugin would crash or tell nonsense.
LIBRARY = """
int calls;
int vendored_version(void) { return VERSION; }
#ifndef GLOBAL
void sgemm_(int *out) { *out = 100 * VERSION + ++calls; }
#endif
"""
ASK = """
#include <stdio.h>
int vendored_version(void);
void sgemm_(int *out);
static char library[64];
static lazyt_status_t *ask_library(void) {
  int own = 0;
  sgemm_(&own);
  snprintf(library, sizeof library, "library %d, %d", vendored_version(), own / 100);
  return NULL;
}
static const lazyt_interpreter_t """

# All three copies and libtorch's in one process; tensors of the first plugin keep it loaded.
SCRIPT = """
import ctypes, os, sys
ctypes.CDLL(sys.argv[1], mode=os.RTLD_GLOBAL | os.RTLD_NOW)
import torch, lazyt
a = torch.arange(6.0).reshape(2, 3)
kept = []
for _ in range(2):
    for path in sys.argv[2:]:
        lazyt.use_backend(path)
        kept.append(a.to("lazyt") @ a.T.to("lazyt"))
        kept[-1].cpu()
        print(lazyt.backend()["device"])
assert all(torch.equal(k.cpu(), a @ a.T) for k in kept)
"""


def build(folder, number: int, linked: str):
    folder.mkdir()
    shell(f"lazyt new-plugin acme{number} --lang c --folder .", folder)
    source = folder / f"acme{number}.c"
    text = source.read_text().replace("static const lazyt_interpreter_t ", ASK, 1)
    text, changed = re.subn(r"\.device = .*", ".device = library, .init = ask_library,", text)
    assert changed == 1
    source.write_text(text)
    (folder / "library").mkdir()
    (folder / "library" / "vendored.c").write_text(LIBRARY)
    own = f"-DVERSION={number} library/vendored.c"
    if linked == "shared":  # a SONAME of its own, or the loader gives the second plugin the first one's copy
        shared = f"-shared -fPIC -Wl,-soname,libvendored-{number}.so"
        shell(f"cc {shared} {own} -o library/libvendored-{number}.so", folder)
        own = f"-Llibrary -lvendored-{number} '-Wl,-rpath,$ORIGIN/../library'"
    flags = "-std=c11 -O2 -fPIC -shared -fvisibility=hidden"
    shell("mkdir build && cp *.json build/", folder)
    shell(f'cc {flags} -I"$(lazyt sdk include)" *.c {own} -lm -o build/lazyt_acme{number}.so', folder)
    return folder / "build" / f"lazyt_acme{number}.so"


@pytest.fixture(scope="module")
def global_copy(tmp_path_factory):
    if not shutil.which("cc"):
        pytest.skip("cc is not installed")
    folder = tmp_path_factory.mktemp("global")
    (folder / "vendored.c").write_text(LIBRARY)
    shell("cc -shared -fPIC -DVERSION=9 -DGLOBAL vendored.c -o libvendored.so", folder)
    return folder / "libvendored.so"


def test_libtorch_has_the_name_that_clashes(tmp_path):
    look = "import torch, pathlib; print(pathlib.Path(torch.__file__).parent / 'lib' / 'libtorch_cpu.so')"
    names = shell(f'nm -D --defined-only $(python -c "{look}")', tmp_path)
    if not re.search(r" [TW] sgemm_$", names, re.MULTILINE):
        pytest.skip("this libtorch exports no BLAS")


def test_plugins_with_clashing_copies_of_a_library_coexist(global_copy, tmp_path):
    plugins = [build(tmp_path / str(n), n, "static") for n in (1, 2)]
    for plugin in plugins:
        exported = shell(f"nm -D --defined-only {plugin}", tmp_path).split()
        assert exported[-1] == "lazyt_plugin_entry_v1" and len(exported) == 3
    (tmp_path / "both.py").write_text(SCRIPT)
    said = shell(f"python both.py {global_copy} {plugins[0]} {plugins[1]}", tmp_path)
    assert said.splitlines() == ["library 1, 1", "library 2, 2"] * 2


def test_so_do_copies_that_are_shared_libraries_of_their_own_names(global_copy, tmp_path):
    plugins = [build(tmp_path / str(n), n, "shared") for n in (1, 2)]
    (tmp_path / "both.py").write_text(SCRIPT.replace("ctypes.CDLL(sys", "0 and ctypes.CDLL(sys"))
    said = shell(f"python both.py {global_copy} {plugins[0]} {plugins[1]}", tmp_path)
    assert said.splitlines() == ["library 1, 1", "library 2, 2"] * 2
