"""Recording and execution are separate, and overlap: while a step runs, the next one is recorded."""

import time
from dataclasses import dataclass

import lazyt
import torch
from torch import nn


@dataclass
class Timing:
    steps: int
    recording: float  # seconds this thread was busy
    execution: float  # seconds the device's executor was busy
    wall: float  # seconds from the first step's begin to the last step's end


def make_model(width: int = 256, layers: int = 4) -> nn.Module:
    stack = [module for _ in range(layers) for module in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*stack, nn.Linear(width, 10))


def measure(steps: int = 60, batch: int = 256) -> Timing:
    torch.manual_seed(0)
    model = make_model().to("lazyt")
    optimizer = torch.optim.Adam(model.parameters())
    images, labels = torch.randn(batch, 256).to("lazyt"), torch.randint(10, (batch,)).to("lazyt")

    def step() -> float:
        """The time this thread worked, waits for a full queue left out."""
        begin = time.thread_time()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        lazyt.mark_step()
        return time.thread_time() - begin

    for _ in range(3):  # the programs are compiled here
        step()
    lazyt.wait_device_ops()

    busy = lazyt._C.executor_busy_seconds()
    begin = time.perf_counter()
    recording = sum(step() for _ in range(steps))
    lazyt.wait_device_ops()
    wall = time.perf_counter() - begin
    return Timing(steps, recording, lazyt._C.executor_busy_seconds() - busy, wall)


def main() -> None:
    t = measure()
    per_step = 1e3 / t.steps
    print(f"backend {lazyt.backend()['name']}, {t.steps} training steps, ms each:")
    print(f"  recording             {t.recording * per_step:8.3f}")
    print(f"  execution             {t.execution * per_step:8.3f}")
    print(f"  sum of the two        {(t.recording + t.execution) * per_step:8.3f}")
    print(f"  passed on the clock   {t.wall * per_step:8.3f}")
    hidden = t.recording + t.execution - t.wall
    print(f"  overlapped            {max(hidden, 0) * per_step:8.3f}")


if __name__ == "__main__":
    main()
