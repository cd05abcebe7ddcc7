"""Random programs of the fuzzer: statements over named tensors, made by running along on the CPU.

Left out is what eager leaves open: operands that overlap what is written, memory that nobody wrote, a bool whose byte is neither
0 nor 1, the median of an expanded tensor (eager's kernel reads past its end), index_put_ into one, what
was written into one before an error about values, roundings that meet a limit of a dtype, integers
that require grad (an oversight of eager's: a copy to the CPU loses it, x.cpu() is x there). And what linear gives for more than
two dims, which in eager is a view of a product, as long as it is no copy (0008-eager-semantics.md).
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re

import numpy
import torch
from fuzzer_prelude import I, R
from program_judge import VALUE_ERROR
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

FLOATS = ["float32", "float64", "float16", "bfloat16"]
DTYPES = ["float32"] * 6 + ["float64", "int64", "int64", "int32", "bool", "float16", "bfloat16", "complex64", "complex64", "complex128", "uint8", "int16", "int8"]


class EndOfProgram(Exception):
    """Nothing can follow: the last statement raised on one side only, or did what eager leaves open."""


def extent(t: torch.Tensor) -> tuple[int, int]:
    """First byte, and the one behind the last."""
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return t.storage_offset() * t.element_size(), (t.storage_offset() + last + 1) * t.element_size()


def overlaps(a: torch.Tensor, b: torch.Tensor, by_element: bool) -> bool:
    """Whether they share memory and are not the same elements, of an operator that goes by element."""
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata or not a.numel() or not b.numel():
        return False
    (a0, a1), (b0, b1) = extent(a), extent(b)
    same = (a.shape, a.stride(), a0, a.dtype) == (b.shape, b.stride(), b0, b.dtype)
    return not (same and by_element) and a0 < b1 and b0 < a1


def overlaps_itself(t: torch.Tensor) -> bool:
    known = torch._debug_has_internal_overlap(t)  # 0: no, 1: yes, 2: it does not look that far
    places = itertools.product(*(range(0, n * s, s) if s else [0] for n, s in zip(t.shape, t.stride(), strict=True)))
    return known == 1 or known == 2 and len({sum(place) for place in places}) < t.numel()


class Watch(TorchDispatchMode):
    """Ends the program behind an operator that read what it wrote by another geometry, and that eager let pass."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not func._schema.is_mutable:
            return func(*args, **kwargs)
        written, read = self.operands(func, args, kwargs)
        shapes = [w.shape for w in written]

        by_element = torch.Tag.pointwise in func.tags or not any(a.is_out for a in func._schema.arguments)

        def reads_what_it_writes() -> bool:
            return any(overlaps(w, r, by_element) for w in written for r in read)

        # Deprecated by a warning, or not seen by eager: what comes of it is the order of its sums.
        expanded = any(overlaps_itself(w) for w in written)
        adds_up_in_one_place = "index_put" in func._schema.name and expanded
        open_question = adds_up_in_one_place or reads_what_it_writes()
        try:
            result = func(*args, **kwargs)
        except Exception as e:
            if expanded and VALUE_ERROR.search(str(e)):  # it runs on the host: what was written before is seen on both sides
                raise EndOfProgram from e
            raise
        resized = [w for w, shape in zip(written, shapes, strict=True) if w.shape != shape]  # out=
        if open_question or reads_what_it_writes() or any(w is r for w in resized for r in read):
            raise EndOfProgram
        return result

    @staticmethod
    def operands(func, args, kwargs) -> tuple[list, list]:
        """What it writes, and what it reads."""
        written, read = [], []
        for i, formal in enumerate(func._schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(formal.name)
            tensors = [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
            (written if formal.alias_info and formal.alias_info.is_write else read).extend(tensors)
        return written, read


class Maker:
    """Makes statements by looking at what the program has made so far: it runs along on the CPU."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.env: dict = {"torch": torch, "R": R, "I": I, "D": "cpu", "log": lambda v: None, "F": lambda: None}
        self.own = set(self.env)
        self.statements: list[str] = []
        self.count = 0

    # Choices.

    def tensors(self, want=lambda t: True) -> list[str]:
        def usable(v) -> bool:
            try:
                return isinstance(v, torch.Tensor) and want(v)
            except RuntimeError:  # a view whose history was written over says so when it is looked at
                return False

        return [n for n, v in self.env.items() if n not in self.own and usable(v)]

    def pick(self, want=lambda t: True) -> str:
        names = self.tensors(want)
        if not names:
            raise LookupError
        return self.rng.choice(names[-8:])

    def at(self, name: str) -> torch.Tensor:
        return self.env[name]

    def floating(self) -> str:
        return self.pick(lambda t: t.is_floating_point())

    def like(self, name: str) -> str:
        """An operand that broadcasts with the named tensor: another tensor, a slice of it, a new one, a number."""
        t, r = self.at(name), self.rng.random()
        if r < 0.5:
            def fits(o):
                pairs = zip(reversed(o.shape), reversed(t.shape), strict=False)
                return o.dim() <= t.dim() and all(a == b or a == 1 for a, b in pairs)

            return self.pick(fits)
        if r < 0.85:
            return self.scalar()
        return f"R({self.seed()}, *{name}.shape).to(D)"

    def seed(self) -> int:
        return self.rng.randrange(1000)

    def scalar(self) -> str:
        return "⟦" + self.number() + "⟧"

    def number(self) -> str:
        r = self.rng
        return r.choice(
            [str(r.randint(-3, 4)), str(r.randint(-3, 4)), f"{r.uniform(-2, 2):.2f}", f"{r.uniform(-2, 2):.2f}", "0", "1", "0.0", "1.0",
             "True", f"torch.tensor({r.uniform(-2, 2):.2f})", f"torch.tensor({r.randint(-2, 3)})",
             f"torch.tensor({r.uniform(-2, 2):.2f}, dtype=torch.float64)"]
        )

    def shape(self) -> list[int]:
        r = self.rng
        dims = [r.choice([1, 2, 2, 3, 3, 4, 4, 5, 6]) for _ in range(r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]))]
        if dims and r.random() < 0.06:
            dims[r.randrange(len(dims))] = 0
        return dims

    def dim(self, t: torch.Tensor) -> int:
        if t.dim() == 0:
            raise LookupError
        return self.rng.randrange(-t.dim(), t.dim())

    def index(self, name: str) -> str:
        """What stands in brackets."""
        t, r = self.at(name), self.rng
        if t.dim() == 0:
            return r.choice(["...", "None", "()"])
        n = t.shape[0]
        kinds = ["...", "None", "1:", ":-1", "::2", "1:3", f"..., {r.randrange(max(t.shape[-1], 1))}", "..., None"]
        if n:
            kinds += [str(r.randrange(-n, n)), f"I({self.seed()}, {n}, {r.randint(1, 3)}).to(D)", f"[{r.randrange(n)}, {r.randrange(n)}]"]
            if t.dim() > 1:
                kinds += [f":, I({self.seed()}, {t.shape[1]}, 2).to(D)", f"{r.randrange(n)}, 1:", f"I({self.seed()}, {n}, 2).to(D), 0",
                          f"R({self.seed()}, {n}, dtype=torch.bool).to(D), I({self.seed()}, {t.shape[1]}, {r.randint(1, 2)}).to(D)"]
        kinds += [f"R({self.seed()}, *{name}.shape, dtype=torch.bool).to(D)", f"R({self.seed()}, {n}, dtype=torch.bool).to(D)"]
        return r.choice(kinds)

    # Statements.

    def creation(self) -> str:
        r, dtype = self.rng, f"torch.{self.rng.choice(DTYPES)}"
        s = ", ".join(map(str, self.shape())) or "()"
        tup = f"({s},)" if s != "()" else "()"
        seeded = f"R({self.seed()}, {s}, dtype={dtype})" if s != "()" else f"R({self.seed()}, dtype={dtype})"
        return r.choice(
            [f"{seeded}.to(D)"] * 6
            + [
                f"torch.zeros({tup}, dtype={dtype}, device=D)",
                f"torch.ones({tup}, dtype={dtype}, device=D)",
                f"torch.full({tup}, {self.scalar()}, device=D)" if r.random() < 0.5 else f"torch.full({tup}, 2, dtype={dtype}, device=D)",
                f"torch.arange({r.randint(0, 12)}, device=D)",
                f"torch.arange(0, {r.randint(1, 12)}, 1.5, device=D)",
                f"torch.empty({tup}, dtype={dtype}, device=D).fill_({r.randint(0, 3)})",
                f"torch.linspace(-1, 1, {r.randint(1, 9)}, device=D)",
                f"torch.eye({r.randint(1, 4)}, device=D)",
                f"R({self.seed()}, 2, 3, {r.randint(1, 4)}, 2).to(D).to(memory_format=torch.channels_last)",
                f"torch.zeros(2, 3, 2, 2, device=D).contiguous(memory_format=torch.channels_last)",
                f"torch.empty_strided((2, 3), (1, 2), device=D).copy_(R({self.seed()}, 2, 3))",
                f"R({self.seed()}, 3, 1).to(D).expand(3, {r.randint(1, 4)})",
                f"R({self.seed()}, 3, 4, dtype=torch.float32).to(D).requires_grad_()",
                f"R({self.seed()}, 3, 4).t().to(D, copy=True)",
                f"torch.tensor([{r.randint(-2, 2)}, 1, 2], device=D)",
                f"torch.tensor({r.uniform(-1, 1):.2f}, device=D)",
                f"torch.nn.Parameter(R({self.seed()}, {r.randint(1, 4)}, {r.randint(1, 4)}).to(D))",
            ]
        )

    def likes(self) -> str:
        a, r = self.pick(), self.rng
        return r.choice([f"torch.zeros_like({a})", f"torch.ones_like({a})", f"torch.full_like({a}, 2)", f"{a}.new_zeros({r.randint(0, 3)}, 2)",
                         f"torch.empty_like({a}).zero_()", f"{a}.clone()", f"{a}.new_tensor([1, 2])", f"torch.zeros_like({a}, dtype=torch.int64)"])

    def view(self) -> str:
        a, r = self.pick(), self.rng
        t = self.at(a)
        options = [f"{a}.detach()", f"{a}.unsqueeze(0)", f"{a}.unsqueeze(-1)", f"{a}.squeeze()", f"{a}.flatten()", f"{a}.view(-1)",
                   f"{a}.reshape(-1)", f"{a}.view_as({a})", f"{a}[{self.index(a)}]", f"{a}[{self.index(a)}]", f"{a}.expand(2, *{a}.shape)",
                   f"{a}.data", f"{a}.contiguous()", f"{a}.view({a}.shape)"]
        if t.dim() >= 1:
            d = self.dim(t)
            n = t.shape[d]
            k = r.randint(0, n)
            options += [f"{a}.narrow({d}, {n - k}, {k})", f"{a}.select({d}, {r.randrange(n)})" if n else f"{a}.flatten()", f"{a}.unsqueeze({d})",
                        f"{a}.squeeze({d})", f"{a}.split(2, {d})[-1]", f"{a}.chunk(2, {d})[0]", f"{a}.unbind({d})[0]", f"{a}.movedim({d}, 0)",
                        f"{a}.unfold({d}, {max(1, n // 2)}, {r.randint(1, 2)})", f"{a}.flip({d})", f"{a}.roll(1, {d})",
                        f"{a}.as_strided(({max(1, n // 2)},), ({r.randint(0, 2)},), {a}.storage_offset())",
                        f"{a}.as_strided((2, 2), ({r.randint(0, 2)}, 1))", f"{a}.as_strided((2, 2), (1, {r.randint(1, 3)}), {r.randint(0, 2)})",
                        f"{a}.tensor_split(2, {d})[1]", f"{a}.repeat_interleave(2, {d})"]
            if t.dtype != torch.bool:  # whose bytes are 0 or 1: kernels do anything with others
                options.append(f"{a}.view({r.choice(['torch.int32', 'torch.uint8', 'torch.int16', 'torch.int64'])})")
        if t.dim() >= 2:
            order = list(range(t.dim()))
            r.shuffle(order)
            options += [f"{a}.transpose(0, -1)", f"{a}.permute({order})", f"{a}.diagonal()", f"{a}.diagonal(1, -1, 0)", f"{a}.mT", f"{a}.flatten(0, 1)",
                        f"{a}.view({t.shape[0]}, -1)", f"{a}.reshape(-1, {t.shape[0]})", f"{a}.transpose(0, 1)", f"{a}.unflatten(0, (1, -1))"]
        if t.dim() == 2:
            options += [f"{a}.t()", f"{a}.T"]
        if t.is_complex():
            options += [f"torch.view_as_real({a})", f"{a}.real", f"{a}.imag", f"{a}.conj()", f"{a}.mH" if t.dim() >= 2 else f"{a}.conj()", f"{a}.conj().imag", f"torch.view_as_real({a})[..., 1]"]
        elif t.dtype in (torch.float32, torch.float64) and t.dim() and t.shape[-1] == 2:
            options += [f"torch.view_as_complex({a})"] * 3
        return r.choice(options)

    def target(self) -> str:
        """Something to write into: a tensor, often by way of a view of it."""
        a, r = self.pick(lambda t: torch._debug_has_internal_overlap(t) == 0), self.rng
        t = self.at(a)
        if r.random() < 0.55:
            return a
        options = [f"{a}[{self.index(a)}]", f"{a}.detach()", f"{a}.data", f"{a}.unsqueeze(0)", f"{a}.view(-1)", f"{a}.squeeze()"]
        if t.dim() >= 1:
            options += [f"{a}[::2]", f"{a}[..., 1:]", f"{a}.transpose(0, -1)", f"{a}.narrow(0, 0, {min(1, t.shape[0])})", f"{a}.flatten()",
                        f"{a}.as_strided((2,), (1,))"]
        if t.dim() >= 2:
            options += [f"{a}.diagonal()", f"{a}.transpose(0, 1)[1:]", f"{a}.select(1, 0)", f"{a}.mT", f"{a}[:, ::2]", f"{a}.permute({list(reversed(range(t.dim())))})"]
        return r.choice(options)

    def in_place(self) -> str:
        a, r = self.target(), self.rng
        base = re.match(r"\w+", a)[0]
        t = self.at(base)
        b = self.like(base)
        options = [f"{a}.add_({b})", f"{a}.sub_({b})", f"{a}.mul_({b})", f"{a}.copy_({b})" if "⟦" not in b else f"{a}.fill_({b})", f"{a}.zero_()",
                   f"{a}.fill_({self.scalar()})", f"{a}.clamp_(-1, 1)", f"{a}.clamp_(min={self.scalar()})", f"{a}.neg_()", f"{a}.add_({b}, alpha={self.scalar()})",
                   f"{a}.masked_fill_({a} > 0, {self.scalar()})", f"{base}[{self.index(base)}] = {b}", f"{base}[{self.index(base)}] = {self.scalar()}",
                   f"{base}[{self.index(base)}] += {self.scalar()}", f"{base}[{base} > 0] = {self.scalar()}", f"{a}.eq_({b})", f"{a}.abs_()", f"{a}.square_()",
                   f"{base} += {b}", f"{base} *= {b}", f"{base}.t_()", f"{base}.unsqueeze_(0)", f"{base}.squeeze_()", f"{a}.copy_(R({self.seed()}, *{a}.shape))"]
        options += [f"{base}.expand(2, *{base}.shape).add_({self.scalar()})", f"{base}[None].expand(2, *{base}.shape)[1].mul_({self.scalar()})"]
        if t.is_complex():
            options += [f"{base}.real.mul_({self.scalar()})", f"{base}.imag.fill_({self.scalar()})", f"{base}.mul_(⟦1j⟧)", f"{base}.conj().add_(⟦1+2j⟧)", f"{base}.conj_physical_()", f"{base}.imag.copy_({base}.real)"]
        if t.is_floating_point():
            options += [f"{a}.relu_()", f"{a}.sin_()", f"{a}.tanh_()", f"{a}.sigmoid_()", f"{a}.lerp_({a} * 0.5, 0.3)", f"{a}.addcmul_({a}, {a}, value={self.scalar()})",
                        f"{a}.div_(⟦2⟧)", f"{a}.floor_()", f"torch.nn.functional.relu({a}, inplace=True)", f"{a}.addcdiv_({a}, {a}.abs() + 1, value=0.5)"]
        elif not t.is_complex():
            options += [f"{a}.bitwise_xor_(⟦3⟧)", f"{a}.logical_not_()", f"{a}.remainder_(⟦3⟧)"]
        if t.dim() >= 1 and t.shape[0] > 0:
            n, d = t.shape[0], t.shape[1:]
            rest = "".join(f", {x}" for x in d)
            dt = str(t.dtype)
            options += [f"{base}.index_add_(0, I({self.seed()}, {n}, 2).to(D), R({self.seed()}, 2{rest}, dtype={dt}).to(D))",
                        f"{base}.index_copy_(0, torch.tensor([{r.randrange(n)}]).to(D), R({self.seed()}, 1{rest}, dtype={dt}).to(D))",
                        f"{base}.index_fill_(0, torch.tensor([{r.randrange(n)}]).to(D), {self.scalar()})",
                        f"{base}.index_put_((I({self.seed()}, {n}, 1).to(D),), torch.tensor(1, dtype={dt}).to(D), accumulate={r.random() < 0.5})",
                        f"{base}.index_put_((I({self.seed()}, {n}, 4).to(D),), R({self.seed()}, 4{rest}, dtype={dt}).to(D), accumulate=True)",
                        f"{base}.index_put_((I({self.seed()}, {n}, 3, 2).to(D),), torch.tensor(2, dtype={dt}).to(D), accumulate=True)",
                        f"{base}.scatter_reduce_(0, I({self.seed()}, {n}, {n}{rest}).to(D), R({self.seed()}, {n}{rest}, dtype={dt}).to(D), '{r.choice(['sum', 'amax', 'amin', 'prod'])}')",
                        f"{base}.put_(torch.tensor([{r.randrange(max(t.numel(), 1))}]).to(D), torch.tensor([1], dtype={dt}).to(D), accumulate={r.random() < 0.5})",
                        f"{base}.scatter_(0, I({self.seed()}, {n}, 1{rest}).to(D), {self.scalar()})",
                        f"{base}.scatter_add_(0, I({self.seed()}, {n}, {n}{rest}).to(D), R({self.seed()}, {n}{rest}, dtype={dt}).to(D))",
                        f"{base}.masked_scatter_({base} > 0, R({self.seed()}, *{base}.shape, dtype={dt}).to(D))",
                        f"{base}.cumsum_(0)"]
        if t.dim() == 2:
            options += [f"{base}.fill_diagonal_({self.scalar()})", f"{base}.tril_()", f"{base}.addmm_({base}, torch.eye({t.shape[1]}, device=D, dtype={t.dtype}))"]
        s = r.choice(options)
        if t.requires_grad and r.random() < 0.7:
            return f"with torch.no_grad(): {s}"
        return s

    def pointwise(self) -> str:
        a, r = self.pick(), self.rng
        t = self.at(a)
        b = self.like(a)
        options = [f"{a} + {b}", f"{a} - {b}", f"{a} * {b}", f"{b} + {a}", f"{b} - {a}", f"{a} == {b}", f"{a} > {b}", f"{b} < {a}", f"{a} != {b}",
                   f"torch.where({a} > 0, {a}, {b})", f"torch.where({a} > {self.scalar()}, {self.scalar()}, {a})", f"torch.maximum({a}, {a} * {self.scalar()})", f"-{a}", f"{a}.abs()", f"{a}.clamp(-1, 1)",
                   f"{a}.clamp(min={self.scalar()})", f"{a}.clamp({self.scalar()}, 2)", f"{a}.add({b}, alpha={self.scalar()})", f"{a} / ⟦2⟧", f"{a} // ⟦2⟧", f"{a} % ⟦3⟧", f"{a} ** ⟦2⟧", f"{a} ** 2.0",
                   f"{a}.sign()", f"{a}.isnan()", f"{a}.logical_not()", f"{a}.masked_fill({a} > 0, {self.scalar()})", f"{a}.square()", f"torch.atan2({a}, {b})", f"{a}.sub({b})", f"torch.rsub({a}, {b})",
                   f"{a}.to(torch.float32).lerp({a}.to(torch.float32) * 0.5, {r.uniform(0, 1):.2f})", f"torch.logical_and({a}, {b})" if "⟦" not in b else f"{a}.ge({b})"]
        if t.is_complex():
            options += [f"{a} * ⟦1j⟧", f"{a} == ⟦1j⟧", f"{a} + {a}.conj()", f"{a}.angle()", f"{a}.conj() * {b}", f"{a}.abs() + 1", f"{a}.exp()", f"torch.where({a} == 0, {a}, {b})"]
        elif r.random() < 0.15:
            options = [f"{a} * ⟦1j⟧", f"{a} == ⟦1j⟧", f"{a} + ⟦2-1j⟧", f"torch.complex({a}.float(), {a}.float())", f"{a}.to(torch.complex64)", f"torch.polar({a}.double().abs(), {a}.double())"]
        if t.is_floating_point():
            options += [f"{a}.{f}()" for f in ("sin", "tanh", "sigmoid", "floor", "round", "relu", "exp", "sqrt", "cos", "erf", "trunc", "log1p", "reciprocal", "nan_to_num", "frac")]
            options += [f"torch.nn.functional.{f}({a})" for f in ("gelu", "silu", "softplus", "leaky_relu", "elu", "hardtanh")]
        elif not t.is_complex():
            options += [f"{a} & ⟦3⟧", f"{a} | {a}", f"~{a}", f"{a} ^ ⟦1⟧", f"{a} << 1"]
        return r.choice(options)

    def reduction(self) -> str:
        a, r = self.pick(), self.rng
        t = self.at(a)
        keep = r.choice(["", ", keepdim=True"])
        options = [f"{a}.sum()", f"{a}.any()", f"{a}.all()", f"{a}.to(torch.float32).mean()", f"{a}.prod()", f"{a}.max()", f"{a}.argmax()", f"{a}.sum(dtype=torch.float64)",
                   f"{a}.mul(16).round().count_nonzero()", f"{a}.float().norm()", f"{a}.float().var()"]
        if t.dim() == 0:
            options += [f"{a}.topk({r.randint(0, 1)}).values", f"{a}.flip(-1)", f"{a}.sort(0).values", f"{a}.cumsum(-1)", f"{a}.float().softmax(0)", f"{a}.amax(0{keep})",
                        f"{a}.index_select(0, torch.tensor([0], device=D))", f"{a}.gather(0, torch.tensor(0, device=D))", f"{a}.max(-1).values", f"{a}.float().var(0)"]
        if t.dim() >= 1:
            d = self.dim(t)
            options += [f"{a}.sum({d}{keep})", f"{a}.amax({d}{keep})", f"{a}.max({d}{keep}).values", f"{a}.min({d}{keep}).indices", f"{a}.argmin({d}{keep})", f"{a}.float().mean({d}{keep})",
                        f"{a}.cumsum({d})", f"{a}.float().softmax({d})", f"{a}.float().log_softmax({d})", f"{a}.sort({d}).values", f"{a}.sort({d}, stable=True).indices", f"{a}.topk(1, {d}).values",
                        f"{a}.any({d}{keep})", f"{a}.float().std({d}{keep})", f"{a}.float().logsumexp({d}{keep})", f"{a}.float().var_mean({d})[1]", f"{a}.cumprod({d})", f"{a}.cummax({d}).values",
                        f"{a}.float().norm(2, {d})", f"{a}.diff(dim={d})", f"{a}.contiguous().median({d}).values" if t.numel() else f"{a}.sum()"]
        return r.choice(options)

    def composite(self) -> str:
        a, r = self.pick(), self.rng
        t = self.at(a)
        same = [n for n in self.tensors(lambda o: o.shape == t.shape)]
        b = r.choice(same)
        options = [f"torch.cat([{a}, {b}])", f"torch.cat([{a}, {b}], -1)", f"torch.cat([{a}, {b}], {r.randint(-2, 1)})", f"torch.stack([{a}, {b}])", f"torch.stack([{a}, {b}], -1)", f"torch.where({a} > 0, {a}, {b})",
                   f"{a}.to(torch.{r.choice(DTYPES)})", f"{a}.mul(16).round().nonzero()", f"{a}[{a} > 0]", f"torch.unique({a})", f"{a}.repeat(2, *[1] * {a}.dim())", f"torch.broadcast_to({a}, (2, *{a}.shape))", f"{a}.float()",
                   f"torch.nn.functional.one_hot({a}.abs().long() % 4, 4)", f"{a}.type_as({b})", f"{a}.double()", f"{a}.to({b})"]
        f = self.rng.choice(FLOATS[:2])
        options += [f"torch.as_strided_copy({a}, (2,), (1,))", f"torch.as_strided_scatter({a}.contiguous(), torch.ones(2, dtype={t.dtype}, device=D), (2,), (1,))"]
        if t.dim() >= 1:
            n = t.shape[0]
            options += [f"torch.select_scatter({a}, torch.zeros_like({a}[0]), 0, 0)", f"torch.slice_scatter({a}, torch.ones_like({a}[1:]), 0, 1)", f"torch.take_along_dim({a}, I({self.seed()}, {n}, *{a}.shape).to(D), 0)",
                        f"{a}.index_select(0, I({self.seed()}, {n}, 2).to(D))", f"{a}.gather(0, I({self.seed()}, {n}, *{a}.shape).to(D))", f"torch.nn.functional.pad({a}, (1, 1), value=⟦2⟧)",
                        f"{a}.take(I({self.seed()}, {t.numel()}, 3).to(D))", f"{a}.scatter(0, I({self.seed()}, {n}, *{a}.shape).to(D), {a})",
                        f"{a}.to(torch.{f}) @ R({self.seed()}, {t.shape[-1]}, dtype=torch.{f}).to(D)", f"{a}.tril() if {a}.dim() > 1 else {a}"]
        if t.dim() >= 2:
            options += [f"{a}.to(torch.{f}) @ R({self.seed()}, {t.shape[-1]}, 3, dtype=torch.{f}).to(D)", f"torch.matmul({a}.mT.to(torch.{f}), {a}.to(torch.{f}))", f"torch.nn.functional.linear({a}.float(), R({self.seed()}, 2, {t.shape[-1]}).to(D), R({self.seed()}, 2).to(D)){'.clone()' if t.dim() > 2 else ''}",
                        f"torch.nn.functional.layer_norm({a}.float(), ({t.shape[-1]},))", f"torch.einsum('...ij,...kj->...ik', {a}, {a})"]
        if t.dim() == 2:
            options += [f"torch.diagonal_scatter({a}, torch.zeros_like({a}.diagonal()))", f"torch.addmm({a}, {a}, torch.eye({t.shape[1]}, device=D, dtype={t.dtype}))", f"{a}.mm({a}.t())"]
        if t.dim() == 4:
            options += [f"torch.nn.functional.max_pool2d({a}.float(), 2, ceil_mode=True)", f"torch.nn.functional.conv2d({a}.float(), R({self.seed()}, 2, {t.shape[1]}, 1, 1).to(D))", f"{a}.contiguous(memory_format=torch.channels_last)",
                        f"torch.nn.functional.batch_norm({a}.float(), None, None, training=True)", f"torch.nn.functional.interpolate({a}.float(), scale_factor=2)"]
        return r.choice(options)

    def out(self) -> str:
        a, r = self.pick(), self.rng
        t = self.at(a)
        apart = self.tensors(lambda o: o.untyped_storage()._cdata != t.untyped_storage()._cdata)
        if not apart:
            raise LookupError
        o = r.choice(apart) if r.random() < 0.8 else f"torch.empty(0, dtype={t.dtype}, device=D)"
        return r.choice([f"torch.add({a}, {self.scalar()}, out={o})", f"torch.mul({a}, {a}, out={o})", f"torch.sum({a}, -1, out={o})", f"torch.neg({a}, out={o})", f"torch.cat([{a}, {a}], out={o})",
                         f"torch.clamp({a}, -1, 1, out={o})", f"torch.gt({a}, 0, out={o})", f"torch.arange(4, out={o})", f"torch.linspace(0, 1, 5, out={o})", f"torch.eye(3, out={o})",
                         f"torch.index_select({a}, 0, I(3, 1, 2).to(D), out={o})", f"torch.mm({a}, {a}, out={o})", f"torch.unbind_copy({a}, out=[{o}])",
                         f"torch.split_with_sizes_copy({a}, [1, 1], out=[{o}, torch.empty(0, dtype={t.dtype}, device=D)])",
                         f"torch.add({a}, {self.scalar()}, out={o}[...])", f"torch.mul({a}, {self.scalar()}, out={o}[1:])", f"torch.abs({a}, out={o}.t())", f"torch.sum({a}, 0, out={o}[0])",
                         f"torch.cat([{a}, {a}], out={o}.view(-1))", f"torch.sub({a}, {self.scalar()}, out={o}.detach())", f"torch.bmm({a}[None], {a}[None], out={o})", f"torch.cumsum({a}, 0, out={o})", f"torch.eq({a}, {self.scalar()}, out={o}[..., 0])", f"torch.where({a} > 0, {a}, {a}, out={o})", f"torch.stack([{a}, {a}], out={o})"])

    def lists(self) -> str:
        """Operators over lists of tensors, some of which are views of one."""
        a, r = self.pick(), self.rng
        t = self.at(a)
        same = self.tensors(lambda o: o.shape == t.shape and o.dtype == t.dtype)
        b = r.choice(same)
        written = "torch._foreach_{}_" if r.random() < 0.6 and torch._debug_has_internal_overlap(t) == 0 else "{} = torch._foreach_{}"
        self.count += 1
        new = f"x{self.count}"

        def each(name: str, rest: str) -> str:
            if written.startswith("torch"):
                s = f"torch._foreach_{name}_([{a}], {rest})"
                return f"with torch.no_grad(): {s}" if t.requires_grad else s
            return f"{new} = torch._foreach_{name}([{a}, {b}], {rest})[{r.randint(0, 1)}]"

        both = f"[{b}]" if written.startswith("torch") else f"[{b}, {a}]"
        options = [each("add", self.scalar()), each("mul", self.scalar()), each("add", both), each("sub", both), each("mul", both), each("clamp_min", self.scalar()),
                   f"{new} = torch.hstack([{a}, {b}])", f"{new} = torch.vstack([{a}, {b}])", f"{new} = torch.broadcast_tensors({a}, {b}.unsqueeze(0))[1]",
                   f"{new} = torch.atleast_2d({a}, {b})[0]", f"{new} = torch.cat([{a}.flatten(), {b}.flatten()])", f"{new} = torch.stack([{a}, {b}], -1).unbind(-1)[1]",
                   f"{new} = torch.cat([{a}.unsqueeze(0), {b}.unsqueeze(0).double()])"]
        if t.dim() >= 1:
            options += [f"{new} = {a}.split([{t.shape[0] // 2}, {t.shape[0] - t.shape[0] // 2}])[1]", f"{new} = torch.meshgrid({a}.flatten(), {b}.flatten()[:2], indexing='ij')[1]",
                        f"{new}, x{self.count}b = {a}.chunk(2) if {t.shape[0]} > 1 else ({a}, {b})", f"{new} = torch.block_diag({a}.flatten(), {b}.flatten())"]
        return r.choice(options)

    def storage(self) -> str:
        a, r = self.pick(), self.rng
        t = self.at(a)
        b = self.pick(lambda o: o.dtype == t.dtype)
        return r.choice([f"{a}.data = {b}.detach()", f"{a}.data = {b}.data * 2", f"{a}.set_({b}.detach())", f"{a}.resize_({r.randint(0, 4)}, 2).zero_()", f"{a}.resize_({r.randint(0, 9)}).fill_(1)", f"{a}.detach_()",
                         f"{a}.set_({b}.untyped_storage(), 0, ({self.at(b).numel() // 2},), (1,))", f"{a}.set_()", f"{a}.resize_as_({b}).fill_(2)", f"{a}.swapaxes_(0, -1)",
                         f"{a}.requires_grad_()", f"{a}.as_strided_((2,), (1,))", f"{a}.as_strided_((2, 2), (1, 1))", f"{a}.as_strided_((2,), (2,), 1)", f"{a}.set_({b}.untyped_storage(), 1, (2, 1), (1, 3))",
                         f"{a}.set_({b}.detach()[..., :1])", f"{a}.resize_({r.randint(1, 3)}, 1, 2).fill_(1)", f"{a}.transpose_(0, -1)", f"{a}.data = {b}.detach().t()", f"{a}.untyped_storage().resize_({a}.untyped_storage().nbytes() + 8); torch.as_strided({a}.detach(), ({a}.untyped_storage().nbytes() // {a}.element_size(),), (1,), 0).zero_()"])

    def autograd(self) -> str:
        r = self.rng
        if r.random() < 0.3:
            a = self.pick(lambda t: t.is_floating_point() and t.is_leaf)
            return f"{a}.requires_grad_()"
        a = self.pick(lambda t: t.requires_grad)
        if self.at(a).is_leaf:
            return r.choice([f"{a}.grad = None", f"{a}.grad = torch.ones_like({a})", f"({a} * {a}.sin()).sum().backward()", f"with torch.no_grad(): {a}.sub_(({a}.grad if {a}.grad is not None else {a}) * ⟦0.1⟧)", f"{a}.grad.zero_()", f"{a}.requires_grad_(False)"])
        return r.choice([f"{a}.sum().backward()", f"({a} * {a}).sum().backward(retain_graph=True)", f"{a}.mean().backward()", f"{a}.backward(torch.ones_like({a}))", f"{a}.float().norm().backward()"])

    def observe(self) -> str:
        a, r = self.pick(), self.rng
        return r.choice(["F()", "F()", "F()", f"log({a}.cpu())", f"log({a}.sum().item())", f"log({a}.tolist())", f"log(bool(({a} > 0).any()))", f"log(torch.equal({a}, {a}.clone()))", f"log({a}.cpu().clone())"])

    def forget(self) -> str:
        if len(self.tensors()) < 4:
            raise LookupError
        return f"del {self.pick()}"

    def statement(self) -> str:
        r = self.rng
        kind = r.choices(
            [self.creation, self.likes, self.view, self.in_place, self.pointwise, self.reduction, self.composite, self.out, self.storage, self.autograd, self.observe, self.forget, self.lists],
            [6, 2, 12, 18, 12, 5, 7, 3, 3, 4, 3, 1, 3],
        )[0]
        s = kind()
        if kind in (self.creation, self.likes, self.view, self.pointwise, self.reduction, self.composite):
            old = self.tensors()
            if old and (len(old) > 9 or r.random() < 0.2):
                return f"{r.choice(old)} = {s}"
            self.count += 1
            return f"x{self.count} = {s}"
        return s

    # Growing the program.

    def take(self, text: str, failing: float = 0.1) -> bool:
        """Runs the statement; keeps it if it does what both sides define. A few that raise are kept, too."""
        plain_text = text.replace("⟦", "").replace("⟧", "")
        if (m := re.search(r"(\w+)\[.*\] = (\w+)$", plain_text)) and {m[1], m[2]} <= self.env.keys():
            a, b = self.at(m[1]), self.at(m[2])  # eager fills with a 0-dim CPU tensor: another history than a copy's
            if isinstance(b, torch.Tensor) and b.dim() == 0 and (a.requires_grad or b.requires_grad):
                return False
        sizes = self.storages() if "set_(" in text or "resize" in text else {}
        try:
            with Watch():
                exec(compile(plain_text, "<made>", "exec"), self.env)
        except Exception as e:
            if isinstance(e, EndOfProgram):
                raise
            if "out=" in text:  # may have been resized before the error was seen
                raise EndOfProgram from e
            # Kernels that lack a dtype say so when they run.
            late = "not implemented for" in str(e) or "not supported for" in str(e)
            if late or self.rng.random() > failing:
                return False
            if VALUE_ERROR.search(str(e)):
                if re.search(r"\]\.\w+_\(", text):  # a copy that nobody looks at
                    return False
                self.statements.append(text)
                raise EndOfProgram from e
        else:
            filled = any(f in text for f in (".zero_()", ".fill_("))
            if not filled and any(n > sizes.get(s, n) for s, n in self.storages().items()):
                raise EndOfProgram  # memory that nobody wrote
            if self.tensors(lambda t: t.requires_grad and not (t.is_floating_point() or t.is_complex())):
                raise EndOfProgram
        self.statements.append(text)
        for n in self.tensors():
            t = self.at(n)
            if t.numel() > 3000 or not defined(t):  # values that kernels round or convert each in its own way spread
                self.env[n] = torch.zeros(2)
                self.statements.append(f"{n} = torch.zeros(2, device=D)")
        return True

    def storages(self) -> dict[int, int]:
        """Bytes by storage."""
        storages = [self.at(n).untyped_storage() for n in self.tensors()]
        return {s._cdata: s.nbytes() for s in storages}

    def grow(self, n: int) -> None:
        tries = 0
        while n > 0 and tries < 200:
            tries += 1
            try:
                n -= self.take(self.statement())
            except (LookupError, IndexError, RuntimeError):  # a view whose history was written over cannot be looked at
                continue

    def deviate(self, text: str) -> list[str]:
        r = self.rng
        kind = r.randrange(8)
        if kind <= 1 and "⟦" in text:
            return [re.sub("⟦[^⟧]*⟧", lambda m: self.scalar(), text, count=1)]
        if kind == 2:
            return []
        if kind == 3:
            return [text, self.statement()]
        if kind == 4:
            self.count += 1
            return [text, f"k{self.count} = {self.pick()}"]
        if kind == 5:
            return [text, "F()"]
        if kind == 6:
            a = self.pick()
            same = self.tensors(lambda o: o.shape == self.at(a).shape and o.dtype == self.at(a).dtype)
            return [re.sub(rf"\b{a}\b", r.choice(same), text)]
        return [text, self.observe()]


def b_numel(t: torch.Tensor) -> int:
    return t.numel()


def defined(t: torch.Tensor) -> bool:
    """Whether the values are such that every kernel agrees on them, conversions to integers included."""
    if t.dtype == torch.bool or t.numel() == 0:
        return True
    t = t.detach()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    size = numpy.abs(t.resolve_neg().to(torch.float64, copy=True).numpy())  # no storage can be resized that numpy has seen
    if not t.is_floating_point():
        return bool((size < 1 << 20).all())
    return bool(((size < 1e4) & ((size > 1e-30) | (size == 0))).all())


def make(seed: int, number: int) -> list[str]:
    maker = Maker(random.Random(f"{seed}:{number}"))
    with contextlib.suppress(EndOfProgram):
        make_with(maker)
    return [s.replace("⟦", "").replace("⟧", "") for s in maker.statements]


def make_with(maker: Maker) -> None:
    rng = maker.rng
    for _ in range(rng.randint(1, 4)):
        maker.take(f"x{maker.count} = {maker.creation()}")
        maker.count += 1
    maker.grow(rng.randint(2, 12))
    if rng.random() < 0.6:
        start = len(maker.statements)
        maker.grow(rng.randint(2, 9))
        body = maker.statements[start:]
        step_ends = rng.choice(["F()", "F()", "log({}.sum().item())", ""])
        for _ in range(rng.randint(2, 6)):
            if step_ends:
                name = maker.tensors()
                maker.take(step_ends.format(name[0]) if name else "F()")
            stop = rng.randrange(len(body)) if body and rng.random() < 0.1 else None
            for i, text in enumerate(body):
                if i == stop:
                    break  # the step raised and was caught
                try:
                    for s in maker.deviate(text) if rng.random() < 0.08 else [text]:
                        maker.take(s, failing=0.3)
                except (LookupError, IndexError, RuntimeError):
                    maker.take(text)
