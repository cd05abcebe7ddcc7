"""PyTorch's own operator samples (OpInfo), run on lazyt and eagerly on the CPU: every difference is a finding.

    python tests/torch/opinfo.py                              everything, about an hour of one core
    python tests/torch/opinfo.py --category backward --filter 'linalg'
    python tests/torch/opinfo.py --results run.jsonl          resumable: what stands in the file is not run again

Values, dtypes, shapes, strides and exceptions are compared; of random operators the distribution, and that cuts change
nothing (distribution.py). Items run in children, so that a crash or a hang is a result.
Known exceptions stand with their reasons in opinfo_skips.toml; one that passes is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import signal
import sys
import time
import tomllib
import traceback
import unittest.mock
import warnings
from collections import Counter
from pathlib import Path

import lazyt
import torch
from distribution import cuts_matter, distributions_differ, draws
from program_judge import Jitter, within_roundings
from torch.utils import _pytree as pytree

# Items run in forked children, where CUDA does not work if the parent asked for it, as PyTorch's tests do when imported,
# by themselves and by numba.
os.environ.setdefault("NUMBA_DISABLE_CUDA", "1")
with unittest.mock.patch("torch.cuda.is_available", return_value=False):
    from torch.testing._internal.common_methods_invocations import op_db

DTYPES = {n: getattr(torch, n) for n in ("float32", "int64", "bool", "bfloat16", "float16", "complex64", "float64")}
CATEGORIES = [*DTYPES, "backward", "gradgrad", "inplace", "out", "errors"]
SKIPS = tomllib.loads((Path(__file__).parent / "opinfo_skips.toml").read_text(encoding="utf-8"))["skip"]


def cuts_by_nature(counter: str) -> bool:
    """What reads a value, or returns a shape that depends on one."""
    if counter in ("aten::equal", "aten::allclose"):
        return True
    packet = getattr(torch.ops.aten, counter.removeprefix("aten::"), None)
    tags = [t for o in packet.overloads() for t in getattr(packet, o).tags] if packet else []
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags or counter == "aten::index"


def full_name(op) -> str:
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


# ---------------------------------------------------------------- one sample


class Side:
    """One of the two devices: its copies of a sample's tensors. A tensor that occurs twice stays one tensor."""

    def __init__(self, device: str, grad: bool):
        self.device, self.grad, self.memo = device, grad, {}

    def tensor(self, t: torch.Tensor) -> torch.Tensor:
        if id(t) not in self.memo:
            copy = t.detach().clone()
            if self.device != "cpu" and t.device.type == "cpu":
                copy = copy.to(self.device)
            if self.grad and t.requires_grad:
                copy.requires_grad_()
            self.memo[id(t)] = copy
        return self.memo[id(t)]

    def convert(self, value):
        def one(v):
            if isinstance(v, torch.Tensor):
                return self.tensor(v)
            if isinstance(v, torch.device) or v == "cpu" and isinstance(v, str):
                return torch.device(self.device)
            return v

        return pytree.tree_map(one, value)

    def leaves(self) -> list[torch.Tensor]:
        return [t for t in self.memo.values() if t.requires_grad]

    def like(self, t: torch.Tensor, seed: int) -> torch.Tensor:
        g = torch.Generator().manual_seed(seed)
        return torch.randn(t.shape, generator=g).to(t.dtype).to(self.device)


def tensors_of(value) -> list:
    return [v for v in pytree.tree_leaves(value) if isinstance(v, (torch.Tensor, int, float, bool, complex, torch.Size, torch.dtype))]


def differentiable(value) -> list[torch.Tensor]:
    return [v for v in pytree.tree_leaves(value) if isinstance(v, torch.Tensor) and v.requires_grad]


