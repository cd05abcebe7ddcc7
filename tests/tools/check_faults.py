"""What keeps a backend from being used, and what users may forbid: each has a reason code of its own and a hint.

Arguments: the command, the folder of a plugin that works (null), that of plugins with one fault each, that of the
conformance suite's plugins. What `lazyt doctor` prints of each fault is sdk_docs/loading_faults.md; with
LAZYT_WRITE_PAGES=1 the page is written.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMMAND, GOOD, BAD, SOUND = (Path(a).resolve() for a in sys.argv[1:5])
PAGE = Path(__file__).resolve().parents[2] / "sdk_docs" / "loading_faults.md"
MANIFEST = json.loads((GOOD / "lazyt_null.json").read_text())


PAGE_HEAD = """# Sixteen ways not to be loaded

<!-- Written by tests/tools/check_faults.py: what the command printed there. -->

What `lazyt doctor` says of each, so that you can find your case by its words; `--json` has the same under `reason`, `step`,
`detail` and `hint`. [loading.md](loading.md) says where plugins are looked for, and lists all codes. The folder
`/home/me/plugins` stands in `LAZYT_PLUGIN_PATH`; the first line behind the name is where the library was found, the second what
went wrong.
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.plugins = self.folder / "plugins"
        self.plugins.mkdir()

    def run_lazyt(self, *arguments: object, **environment: object) -> subprocess.CompletedProcess:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LAZYT_")}
        clean |= {"LAZYT_PLUGIN_PATH": str(self.plugins), "XDG_DATA_HOME": "/nonexistent"}
        clean |= {"XDG_CACHE_HOME": str(self.folder / "cache")} | {k: str(v) for k, v in environment.items()}
        command = [str(COMMAND), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=clean, timeout=60)

    def candidates(self, verb: str, *arguments: object, **environment: object) -> list[dict]:
        done = self.run_lazyt(verb, *arguments, "--json", **environment)
        found = json.loads(done.stdout)["candidates"]
        return [c for c in found if c["path"].startswith(str(self.folder)) or not c["path"]]

    def reason(self, verb: str, *arguments: object, **environment: object) -> str:
        (candidate,) = self.candidates(verb, *arguments, **environment)
        return candidate["reason"]

    def take(self, library: Path, name: str) -> Path:
        return Path(shutil.copy(library, self.plugins / f"lazyt_{name}.so"))

    def manifest(self, name: str, **changes: object) -> Path:
        path = self.plugins / f"lazyt_{name}.json"
        path.write_text(json.dumps(MANIFEST | {"name": name, "library": f"lazyt_{name}.so"} | changes))
        return path


