"""Products of 8-bit integers, and what quantised models make of them, as in eager to the last bit."""

import os

import pytest
import torch

import lazyt

# No product of bytes is claimed elsewhere: there it runs on the host.
ISLANDS = set() if os.environ.get("LAZYT_BACKEND") in ("onednn", "cuda") else {"aten::_int_mm"}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    lazyt.metrics.reset()
    yield
    assert set(lazyt.metrics.fallbacks()) <= ISLANDS


def of_bytes(rows, columns, dtype=torch.int8):
    low, high = (0, 256) if dtype == torch.uint8 else (-128, 128)
    return torch.randint(low, high, (rows, columns), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize(
    "m, k, n",
    [(1, 1, 1), (4, 8, 5), (1, 64, 64), (70, 33, 1), (3, 1000, 65), (0, 4, 5), (4, 0, 5), (128, 256, 64)],
)
def test_product(m, k, n, dtype):
    x, y = of_bytes(m, k, dtype), of_bytes(k, n)
    if dtype == torch.uint8:
        try:
            torch._int_mm(x, y)
        except RuntimeError:
            pytest.skip("eager refuses it, too (PyTorch 2.11: bytes without a sign)")
    layouts = {
        "as they are": lambda t: t,
        "by columns": lambda t: t.t().contiguous().t(),
        "every other": lambda t: t.repeat_interleave(2, 0).repeat_interleave(3, 1)[::2, ::3],
    }
    want = (x.long() @ y.long()).int()
    for a in layouts.values():
        for b in layouts.values():
            got = torch._int_mm(a(x.to("lazyt")), b(y.to("lazyt")))
            assert got.dtype == torch.int32 and torch.equal(got.cpu(), want)


def test_sums_wrap_at_32_bits():
    x = torch.full((1, 140_000), -128, dtype=torch.int8)
    want = torch._int_mm(x, x.t())
    assert want.item() == 140_000 * 2**14 - 2**32 < 0
    assert torch.equal(torch._int_mm(x.to("lazyt"), x.t().to("lazyt")).cpu(), want)


@pytest.mark.parametrize("x, y", [((2, 3), (4, 2)), ((2,), (2, 2))], ids=str)
def test_what_does_not_fit_is_refused_at_its_line(x, y):
    with pytest.raises((RuntimeError, IndexError)):
        torch._int_mm(
            torch.zeros(x, dtype=torch.int8, device="lazyt"), torch.zeros(y, dtype=torch.int8, device="lazyt")
        )


class QuantisedLinear(torch.nn.Module):
    """Weights of 8 bits, a scale for each result; inputs are quantised as they come, a scale for each row."""

    def __init__(self, weight, bias):
        super().__init__()
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight / scale).round().clamp(-127, 127).to(torch.int8))
        self.register_buffer("scale", scale.t().contiguous())
        self.register_buffer("bias", bias)

    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
        quantised = (x / scale).round().clamp(-128, 127).to(torch.int8)
        return torch._int_mm(quantised, self.weight.t()) * scale * self.scale + self.bias


@pytest.mark.parametrize("rows, width, results", [(1, 64, 48), (37, 129, 65), (64, 1024, 300)])
def test_a_dynamically_quantised_linear_layer(rows, width, results):
    layer = QuantisedLinear(torch.randn(results, width), torch.randn(results))
    x = torch.randn(rows, width)
    want = layer(x)
    assert torch.equal(layer.to("lazyt")(x.to("lazyt")).cpu(), want)


@pytest.mark.parametrize("to", [torch.int8, torch.uint8, torch.int32, torch.int16])
@pytest.mark.parametrize("n", [5, 128, 1000, 4099])
def test_numbers_between_floats_and_integers(to, n):
    low, high = (0, 255) if to == torch.uint8 else (-128, 127)
    x = torch.randn(n) * 100
    for f in (
        lambda x: x.round().clamp(low, high).to(to),
        lambda x: x.trunc().clamp(low, high).to(to).float() * 0.5,
        lambda x: (x.clamp(low, high).to(to), x * 2),
        lambda x: x.clamp(low, high).to(to).to(torch.float32).sum(),
        lambda x: (x.clamp(low, high).to(to) + 1).float(),
        lambda x: x.clamp(low, high).to(torch.bfloat16).to(to),
    ):
        want, got = f(x), f(x.to("lazyt"))
        for w, g in zip(
            want if isinstance(want, tuple) else (want,),
            got if isinstance(got, tuple) else (got,),
            strict=True,
        ):
            assert g.dtype == w.dtype and torch.equal(g.cpu(), w)


def test_large_integers_are_rounded_to_floats_once():
    x = torch.tensor([2**24 + 1, 2**31 - 1, -(2**31), 16777219, -16777217] * 60, dtype=torch.int32)
    assert torch.equal((x.to("lazyt").float() * 0.5).cpu(), x.float() * 0.5)
