"""Runs a program of the fuzzer and says in what two runs differ: values, shapes, strides, versions, aliases, errors.

Rounded values: beyond a tolerance, what eager itself gives with the last bits of its results changed is the measure (Jitter).
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import pickle
import re

import lazyt
import torch
from fuzzer_prelude import I, R
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

READING = 100000  # number of an error that was met while the first tensor was read at the end


class Observed:
    """What a run showed: exceptions by statement, what was logged, and every named tensor at the end."""

    def __init__(self):
        self.errors: dict[int, tuple[str, str]] = {}
        self.tensors: dict[str, dict] = {}
        self.aliases: dict[str, int] = {}
        self.rough = False  # something was computed in less than double precision

    def digest(self) -> dict[str, str]:
        def of(v):
            return hashlib.sha1(pickle.dumps(v)).hexdigest()[:12]

        out = {n: of((d["bytes"], d["shape"], d["stride"], d["dtype"])) for n, d in self.tensors.items()}
        return out | {f"errors {i}": e[0] for i, e in self.errors.items()}


# What eager's linear is made of; lazyt records it as one operator (sdk_docs/decisions/0008-eager-semantics.md).
LINEAR = {"AddmmBackward0", "MmBackward0", "ViewBackward0", "UnsafeViewBackward0"}


def describe(t: torch.Tensor) -> dict:
    cpu = t.detach().cpu().resolve_conj().resolve_neg()
    flat = cpu.contiguous().reshape(-1)
    return {
        "dtype": str(t.dtype),
        "shape": tuple(t.shape),
        "stride": tuple(t.stride()),
        "offset": t.storage_offset(),
        "version": t._version,
        "requires_grad": t.requires_grad,
        "is_leaf": t.is_leaf,
        # PyTorch's own x[...] = True fills on the CPU and copies on every accelerator.
        "grad_fn": re.sub("^(FillBackward\\d*|CopyBackwards)$", "Write", type(t.grad_fn).__name__),
        "nbytes": t.untyped_storage().nbytes(),
        "bytes": flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy().tobytes() if flat.numel() else b"",
        "value": cpu.clone(),
    }


def run(statements: list[str], device: str, mode: TorchDispatchMode | None = None) -> Observed:
    """mode: under which the statements run."""
    seen = Observed()
    logged: list = []

    def given(*args, **kwargs):
        with _disable_current_modes():  # numbers that a program begins with are no roundings
            return R(*args, **kwargs)

    env = {"torch": torch, "R": given, "I": I, "D": device}
    env["log"] = lambda v: logged.append(v.clone() if isinstance(v, torch.Tensor) else v)
    env["F"] = lazyt.mark_step if device == "lazyt" else lambda: None
    own = set(env)
    for i, text in enumerate(statements):
        try:
            with mode or contextlib.nullcontext():
                exec(compile(text, f"<statement {i}>", "exec"), env)
        except Exception as e:
            seen.errors[i] = (type(e).__name__, str(e))
        seen.rough |= "float" in text.replace("float64", "") or any(isinstance(v, torch.Tensor) and v.dtype in ROUGH for v in env.values())
    named = {n: v for n, v in env.items() if n not in own and isinstance(v, torch.Tensor)}
    for n, v in list(named.items()):
        try:
            if v.is_leaf and v.grad is not None:
                named[n + ".grad"] = v.grad
        except RuntimeError:  # a view whose history was written over: describe() meets it again
            pass
    storages: dict[int, int] = {}
    for n, v in named.items():
        seen.aliases[n] = storages.setdefault(v.untyped_storage()._cdata, len(storages))
    for i, (n, v) in enumerate(named.items()):
        try:
            seen.tensors[n] = describe(v)
        except Exception as e:
            seen.errors[READING + i] = (type(e).__name__, f"reading {n}: {e}")
    for i, v in enumerate(logged):
        seen.tensors[f"log {i}"] = describe(v if isinstance(v, torch.Tensor) else torch.tensor(v))
    return seen


def same_strides(a: dict, b: dict) -> bool:
    """Strides that no element's address depends on are any: of one-element dims, of tensors without elements."""
    return a["shape"] == b["shape"] and (
        0 in a["shape"] or all(n == 1 or x == y for n, x, y in zip(a["shape"], a["stride"], b["stride"], strict=True))
    )


