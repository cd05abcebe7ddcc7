"""Runs small models on the CUDA plugin's stand-ins for libraries; prints the steps of each and how far it is from eager.

Run by test_libraries_of_cuda.py in a process of its own: which libraries there are is known when the plugin is loaded.
"""

import ctypes
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import lazyt

FOLDER = Path(os.environ["LAZYT_CUDA_DUMP"])
REPORT = {}


@contextmanager
def refused(variable, value):
    os.environ[variable] = value
    yield
    del os.environ[variable]


@contextmanager
def rounded_products():
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def steps_since(before):
    files = sorted(set(FOLDER.glob("program_*.txt")) - before, key=lambda p: int(p.stem.split("_")[-1]))
    return [line.split("\t")[0] for f in files for line in f.read_text().splitlines()]


def compare(name, module, x, train=True, dtype=torch.float32):
    """Loss, result and gradients of one step, as the largest error relative to the largest value of each tensor."""

    def run(device, dtype):
        torch.manual_seed(0)
        m = module().to(device=device, dtype=dtype)
        made = m(x.to(device=device, dtype=dtype))
        if not train:
            return [made.detach().float().cpu()]
        made.float().square().mean().backward()
        out = [made.detach(), *(p.grad for p in m.parameters())]
        return [t.float().cpu() for t in out]

    before = set(FOLDER.glob("program_*.txt"))
    with torch.set_grad_enabled(train):
        expected = run("cpu", torch.float64)
        got = run("lazyt", dtype)
    error = max(((g - e).abs().max() / e.abs().max().clamp(min=1e-6)).item() for g, e in zip(got, expected))
    REPORT[name] = {"steps": steps_since(before), "error": error}


class Mlp(nn.Module):
    def __init__(self, activation, n=32, bias=True):
        super().__init__()
        self.a, self.b = nn.Linear(16, n, bias=bias), nn.Linear(n, 8, bias=bias)
        self.activation = activation

    def forward(self, x):
        return self.b(self.activation(self.a(x)))


class ReadTwice(Mlp):
    def forward(self, x):
        before = self.a(x)
        return self.b(self.activation(before)) + before[..., :8]


def gelu(x):
    return F.gelu(x, approximate="tanh")


def epilogues():
    x, cube = torch.randn(24, 16), torch.randn(4, 6, 16)
    half = {"dtype": torch.bfloat16}
    compare("relu", lambda: Mlp(F.relu), x)
    compare("relu of three dims", lambda: Mlp(F.relu), cube)
    compare("relu without bias", lambda: Mlp(F.relu, bias=False), x)
    compare("relu at inference", lambda: Mlp(F.relu), x, train=False)
    compare("relu whose operand is read", lambda: ReadTwice(F.relu), x)
    compare("gelu", lambda: Mlp(gelu), x, **half)
    compare("gelu of three dims", lambda: Mlp(gelu), cube, **half)
    compare("gelu at inference", lambda: Mlp(gelu), x, train=False, **half)
    compare("gelu whose operand is read", lambda: ReadTwice(gelu), x, train=False, **half)
    compare("gelu in f32", lambda: Mlp(gelu), x)
    compare("gelu in f64", lambda: Mlp(gelu), x, dtype=torch.float64)
    compare("gelu by erf", lambda: Mlp(F.gelu), x, **half)
    compare("gelu of 20 columns", lambda: Mlp(gelu, n=20), x, **half)
    compare("linear after linear", lambda: nn.Sequential(nn.Linear(16, 40), nn.Linear(40, 8)), x)
    for name, numbers in {"masks": "134", "sums": "152", "gradients": "136,152", "all": "2,6,130,134,136,152,256,512"}.items():
        with refused("LAZYT_FAKE_CUBLASLT_REFUSE", numbers):  # other sizes: answers are kept
            n = 64 + 8 * len(name)
            compare(f"relu, refused {name}", lambda n=n: Mlp(F.relu, n=n), x)
            compare(f"sums, refused {name}", lambda n=n: nn.Sequential(nn.Linear(16, n), nn.Linear(n, 8)), x)
    library = ctypes.CDLL(os.environ["LAZYT_CUDA_CUBLASLT"])
    library.lazyt_fake_cublaslt_questions.restype = ctypes.c_uint64
    before = library.lazyt_fake_cublaslt_questions()
    compare("eight alike", lambda: nn.Sequential(*(nn.Linear(16, 16) for _ in range(8))), x, train=False)
    REPORT["eight alike"]["questions"] = library.lazyt_fake_cublaslt_questions() - before
    with rounded_products():
        before = library.lazyt_fake_cublaslt_questions()
        compare("eight in tf32", lambda: nn.Sequential(*(nn.Linear(16, 16) for _ in range(8))), x, train=False)
    REPORT["eight in tf32"]["questions"] = library.lazyt_fake_cublaslt_questions() - before


