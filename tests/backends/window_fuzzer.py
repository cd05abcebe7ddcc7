"""Random convolutions of one to three dims and their gradients, as near to double as the dtype allows.

Kernels larger than what they move over, strides past a line, groups, dilations, transposed ones: what
libraries have kernels of their own for, and get wrong. A case that does not end is named, too. Exit status: 1
if one was wrong.

    LAZYT_BACKEND=onednn python tests/backends/window_fuzzer.py --dtype float32 --threads 2 --seed 1
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import time

import torch
from test_windows_of_backends import check

SECONDS_OF_A_CASE = 30


def case(r: random.Random) -> tuple[tuple, tuple, bool, dict] | None:
    """Sizes of the input and the weights, whether it is transposed, and options. Nothing: no result has elements."""
    dims, transposed, groups = r.choice([1, 2, 2, 3, 3, 3]), r.random() < 0.3, r.choice([1, 1, 1, 2, 4, 16, 33])
    most = 4 if groups > 4 else 32
    channels = [groups * r.choice([n for n in (1, 2, 3, 4, 8, 16, 17, 24, 32) if n <= most]) for _ in range(2)]
    kernel = [r.choice([1, 1, 2, 3, 3, 4, 5, 7, 7, 9, 16]) for _ in range(dims)]
    stride = [r.choice([1, 1, 1, 2, 3, 4]) for _ in range(dims)]
    dilation = [r.choice([1, 1, 1, 2, 3]) for _ in range(dims)]
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    padding = [r.randint(0, r.choice([k // 2, over])) for k, over in zip(kernel, reach, strict=True)]
    size = [r.choice([1, 2, 3, 4, 5, 6, 7, 9, 12, 17, 28]) for _ in range(dims)]
    is_long = dims == 1 and r.random() < 0.3
    if is_long:
        groups, channels, size = 1, [r.choice([64, 70, 96]) for _ in range(2)], [r.choice([130, 200, 401])]
    axes = list(zip(size, stride, padding, reach, strict=True))
    if transposed:
        out = [(x - 1) * s - 2 * p + over + 1 for x, s, p, over in axes]
    else:
        out = [(x + 2 * p - over - 1) // s + 1 for x, s, p, over in axes]
    if min(out) < 1 or (max(out) > 40 and not is_long):
        return None
    weights = (
        (channels[0], channels[1] // groups, *kernel)
        if transposed
        else (channels[1], channels[0] // groups, *kernel)
    )
    options = {
        "stride": tuple(stride),
        "padding": tuple(padding),
        "dilation": tuple(dilation),
        "groups": groups,
    }
    return (r.choice([1, 1, 2, 3]), channels[0], *size), weights, transposed, options


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    r, end, done, wrong = random.Random(args.seed), time.monotonic() + args.seconds, 0, 0
    while time.monotonic() < end:
        made = case(r)
        if made is None:
            continue
        size, weights, transposed, options = made
        words = f"{size}, {weights}, {transposed}, **{options}"
        print(f"\r{done} {words}"[:150].ljust(150), end="", flush=True)  # what died or hangs is the last
        faulthandler.dump_traceback_later(SECONDS_OF_A_CASE, exit=True)
        try:
            check(getattr(torch, args.dtype), size, weights, transposed, **options)
        except AssertionError as error:
            wrong += 1
            print(f"\nwrong: {words}: {str(error).splitlines()[0]}", flush=True)
        faulthandler.cancel_dump_traceback_later()
        done += 1
    print(f"\r{done} convolutions, {wrong} wrong".ljust(150))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
