"""The `lazyt` command as a user meets it: what each verb prints, and its exit status.

Arguments: the command, the folder of a plugin that works (null), the folder of plugins with one fault each, the folder
of the conformance suite's mutants.
"""

import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMMAND, GOOD, BAD, MUTANTS = (str(Path(a).resolve()) for a in sys.argv[1:5])


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LAZYT_")}
    nowhere = {"XDG_DATA_HOME": "/nonexistent", "XDG_CACHE_HOME": "/proc/nonexistent"}
    clean |= {"LAZYT_PLUGIN_PATH": GOOD, **nowhere, **environment}
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

    def test_completion_knows_verbs_options_and_backends(self):
        def complete(*words: str) -> list[str]:
            script = run("completion", "bash").stdout + 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lazyt; '
            script += 'printf "%s\\n" "${COMPREPLY[@]}"'
            path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
            environment = os.environ | {"PATH": path, "LAZYT_PLUGIN_PATH": GOOD}
            command = ["bash", "-c", script, "bash", *words]
            return subprocess.run(command, capture_output=True, text=True, env=environment).stdout.split()

        self.assertEqual(complete("lazyt", "do"), ["doctor"])
        self.assertEqual(complete("lazyt", "list", "--js"), ["--json"])
        self.assertIn("null", complete("lazyt", "info", "n"))
        for shell in ("zsh", "fish"):
            self.assertIn("doctor", run("completion", shell).stdout)

    def test_the_manual_page_has_every_verb_and_variable_and_formats_without_a_warning(self):
        page = run("manual").stdout
        for verb in ("list", "doctor", "conformance", "new\\-plugin", "replay"):
            self.assertIn(f".SS lazyt {verb}\n", page)
        for variable in ("LAZYT_BACKEND", "LAZYT_TRACE", "LAZYT_LAYERS"):
            self.assertIn(f".B {variable}\n", page)
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-rLL=100n"], input=page, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("--timeout", re.sub(".\b", "", done.stdout))  # without overstriking

    def test_env_tells_value_and_source_of_each_variable(self):
        said = run("env", "--json", LAZYT_LOG="debug", LAZYT_NULL_SPEED="9", LAZYT_LOGG="x").stdout
        found = {v["name"]: v for v in json.loads(said)}
        self.assertEqual((found["LAZYT_LOG"]["value"], found["LAZYT_LOG"]["source"]), ("debug", "environment"))
        self.assertEqual((found["LAZYT_QUEUE"]["value"], found["LAZYT_QUEUE"]["source"]), ("4", "default"))
        self.assertEqual((found["LAZYT_DUMP"]["value"], found["LAZYT_DUMP"]["source"]), (None, "unset"))
        self.assertEqual(found["LAZYT_NULL_SPEED"]["help"], "option of plugin null")
        self.assertIn("misspelt", found["LAZYT_LOGG"]["help"])
        self.assertIn("LAZYT_LOG=debug  (environment)", run("env", LAZYT_LOG="debug").stdout)

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

    def test_doctor_opens_the_device(self):
        fault = Path(BAD).parents[1] / "fault" / "lazyt_fault.so"
        self.assertEqual(run("doctor", str(fault)).returncode, 0)
        done = run("doctor", str(fault), LAZYT_FAULT_AT="device.open:1:fail:PERMISSION_DENIED")
        self.assertEqual(done.returncode, 1)
        for part in ("no-device", "step 'device'", "PERMISSION_DENIED", "device.open"):
            self.assertIn(part, done.stdout)

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

    def test_env_lists_the_layers(self):
        self.assertIn("LAZYT_LAYERS=validate", run("env", LAZYT_LAYERS="validate").stdout)

    def test_an_unknown_layer_is_named(self):
        done = run("info", "null", LAZYT_LAYERS="nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no layer 'nonsense'; known: validate", done.stdout + done.stderr)


