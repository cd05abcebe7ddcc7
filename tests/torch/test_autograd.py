"""Autograd beyond plain backward: each program gives on the device what it gives on the CPU."""

import copy
import warnings

import lazyt
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

D = "lazyt"
PROGRAMS = {}


def program(function):
    """A program of the device's name; what it returns is compared."""
    PROGRAMS[function.__name__] = function
    return function


def leaf(device, *shape, seed=1):
    torch.manual_seed(seed)
    return torch.randn(*shape).to(device).requires_grad_()


def network(device, *more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), *more, nn.Linear(8, 3)).to(device)


def gradients(module):
    return [p.grad for p in module.parameters()]


# Orders


@program
def derivatives_up_to_the_fifth(device):
    x = leaf(device, 3)
    y, out = (x**6).sum(), []
    for _ in range(5):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        out.append(y)
    return out


@program
def products_with_the_hessian(device):
    x, v = leaf(device, 4), leaf(device, 4, seed=2)
    function = lambda x: (x.exp() * x.sin()).sum()  # noqa: E731
    return [
        torch.autograd.functional.hvp(function, x, v)[1],
        torch.autograd.functional.vhp(function, x, v)[1],
        torch.autograd.functional.hessian(function, x, vectorize=True),
        torch.autograd.functional.jacobian(torch.tanh, x, strategy="forward-mode", vectorize=True),
    ]


@program
def batched_vectors(device):
    x = leaf(device, 3)
    return torch.autograd.grad(x**3, x, torch.eye(3).to(device), is_grads_batched=True)


# Graphs that are kept, leaves, accumulation


@program
def graphs_that_run_twice_and_accumulate(device):
    x = leaf(device, 3)
    y = (x * x).sum()
    for _ in range(3):
        y.backward(retain_graph=True)
    middle = x * 2
    middle.retain_grad()
    middle.pow(2).sum().backward(inputs=[x, middle])
    return x.grad, middle.grad


@program
def gradients_that_nobody_asked_for(device):
    x, unused = leaf(device, 3), leaf(device, 2)
    first = torch.autograd.grad(x.sum() + 0 * x.sum(), [x, unused], allow_unused=True)
    second = torch.autograd.grad(x.sum(), [x, unused], materialize_grads=True)
    return first[0], first[1] is None, second


@program
def views_and_writes(device):
    x = leaf(device, 3, 4)
    y = x * 1
    y[1].mul_(2)
    y[:, 2] = x[:, 0].exp()
    y.t()[0].add_(x.sum(1))
    y.pow(2).sum().backward()
    return x.grad


@program
def detached_parts(device):
    x = leaf(device, 3)
    with torch.no_grad():
        a = x * 2
    with torch.inference_mode():
        b = x * 3
    with torch.set_grad_enabled(False):
        c = x * 4
    y = (x * a).sum() + x.detach().sum() * x.sum() + c.sum()
    y.backward()
    return x.grad, a.requires_grad, b.is_inference(), c.requires_grad


# Hooks


@program
def hooks_of_tensors(device):
    x, seen = leaf(device, 3), []
    handle = x.register_hook(lambda g: g * 2)

    def add_one(p):
        p.grad.add_(1)

    x.register_post_accumulate_grad_hook(add_one)
    y = x.sin()
    y.register_hook(lambda g: seen.append(g))
    y.sum().backward()
    handle.remove()
    x.sum().backward()
    return x.grad, seen


@program
def hooks_of_nodes(device):
    x, seen = leaf(device, 3), []
    y = x.exp()
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 3,))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs[0], outputs[0])))
    y.sum().backward()
    return x.grad, seen


@program
def hooks_of_several_tensors(device):
    x, seen = leaf(device, 3), []
    a, b = x * 2, x * 3
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: seen.extend(gs))
    (a * b).sum().backward()
    return x.grad, seen


@program
def hooks_of_modules(device):
    m, seen = network(device), []
    m[0].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    m[0].register_forward_hook(lambda m, args, out: out + 1)
    m[2].register_full_backward_hook(lambda m, gi, go: seen.append((gi[0], go[0])))
    m[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 0.5,))
    m(leaf(device, 2, 4)).sum().backward()
    return gradients(m), seen


@program
def hooks_of_what_is_saved(device):
    x = leaf(device, 4)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to(device)):
        y = x.exp() * x.sin()
    with torch.autograd.graph.save_on_cpu():
        z = (y * x).tanh()
    z.sum().backward()
    return x.grad


# Functions of the user


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3, x * 2

    @staticmethod
    def setup_context(ctx, inputs, outputs):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2 + h * 2

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * t, 2 * t


