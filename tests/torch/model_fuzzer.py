"""Random networks (random_models.py), trained for a few steps on lazyt, by eager in float32 and in float64.

Losses, outputs, gradients, parameters and buffers on lazyt are as near to float64's as eager's float32, times some. A
network that fails is trained by eager again and again, from parameters that are a rounding off: where it then ends as far
away (the kink of a ReLU, training that diverges), nothing is said of it.

    LAZYT_BACKEND=onednn python tests/torch/model_fuzzer.py --models 1000 --seed 1
    LAZYT_BACKEND=onednn python tests/torch/model_fuzzer.py --seed 1 --only 17        tells of each value
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable

import lazyt
import torch
from random_models import LOSSES, OPTIMIZERS, Case, make
from torch import Tensor, nn

FACTOR = 16  # of eager's own distance from float64
SHIFTS = 32  # few of them come across the same kink
LEAST = 1e-4  # of the largest element: what cancels (a scale before a norm) is no better
Seen = list[tuple[str, Tensor]]


def train(case: Case, device: str, dtype: torch.dtype, shift: int = 0) -> Seen:
    """What can be seen of the training, in float64. shift: other than 0 it draws roundings that parameters are off by."""
    model = copy.deepcopy(case.model).to(dtype)
    if shift:
        noise = torch.Generator().manual_seed(shift)
        for p in model.parameters():
            p.data += (torch.rand(p.shape, generator=noise) - 0.5) * 2.0**-22 * (p.data.abs() + 1e-2)
    model.to(device)
    optimizer = OPTIMIZERS[case.optimizer](list(model.parameters()))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7) if case.decays else None
    criterion, seen = LOSSES[case.loss], []

    def placed(t: Tensor) -> Tensor:
        t = (t.to(dtype) if t.is_floating_point() else t).to(device)
        # eager's kernels of channels-last images break memory in places (probe.cpp)
        return (
            t.to(memory_format=torch.channels_last)
            if case.channels_last and device != "cpu" and t.dim() == 4
            else t
        )

    for event, (x, y) in zip(case.events, case.data, strict=True):
        x, y = placed(x), placed(y)
        if event == "eval":
            model.eval()
            with torch.no_grad():
                seen.append(("in evaluation", model(x)))
            model.train()
        if event == "accumulate":
            criterion(model(x), y).backward()
        else:
            optimizer.zero_grad(set_to_none=event != "zero")
        out = model(x)
        loss = criterion(out, y)
        if event == "penalty":
            loss = loss + 1e-3 * sum((p * p).sum() for p in model.parameters())
        loss.backward()
        if event == "clip":
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if scheduler:
            scheduler.step()
        if event == "scale":
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(0.9)
        if event == "data":
            for p in model.parameters():
                p.data = p.data + 0.01
        if event == "load":
            model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})
        if event == "gradients":
            seen += [
                (f"gradient of {n}", p.grad.clone())
                for n, p in model.named_parameters()
                if p.grad is not None
            ]
        if device != "cpu":
            lazyt.mark_step()
        seen += [("loss", loss), ("output", out)]
    seen += [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if b.is_floating_point())]
    return [(name, t.detach().cpu().double()) for name, t in seen]


def distances(seen: Seen, exact: Seen) -> list[float]:
    """Of each tensor, by its largest element. Infinite where something is not finite, or of another shape."""
    out = []
    for (_, t), (_, e) in zip(seen, exact, strict=True):
        far = (
            (t - e).abs().max().item() / (e.abs().max().item() + 1e-3) if t.shape == e.shape else float("inf")
        )
        out.append(far if far == far else float("inf"))
    return out


def check(case: Case, say: Callable[[str], None] = lambda line: None) -> str:
    """Empty if lazyt's training is as good as eager's, else where it is not."""
    exact, eager, ours = (
        train(case, "cpu", torch.float64),
        train(case, "cpu", torch.float32),
        train(case, "lazyt", torch.float32),
    )
    allowed, found = distances(eager, exact), distances(ours, exact)
    for (name, _), a, f in zip(exact, allowed, found, strict=True):
        say(f"{name:40} eager {a:.2e}, lazyt {f:.2e}")
    is_far = lambda a, f: f > FACTOR * a + LEAST  # noqa: E731
    for shift in range(1, SHIFTS + 1):
        if not any(map(is_far, allowed, found)):
            break
        allowed = list(map(max, allowed, distances(train(case, "cpu", torch.float32, shift), exact)))
    far = [(name, a, f) for (name, _), a, f in zip(exact, allowed, found, strict=True) if is_far(a, f)]
    return (
        f"{far[0][0]} is off by {far[0][2]:.2g} of its largest element, eager's by {far[0][1]:.2g}"
        if far
        else ""
    )


def fuzz(seed: int, models: int, say: Callable[[str], None], seconds: float = float("inf")) -> int:
    """How many networks fail."""
    failed, start = 0, time.monotonic()
    for number in range(models):
        if time.monotonic() - start > seconds:
            break
        case = make(seed, number)
        try:
            said = check(case)
        except RuntimeError as error:
            said = f"raises {error}"
        if said:
            failed += 1
            say(f"{seed}:{number}: {said}\n{case.model}\n{case.optimizer}, {case.loss}, {case.events}")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new model after so many")
    parser.add_argument("--only", type=int, help="this model alone, and each value of its training")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.only is not None:
        case = make(args.seed, args.only)
        print(case.model, case.optimizer, case.loss, case.events)
        said = check(case, print)
        print(said or "as eager")
        return said != ""
    failed = fuzz(args.seed, args.models, print, args.seconds)
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