def is_rounded(t: torch.Tensor) -> bool:
    return t.device.type == "cpu" and (t.is_floating_point() or t.is_complex())


class Jitter(TorchDispatchMode):
    """Changes the last bits of whatever operators round: of results that are no copies, elements that are no multiples of
    1/16. How far results of a program spread is how far other kernels, which round elsewhere, may take them."""

    EXACT = re.compile("copy|fill|zero|clone|cat|stack|index|gather|scatter|slice|select|where|repeat|flip|roll|take|put|sort|topk|max|min"
                       "|clamp|neg|abs|relu|tril|triu|pad|floor|ceil|round|trunc|sign|empty|arange|rand|unfold|set_|resize|detach")

    def __init__(self, seed: int):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        is_view = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
        if not is_view and not self.EXACT.search(func._schema.name.removeprefix("aten::")):
            results, operands = ([t for t in pytree.tree_leaves(v) if isinstance(t, torch.Tensor) and is_rounded(t)] for v in (result, (args, kwargs)))
            if not results and func._schema.name.startswith("aten::_foreach_") and func._schema.name.endswith("_"):
                results = [t for t in args[0] if is_rounded(t)]  # written, and not given back
            eps = max((torch.finfo(t.dtype).eps for t in results + operands), default=0)  # out= may be finer than what was computed
            for t in results:
                self.change(t, eps)
            if func._schema.name in ("aten::var", "aten::std") and operands and operands[0].numel():
                self.cancel(results[0], operands[0].abs().max().item() * 16 * eps, 2 if func._schema.name == "aten::var" else 1)
        return result

    def cancel(self, spread: torch.Tensor, error: float, power: int) -> None:
        """Of numbers that are equal but for roundings the variance is zero, too."""
        none = (spread <= error**power) & (torch.rand(spread.shape, generator=self.generator) < 0.5)
        spread.masked_fill_(none, 0)

    def change(self, t: torch.Tensor, eps: float) -> None:
        if torch._debug_has_internal_overlap(t) == 1 or t.is_conj() or t.is_neg():
            return
        parts = torch.view_as_real(t) if t.is_complex() else t
        ulps = torch.rand(parts.shape, generator=self.generator, dtype=torch.float64) * 8 - 4
        changed = parts.double() * (1 + ulps * eps)
        parts.copy_(torch.where(parts.double() * 16 % 1 == 0, parts.double(), changed))


def jittered(statements: list[str], times: range) -> list[Observed]:
    return [run(statements, "cpu", Jitter(seed)) for seed in times]


def within_roundings(a: dict, b: dict, spread: list[dict]) -> bool:
    """Whether b is no further from a, element by element, than four times what roundings do to a."""
    spread = [s["value"] for s in spread if s["shape"] == a["shape"] and s["dtype"] == a["dtype"]]
    if not spread or not a["value"].numel():
        return False
    x, y, others = a["value"], b["value"], torch.stack(spread)
    if not (x.is_floating_point() or x.is_complex()):  # a comparison beside the place where it changes
        return bool(((y == x) | (others == y).any(0)).all())
    if x.is_complex():
        x, y, others = (torch.view_as_real(v) for v in (x, y, others))
    x, y, others = x.double(), y.double(), others.double()
    alike = (x == y) | (x.isnan() & y.isnan())
    seen = (others == y).any(0) | (others.isnan().any(0) & y.isnan())  # an infinity, a NaN
    near = (x - y).abs() <= 4 * (others - x).abs().amax(0)
    return bool((alike | seen | near).all())


TOLERANCE = {"torch.float32": 1e-4, "torch.float64": 1e-10, "torch.float16": 2e-2, "torch.bfloat16": 1e-1}
ROUGH = {torch.float32, torch.float16, torch.bfloat16, torch.complex64}
VALUE_ERROR = re.compile(r"INDICES element is out of DATA bounds|ind(ex|ices).*out of (bounds|range)|out of (bounds|range).*index|shape mismatch|number of ones in mask|elements of source|ZeroDivisionError", re.S)


