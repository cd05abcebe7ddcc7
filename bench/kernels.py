"""Into how many launches the CUDA plugin cuts a step of each model of models.py: kernels, library calls, copies.

Needs no GPU: with --fake FOLDER (a build's tests/cuda/fake) driver and compiler are stand-ins on the host, and the steps
run there, on small data. Losses must be eager's and no operator may run on the host, or the bench fails. With --compile
also what torch.compile's code of the same model, forward and backward without the optimizer, for the CPU, calls; beside
it stands what a step without the optimizer launches. Its code has one call for both gradients of a convolution, which are
two launches in any library.
"""

import argparse
import collections
import json
import os
import re
import sys
import tempfile
from pathlib import Path

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("--fake", metavar="FOLDER", type=Path, help="stand-ins for the driver and NVRTC")
PARSER.add_argument("--libraries", action="store_true", help="with --fake: stand-ins for cuBLASLt and cuDNN, too")
PARSER.add_argument("--compile", action="store_true", help="torch.compile too (10-100 s a row)")
PARSER.add_argument("--only", default="", help="rows, ';' between: those whose name contains one of these")
PARSER.add_argument("--names", action="store_true", help="how often each kernel runs, too")
PARSER.add_argument("--dump", metavar="FOLDER", type=Path, help="keep the texts of kernels and programs here")
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()

DUMP = Path(ARGS.dump or os.environ.get("LAZYT_CUDA_DUMP") or tempfile.mkdtemp(prefix="lazyt_kernels_"))
DUMP.mkdir(parents=True, exist_ok=True)
os.environ.update(LAZYT_BACKEND="cuda", LAZYT_CUDA_DUMP=str(DUMP))
if ARGS.fake:
    names = {"DRIVER": "cuda", "NVRTC": "nvrtc"}
    if ARGS.libraries:
        names |= {"CUBLASLT": "cublaslt", "CUDNN": "cudnn"}
    else:
        os.environ["LAZYT_CUDA_LIBRARIES"] = "off"  # the real cuBLASLt knows no stand-ins
    for option, name in names.items():
        os.environ[f"LAZYT_CUDA_{option}"] = str((ARGS.fake / f"lazyt_fake_{name}.so").resolve())
sys.argv = [sys.argv[0]]  # models.py reads its own

import lazyt  # noqa: E402
import models  # noqa: E402
import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402


def small(data):
    """The first samples of a row's data; pictures of 32 x 32."""

    def some():
        first, *rest = data()
        if first.dim() == 4 and first.shape[1] == 3:
            first = first[:, :, :32, :32]
        at = 1 if first.shape[0] == 64 and first.dim() == 3 else 0  # of sequences the second dim is the sample
        cut = first.narrow(at, 0, min(8 if first.dim() == 4 else 2, first.shape[at])).contiguous()
        return [cut, *(t[: cut.shape[at]] for t in rest)]

    return some


def programs() -> dict[str, list[str]]:
    """The steps of each program that was compiled, in that order."""
    paths = sorted(DUMP.glob("program_*.txt"), key=lambda p: int(p.stem.rsplit("_", 1)[1]))
    return {p.name: [line.split("\t")[0] for line in p.read_text().splitlines()] for p in paths}


class Operators(TorchDispatchMode):
    """Counts the operators that compute, below autograd."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


class NoOptimizer(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        pass


def launches(row: models.Row) -> collections.Counter:
    """Of the steady step: of the program that was compiled last."""
    step = row.stepper("lazyt")
    for _ in range(3):
        result = step()
        lazyt.mark_step()
        del result
    lazyt.wait_device_ops()
    steady = list(programs().values())[-1]
    return collections.Counter(s.removeprefix("kernel ").rsplit("_", 1)[0] if s.startswith("kernel ") else s.split()[0] for s in steady)


def calls_of_compiled(row: models.Row) -> int:
    """Kernels and library calls in the code that torch.compile makes of the model, forward and backward. Code that runs
    several times in a step, as a block's where something between them is not compiled, counts once."""
    from torch._inductor.utils import run_and_get_code

    _, codes = run_and_get_code(row.stepper("cpu", compiled=True))
    body = "\n".join(code.split("def call(", 1)[-1] for code in codes)
    return len(re.findall(r"\b(?:cpp_fused\w*|extern_kernels\.\w+|torch\.ops\.[\w.]+)\(", body))


def main() -> int:
    print("launches of a step (training: with the optimizer, and all of them without it); eager: operators but views, each a launch or more")
    print(f"{'':<34}{'kernels':>9}{'library':>9}{'copies':>8}{'without':>9}{'compile':>9}{'eager':>8}{'islands':>9}  losses")
    results, failed = {}, 0
    for name, row in models.ROWS.items():
        if not any(part in name for part in ARGS.only.split(";")):
            continue
        row.data = small(row.data)
        lazyt.metrics.reset()
        count, optimizer = launches(row), row.optimizer
        row.optimizer = NoOptimizer
        without = sum((launches(row) if row.loss else count).values())
        row.optimizer = optimizer
        difference = models.differences(row)
        hosts = {k: n for k, n in lazyt.metrics.fallbacks().items() if k != "aten::_local_scalar_dense"}  # a read
        failed += bool(difference) or bool(hosts)
        eager = row.stepper("cpu")
        eager()
        with Operators() as seen:
            eager()
        library, copies = count.pop("cublasLt", 0) + count.pop("cudnn", 0), count.pop("copy", 0)
        kernels = sum(count.values())
        compiled = calls_of_compiled(row) if ARGS.compile else None
        results[name] = {"kernels": kernels, "library": library, "copies": copies, "without_optimizer": without, "eager": seen.count, "compile": compiled,
                         "islands": hosts, "difference": difference, "names": dict(count)}
        print(f"{name:<34}{kernels:>9}{library:>9}{copies:>8}{without:>9}{compiled if compiled is not None else '':>9}{seen.count:>8}"
              f"{len(hosts):>9}  {difference or 'equal'}", flush=True)
        for host, n in hosts.items():
            print(f"    on the host: {host} x {n}")
        if ARGS.names:
            for kernel, n in count.most_common():
                print(f"    {n:>5}  {kernel}")
    if ARGS.json:
        Path(ARGS.json).write_text(json.dumps(results, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
