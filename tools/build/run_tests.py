"""Run the test suites in order, stream their output, count every case, end with `N passed, N failed`.

    run_tests.py --tiny      the tests that need seconds
    run_tests.py --quick     everything not marked slow (what `make test` runs)
    run_tests.py --extras    what --full adds: sanitizer builds, slow tests
    run_tests.py --full      both

A suite that does not fit in --budget seconds is reported as skipped, with the reason.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A silent test is a hung one: pytest-timeout cannot interrupt a wait inside a library.
STALL_S = 300
MAX_CRASHES = 20
PYTEST_ORDER = ["abi", "core", "python", "torch", "conformance", "issues", "examples"]


@dataclass
class Result:
    suite: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    note: str = ""

    def fail(self, what: str):
        self.failed += 1
        self.failures.append(what)


# Folders of tests that run on the backend of their name; all others on tests/conftest.py's.
BACKEND_SUITES = {"onednn"}


@dataclass
class Suite:
    name: str
    run: Callable[[Result, float], None]  # (where to count, seconds allowed)
    limit: float  # seconds it may take
    needs: float = 0.0  # seconds it is known to need: with less left it is not begun
    lacks: str = ""  # why it cannot run on this machine


def run_process(
    command: list[str], limit: float, env: dict[str, str] | None = None, watch: Path | None = None
):
    """The exit status, or why the process was ended. `watch` is a file that must keep growing."""
    print("$ " + " ".join(command), flush=True)
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(env or {})}, start_new_session=True)
    start = time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(0.1)
            if time.monotonic() - start > limit:
                return "time limit"
            if watch and watch.exists() and time.time() - watch.stat().st_mtime > STALL_S:
                return "hung"
        return process.returncode
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Runner:
    def __init__(self, build: Path):
        self.build = build
        self.results_dir = build / "test-results"
        self.results_dir.mkdir(parents=True, exist_ok=True)

    def meson(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "mesonbuild.mesonmain", *arguments]

    def pytest_suite(
        self, name: str, folders: list[str], marker: str, limit: float, needs: float = 0.0
    ) -> Suite:
        def run(result: Result, seconds: float):
            record = self.results_dir / f"{name}.jsonl"
            record.unlink(missing_ok=True)
            deadline = time.monotonic() + seconds
            command = [sys.executable, "-m", "pytest", "-p", "pytest_record", "-q", "-m", marker, *folders]
            path = os.pathsep.join(filter(None, [str(ROOT / "tools/build"), os.environ.get("PYTHONPATH")]))
            env = {
                "PYTHONPATH": path,
                "LAZYT_TEST_RECORD": str(record),
                "LAZYT_BAD_PLUGINS": str(self.build / "tests/abi/bad_plugins"),
            }
            if name in BACKEND_SUITES:
                env["LAZYT_BACKEND"] = name
            for _ in range(MAX_CRASHES):
                started = read_record(record)
                status = run_process(command, deadline - time.monotonic(), env, record)
                rows = read_record(record)
                ended_alone = status in (0, 1, 5) or status == "time limit" or len(rows) == len(started)
                for row in rows.values():
                    if row["outcome"] == "started":
                        row.update(outcome="failed", why=f"ended the process: {describe(status)}")
                if ended_alone:
                    break
                mark_crashed(record, rows)
            else:
                result.note = f"given up after {MAX_CRASHES} crashes: the tests after them did not run"
            for row in rows.values():
                if row["outcome"] == "failed":
                    result.fail(f"{row['id']}: {row.get('why', '')}")
                elif row["outcome"] == "skipped":
                    result.skipped += 1
                else:
                    result.passed += 1
            if status not in (0, 5) and not result.failed:
                result.fail(f"pytest: {describe(status)}")

        return Suite(name, run, limit, needs)

    def meson_suite(
        self,
        name: str,
        selection: list[str],
        limit: float,
        needs: float = 0.0,
        setup: list[str] | None = None,
        prefix: list[str] | None = None,
        env: dict[str, str] | None = None,
        lacks: str = "",
    ) -> Suite:
        """The native tests of the build; with `setup`, of a second one configured with these options."""

        def run(result: Result, seconds: float):
            deadline = time.monotonic() + seconds
            build = self.build
            if setup is not None:
                build = self.build.with_name(f"{self.build.name}-{name}")
                configure = (
                    []
                    if (build / "build.ninja").exists()
                    else [self.meson("setup", str(build), str(ROOT), *setup)]
                )
                for command in [*configure, self.meson("compile", "-C", str(build))]:
                    status = run_process(command, deadline - time.monotonic(), env)
                    if status != 0:
                        return result.fail(f"{name} build: {describe(status)}")
            logs = build / "meson-logs"
            for stale in logs.glob(f"{name}.*"):
                stale.unlink()
            command = self.meson(
                "test",
                "-C",
                str(build),
                "--no-rebuild",
                "--print-errorlogs",
                "--logbase",
                name,
                "--timeout-multiplier",
                "5" if setup else "1",
                *selection,
            )
            status = run_process([*(prefix or []), *command], deadline - time.monotonic())
            broken = count_junit(logs / f"{name}.junit.xml", logs / f"{name}.json", result)
            # A binary can fail after its last case passed (a leak, a crash at exit), unseen in its cases.
            for test in broken[result.failed :]:
                result.fail(test)
            ran = result.passed + result.failed + result.skipped
            if status != 0 and not result.failed and (ran or not isinstance(status, int) or status < 0):
                result.fail(f"meson test: {describe(status)}")

        return Suite(name, run, limit, needs, lacks)

    def tiny(self) -> list[Suite]:
        return [self.pytest_suite("tiny", ["tests/tiny"], "not slow", 120)] if has_tests("tiny") else []

    def quick(self) -> list[Suite]:
        suites = [*self.tiny(), self.meson_suite("native", ["--no-suite", "slow"], 600)]
        return suites + [
            self.pytest_suite(name, [f"tests/{name}"], "not slow", 900) for name in python_folders()
        ]

    def extras(self) -> list[Suite]:
        bare = ["-Dtorch=disabled", "-Dts=disabled", "-Dtools=disabled", "-Dbench=disabled"]
        suites = [
            self.meson_suite(
                "asan", ["--no-suite", "slow"], 1500, 300, ["-Db_sanitize=address,undefined", *bare]
            ),
            # The thread sanitizer needs a fixed address layout on kernels with much address randomness.
            self.meson_suite(
                "tsan", ["--suite", "threads"], 900, 200, ["-Db_sanitize=thread", *bare], fixed_addresses()
            ),
            self.meson_suite("native-slow", ["--suite", "slow"], 900, 60),
            self.fuzz(bare),
        ]
        slow = [f"tests/{name}" for name in python_folders()]
        return suites + ([self.pytest_suite("slow", slow, "slow", 2400, 120)] if slow else [])

    def fuzz(self, options: list[str]) -> Suite:
        """Fuzz targets: the kept inputs, then some seconds of new ones. The only suite that needs clang."""
        clang = find_clang()
        # A sanitizer's runtime is part of the executable; libraries have its symbols undefined.
        sanitizers = ["-Db_sanitize=address,undefined", "-Db_lundef=false"]
        return self.meson_suite(
            "fuzz",
            ["--suite", "fuzz"],
            900,
            240,
            ["-Dfuzz=true", "-Dtests=disabled", "-Dnull=disabled", *sanitizers, *options],
            env={"CC": clang.replace("clang++", "clang"), "CXX": clang},
            lacks=""
            if clang
            else "no clang++ that links libFuzzer; tools/build/system_packages.sh fuzz installs it",
        )


def find_clang() -> str:
    """A clang++ with libFuzzer, or nothing."""
    for version in ["", *(f"-{n}" for n in range(21, 13, -1))]:
        if clang := shutil.which("clang++" + version):
            probe = [clang, "-fsanitize=fuzzer,address,undefined", "-x", "c++", "-", "-o", os.devnull]
            program = 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }'
            if subprocess.run(probe, input=program, capture_output=True, text=True).returncode == 0:
                return clang
    return ""


def python_folders() -> list[str]:
    names = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and has_tests(path.name)}
    names -= {"tiny"}
    return [name for name in PYTEST_ORDER if name in names] + sorted(names - set(PYTEST_ORDER))


def has_tests(folder: str) -> bool:
    return any((ROOT / "tests" / folder).rglob("test_*.py"))


def fixed_addresses() -> list[str]:
    try:
        works = subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0
    except OSError:
        works = False
    return ["setarch", "-R"] if works else []


def describe(status: int | str) -> str:
    if isinstance(status, str):
        return status
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def read_record(path: Path) -> dict[str, dict]:
    if not path.exists():
        return {}
    return {row["id"]: row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def mark_crashed(path: Path, rows: dict[str, dict]):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), encoding="utf-8")


def count_junit(junit: Path, log: Path, result: Result) -> list[str]:
    """Count the cases of meson's report; the names of the binaries that failed."""
    if junit.exists():
        for case in ElementTree.parse(junit).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                result.fail(f"{case.get('classname')}.{case.get('name')}")
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                result.skipped += 1
            else:
                result.passed += 1
    if not log.exists():
        return []
    tests = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [
        f"{test['name']}: {test['result']}"
        for test in tests
        if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL", "IGNORED")
    ]


