"""What happened while training: counters and timers, by the names that users of torch._lazy know."""

import lazyt
import mnist
import torch
from torch.utils.data import DataLoader, Subset


def train(batches: int = 8) -> dict[str, int]:
    """Some batches of the MNIST network; the counters."""
    torch.manual_seed(1)
    data, _ = mnist.load_digits()
    loader = DataLoader(Subset(data, range(64 * batches)), 64)
    model = mnist.Net().to("lazyt")
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    lazyt.metrics.reset()
    mnist.train_epoch(model, loader, optimizer, "lazyt", epoch=1)
    lazyt.wait_device_ops()
    return lazyt.metrics.counters()


def main() -> None:
    train()
    print(lazyt.metrics.report())
    print()
    print(lazyt.explain())
    print("operators that ran on the host:", ", ".join(lazyt.metrics.fallbacks()) or "none")


if __name__ == "__main__":
    main()
