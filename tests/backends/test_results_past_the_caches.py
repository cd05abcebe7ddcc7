"""Results of more than the caches hold are stored past them (streams.h): the same values, for any length, place and dtype. Here
everything is, LAZYT_ONEDNN_STREAM=on."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.environ.get("LAZYT_BACKEND") != "onednn", reason="an option of onednn")

PROGRAM = """
import sys, torch, lazyt
torch.manual_seed(0)
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8]

def number(n, dtype):
    return torch.randint(0, 9, (n,)).to(dtype)

def two(a, b):
    c = a * b + a
    return c, c - b, c * 2 > b

def over(a, b):
    c = a.clone()
    c += b
    c[3:] *= 2
    return c, c + 1

def fills(a, b):
    return torch.zeros_like(a), torch.full_like(a, 3), torch.ones_like(a)[1:] + a[1:]

def beside(a, b):
    n = len(a) // 2
    return torch.cat([a, b]), torch.stack([a, b], 1), torch.cat([a[: 2 * n].view(2, n), b[: 2 * n].view(2, n)], 1)

def turned(a, b):
    m = torch.cat([a] * 8)[: len(a) // 64 * 8 * 64].view(64 * 8, -1)
    return m.t().contiguous(), m[:, 1:].t().contiguous(), m.view(8, 64, -1).transpose(0, 1).contiguous()

def cast(a, b):
    return a.float(), a.to(torch.int32), a.to(torch.bfloat16)

def summed(a, b):
    c = a + b
    return c, c.sum(), c[: len(c) // 4 * 4].view(4, -1).sum(0)

checked = 0
for f in (two, over, fills, beside, turned, cast, summed):
    for dtype in DTYPES:
        for n in (1, 37, 128, 1000, 70001):
            if f is turned and n < 1000: continue
            for at in (0, 1):
                a, b = number(n + at, dtype), number(n + at, dtype)
                wanted = f(a[at:], b[at:])
                had = f(a.to("lazyt")[at:], b.to("lazyt")[at:])
                lazyt.mark_step()
                for k, (w, h) in enumerate(zip(wanted, had)):
                    h = h.cpu()
                    assert h.dtype == w.dtype and h.shape == w.shape and torch.equal(h, w), (f.__name__, dtype, n, at, k)
                    checked += 1
print("equal", checked)
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.mark.parametrize("isa", ["", "avx2", "portable"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_are_the_same(isa, threads):
    out = run(PROGRAM, LAZYT_ONEDNN_STREAM="on", LAZYT_ONEDNN_ISA=isa, LAZYT_THREADS=threads)
    assert out.stdout.startswith("equal 1"), out.stderr[-2000:]


def test_of_more_than_any_cache_are_the_same():
    program = (
        "import torch, lazyt; a = torch.arange(20_000_003.0); b = a.to('lazyt'); c = ((b + 1) * 2).bfloat16();"
        "assert torch.equal(c.cpu(), ((a + 1) * 2).bfloat16());"
        "assert torch.equal(torch.cat([b, b]).cpu(), torch.cat([a, a])); assert bool((torch.ones_like(b) == 1).all()); print('equal')"
    )
    out = run(program)
    assert out.stdout.strip() == "equal", out.stderr[-2000:]


def test_an_unknown_wish_is_an_error():
    out = run(
        "import torch, lazyt; print(torch.ones(3).to('lazyt').exp().cpu())", LAZYT_ONEDNN_STREAM="sometimes"
    )
    assert out.returncode != 0
    assert "LAZYT_ONEDNN_STREAM is 'sometimes'; it can be on or off" in out.stderr