def run_suites(suites: list[Suite], budget: float) -> list[Result]:
    deadline = time.monotonic() + budget
    results = []
    for suite in suites:
        result = Result(suite.name)
        results.append(result)
        left = deadline - time.monotonic()
        if suite.lacks:
            result.skipped = 1
            result.note = f"skipped: {suite.lacks}"
            continue
        if left < max(suite.needs, 1):
            result.skipped = 1
            result.note = f"skipped: needs about {suite.needs:.0f} s, {max(left, 0):.0f} s of the budget left"
            continue
        print(f"\n==== {suite.name} ====", flush=True)
        start = time.monotonic()
        suite.run(result, min(suite.limit, left))
        result.seconds = time.monotonic() - start
    return results


def report(results: list[Result]) -> int:
    width = max([len(result.suite) for result in results] + [5])
    print(f"\n{'suite':<{width}}  passed  failed  skipped  seconds")
    for result in results:
        print(
            f"{result.suite:<{width}}  {result.passed:6}  {result.failed:6}  {result.skipped:7}  "
            f"{result.seconds:7.1f}  {result.note}".rstrip()
        )
    for result in results:
        for failure in result.failures:
            print(f"FAILED {result.suite}: {failure}")
    passed, failed, skipped = (
        sum(getattr(result, key) for result in results) for key in ("passed", "failed", "skipped")
    )
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    return 1 if failed or passed == 0 else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    profile = parser.add_mutually_exclusive_group(required=True)
    for name in ("tiny", "quick", "extras", "full"):
        profile.add_argument(f"--{name}", dest="profile", action="store_const", const=name)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="Meson build folder")
    parser.add_argument(
        "--budget",
        type=float,
        default=float(os.environ.get("LAZYT_TEST_BUDGET", "inf")),
        help="seconds for all suites together (default: $LAZYT_TEST_BUDGET, else no limit)",
    )
    parser.add_argument("--carry", type=Path, help="results of an earlier run to count in")
    arguments = parser.parse_args()

    runner = Runner(arguments.build.resolve())
    suites = {
        "tiny": runner.tiny,
        "quick": runner.quick,
        "extras": runner.extras,
        "full": lambda: runner.quick() + runner.extras(),
    }[arguments.profile]()
    earlier = [Result(**row) for row in json.loads(arguments.carry.read_text())] if arguments.carry else []
    results = run_suites(suites, arguments.budget)
    (runner.results_dir / f"{arguments.profile}.json").write_text(
        json.dumps([asdict(r) for r in results], indent=1)
    )
    return report(earlier + results)


if __name__ == "__main__":
    sys.exit(main())
