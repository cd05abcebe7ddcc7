"""Chains of pointwise operators and single passes over rows, on a backend of the CPU (onednn unless LAZYT_BACKEND says):
what fusing them gives. A chain of cheap operators is held against one vector add over the same arrays, its limit.

"execution" is the executor's own time, with many chains in a step; "step" is a whole step of one chain, from Python, with
its launch; "steps of 50" the time of a chain where 50 of them are a step.
"""

import argparse
import os
import statistics
from collections.abc import Callable

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("--only", default="", help="rows whose name contains this")
PARSER.add_argument("--rounds", type=int, default=15)
PARSER.add_argument("--seconds", type=float, default=0.05, help="about how long each candidate runs in a round")
PARSER.add_argument("--compile", action="store_true", help="torch.compile too, in rows with recording")
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
os.environ.setdefault("LAZYT_BACKEND", "onednn")
os.environ["LAZYT_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402
from small_chains import cheap, dear  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

Candidates = dict[str, Callable[[int], float]]  # a name's: seconds of a call, of so many

LARGE, SMALL, MANY = 1_000_000, 1_000, 50
HUGE, FEW = 16 << 20, 4  # elements: more than caches hold


def gate(gradient: Tensor, x: Tensor) -> Tensor:
    """hardtanh's; a kernel reads the gradient last."""
    return torch.ops.aten.hardtanh_backward(gradient, x, -1, 1)


def steps(f: Callable[..., Tensor], placed: list[list[Tensor]], count: int, end: Callable[[], None]) -> None:
    """count steps, each of a call of f for each of the operands."""
    for _ in range(count):
        kept = [f(*operands) for operands in placed]
        end()
        del kept
    lazyt.wait_device_ops()


def cat_into(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    return torch.cat([a, b], 1, out=out)


def turn_into(a: Tensor, out: Tensor) -> Tensor:
    return out.copy_(a.t())


class Row:
    """f of the operands, a call at a time; `in_a_step` calls are a step."""

    def __init__(self, f: Callable[..., Tensor], operands: list[Tensor]):
        self.f, self.host = f, operands
        self.device = [t.to("lazyt") for t in operands]

    def eager(self, calls: int) -> float:
        return common.timed(lambda: [self.f(*self.host) for _ in range(calls)] and None) / calls

    def lazy(self, calls: int, in_a_step: int = 1) -> float:
        placed = [self.device] * in_a_step
        return common.timed(lambda: steps(self.f, placed, calls // in_a_step, lazyt.mark_step)) / calls

    def executed(self, calls: int) -> float:
        """Equal calls would be one: each has a first operand of its own."""
        own = [[t.clone() for t in self.device[:1]] + self.device[1:] for _ in range(MANY)]
        lazyt.wait_device_ops()

        def step() -> None:
            kept = [self.f(*operands) for operands in own]
            lazyt.mark_step()
            lazyt.wait_device_ops()
            del kept

        step(), step()
        lazyt.metrics.reset()
        for _ in range(max(1, calls // MANY)):
            step()
        count, seconds, _ = lazyt.metrics.metric_data("ExecuteTime") or (1, 0.0, [])
        return seconds / count / MANY


class Several:
    """Calls of f, each with operands of its own, as a step: more than lies in a cache."""

    def __init__(self, f: Callable[..., Tensor], operands: int, calls: int = 4):
        self.f = f
        self.host = [[torch.randn(LARGE) for _ in range(operands)] for _ in range(calls)]
        self.device = [[t.to("lazyt") for t in call] for call in self.host]

    def run(self, placed: list[list[Tensor]], calls: int, end: Callable[[], None]) -> float:
        count = calls // len(placed)
        return common.timed(lambda: steps(self.f, placed, count, end)) / (count * len(placed))

    def candidates(self) -> Candidates:
        return {
            "eager": lambda calls: self.run(self.host, calls, lambda: None),
            "lazyt": lambda calls: self.run(self.device, calls, lazyt.mark_step),
        }


def compared(name: str, candidates: Candidates, many: int = MANY) -> dict[str, float]:
    """Medians in us of a multiple of `many` calls, and against the first the median of the ratios of rounds."""
    counts = {}
    for key, candidate in candidates.items():
        candidate(many)
        counts[key] = max(many, int(ARGS.seconds / candidate(many)) // many * many)
    results = common.interleaved({k: lambda k=k: candidates[k](counts[k]) for k in candidates}, ARGS.rounds)
    base = next(iter(candidates))
    ratio = {
        k: statistics.median(e / v for e, v in zip(results[base], results[k], strict=True)) for k in candidates
    }
    for key, seconds in common.medians(results).items():
        versus = "" if key == base else f"{ratio[key]:8.2f} x {base}"
        print(f"{name:<34}{key:<22}{seconds * 1e6:>10.2f} us{versus}", flush=True)
    return {key: ratio[key] for key in candidates if key != base}


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(common.header(backend=lazyt.backend()["name"]))
    numbers: dict[str, dict[str, float]] = {}

    def row(name: str, candidates: Callable[[], Candidates], many: int = MANY) -> None:
        if ARGS.only in name:
            numbers[name] = compared(name, candidates(), many)

    def large_cheap() -> Candidates:
        a, b = torch.randn(LARGE), torch.randn(LARGE)
        sums = torch.empty(LARGE)
        add = Row(lambda a, b: torch.add(a, b, out=sums), [a, b])
        chain = Row(cheap, [a, b])
        return {"one eager add": add.eager, "eager": chain.eager, "lazyt": chain.lazy}

    def against_eager(f: Callable[..., Tensor], *operands: Tensor) -> Candidates:
        chain = Row(f, list(operands))
        return {"eager": chain.eager, "lazyt": chain.lazy}

    def small(f: Callable[..., Tensor]) -> Candidates:
        operands = [torch.randn(SMALL), torch.randn(SMALL)]
        chain = Row(f, operands)
        return {
            "eager": chain.eager,
            **({"torch.compile": Row(torch.compile(f), operands).eager} if ARGS.compile else {}),
            "execution": chain.executed,
            "step": chain.lazy,
            f"steps of {MANY}": lambda calls: chain.lazy(calls, MANY),
        }

    def huge(f: Callable[..., Tensor], into: Callable[..., Tensor], *operands: Tensor) -> Candidates:
        """Eager writes to memory that it has: fresh pages take it three times as long."""
        made = f(*operands)
        eager = Row(lambda *operands: into(*operands, out=made), list(operands))
        return {"eager, out=": eager.eager, "lazyt": Row(f, list(operands)).lazy}

    x, weight = torch.randn(4096, 1024), torch.randn(1024)
    row("10 cheap operators, 1M", large_cheap)
    row("10 with tanh and exp, 1M", lambda: against_eager(dear, torch.randn(LARGE), torch.randn(LARGE)))
    row("add, 4 of 1M", lambda: Several(torch.add, 2).candidates())
    row("abs, 4 of 1M", lambda: Several(torch.abs, 1).candidates())
    row("hardsigmoid, 4 of 1M", lambda: Several(functional.hardsigmoid, 1).candidates())
    row("gate, 4 of 1M", lambda: Several(gate, 2).candidates())
    row("10 cheap operators, 1,000", lambda: small(cheap))
    row("10 with tanh and exp, 1,000", lambda: small(dear))
    row("softmax 4096x1024", lambda: against_eager(lambda x: x.softmax(1), x))
    row("layer norm 4096x1024", lambda: against_eager(lambda x, w: functional.layer_norm(x, (1024,), w, w), x, weight))
    row("column sum 4096x1024", lambda: against_eager(lambda x: x.sum(0), x))
    images, lines = torch.randn(64, 3, 64, 64), torch.randn(65536, 4)
    row("sum of 3 channels, 64x64x64", lambda: against_eager(lambda x: x.sum(1), images))
    row("sum of a batch of one, 1x262144", lambda: against_eager(lambda x: x.sum(0), lines.view(1, -1)))
    row("largest of 4 columns, 65536x4", lambda: against_eager(lambda x: x.amax(1), lines))
    a, b = torch.randn(HUGE // 1024, 1024), torch.randn(HUGE // 1024, 1024)
    row("add of 16M", lambda: huge(torch.add, torch.add, a, b), FEW)
    row("ones, 16M", lambda: huge(torch.ones_like, lambda a, out: out.fill_(1), a), FEW)
    row("2 of 16M beside each other", lambda: huge(lambda a, b: torch.cat([a, b], 1), cat_into, a, b), FEW)
    row("transpose of 16M", lambda: huge(lambda a: a.t().contiguous(), turn_into, a), FEW)
    common.write_json(ARGS.json, {"backend": lazyt.backend()["name"], "rows": numbers})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
