"""Random calls of operators that have kernels of their own, of random shapes and layouts, alone or between
pointwise operators that kernels take in. Values, dtypes, shapes and gradients are as near to double as the
dtype allows, or as eager's are.

    LAZYT_BACKEND=onednn python tests/backends/operator_fuzzer.py --seed 1 --seconds 100
"""

import math
import random
import sys

import fuzzing
import lazyt
import torch
import torch.nn.functional as F

DEVICE = "lazyt"
MOST_ELEMENTS, MOST_PRODUCTS = 300_000, 4_000_000
DTYPES = {torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float16: 1.5e-2, torch.float64: 1e-9}
LENGTHS = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    12,
    15,
    16,
    17,
    24,
    31,
    32,
    33,
    48,
    49,
    63,
    64,
    65,
    100,
    127,
    128,
    129,
    200,
    256,
    257,
    300,
)
LONG_LENGTHS = (0, 511, 512, 513, 1000, 1024, 1025, 2047, 3000, 4100)

# ---- Families of operators: a function, the sizes of its operands, and words that name it.


def size(r: random.Random, dims: int, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
    while True:
        out = [r.choice(LENGTHS) for _ in range(dims)]
        if dims and r.random() < 0.2:
            out[r.randrange(dims)] = r.choice(LONG_LENGTHS)
        if math.prod(out) <= most:
            return tuple(out)


def reduction(r):
    dims = size(r, r.randint(1, 4))
    over, keep = tuple(r.sample(range(len(dims)), r.randint(1, len(dims)))), r.random() < 0.5
    name = r.choice(["sum", "mean", "amax", "amin", "var", "vector_norm", "logsumexp"])
    if name == "var":
        return (lambda x: x.var(over, correction=0, keepdim=keep)), [dims], f"var {over}"
    if name == "vector_norm":
        order = r.choice([1, 2, 3, math.inf])
        return (lambda x: torch.linalg.vector_norm(x, order, over, keep)), [dims], f"{order}-norm {over}"
    return (lambda x: getattr(x, name)(over, keep)), [dims], f"{name} {over}"


def along_a_dim(r):
    dims = size(r, r.randint(1, 4))
    dim, by = r.randrange(len(dims)), r.randint(-3, 3)
    name, call = r.choice(
        [
            ("softmax", lambda x: x.softmax(dim)),
            ("log_softmax", lambda x: x.log_softmax(dim)),
            ("cumsum", lambda x: x.cumsum(dim)),
            ("cummax", lambda x: x.cummax(dim).values),
            ("logcumsumexp", lambda x: x.logcumsumexp(dim)),
            ("prod", lambda x: (1 + x / 100).prod(dim)),
            ("sort", lambda x: x.detach().sort(dim).values),
            ("normalize", lambda x: F.normalize(x, dim=dim)),
            ("roll", lambda x: x.roll(by, dim)),
            ("flip", lambda x: x.flip(dim)),
            ("cat", lambda x: torch.cat([x, x * 2, x], dim)),
            ("stack", lambda x: torch.stack([x, x + 1], dim)),
            ("repeat_interleave", lambda x: x.repeat_interleave(2, dim)),
        ]
    )
    return call, [dims], f"{name} {dim}"


def norm(r):
    name = r.choice(["layer", "rms", "group", "batch"])
    if name in ("layer", "rms"):
        dims = size(r, r.randint(1, 3))
        last = dims[-r.randint(1, len(dims)) :]
        if name == "rms":
            return (lambda x, w: F.rms_norm(x, last, w, 1e-3)), [dims, last], f"rms norm {last}"
        return (lambda x, w, b: F.layer_norm(x, last, w, b, 1e-2)), [dims, last, last], f"layer norm {last}"
    groups = r.choice([1, 2, 4, 8])
    channels = groups * r.choice([1, 2, 3, 8, 16])
    dims = (r.choice([2, 3, 5]), channels, *(r.choice([3, 5, 8, 13, 20]) for _ in range(r.randint(1, 3))))

    def call(x, w, b):
        if name == "group":
            return F.group_norm(x, groups, w, b, 1e-2)
        return F.batch_norm(
            x.contiguous(), None, None, w.clone(), b.clone(), True, 0.1, 1e-2
        )  # eager errs of others

    return call, [dims, (channels,), (channels,)], f"{name} norm {groups}"


def pool(r):
    n, adaptive, kind = r.randint(1, 3), r.random() < 0.3, r.choice(["max", "avg"])
    dims = (
        r.choice([1, 2, 3]),
        r.choice([1, 3, 8, 16, 17, 40]),
        *(r.choice([2, 4, 7, 8, 13, 20]) for _ in range(n)),
    )
    if adaptive:
        to = [r.choice([1, 2, 3, 5, 7]) for _ in range(n)]
        return (
            (lambda x: getattr(F, f"adaptive_{kind}_pool{n}d")(x, to)),
            [dims],
            f"adaptive {kind} pool {to}",
        )
    kernel, stride = [r.choice([1, 2, 3, 3, 5, 7]) for _ in range(n)], [r.choice([1, 2, 3]) for _ in range(n)]
    padding, up = [r.randint(0, k // 2) for k in kernel], r.random() < 0.3
    if any(s + 2 * p < k for s, p, k in zip(dims[2:], padding, kernel, strict=True)):
        return None
    more = {"dilation": 1} if kind == "max" else {"count_include_pad": r.random() < 0.5}
    words = f"{kind} pool {kernel} {stride} {padding} {up} {more}"
    return (
        (lambda x: getattr(F, f"{kind}_pool{n}d")(x, kernel, stride, padding, ceil_mode=up, **more)),
        [dims],
        words,
    )


def resize(r):
    mode = r.choice(["nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"])
    n = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}.get(mode, r.randint(1, 3))
    dims = (r.choice([1, 2]), r.choice([1, 3, 8, 17]), *(r.choice([1, 2, 5, 8, 13]) for _ in range(n)))
    to = [r.choice([1, 3, 6, 16, 25]) for _ in range(n)]
    corners = r.random() < 0.5 if "linear" in mode or mode == "bicubic" else None
    return (
        (lambda x: F.interpolate(x, size=to, mode=mode, align_corners=corners)),
        [dims],
        f"{mode} to {to} {corners}",
    )


def pad(r):
    n, mode = r.randint(1, 3), r.choice(["constant", "reflect", "replicate", "circular"])
    dims = (r.choice([1, 2]), r.choice([1, 3, 8]), *(r.choice([4, 5, 8, 13]) for _ in range(n)))
    by = [r.randint(0, 3) for _ in range(2 * n)]
    return (lambda x: F.pad(x, by, mode)), [dims], f"pad {mode} {by}"


def indexed(r):
    dims = size(r, r.randint(1, 3))
    dim = r.randrange(len(dims))
    if 0 in dims:
        return None
    some = tuple(r.randint(1, s) for s in dims)
    places, lines = (
        torch.randint(0, dims[dim], some),
        torch.randint(0, dims[dim], (r.choice([1, 3, 20, 100]),)),
    )
    added = (*dims[:dim], len(lines), *dims[dim + 1 :])
    return r.choice(
        [
            ((lambda x: x.gather(dim, places.to(x.device))), [dims], f"gather {dim} {some}"),
            ((lambda x, y: x.scatter_add(dim, places.to(x.device), y)), [dims, some], f"scatter_add {dim}"),
            ((lambda x: x.index_select(dim, lines.to(x.device))), [dims], f"index_select {dim}"),
            ((lambda x: x[(slice(None),) * dim + (lines.to(x.device),)]), [dims], f"index {dim}"),
            (
                (lambda x, y: x.index_add(dim, lines.to(x.device), y, alpha=2)),
                [dims, added],
                f"index_add {dim}",
            ),
        ]
    )


def loss(r):
    reduce = r.choice(["mean", "sum", "none"])
    if r.random() < 0.5:
        rows, classes = r.choice([1, 4, 33, 100]), r.choice(LENGTHS)
        more, smooth = r.choice([(), (5,), (3, 4)]), r.choice([0.0, 0.1])
        target = torch.randint(0, classes, (rows, *more))
        if target.numel() > 1:
            target.view(-1)[0] = -100

        def call(x):
            return F.cross_entropy(x, target.to(x.device), reduction=reduce, label_smoothing=smooth)

        return call, [(rows, classes, *more)], f"cross_entropy {reduce} {smooth}"
    dims = size(r, r.randint(1, 3))
    name = r.choice(["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
    return (lambda x, y: getattr(F, name)(x, y, reduction=reduce)), [dims, dims], f"{name} {reduce}"


def attention(r):
    b, h, n, m = (
        r.choice([1, 2]),
        r.choice([1, 2, 4]),
        r.choice([1, 2, 5, 16, 33, 64, 130]),
        r.choice([1, 3, 16, 64, 130, 257]),
    )
    e, v = r.choice([1, 3, 8, 16, 32, 64, 80]), r.choice([8, 16, 64])
    operands, kind = (
        [(b, h, n, e), (b, h, m, e), (b, h, m, v)],
        r.choice(["plain", "causal", "mask", "added", "grouped"]),
    )
    if kind == "grouped":
        operands[0] = (b, 2 * h, n, e)
    if kind == "added":
        operands.append(r.choice([(n, m), (b, h, n, m), (b, 1, 1, m)]))
        return (
            (lambda q, k, v, a: F.scaled_dot_product_attention(q, k, v, attn_mask=a)),
            operands,
            "attention, added to",
        )
    mask = None
    if kind == "mask":
        mask = torch.rand(r.choice([(n, m), (b, 1, 1, m), (b, h, n, m)])) < 0.7
        mask[..., 0] = True
    options = {"is_causal": kind == "causal", "enable_gqa": kind == "grouped"}

    def call(q, k, v):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=None if mask is None else mask.to(q.device), **options
        )

    return call, operands, f"attention {kind}"


def product(r):
    m, k, n, b = *(r.choice(LENGTHS + (0, 1000)) for _ in range(3)), r.choice([1, 2, 3, 5, 8])
    if m * k * n * b > MOST_PRODUCTS:
        return None
    alpha, beta = r.choice([(1, 1), (1, 1), (0.5, 1), (2, 0), (1, -1.5)])
    by = {"alpha": alpha, "beta": beta}
    x, y = (
        [(k,), (m, k), (b, m, k), (2, b, m, k), (2, 1, m, k)],
        [(k,), (k, n), (b, k, n), (1, k, n), (2, 1, k, n)],
    )
    return r.choice(
        [
            (torch.matmul, [r.choice(x), r.choice(y)], "matmul"),
            (F.linear, [r.choice(x[:4]), (n, k), (n,)], "linear"),
            (F.linear, [r.choice(x[:4]), (n, k)], "linear without bias"),
            (
                (lambda c, x, y: torch.addmm(c, x, y, **by)),
                [r.choice([(m, n), (n,), (m, 1), (1, 1)]), (m, k), (k, n)],
                f"addmm {by}",
            ),
            (
                (lambda c, x, y: torch.baddbmm(c, x, y, **by)),
                [r.choice([(b, m, n), (1, m, n), (n,)]), (b, m, k), (b, k, n)],
                f"baddbmm {by}",
            ),
            ((lambda c, x, y: torch.addbmm(c, x, y, **by)), [(m, n), (b, m, k), (b, k, n)], f"addbmm {by}"),
            ((lambda c, x, y: torch.addmv(c, x, y, **by)), [(m,), (m, k), (k,)], f"addmv {by}"),
            ((lambda x, y: torch.einsum("bimk,bjmk->bmij", x, y)), [(b, m, 2, k), (b, n, 2, k)], "einsum"),
            (torch.outer, [(m,), (n,)], "outer"),
        ]
    )


def pointwise(r):
    dims = size(r, r.randint(1, 4))
    short = tuple(1 if r.random() < 0.4 else s for s in dims)
    name, call = r.choice(
        [
            ("add", lambda x, y: x + y),
            ("mul", lambda x, y: x * y),
            ("where", lambda x, y: torch.where(x > y, x, y * 2)),
            ("maximum", torch.maximum),
            ("lerp", lambda x, y: torch.lerp(x, y, 0.3)),
            ("atan2", lambda x, y: torch.atan2(x, y.abs() + 1)),
            ("glu", lambda x, y: F.glu(torch.cat([x, y.expand(x.shape)], -1), -1)),
            ("diff", lambda x, y: (x - y)[..., 1:] - (x - y)[..., :-1]),
            ("transpose", lambda x, y: (x + y).transpose(0, -1).contiguous()),
        ]
    )
    return call, [dims, short], name


FAMILIES = (reduction, along_a_dim, norm, pool, resize, pad, indexed, loss, attention, product, pointwise)
# None that jumps, nor its slope: there the least rounding counts.
BEFORE = (torch.tanh, lambda x: x * 2 + 1, F.silu, lambda x: x.transpose(0, -1).contiguous().transpose(0, -1))
AFTER = (
    torch.tanh,
    F.silu,
    lambda y: y * 2 + 1,
    F.gelu,
    lambda y: y + y.mean(),
    lambda y: y.sum(-1) if y.dim() else y,
    lambda y: y.softmax(-1) if y.dim() else y,
    lambda y: y[..., : max(1, y.shape[-1] // 2)] * 3 if y.dim() and y.numel() else y,
)

# ---- Layouts


def laid_out(r: random.Random, x: torch.Tensor) -> torch.Tensor:
    """x, or its values as they lie after views."""
    way, n = r.random(), x.dim()
    if way < 0.5 or n == 0 or x.numel() == 0:
        return x
    if way < 0.7:
        order = r.sample(range(n), n)
        return x.permute(order).contiguous().permute([order.index(i) for i in range(n)])
    if way < 0.85:
        around = x.new_zeros([s + 3 for s in x.shape])
        part = around[tuple(slice(1, 1 + s) for s in x.shape)]
    elif way < 0.93:
        part = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1]))[..., 1::2]
    else:
        return x.narrow(n - 1, 0, 1).expand(x.shape)
    return part.copy_(x)


def on_device(x: torch.Tensor) -> torch.Tensor:
    """The same layout there."""
    if x.numel() == 0:
        return x.to(DEVICE)
    memory = x.new_zeros(x.untyped_storage().nbytes() // x.element_size())
    once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.stride())
    memory.as_strided(x[once].shape, x.stride(), x.storage_offset()).copy_(x[once])
    return memory.to(DEVICE).as_strided(x.shape, x.stride(), x.storage_offset())


# ---- One case


def results(call, operands: list, seed: torch.Tensor | None) -> list:
    """The value, and, where there is a seed, the gradients of the operands."""
    if seed is None:
        return [call(*operands)]
    leaves = [x.detach().requires_grad_() for x in operands]
    y = call(*leaves)
    y.backward(seed)
    return [y.detach(), *(x.grad for x in leaves)]


def largest(t: torch.Tensor) -> float:
    return t.abs().nan_to_num(0, 0, 0).max().item() if t.numel() else 0.0


def differs(got: torch.Tensor, exact: torch.Tensor, eager: torch.Tensor, scale: float, near: float) -> str:
    """What is wrong with it; empty if nothing is. scale: of what may be lost where much is cancelled."""
    if got.dtype != eager.dtype or got.shape != eager.shape:
        return f"{got.dtype} {tuple(got.shape)}, not {eager.dtype} {tuple(eager.shape)}"
    if exact.numel() == 0:
        return ""

    def error(t: torch.Tensor) -> float:
        alike = (t.double() == exact) | (t.isnan() & exact.isnan())
        off = ((t.double() - exact).abs() / max(largest(exact), scale)).masked_fill(alike, 0)
        return off.nan_to_num(math.inf, math.inf).max().item()

    mine, eagers = error(got), error(eager)
    return "" if mine <= max(near, 3 * eagers) else f"off by {mine:.1e}, eager by {eagers:.1e}"


def case(r: random.Random, only: str) -> tuple[str, str] | None:
    """What was called, and what is wrong with it; nothing if PyTorch does not take such a call."""
    torch.manual_seed(r.randrange(1 << 30))
    made = r.choice([f for f in FAMILIES if only in f.__name__])(r)
    dtype = r.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64])
    if made is None:
        return None
    call, sizes, words = made
    before = [r.choice(BEFORE) if r.random() < 0.2 else None for _ in sizes]
    after = r.choice(AFTER) if r.random() < 0.4 else None

    def whole(*operands):
        y = call(*(f(x) if f and x.dim() else x for f, x in zip(before, operands, strict=True)))
        return after(y) if after else y

    operands = [laid_out(r, torch.randn(s).to(dtype)) for s in sizes]
    chained = f"{[BEFORE.index(f) if f else '' for f in before]} {AFTER.index(after) if after else ''}"
    words = f"{words} {chained} {dtype} {sizes} {[x.stride() for x in operands]}"
    try:
        value = whole(*operands)
    except (RuntimeError, IndexError, ValueError):
        return None
    seed = (
        torch.randn(value.shape).to(dtype)
        if r.random() < 0.5 and value.numel() and not words.startswith("sort")
        else None
    )
    fuzzing.begins(words)
    doubles = [x.double() for x in operands]
    exact = results(whole, doubles, seed if seed is None else seed.double())
    scale = max([1e-2, *(largest(g) for g in exact if g is not None)])
    try:
        mine = results(whole, [on_device(x) for x in operands], seed if seed is None else seed.to(DEVICE))
        mine = [t if t is None else t.cpu() for t in mine]
    except RuntimeError as error:
        return words, " | ".join(str(error).splitlines()[:2])
    for got, e, y in zip(mine, exact, results(whole, operands, seed), strict=True):
        if (got is None) != (y is None):
            return words, "a gradient that eager has not, or the other way round"
        if got is not None and (wrong := differs(got, e, y, scale, DTYPES[dtype])):
            return words, wrong
    return words, ""


def main() -> int:
    parser = fuzzing.parser(__doc__)
    parser.add_argument(
        "--only",
        default="",
        help="families whose name contains this: " + ", ".join(f.__name__ for f in FAMILIES),
    )
    args = parser.parse_args()
    if not any(args.only in f.__name__ for f in FAMILIES):
        parser.error(f"no family's name contains {args.only}")
    done, wrong = fuzzing.run(args, lambda r: case(r, args.only))
    print(f"\r{done} calls, {wrong} wrong; on the host: {dict(lazyt.metrics.fallbacks())}".ljust(150))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
