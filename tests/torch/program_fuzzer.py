"""Random PyTorch programs, run eagerly on the CPU and on lazyt: whatever a user can observe must be the same.

A program is a flat list of statements over named tensors; each is executed by itself, so one that raises
is an observation and the program goes on. Loops are unrolled: the same statements again, with small deviations,
which is all that a tape sees of a loop. A third run with LAZYT_REPLAY=0 must be bit-equal to the run that
replays tapes. Half of the batches have the backend refuse some operators, which then run on the host inside the step.
A failing program shrinks to the fewest statements that still fail the same way.

random_programs.py makes them, program_judge.py runs and compares them. An error about values (an index out of range)
ends a program: on lazyt it is raised, with eager's words, when a result is looked at.

    python tests/torch/program_fuzzer.py --programs 200 --seed 1
    python tests/torch/program_fuzzer.py --script 1:17        the program of seed 1, number 17, as a script

This process only forks: programs run in children, so a crash is a result like others.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import re
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import fuzzer_prelude
import torch
from program_judge import compare, run
from random_programs import make

PRELUDE = Path(fuzzer_prelude.__file__).read_text()

REFUSED = [[]] * 4 + [["aten::mul.Tensor", "aten::sum.dim_IntList", "aten::fill.Scalar", "aten::where.self"], ["aten::add.Tensor", "aten::index_put", "aten::gt.Scalar"],
                      ["aten::as_strided_scatter", "aten::sin", "aten::slice_scatter", "aten::cat"], ["aten::_to_copy", "aten::clamp", "aten::index.Tensor", "aten::max.dim"]]  # fmt: skip


def in_child(function, *args, replay: bool = True, refused: str = "", seconds: float = 60):
    """function(*args) in a fork that has never used the device. Its result, or ("crash", how)."""
    read, write = os.pipe()
    os.environ["LAZYT_REPLAY"] = "1" if replay else "0"  # read when the child first looks at the device
    os.environ["LAZYT_TS_REFUSE"] = refused
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read)
            torch.set_num_threads(1)
            warnings.simplefilter("ignore")
            signal.alarm(int(seconds))
            with os.fdopen(write, "wb") as out:
                function(out, *args)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    results = []
    with os.fdopen(read, "rb") as pipe:
        while True:
            try:
                results.append(pickle.load(pipe))
            except (EOFError, pickle.UnpicklingError):
                break
    _, status = os.waitpid(pid, 0)
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    how = "hang" if died == signal.SIGALRM else f"signal {died}" if died else f"exit {status}" if status else None
    return results, how


def make_job(out, seed: int, numbers: list[int]) -> None:
    """Then checks what it made."""
    for number in numbers:
        check_job(out, make(seed, number), False, number)


def run_job(out, programs: dict[int, list[str]]) -> None:
    for number, statements in programs.items():
        check_job(out, statements, True, number)


def check_job(out, statements: list[str], only_digest: bool = False, number: int = 0) -> None:
    pickle.dump({"start": number, "statements": statements}, out)
    out.flush()
    eager = None if only_digest else run(statements, "cpu")
    lazy = run(statements, "lazyt")
    result = {"number": number, "digest": lazy.digest(), "statements": statements}
    result["differences"] = [] if only_digest else compare(eager, lazy, statements)
    result["exact"] = eager is not None and all(lazy.tensors.get(n, {}).get("bytes") == d["bytes"] for n, d in eager.tensors.items())
    pickle.dump(result, out)
    out.flush()


def check(statements: list[str], refused: str, both: bool = True) -> list[tuple[str, str]]:
    """The differences that a program alone shows, in processes of its own."""
    results, died = in_child(check_job, statements, refused=refused)
    if died:
        return [("crash", died)]
    differences = list(results[-1]["differences"])
    if not both:
        return differences
    again, died = in_child(check_job, statements, True, refused=refused, replay=False)
    if died:
        return differences or [("crash", died)]
    differences += replay_differences(results[-1]["digest"], again[-1]["digest"])
    return differences


def replay_differences(a: dict, b: dict) -> list[tuple[str, str]]:
    names = [n for n in a.keys() | b.keys() if a.get(n) != b.get(n)]
    return [("replay", f"LAZYT_REPLAY=0 differs in {', '.join(sorted(names))}")] if names else []


def reduce(statements: list[str], fails, seconds: float) -> list[str]:
    """Delta debugging: the fewest statements that still fail."""
    end = time.monotonic() + seconds
    size = max(1, len(statements) // 2)
    while True:
        at, removed = len(statements), False
        while at > 0 and time.monotonic() < end:
            candidate = statements[: max(0, at - size)] + statements[at:]
            if candidate and fails(candidate):
                statements, removed = candidate, True
            at -= size
        if size == 1 and not removed or time.monotonic() >= end:
            return statements
        size = max(1, size // 2)


def reduce_job(out, statements: list[str], kind: str) -> None:
    """In one process: quick, but what it finds may need the tapes of the tries before."""

    def fails(candidate: list[str]) -> bool:
        return any(k == kind for k, _ in compare(run(candidate, "cpu"), run(candidate, "lazyt"), candidate))

    pickle.dump(reduce(statements, fails, 20), out)


def shrink(statements: list[str], kind: str, refused: str) -> list[str]:
    def fails(candidate: list[str]) -> bool:
        return any(k == kind for k, _ in check(candidate, refused, kind == "replay"))

    if kind not in ("crash", "replay"):
        quick, _ = in_child(reduce_job, statements, kind, refused=refused)
        if quick and fails(quick[0]):
            return quick[0]
    return reduce(statements, fails, 40)


def script(statements: list[str]) -> str:
    lines = [PRELUDE, "", 'for D in ("cpu", "lazyt"):', '    F, log = (lazyt.mark_step if D == "lazyt" else lambda: None), print', "    print(D)"]
    for s in statements:
        lines.append("    try:\n        " + s + "\n    except Exception as e:\n        print(type(e).__name__, e)")
    names = sorted({m[1] for s in statements if (m := re.match(r"(\w+) = ", s))})
    lines.append(f"    for name in {names}:\n        if name in globals():\n            print(name, globals()[name])")
    return "\n".join(lines)


def fuzz(seed: int, start: int, programs: int, batch: int, seconds: float | None, shrinking: bool = True, most: int = 20, say=print, patience: float = 1) -> dict:
    begin = last_said = time.monotonic()
    report: dict = {"seed": seed, "programs": 0, "exact": 0, "failures": []}
    at, programs = start, start + programs
    while at < programs and (seconds is None or time.monotonic() - begin < seconds) and len(report["failures"]) < most:
        numbers = list(range(at, min(at + batch, programs)))
        refused = ",".join(random.Random(f"{seed}:{at}").choice(REFUSED))
        results, died = in_child(make_job, seed, numbers, refused=refused, seconds=patience * (60 + 2 * batch))
        done = {r["number"]: r for r in results if "number" in r}
        if died:
            started = [r for r in results if "start" in r]
            last = started[-1] if started else {"start": at, "statements": []}
            failure(report, seed, last["start"], last["statements"], refused, [("crash", died)], shrinking, say)
            numbers = [n for n in numbers if n <= last["start"]]
        else:
            same = {n: r["statements"] for n, r in done.items()}
            others, died = in_child(run_job, same, refused=refused, replay=False, seconds=patience * (60 + 2 * batch))
            if died:
                last = [r for r in others if "start" in r][-1]
                failure(report, seed, last["start"], last["statements"], refused, [("crash", died)], shrinking, say)
            for r in others:
                if "number" in r and not done[r["number"]]["differences"]:
                    done[r["number"]]["differences"] = replay_differences(done[r["number"]]["digest"], r["digest"])
        for r in done.values():
            report["exact"] += r["exact"]
            if r["differences"]:
                failure(report, seed, r["number"], r["statements"], refused, r["differences"], shrinking, say)
        at = numbers[-1] + 1
        report["programs"] = at - start
        if time.monotonic() - last_said > 60:
            last_said = time.monotonic()
            say(f"[{last_said - begin:.0f} s] {at} programs, {report['exact']} bit-equal, {len(report['failures'])} failures", flush=True)
    report["seconds"] = round(time.monotonic() - begin, 1)
    return report


def failure(report: dict, seed: int, number: int, statements: list[str], refused: str, differences, shrinking: bool, say) -> None:
    kind = differences[0][0]
    alone = check(statements, refused, kind == "replay") if shrinking else differences
    found = {"program": f"{seed}:{number}", "refused": refused, "kind": kind, "what": differences[0][1], "alone": any(k == kind for k, _ in alone)}
    if found["alone"] and refused and any(k == kind for k, _ in check(statements, "", kind == "replay")):
        found["refused"] = refused = ""
    if found["alone"] and shrinking:
        statements = shrink(statements, kind, refused)
        found["what"] = next(t for k, t in check(statements, refused, kind == "replay") + differences if k == kind)
    found["statements"] = statements
    report["failures"].append(found)
    say(f"--- program {found['program']}: {kind}: {found['what']}" + ("" if found["alone"] else " (only after other programs)"))
    if refused:
        say(f"    with LAZYT_TS_REFUSE={refused}")
    say("\n".join("    " + s for s in statements), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--start", type=int, default=0, help="number of the first program: goes on with a run that ended")
    parser.add_argument("--seconds", type=float, default=None, help="stop after this time")
    parser.add_argument("--batch", type=int, default=20, help="programs in one process, sharing its tapes")
    parser.add_argument("--most", type=int, default=20, help="stop after so many failures")
    parser.add_argument("--patience", type=float, default=1, help="times the seconds after which a batch counts as hung: for a machine that others use")
    parser.add_argument("--json", action="store_true", help="the report as JSON on the last line")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--program", metavar="SEED:NUMBER", help="check, shrink and print one program")
    parser.add_argument("--refuse", default="", help="operators that the backend refuses, for --program")
    parser.add_argument("--script", metavar="SEED:NUMBER", help="print one program as a script")
    args = parser.parse_args()
    if one := args.script or args.program:
        seed, number = map(int, one.split(":"))
        results, _ = in_child(lambda out: pickle.dump(make(seed, number), out))
        statements = results[0]
        if args.program and (differences := check(statements, args.refuse)):
            print(differences)
            statements = shrink(statements, differences[0][0], args.refuse)
            print(check(statements, args.refuse))
        print(script(statements) if args.script else "\n".join(statements))
        return 0
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 30)
    say = (lambda *a, **k: print(*a, file=sys.stderr, **k)) if args.json else print
    say(f"seed {seed}")
    report = fuzz(seed, args.start, args.programs, args.batch, args.seconds, not args.no_shrink, args.most, say, args.patience)
    say(f"{report['programs']} programs, {report['exact']} bit-equal, {len(report['failures'])} failures, {report['seconds']} s")
    if args.json:
        print(json.dumps(report))
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
