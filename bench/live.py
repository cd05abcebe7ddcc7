"""Many live tensors: memory of each beyond its data, and mark_step with ten and with 100,000 of them."""

import argparse
import os
import statistics
import time

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("--tensors", type=int, default=100_000)
PARSER.add_argument("--rounds", type=int, default=51)
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
os.environ["LAZYT_BACKEND"] = "null"

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bytes_per_tensor(device: str) -> float:
    """Of results of operators on one element, whose data is next to nothing."""
    one = torch.ones(1, device=device)
    kept = [one + 1 for _ in range(1000)]
    if device == "lazyt":
        lazyt.mark_step(wait=True)
    before = resident()
    for _ in range(ARGS.tensors // 1000):
        kept += [one + 1 for _ in range(1000)]
        if device == "lazyt":
            lazyt.mark_step(wait=True)
    return (resident() - before) / ARGS.tensors


def mark_step_us(live: int) -> float:
    one = torch.ones(1, device="lazyt")
    kept = []
    while len(kept) < live:
        kept += [one + 1 for _ in range(min(1000, live - len(kept)))]
        lazyt.mark_step(wait=True)
    times = []
    for _ in range(ARGS.rounds):
        _ = one * 2
        begin = time.thread_time()
        lazyt.mark_step()
        times.append(time.thread_time() - begin)
        lazyt.mark_step(wait=True)
    return statistics.median(times) * 1e6


def main() -> None:
    print(common.header(backend=lazyt.backend()["name"]))
    result = {device: bytes_per_tensor(device) for device in ("cpu", "lazyt")}
    for device, n in result.items():
        print(f"{device:<8} {n:>8.0f} bytes per live tensor of one element")
    for live in (10, ARGS.tensors, 10, ARGS.tensors):
        us = mark_step_us(live)
        result[f"mark_step with {live} live, us"] = us
        print(f"mark_step with {live:>7,} live tensors: {us:.1f} us")
    common.write_json(ARGS.json, result)


if __name__ == "__main__":
    main()
