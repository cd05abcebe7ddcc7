"""Every module of torch.nn with the inputs of PyTorch's own list: values, gradients and errors as eager's."""

import copy
import inspect

import lazyt
import pytest
import torch
from torch.utils import _pytree

pytest.importorskip("expecttest", reason="PyTorch's own test lists need it")
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

D = "lazyt"
# Relative, and absolute as a share of the largest element.
TOLERANCES = {torch.float64: (1e-7, 1e-7), torch.float32: (1e-4, 1e-5)}
TOLERANCES |= {torch.complex128: TOLERANCES[torch.float64], torch.complex64: TOLERANCES[torch.float32]}
QUICK = (torch.float32, torch.complex64)


def cases():
    for info in module_db:
        # Eager has no kernels of complex32. In one order: every worker of a parallel run collects the same list.
        for dtype in sorted({*info.dtypes, torch.bfloat16} - {torch.complex32}, key=str):
            for training in (True, False) if info.train_and_eval_differ else (True,):
                mode = "train" if training else "eval"
                name = f"{info.name}-{str(dtype).removeprefix('torch.')}-{mode}"
                marks = () if dtype in QUICK else (pytest.mark.slow,)
                yield pytest.param(info, dtype, training, id=name, marks=marks)


def leaves(nest):
    return [leaf for leaf in _pytree.tree_leaves(nest) if isinstance(leaf, torch.Tensor)]


def move(nest, to=D):
    """A copy on a device or in a dtype: what requires gradients is a leaf there, one tensor stays one."""
    moved = {}

    def one(t):
        if isinstance(t, torch.Tensor):
            if id(t) not in moved:
                # to a dtype: what is no floating point number stays as it is
                target = t.dtype if isinstance(to, torch.dtype) and not t.is_floating_point() else to
                moved[id(t)] = t.detach().to(target).requires_grad_(t.requires_grad)
            return moved[id(t)]
        return t

    return _pytree.tree_map(one, nest)


def differentiable(tensors):
    return [t for t in tensors if t.requires_grad]


def weights(outputs):
    torch.manual_seed(1)
    return [torch.randn(o.shape, dtype=o.dtype).to(o.device) for o in outputs]


def run(module, arguments, second):
    """Outputs, buffers, gradients of a weighted sum of the outputs, (`second`) gradients of their squares."""
    args, kwargs = arguments
    results = {"outputs": module(*args, **kwargs)}
    results["buffers"] = dict(module.named_buffers())
    outputs = differentiable(leaves(results["outputs"]))
    inputs = differentiable([*leaves(arguments), *module.parameters()])
    if not outputs or not inputs:
        return results
    total = sum((o * w).sum().real for o, w in zip(outputs, weights(outputs), strict=True))
    first = torch.autograd.grad(total, inputs, create_graph=second, allow_unused=True)
    results["gradients"] = first
    present = differentiable(leaves(first))
    if second and present:
        total = sum(g.abs().square().sum() for g in present)
        results["second gradients"] = torch.autograd.grad(total, inputs, allow_unused=True)
    return results


def compare(actual, expected, dtype):
    relative, share = TOLERANCES[dtype]
    for name in expected:
        if name == "second gradients":
            relative, share = 10 * relative, 10 * share
        for one, other in zip(flat(actual[name]), flat(expected[name]), strict=True):
            largest = other.abs().nan_to_num(0, 0, 0).max().item() if other.numel() else 0
            torch.testing.assert_close(
                one,
                other,
                rtol=relative,
                atol=share * max(1, largest),
                equal_nan=True,
                msg=lambda message, name=name: f"{name}: {message}",
            )


def compare_few_bits(actual, expected, exact):
    """As near to the results in float64 as eager's are, all elements together: single ones are chance."""
    for name in expected:
        mine, eager, best = flat(actual[name]), flat(expected[name]), flat(exact[name])
        assert [(t.dtype, t.shape) for t in mine] == [(t.dtype, t.shape) for t in eager], name
        errors = [
            sum((a - b).abs().double().sum() for a, b in zip(side, best, strict=True))
            for side in (mine, eager)
        ]
        size = sum(b.abs().double().sum() for b in best)
        assert not errors[0] > 1.25 * errors[1] + 0.03 * size, (name, errors, size)


def flat(nest):
    return [t.detach().cpu() for t in leaves(nest)]


def outcome(function):
    """Its results, or the kind of error that it ends with."""
    try:
        return function(), None
    except (RuntimeError, NotImplementedError) as error:
        return {}, error


