"""Random convolutions of one to three dims and their gradients, as near to double as the dtype allows.

Kernels larger than what they move over, strides past a line, groups, dilations, transposed ones: what
libraries have kernels of their own for, and get wrong. A case that does not end is named, too. Exit status: 1
if one was wrong.

    LAZYT_BACKEND=onednn python tests/backends/window_fuzzer.py --dtype float32 --threads 2 --seed 1
"""

from __future__ import annotations

import math
import random
import sys

import fuzzing
import torch
from test_windows_of_backends import check


def case(r: random.Random) -> tuple[tuple, tuple, bool, dict] | None:
    """Sizes of the input and the weights, whether it is transposed, and options. Nothing: no result has elements."""
    dims, transposed, groups = (
        r.choice([1, 2, 2, 3, 3, 3]),
        r.random() < 0.3,
        r.choice([1, 1, 1, 2, 4, 16, 33]),
    )
    most = 4 if groups > 4 else 32
    channels = [
        groups * r.choice([n for n in (1, 2, 3, 4, 8, 16, 17, 24, 32) if n <= most]) for _ in range(2)
    ]
    kernel = [r.choice([1, 1, 2, 3, 3, 4, 5, 7, 7, 9, 16]) for _ in range(dims)]
    stride = [r.choice([1, 1, 1, 2, 3, 4]) for _ in range(dims)]
    dilation = [r.choice([1, 1, 1, 2, 3, 6]) for _ in range(dims)]
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    padding = [r.randint(0, r.choice([k // 2, over])) for k, over in zip(kernel, reach, strict=True)]
    size = [r.choice([1, 2, 3, 4, 5, 6, 7, 9, 12, 17, 28, 33, 56]) for _ in range(dims)]
    is_long = dims == 1 and r.random() < 0.3
    if is_long:
        groups, channels, size = 1, [r.choice([64, 70, 96]) for _ in range(2)], [r.choice([130, 200, 401])]
    axes = list(zip(size, stride, padding, reach, strict=True))
    if transposed:
        out = [(x - 1) * s - 2 * p + over + 1 for x, s, p, over in axes]
    else:
        out = [(x + 2 * p - over - 1) // s + 1 for x, s, p, over in axes]
    products = math.prod(out + kernel + channels) // groups
    if min(out) < 1 or products > 100_000_000 or math.prod(size) * channels[0] > 500_000:
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


def checked(r: random.Random, dtype: torch.dtype) -> tuple[str, str] | None:
    made = case(r)
    if made is None:
        return None
    size, weights, transposed, options = made
    words = f"{size}, {weights}, {transposed}, **{options}"
    fuzzing.begins(words)
    try:
        check(dtype, size, weights, transposed, **options)
    except AssertionError as error:
        return words, str(error).splitlines()[0]
    return words, ""


def main() -> int:
    parser = fuzzing.parser(__doc__)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16", "float16"])
    args = parser.parse_args()
    done, wrong = fuzzing.run(args, lambda r: checked(r, getattr(torch, args.dtype)))
    print(f"\r{done} convolutions, {wrong} wrong".ljust(150))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