class Windows(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.a = nn.Conv2d(4, channels, 3, padding=1, stride=2)
        self.b = nn.Conv2d(channels, channels, 3, groups=2, dilation=2, bias=False)
        self.c = nn.ConvTranspose2d(channels, 4, 2, stride=2)

    def forward(self, x):
        return self.c(self.b(F.silu(self.a(x))))


class Last(Windows):
    """Channels-last all through."""

    def __init__(self, *args):
        super().__init__(*args)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return super().forward(x.to(memory_format=torch.channels_last))


class Residual(nn.Module):
    """A block of ResNet at inference, whose other side has a convolution of its own, and one of a plain network."""

    def __init__(self, last=True, activation=F.relu):
        super().__init__()
        self.stem = nn.Conv2d(4, 4, 3, padding=1)
        self.a, self.b = nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.side = nn.Conv2d(4, 8, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
        self.plain = nn.Conv2d(8, 8, 3)
        for norm in self.norms:
            for t in (norm.running_mean, norm.weight.data, norm.bias.data):
                t.normal_()
            norm.running_var.uniform_(0.5, 2)
        self.eval()
        self.last, self.activation = last, activation
        if last:
            self.to(memory_format=torch.channels_last)

    def forward(self, x):
        x = self.stem(x)
        y = self.activation(self.norms[0](self.a(x)))
        y = self.norms[1](self.b(y))
        y = self.activation(y + self.norms[2](self.side(x)))
        return self.activation(self.plain(y))


def chains():
    x, half = torch.randn(2, 4, 9, 9), {"train": False, "dtype": torch.float16}
    compare("f32", Residual, x, train=False)
    compare("f16", Residual, x, **half)
    compare("channels first", lambda: Residual(last=False), x, **half)
    compare("another activation", lambda: Residual(activation=F.silu), x, **half)
    compare("f64", Residual, x, train=False, dtype=torch.float64)
    compare("training", lambda: nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), x)
    with refused("LAZYT_FAKE_CUDNN", "alone"):  # another size: answers are kept
        compare("refused", Residual, x[:, :, 1:], train=False)


def windows():
    x, half = torch.randn(2, 4, 15, 15), {"dtype": torch.float16}
    compare("f32", Windows, x)
    compare("f32 channels last", Last, x)
    compare("f64", Windows, x, dtype=torch.float64)
    compare("f16", Windows, x, **half)
    compare("f16 channels last", Last, x, **half)
    compare("bf16", Windows, x, dtype=torch.bfloat16)
    compare("one dim", lambda: nn.Conv1d(4, 6, 3, padding=1), x[:, :, 0])
    compare("three dims", lambda: nn.Conv3d(4, 6, 2, padding=1), torch.randn(1, 4, 5, 4, 3))
    compare("channels last x alone", Windows, x.to(memory_format=torch.channels_last))
    with rounded_products():
        compare("f32 in tf32", Windows, x)
    with refused("LAZYT_FAKE_CUDNN", "none"):  # other sizes: answers are kept
        compare("no engine", lambda: Windows(12), x)
    with refused("LAZYT_FAKE_CUDNN", "alone"):
        compare("no engine for a bias", lambda: Windows(20), x)
    with refused("LAZYT_FAKE_CUDNN", "busy"):
        compare("engines of the second choice", lambda: Windows(16), x)


class Attention(nn.Module):
    """Heads as most models lay them: beside each other, so that queries are views of what a product wrote."""

    def __init__(self, width=16, heads=2, key_heads=2, **options):
        super().__init__()
        self.heads, self.key_heads, self.width, self.options = heads, key_heads, width, options
        self.q, self.kv = nn.Linear(16, heads * width), nn.Linear(16, 2 * key_heads * width)

    def forward(self, x):
        def split(t, heads):
            return t.unflatten(-1, (heads, self.width)).transpose(1, 2)

        k, v = self.kv(x).chunk(2, dim=-1)
        options = {k: o(x) if callable(o) else o for k, o in self.options.items()}
        made = F.scaled_dot_product_attention(split(self.q(x), self.heads), split(k, self.key_heads), split(v, self.key_heads), **options)
        return made.transpose(1, 2).flatten(2)


def attention():
    x, half = torch.randn(2, 11, 16), {"dtype": torch.float16}
    compare("f16", Attention, x, **half)
    compare("f16 causal", lambda: Attention(is_causal=True), x, **half)
    compare("bf16 causal", lambda: Attention(is_causal=True), x, dtype=torch.bfloat16)
    compare("a scale", lambda: Attention(is_causal=True, scale=0.3), x, **half)
    compare("shared keys", lambda: Attention(heads=4, is_causal=True, enable_gqa=True), x, **half)
    compare("inference", lambda: Attention(is_causal=True), x, train=False, **half)
    with deterministic():
        compare("deterministic", lambda: Attention(is_causal=True), x, **half)
    compare("f32", Attention, x)
    compare("heads of 12", lambda: Attention(width=12), x, **half)
    compare("a mask", lambda: Attention(attn_mask=lambda x: torch.ones(11, 11, dtype=x.dtype, device=x.device).tril().log()), x, **half)
    with refused("LAZYT_FAKE_CUDNN", "none"):  # other sizes: answers are kept
        compare("no engine", lambda: Attention(width=24), x, **half)


def broken_run():
    """A call of cuDNN fails, the next does not."""
    weight, x = torch.randn(6, 4, 3, 3).to("lazyt"), torch.randn(1, 4, 8, 8).to("lazyt")
    os.environ["LAZYT_FAKE_CUDNN"] = "fail=1"
    try:
        F.conv2d(x, weight).cpu()
    except RuntimeError as error:
        REPORT["error"] = str(error)
    REPORT["after"] = F.conv2d(x, weight).cpu().isfinite().all().item()


if __name__ == "__main__":
    assert lazyt  # registers the device
    globals()[sys.argv[1]]()
    print(json.dumps(REPORT))
