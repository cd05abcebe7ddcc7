"""Operators of a compiling backend give eager's values, with no host island."""

import os

import pytest
import torch
import torch.nn.functional as F

import lazyt

DEVICE = "lazyt"
of_onednn = pytest.mark.skipif(os.environ.get("LAZYT_BACKEND") != "onednn", reason="of the oneDNN plugin alone")

pytestmark = pytest.mark.usefixtures("no_islands")


def check(function, *args, rtol=2e-5, atol=5e-6):
    want = function(*args)
    got = function(*(a.to(DEVICE) if torch.is_tensor(a) else a for a in args))
    want, got = (w if isinstance(w, (tuple, list)) else (w,) for w in (want, got))
    for w, g in zip(want, got, strict=True):
        assert g.dtype == w.dtype
        torch.testing.assert_close(g.cpu(), w, rtol=rtol, atol=atol, equal_nan=True)


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(37, 129)


@pytest.fixture
def y():
    torch.manual_seed(1)
    return torch.randn(37, 129)


UNARY = (
    "exp log tanh sigmoid erf expm1 log1p sin cos sqrt rsqrt abs neg floor ceil round trunc lgamma digamma erfinv"
    " reciprocal square sign erfc atan asinh isnan isinf exp2 log2 log10 tan asin acos sinh cosh acosh atanh frac"
).split()


@pytest.mark.parametrize("name", UNARY)
def test_unary(name, x):
    positive = name in ("log", "log2", "log10", "sqrt", "rsqrt", "acosh", "lgamma", "digamma", "log1p", "reciprocal")
    check(getattr(torch, name), x.abs() + 0.01 if positive else x)


def test_special_values_of_elementary_functions():
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-40, 88.0, 89.0, -104.0, -87.5, 3e38])
    for name in ("exp", "log", "tanh", "sigmoid", "erf", "expm1", "log1p", "sqrt", "sign", "relu"):
        # By 128s, so that both machines' tails are met.
        check(getattr(torch, name), special.repeat(29)[: 13 * 29 - 3])


@pytest.mark.parametrize(
    "name",
    "relu gelu silu mish softplus hardswish hardsigmoid elu celu leaky_relu logsigmoid relu6 hardtanh selu softsign".split(),
)
def test_activations_and_their_gradients(name, x):
    def both(a):
        a = a.detach().clone().requires_grad_()
        out = getattr(F, name)(a)
        out.sum().backward()
        return out.detach(), a.grad

    check(both, x)


def test_chains_are_one_kernel_and_exact_at_every_length():
    for n in (1, 5, 127, 128, 129, 511, 513, 4096, 20001):
        a, b = torch.randn(n), torch.randn(n)
        check(lambda a, b: ((a * b + 1.5).relu() - b).tanh() * a.exp() + (a > b), a, b)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8])
def test_arithmetic_in_other_dtypes(dtype, x, y):
    a, b = (t.mul(20).abs().to(dtype) for t in (x, y))
    check(lambda a, b: a * b + a - b, a, b, rtol=0, atol=0)
    check(lambda a, b: (a >= b) | (a == 3), a, b)
    check(lambda a: a.to(torch.float32) * 0.5, a)


def test_integer_division_follows_python(x, y):
    a, b = (x * 10).long(), (y * 3).long().abs() + 1
    for mode in ("floor", "trunc"):
        check(lambda a, b: torch.div(a, -b, rounding_mode=mode), a, b)
    check(torch.remainder, a, -b)
    check(torch.fmod, a, -b)


