"""Small-tensor training, where the host decides: a step of lazyt against eager CPU's and torch._lazy's.

With the null plugin (the default) lazyt's time is recording alone: processor time of the thread that runs the
program, for each candidate. With --backend ts its steps compute, and wall time counts.
"""

import argparse
import os
import time
from collections.abc import Callable

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("--backend", default="null", help="null: recording alone; ts: whole steps")
PARSER.add_argument("--against", default="eager", help="comma list of eager, upstream")
PARSER.add_argument("--only", default="", help="programs whose name contains this")
PARSER.add_argument("--rounds", type=int, default=9)
PARSER.add_argument(
    "--seconds", type=float, default=0.25, help="about how long each candidate runs in a round"
)
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
os.environ["LAZYT_BACKEND"] = ARGS.backend
if ARGS.backend == "null":
    os.environ.setdefault("LAZYT_QUEUE", "1024")  # recording must not wait for launches of a busy machine

import common  # noqa: E402
import lazyt  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

DEVICES = {"eager": "cpu", "upstream": "lazy", "lazyt": "lazyt"}


def mlp(optimizer: str, **options):
    def setup(device: str):
        model = nn.Sequential(*[m for _ in range(20) for m in (nn.Linear(32, 32), nn.ReLU())]).to(device)
        opt = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01, **options)
        x, y = torch.randn(8, 32).to(device), torch.randn(8, 32).to(device)

        def step():
            opt.zero_grad()
            functional.mse_loss(model(x), y).backward()
            opt.step()

        return step

    return setup


class Lstm(nn.Module):
    """Written by hand, a token at a time."""

    def __init__(self, inputs: int = 32, hidden: int = 64):
        super().__init__()
        self.hidden = hidden
        self.of_input, self.of_hidden = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        h = c = torch.zeros(x.shape[1], self.hidden, device=x.device)
        for token in x:
            i, f, g, o = (self.of_input(token) + self.of_hidden(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


def lstm(device: str):
    model = Lstm().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 8, 32).to(device), torch.randn(8, 1).to(device)

    def step():
        opt.zero_grad()
        functional.mse_loss(model(x), y).backward()
        opt.step()

    return step


class Block(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.heads, d // self.heads).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).split(d, 2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int = 64, d: int = 32, layers: int = 4, context: int = 16):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, d), nn.Embedding(context, d)
        self.blocks = nn.Sequential(*[Block(d, 4) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.places(places))))


def gpt(device: str):
    model = Gpt().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(64, (4, 17)).to(device)

    def step():
        opt.zero_grad()
        logits = model(ids[:, :-1])
        functional.cross_entropy(logits.reshape(-1, 64), ids[:, 1:].reshape(-1)).backward()
        opt.step()

    return step


PROGRAMS: dict[str, Callable] = {
    "MLP 20 x (32x32), SGD": mlp("SGD"),
    "MLP 20 x (32x32), SGD momentum": mlp("SGD", momentum=0.9),
    "MLP 20 x (32x32), Adam": mlp("Adam"),
    "LSTM by hand, 64 steps, Adam": lstm,
    "GPT, 4 layers of 32, AdamW": gpt,
}


def finish(name: str) -> None:
    if name == "lazyt":
        lazyt.mark_step(wait=True)
    elif name == "upstream":
        torch._lazy.mark_step()


def candidate(name: str, step: Callable[[], None]) -> Callable[[], float]:
    """Seconds a step: of several, together with what still runs when the last is recorded."""

    clock = time.thread_time if ARGS.backend == "null" else time.perf_counter

    def one(steps: int) -> float:
        begin = clock()
        for _ in range(steps):
            step()
            if name == "lazyt":
                lazyt.mark_step()
            elif name == "upstream":
                torch._lazy.mark_step()
        if ARGS.backend != "null":
            finish(name)
        seconds = (clock() - begin) / steps
        finish(name)
        return seconds

    for _ in range(4):
        one(1)
    steps = max(1, round(ARGS.seconds / one(3)))
    return lambda: one(steps)


def main() -> None:
    names = [*filter(None, ARGS.against.split(",")), "lazyt"]
    if "upstream" in names:
        common.init_upstream()
    torch.set_num_threads(1)
    print(common.header(backend=lazyt.backend()["name"]))
    print(f"ms per step, medians of {ARGS.rounds} rounds; ratio below 1: lazyt is faster")
    print(
        f"{'':<34}"
        + "".join(f"{n:>10}" for n in names)
        + "".join(f"{'/ ' + n:>12}" for n in names[:-1])
        + f"{'ops':>8}"
    )
    results = {}
    for program, setup in PROGRAMS.items():
        if ARGS.only not in program:
            continue
        candidates, failed = {}, {}
        for name in names:
            torch.manual_seed(0)
            try:
                candidates[name] = candidate(name, setup(DEVICES[name]))
            except Exception as e:  # upstream cannot run every program
                if name != "upstream":
                    raise
                failed[name] = type(e).__name__
        before = recorded()
        seconds = common.medians(common.interleaved(candidates, ARGS.rounds))
        results[program] = {n: s * 1e3 for n, s in seconds.items()}
        row = "".join(f"{seconds[n] * 1e3:>10.3f}" if n in seconds else f"{'error':>10}" for n in names)
        row += "".join(
            f"{seconds['lazyt'] / seconds[n]:>12.2f}" if n in seconds else f"{'':>12}" for n in names[:-1]
        )
        print(f"{program:<34}{row}{recorded() - before:>8}", flush=True)
    common.write_json(ARGS.json, {"backend": ARGS.backend, "ms_per_step": results})


def recorded() -> int:
    return sum(n for name, n in lazyt.metrics.counters().items() if name.startswith("lazyt::"))


if __name__ == "__main__":
    main()