def values_differ(a: dict, b: dict, rough: bool) -> str | None:
    if a["bytes"] == b["bytes"]:
        return None
    x, y = a["value"], b["value"]
    if torch.equal(x, y):
        return None
    if not (x.is_floating_point() or x.is_complex()):
        return f"eager {x.flatten()[:6].tolist()} lazyt {y.flatten()[:6].tolist()}"
    tolerance = max(1e-4 if rough else 0, TOLERANCE.get(a["dtype"], 1e-4))
    if x.is_complex():
        x, y = torch.view_as_real(x), torch.view_as_real(y)
    x, y = x.double(), y.double()
    finite = x[x.isfinite()]
    scale = max(1.0, finite.abs().max().item() if finite.numel() else 1.0)
    if torch.allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        return None
    return f"eager {x.flatten()[:6].tolist()} lazyt {y.flatten()[:6].tolist()}"


def plain(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return re.sub(r"lazyt(:0)?|privateuseone(:0)?|cpu|PrivateUse1|CPU", "DEV", line)


def any_index(text: str) -> str:
    """Which one of several that are out of range is named is the order of a kernel's loops."""
    return re.sub(r"(index |id=)-?\d+", r"\1N", text)


def raised_at_first_use(eager: Observed, lazy: Observed) -> bool:
    """Whether eager's last error is about values and lazyt says the same of each result that cannot be read.
    Takes these errors out of both, with what eager says of reading the same tensors."""
    last = max((i for i in eager.errors if i < READING), default=None)
    reading = {i: e for i, e in lazy.errors.items() if i >= READING and e != eager.errors.get(i)}
    if last is None or not reading or not VALUE_ERROR.search(eager.errors[last][1]):
        return False
    words = any_index(plain(eager.errors[last][1]))
    said = [*reading.values(), lazy.errors.get(last, next(iter(reading.values())))]  # at its line, too: a call on the host looks
    if not all(words in any_index(e[1]) and e[0] == eager.errors[last][0] for e in said):
        return False
    del eager.errors[last]
    lazy.errors.pop(last, None)
    for i in reading:
        del lazy.errors[i]
        eager.errors.pop(i, None)  # a view whose history was written over
    return True


def compare(eager: Observed, lazy: Observed, statements: list[str]) -> list[tuple[str, str]]:
    """Differences as (kind, text) of two runs of the statements."""
    out, spread = [], None
    late = raised_at_first_use(eager, lazy)
    for i in sorted(set(eager.errors) | set(lazy.errors)):
        a, b = eager.errors.get(i), lazy.errors.get(i)
        if a and b and VALUE_ERROR.search(a[1]):
            continue  # lazyt may have found another reason, one that needs no values
        if a is None or b is None or a[0] != b[0]:
            out.append(("exception", f"statement {i}: eager {a}, lazyt {b}"))
        elif plain(a[1]) != plain(b[1]) and difflib.SequenceMatcher(None, plain(a[1]), plain(b[1])).ratio() < 0.5:
            out.append(("message", f"statement {i}: eager {a}, lazyt {b}"))
    if out:
        return out
    for n, a in eager.tensors.items():
        b = lazy.tensors.get(n)
        if b is None:
            if not late:
                out.append(("exception", f"{n} cannot be read"))
            continue
        history = () if late else ("version", "requires_grad", "is_leaf", "grad_fn")  # the write that fails later counts
        for key in ("dtype", "shape", "stride", "offset", *history, "nbytes"):
            if a[key] != b[key]:
                if n.startswith("log ") or key == "stride" and same_strides(a, b):
                    continue
                if key == "grad_fn" and b[key] == "LinearBackward0" and a[key] in LINEAR:
                    continue
                out.append((key, f"{n}.{key}: eager {a[key]}, lazyt {b[key]}"))
                if key in ("dtype", "shape"):
                    break
        else:
            if text := values_differ(a, b, eager.rough):
                spread = jittered(statements, range(12)) if spread is None else spread
                if within_roundings(a, b, [o.tensors[n] for o in spread if n in o.tensors]):
                    continue
                # Bits of a rounded number are met or missed by chance.
                if not a["value"].is_floating_point() and len(spread) == 12:
                    spread += jittered(statements, range(12, 100))
                    if within_roundings(a, b, [o.tensors[n] for o in spread if n in o.tensors]):
                        continue
                out.append(("value", f"{n}: {text}"))
    if not out and not late and eager.aliases != lazy.aliases:
        out.append(("alias", f"eager {eager.aliases}, lazyt {lazy.aliases}"))
    return out