def test_views_and_copies(x, y):
    check(lambda a, b: a.t() + b.t(), x, y)
    check(lambda a: a.t()[:, 1:30].contiguous() * 2, x)
    check(lambda a: a.view(37, 3, 43).permute(2, 0, 1).reshape(43, -1), x)
    check(lambda a: a.unfold(1, 5, 3) * 2, x)
    check(lambda a: a.diagonal() + 1, x)
    check(lambda a: a.flip(0, 1), x)
    check(lambda a: a.roll((3, -5), (0, 1)), x)
    check(lambda a: a.repeat(2, 3), x)
    check(lambda a, b: torch.cat([a, b[:, :7]], 1), x, y)
    check(lambda a, b: torch.stack([a, b], 1), x, y)
    check(lambda a: F.pad(a, (1, 2, -3, 4), value=2.5), x)
    check(lambda a: a.tril(3) + a.triu(-2), x)
    check(lambda a: torch.arange(0, 7, 0.5, device=a.device) * 2, x)


def test_writes_into_views(x):
    def write(a):
        a = a.clone()
        a[3:7, ::2] = 1.25
        a[:, 4] += 1
        a.diagonal().fill_(9)
        return a

    check(write, x)


REDUCTIONS = {
    "sum": lambda a: a.sum(),
    "sum of columns": lambda a: (a * 2).sum(0),
    "sum of rows": lambda a: (a * 2 + 1).sum(1),
    "mean": lambda a: a.mean((0, 1)),
    "amax": lambda a: a.amax(1),
    "amin": lambda a: a.amin(0),
    "prod": lambda a: a[:, :5].prod(1),
    "any": lambda a: (a > 2).any(1),
    "all": lambda a: (a > -9).all(),
    "norm": lambda a: a.norm(),
    "norm of rows": lambda a: a.norm(dim=1),
    "norm 1": lambda a: torch.linalg.vector_norm(a, 1, dim=0),
    "outer and inner": lambda a: a.view(37, 3, 43).sum((0, 2)),
    "middle": lambda a: a.view(37, 3, 43).sum(1, keepdim=True),
    "count": lambda a: (a > 0).sum(),
    "variance": lambda a: a.var(1),
    "argmax": lambda a: a.argmax(1),
    "cumsum": lambda a: a.cumsum(1),
    "logsumexp": lambda a: a.logsumexp(1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, x):
    check(REDUCTIONS[name], x, atol=2e-5)


def test_many_reductions_of_one_value():
    def sums(a):
        b = a.exp()
        return [(b * i).sum(1) for i in range(1, 30)]

    check(sums, torch.randn(5, 2000), rtol=1e-4, atol=1e-2)


def test_long_reductions_are_exact_enough():
    a = torch.randn(300, 700, 3)
    for dims in ((0, 1, 2), (0, 1), (1,), (1, 2), (0, 2)):
        want = a.double().sum(dims)
        torch.testing.assert_close(a.to(DEVICE).sum(dims).cpu().double(), want, rtol=1e-6, atol=5e-5)


def test_results_do_not_depend_on_the_number_of_threads(x):
    threads = torch.get_num_threads()
    a = torch.randn(600, 700)
    results = []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            b = a.to(DEVICE)
            results.append([t.cpu() for t in (b.sum(), b.sum(0), b.softmax(1), b.exp() * b, b @ b.t())])
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_empty_tensors():
    e = torch.empty(0, 3)
    check(lambda a: a * 2, e)
    check(lambda a: a.sum(), e)
    check(lambda a: a.sum(0), e)
    check(lambda a: a.sum(1), e)
    check(lambda a: a @ torch.ones(3, 4, device=a.device), e)
    check(lambda a: torch.cat([a, torch.ones(2, 3, device=a.device)]), e)


def test_matrix_products(x, y):
    check(lambda a, b: a @ b.t(), x, y, atol=2e-4)
    check(lambda a, b: a.t() @ b, x, y, atol=2e-4)
    check(lambda a, b: F.linear(a, b, b[:, 0]), x, y, atol=2e-4)
    check(lambda a, b: torch.addmm(b[:, :37], a, b.t(), beta=0.5, alpha=2), x, y, atol=4e-4)
    check(lambda a, b: torch.bmm(a.view(37, 3, 43), b.view(37, 43, 3)), x, y, atol=2e-4)
    check(lambda a, b: a[0] @ b.t(), x, y, atol=2e-4)
    check(lambda a: a.long() @ a.long().t(), x * 5)


@pytest.mark.parametrize("groups,stride,dilation", [(1, 1, 1), (1, 2, 1), (2, 1, 2), (4, 2, 1)])
def test_convolution_and_its_gradients(groups, stride, dilation):
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 8, 13, 11), torch.randn(12, 8 // groups, 3, 3), torch.randn(12)

    def both(x, w, b):
        leaves = [t.detach().clone().requires_grad_() for t in (x, w, b)]
        out = F.conv2d(*leaves, stride=stride, padding=1, dilation=dilation, groups=groups)
        out.square().sum().backward()
        return (out.detach(), *(t.grad for t in leaves))

    check(both, x, w, b, rtol=1e-4, atol=2e-3)


def test_pooling_and_normalisation_train():
    torch.manual_seed(0)
    x = torch.randn(3, 8, 12, 12)

    def both(x):
        x = x.detach().clone().requires_grad_()
        mean, var = torch.zeros(8, device=x.device), torch.ones(8, device=x.device)
        h = F.batch_norm(x, mean, var, training=True)
        h = F.max_pool2d(h, 3, 2, 1) + F.avg_pool2d(h, 2)
        h = F.layer_norm(F.group_norm(h, 4), (6, 6))
        (h * torch.arange(h.numel(), device=x.device).view_as(h)).sum().backward()
        return h.detach(), x.grad, mean, var

    check(both, x, rtol=1e-3, atol=2e-2)


def test_dropout_keeps_the_share_that_it_should():
    x = torch.ones(1000, 100, device=DEVICE)
    out = F.dropout(x, 0.3).cpu()
    assert abs((out == 0).float().mean() - 0.3) < 0.01
    assert torch.allclose(out[out != 0], torch.tensor(1 / 0.7))


def test_an_index_out_of_range_is_an_error_that_names_it():
    table, index = torch.randn(5, 3, device=DEVICE), torch.tensor([1, 7], device=DEVICE)
    with pytest.raises((IndexError, RuntimeError), match="out of (bounds|range)"):
        F.embedding(index, table).cpu()


def default_backend(**environment: str) -> str:
    import subprocess
    import sys

    env = {k: v for k, v in os.environ.items() if k != "LAZYT_BACKEND"} | environment
    out = subprocess.run([sys.executable, "-c", "import lazyt; print(lazyt.backend()['name'])"], env=env, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    return out.stdout.strip()


@of_onednn
def test_without_a_gpu_the_default_backend_is_this_one():
    assert default_backend(LAZYT_CUDA_DRIVER="/nonexistent/libcuda.so") == "onednn"


@pytest.mark.skipif(os.environ.get("LAZYT_BACKEND") != "cuda", reason="of the CUDA plugin alone")
def test_with_a_gpu_the_default_backend_is_this_one():
    assert default_backend() == "cuda"


@of_onednn
@pytest.mark.parametrize("isa", ["avx2", "portable"])
def test_every_instruction_set_gives_the_same_values(isa):
    import subprocess
    import sys

    program = (
        "import torch, lazyt; torch.manual_seed(0); a = torch.randn(1000); b = a.to('lazyt');"
        "e = ((a.tanh() + a.exp()).sigmoid() * a.erf()).log1p(); l = ((b.tanh() + b.exp()).sigmoid() * b.erf()).log1p();"
        "assert torch.allclose(l.cpu(), e, rtol=1e-5, atol=1e-6, equal_nan=True);"
        "i, j = torch.randint(-2**31, 2**31 - 1, (2, 1000)); f = lambda x, y: torch.where(x < y, x * y + 3, ((x ^ y) & ~x).sign().clamp(-3, 5) - x.abs());"
        "assert all(torch.equal(f(i.to(t).to('lazyt'), j.to(t).to('lazyt')).cpu(), f(i.to(t), j.to(t))) for t in (torch.int32, torch.int64));"
        "m = torch.randn(64, 700); assert torch.allclose(m.to('lazyt').softmax(1).cpu(), m.softmax(1), atol=1e-6); print('same')"
    )
    out = subprocess.run([sys.executable, "-c", program], env={**os.environ, "LAZYT_ONEDNN_ISA": isa}, capture_output=True, text=True)
    assert out.stdout.strip() == "same", out.stderr


@of_onednn
def test_an_unknown_instruction_set_is_an_error():
    import subprocess
    import sys

    program = "import torch, lazyt; print(torch.randn(3).to('lazyt').exp().cpu())"
    out = subprocess.run([sys.executable, "-c", program], env={**os.environ, "LAZYT_ONEDNN_ISA": "mmx"}, capture_output=True, text=True)
    assert out.returncode != 0
    assert "LAZYT_ONEDNN_ISA" in out.stderr


def test_packed_weights_follow_their_tensor():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(16, 32, 3, padding=1)
    lazy = torch.nn.Conv2d(16, 32, 3, padding=1).to(DEVICE)
    lazy.load_state_dict(conv.state_dict())
    x = torch.randn(2, 16, 20, 20)
    y = x.to(DEVICE)
    with torch.no_grad():
        for step in range(6):
            torch.testing.assert_close(lazy(y).cpu(), conv(x), rtol=1e-4, atol=1e-4)
            if step % 3 == 2:  # after the packed form was kept
                for c in (conv, lazy):
                    c.weight.mul_(-2)
        other = torch.nn.Conv2d(16, 32, 3, padding=1)
        lazy.weight.data = other.weight.detach().to(DEVICE)
        conv.weight.data = other.weight.detach().clone()
        torch.testing.assert_close(lazy(y).cpu(), conv(x), rtol=1e-4, atol=1e-4)


# A value that nobody else holds gives its memory to the result: each kernel must have read what it overwrites.
KEPT = torch.linspace(-1, 1, 12 * 6 * 6).reshape(1, 12, 6, 6)
IN_PLACE = {
    "softmax": lambda x: x.softmax(1),
    "softmax of columns": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]) * 1.5,
    "group_norm": lambda x: F.group_norm(x, 3),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "cumsum": lambda x: x.cumsum(1) / 4,
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(3, 1),
    "matmul": lambda x: x @ x.new_full((6, 6), 0.3),
    "sort": lambda x: x.sort(1, descending=True)[0],
    "max pool": lambda x: F.max_pool2d(x, 3, 1, 1),
    "gather": lambda x: x.gather(1, x.argsort(1)),
    "index_add": lambda x: x.index_add(1, torch.tensor([0, 0, 3], device=x.device), x[:, :3]),
    "index_put": lambda x: x.index_put((torch.tensor([0], device=x.device), torch.tensor([5], device=x.device)), x[0, 2]),
    "scatter": lambda x: x.scatter(1, (x > 0).long(), x),
    "softmax's gradient": lambda x: torch.ops.aten._softmax_backward_data(x, x, 1, torch.float32) * 20,
    "layer_norm's gradient": lambda x: torch.ops.aten.native_layer_norm_backward(
        x, x.clone(), x.shape[1:], x.new_zeros(1, 1, 1, 1), x.new_ones(1, 1, 1, 1), x.new_ones(12, 6, 6), None, [True, True, False]
    )[0]
    / 4,
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_results_may_lie_on_operands(name, layout):
    function = IN_PLACE[name]
    want, got = KEPT.contiguous(memory_format=layout), KEPT.to(DEVICE).contiguous(memory_format=layout)
    for _ in range(4):
        want = function(want)
        got = function(got)
        lazyt.mark_step()
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)


