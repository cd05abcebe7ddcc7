"""What fuzzers of this folder share: options, and a loop of some seconds that tells which cases are wrong."""

import argparse
import faulthandler
import random
import time
from collections.abc import Callable

import torch

SECONDS_OF_A_CASE = 60


def parser(description: str) -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    out.add_argument("--threads", type=int, default=1)
    out.add_argument("--seconds", type=float, default=60)
    out.add_argument("--seed", type=int, default=0)
    return out


def begins(words: str) -> None:
    """Says which case runs: what died or hangs is the last."""
    print(f"\r{words}"[:150].ljust(150), end="", flush=True)


def run(args: argparse.Namespace, case: Callable[[random.Random], tuple[str, str] | None]) -> tuple[int, int]:
    """How many cases there were and how many were wrong. case: its words, and what is wrong with it (empty if
    nothing is); nothing if it drew none."""
    torch.set_num_threads(args.threads)
    r, end, done, wrong = random.Random(args.seed), time.monotonic() + args.seconds, 0, 0
    while time.monotonic() < end:
        faulthandler.dump_traceback_later(SECONDS_OF_A_CASE, exit=True)
        found = case(r)
        faulthandler.cancel_dump_traceback_later()
        done += found is not None
        if found and found[1]:
            wrong += 1
            print(f"\nwrong: {found[0]}: {found[1]}", flush=True)
    return done, wrong