class Faults(Case):
    """Sixteen planted faults: sixteen codes, the right hint in text and JSON, and a host that lives."""

    seen: dict[str, str] = {}  # by reason code, what a person reads

    def told(self, text: str) -> str:
        """Without what differs between machines."""
        for path, shown in ((self.plugins, "/home/me/plugins"), (GOOD, "/usr/lib/lazyt/plugins"), (BAD, "/build")):
            text = text.replace(str(path), shown)
        text = re.sub(r"this process is for \S+", "this process is for x86-64", text)
        text = re.sub(r"the library is for \w+", "the library is for aarch64", text)
        return text.rstrip()

    @classmethod
    def tearDownClass(cls):
        parts = [PAGE_HEAD]
        for reason, said in sorted(cls.seen.items()):
            parts.append(f"## {reason}\n\n```\n{said}\n```\n")
        page = "\n".join(parts)
        if os.environ.get("LAZYT_WRITE_PAGES"):
            PAGE.write_text(page)
        elif len(cls.seen) == 16 and PAGE.read_text() != page:
            raise AssertionError("sdk_docs/loading_faults.md is not what `lazyt doctor` prints: LAZYT_WRITE_PAGES=1")

    def check(self, name: str, reason: str, detail: str, hint: str, **environment: str):
        found = self.candidates("doctor", name, "--timeout", 2, **environment)
        candidate = next(c for c in found if c["reason"] == reason) if len(found) > 1 else found[0]
        self.assertEqual(candidate["reason"], reason, candidate)
        self.assertIn(detail, candidate["detail"])
        self.assertIn(hint, candidate["hint"])
        text = self.run_lazyt("doctor", name, "--timeout", 2, **environment).stdout
        self.assertIn(f"{name}: {reason} at step", text)
        self.assertIn(f"to do: {candidate['hint']}", text)
        given = "".join(f"{k}={v} " for k, v in environment.items())
        self.seen[reason] = self.told(f"$ {given}lazyt doctor {name}\n{text}")
        both = f"{self.plugins}:{GOOD}"
        self.assertEqual(
            self.run_lazyt("info", "null", **{"LAZYT_PLUGIN_PATH": both} | environment).returncode, 0
        )

    def test_missing_file(self):
        self.manifest("x")
        self.check("x", "file-missing", "does not exist", "Install the plugin again")

    def test_not_a_library(self):
        (self.plugins / "lazyt_x.so").write_text("#!/bin/sh\n" * 10)
        self.check("x", "not-a-library", "ELF header", "damaged")

    def test_wrong_architecture(self):
        library = self.take(GOOD / "lazyt_null.so", "x")
        image = bytearray(library.read_bytes())
        image[18:20] = (183 if image[18] != 183 else 62).to_bytes(2, "little")
        library.write_bytes(image)
        self.check("x", "wrong-architecture", "this process is", "for this machine's architecture")

    def test_missing_dependency(self):
        self.take(BAD / "lazyt_missing_dependency.so", "x")
        self.check("x", "missing-dependency", "liblazyt_gone.so.7", "Install the library that is named")

    def test_planted_in_the_library(self):
        for fault, reason, detail, hint in (
            ("no_entry", "no-entry", "lazyt_plugin_entry_v1", "not a lazyt plugin"),
            ("abi_major", "abi-major", "this host has 1.", "Install a lazyt of the plugin's ABI"),
            ("short_table", "struct-too-short", "at least", "sizeof the whole table"),
            ("short_enums", "handshake", "size of an enum is 1 in the plugin", "-fshort-enums"),
            ("init_error", "init-failed", "", "see its message"),
            ("crash", "crashed", "signal 6", "vendor"),
            ("hang", "hung", "within 2 s", "stuck"),
            ("stack_overflow", "stack-overflow", "stack was used up", "ulimit -s"),
        ):
            with self.subTest(fault):
                self.take(BAD / f"lazyt_{fault}.so", fault)
                self.check(fault, reason, detail, hint)

    def test_duplicate_name(self):
        self.take(GOOD / "lazyt_null.so", "null")
        both = f"{GOOD}:{self.plugins}"
        self.check("null", "duplicate-name", "is", "Remove one of the two", LAZYT_PLUGIN_PATH=both)

    def test_disabled(self):
        self.take(GOOD / "lazyt_null.so", "x")
        self.check(
            "x", "disabled", "LAZYT_PLUGIN_DISABLE=y,x*", "unset the variable", LAZYT_PLUGIN_DISABLE="y,x*"
        )

    def test_untrusted_path(self):
        self.take(GOOD / "lazyt_null.so", "x").chmod(0o777)
        self.check("x", "untrusted-path", "can be written by every user", "chmod o-w")

    def test_bad_manifest(self):
        self.take(GOOD / "lazyt_null.so", "x")
        self.manifest("x", abi="one")
        self.check("x", "bad-manifest", "field 'abi' is not an object", "lazyt sdk schema")


