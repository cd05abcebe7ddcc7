"""Trains the classic MNIST network.

Only the import, the device's name and the hint `lazyt.mark_step()` tell it from an eager program. Without
MNIST's files it takes scikit-learn's handwritten digits, enlarged to 28x28: no network is needed.
"""

import argparse
import gzip
import time
from pathlib import Path

import lazyt
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, dropout: bool = True):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25 if dropout else 0.0)
        self.dropout2 = nn.Dropout(0.5 if dropout else 0.0)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def read_idx(folder: Path, name: str) -> torch.Tensor:
    """A file of MNIST's format (big-endian header, then bytes), plain or gzip."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            break
    else:
        raise FileNotFoundError(f"{folder} has neither {name} nor {name}.gz")
    if data[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is not an IDX file of bytes")
    rank = data[3]
    dims = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank)]
    return torch.frombuffer(bytearray(data[4 + 4 * rank :]), dtype=torch.uint8).reshape(dims)


def normalise(images: torch.Tensor, largest: float) -> torch.Tensor:
    return (images.float().div(largest).reshape(-1, 1, 28, 28) - 0.1307) / 0.3081


def load_data(folder: str | None = None) -> tuple[TensorDataset, TensorDataset]:
    """Training and test set: IDX files of the folder, else torchvision's MNIST there; without one, digits."""
    if folder is None:
        return load_digits()
    sets = []
    for train, prefix in ((True, "train"), (False, "t10k")):
        try:
            images = read_idx(Path(folder), f"{prefix}-images-idx3-ubyte")
            labels = read_idx(Path(folder), f"{prefix}-labels-idx1-ubyte")
        except FileNotFoundError:
            try:
                from torchvision.datasets import MNIST
            except (ImportError, RuntimeError):
                raise SystemExit(
                    f"{folder} holds no MNIST files, and torchvision cannot be imported"
                ) from None
            mnist = MNIST(folder, train=train, download=True)
            images, labels = mnist.data, mnist.targets
        sets.append(TensorDataset(normalise(images, 255), labels.long()))
    return sets[0], sets[1]


def load_digits() -> tuple[TensorDataset, TensorDataset]:
    """scikit-learn's 1,797 real digits of 8x8, enlarged: 1,500 to train, 297 to test."""
    from sklearn import datasets

    digits = datasets.load_digits()
    small = torch.from_numpy(digits.images).float().unsqueeze(1)
    images = normalise(F.interpolate(small, size=(28, 28), mode="bilinear"), 16)
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])


def train_epoch(
    model: nn.Module,
    loader: DataLoader,
    optimizer: torch.optim.Optimizer,
    device: str,
    epoch: int,
    log_interval: int = 10,
    progress: bool = False,
) -> list[float]:
    """One epoch; the losses that were printed."""
    model.train()
    losses = []
    seen, total = 0, len(loader.dataset)
    bar = None
    if progress:
        from tqdm import tqdm

        bar = tqdm(total=len(loader), desc=f"epoch {epoch}", unit="batch", leave=False, disable=None)
    for batch, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad(set_to_none=True)
        loss = F.nll_loss(model(images), labels)
        loss.backward()
        optimizer.step()
        lazyt.mark_step()  # a hint: the optimizer's step has ended the program already
        if batch % log_interval == 0:
            losses.append(loss.item())
            percent = f"{100.0 * seen / total:.0f}%"
            line = f"Train Epoch: {epoch} [{seen}/{total} ({percent})]\tLoss: {losses[-1]:.6f}"
            bar.write(line) if bar else print(line)
        seen += len(labels)
        if bar:
            bar.update()
    if bar:
        bar.close()
    return losses


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: str) -> tuple[float, float]:
    """(mean loss, share of right answers)."""
    model.eval()
    loss = torch.zeros((), device=device)
    right = torch.zeros((), device=device, dtype=torch.int64)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        output = model(images)
        loss += F.nll_loss(output, labels, reduction="sum")
        right += output.argmax(dim=1).eq(labels).sum()
    total = len(loader.dataset)
    return loss.item() / total, right.item() / total


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["lazyt", "cpu"], default="lazyt")
    parser.add_argument("--data", metavar="FOLDER", help="MNIST's IDX files, or where torchvision keeps them")
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7, help="factor of the learning rate at each epoch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-dropout", action="store_true", help="then losses equal eager's")
    parser.add_argument("--metrics", action="store_true", help="print the counters at the end")
    parser.add_argument("--log-interval", type=int, default=10, help="batches between two lines")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> float:
    """Trains; the accuracy at the end."""
    args = parse(arguments)
    torch.manual_seed(args.seed)
    train_set, test_set = load_data(args.data)
    order = torch.Generator().manual_seed(args.seed)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, generator=order)
    test_loader = DataLoader(test_set, 1000)
    model = Net(dropout=not args.no_dropout).to(args.device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    accuracy = 0.0
    begin = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        train_epoch(model, train_loader, optimizer, args.device, epoch, args.log_interval, progress=True)
        loss, accuracy = evaluate(model, test_loader, args.device)
        print(f"Test Epoch: {epoch} Loss: {loss:.4f} Accuracy: {100 * accuracy:.1f}%")
        scheduler.step()
    print(f"{args.epochs} epochs on {args.device} in {time.perf_counter() - begin:.1f} s")
    if args.metrics:
        print(lazyt.metrics.report())
        print(lazyt.explain())
    return accuracy


if __name__ == "__main__":
    main()