class Overwrite(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, positions):
        ctx.mark_dirty(x)
        ctx.mark_non_differentiable(positions)
        ctx.needed = ctx.needs_input_grad
        return x.mul_(5), positions

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g, _):
        assert ctx.needed == (True, False)
        return g * 5, None


@program
def functions_of_the_user(device):
    x = leaf(device, 3)
    a, b = Cube.apply(x)
    (g,) = torch.autograd.grad((a + b).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    y = x * 1
    z, positions = Overwrite.apply(y, torch.arange(3).to(device))
    (i,) = torch.autograd.grad(z.sum(), x)
    forward = jvp(lambda x: Cube.apply(x)[0], (x.detach(),), (torch.ones_like(x),))
    mapped = vmap(grad(lambda x: Cube.apply(x)[0]))(x.detach())
    return g, h, i, y, positions, positions.requires_grad, forward, mapped


# Checkpoints


@program
def checkpoints(device):
    out = []
    for reentrant in (False, True):
        m, x = network(device), leaf(device, 2, 4)
        inner = lambda x, m=m: m[1](m[0](x))  # noqa: E731
        y = checkpoint(inner, x, use_reentrant=reentrant)
        m[2](y).sum().backward()
        out.append((gradients(m), x.grad))
    m, x = network(device), leaf(device, 2, 4)
    checkpoint_sequential(m, 2, x, use_reentrant=False).sum().backward()
    return out, gradients(m)


@program
def checkpoints_within_checkpoints_and_autocast(device):
    m, x = network(device), leaf(device, 2, 4)
    with torch.autocast(device, dtype=torch.bfloat16):
        block = lambda x: checkpoint(lambda x: m[1](m[0](x)), x, use_reentrant=False)  # noqa: E731
        y = checkpoint(lambda x: m[2](block(x)), x, use_reentrant=False)
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    assert all(g.dtype == torch.float32 for g in gradients(m))
    return [torch.round(g * 10) / 10 for g in gradients(m)]


# Forward mode


@program
def dual_numbers(device):
    m, x = network(device), leaf(device, 2, 4)
    with forward_ad.dual_level():
        tangents = {n: torch.ones_like(p) for n, p in m.named_parameters()}
        duals = {n: forward_ad.make_dual(p, tangents[n]) for n, p in m.named_parameters()}
        out = functional_call(m, duals, (forward_ad.make_dual(x, torch.ones_like(x)),))
        value = forward_ad.unpack_dual(out)
        in_place = forward_ad.make_dual(x.detach().clone(), torch.ones_like(x))
        in_place.mul_(3)
        return value.primal, value.tangent, forward_ad.unpack_dual(in_place).tangent


@program
def forward_over_reverse(device):
    x = leaf(device, 4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        (g,) = torch.autograd.grad((dual.exp() * dual).sum(), dual, create_graph=True)
        return forward_ad.unpack_dual(g).tangent


# torch.func


@program
def transforms(device):
    x, v = leaf(device, 4).detach(), leaf(device, 4, seed=2).detach()
    function = lambda x: (x.sin() * x**2).sum()  # noqa: E731
    value, tangent = jvp(function, (x,), (v,))
    out, pull = vjp(torch.tanh, x)
    at_x, push = linearize(function, x)
    return [
        grad(function)(x),
        grad(grad(lambda x: x.sin().prod()))(x[0]),
        grad_and_value(function)(x),
        value,
        tangent,
        out,
        pull(v),
        at_x,
        push(v),
        jacrev(torch.sin)(x),
        jacfwd(torch.sin)(x),
        hessian(function)(x),
        jacrev(jacfwd(torch.tanh))(x),
    ]


@program
def maps_over_dimensions(device):
    a, b = leaf(device, 3, 4).detach(), leaf(device, 4, 3, seed=2).detach()
    return [
        vmap(torch.dot, in_dims=(0, 1))(a, b),
        vmap(lambda x: x.sort()[0], out_dims=1)(a),
        vmap(vmap(torch.mul))(a, b.t()),
        vmap(lambda x, s: x * s, in_dims=(0, None))(a, 2.0),
        vmap(lambda d: {"sum": d["x"].sum()})({"x": a}),
        vmap(torch.linalg.norm, chunk_size=2)(a),
        vmap(lambda x: torch.where(x > 0, x, -x))(a),
    ]


@program
def gradients_of_each_sample(device):
    m, x = network(device), leaf(device, 5, 4).detach()
    parameters = {n: p.detach() for n, p in m.named_parameters()}
    loss = lambda p, x: functional_call(m, p, (x.unsqueeze(0),)).square().sum()  # noqa: E731
    return vmap(grad(loss), (None, 0))(parameters, x)


@program
def ensembles(device):
    torch.manual_seed(0)
    models = [nn.Linear(4, 2).to(device) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    x = leaf(device, 5, 4).detach()
    return vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))(
        parameters, buffers, x
    )


# Gradients as tensors


@program
def accumulation_over_micro_batches(device):
    m, x = network(device), leaf(device, 8, 4).detach()
    for part in x.chunk(4):
        (m(part).square().mean() / 4).backward()
    norm = nn.utils.get_total_norm(gradients(m))
    m.zero_grad(set_to_none=False)
    return norm, gradients(m)


@program
def complex_numbers(device):
    x = leaf(device, 4)
    y = torch.view_as_complex(torch.stack([x, x * 2], -1))
    (y * y.conj()).real.sum().backward()
    return x.grad


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_equals_eager(name):
    expected = PROGRAMS[name]("cpu")
    for _ in range(2):  # the second time follows known traces
        actual = lazyt.to_eager(PROGRAMS[name](D))
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


# What has no eager values to compare with


def random_network(device):
    torch.manual_seed(2)
    return network(device, nn.Dropout(0.5), nn.Linear(8, 8))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_draws_its_random_numbers_again(reentrant):
    results = []
    for way in ("plain", "checkpoint"):
        m, x = random_network(D), leaf(D, 6, 4)
        torch.manual_seed(5)
        y = m(x) if way == "plain" else checkpoint(m, x, use_reentrant=reentrant)
        after = torch.rand(3, device=D)
        y.sum().backward()
        results.append(lazyt.to_eager([y.detach(), after, x.grad, *gradients(m), torch.rand(3, device=D)]))
    for plain, again in zip(*results, strict=True):
        torch.testing.assert_close(plain, again)


def test_a_checkpoint_that_keeps_no_random_state_draws_others():
    m, x = nn.Dropout(0.5).to(D), leaf(D, 200)
    y = checkpoint(m, x, use_reentrant=False, preserve_rng_state=False)
    y.sum().backward()
    assert not torch.equal((y != 0).cpu(), (x.grad != 0).cpu())


@pytest.mark.parametrize("randomness", ["same", "different", "error"])
def test_random_numbers_within_a_map(randomness):
    function = vmap(lambda x: x + torch.randn(4, device=D), randomness=randomness)
    if randomness == "error":
        with pytest.raises(RuntimeError, match="randomness"):
            function(torch.zeros(3, 4, device=D))
        return
    out = function(torch.zeros(3, 4, device=D)).cpu()
    assert torch.equal(out[0], out[1]) == (randomness == "same")


def both_errors(function):
    errors = []
    for device in ("cpu", D):
        with pytest.raises(RuntimeError) as error:
            function(device)
        errors.append(str(error.value))
    return errors


def test_anomaly_mode_names_the_operator():
    def function(device):
        x = torch.tensor([-1.0], device=device, requires_grad=True)
        with warnings.catch_warnings(record=True) as seen, torch.autograd.detect_anomaly():
            warnings.simplefilter("always")
            try:
                x.sqrt().sum().backward()
            finally:
                assert any("x.sqrt().sum().backward()" in str(w.message) for w in seen)

    eager, lazy = both_errors(function)
    assert eager == lazy and "SqrtBackward0" in lazy


def test_errors_of_graphs_are_eagers():
    def freed(device):
        x = leaf(device, 3)
        y = x.exp().sum()
        y.backward()
        y.backward()

    def overwritten(device):
        x = leaf(device, 3)
        y = x.exp()
        y.add_(1)
        y.sum().backward()

    def of_a_leaf(device):
        leaf(device, 3).add_(1)

    def without_graph(device):
        torch.zeros(2, device=device).sum().backward()

    def not_a_number(device):
        leaf(device, 3).backward()

    for function in (freed, overwritten, of_a_leaf, without_graph, not_a_number):
        eager, lazy = both_errors(function)
        assert eager.replace("torch.FloatTensor", "TYPE") == lazy.replace("lazytFloatType", "TYPE")


CHECKED = {
    "matmul": lambda x: x @ x.t(),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: nn.functional.layer_norm(x, x.shape[-1:]),
    "gelu": nn.functional.gelu,
    "std": lambda x: x.std(1),
    "logsumexp": lambda x: x.logsumexp(0),
    "cumprod": lambda x: x.cumprod(1),
    "index": lambda x: x[torch.tensor([0, 2, 0])],
    "det": lambda x: torch.linalg.det(x @ x.t() + torch.eye(3, device=x.device, dtype=x.dtype)),
}


@pytest.mark.parametrize("name", CHECKED)
def test_gradients_are_those_of_finite_differences(name):
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64).to(D).requires_grad_()
    assert torch.autograd.gradcheck(CHECKED[name], x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(CHECKED[name], x)
