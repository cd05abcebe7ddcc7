"""Small steps of which the program reads a value before it goes on, against eager CPU, in turns in one process.

What such a program waits for is recording, the launch, and threads that wake each other."""

import argparse
import os
import statistics
from collections.abc import Callable

os.environ.setdefault("LAZYT_BACKEND", "onednn")
os.environ.setdefault("LAZYT_THREADS", "1")

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402

STEPS = 200


def steps(device: str) -> dict[str, Callable[[], float]]:
    torch.manual_seed(0)
    x, y = torch.randn(4, 4).to(device), torch.randn(4, 4).to(device)
    net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    seen, batch = torch.randn(8), torch.randn(16, 8).to(device)
    labels = torch.randint(0, 4, (16,)).to(device)

    def branch():
        z = (x @ y).relu()
        if z.sum() > 0:
            z = z * 2
        return z.sum().item()

    def act():
        with torch.no_grad():
            return net(seen.to(device)).argmax().item()

    def train():
        loss = torch.nn.functional.cross_entropy(net(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return {
        "a number, (x * 2 + 1).sum().item()": lambda: (x * 2 + 1).sum().item(),
        "a branch on a value": branch,
        "an action of a small net": act,
        "a training step with its loss": train,
    }


def microseconds(step: Callable[[], float]) -> Callable[[], float]:
    def some() -> None:
        for _ in range(STEPS):
            step()

    return lambda: common.timed(some) / STEPS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", metavar="FILE", help="write the numbers")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(common.header(backend=lazyt.backend()["name"]))
    print(f"{'microseconds a step':<40}{'eager':>10}{'lazyt':>10}{'lazyt / eager':>15}")
    eager, lazy, results = steps("cpu"), steps("lazyt"), {}
    for name in eager:
        runs = {"eager": microseconds(eager[name]), "lazyt": microseconds(lazy[name])}
        for run in runs.values():
            run()
        measured = common.interleaved(runs, args.rounds)
        ratio = statistics.median(b / a for a, b in zip(measured["eager"], measured["lazyt"], strict=True))
        results[name] = {**common.medians(measured), "ratio": ratio}
        print(
            f"{name:<40}{results[name]['eager']:>10.1f}{results[name]['lazyt']:>10.1f}{ratio:>15.2f}",
            flush=True,
        )
    common.write_json(args.json, {"steps": results})


if __name__ == "__main__":
    main()
