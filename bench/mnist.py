"""Training steps of the tutorial's network per second: lazyt against eager CPU and against torch._lazy."""

import argparse
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", default="eager", help="comma list of upstream, eager")
    parser.add_argument("--steps", type=int, default=10, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--no-dropout", action="store_true")
    parser.add_argument("--threads", type=int, help="CPU threads for all candidates")
    parser.add_argument("--json", metavar="FILE", help="write the numbers")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    names = ["lazyt", *filter(None, args.against.split(","))]
    if "upstream" in names:
        common.init_upstream()
    trainers = {name: Trainer(name, args.batch_size, not args.no_dropout) for name in names}
    first = {name: t.steps(1) for name, t in trainers.items()}
    for t in trainers.values():
        t.steps(4)
    results = common.interleaved(
        {n: lambda t=t: t.steps(args.steps) for n, t in trainers.items()}, args.rounds
    )
    seconds = {name: value / args.steps for name, value in common.medians(results).items()}

    print(common.header(backend=lazyt.backend()["name"]))
    print(f"tutorial CNN, training step, batch {args.batch_size}, {args.rounds} rounds of {args.steps} steps")
    print(f"{'':<10}{'steps/s':>10}{'ms/step':>10}{'first ms':>10}{'lazyt is':>12}{'loss':>10}")
    for name in names:
        ratio = "" if name == "lazyt" else f"{seconds[name] / seconds['lazyt']:.2f}x"
        print(
            f"{name:<10}{1 / seconds[name]:>10.1f}{seconds[name] * 1e3:>10.2f}{first[name] * 1e3:>10.0f}"
            f"{ratio:>12}{trainers[name].loss:>10.4f}"
        )
    common.write_json(
        args.json,
        {
            "backend": lazyt.backend()["name"],
            "batch": args.batch_size,
            "seconds_per_step": seconds,
            "first_step_seconds": first,
            "rounds": results,
            "lazyt_speed_against": {n: seconds[n] / seconds["lazyt"] for n in names[1:]},
        },
    )


if __name__ == "__main__":
    main()
