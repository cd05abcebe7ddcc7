"""The suite finds what it claims to find: each mutant breaks one rule, and every failure says which.

mutants.py RUNNER LIBRARY...    the sound plugin first (lazyt_reference.so), then lazyt_mutant_<n>.so
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# The rule that each -DMUTANT=n of plugin.c breaks.
BREAKS = {
    1: ("EVT-4", "a callback runs twice"),
    2: ("EVT-3", "wait ignores its deadline"),
    3: ("BUF-4", "from_host with COPY keeps the caller's pointer"),
    4: ("BUF-9", "an output is written past its end"),
    5: ("EXE-6", "a donated input is consumed before memory is found"),
    6: ("CAP-1", "answers differ between calls"),
    7: ("EVT-4", "on_ready of a ready event does not call"),
    8: ("STA-1", "an error object says OK"),
    9: ("BUF-5", "to_host out of range is not refused"),
    10: ("LIB-1", "a second symbol is exported"),
    11: ("EXE-12", "a result depends on earlier runs"),
    12: ("EXE-1", "compile keeps the block"),
    13: ("EXE-4", "an input that is not donated is written"),
    14: ("PRG-2", "an output's strides are ignored"),
    15: ("BUF-6", "to_host ignores errors of its waits"),
    16: ("STA-4", "an event's status is not released"),
    17: ("BUF-8", "done is called too early, and again"),
    18: ("C-3", "answers are written at the plugin's own stride"),
    19: ("EVT-1", "an event is ready no more"),
    20: ("DEV-8", "work of a synchronous device goes on after the call"),
}


def cases(runner: str) -> str:
    """All but the corpus, of which the plugin takes a few: its areas are named here."""
    listed = subprocess.run([runner, "--list"], check=True, capture_output=True, text=True).stdout
    suites = {line.split(".")[0].strip() for line in listed.splitlines() if "." in line} - {"Ops"}
    return ":".join(
        [*(f"{suite}.*" for suite in sorted(suites)), "Ops.contractions_*", "Ops.pointwise_*", "Ops.views_*"]
    )


def run(runner: str, library: str, filters: str) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [runner, library, "--json", str(report), "--artifacts", folder, "--timeout", "10"]
        command += ["--filter", filters]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if not report.exists():
            sys.exit(f"{library}: {done.stdout}{done.stderr}")
        return json.loads(report.read_text())["cases"]


def main() -> int:
    runner, sound, *mutants = sys.argv[1:]
    problems, filters = [], cases(runner)
    for library in [sound, *mutants]:
        bad = [case for case in run(runner, library, filters) if not case["good"]]
        number = re.search(r"mutant_(\d+)", library)
        if not number:
            problems += [f"the sound plugin: {c['result']} {c['case']}\n{c.get('detail', '')}" for c in bad]
            print(f"sound: {len(bad)} failures")
            continue
        rule, what = BREAKS[int(number.group(1))]
        print(
            f"mutant {number.group(1)} ({rule}: {what}): {', '.join(c['case'] for c in bad) or 'NOT FOUND'}"
        )
        if not bad:
            problems.append(f"mutant {number.group(1)}, {what}: no case finds it")
        for case in bad:
            cited = (
                re.findall(r"rule ([A-Z]+-\d+):", case.get("detail", ""))
                if case["result"] == "fail"
                else case["rules"]
            )
            if rule not in cited:
                problems.append(
                    f"mutant {number.group(1)}, {what}: {case['result']} of {case['case']} lacks {rule}\n"
                    + case.get("detail", "")
                )
    print("\n".join(problems))
    print(f"{len(mutants)} mutants, {len(problems)} problems")
    return 1 if problems or len(mutants) != len(BREAKS) else 0


if __name__ == "__main__":
    sys.exit(main())
