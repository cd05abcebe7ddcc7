"""Where pieces of a function meet, zeros of both signs, infinities, NaN: values and gradients as eager's."""

import pytest
import torch
from torch.nn import functional as F

INF, NAN = float("inf"), float("nan")
# 64 of them: eager's vectors and the ends of its lines do not agree on what becomes of a NaN.
POINTS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 6.0, -6.0, 20.0, 20.5, NAN, INF] * 3
POINTS += [-INF, 1e30, -1e30, 100.0, -100.0, 2.5, -2.5, -20.0, 1.5, -1.5, 7.0, -7.0, 0.25, 3.5, -3.5, 4.0]
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}
FUNCTIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.125),
    "leaky_relu of a negative slope": lambda x: F.leaky_relu(x, -0.125),
    "elu": F.elu,
    "elu of an infinite alpha": lambda x: F.elu(x, INF),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.5),
    "celu of an infinite alpha": lambda x: F.celu(x, INF),
    "softplus": F.softplus,
    "softplus of a sharp one": lambda x: F.softplus(x, 2.0, 3.0),
    "threshold": lambda x: F.threshold(x, 1.0, 7.0),
    "silu": F.silu,
    "mish": F.mish,
    "gelu": lambda x: F.gelu(x[:14]),  # eager makes a NaN of infinity
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "logsigmoid": F.logsigmoid,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "sign": torch.sign,
    "abs": torch.abs,
    "round": torch.round,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "nan_to_num": torch.nan_to_num,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp(min=1),
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "square": lambda x: x**2,
    "cube": lambda x: x**3,
    "power 0": lambda x: x**0,
    "power -1": lambda x: x**-1,
    "power -2": lambda x: x**-2,
    **{
        f"power {e} of a tensor": lambda x, e=e: torch.pow(x, torch.full_like(x, e))
        for e in (-2, -1, -0.5, 0.5, 1, 3)
    },
    "power of 2": lambda x: 2**x,
    "power of 0": lambda x: 0.0**x,
    "xlogy": lambda x: torch.xlogy(x, x),
    "logit between limits": lambda x: torch.logit(x[:14], 0.25),
    "logit between limits that cross": lambda x: torch.logit(x[:14], 0.75),
    "sinc": torch.sinc,
    "erf": torch.erf,
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "fmax": lambda x: torch.fmax(x, x.flip(0) + 0.125),
    "fmod": lambda x: torch.fmod(x, 3.0),
    "remainder": lambda x: torch.remainder(x, 3.0),
    "floor of a quotient": lambda x: torch.div(x, 3.0, rounding_mode="floor"),
    "atan2": lambda x: torch.atan2(x, x.flip(0)),
    "hypot": lambda x: torch.hypot(x, x.flip(0)),
    "copysign": lambda x: torch.copysign(torch.ones_like(x), x),
    "lerp": lambda x: torch.lerp(x, x * 2, 0.5),
    "huber loss": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=2.0),
    "smooth loss": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none", beta=2.0),
    "loss of logits": lambda x: F.binary_cross_entropy_with_logits(
        x, torch.full_like(x, 0.25), reduction="none"
    ),
}


def value_and_gradient(function, x):
    x = x.detach().clone().requires_grad_()
    y = function(x)
    return [y.detach(), *torch.autograd.grad(y, x, torch.ones_like(y))]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_as_eager(name, dtype):
    x = torch.tensor(POINTS).to(dtype)
    tolerance = TOLERANCES[dtype]
    # Without AVX-512 eager's gelu is its oneDNN's, which loses the sign of a zero; PyTorch's own kernel does not.
    with torch.backends.mkldnn.flags(enabled=False):
        wanted = value_and_gradient(FUNCTIONS[name], x)
    made = value_and_gradient(FUNCTIONS[name], x.to("lazyt"))
    for what, one, other in zip(("value", "gradient"), made, wanted, strict=True):
        one, other = one.cpu().double(), other.double()
        torch.testing.assert_close(
            one, other, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m, w=what: f"{w}: {m}"
        )
        zeros = (one == 0) & (other == 0)
        assert torch.equal(one.signbit() & zeros, other.signbit() & zeros), f"{what}: signs of zeros"


@pytest.mark.parametrize("name", ["exp", "expm1", "exp2", "sigmoid", "silu", "tanh", "erf"])
def test_a_value_is_the_same_beside_others_that_are_far_away(name):
    """Vectors whose lanes are all near zero may be computed in another way."""
    f = FUNCTIONS.get(name) or getattr(torch, name, None) or getattr(F, name)
    near = torch.linspace(-86.5, 86.5, 4096)
    far = torch.tensor([100.0, -100.0, 88.5, -95.0, INF, -INF, NAN, 0.0]).repeat(512)
    alone = f(near.to("lazyt")).cpu()
    beside = f(torch.stack([near, far], 1).to("lazyt"))[:, 0].cpu()
    assert torch.equal(alone, beside)
