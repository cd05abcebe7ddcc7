"""Training steps of the tutorial's network per second: lazyt against eager, torch._lazy, or another lazyt.

mnist.py --against eager,upstream
mnist.py --against folder/bin/python    the lazyt that is installed for that interpreter, in turn with ours
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import lazyt
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import common
from mnist import Net, load_digits

DEVICES = {"lazyt": "lazyt", "upstream": "lazy", "eager": "cpu"}


class Trainer:
    def __init__(self, name: str, batch: int, dropout: bool):
        self.name, self.device = name, DEVICES[name]
        torch.manual_seed(1)
        self.model = Net(dropout).to(self.device)
        self.optimizer = torch.optim.Adadelta(self.model.parameters(), lr=1.0)
        data, _ = load_digits()
        images, labels = data.tensors
        self.batches = [
            (images[i : i + batch], labels[i : i + batch]) for i in range(0, len(labels) - batch + 1, batch)
        ]
        self.next = 0

    def steps(self, count: int) -> float:
        """Seconds for so many steps, the end of execution included."""
        begin = time.perf_counter()
        for _ in range(count):
            images, labels = self.batches[self.next % len(self.batches)]
            self.next += 1
            self.optimizer.zero_grad(set_to_none=True)
            loss = F.nll_loss(self.model(images.to(self.device)), labels.to(self.device))
            loss.backward()
            self.optimizer.step()
            if self.name == "lazyt":
                lazyt.mark_step()
            elif self.name == "upstream":
                torch._lazy.mark_step()
        self.loss = loss.item()
        if self.name == "lazyt":
            lazyt.wait_device_ops()
        elif self.name == "upstream":
            torch._lazy.wait_device_ops()
        return time.perf_counter() - begin

    def programs(self) -> str:
        """Programs compiled so far, where that is counted."""
        return str(lazyt.metrics.counter_value("UncachedCompile")) if self.name == "lazyt" else ""


class Other:
    """A trainer in another interpreter, with the lazyt that is installed there: one line in, one line out."""

    def __init__(self, python: str, options: list[str]):
        self.process = subprocess.Popen(
            [python, __file__, "--serve", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def steps(self, count: int) -> float:
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"{self.process.args[0]} ended with {self.process.wait()}")
        self.loss, self.compiled = float(answer[1]), answer[2]
        return float(answer[0])

    def programs(self) -> str:
        return self.compiled


def serve(trainer: Trainer) -> None:
    for line in sys.stdin:
        print(trainer.steps(int(line)), trainer.loss, trainer.programs(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", default="eager", help="comma list of upstream, eager, path of a python")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=10, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--no-dropout", action="store_true")
    parser.add_argument("--threads", type=int, help="CPU threads for all candidates")
    parser.add_argument("--json", metavar="FILE", help="write the numbers")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.serve:
        return serve(Trainer("lazyt", args.batch_size, not args.no_dropout))
    names = ["lazyt", *filter(None, args.against.split(","))]
    if "upstream" in names:
        common.init_upstream()
    options = [f"--batch-size={args.batch_size}"]
    options += ["--no-dropout"] if args.no_dropout else []
    options += [f"--threads={args.threads}"] if args.threads else []
    trainers = {
        name: Other(name, options) if "/" in name else Trainer(name, args.batch_size, not args.no_dropout)
        for name in names
    }
    first = {name: t.steps(1) for name, t in trainers.items()}
    for t in trainers.values():
        t.steps(4)
    results = common.interleaved(
        {n: lambda t=t: t.steps(args.steps) for n, t in trainers.items()}, args.rounds
    )
    seconds = {name: value / args.steps for name, value in common.medians(results).items()}

    print(common.header(backend=lazyt.backend()["name"]))
    print(f"tutorial CNN, training step, batch {args.batch_size}, {args.rounds} rounds of {args.steps} steps")
    width = max(10, *(len(name) + 2 for name in names))
    columns = ("steps/s", "ms/step", "first ms", "lazyt is", "loss", "programs")
    print(" " * width + "".join(f"{column:>10}" for column in columns))
    for name in names:
        ratio = "" if name == "lazyt" else f"{seconds[name] / seconds['lazyt']:.2f}x"
        print(
            f"{name:<{width}}{1 / seconds[name]:>10.1f}{seconds[name] * 1e3:>10.2f}{first[name] * 1e3:>10.0f}"
            f"{ratio:>10}{trainers[name].loss:>10.4f}{trainers[name].programs():>10}"
        )
    common.write_json(
        args.json,
        {
            "backend": lazyt.backend()["name"],
            "batch": args.batch_size,
            "seconds_per_step": seconds,
            "first_step_seconds": first,
            "programs": {name: t.programs() for name, t in trainers.items()},
            "rounds": results,
            "lazyt_speed_against": {n: seconds[n] / seconds["lazyt"] for n in names[1:]},
        },
    )


if __name__ == "__main__":
    main()