@pytest.mark.parametrize(("info", "dtype", "training"), list(cases()))
def test_module_equals_eager(info, dtype, training):
    torch.manual_seed(0)
    inputs = info.module_inputs_func(info, "cpu", dtype, requires_grad=True, training=training)
    ran = 0
    for given in inputs:
        if given.forward_input is None:
            continue
        arguments = given.forward_input.args, given.forward_input.kwargs
        moved = move(arguments)
        made = given.constructor_input
        torch.manual_seed(0)
        module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
        if info.is_lazy:  # its parameters are made by the first call, from other random numbers on the device
            args, kwargs = moved
            copy.deepcopy(module).to(D)(*args, **kwargs)
            args, kwargs = arguments
            module(*args, **kwargs)
        on_device = copy.deepcopy(module).to(D)
        second = info.supports_gradgrad and dtype in TOLERANCES
        wide = None if dtype in TOLERANCES else copy.deepcopy(module).double()
        for _ in range(2):  # the second time follows a known trace
            expected, error = outcome(lambda m=module, a=arguments, s=second: run(m, a, s))
            if second and error:
                second = False
                expected, error = outcome(lambda m=module, a=arguments: run(m, a, False))
            actual, own_error = outcome(lambda m=on_device, a=moved, s=second: lazyt.to_eager(run(m, a, s)))
            assert type(own_error) is type(error), (own_error, error)
            if error:
                continue
            if wide:
                exact = run(wide, move(arguments, torch.float64), False)
                compare_few_bits(actual, expected, exact)
            else:
                compare(actual, expected, dtype)
            ran += 1
    if not ran:
        pytest.skip("eager has no kernel of this dtype on the CPU")


@pytest.mark.parametrize("info", [pytest.param(i, id=i.name) for i in module_db])
def test_inference_equals_eager(info):
    """Where nothing requires gradients some modules take other ways (fused layers, nested tensors)."""
    inputs = info.module_inputs_func(info, "cpu", torch.float32, requires_grad=False, training=False)
    for given in (i for i in inputs if i.forward_input):
        arguments = given.forward_input.args, given.forward_input.kwargs
        moved = move(arguments)
        made = given.constructor_input
        torch.manual_seed(0)
        module = info.module_cls(*made.args, **made.kwargs).eval()
        with torch.inference_mode():
            args, kwargs = arguments
            expected, error = outcome(lambda m=module, a=args, k=kwargs: {"outputs": m(*a, **k)})
            on_device = copy.deepcopy(module).to(D)
            for _ in range(2):
                args, kwargs = moved
                actual, own_error = outcome(lambda m=on_device, a=args, k=kwargs: {"outputs": m(*a, **k)})
                assert type(own_error) is type(error), (own_error, error)
                compare(actual, expected, torch.float32)


@pytest.mark.parametrize(
    "info", [pytest.param(i, id=i.name) for i in module_db if i.module_error_inputs_func]
)
def test_misuse_is_the_error_that_eager_raises(info):
    for wrong in info.module_error_inputs_func(info, D, torch.float32, requires_grad=False, training=True):
        given = wrong.module_error_input
        made = given.constructor_input
        if wrong.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
            with torch.device(D), pytest.raises(wrong.error_type, match=wrong.error_regex):
                info.module_cls(*made.args, **made.kwargs)
            continue
        module = info.module_cls(*made.args, **made.kwargs).to(D)
        with pytest.raises(wrong.error_type, match=wrong.error_regex):
            module(*given.forward_input.args, **given.forward_input.kwargs)


def there(value):
    """What a module is made of, on the device."""
    return copy.deepcopy(value).to(D) if isinstance(value, torch.Tensor | torch.nn.Module) else value


@pytest.mark.parametrize("info", [pytest.param(i, id=i.name) for i in module_db if not i.is_lazy])
def test_a_module_is_made_on_the_device_and_on_none(info):
    """Parameters are made there by `device=`, within a device context, and from meta."""
    accepts = "device" in inspect.signature(info.module_cls.__init__).parameters
    for given in info.module_inputs_func(info, "cpu", torch.float32, requires_grad=False, training=True)[:1]:
        made = given.constructor_input
        made.kwargs.pop("device", None)
        plain = info.module_cls(*made.args, **made.kwargs).state_dict()
        args, kwargs = _pytree.tree_map(there, (made.args, made.kwargs))
        with torch.device(D):
            ways = [info.module_cls(*args, **kwargs)]
        if accepts:
            ways.append(info.module_cls(*args, **kwargs, device=D))
            ways.append(info.module_cls(*args, **kwargs, device="meta").to_empty(device=D))
        for module in ways:
            state = module.state_dict()
            assert {n: t.shape for n, t in state.items()} == {n: t.shape for n, t in plain.items()}
            for tensor in [*module.parameters(), *module.buffers()]:
                assert tensor.device.type == D
            module.load_state_dict(plain)
            assert all(torch.equal(t.cpu(), plain[n]) for n, t in module.state_dict().items())
