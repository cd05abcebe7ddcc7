"""Training steps per second of a few networks: lazyt beside eager PyTorch and torch.compile on the same GPU.

Each in a process of its own, as PyTorch refuses the backward of CUDA's tensors in one that knows lazyt, in turns. What
eager rounds to TF32 unasked (convolutions) is not rounded, for the same numbers. gpt_bf16 is gpt under autocast. With
--check the first losses are compared with eager's on the CPU instead, without timing.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

STEPS_CHECKED = 6
TOLERANCE = 2e-3  # of a loss, relative above 1


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024))]
        self.layers = nn.Sequential(*layers, nn.Linear(1024, 10))

    def forward(self, x):
        return F.log_softmax(self.layers(x), dim=1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        parts = self.qkv(self.norms[0](x)).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(
        self, words: int = 4096, width: int = 512, layers: int = 6, heads: int = 8, length: int = 256
    ):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        x = self.blocks(self.words(x) + self.places(places))
        return F.log_softmax(self.head(self.norm(x)), dim=-1).flatten(0, 1)


def mnist(batch: int = 64):
    from mnist import Net

    return Net(dropout=False), torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))


def mlp(batch: int = 256):
    return Mlp(), torch.randn(batch, 1024), torch.randint(10, (batch,))


def gpt(batch: int = 8):
    words = torch.randint(4096, (batch, 257))
    return Gpt(), words[:, :-1].contiguous(), words[:, 1:].flatten().contiguous()


MODELS: dict[str, Callable] = {"mnist": mnist, "mlp": mlp, "gpt": gpt, "gpt_bf16": gpt}


class Trainer:
    def __init__(self, model: str, device: str):
        torch.manual_seed(1)
        net, self.x, self.y = MODELS[model]()
        place = {"compile": "cuda"}.get(device, device)
        self.half = torch.autocast(place, torch.bfloat16, enabled=model.endswith("bf16"))
        self.net, self.x, self.y = net.to(place), self.x.to(place), self.y.to(place)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4)
        self.step_of = torch.compile(self.forward) if device == "compile" else self.forward
        self.device = device

    def forward(self, x, y):
        with self.half:
            return F.nll_loss(self.net(x), y)

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.step_of(self.x, self.y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def wait(self):
        self.step().item()
        if self.device in ("cuda", "compile"):
            torch.cuda.synchronize()

    def per_second(self, seconds: float) -> float:
        for _ in range(10):
            self.wait()
        begin, steps = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            for _ in range(10):
                self.step()
            self.wait()
            steps += 11
        return steps / (time.perf_counter() - begin)


def check(model: str, device: str) -> bool:
    import lazyt

    wanted = [Trainer(model, "cpu")]
    mine = [Trainer(model, device)]
    losses = [[t.step().item() for _ in range(STEPS_CHECKED)] for (t,) in (wanted, mine)]
    worst = max(abs(a - b) / max(abs(a), 1) for a, b in zip(*losses, strict=True))
    islands = {k: v for k, v in lazyt.metrics.counters().items() if k.startswith("aten::")}
    good = worst < TOLERANCE
    said = "equal" if good else "DIFFERENT"
    print(f"{model:8} {device:8} {said}: {worst:.1e}, on the host: {islands or 'none'}")
    return good


def work(model: str, device: str, seconds: float) -> int:
    """Steps per second for each line that comes in."""
    if device == "lazyt":
        import lazyt  # noqa: F401  names the device
    else:
        sys.modules["lazyt"] = types.ModuleType("lazyt")  # the examples import it
    torch.backends.cudnn.allow_tf32 = False
    trainer = Trainer(model, device)
    for _ in sys.stdin:
        print(trainer.per_second(seconds), flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="lazyt,cuda", help="of lazyt, cuda, compile, cpu; ',' between")
    parser.add_argument("--model", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=5, help="how long each is timed")
    parser.add_argument("--rounds", type=int, default=3, help="in turns; the best counts")
    parser.add_argument("--check", action="store_true", help="losses against eager's on the CPU, no timing")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    devices, models = args.device.split(","), args.model.split(",")
    if args.check:
        return 0 if all([check(m, d) for m in models for d in devices]) else 1
    if args.worker:
        return work(models[0], devices[0], args.seconds)
    found = {}
    for model in models:
        command = [sys.executable, __file__, "--worker", "--model", model, "--seconds", str(args.seconds)]
        own = {
            **os.environ,
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }  # LAZYT_BACKEND would name lazyt there, too
        workers = {
            d: subprocess.Popen(
                [*command, "--device", d], env=own, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for d in devices
        }
        best = dict.fromkeys(devices, 0.0)
        for _ in range(args.rounds):
            for device, worker in workers.items():
                worker.stdin.write("go\n")
                worker.stdin.flush()
                best[device] = max(best[device], float(worker.stdout.readline() or "nan"))
        for worker in workers.values():
            worker.communicate()
        found[model] = best
        print(model, "  ".join(f"{d} {v:.1f}/s" for d, v in best.items()), flush=True)
        if args.json:
            Path(args.json).write_text(json.dumps(found, indent=1))
    return 0 if all(v > 0 for best in found.values() for v in best.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
