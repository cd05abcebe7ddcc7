"""Whole models: steps of lazyt on the backend of LAZYT_BACKEND against eager CPU's and, if asked, torch.compile's and
ONNX Runtime's.

A row: the same model, data and optimizer on each, one thread, in turns within one process. Its first losses must be
eager's, and no operator may run on the host: a row that breaks either says so, and the bench fails. Memory and threads
are measured in processes of their own.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument(
    "--compile", action="store_true", help="torch.compile too, on the CPU and on lazyt (10-100 s a row)"
)
PARSER.add_argument("--onnx", action="store_true", help="ONNX Runtime too, of inference (requirements-bench.txt)")
PARSER.add_argument(
    "--memory", action="store_true", help="peak memory too: what a process grew by, from before the model was made"
)
PARSER.add_argument("--scaling", action="store_true", help="two threads against one too")
PARSER.add_argument("--alone", metavar="CANDIDATE", help="run a row's candidate, print its numbers as JSON")
PARSER.add_argument("--only", default="", help="rows, ';' between: those whose name contains one of these")
PARSER.add_argument("--rounds", type=int, default=7)
PARSER.add_argument(
    "--seconds", type=float, default=0.5, help="about how long each candidate runs in a round"
)
PARSER.add_argument("--threads", type=int, default=1)
PARSER.add_argument("--check", action="store_true", help="losses and host islands only, no timing")
PARSER.add_argument("--json", metavar="FILE", help="write the numbers")
ARGS = PARSER.parse_args()
os.environ.setdefault("LAZYT_BACKEND", "onednn")
os.environ["LAZYT_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(ARGS.threads)

import sys  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import common  # noqa: E402
import lazyt  # noqa: E402
import mnist  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

# transformers imports a package "kernels" if there is one: not our kernels.py.
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]

STEPS_CHECKED = 4
TOLERANCE = 1e-3  # of a loss, relative above 1


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.skip = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class ResNet18(nn.Module):
    def __init__(self, classes: int = 100):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        widths = [64, 64, 128, 256, 512]
        self.blocks = nn.Sequential(
            *[
                Residual(widths[i] if first else widths[i + 1], widths[i + 1], 2 if first and i else 1)
                for i in range(4)
                for first in (True, False)
            ]
        )
        self.head = nn.Linear(512, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1), 1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, kept: list[torch.Tensor] | None = None) -> torch.Tensor:
        """With `kept`, keys and values of the tokens before, which x's join."""
        b, t, d = x.shape
        parts = self.qkv(self.norm1(x)).split(d, 2)
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in parts)
        causal = not kept
        if kept is not None:
            kept[:] = k, v = [torch.cat(pair, 2) for pair in zip(kept, (k, v), strict=True)] if kept else [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, context: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Attention(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.places(places))))


