"""Steps that repeat, with random deviations: a run that replays tapes and one that does not must be bit-equal.

A program is one step, done several times over tensors that live on; each time it may take another branch or batch
size, give a number of another kind, let operands be one tensor or views of one, keep or drop results, raise in the
middle, read a value, or cut the trace. Everything is decided when the program is made, so both runs do the same.

    python tests/torch/replay_fuzzer.py --programs 10000 --seed 1
    python tests/torch/replay_fuzzer.py --program 1:17        runs, shrinks and prints one program

Programs run in batches, a process each, which share the tapes; a process that dies names its program.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("LAZYT_BACKEND", "ts")

import lazyt  # noqa: E402
import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from program_fuzzer import reduce  # noqa: E402

ROWS = 48  # of `data`, over which loops move
BATCHES = [2, 3, 5]

# What a statement makes of what is there. Letters are kinds of tensors: b (B, 4), q (4, 4), v (B,), s (). N is a
# number, K an index below 4, P a probability, i the number of the step.
MAKES = {
    "b": """b + b | b - b | b * b | b * N | N - b | b / N | b @ q | torch.addmm(b, b, q) | b.relu() | b.tanh() | b.softmax(1)
        torch.where(b > N, b, b) | b.clamp(min=N) | b.clone() | b.flip(0) | torch.cat([b[:1], b[1:]]) | b.sort(1)[0] | b.cumsum(0)
        NN.layer_norm(b, (4,)) | NN.linear(b, q, q[K]) | NN.dropout(b, P) | torch.rand_like(b) | torch.lerp(b, b, N) | b.double().float()
        b.view(B, 2, 2).transpose(1, 2).reshape(B, 4) | b.t().t() | torch.stack([b, b])[1] | b.split(2, 1)[1].repeat(1, 2) | b.square()
        data[i * 2:i * 2 + B] * 2 | data[i * 2:i * 2 + B] | b.index_select(1, index) | b.masked_fill(b > N, N) | b.add(b, alpha=N)
        v.unsqueeze(1) * b | v.unsqueeze(1).expand(B, 4) | q[:2].repeat(B, 1)[:B] | torch.full((B, 4), N, device=D) | b[:, index] | b.detach()
        torch.randn(B, 4, device=D) | torch.zeros(B, 4, device=D) | b.norm(dim=1, keepdim=True) + b | b.roll(1, 0) | b ** 2 | b.to(D)
        torch.empty(B, 4, device=D).uniform_(N, 3) | b + q[K] | R(K, B, 4).to(D)""",
    "q": """q + q | b.t() @ b | q.tril() | q @ q | q * N | q.t() | q.t().contiguous() | q.clone() | q - v.sum() | q.view(2, 8).view(4, 4)
        big[K:K + 4] | big[i % 3:i % 3 + 4] * 1 | torch.eye(4, device=D) * N | q.softmax(0) | torch.outer(q[0], q[K]) | q.as_strided((4, 4), (1, 4))""",
    "v": """b.sum(1) | b.max(1)[0] | b.argmax(1).float() | b[:, K] | v * N | v + v | b.mean(1) | torch.arange(B, device=D) * 1.0 | v.exp()
        b.std(1) | (b > N).sum(1) + v | v.cumsum(0)""",
    "s": """b.mean() | v.sum() | q.trace() | s + N | s * s | NN.mse_loss(b, b) | b.max() | q[0, K] | torch.tensor(N, device=D) + v.sum() | q.norm()""",
}
WRITES = """b.add_(b) | b.mul_(N) | b[:, K] = N | b[:1] = b[1:2] | q.t().add_(q) | b.copy_(b.clone()) | b.zero_() | torch._foreach_add_([b, q], N) | b.sub_(b, alpha=N)
    q.diagonal().fill_(N) | b.view(-1)[::2].mul_(N) if b.is_contiguous() else None | b.normal_(0, 2) | torch.add(b, b, out=b) | q[K] += N | q[K].copy_(q[0].clone()) | s.add_(N)
    big[i] = N | big[i:i + 1] = q[:1] | big[K:K + 4].mul_(0.5) | data[i * 2:i * 2 + B] = b | v.fill_(N) | q.fill_diagonal_(N) | b.relu_() | b.uniform_(0, 1) | b.clamp_(N, 9)
    b.index_fill_(1, index, N) | b.masked_fill_(b > N, 0) | big.data = big.data * 1 | q[0].add_(v.sum()) | b[:, 1:].add_(b[:, :3].clone()) | torch._foreach_mul_([q, q.clone()], [N, N])
    n.add_(1) | big[n] = N | torch.mul(q, N, out=q)"""
TRAINS = """w.grad = None | (b @ w).square().mean().backward() | optimizer.step() | (b @ w + N).tanh().sum().backward() | optimizer.zero_grad()
    NN.mse_loss(NN.linear(b, w), b.detach()).backward() | optimizer.param_groups[0]["lr"] = abs(N) * 0.01 | with torch.no_grad(): w.mul_(0.9)"""
LOSSES = """(b @ w).square().mean() | (b * (b @ w)).sum() * N | ((b @ w).relu_() + u).exp().mean() | NN.layer_norm(b @ w, (4,), u).square().sum() | (b @ w)[0, K]
    NN.dropout(b @ w, P).sum() | NN.linear(b, w, u).softmax(1).max() | (w[K] * b.detach()).sum() + u.sum() | ((b.detach() @ w).detach() * u).sin().sum()
    torch.cat([w, w.t()])[K:].mul(q[0]).sum() | NN.mse_loss((b + u).tanh() @ w, b.detach()) | (w * torch.where(q > N, w, q)).sum() | u[K] * u.prod() + w.diagonal().sum()
    hooked(b @ w).sum() | torch.stack([w, q, w])[i % 3].norm() + u.dot(b[0]) | (b @ w.detach() * u).pow(2).mean() | w[i % 4, K] * 3 + u.max()"""
# Between a loss and its backward.
BETWEEN = """u.requires_grad_(i % 2 == 0) | u.data = u.data * 1 | b.data = b.clone() | with torch.no_grad(): b.mul_(N) | b.t_() | loss.backward(retain_graph=True)
    b.detach().add_(N) | q.data.add_(N) | w.register_hook(lambda g: g * 2) | loss.retain_grad() | loss.register_hook(lambda g: g * 2) | torch.autograd.grad(loss, w, retain_graph=True)
    with torch.no_grad(): q.sub_(1) | u = u.detach().requires_grad_() | b.copy_(R(K, B, 4)) | loss = loss.detach() + (w * N).sum() | b.zero_() | loss.item() | w.data = q.data | torch.autograd.grad(loss, w)"""
READS = """F() | F() | log(s.item()) | log(b) | log(v.tolist()) | log(bool((b > N).any())) | log(q.cpu().sum()) | log(int(b.argmax())) | log(torch.equal(b, b))"""
RAISES = """torch.mm(data, data) | raise ValueError | b + q.new_zeros(7) | b.view(-1, 17) | torch.cat([b, q[:, :3]]) | b[:, 9] | log(float("x"))"""


def options(text: str) -> list[str]:
    return [o.strip() for line in text.splitlines() for o in line.split("|") if o.strip()]


MAKES = {kind: options(text) for kind, text in MAKES.items()}
WRITES, TRAINS, READS, RAISES, LOSSES, BETWEEN = map(options, (WRITES, TRAINS, READS, RAISES, LOSSES, BETWEEN))

PRELUDE = [
    "big = R(1, 12, 4).to(D); data = R(2, ROWS, 4).to(D); index = torch.tensor([3, 0, 1, 1]).to(D); n = torch.tensor(0).to(D)",
    "q0 = R(3, 4, 4).to(D); q1 = R(4, 4, 4).to(D); s0 = R(5).to(D); w = R(6, 4, 4).to(D).requires_grad_(); u = R(7, 4).to(D).requires_grad_()",
    "optimizer = torch.optim.{optimizer}([w, u], lr=0.01, {more})",
]


class Maker:
    def __init__(self, rng: random.Random):
        self.rng, self.count = rng, 0
        self.there = {"b": [], "q": ["q0", "q1"], "v": [], "s": ["s0"]}

    def number(self) -> str:
        r = self.rng
        return r.choice(
            ["0", "1", "2", "-1", "0.0", "1.0", "True", "0.5", "i", "i * 0.25", "i - 1", f"{r.uniform(-2, 2):.3f}"]
            + ["torch.tensor(0.5)", "torch.tensor(2)", "s0", "float(i % 3)"]
        )

    def any_of(self, templates: list[str]) -> str:
        while True:
            try:
                return self.fill(self.rng.choice(templates))
            except LookupError:
                continue

    def fill(self, template: str) -> str:
        """A statement of the template: letters become tensors that are there, numbers and indices values."""

        def one(match: re.Match) -> str:
            letter = match[0]
            if letter == "N":
                number = self.number()
                # Inside tensor(...), uniform_ and the like a number is a number.
                return number if "tensor" not in template and "lr" not in template else "0.75"
            if letter == "K":
                return str(self.rng.randrange(4))
            if letter == "P":
                return self.rng.choice(["0.1", "0.5", "0.1 + i * 0.05"])
            if not self.there[letter]:
                raise LookupError  # nothing of that kind yet
            return self.rng.choice(self.there[letter][-4:])

        return re.sub(r"(?<![\w.'\"])[bqvsNKP](?![\w'\"])", one, template)

    def making(self) -> str:
        kind = self.rng.choice("bbbbqvs")
        if not self.there["b"]:
            kind = "b"
        text = self.any_of(MAKES[kind]) if self.there["b"] else "R(9 + i, B, 4).to(D)"
        old = [n for n in self.there[kind] if n[0] == "t"]
        if old and self.rng.random() < 0.2:
            return f"{self.rng.choice(old)} = {text}"
        self.count += 1
        self.there[kind].append(f"t{self.count}")
        return f"t{self.count} = {text}"

    def statement(self) -> str:
        kind = self.rng.choices(["make", "write", "train", "read"], [12, 6, 2, 0.7])[0]
        return self.making() if kind == "make" else self.any_of({"write": WRITES, "train": TRAINS, "read": READS}[kind])

    def training(self) -> list[str]:
        """A loss and its backward, and what may happen between the two."""
        between = [self.any_of(BETWEEN)] if self.rng.random() < 0.2 else []
        backward = self.rng.choice(["loss.backward()"] * 4 + ["loss.backward(torch.tensor(2.0, device=D))", "torch.autograd.backward([loss, (w * 2).sum()])"])
        grads = self.rng.choice(["w.grad = u.grad = None"] * 3 + ["optimizer.zero_grad()", "w.grad = None"])
        return [f"loss = {self.any_of(LOSSES)}", *between, grads, backward]

    def deviate(self, step: list[str]) -> list[str]:
        """The step as it goes this time."""
        r, step = self.rng, list(step)
        at = r.randrange(len(step))
        match r.choice(["between"] * 6 * ("loss.backward()" in step) + ["branch", "insert", "skip", "number", "alias", "alias", "alias", "keep", "drop", "raise", "read", "swap"]):
            case "between":
                step.insert(step.index("loss.backward()"), self.any_of(BETWEEN))
            case "branch":
                step[at] = self.statement()
            case "insert":
                step.insert(at, self.statement())
            case "skip":
                del step[at]
            case "number":
                numbers = [k for k, s in enumerate(step) if re.search(r"[ (\[]-?\d\.?\d*\b", s)]
                if numbers:
                    k = r.choice(numbers)
                    step[k] = re.sub(r"(?<=[*+\-/(,] )-?\d+\.?\d*(?![\w.])", lambda _: self.number(), step[k], count=1)
            case "alias":
                names = re.findall(r"\b[tqs]\d+\b", step[at].partition("=")[2] or step[at])
                if names:
                    a = r.choice(names)
                    kind = next((k for k, there in self.there.items() if a in there), "q")
                    b = r.choice(self.there[kind] or [a])
                    step[at] = re.sub(rf"\b{a}\b", r.choice([b, f"{b}.detach()", f"{b}.view_as({b})", f"{b}.clone()"]), step[at])
            case "keep":
                step.append(f"kept.append({r.choice(self.there['b'] + self.there['q'])})")
            case "drop":
                step.insert(at, f"del {r.choice(self.there['b'] + ['t999'])}")
            case "raise":
                return [*step[:at], self.any_of(RAISES)]
            case "read":
                step.insert(at, self.any_of(READS))
            case "swap":
                step.insert(at, r.choice(["q0, q1 = q1, q0", "q0 = q1", "q1 = q0.clone()", "q0 = R(8, 4, 4).to(D)", "big = torch.cat([q0, q1, q0])",
                                          "data = data.clone()", "q1 = big[2:6]", "q0 = q0.t()", "w.data = w.data.clone()", "s0 = q0.sum()"]))
        return step


def make(seed: int, number: int) -> list[str]:
    rng = random.Random(f"{seed}:{number}")
    maker = Maker(rng)
    optimizer, more = rng.choice([("SGD", ""), ("SGD", "momentum=0.9"), ("Adam", ""), ("AdamW", "foreach=False")])
    program = [line.format(optimizer=optimizer, more=more) for line in PRELUDE]
    first = maker.making()
    step = [first] + [maker.statement() for _ in range(rng.randint(3, 10))]
    for _ in range(rng.choice([0, 1, 1, 2])):
        step += maker.training()
    if rng.random() < 0.3:
        step.append("optimizer.step()")
    batch = rng.choice(BATCHES)
    ends = rng.choice([["F()"], ["F()", "drop()"], ["drop()", "F()"], ["drop()"], ["log(s0.item())", "drop()"], ["F()"]])
    alike = rng.choice([1, 1, 4])  # steps before the first that may deviate: a backward is followed from the third on
    for i in range(alike + rng.randint(3, 8)):
        b = rng.choice(BATCHES) if rng.random() < 0.15 and i >= alike else batch
        program.append(f"i = {i}; B = {b}")
        there = {kind: list(names) for kind, names in maker.there.items()}
        program += maker.deviate(step) if i >= alike and rng.random() < 0.5 else step
        maker.there = there  # what a deviation made is not there the next time
        program += ends
    return program


def R(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run(program: list[str], replay: bool) -> list:
    """All that was seen: raised errors, logged and kept values, tensors that are there at the end, as bytes."""
    lazyt.wait_device_ops()
    lazyt._C.set_replay(replay)
    torch.manual_seed(0)
    seen: list = []
    kept: list[torch.Tensor] = []

    def bytes_of(t: torch.Tensor):
        try:
            t = t.detach().cpu()
        except (RuntimeError, IndexError) as e:  # an index out of range, say, is an error of the whole launch
            return str(e).splitlines()[0]
        values = t.contiguous().numpy()
        return str(t.dtype), tuple(t.shape), hashlib.sha1(values.tobytes()).hexdigest()[:12], str(values.flatten()[:4].tolist())

    def drop() -> None:
        for name in [n for n in env if re.fullmatch(r"t\d+", n)]:
            del env[name]

    class Hooked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    env = {"hooked": Hooked.apply, "torch": torch, "NN": torch.nn.functional, "R": R, "D": "lazyt", "ROWS": ROWS, "kept": kept, "F": lazyt.mark_step, "drop": drop}
    env["log"] = lambda v: seen.append(bytes_of(v) if isinstance(v, torch.Tensor) else repr(v))
    own = set(env)
    for at, text in enumerate(program):
        try:
            exec(code(text), env)
        except Exception as e:
            seen.append((at, type(e).__name__, str(e).splitlines()[0] if str(e) else ""))
    named = [(n, v) for n, v in env.items() if n not in own and isinstance(v, torch.Tensor)]
    named += [(f"kept {k}", v) for k, v in enumerate(kept)]
    for name in ("w", "u"):
        if isinstance(w := env.get(name), torch.Tensor) and w.grad is not None:
            named.append((f"{name}.grad", w.grad))
    return seen + [(n, bytes_of(v)) for n, v in named]


compiled: dict[str, object] = {}


def code(text: str):
    if text not in compiled:
        compiled[text] = compile(text, text, "exec")
    return compiled[text]


def differences(program: list[str]) -> str | None:
    without, with_replay = run(program, False), run(program, True)
    if without == with_replay:
        return None
    if len(without) != len(with_replay):
        return f"{len(without)} observations without replay, {len(with_replay)} with it"
    return "; ".join(f"{a} without replay, {b} with it" for a, b in zip(without, with_replay, strict=True) if a != b)[:600]


def run_batch(seed: int, first: int, programs: int) -> None:
    torch.set_num_threads(1)
    for number in range(first, first + programs):
        print("at", number, flush=True)
        program = make(seed, number)
        if what := differences(program):
            print(f"--- program {seed}:{number}: {what}")
            print("\n".join("    " + s for s in program), flush=True)
    replayed = lazyt.metrics.counters()
    print("counts", *(replayed.get(n, 0) for n in ("UncachedCompile", "CachedCompile", "BackwardFollowed")), flush=True)


def fuzz(seed: int, programs: int, batch: int, say=print) -> int:
    """Failing programs."""
    failures = at = compiles = launches = followed = 0
    begin = time.monotonic()
    while at < programs:
        size = min(batch, programs - at)
        command = [sys.executable, __file__, "--seed", str(seed), "--batch-at", str(at), "--programs", str(size)]
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=60 + 3 * size)
            out, ended, errors = process.stdout, process.returncode, process.stderr
        except subprocess.TimeoutExpired as e:
            out, ended, errors = (e.stdout or b"").decode(), "no end", ""
        last = at - 1
        for line in out.splitlines():
            if line.startswith("at "):
                last = int(line[3:])
            elif line.startswith("counts "):
                fresh, known, more = map(int, line.split()[1:])
                compiles, launches, followed = compiles + fresh, launches + fresh + known, followed + more
            else:
                say(line)
                failures += line.startswith("--- ")
        if ended:
            failures += 1
            say(f"--- program {seed}:{last}: the process ended with {ended}\n{errors[-2000:]}")
            size = last + 1 - at
        at += size
    say(f"seed {seed}: {programs} programs, {launches} launches, {compiles} compiled, {followed} backwards followed, {failures} failures, {time.monotonic() - begin:.0f} s")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--batch", type=int, default=100, help="programs in one process")
    parser.add_argument("--batch-at", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--program", metavar="SEED:NUMBER", help="run, shrink and print one program")
    args = parser.parse_args()
    if args.program:
        seed, number = map(int, args.program.split(":"))
        program = make(seed, number)
        what = differences(program)
        if what:
            program = reduce(program, lambda p: differences(p) is not None, 60)
        print("\n".join(program), "\n", differences(program))
        return 1 if what else 0
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 30)
    if args.batch_at is not None:
        run_batch(seed, args.batch_at, args.programs)
        return 0
    return 1 if fuzz(seed, args.programs, args.batch) else 0


if __name__ == "__main__":
    sys.exit(main())