def perform(op, category: str, sample, device: str):
    """What is compared: the results of the sample in this category."""
    grad = category in ("backward", "gradgrad")
    side = Side(device, grad)
    given, args, kwargs = side.convert(sample.input), tuple(sample.args), dict(sample.kwargs)
    if op.name not in HOST_OPERANDS:
        args, kwargs = side.convert((args, kwargs))
    kwargs.pop("generator", None)
    if category == "inplace":
        if isinstance(given, torch.Tensor):
            given = given.clone()
        result = op.inplace_variant(given, *args, **kwargs)
        return [result, given]
    result = op.op(given, *args, **kwargs)
    if category == "out":
        expected = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        filled = pytree.tree_map(lambda t: torch.full_like(t, 1), result)
        empty = pytree.tree_map(lambda t: t.new_empty(0), result)
        return [expected, *(op.op(given, *args, out=out, **kwargs) for out in (filled, empty)), filled, empty]
    result = sample.output_process_fn_grad(result) if grad else result
    if not grad:
        return [result]
    outs, leaves = differentiable(result), side.leaves()
    if not outs or not leaves:
        return [result]
    first = torch.autograd.grad(outs, leaves, [side.like(o, i) for i, o in enumerate(outs)], create_graph=category == "gradgrad", allow_unused=True)
    if category == "backward":
        return [result, first]
    again = [g for g in first if g is not None and g.requires_grad]
    if not again:
        return [first]
    return [first, torch.autograd.grad(again, leaves, [side.like(g, 100 + i) for i, g in enumerate(again)], allow_unused=True)]


def attempt(function, *args):
    """The results on the CPU, or the exception: reading them counts."""
    try:
        shown = []
        for v in tensors_of(function(*args)):
            if isinstance(v, torch.Tensor):
                cpu = v.detach().to_dense().cpu() if v.layout != torch.strided else v.detach().cpu()
                shown.append({"value": cpu.resolve_conj().resolve_neg(), "dtype": v.dtype, "shape": tuple(v.shape),
                              "stride": v.stride() if v.layout == torch.strided else (), "layout": v.layout})  # fmt: skip
            else:
                shown.append(v)
        return shown
    except Exception as e:
        return e