class Policy(Case):
    def test_a_folder_that_is_not_there_is_named_where_another_plugin_may_serve(self):
        wrong = {"LAZYT_PLUGIN_PATH": f"{self.folder}/plugisn:{GOOD}"}
        self.assertEqual(self.reason("list", **wrong), "file-missing")
        said = self.run_lazyt("info", "null", **wrong)
        self.assertEqual(said.returncode, 0)
        self.assertIn(f"LAZYT_PLUGIN_PATH: '{self.folder}/plugisn' is left out", said.stderr)

    def test_select_keeps_what_fits_and_a_path_is_asked_for_by_itself(self):
        library = self.take(GOOD / "lazyt_null.so", "null")
        self.assertEqual(self.reason("list", LAZYT_PLUGIN_SELECT="n?ll"), "found")
        self.assertEqual(self.reason("list", LAZYT_PLUGIN_SELECT="cuda, ts"), "disabled")
        self.assertEqual(self.run_lazyt("info", library, LAZYT_PLUGIN_SELECT="cuda").returncode, 0)

    def test_a_disabled_plugin_does_not_hide_another_of_its_name(self):
        first = self.take(GOOD / "lazyt_null.so", "null")
        listing = self.folder / "sums"
        listing.write_text(
            "0" * 64 + "\n" + hashlib.sha256((GOOD / "lazyt_null.so").read_bytes()).hexdigest()
        )
        first.write_bytes(first.read_bytes() + b"changed")
        paths = {"LAZYT_PLUGIN_PATH": f"{self.plugins}:{GOOD}", "LAZYT_PLUGIN_ALLOW": listing}
        self.assertEqual(self.reason("list", **paths), "not-allowed")
        self.assertIn(str(GOOD), self.run_lazyt("info", "null", **paths).stdout)

    def test_allow_list_is_by_content(self):
        library = self.take(GOOD / "lazyt_null.so", "null")
        listing = self.folder / "sums"
        listing.write_text(
            "# trusted\n" + hashlib.sha256(library.read_bytes()).hexdigest().upper() + "  null\n"
        )
        self.assertEqual(self.reason("list", LAZYT_PLUGIN_ALLOW=listing), "found")
        listing.write_text("# nothing\n")
        self.assertEqual(self.reason("list", LAZYT_PLUGIN_ALLOW=listing), "not-allowed")
        self.assertEqual(self.reason("list", LAZYT_PLUGIN_ALLOW=self.folder / "gone"), "not-allowed")
        said = self.run_lazyt("info", "null", LAZYT_PLUGIN_ALLOW=listing)
        self.assertEqual(said.returncode, 1)
        self.assertIn("sha256sum", said.stderr)

    def test_required_conformance_wants_a_verdict_for_this_very_library(self):
        library = self.take(SOUND / "lazyt_reference.so", "reference")
        manifest = self.manifest("reference")
        required = {"LAZYT_REQUIRE_CONFORMANCE": "core"}
        self.assertEqual(self.reason("list", **required), "not-conformant")
        said = self.run_lazyt("info", "reference", **required)
        self.assertEqual(said.returncode, 1)
        self.assertIn("its manifest has no verdict", said.stderr)

        judged = self.run_lazyt("conformance", "reference", "--verdict", **required)
        self.assertEqual(judged.returncode, 0, judged.stdout + judged.stderr)
        self.assertEqual(json.loads(manifest.read_text())["conformance"]["profile"], "core")
        self.assertEqual(self.reason("list", **required), "found")
        self.assertEqual(self.run_lazyt("info", library, **required).returncode, 0)
        self.assertEqual(self.reason("list", LAZYT_REQUIRE_CONFORMANCE="full"), "not-conformant")
        self.assertEqual(self.reason("list", LAZYT_REQUIRE_CONFORMANCE="nonsense"), "not-conformant")

        library.write_bytes(library.read_bytes() + b"another build")
        self.assertEqual(self.reason("list", **required), "not-conformant")

    def test_no_verdict_for_a_plugin_that_fails_or_for_a_part(self):
        self.take(SOUND / "lazyt_mutant_13.so", "mutant")
        manifest = self.manifest("mutant")
        for more in ((), ("--filter", "Library.*")):
            done = self.run_lazyt(
                "conformance", "mutant", "--verdict", *more, "--artifacts", self.folder / "out"
            )
            self.assertEqual(done.returncode, 1)
            self.assertIn("no verdict", done.stderr)
        self.assertNotIn("conformance", json.loads(manifest.read_text()))

    def test_what_crashed_is_in_quarantine_until_it_comes_up(self):
        library = self.take(BAD / "lazyt_crash.so", "x")
        self.assertEqual(self.reason("list"), "found")
        self.assertEqual(self.reason("doctor", "x"), "crashed")
        (candidate,) = self.candidates("list")
        self.assertEqual(candidate["reason"], "quarantined")
        self.assertIn("crashed: ended by signal 6", candidate["detail"])
        self.assertEqual(self.run_lazyt("info", library).returncode, 1)
        self.assertEqual(self.reason("doctor", "x"), "crashed")
        library.write_bytes((GOOD / "lazyt_null.so").read_bytes())
        self.assertEqual(self.candidates("list")[0]["reason"], "found")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
