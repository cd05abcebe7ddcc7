"""Loops over the places of a sequence, as users write them, against eager at two lengths, one thread.

Where each step makes a gradient of the whole sequence, eager takes time in proportion to the square of the
length.
"""

import argparse
import os
import time
from collections.abc import Callable

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("--only", default="", help="rows, ';' between: those whose name contains one of these")
PARSER.add_argument("--rounds", type=int, default=9)
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
os.environ["LAZYT_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import common  # noqa: E402

# isort: split
import lazyt  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

BATCH, WIDTH, LENGTHS = 16, 256, (32, 128)


def reads(x: Tensor, w: Tensor) -> Tensor:
    """A recurrence; the gradients of x's slices are added up."""
    h = torch.zeros_like(w)
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] * w + h)
    return h


def reads_neighbours(x: Tensor, w: Tensor) -> Tensor:
    h = torch.zeros_like(w)
    for t in range(1, x.shape[1]):
        h = torch.tanh((x[:, t] - x[:, t - 1]) * w + h)
    return h


def fills(x: Tensor, w: Tensor) -> Tensor:
    """Results are written to their places."""
    y, h = torch.zeros_like(x), torch.zeros_like(w)
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] * w + h)
        y[:, t] = h
    return y


def fills_from_two_before(x: Tensor, w: Tensor) -> Tensor:
    y = x * 1
    for t in range(2, x.shape[1]):
        y[:, t] = y[:, t - 1] * 0.5 + y[:, t - 2] * w
    return y


def adds(x: Tensor, w: Tensor) -> Tensor:
    y = x * 1
    for t in range(x.shape[1]):
        y[:, t] += w
    return y


def grows(x: Tensor, w: Tensor) -> Tensor:
    y = x[:, :1] * w[:, None]
    for t in range(1, x.shape[1]):
        y = torch.cat([y, y[:, -1:] * x[:, t : t + 1]], 1)
    return y


def stepper(
    function: Callable[[Tensor, Tensor], Tensor], length: int, train: bool, device: str
) -> Callable[[], float]:
    torch.manual_seed(0)
    x = torch.randn(BATCH, length, WIDTH).to(device).requires_grad_(train)
    w = (torch.randn(BATCH, WIDTH) * 0.1).to(device)

    def step() -> float:
        begin = time.perf_counter()
        x.grad = None
        result = function(x, w).square().mean()  # wanted: what nobody holds is not computed
        if train:
            result.backward()
        if device == "lazyt":
            lazyt.mark_step()
            lazyt.wait_device_ops()
        return time.perf_counter() - begin

    for _ in range(4):
        step()
    return step


def main() -> None:
    torch.set_num_threads(1)
    print(common.header(backend=lazyt.backend()["name"]))
    results = {}
    for function in (reads, reads_neighbours, fills, fills_from_two_before, adds, grows):
        for train in (False, True):
            name = f"{function.__name__}, {'training' if train else 'inference'}"
            if not any(part in name for part in ARGS.only.split(";")):
                continue
            row = []
            for length in LENGTHS:
                steps = {
                    who: stepper(function, length, train, device)
                    for who, device in (("eager", "cpu"), ("lazyt", "lazyt"))
                }
                row.append(common.medians(common.interleaved(steps, ARGS.rounds)))
            results[name] = dict(zip(LENGTHS, row, strict=True))
            numbers = "".join(
                f"   {n:>4}: {e * 1e3:>7.2f} {z * 1e3:>7.2f} ms, {e / z:>5.2f} x"
                for n, e, z in ((n, m["eager"], m["lazyt"]) for n, m in results[name].items())
            )
            print(f"{name:<30}{numbers}", flush=True)
    common.write_json(ARGS.json, results)


if __name__ == "__main__":
    main()