# ---- elementary functions over all of f32, in units in the last place

ULPS = dict.fromkeys(
    "exp exp2 expm1 log log1p erf log2 log10 tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh erfc atan2 hypot pow".split(), 4
)


def any_floats(seed):
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(-(2**31), 2**31, (1 << 16,), generator=generator).to(torch.int32).view(torch.float32)
    near = torch.randn(1 << 14, generator=generator) * 3
    inf = float("inf")
    special = [0.0, -0.0, 1.0, -1.0, inf, -inf, float("nan"), 1e-40, 88.7, 89.0, -104.0, 0.5, 2.0, 3.0, 1e30]
    return torch.cat([bits, near, torch.tensor(special)])


@pytest.mark.parametrize("name", ULPS)
def test_elementary_functions_err_by_few_ulps(name):
    function = getattr(torch, name)
    x = (any_floats(0), any_floats(1).flip(0)) if name in ("atan2", "hypot", "pow") else (any_floats(0),)
    got = function(*(a.to(DEVICE) for a in x)).cpu()
    exact = function(*(a.double() for a in x))
    want = exact.float()
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.isinf() & (want.abs() < 3e38), torch.zeros_like(got, dtype=torch.bool))
    zero = (want == 0) & (got == 0)
    assert torch.equal(got[zero].signbit(), want[zero].signbit())
    if name in ("tanh", "erf"):
        assert torch.equal(got[want.abs() == 1], want[want.abs() == 1])
    finite = want.isfinite() & got.isfinite() & (want.abs() >= torch.finfo(torch.float32).tiny)
    size = want[finite].abs()
    ulp = (size - torch.nextafter(size, torch.zeros_like(size))).double()
    worst = ((got[finite].double() - exact[finite]).abs() / ulp).max(0)
    assert worst.values <= ULPS[name], f"at {[a[finite][worst.indices].item() for a in x]}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_remainders_are_exact(dtype):
    import math

    a, b = any_floats(2).to(dtype), any_floats(3).flip(0).to(dtype)
    got = torch.fmod(a.to(DEVICE), b.to(DEVICE)).cpu().tolist()
    for x, y, r in zip(a.tolist(), b.tolist(), got, strict=True):
        if math.isinf(x) or y == 0 or math.isnan(x) or math.isnan(y):
            assert math.isnan(r)
        else:
            assert (r, math.copysign(1, r)) == (math.fmod(x, y), math.copysign(1, x))
    small = (a.abs() < 1e6) & (b.abs() > 1e-3)  # eager's own is NaN where the quotient overflows
    for function in (torch.remainder, lambda p, q: torch.div(p, q, rounding_mode="floor")):
        check(function, a[small], b[small].clamp(-1e4, 1e4), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_with_a_vector_that_is_no_row_of_memory(dtype):
    torch.manual_seed(0)
    a, b = torch.randn(9, 7).to(dtype), torch.randn(7, 9).to(dtype)
    bound = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 6e-2}
    check(lambda p, q: p @ q[:, 3:4], a, b, **bound)
    check(lambda p, q: p[:, 2:3].t() @ q.t(), a, b, **bound)
    check(lambda p, q: p @ q[:, 1], a, b, **bound)
    check(lambda p, q: p[::2, 1] @ q[1:6, ::2], a, b, **bound)
    check(lambda p, q: torch.addmm(p[:, :1], p, q[:, 2:3]), a, b, **bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_that_shares_both_matrices(dtype):
    torch.manual_seed(0)
    a, b = torch.randn(5, 7).to(dtype), torch.randn(7, 3).to(dtype)
    bound = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 6e-2}
    check(lambda p, q: torch.bmm(p.expand(4, 5, 7), q.expand(4, 7, 3)), a, b, **bound)
    check(lambda p, q: torch.baddbmm(p[:1, :3], p.expand(4, 5, 7), q.expand(4, 7, 3), beta=0.5), a, b, **bound)


def test_the_inverse_error_function_is_exact_in_its_tails():
    x = torch.linspace(-0.9999, 0.9999, 1001, dtype=torch.float64)
    check(torch.erfinv, x, rtol=1e-13, atol=1e-15)
