"""Common operators over rows of few and of many elements, and over dims in the middle, against eager CPU.

bench/ops.py has every operator over one square shape; what is slow elsewhere is slow for rows that fill
no vector, parts of rows, and lines that do not lie side by side. A row runs four calls, each with operands
of its own, as a step, with its launch; eager's and lazyt's in turns. Values are compared before they are
timed. Prints how many ratios are below --slowest, and which.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from typing import Any

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("--only", default="", help="operators, ';' between: those whose name contains one")
PARSER.add_argument("--dtype", default="float32")
PARSER.add_argument("--slowest", type=float, default=0.7, help="ratio below which a row is printed")
PARSER.add_argument("--rounds", type=int, default=12)
PARSER.add_argument("--threads", type=int, default=1)
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
os.environ.setdefault("LAZYT_BACKEND", "onednn")
os.environ["LAZYT_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(ARGS.threads)

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402

CALLS = 4  # of a step
SHAPES = [
    (65536, 3),
    (16384, 10),
    (16384, 16),
    (4096, 49),
    (4096, 64),
    (64, 64, 7, 7),
    (8, 32, 32, 32),
    (4, 8, 64, 64),
    (32, 128, 64),
    (512, 512),
    (3, 224, 224),
    (2, 50, 1000),
    (256, 1000),
]


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    n = x.shape[-1] // 2
    return x[..., :n], x[..., n : 2 * n]


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    # what does not lie as the result does
    "times a number a row": lambda x: x * x[..., :1],
    "times one row": lambda x: x * x[:1],
    "differences": lambda x: x[..., 1:] - x[..., :-1],
    "half times half": lambda x: torch.mul(*halves(x)),
    "turned halves": lambda x: torch.cat([-halves(x)[1], halves(x)[0]], -1),
    "cat of rows": lambda x: torch.cat([x, x], -1),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x], -1),
    "pad": lambda x: F.pad(x, (1, 1)),
    "every second": lambda x: x[..., ::2] + 0,
    "flip": lambda x: x.flip(-1),
    "transpose": lambda x: x.transpose(-1, -2).contiguous(),
    "transpose of the first": lambda x: x.transpose(0, 1).contiguous(),
    "repeat_interleave": lambda x: x.repeat_interleave(2, -1),
    # totals
    "sum": lambda x: x.sum(-1),
    "sum of columns": lambda x: x.sum(-2),
    "sum of the first": lambda x: x.sum(0),
    "mean of two": lambda x: x.mean((-2, -1)),
    "amax of the first": lambda x: x.amax(0),
    "max": lambda x: x.max(-1)[0],
    "argmax": lambda x: x.argmax(-1),
    "any": lambda x: (x > 0).any(-1),
    "var": lambda x: x.var(-1),
    "norm": lambda x: x.norm(dim=-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    # along lines
    "softmax": lambda x: x.softmax(-1),
    "softmax of the first": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "RMS norm": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "centred": lambda x: x - x.mean(0, keepdim=True),
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum of the first": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(-1)[0],
    "topk": lambda x: x.topk(min(3, x.shape[-1]), -1)[0],
    "gather": lambda x: x.gather(-1, torch.zeros_like(x, dtype=torch.long)),
    "tril": lambda x: x.tril(),
    # each element by itself
    "gelu": F.gelu,
    "silu": F.silu,
    "where": lambda x: torch.where(x > 0, x, -x),
    "clamp": lambda x: x.clamp(-1, 1),
}


def ratio(row: dict[str, Any]) -> float:
    return row["eager"] / row["lazyt"]


def main() -> None:
    torch.set_num_threads(ARGS.threads)
    dtype = getattr(torch, ARGS.dtype)
    print(common.header(backend=os.environ["LAZYT_BACKEND"], dtype=ARGS.dtype), flush=True)
    rows = []
    for name, f in OPERATORS.items():
        if not any(part in name for part in ARGS.only.split(";")):
            continue
        for shape in SHAPES:
            host = [torch.randn(shape).to(dtype) for _ in range(CALLS)]
            device = [x.to("lazyt") for x in host]
            torch.testing.assert_close(f(device[0]).cpu(), f(host[0]), rtol=2e-2, atol=2e-2)

            def step(operands: list[Tensor], f: Callable[[Tensor], Tensor] = f) -> None:
                kept = [f(x) for x in operands]
                lazyt.mark_step()
                lazyt.wait_device_ops()
                del kept

            step(device)
            times = common.interleaved(
                {
                    "eager": lambda host=host, f=f: common.timed(lambda: [f(x) for x in host] and None),
                    "lazyt": lambda device=device: common.timed(lambda: step(device)),
                },
                ARGS.rounds,
            )
            eager, ours = (min(times[k]) / CALLS for k in ("eager", "lazyt"))
            rows.append({"operator": name, "shape": shape, "eager": eager, "lazyt": ours})
    slow = sorted((r for r in rows if ratio(r) < ARGS.slowest), key=ratio)
    for r in slow:
        where = f"{ratio(r):5.2f} x  {r['operator']:24} {r['shape']!s:18}"
        print(f"{where} eager {r['eager'] * 1e6:8.1f} us, lazyt {r['lazyt'] * 1e6:8.1f}")
    if rows:
        median = statistics.median(map(ratio, rows))
        print(f"{len(rows)} rows, median {median:.2f} x eager, {len(slow)} below {ARGS.slowest}")
    common.write_json(ARGS.json, {"rows": rows})


if __name__ == "__main__":
    main()