def strides_matter(shown: dict) -> bool:
    """Not those of views into a kernel's work space, nor of expanded results."""
    if shown["layout"] != torch.strided or 0 in shown["shape"]:
        return False
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(shown["stride"], shown["shape"], strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def difference(eager: list, lazy: list, values: bool) -> str | None:
    if len(eager) != len(lazy):
        return f"{len(lazy)} results, eager {len(eager)}"
    for i, (a, b) in enumerate(zip(eager, lazy, strict=True)):
        if not isinstance(a, dict) or not isinstance(b, dict):
            same = type(a) is type(b) and (a == b or not values or a != a or isinstance(a, float) and abs(a - b) <= 1e-4 * abs(a))
            if not same:
                return f"result {i}: {b}, eager {a}"
            continue
        for key in ("dtype", "shape", "layout"):
            if a[key] != b[key]:
                return f"result {i}: {key} {b[key]}, eager {a[key]}"
        if strides_matter(a):
            if any(n > 1 and x != y for n, x, y in zip(a["shape"], a["stride"], b["stride"], strict=True)):
                return f"result {i}: stride {b['stride']}, eager {a['stride']}"
        if values:
            try:
                torch.testing.assert_close(b["value"], a["value"], equal_nan=True, check_stride=False)
            except AssertionError as e:
                return f"result {i}: value: {' '.join(str(e).split())[:160]}"
    return None


HOST_OPERANDS = {"tensor_split"}  # PyTorch wants the indices on the CPU whatever the device
UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


def values_of(shown) -> list[torch.Tensor]:
    if isinstance(shown, Exception):
        raise shown
    return [s["value"] for s in shown if isinstance(s, dict)]


def judge(op, category: str, sample, eager: list, lazy: list) -> tuple[str | None, bool]:
    """The difference, and whether the sample is random. Memory that was never written holds any values."""
    if text := difference(eager, lazy, False):
        return text, False
    text = difference(eager, lazy, op.name not in UNWRITTEN)
    if not text or not draws(perform, op, category, sample, "cpu"):
        return (None if text and (nearer(op, category, sample, eager, lazy) or rounded(op, category, sample, eager, lazy)) else text), False

    def once(device: str):
        return attempt(perform, op, category, sample, device)

    return distributions_differ(once, "lazyt", values_of) or cuts_matter(once, "lazyt", values_of), True


def nearer(op, category: str, sample, eager: list, lazy: list) -> bool:
    """Whether results are at worst as far from those in float64 as eager's are. Of 16 bits in units of each result's last place, of
    which half a one is as near as a result can be: kernels that round what lies between to 16 bits are no measure. Of 32 bits, which
    are sums in another order, up to four times as far, in units of the largest result."""
    halves, singles = (torch.float16, torch.bfloat16), (torch.float32, torch.complex64)
    wider = dict.fromkeys((*halves, torch.float32), torch.float64) | {torch.complex64: torch.complex128}

    def widened(v):
        if isinstance(v, torch.Tensor):
            return v.detach().to(wider[v.dtype]).requires_grad_(v.requires_grad) if v.dtype in wider else v
        return wider.get(v, v) if isinstance(v, torch.dtype) else v

    given, args, kwargs = (pytree.tree_map(widened, v) for v in (sample.input, tuple(sample.args), dict(sample.kwargs)))
    exact = attempt(perform, op, category, type(sample)(given, args=args, kwargs=kwargs), "cpu")
    if isinstance(exact, Exception) or len(exact) != len(eager):
        return False

    def worst(shown: dict, true: torch.Tensor) -> float:
        of = torch.finfo(shown["dtype"])
        size = true.abs().nan_to_num(0, 0, 0)
        unit = of.eps * (size if shown["dtype"] in halves else size.max() if size.numel() else size).clamp_min(of.tiny)
        errors = ((shown["value"].to(true.dtype) - true).abs() / unit)[true.isfinite()]
        return float(errors.max()) if errors.numel() else 0.0

    for a, b, e in zip(eager, lazy, exact, strict=True):
        if difference([a], [b], True) is None:
            continue
        if not isinstance(a, dict) or a["dtype"] not in (*halves, *singles) or not isinstance(e, dict):
            return False
        true = e["value"].to(wider[a["dtype"]])
        odd = [x | {"value": x["value"][~true.isfinite()]} for x in (a, b)]
        if difference([odd[0]], [odd[1]], True) or not worst(b, true) <= max((1 if a["dtype"] in halves else 4) * worst(a, true), 0.5):
            return False
    return True


def rounded(op, category: str, sample, eager: list, lazy: list) -> bool:
    """Whether results beyond the tolerance are where eager's own go when last bits change on the way: derivatives of
    what is near singular. (A library's kernels round by the instruction set and by how their operands lie.)"""
    if category not in ("backward", "gradgrad"):
        return False
    spread = []
    for seed in range(8):
        with Jitter(seed):
            spread.append(attempt(perform, op, category, sample, "cpu"))
    if any(isinstance(s, Exception) or len(s) != len(eager) for s in spread):
        return False
    return all(
        difference([a], [b], True) is None or isinstance(a, dict) and within_roundings(a, b, list(others))
        for a, b, *others in zip(eager, lazy, *spread, strict=True)
    )


def samples_of(op, category: str):
    torch.manual_seed(0)
    if category == "errors":
        for e in op.error_inputs("cpu") if op.error_inputs_func else ():
            yield e.sample_input
        return
    dtype = DTYPES.get(category, torch.float32)
    if dtype not in op.supported_dtypes("cpu"):
        return
    if category == "backward" and not op.supports_autograd or category == "gradgrad" and not op.supports_gradgrad:
        return
    if category == "inplace" and not op.inplace_variant or category == "out" and not op.supports_out:
        return
    for sample in op.sample_inputs("cpu", dtype, requires_grad=category in ("backward", "gradgrad")):
        if category == "inplace" and (sample.broadcasts_input or not isinstance(sample.input, torch.Tensor)):
            continue
        yield sample


def run_item(op, category: str, most: int | None) -> dict:
    """All samples of one operator in one category."""
    counts: Counter = Counter()
    fallback: Counter = Counter()
    what: list[str] = []
    random = False
    for i, sample in enumerate(samples_of(op, category)):
        if most is not None and i >= most:
            break
        torch.manual_seed(0)
        eager = attempt(perform, op, category, sample, "cpu")
        torch.manual_seed(0)
        lazyt.metrics.reset()
        lazy = attempt(perform, op, category, sample, "lazyt")
        hosts = {n: c for n, c in lazyt.metrics.counters().items() if n.startswith("aten::") and c}
        if isinstance(eager, Exception) and isinstance(lazy, Exception):
            kind, text = ("pass", None) if type(eager) is type(lazy) else ("error", f"{describe(lazy)}, eager {describe(eager)}")
        elif isinstance(lazy, Exception):
            kind, text = "error", describe(lazy)
        elif isinstance(eager, Exception):
            kind, text = "error", f"nothing raised, eager {describe(eager)}"
        else:
            text, drawn = judge(op, category, sample, eager, lazy)
            kind, random = "wrong" if text else "pass", random or drawn
        counts[kind] += 1
        fallback.update({n for n in hosts})
        if text and len(what) < 3 and not any(w.endswith(f": {kind}: {text}") for w in what):
            what.append(f"sample {i}: {kind}: {text}")
    status = next((k for k in ("wrong", "error") if counts[k]), "pass" if counts else "none")
    return {"status": status, "counts": dict(counts), "fallback": dict(fallback), "what": what, "random": random}


def describe(e: Exception) -> str:
    return f"{type(e).__name__}: {' '.join(str(e).split())[:220]}"


# ---------------------------------------------------------------- many items, in children


def child(out: int, items: list[tuple[int, str]], most: int | None) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")

    def say(row: dict) -> None:
        os.write(out, (json.dumps(row) + "\n").encode())

    for index, category in items:
        key = f"{full_name(op_db[index])}|{category}"
        say({"start": key})
        try:
            row = run_item(op_db[index], category, most)
        except Exception:
            row = {"status": "harness", "counts": {}, "fallback": {}, "what": [traceback.format_exc()[-600:]]}
        say({"item": key, **row})


class Worker:
    def __init__(self, items: list, most: int | None):
        self.left, self.buffer, self.since, self.done = list(items), b"", time.monotonic(), False
        read, write = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(read)
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 2)
                child(write, items, most)
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        self.pipe = read

    def rows(self) -> list[dict]:
        data = os.read(self.pipe, 1 << 16)
        self.done = not data
        self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        self.since = time.monotonic() if lines else self.since
        return [json.loads(line) for line in lines]

    def end(self) -> int | None:
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