class Conformance(unittest.TestCase):
    """One failing case, from its report to the program that it ran."""

    CASE = "Execute.InputsKeepTheirBytes"
    MUTANT = f"{MUTANTS}/lazyt_mutant_13.so"

    def test_a_failure_says_rule_deed_expectation_and_how_to_repeat_it(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("conformance", self.MUTANT, "--filter", self.CASE, "--artifacts", folder)
            self.assertEqual(done.returncode, 1, done.stdout)
            for part in ("rule EXE-4: ", "did: ", "expected: ", "got: ", f"program: {folder}/"):
                self.assertIn(part, done.stdout)
            command = next(line.split("repeat: ")[1] for line in done.stdout.splitlines() if "repeat: " in line)
            self.assertEqual(command.split()[:2], ["lazyt", "conformance"])
            again = run(*shlex.split(command)[1:], "--artifacts", folder)
            self.assertEqual(again.returncode, 1, again.stdout)
            self.assertIn("1 cases: 0 pass, 1 fail", again.stdout)
            (program, *_) = sorted(Path(folder).glob("*.lzp"))
            text = run("inspect", str(program))
            self.assertEqual(text.returncode, 0, text.stderr)
            self.assertTrue(text.stdout.startswith("program("), text.stdout)
            self.assertIn(" = aten::", text.stdout)
            statistics = run("inspect", "--summary", str(program)).stdout
            self.assertRegex(statistics, r"\d+ bytes, \d+ inputs, \d+ outputs, \d+ constants, \d+ nodes")
            self.check_run(str(program))
            facts = json.loads(run("inspect", "--json", str(program)).stdout)
            self.assertEqual(facts["text"], text.stdout)
            self.assertEqual(facts["nodes"], sum(facts["operators"].values()))
            self.assertEqual(facts["bytes"], int(re.search(r": (\d+) bytes", statistics).group(1)))

    def check_run(self, program: str):
        sound = f"{MUTANTS}/lazyt_reference.so"
        done = run("run", program, "--backend", sound, "--repeat", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("on reference: compiled in", done.stdout)
        same = json.loads(run("run", program, "--backend", sound, "--against", sound, "--json").stdout)
        self.assertEqual({o["difference"] for o in same["outputs"]}, {0})
        other = run("run", program, "--backend", sound, "--against", "null")
        self.assertEqual(other.returncode, 1)
        self.assertIn("from null  <-- too far", other.stdout)
        self.assertEqual(run("run", "/nonexistent.lzp", "--backend", "null").returncode, 1)
        self.check_that_no_number_in_a_file_crashes(Path(program).read_bytes(), sound)

    def check_that_no_number_in_a_file_crashes(self, block: bytes, backend: str):
        """A dim, a stride or an axis that does not fit is said; a size for which there is no memory, too."""
        (size,) = struct.unpack_from("<Q", block, 8)
        start, count, stride = struct.unpack_from("<3Q", block, 32 + 3 * 24)  # the table of numbers
        self.assertGreater(count, 0)
        said = ""
        with tempfile.TemporaryDirectory() as folder:
            changed = Path(folder) / "changed.lzp"
            for number in (1000, 1 << 23, 1 << 62):  # 2^23 squared is more than an address space
                places = [start + i * stride for i in range(count)]
                dims = [at for at in places if struct.unpack_from("<q", block, at) == (2,)]
                for together in [[at] for at in places[:8]] + [dims]:
                    data = bytearray(block[:size])  # a block alone has no hash
                    for at in together:
                        struct.pack_into("<q", data, at, number)
                    changed.write_bytes(data)
                    done = run("run", str(changed), "--backend", backend)
                    self.assertIn(done.returncode, (0, 1), f"numbers at {together} as {number}: {done.stderr}")
                    said += done.stderr
        self.assertIn("PRG-10", said)
        self.assertIn("RESOURCE_EXHAUSTED", said)

    def test_every_kind_of_result_is_told(self):
        def expecting(case: str, result: str) -> subprocess.CompletedProcess:
            with tempfile.TemporaryDirectory() as folder:
                known = Path(folder) / "expected.json"
                entry = {"case": case, "result": result, "reason": "issue 99"}
                known.write_text(json.dumps({"lazyt_expected": 1, "cases": [entry]}))
                cases = f"{self.CASE}:Library.*"
                return run("conformance", self.MUTANT, "--verbose", "--filter", cases, "--expected", str(known),
                           "--artifacts", folder)  # fmt: skip

        done = expecting(self.CASE, "fail")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn(f"expected    {self.CASE}: issue 99", done.stdout)
        self.assertIn("unsupported Library.UnknownExtensionsAreNull", done.stdout)
        done = expecting("Library.HandshakeAnswers", "fail")
        self.assertEqual(done.returncode, 1)
        self.assertIn("UNEXPECTED pass Library.HandshakeAnswers", done.stdout)
        done = expecting(self.CASE, "crash")
        self.assertIn(f"UNEXPECTED fail {self.CASE}", done.stdout)

    def test_an_interrupted_run_tells_what_it_has_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            xml = Path(folder) / "results.xml"
            command = [COMMAND, "conformance", self.MUTANT, "--junit", str(xml), "--artifacts", folder]
            running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            with self.assertRaises(subprocess.TimeoutExpired):
                running.wait(1)  # all of it takes ten times as long
            running.send_signal(signal.SIGINT)
            said, complaint = running.communicate(timeout=20)
            self.assertEqual(running.returncode, 128 + signal.SIGINT, said)
            self.assertRegex(said, r"\d+ cases: .*, [1-9]\d* not run\n$")
            self.assertIn("interrupted by Interrupt", complaint)
            self.assertIn('<skipped message="interrupted"/>', xml.read_text())

    def test_what_passes_on_stand_ins_is_not_run(self):
        with tempfile.TemporaryDirectory() as folder:
            xml = Path(folder) / "results.xml"
            cases = f"{self.CASE}:Library.HandshakeAnswers"
            done = run("conformance", self.MUTANT, "--filter", cases, "--not-run", "needs hardware", "--junit", str(xml),
                       "--artifacts", folder)  # fmt: skip
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("not run     Library.HandshakeAnswers: needs hardware", done.stdout)
            self.assertIn(f"fail {self.CASE}", done.stdout)
            self.assertIn("2 cases: 0 pass, 1 fail", done.stdout)
            self.assertIn('<skipped message="needs hardware"/>', xml.read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
