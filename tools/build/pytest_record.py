"""pytest plugin: one JSON line when a test starts and one when it ends, in the file $LAZYT_TEST_RECORD.

A JUnit report is written at exit, so a crash of the process would lose every result. With this record the
driver counts what ran, blames the test that was running, and starts again: tests already in it are not rerun.
Where pytest-xdist spreads tests over processes, each of them writes of its own, and the one that they belong to writes which
test ended one.
"""

import json
import os

import pytest

_path = os.environ.get("LAZYT_TEST_RECORD", "")
_limits: dict[str, float] = {}  # seconds that a test says it may take
_worst: dict[str, tuple[str, str]] = {}


_spreads = False  # over processes, which write


def pytest_configure(config):
    global _spreads
    _spreads = bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem):
    _write(id=crashitem, outcome="failed", why="ended its process", crashed=True)


def _write(**row):
    with open(_path, "a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")


def pytest_collection_modifyitems(config, items):
    for item in items:
        if (marker := item.get_closest_marker("timeout")) and marker.args:
            _limits[item.nodeid] = marker.args[0]
    if not os.path.exists(_path):
        return
    with open(_path, encoding="utf-8") as record:
        seen = {json.loads(line)["id"] for line in record}
    gone = [item for item in items if item.nodeid in seen]
    if gone:
        items[:] = [item for item in items if item.nodeid not in seen]
        config.hook.pytest_deselected(items=gone)


def pytest_collectreport(report):
    if report.failed:
        _write(id=report.nodeid or "collection", outcome="failed", why=str(report.longrepr)[-300:])


def _reason(failure) -> str:
    """Where it failed, and what the exception says: in the summary, when the output is long gone."""
    lines = str(failure).strip().splitlines() or [""]
    said = " ".join(getattr(getattr(failure, "reprcrash", None), "message", "").split())
    return f"{lines[-1]} {said}"[:600]


def pytest_runtest_logstart(nodeid):
    if _spreads:
        return
    _worst[nodeid] = ("passed", "")
    _write(id=nodeid, outcome="started", limit=_limits.get(nodeid, 0))


def pytest_runtest_logreport(report):
    if report.failed:
        _worst[report.nodeid] = ("failed", _reason(report.longrepr))
    elif report.skipped and _worst.get(report.nodeid, ("",))[0] != "failed":
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        _worst[report.nodeid] = ("skipped", str(why)[:200])


def pytest_runtest_logfinish(nodeid):
    if _spreads:
        return
    outcome, why = _worst.pop(nodeid, ("passed", ""))
    _write(id=nodeid, outcome=outcome, why=why)
