"""Cost of the whole path without compute: the null plugin, per operator and per step."""

import argparse
import os
import time

os.environ["LAZYT_BACKEND"] = "null"

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402


def pointwise(nodes: int):
    x = torch.ones(4, 4, device="lazyt")

    def step():
        y = x
        for _ in range(nodes):
            y = y + x
        lazyt.mark_step()
        return y

    return step


def mlp(optimizer: str):
    layers = [module for _ in range(20) for module in (nn.Linear(32, 32), nn.ReLU())]
    model = nn.Sequential(*layers).to("lazyt")
    opt = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01)
    x, y = torch.ones(8, 32, device="lazyt"), torch.ones(8, 32, device="lazyt")

    def step():
        opt.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        opt.step()
        lazyt.mark_step()

    return step


CASES = {
    "10 additions": lambda: pointwise(10),
    "100 additions": lambda: pointwise(100),
    "1,000 additions": lambda: pointwise(1000),
    "5,000 additions": lambda: pointwise(5000),
    "MLP of 20 layers, SGD": lambda: mlp("SGD"),
    "MLP of 20 layers, Adam": lambda: mlp("Adam"),
}


def recorded() -> int:
    return sum(n for name, n in lazyt.metrics.counters().items() if name.startswith("lazyt::"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10, help="steps in a round")
    parser.add_argument("--json", metavar="FILE", help="write the numbers")
    args = parser.parse_args()
    print(common.header(backend=lazyt.backend()["name"]))
    print(
        f"{'':<26}{'ops':>8}{'first ms':>10}{'ms/step':>10}{'executor':>10}{'mark_step us':>14}{'us/op':>8}"
    )
    rows = {}
    for name, make in CASES.items():
        step = make()
        lazyt.wait_device_ops()
        first = common.timed(lambda step=step: (step(), lazyt.wait_device_ops()))
        step()
        lazyt.wait_device_ops()
        before = recorded()
        step()
        ops = recorded() - before

        def run(step=step) -> float:
            for _ in range(args.steps):
                step()
            lazyt.wait_device_ops()
            return 0.0

        busy = lazyt._C.executor_busy_seconds()
        walls = [common.timed(run) / args.steps for _ in range(args.rounds)]
        executor = (lazyt._C.executor_busy_seconds() - busy) / args.rounds / args.steps
        wall = sorted(walls)[len(walls) // 2]
        # An empty trace: what a marker costs that cuts nothing.
        begin = time.perf_counter()
        for _ in range(1000):
            lazyt.mark_step()
        marker = (time.perf_counter() - begin) / 1000
        rows[name] = {
            "ops": ops,
            "first_s": first,
            "step_s": wall,
            "executor_s": executor,
            "empty_mark_step_s": marker,
        }
        print(
            f"{name:<26}{ops:>8}{first * 1e3:>10.2f}{wall * 1e3:>10.3f}{executor * 1e3:>10.3f}"
            f"{marker * 1e6:>14.2f}{wall / max(ops, 1) * 1e6:>8.2f}",
            flush=True,
        )
    common.write_json(args.json, {"cases": rows})


if __name__ == "__main__":
    main()