def run(items: list[tuple[int, str]], jobs: int, limit: float, most: int | None, each, batch: int = 40) -> None:
    """each(row) for every item. An item that ends its process, or does not end, is a result."""
    queue = [items[i : i + batch] for i in range(0, len(items), batch)]
    select = selectors.DefaultSelector()
    while queue or select.get_map():
        while queue and len(select.get_map()) < jobs:
            worker = Worker(queue.pop(0), most)
            select.register(worker.pipe, selectors.EVENT_READ, worker)
        ready = [key.data for key, _ in select.select(1)]
        for worker in [key.data for key in list(select.get_map().values())]:
            hung = worker not in ready and time.monotonic() - worker.since > limit
            if hung:
                os.kill(worker.pid, signal.SIGKILL)
            for row in worker.rows() if worker in ready else []:
                if "item" in row:
                    worker.left.pop(0)
                    each(row)
            if hung or worker.done:
                select.unregister(worker.pipe)
                died = worker.end()
                if worker.left:
                    index, category = worker.left.pop(0)
                    how = "hang" if hung else "crash"
                    each({"item": f"{full_name(op_db[index])}|{category}", "status": how, "counts": {how: 1}, "fallback": {},
                          "what": [f"no answer in {limit:.0f} s" if hung else f"signal {died}"]})  # fmt: skip
                    if worker.left:
                        queue.insert(0, worker.left)


def skip_reason(row: dict) -> str | None:
    """Why the item may fail as it does."""
    name, category = row["item"].split("|")
    for s in SKIPS:
        backends = s.get("backends", [lazyt.backend()["name"]])
        if re.fullmatch(s["op"], name) and category in s.get("categories", CATEGORIES) and lazyt.backend()["name"] in backends:
            return s["reason"] if all(re.match(s["says"], w) for w in row["what"]) else None
    return None


