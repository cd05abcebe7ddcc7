"""Matrix products and ResNet-18's convolutions through the whole path, recording included, as fractions of what the
processor's multiply-adds reach at most; beside them eager's and, of convolutions, oneDNN's alone.

All by processor time and on one thread, in turns within one process, each over as many operands: what other programs
take of the caches still counts, so judge it where nothing else runs. Multiply-adds with padding are not counted; bf16's
peak is that of tiles where the processor has them. The bench fails where a product, from 256^3 on, or a convolution for
which oneDNN alone reaches it, is below --least. Needs `ninja -C build bench/limits.so`.
"""

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("--build", type=Path, default=Path("build"))
PARSER.add_argument("--only", default="", help="rows, ';' between: those whose name contains one of these")
PARSER.add_argument("--rounds", type=int, default=9)
PARSER.add_argument(
    "--seconds", type=float, default=0.1, help="about how long each candidate runs in a round"
)
PARSER.add_argument("--least", type=float, default=0.85, help="fraction of the peak that is asked for")
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
os.environ.setdefault("LAZYT_BACKEND", "onednn")
os.environ["LAZYT_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

IN_A_STEP = 8  # products, of operands of their own


class Row:
    """f(operand, weight), which does so many operations."""

    def __init__(
        self,
        f: Callable[[Tensor, Tensor], Tensor],
        operand: Callable[[], Tensor],
        weight: Tensor,
        operations: float,
        convolution: tuple[int, ...] | None = None,
    ):
        self.f, self.operations, self.convolution = f, operations, convolution
        self.peak = "bf16" if weight.dtype is torch.bfloat16 else "f32"
        operands = [operand() for _ in range(IN_A_STEP)]
        self.host, self.device = (operands, weight), ([t.to("lazyt") for t in operands], weight.to("lazyt"))
        a, b = self.f(operands[0], weight), self.f(self.device[0][0], self.device[1]).cpu()
        torch.testing.assert_close(a, b, rtol=2e-2, atol=1e-2 if self.peak == "bf16" else 1e-3)

    def step(self, lazy: bool) -> None:
        operands, weight = self.device if lazy else self.host
        with torch.no_grad():
            results = [self.f(t, weight) for t in operands]
        if lazy:
            lazyt.mark_step()
        del results

    def rate(self, lazy: bool) -> Callable[[], float]:
        """What runs it for a while, and gives operations a second."""

        def some(steps: int) -> float:
            begin = time.process_time()
            for _ in range(steps):
                self.step(lazy)
            if lazy:
                lazyt.wait_device_ops()
            return self.operations * IN_A_STEP * steps / (time.process_time() - begin)

        some(2)
        steps = max(1, round(ARGS.seconds * some(1) / (self.operations * IN_A_STEP)))
        return lambda: some(steps)


def product(n: int, dtype: torch.dtype) -> Row:
    return Row(
        torch.mm, lambda: torch.randn(n, n, dtype=dtype) * n**-0.5, torch.randn(n, n, dtype=dtype), 2.0 * n**3
    )


def convolution(batch: int, inputs: int, size: int, outputs: int, kernel: int, stride: int) -> Row:
    padding = kernel // 2
    out = (size + 2 * padding - kernel) // stride + 1
    # Taps that fall on pixels, along one axis.
    taps = sum(0 <= y * stride - padding + k < size for y in range(out) for k in range(kernel))
    return Row(
        lambda x, w: functional.conv2d(x, w, None, stride, padding),
        lambda: torch.randn(batch, inputs, size, size).to(memory_format=torch.channels_last),
        torch.randn(outputs, inputs, kernel, kernel) * (inputs * kernel**2) ** -0.5,
        2.0 * batch * inputs * outputs * taps**2,
        (batch, inputs, size, outputs, kernel, stride, padding),
    )


def rows() -> dict[str, Callable[[], Row]]:
    all_rows: dict[str, Callable[[], Row]] = {}
    for dtype in (torch.float32, torch.bfloat16):
        for n in (128, 256, 512, 1024):
            all_rows[f"{str(dtype)[6:]} {n}^3"] = lambda n=n, dtype=dtype: product(n, dtype)
    for image, batch in ((64, 16), (224, 2)):
        size = image // 4
        shapes = [(3, image, 64, 7, 2), (64, size, 64, 3, 1)]
        for width in (128, 256, 512):
            shapes += [
                (width // 2, size, width, 3, 2),
                (width // 2, size, width, 1, 2),
                (width, size // 2, width, 3, 1),
            ]
            size //= 2
        for shape in shapes:
            inputs, side, outputs, kernel, stride = shape
            name = f"{batch} x {side}x{side}, {inputs} to {outputs}, {kernel}x{kernel}{'/2' if stride == 2 else ''}"
            all_rows[name] = lambda batch=batch, shape=shape: convolution(batch, *shape)
    return all_rows


def limits() -> ctypes.CDLL:
    path = ARGS.build / "bench" / "limits.so"
    if not path.exists():
        sys.exit(f"{path} is not built: ninja -C {ARGS.build} bench/limits.so")
    library = ctypes.CDLL(str(path.resolve()))
    for name in ("limit_f32", "limit_bf16", "onednn_convolution"):
        getattr(library, name).restype = ctypes.c_double
    return library


def main() -> int:
    torch.set_num_threads(1)
    print(common.header(backend=lazyt.backend()["name"], load=round(os.getloadavg()[0], 1)))
    print(
        f"medians of {ARGS.rounds} rounds, as fractions of the peak measured in the same rounds; by processor time"
    )
    print(f"{'':<36}{'peak GFLOP/s':>13}{'eager':>8}{'oneDNN':>8}{'lazyt':>8}")
    library, failed, results = limits(), 0, {}
    seconds = ctypes.c_double(ARGS.seconds)
    for name, make in rows().items():
        if not any(part in name for part in ARGS.only.split(";")):
            continue
        row = make()
        runs = {
            "peak": lambda: getattr(library, f"limit_{row.peak}")(seconds),
            "eager": row.rate(False),
            "lazyt": row.rate(True),
        }  # noqa: B023
        if shape := row.convolution:
            sizes = [ctypes.c_int64(n) for n in (IN_A_STEP, *shape)]
            runs["onednn"] = lambda: row.operations / library.onednn_convolution(seconds, *sizes)  # noqa: B023
        measured = common.interleaved(runs, ARGS.rounds)
        if not measured["peak"][0]:
            print(f"{name:<36}  this processor has no such multiply-adds")
            continue
        share = {
            who: common.medians({"": [a / b for a, b in zip(rates, measured["peak"], strict=True)]})[""]
            for who, rates in measured.items()
        }
        peak = common.medians(measured)["peak"]
        asked = share["onednn"] >= ARGS.least if row.convolution else "128" not in name
        low = asked and share["lazyt"] < ARGS.least
        failed += low
        results[name] = {"peak": peak, **share}
        alone = f"{share['onednn']:.2f}" if row.convolution else ""
        print(
            f"{name:<36}{peak / 1e9:>13.0f}{share['eager']:>8.2f}{alone:>8}{share['lazyt']:>8.2f}"
            f"{'  too low' if low else '' if asked else '  not asked'}",
            flush=True,
        )
    common.write_json(ARGS.json, {"rows": results})
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
