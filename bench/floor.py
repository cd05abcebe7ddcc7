"""How much faster than eager's run recording from Python can be at most.

A device whose kernels make a tensor object and do nothing else, against eager, over the chains of 1,000
elements of chains.py ("steps of 50" there: what lazyt takes, with the execution).
Needs `ninja -C build bench/floor.so`.
"""

import argparse
import os
import statistics
import sys
import types
from pathlib import Path

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("--build", type=Path, default=Path("build"))
PARSER.add_argument("--rounds", type=int, default=25)
PARSER.add_argument("--calls", type=int, default=5000, help="in a round")
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # the place is lazyt's

import common  # noqa: E402
import torch  # noqa: E402
from small_chains import cheap, dear  # noqa: E402


def main() -> int:
    path = ARGS.build / "bench" / "floor.so"
    if not path.exists():
        sys.exit(f"{path} is not built: ninja -C {ARGS.build} bench/floor.so")
    torch.ops.load_library(str(path.resolve()))
    torch.utils.rename_privateuse1_backend("nothing")
    torch._register_device_module(
        "nothing", types.SimpleNamespace(is_available=lambda: True, _is_in_bad_fork=lambda: False)
    )
    torch.set_num_threads(1)
    print(common.header())
    numbers = {}
    for name, f in (("10 cheap operators, 1,000", cheap), ("10 with tanh and exp, 1,000", dear)):
        operands = {
            "eager": [torch.randn(1000) for _ in range(2)],
            "floor": [torch.empty(1000, device="nothing") for _ in range(2)],
        }

        def calls(on, f=f):
            return common.timed(lambda: [f(*on) for _ in range(ARGS.calls)] and None) / ARGS.calls

        results = common.interleaved(
            {who: lambda on=on: calls(on) for who, on in operands.items()}, ARGS.rounds
        )
        ratio = statistics.median(e / v for e, v in zip(results["eager"], results["floor"], strict=True))
        us = {who: seconds * 1e6 for who, seconds in common.medians(results).items()}
        numbers[name] = {**us, "ratio": ratio}
        print(
            f"{name:<34}eager {us['eager']:>8.2f} us  floor {us['floor']:>8.2f} us  {ratio:>6.2f} x eager",
            flush=True,
        )
    common.write_json(ARGS.json, numbers)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
