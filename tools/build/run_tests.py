"""Run the test suites in order, stream their output, count every case, end with `N passed, N failed`.

    run_tests.py --tiny      the tests that need seconds
    run_tests.py --quick     everything not marked slow (what `make test` runs)
    run_tests.py --extras    what --full adds: sanitizer builds, slow tests
    run_tests.py --full      both
    run_tests.py --sanitized only the PyTorch frontend and its Python binding under sanitizers: two builds more, no part of --extras

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
GRACE_S = 10  # from asking a process to end until it is made to
CUT = "ended with the budget: tests behind these did not run"
TIME_LIMIT = "time limit"
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

    def fail_build(self, why: str, cut: bool):
        """cut: the budget ended before the time that the suite may take, which is no failure."""
        if cut and why == TIME_LIMIT:
            self.skipped += 1
            self.note = "skipped: the budget ended while it was built"
        else:
            self.fail(f"{self.suite} build: {why}")


# tests/backends runs on each of these; all other folders on tests/conftest.py's backend.
BACKENDS = ["onednn", "cuda"]
# Of whose tests several run at once.
PARALLEL = [*BACKENDS, "torch", "python"]


# What runs under both sanitizers with PyTorch: threads that record, free, wait and end. And what else runs under the one
# for addresses: memory that is shared, viewed, handed over and freed.
THREADED = [
    "tests/torch/test_threads.py",
    "tests/python/test_recording_threads.py",
    "tests/python/test_streams.py",
]
SHARING = [
    f"tests/python/test_{name}.py" for name in ("sharing", "views", "user_contracts", "programs_compiled")
]


@dataclass
class Prepared:
    """How a suite of Python tests is run: with packages of another build, say."""

    packages: str = ""
    env: dict[str, str] = field(default_factory=dict)
    prefix: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)


@dataclass
class Suite:
    name: str
    run: Callable[[Result, float], None]  # (where to count, seconds allowed)
    limit: float  # seconds it may take
    needs: float = 0.0  # seconds it is known to need: with less left it is not begun
    lacks: str = ""  # why it cannot run on this machine


def is_hung(record: Path) -> bool:
    """Whether the tests that run have been silent for longer than any may, the longest limit that one names added."""
    silent = time.time() - record.stat().st_mtime
    if silent <= STALL_S:
        return False
    running = [row for row in read_record(record).values() if row["outcome"] == "started"]
    return silent > STALL_S + max((row["limit"] for row in running), default=0)


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
                return TIME_LIMIT
            if watch and watch.exists() and is_hung(watch):
                return "hung"
        return process.returncode
    finally:
        if process.poll() is None:
            end(process)


def end(process: subprocess.Popen):
    """Ends its session; Meson, asked first, still writes what has run."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Runner:
    def __init__(self, build: Path):
        self.build = build
        self.results_dir = build / "test-results"
        self.results_dir.mkdir(parents=True, exist_ok=True)

    def meson(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "mesonbuild.mesonmain", *arguments]

    def pytest_suite(
        self,
        name: str,
        folders: list[str],
        marker: str,
        limit: float,
        needs: float = 0.0,
        prepare: Callable[[Result, float], Prepared | None] | None = None,
        lacks: str = "",
        as_far_as_it_fits: bool = False,
        processes: int = 1,
    ) -> Suite:
        """Tests of these folders; with `prepare`, as it says, or not at all if it says nothing.
        as_far_as_it_fits: where the budget ends before the suite's own limit, what has not run is skipped."""

        def run(result: Result, seconds: float):
            deadline = time.monotonic() + seconds
            prepared = prepare(result, seconds) if prepare else Prepared()
            if prepared is None:
                return
            record = self.results_dir / f"{name}.jsonl"
            record.unlink(missing_ok=True)
            command = [sys.executable, "-m", "pytest", "-p", "pytest_record", "-q", "-m", marker, *folders]
            if processes > 1:  # started again here, as what is in the record is not collected again
                command += ["-n", str(processes), "--max-worker-restart", "0"]
            command = [*prepared.prefix, *command, *prepared.options]
            folders_of_modules = [str(ROOT / "tools/build"), prepared.packages, os.environ.get("PYTHONPATH")]
            path = os.pathsep.join(filter(None, folders_of_modules))
            env = {
                "PYTHONPATH": path,
                "LAZYT_TEST_RECORD": str(record),
                "LAZYT_BAD_PLUGINS": str(self.build / "tests/abi/bad_plugins"),
                "LAZYT_FAKE_CUDA_LIBRARIES": str(self.build / "tests/cuda/fake"),
                **prepared.env,
            }
            if name in BACKENDS:
                env["LAZYT_BACKEND"] = name
            for _ in range(MAX_CRASHES):
                started = read_record(record)
                status = run_process(command, deadline - time.monotonic(), env, record)
                rows = read_record(record)
                cut = False
                if any(row.get("crashed") and test not in started for test, row in rows.items()):
                    rows = {test: row for test, row in rows.items() if row["outcome"] != "started"}
                    write_record(record, rows)  # what other processes were at runs again
                    continue
                unfinished = any(row["outcome"] == "started" for row in rows.values())
                ended_alone = status in (0, 1, 5) or status == TIME_LIMIT or len(rows) == len(started)
                ended_alone = ended_alone or not unfinished  # behind the last test, so that none is left
                cut = as_far_as_it_fits and status == TIME_LIMIT and seconds < limit
                for row in rows.values():
                    if row["outcome"] == "started":
                        row.update(
                            outcome="skipped" if cut else "failed",
                            why=f"ended the process: {describe(status)}",
                        )
                if ended_alone:
                    break
                write_record(record, rows)
            else:
                result.note = f"given up after {MAX_CRASHES} crashes: the tests after them did not run"
            for row in rows.values():
                if row["outcome"] == "failed":
                    result.fail(f"{row['id']}: {row.get('why', '')}")
                elif row["outcome"] == "skipped":
                    result.skipped += 1
                else:
                    result.passed += 1
            if cut:
                result.note = CUT
            elif status not in (0, 5) and not result.failed:
                result.fail(f"pytest: {describe(status)}")

        return Suite(name, run, limit, needs, lacks)

    def compile(
        self, build: Path, options: list[str], deadline: float, env: dict[str, str] | None = None
    ) -> str:
        """Configures a second build once, and brings it up to date. What failed, or nothing."""
        configure = [self.meson("setup", str(build), str(ROOT), *options)]
        if (build / "build.ninja").exists():
            configure = []
        for command in [*configure, self.meson("compile", "-C", str(build))]:
            status = run_process(command, deadline - time.monotonic(), env)
            if status != 0:
                return describe(status)
        return ""

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
                if broken := self.compile(build, setup, deadline, env):
                    return result.fail_build(broken, cut=seconds < limit)
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
            cut = status == TIME_LIMIT and seconds < limit
            broken = count_junit(logs / f"{name}.junit.xml", logs / f"{name}.json", result, cut)
            # A binary can fail after its last case passed (a leak, a crash at exit), unseen in its cases.
            for test in broken[result.failed :]:
                result.fail(test)
            ran = result.passed + result.failed + result.skipped
            if cut:
                result.note = CUT
            elif status != 0 and not result.failed and (ran or not isinstance(status, int) or status < 0):
                result.fail(f"meson test: {describe(status)}")

        return Suite(name, run, limit, needs, lacks)

    def tiny(self) -> list[Suite]:
        return [self.pytest_suite("tiny", ["tests/tiny"], "not slow", 120)] if has_tests("tiny") else []

    def quick(self) -> list[Suite]:
        suites = [*self.tiny(), self.meson_suite("native", ["--no-suite", "slow"], 1200)]
        last = []
        for name in python_folders():
            for suite in BACKENDS if name == "backends" else [name]:
                # Each kernel goes through the host's compiler there: on a slow machine for longer than all others together.
                is_long = suite == "cuda"
                made = self.pytest_suite(
                    suite,
                    [f"tests/{name}"],
                    "not slow",
                    3600 if is_long else 900,
                    as_far_as_it_fits=True,
                    processes=min(processors(), 8) if suite in PARALLEL else 1,
                )
                (last if is_long else suites).append(made)
        return suites + last

    def extras(self) -> list[Suite]:
        bare = ["-Dtorch=disabled", "-Dts=disabled", "-Dtools=disabled", "-Dbench=disabled"]
        core = [*bare, "-Donednn=disabled", "-Dcuda=disabled"]
        light = ["-Doptimization=g"]  # optimized further, sanitized builds take far longer than their tests
        # Least to build first: on a slow machine the last has no time.
        suites = [
            self.meson_suite("native-slow", ["--suite", "slow"], 900, 120),
            # The thread sanitizer needs a fixed address layout on kernels with much address randomness.
            self.meson_suite(
                "tsan",
                ["--suite", "threads"],
                900,
                200,
                ["-Db_sanitize=thread", *light, *core],
                fixed_addresses(),
            ),
            self.fuzz(core),
            self.meson_suite(
                "asan", ["--no-suite", "slow"], 1500, 300, ["-Db_sanitize=address,undefined", *light, *bare]
            ),
        ]
        slow = [f"tests/{name}" for name in python_folders()]
        if slow:
            suites.append(self.pytest_suite("slow", slow, "slow", 2400, 120, as_far_as_it_fits=True))
        return suites

    def sanitized(self) -> list[Suite]:
        """Python programs with the runtime, frontend, binding and reference plugin under a sanitizer; Python and
        libtorch are as they come."""
        asan = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1"}  # Python and libtorch leave much at exit
        suppressions = ROOT / "tests" / "threads" / "suppressions.txt"
        tsan = {"TSAN_OPTIONS": f"suppressions={suppressions}:halt_on_error=1:history_size=4"}
        return [
            self.sanitized_suite("asan-torch", "address", "libasan.so", asan, [], THREADED + SHARING),
            self.sanitized_suite("tsan-torch", "thread", "libtsan.so", tsan, fixed_addresses(), THREADED),
        ]

    def sanitized_suite(
        self,
        name: str,
        sanitizer: str,
        runtime: str,
        env: dict[str, str],
        prefix: list[str],
        tests: list[str],
    ) -> Suite:
        library = find_runtime(runtime)
        limit = 2400

        def prepare(result: Result, seconds: float) -> Prepared | None:
            deadline = time.monotonic() + seconds
            build = self.build.with_name(f"{self.build.name}-{name}")
            without = [f"-D{part}=disabled" for part in ("tests", "tools", "bench", "onednn", "cuda")]
            options = [f"-Db_sanitize={sanitizer}", "-Db_lundef=false", "-Doptimization=g", *without]
            if broken := self.compile(build, options, deadline):
                result.fail_build(broken, cut=seconds < limit)
                return None
            installed = build / "installed"
            install = self.meson(
                "install", "-C", str(build), "--no-rebuild", "--quiet", "--destdir", str(installed)
            )
            run_process(install, deadline - time.monotonic())
            package = next(installed.rglob("lazyt/_C.*.so"), None)
            if not package:
                result.fail(f"{name} build: no binding was installed; is PyTorch there?")
                return None
            return Prepared(
                packages=str(package.parents[1]),
                # Python has no C++: the sanitizer looks for what throws when the process begins.
                env={**env, "LD_PRELOAD": f"{library} {find_runtime('libstdc++.so.6')}"},
                prefix=prefix,
                options=["-s", "-o", "timeout=900"],
            )

        lacks = "" if library else f"the compiler has no {runtime}"
        return self.pytest_suite(name, tests, "slow or not slow", limit, 1200, prepare, lacks)

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


