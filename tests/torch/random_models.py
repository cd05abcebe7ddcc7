"""Networks drawn at random, with data, an optimizer and what happens between steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS = [nn.ReLU, nn.GELU, lambda: nn.GELU("tanh"), nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.Hardswish]
ACTIVATIONS += [nn.LeakyReLU, nn.Softplus, nn.Mish, nn.ReLU6, nn.Identity]
OPTIMIZERS: dict[str, Callable] = {
    "SGD": lambda ps: torch.optim.SGD(ps, 1e-2),
    "SGD, momentum": lambda ps: torch.optim.SGD(ps, 1e-2, momentum=0.9, weight_decay=1e-3),
    # foreach: it adds the momentum to the gradients themselves, on every device but the CPU
    "SGD, Nesterov": lambda ps: torch.optim.SGD(ps, 1e-2, momentum=0.9, nesterov=True, foreach=True),
    "Adam": lambda ps: torch.optim.Adam(ps, 1e-3, eps=1e-3),
    "AdamW": lambda ps: torch.optim.AdamW(ps, 1e-3, eps=1e-3),
    "Adadelta": lambda ps: torch.optim.Adadelta(ps, 1.0, eps=1e-3),
    "RMSprop": lambda ps: torch.optim.RMSprop(ps, 1e-3, eps=1e-2),
    "Adagrad": lambda ps: torch.optim.Adagrad(ps, 1e-2, eps=1e-2),
}
EVENTS = ["none"] * 6 + [
    "eval",
    "accumulate",
    "zero",
    "penalty",
    "clip",
    "scale",
    "data",
    "load",
    "gradients",
]
LOSSES: dict[str, Callable] = {
    "cross entropy": F.cross_entropy,
    "smoothed": lambda out, y: F.cross_entropy(out, y, label_smoothing=0.1),
    "nll": lambda out, y: F.nll_loss(F.log_softmax(out, -1), y),
    "mse": F.mse_loss,
    "smooth l1": F.smooth_l1_loss,
    "bce": F.binary_cross_entropy_with_logits,
}
OF_CLASSES = ("cross entropy", "smoothed", "nll")
LARGEST = 200_000  # elements of an activation


class Residual(nn.Module):
    def __init__(self, f: nn.Module, scale: float = 1):
        super().__init__()
        self.f, self.scale = f, scale

    def forward(self, x: Tensor) -> Tensor:
        return x + self.f(x) * self.scale


class Branches(nn.Module):
    def __init__(self, *branches: nn.Module):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([f(x) for f in self.branches], 1)


class Gate(nn.Module):
    def __init__(self, f: nn.Module):
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.f(x).chunk(2, 1)
        return a * b.sigmoid()


class Turned(nn.Module):
    """f over other dims."""

    def __init__(self, dims: tuple, f: nn.Module):
        super().__init__()
        self.dims, self.back, self.f = dims, sorted(range(len(dims)), key=dims.__getitem__), f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x.permute(self.dims)).permute(self.back)


class Squeeze(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int):
        super().__init__()
        fewer = max(1, channels // 4)
        self.a, self.b = nn.Conv2d(channels, fewer, 1), nn.Conv2d(fewer, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.b(F.relu(self.a(F.adaptive_avg_pool2d(x, 1)))).sigmoid()


class Affine(nn.Module):
    def __init__(self, *shape: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(shape) * 0.1 + 1), nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.bias, x, self.weight)


class RootMeanSquare(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Attention(nn.Module):
    KINDS = ["plain", "causal", "mask", "by hand", "bias", "einsum"]

    def __init__(self, width: int, heads: int, kind: str, split: str, bias: bool):
        super().__init__()
        self.heads, self.kind, self.split = heads, kind, split
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        each = width // self.heads
        if self.split == "chunk":
            q, k, v = (z.view(n, length, self.heads, each).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        else:
            z = self.qkv(x).view(n, length, 3, self.heads, each).permute(2, 0, 3, 1, 4)
            q, k, v = z if self.split == "unbind" else (z[0], z[1], z[2])
        past = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        if self.kind == "by hand":
            y = ((q @ k.transpose(-2, -1)) * each**-0.5).masked_fill(~past, float("-inf")).softmax(-1) @ v
        elif self.kind == "einsum":
            scores = torch.einsum("nhtd,nhsd->nhts", q, k) / each**0.5
            y = torch.einsum("nhts,nhsd->nhtd", scores.softmax(-1), v)
        else:
            at = torch.arange(length, device=x.device, dtype=x.dtype)
            mask = {"mask": past, "bias": -(at[:, None] - at).abs() * 0.1}.get(self.kind)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.kind == "causal")
        return self.out(y.transpose(1, 2).reshape(n, length, width))


class Recurrent(nn.Module):
    def __init__(self, kind: type, width: int, out: int, layers: int, bias: bool):
        super().__init__()
        self.f = kind(width, out, num_layers=layers, bias=bias, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x)[0]


class Gated(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int):
        super().__init__()
        self.a, self.b, self.out = (
            nn.Linear(*s, bias=False) for s in ((width, 2 * width),) * 2 + ((2 * width, width),)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.silu(self.a(x)) * self.b(x))


class Experts(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.experts, self.gate = (
            nn.Parameter(torch.randn(3, width, width) * width**-0.5),
            nn.Linear(width, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("ntk,kdo,ntd->nto", self.gate(x).softmax(-1), self.experts, x)


class Function(nn.Module):
    def __init__(self, f: Callable[[Tensor], Tensor]):
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x)


def running_mean(x: Tensor) -> Tensor:
    return x.cumsum(1) / (1 + torch.arange(x.shape[1], device=x.device, dtype=x.dtype))[:, None]


def activation(rng: random.Random) -> nn.Module:
    return rng.choice(ACTIVATIONS)()


def of_images(rng: random.Random, c: int) -> nn.Module:
    """A layer of c channels; whether it fits the image is not looked at."""

    def window() -> nn.Module:
        k, d = rng.choice([1, 3, 3, 3, 5]), rng.choice([1, 1, 1, 2])
        # single pixels of few channels, stepped over, break eager's memory where AVX-512 is missing
        s = 1 if k == 1 and c < 16 else rng.choice([1, 1, 1, 2])
        p = rng.choice([0, (k - 1) * d // 2, (k - 1) * d // 2])
        out, mode = rng.choice([3, 8, 16, 17, 32, 48, 64]), rng.choice(["zeros"] * 5 + ["reflect"])
        return nn.Conv2d(c, out, k, s, p, d, bias=rng.random() < 0.7, padding_mode=mode)

    def pool() -> nn.Module:
        k, s = rng.choice([2, 3]), rng.choice([1, 2])
        p = rng.choice([0, 1]) if k == 3 else 0
        return (
            nn.MaxPool2d(k, s, p)
            if rng.random() < 0.5
            else nn.AvgPool2d(k, s, p, count_include_pad=rng.random() < 0.5)
        )

    def residual() -> nn.Module:
        k, width = rng.choice([1, 3]), rng.choice([8, 16, 32])
        layers = [
            nn.Conv2d(c, width, k, 1, k // 2, bias=False),
            nn.BatchNorm2d(width),
            activation(rng),
            nn.Conv2d(width, c, 3, 1, 1),
        ]
        return nn.Sequential(
            Residual(
                nn.Sequential(*layers, *[nn.BatchNorm2d(c)] * (rng.random() < 0.5)), rng.choice([1, 0.5])
            ),
            activation(rng),
        )

    def depthwise() -> nn.Module:
        k = rng.choice([3, 5])
        return nn.Conv2d(c, c * rng.choice([1, 1, 2]), k, 1, k // 2, groups=c, bias=rng.random() < 0.5)

    def norm() -> nn.Module:
        return nn.Sequential(
            nn.BatchNorm2d(c, affine=rng.random() < 0.9, track_running_stats=rng.random() < 0.9),
            activation(rng),
        )

    makers: list[Callable[[], nn.Module]] = (
        [window] * 5 + [norm] * 3 + [pool, pool, residual, residual, depthwise]
    )
    makers += [
        lambda: activation(rng),
        lambda: nn.GroupNorm(rng.choice([g for g in (1, 2, 3, 4, 8) if c % g == 0]), c),
        lambda: nn.InstanceNorm2d(c, affine=True),
        lambda: Branches(
            nn.Conv2d(c, 8, 1), nn.Sequential(nn.Conv2d(c, 16, 3, 1, 1), activation(rng)), nn.Identity()
        ),
        lambda: Gate(nn.Conv2d(c, 2 * c, 1)),
        lambda: nn.Upsample(scale_factor=2, mode=rng.choice(["nearest", "bilinear"])),
        lambda: nn.PixelShuffle(2),
        lambda: nn.ConvTranspose2d(c, rng.choice([8, 16]), 2, 2),
        lambda: rng.choice([nn.ZeroPad2d, nn.ReplicationPad2d])(1),
        lambda: Squeeze(c),
        lambda: Turned((0, 2, 3, 1), nn.LayerNorm(c)),
        lambda: Function(lambda x: x - x.mean((2, 3), keepdim=True)),
        lambda: Function(lambda x: x.flip(3)),
        lambda: Affine(c, 1, 1),
    ]
    return rng.choice(makers)()


def of_sequences(rng: random.Random, d: int) -> nn.Module:
    def attention() -> nn.Module:
        heads = rng.choice([h for h in (1, 2, 4) if d % h == 0])
        f = Attention(
            d,
            heads,
            rng.choice(Attention.KINDS),
            rng.choice(["chunk", "unbind", "index"]),
            rng.random() < 0.5,
        )
        return Residual(nn.Sequential(nn.LayerNorm(d), f)) if rng.random() < 0.8 else f

    def feed_forward() -> nn.Module:
        width = rng.choice([32, 64, 100, 128])
        return Residual(
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, width), activation(rng), nn.Linear(width, d))
        )

    def window() -> nn.Module:
        k = rng.choice([1, 3, 5])
        return Turned((0, 2, 1), nn.Conv1d(d, rng.choice([16, 32, 64]), k, 1, k // 2))

    def encoder() -> nn.Module:
        options = {"norm_first": rng.random() < 0.5, "activation": rng.choice(["relu", "gelu"])}
        return (
            nn.TransformerEncoderLayer(d, 2, 2 * d, dropout=0.0, batch_first=True, **options)
            if d % 2 == 0
            else nn.Identity()
        )

    makers: list[Callable[[], nn.Module]] = [attention] * 4 + [feed_forward] * 3 + [window, encoder]
    makers += [
        lambda: activation(rng),
        lambda: nn.Linear(d, rng.choice([16, 32, 48, 64, 96, 128]), bias=rng.random() < 0.7),
        lambda: nn.LayerNorm(d, elementwise_affine=rng.random() < 0.8),
        lambda: RootMeanSquare(d),
        lambda: nn.RMSNorm(d),
        lambda: Recurrent(
            rng.choice([nn.LSTM, nn.GRU, nn.RNN]),
            d,
            rng.choice([16, 32]),
            rng.choice([1, 1, 2]),
            rng.random() < 0.8,
        ),
        lambda: nn.Sequential(nn.Linear(d, 2 * 24), nn.GLU(-1)),
        lambda: Residual(Gated(d)),
        lambda: Experts(d),
        lambda: Affine(d),
        lambda: Turned((0, 2, 1), nn.BatchNorm1d(d)),
        lambda: Function(running_mean),
        lambda: Function(lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1) + x),
        lambda: Function(lambda x: x + x.mean(1, keepdim=True) - x.amax(2, keepdim=True)),
    ]
    return rng.choice(makers)()


def stacked(
    rng: random.Random, draw: Callable[[random.Random, int], nn.Module], x: Tensor, layers: int
) -> tuple[list[nn.Module], Tensor]:
    """Layers that fit each other, and what comes out of them for x, whose dim `width` is theirs."""
    out: list[nn.Module] = []
    width = 1 if x.dim() == 4 else 2
    for _ in range(layers):
        f = draw(rng, x.shape[width])
        try:
            y = f.eval()(x)
        except (RuntimeError, ValueError):  # a window that does not fit, a norm of one element
            continue
        square = y.dim() == x.dim() and (x.dim() == 3 or y.shape[2] == y.shape[3] > 1)
        if square and y.numel() <= LARGEST and y.shape[width] <= 256:
            out.append(f.train())
            x = y
    return out, x


@dataclass
class Case:
    """A network and its training."""

    model: nn.Module
    loss: str
    optimizer: str
    decays: bool  # the learning rate, each step
    channels_last: bool  # of images, on lazyt
    events: list[str]  # of each step
    data: list[tuple[Tensor, Tensor]]  # float64 or int64


@torch.no_grad()
def make(seed: int, number: int) -> Case:
    rng = random.Random(f"{seed}:{number}")
    torch.manual_seed(rng.randrange(1 << 30))
    images, loss, classes = rng.random() < 0.5, rng.choice(list(LOSSES)), rng.choice([2, 10, 37])
    vocabulary = 37
    if images:
        shape = (rng.choice([1, 3, 4, 16]),) + (rng.choice([7, 8, 12, 14, 16]),) * 2
        layers, y = stacked(rng, of_images, torch.randn(2, *shape), rng.randint(2, 8))
        head = rng.choice(
            [
                nn.Flatten(),
                nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
                Function(lambda x: x.mean((-1, -2))),
            ]
        )
    else:
        shape, width = (rng.choice([5, 8, 16, 33]),), rng.choice([16, 32, 48, 64])
        embedding = nn.Embedding(vocabulary, width, padding_idx=rng.choice([None, None, 0]))
        layers, y = stacked(
            rng, of_sequences, embedding(torch.zeros(2, *shape, dtype=torch.int64)), rng.randint(2, 7)
        )
        layers.insert(0, embedding)
        head = Function(rng.choice([lambda x: x.mean(1), lambda x: x[:, -1], lambda x: x.flatten(0, 1)]))
    flat = head(y)
    model = nn.Sequential(*layers, head, nn.Linear(flat.shape[1], classes))
    steps, batch, data = rng.randint(2, 5), rng.choice([2, 3, 4, 8]), []
    for _ in range(steps):
        n = batch + (rng.random() < 0.15)
        x = (
            torch.randn(n, *shape, dtype=torch.float64)
            if images
            else torch.randint(0, vocabulary, (n, *shape))
        )
        rows = n * flat.shape[0] // 2
        if loss in OF_CLASSES:
            y = torch.randint(0, classes, (rows,))
        else:
            y = torch.rand(rows, classes, dtype=torch.float64)
        data.append((x, y))
    events = [rng.choice(EVENTS) for _ in range(steps)]
    return Case(
        model, loss, rng.choice(list(OPTIMIZERS)), rng.random() < 0.3, rng.random() < 0.3, events, data
    )
