"""The `lazyt` command as a user meets it: what each verb prints, and its exit status.

Arguments: the command, the folder of a plugin that works (null), the folder of plugins with one fault each.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMMAND, GOOD, BAD = (str(Path(a).resolve()) for a in sys.argv[1:4])


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LAZYT_")}
    clean |= {"LAZYT_PLUGIN_PATH": GOOD, "XDG_DATA_HOME": "/nonexistent", **environment}
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, env=clean, timeout=60)


class Command(unittest.TestCase):
    def test_every_verb_explains_itself(self):
        self.assertEqual(run("--help").returncode, 0)
        for verb in ("list", "doctor", "info", "env", "inspect"):
            self.assertIn(verb, run("--help").stdout)
            self.assertEqual(run(verb, "--help").returncode, 0)

    def test_wrong_arguments_are_status_2(self):
        for arguments in ((), ("nonsense",), ("info",), ("doctor", "--timeout", "-1")):
            self.assertEqual(run(*arguments).returncode, 2, arguments)

    def test_list_shows_what_can_be_found(self):
        self.assertIn(GOOD, run("list").stdout)
        found = json.loads(run("list", "--json").stdout)["candidates"]
        self.assertEqual([c["name"] for c in found if c["path"].startswith(GOOD)], ["null"])

    def test_list_runs_no_code(self):
        listed = run("list", LAZYT_PLUGIN_PATH=BAD)
        self.assertEqual(listed.returncode, 0)
        self.assertIn("crash", listed.stdout)

    def test_doctor_says_that_a_backend_works(self):
        done = run("doctor", "null")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("loaded", done.stdout)

    def test_doctor_survives_backends_that_crash_or_hang(self):
        done = run("doctor", "--json", "--timeout", "2", LAZYT_PLUGIN_PATH=BAD)
        reasons = {Path(c["path"]).name: c["reason"] for c in json.loads(done.stdout)["candidates"]}
        self.assertEqual(reasons["lazyt_crash.so"], "crashed")
        self.assertEqual(reasons["lazyt_hang.so"], "hung")
        self.assertEqual(reasons["lazyt_init_error.so"], "init-failed")
        self.assertGreaterEqual(len(set(reasons.values())), 13, reasons)

    def test_doctor_says_what_to_do(self):
        done = run("doctor", f"{BAD}/lazyt_missing_dependency.so")
        self.assertEqual(done.returncode, 1)
        self.assertIn("liblazyt_gone.so.7", done.stdout)
        self.assertIn("to do:", done.stdout)

    def test_doctor_of_an_unknown_name(self):
        done = run("doctor", "nope")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nope", done.stdout)

    def test_info_shows_the_devices(self):
        done = run("info", "null")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("device 0: null device", done.stdout)
        self.assertEqual(run("info", "nope").returncode, 1)

    def test_env_shows_values_and_strangers(self):
        done = run("env", LAZYT_LOG="debug", LAZYT_BAKCEND="null")
        self.assertIn("LAZYT_LOG=debug", done.stdout)
        self.assertIn("misspelt", done.stdout)
        self.assertIn("LAZYT_BAKCEND=null", done.stdout)

    def test_inspect_refuses_damaged_files(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "damaged.lzp"
            for damaged in (b"", b"LZP1", b"\0" * 4096, os.urandom(512)):
                file.write_bytes(damaged)
                done = run("inspect", str(file))
                self.assertEqual(done.returncode, 1, damaged[:16])
                self.assertIn(str(file), done.stderr)
        self.assertEqual(run("inspect", "/nonexistent.lzp").returncode, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