def find_runtime(library: str) -> str:
    """The path of a sanitizer's runtime of the compiler, or nothing."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if not compiler:
        return ""
    answer = subprocess.run([compiler, f"-print-file-name={library}"], capture_output=True, text=True).stdout
    path = Path(answer.strip())
    return str(path.resolve()) if path.is_absolute() and path.exists() else ""


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


def processors() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


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


def write_record(path: Path, rows: dict[str, dict]):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), encoding="utf-8")


def count_junit(junit: Path, log: Path, result: Result, cut: bool) -> list[str]:
    """Count the cases of meson's report; the names of the binaries that failed. cut: by the budget, which is no failure
    of what was interrupted."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    outcomes = {test["name"]: test["result"] for test in map(json.loads, lines)}
    interrupted = [name for name, outcome in outcomes.items() if cut and outcome == "INTERRUPT"]
    if junit.exists():
        for case in ElementTree.parse(junit).iter("testcase"):
            why = [*case.iter("failure"), *case.iter("error")]
            if why:
                failed = f"{case.get('classname')}.{case.get('name')}"
                if any(name in failed for name in interrupted):
                    result.skipped += 1
                else:
                    # What it says goes into the summary: of long output only the end may be kept.
                    said = [" ".join((w.get("message") or w.text or "").split()) for w in why]
                    result.fail(f"{failed} {' | '.join(said)}"[:1000].rstrip())
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                result.skipped += 1
            else:
                result.passed += 1
    fine = ("OK", "SKIP", "EXPECTEDFAIL", "IGNORED")
    return [f"{name}: {outcome}" for name, outcome in outcomes.items() if outcome not in fine and name not in interrupted]


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
    for name in ("tiny", "quick", "extras", "full", "sanitized"):
        profile.add_argument(f"--{name}", dest="profile", action="store_const", const=name)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="Meson build folder")
    parser.add_argument(
        "--budget",
        type=float,
        default=float(os.environ.get("LAZYT_TEST_DEADLINE", "inf")) - time.time(),
        help="seconds for all suites together (default: what is left until $LAZYT_TEST_DEADLINE, in seconds since the epoch; else no limit)",
    )
    parser.add_argument("--carry", type=Path, help="results of an earlier run to count in")
    arguments = parser.parse_args()

    runner = Runner(arguments.build.resolve())
    suites = {
        "tiny": runner.tiny,
        "quick": runner.quick,
        "extras": runner.extras,
        "full": lambda: runner.quick() + runner.extras(),
        "sanitized": runner.sanitized,
    }[arguments.profile]()
    earlier = [Result(**row) for row in json.loads(arguments.carry.read_text())] if arguments.carry else []
    results = run_suites(suites, arguments.budget)
    (runner.results_dir / f"{arguments.profile}.json").write_text(
        json.dumps([asdict(r) for r in results], indent=1)
    )
    return report(earlier + results)


if __name__ == "__main__":
    sys.exit(main())