def summary(rows: dict[str, dict]) -> list[str]:
    lines = [f"{'category':<10} {'items':>6} {'pass':>6} {'wrong':>6} {'error':>6} {'crash':>6} {'hang':>6} {'excused':>8} {'samples':>8}  host"]
    for category in [*CATEGORIES, "all"]:
        mine = {k: r for k, r in rows.items() if k.endswith("|" + category) or category == "all"}
        mine = {k: r for k, r in mine.items() if r["status"] != "none"}
        if not mine:
            continue
        excused = {k for k, r in mine.items() if r["status"] != "pass" and skip_reason(r)}
        count = Counter("excused" if k in excused else r["status"] for k, r in mine.items())
        passing = [r for r in mine.values() if r["status"] == "pass"]
        host = sum(not all(map(cuts_by_nature, r["fallback"])) for r in passing)
        samples = sum(sum(r["counts"].values()) for r in mine.values())
        share = 100 * host / max(1, len(passing))
        lines.append(f"{category:<10} {len(mine):6} {count['pass']:6} {count['wrong']:6} {count['error'] + count['harness']:6} "
                     f"{count['crash']:6} {count['hang']:6} {count['excused']:8} {samples:8}  {share:.1f} %")  # fmt: skip
    return lines


def report(rows: dict[str, dict]) -> bool:
    """Prints findings and the table; whether all is well."""
    bad = {k: r for k, r in rows.items() if r["status"] not in ("pass", "none")}
    for key, row in sorted(bad.items()):
        if reason := skip_reason(row):
            print(f"excused  {key}: {reason}")
        else:
            print(f"{row['status']:<8} {key}: {' / '.join(row['what'][:1])}")
    for key, row in sorted(rows.items()):
        if row["status"] == "pass" and skip_reason(row) and sum(row["counts"].values()):
            print(f"unexpected pass  {key}: {skip_reason(row)}")
    hosts = Counter(n for r in rows.values() for n in r["fallback"] if not cuts_by_nature(n))
    print("on the host:", ", ".join(f"{n} {c}" for n, c in hosts.most_common(25)) or "nothing")
    print("\n".join(summary(rows)))
    return all(map(skip_reason, bad.values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--category", action="append", choices=CATEGORIES, help="default: all")
    parser.add_argument("--dtype", action="append", choices=list(DTYPES), help="forward in this dtype")
    parser.add_argument("--filter", default="", help="regular expression on the operator's name")
    parser.add_argument("--every", type=int, default=1, help="only every n-th operator")
    parser.add_argument("--samples", type=int, help="at most so many samples of each operator")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=90, help="seconds an item may take")
    parser.add_argument("--results", type=Path, help="file of one JSON line per item; items in it are not run again")
    parser.add_argument("--json", action="store_true", help="all results as JSON on the last line")
    args = parser.parse_args()
    categories = (args.category or []) + (args.dtype or []) or CATEGORIES
    rows: dict[str, dict] = {}
    if args.results and args.results.exists():
        rows = {r["item"]: r for r in map(json.loads, args.results.read_text(encoding="utf-8").splitlines())}
    items = [(i, c) for c in categories for i, op in enumerate(op_db) if i % args.every == 0 and re.search(args.filter, full_name(op))]
    items = [(i, c) for i, c in items if f"{full_name(op_db[i])}|{c}" not in rows]
    begin, last = time.monotonic(), 0.0

    def each(row: dict) -> None:
        nonlocal last
        rows[row["item"]] = row
        if args.results:
            with args.results.open("a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")
        if row["status"] in ("crash", "hang") or time.monotonic() - last > 15:
            last = time.monotonic()
            print(f"[{last - begin:.0f} s] {len(rows)} items, now {row['item']} {row['status']}", file=sys.stderr, flush=True)

    run(items, args.jobs, args.limit, args.samples, each)
    good = report(rows)
    if args.json:
        print(json.dumps(rows))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