class Generation(nn.Module):
    """Tokens one by one, each read by the host, with keys and values kept: to a compiler a new length each."""

    def __init__(self, tokens: int):
        super().__init__()
        self.gpt, self.count, self.step = Gpt(512, 256, 4, 4, 16 + tokens), tokens, self.next_token

    def next_token(self, ids: torch.Tensor, place: int, kept: list[list[torch.Tensor]]) -> torch.Tensor:
        gpt = self.gpt
        x = gpt.tokens(ids) + gpt.places(torch.arange(place, place + ids.shape[1], device=ids.device))
        for block, of_block in zip(gpt.blocks, kept, strict=True):
            x = block(x, of_block)
        return gpt.head(gpt.norm(x))[:, -1:].argmax(-1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        ids, place, kept, made = ids[:1, :16], 0, [[] for _ in self.gpt.blocks], []
        for _ in range(self.count):
            more = self.step(ids, place, kept)
            place += ids.shape[1]
            made.append(more.item())  # who generates looks whether it is the end
            ids = more
        return torch.tensor(made, dtype=torch.float)

    def compiled(self) -> nn.Module:
        self.step = torch.compile(self.next_token, dynamic=True)
        return self

    def onnx_step(self, ids: torch.Tensor) -> Callable[[], torch.Tensor]:
        """As one generates with ONNX Runtime: a call a token, keys and values of any length stay its own, the host reads."""
        import onnxruntime

        ids, token = ids[:1, :16], OneToken(self)
        first, length = token(ids), torch.export.Dim("length", min=2)
        prompt = onnx_session(token, (ids,))
        session = onnx_session(token, first, {"ids": {}, "kept": tuple({2: length} for _ in first[1:])})
        ids = onnxruntime.OrtValue.ortvalue_from_numpy(ids.numpy())

        def step() -> torch.Tensor:
            call, values, made = prompt, [ids], []
            for _ in range(self.count):
                feed = {place.name: value for place, value in zip(call.get_inputs(), values, strict=True)}
                values, call = call.run_with_ort_values(None, feed), session
                made.append(values[0].numpy().item())
            return torch.tensor(made, dtype=torch.float)

        return step


class OneToken(nn.Module):
    """A call of Generation's: keys and values come and go as tensors."""

    def __init__(self, generation: Generation):
        super().__init__()
        self.generation = generation

    def forward(self, ids: torch.Tensor, *kept: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = [list(kept[i : i + 2]) for i in range(0, len(kept), 2)] or [[] for _ in self.generation.gpt.blocks]
        more = self.generation.next_token(ids, kept[0].shape[2] if kept else 0, pairs)
        return more, *(tensor for pair in pairs for tensor in pair)


class Bf16(nn.Module):
    """A model under autocast."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.model(x).float()


class LstmByHand(nn.Module):
    """A token at a time."""

    def __init__(self, inputs: int = 32, hidden: int = 64):
        super().__init__()
        self.hidden = hidden
        self.of_input, self.of_hidden = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros(x.shape[1], self.hidden, device=x.device)
        for token in x:
            i, f, g, o = (self.of_input(token) + self.of_hidden(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


class LstmModule(nn.Module):
    def __init__(self, inputs: int = 32, hidden: int = 64):
        super().__init__()
        self.lstm, self.head = nn.LSTM(inputs, hidden, 2), nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][-1])


def small_mlp() -> nn.Module:
    return nn.Sequential(*[m for _ in range(20) for m in (nn.Linear(32, 32), nn.ReLU())])


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Row:
    """A model, its data and how it learns; without a loss it is inference."""

    def __init__(
        self,
        model: Callable[[], nn.Module],
        data: Callable[[], list[torch.Tensor]],
        loss: Loss | None = None,
        optimizer: Callable | None = None,
        checked_model: Callable[[], nn.Module] | None = None,
        tolerance: float = TOLERANCE,
    ):
        self.model, self.data, self.loss, self.optimizer = model, data, loss, optimizer
        self.checked_model = checked_model or model  # without what is random
        self.tolerance = tolerance

    def stepper(self, device: str, compiled: bool = False, checked: bool = False) -> Callable[[], torch.Tensor]:
        """Makes a step, which gives its loss (or its result) on the device."""
        torch.manual_seed(0)
        model = (self.checked_model if checked else self.model)().to(device)
        data = [t.to(device) for t in self.data()]
        call = model
        if compiled:
            call = model.compiled() if hasattr(model, "compiled") else torch.compile(model)
        if self.loss is None:
            model.eval()

            def infer():
                with torch.no_grad():
                    return call(*data)

            return infer
        optimizer = self.optimizer(model.parameters())

        def train():
            optimizer.zero_grad(set_to_none=True)
            loss = self.loss(call(data[0]), data[1])
            loss.backward()
            optimizer.step()
            return loss.detach()

        return train


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def digits() -> list[torch.Tensor]:
    images, labels = mnist.load_digits()[0].tensors
    return [images[:64], labels[:64]]


def pictures() -> list[torch.Tensor]:
    return [torch.randn(16, 3, 64, 64), torch.randint(100, (16,))]


def texts() -> list[torch.Tensor]:
    ids = torch.randint(512, (4, 129))
    return [ids[:, :-1].contiguous(), ids[:, 1:].contiguous()]


def sequences() -> list[torch.Tensor]:
    return [torch.randn(64, 8, 32), torch.randn(8, 1)]


def vectors() -> list[torch.Tensor]:
    return [torch.randn(8, 32), torch.randn(8, 32)]


def gpt() -> nn.Module:
    return Gpt(512, 256, 4, 4, 128)


def optim(name: str, **options) -> Callable:
    return lambda parameters: getattr(torch.optim, name)(parameters, **options)


ROWS = {
    "tutorial CNN, Adadelta": Row(
        mnist.Net, digits, F.nll_loss, optim("Adadelta", lr=1.0), lambda: mnist.Net(dropout=False)
    ),
    "ResNet-18 64x64, SGD momentum": Row(
        ResNet18, pictures, F.cross_entropy, optim("SGD", lr=0.001, momentum=0.9)
    ),
    "ResNet-18 64x64, inference": Row(ResNet18, lambda: pictures()[:1]),
    "GPT 4 x 256, AdamW": Row(gpt, texts, token_loss, optim("AdamW", lr=1e-3)),
    "GPT 4 x 256, inference": Row(gpt, lambda: texts()[:1]),
    "GPT 4 x 256, inference in bf16": Row(lambda: Bf16(gpt()), lambda: texts()[:1], tolerance=0.05),
    "GPT 4 x 256, 64 tokens in turn": Row(lambda: Generation(64), lambda: texts()[:1]),
    "LSTM by hand, Adam": Row(LstmByHand, sequences, F.mse_loss, optim("Adam", lr=0.01)),
    "nn.LSTM 2 layers, Adam": Row(LstmModule, sequences, F.mse_loss, optim("Adam", lr=0.01)),
    "MLP 20 x 32, SGD momentum": Row(small_mlp, vectors, F.mse_loss, optim("SGD", lr=0.01, momentum=0.9)),
    "MLP 20 x 32, Adam": Row(small_mlp, vectors, F.mse_loss, optim("Adam", lr=0.01)),
}


class Gpt2(nn.Module):
    """GPT-2's code of transformers; with `tokens`, so many more are generated, one by one."""

    def __init__(self, tokens: int = 0):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        sizes = {"vocab_size": 512, "n_positions": 256, "n_embd": 256, "n_layer": 4, "n_head": 4}
        still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": None}
        self.gpt, self.tokens = GPT2LMHeadModel(GPT2Config(**sizes, **still)), tokens

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if not self.tokens:
            return self.gpt(ids, use_cache=False).logits
        more = self.gpt.generate(ids[:1, :16], max_new_tokens=self.tokens, do_sample=False, pad_token_id=0)
        return more.float()


if importlib.util.find_spec("transformers"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "torch"))
    import torchvision_library

    torchvision_library.stand_in()
    ROWS["GPT-2 of transformers, AdamW"] = Row(Gpt2, texts, token_loss, optim("AdamW", lr=1e-3))
    ROWS["GPT-2 of transformers, inference"] = Row(Gpt2, lambda: texts()[:1])
    ROWS["GPT-2 of transformers, 64 tokens"] = Row(lambda: Gpt2(64), lambda: texts()[:1])
else:
    print("no rows of transformers, which is not installed (requirements-models.txt)")


def differences(row: Row) -> str:
    """What tells lazyt's first steps from eager's; empty if nothing does."""
    eager, ours = row.stepper("cpu", checked=True), row.stepper("lazyt", checked=True)
    for i in range(STEPS_CHECKED):
        a, b = eager(), ours().cpu()
        worst = ((a - b).abs() / a.abs().clamp(min=1)).max().item()
        if not worst <= row.tolerance:
            return f"step {i} is off by {worst:.2g}"
    return ""


def onnx_session(model: nn.Module, data: tuple[torch.Tensor, ...], lengths: dict | None = None):
    """lengths: of inputs, as torch.export has them, what differs from call to call."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(model, data, path, dynamo=True, verbose=False, dynamic_shapes=lengths)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = ARGS.threads, 1
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def onnx_stepper(row: Row) -> Callable[[], torch.Tensor] | str:
    """Makes an inference step of ONNX Runtime, or says why there is none."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if not importlib.util.find_spec(name)]
    if missing:
        return f"{', '.join(missing)} not installed (requirements-bench.txt)"
    torch.manual_seed(0)
    model, data = row.model().eval(), tuple(row.data())
    said = io.StringIO()  # an exporter that fails prints its whole graph
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            if hasattr(model, "onnx_step"):
                with torch.no_grad():
                    step = model.onnx_step(*data)
            else:
                session = onnx_session(model, data)
                feed = {place.name: tensor.numpy() for place, tensor in zip(session.get_inputs(), data, strict=True)}
                step = lambda: torch.from_numpy(session.run(None, feed)[0])  # noqa: E731
    except Exception as error:  # whatever an exporter that does not know a model raises
        return f"export: {type(error).__name__}"
    with torch.no_grad():
        worst = (step() - model(*data)).abs().max().item()
    return step if worst <= row.tolerance else f"off by {worst:.2g}"


def candidate(step: Callable[[], torch.Tensor], lazy: bool) -> tuple[float, Callable[[], tuple[float, float]]]:
    """First step's seconds; and what runs several and gives (wall, processor) seconds a step."""

    def some(steps: int) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            result = step()  # wanted: what nobody holds is not computed
            if lazy:
                lazyt.mark_step()
            del result
        if lazy:
            lazyt.wait_device_ops()
        return (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps

    first = some(1)[0]
    for _ in range(3):
        some(1)
    steps = max(1, round(ARGS.seconds / some(2)[0]))
    return first, lambda: some(steps)


LAZY = ("lazyt", "lazyt, compile")  # the second: the program with torch.compile in it, as "compile" runs it on the CPU


def stepper(row: Row, name: str) -> Callable[[], torch.Tensor] | str:
    if name == "onnx":
        return onnx_stepper(row)
    return row.stepper("lazyt" if name in LAZY else "cpu", compiled="compile" in name)


def measure(row: Row) -> dict:
    names = ["eager", *(["compile"] if ARGS.compile else []), *(["onnx"] if ARGS.onnx and row.loss is None else []), "lazyt"]
    names += ["lazyt, compile"] if ARGS.compile else []
    first, runs, compiled, absent = {}, {}, 0, {}
    for name in names:
        before = lazyt.metrics.counter_value("UncachedCompile")
        step = stepper(row, name)
        if isinstance(step, str):
            absent[name] = step
            continue
        first[name], runs[name] = candidate(step, name in LAZY)
        compiled = compiled or lazyt.metrics.counter_value("UncachedCompile") - before
    rounds = common.interleaved(runs, ARGS.rounds)
    wall = common.medians({n: [w for w, _ in r] for n, r in rounds.items()})
    cpu = common.medians({n: [c for _, c in r] for n, r in rounds.items()})
    return {"wall": wall, "cpu": cpu, "first": first, "programs": compiled, "absent": absent}


def of_process(field: str) -> int:
    """Bytes, from /proc: ru_maxrss would begin with what the parent held."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def alone(row: Row, name: str) -> None:
    """What --alone prints."""
    (torch.ones(2, device="lazyt" if name in LAZY else "cpu") + 1).cpu()  # libraries are there
    before = of_process("VmRSS")
    _, run = candidate(stepper(row, name), name in LAZY)
    wall = [run()[0] for _ in range(ARGS.rounds)]
    print(json.dumps({"wall": sorted(wall)[len(wall) // 2], "grown": of_process("VmHWM") - before}))


def in_process(name: str, candidate_name: str, threads: int) -> dict:
    command = [sys.executable, __file__, "--alone", candidate_name, "--only", name, "--threads", str(threads)]
    command += ["--rounds", "3", "--seconds", str(ARGS.seconds)]
    environment = {k: v for k, v in os.environ.items() if k not in ("LAZYT_THREADS", "OMP_NUM_THREADS")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def beside(name: str) -> dict:
    """Numbers of processes of their own: memory of each candidate; how much faster two threads are than one."""
    out: dict = {}
    if ARGS.memory:  # what the C library keeps differs by a tenth from process to process
        grown = [{who: in_process(name, who, ARGS.threads)["grown"] for who in ("eager", "lazyt")} for _ in range(5)]
        out["grown"] = {who: sorted(turn[who] for turn in grown)[2] for who in grown[0]}
    for who in ("eager", "lazyt"):
        if ARGS.scaling:
            turns = [(in_process(name, who, 1)["wall"], in_process(name, who, 2)["wall"]) for _ in range(3)]
            out.setdefault("scaling", {})[who] = sorted(one / two for one, two in turns)[1]
    return out


def main() -> int:
    torch.set_num_threads(ARGS.threads)
    if ARGS.alone:
        alone(ROWS[ARGS.only], ARGS.alone)
        return 0
    print(common.header(backend=lazyt.backend()["name"], load=round(os.getloadavg()[0], 1)))
    print(f"medians of {ARGS.rounds} rounds; x: lazyt is so many times as fast, by wall and by processor time")
    print(
        f"{'':<32}{'eager ms':>10}{'lazyt ms':>10}{'x eager':>9}{'(cpu)':>8}{'x compile':>11}{'x onnx':>8}{'first s':>9}"
        f"{'eager s':>9}{'programs':>10}{'islands':>9}  losses"
    )
    results, failed = {}, 0
    for name, row in ROWS.items():
        if not any(part in name for part in ARGS.only.split(";")):
            continue
        lazyt.metrics.reset()
        result = {} if ARGS.check else measure(row)  # before the comparison, which compiles the same programs
        difference = differences(row)
        hosts = {k: n for k, n in lazyt.metrics.fallbacks().items() if k != "aten::_local_scalar_dense"}  # a read
        failed += bool(difference) or bool(hosts)
        results[name] = {**result, "islands": hosts, "difference": difference}
        numbers = f"{'':>74}"
        if result:
            wall, cpu, first = result["wall"], result["cpu"], result["first"]
            against = {n: f"{wall[n] / wall['lazyt']:.2f}" if n in wall else "" for n in ("compile", "onnx")}
            numbers = (
                f"{wall['eager'] * 1e3:>10.2f}{wall['lazyt'] * 1e3:>10.2f}{wall['eager'] / wall['lazyt']:>9.2f}"
                f"{cpu['eager'] / cpu['lazyt']:>8.2f}{against['compile']:>11}{against['onnx']:>8}{first['lazyt']:>9.2f}{first['eager']:>9.2f}"
                f"{result['programs']:>10}"
            )
        print(f"{name:<32}{numbers}{sum(hosts.values()):>9}  {difference or 'equal'}", flush=True)
        if "lazyt, compile" in result.get("wall", {}):
            ours = wall["lazyt, compile"]
            ratios = ", ".join(f"{wall[n] / ours:.2f} x {n}" for n in ("eager", "compile", "onnx") if n in wall)
            print(f"    with torch.compile on lazyt: {ours * 1e3:.2f} ms, {ratios}; first {first['lazyt, compile']:.2f} s")
        for operator, count in hosts.items():
            print(f"    on the host: {operator} x {count}")
        for other, reason in result.get("absent", {}).items():
            print(f"    no {other}: {reason}")
        if ARGS.memory or ARGS.scaling:
            results[name] |= (more := beside(name))
            if grown := more.get("grown"):
                e, z = grown["eager"], grown["lazyt"]
                sizes = f"eager {e / 2**20:.1f} MiB, lazyt {z / 2**20:.1f} MiB"
                print(f"    memory, medians of 5 processes: {sizes}, {z / e:.2f} of eager's", flush=True)
            if scaling := more.get("scaling"):
                print(f"    two threads: eager {scaling['eager']:.2f} x one, lazyt {scaling['lazyt']:.2f} x one", flush=True)
    common.write_json(ARGS.json, {"backend": lazyt.backend()["name"], "rows": results})
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
