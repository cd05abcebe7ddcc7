"""Calls without history go past PyTorch's kernels for autograd (core/frontend/history.h), and nobody sees it:
what those would have done, or what lies between them and the device, is still done."""

import lazyt  # noqa: F401
import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functionalize, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

D = "lazyt"


def numbers(*shape, seed=1):
    torch.manual_seed(seed)
    return torch.randn(*(shape or (3, 4)))


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def calls(x, y):
    """Operators of several signatures, a write, a write of a list, views."""
    z = torch.where(x > 0, x * y + 1, x.neg()).sum(1)
    with torch.no_grad():
        y.add_(x)
        torch._foreach_mul_([x, y], 2.0)
    return torch.cat([z, y.t()[1], x[0].view(2, 2).transpose(0, 1).reshape(4)])


def test_the_values_are_eagers():
    ours, theirs = calls(numbers().to(D), numbers(seed=2).to(D)), calls(numbers(), numbers(seed=2))
    torch.testing.assert_close(ours.cpu(), theirs)


def test_a_dispatch_mode_sees_the_same_calls_as_on_the_cpu():
    seen = {}
    for device in ("cpu", D):
        x, y = numbers().to(device), numbers(seed=2).to(device)
        with Seen() as mode:
            calls(x, y)
        seen[device] = mode.names
    assert seen[D] == seen["cpu"] and "aten.mul.Tensor" in seen[D] and "aten.view.default" in seen[D]


def test_a_function_mode_sees_calls():
    names = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            names.append(function.__name__)
            return function(*args, **(kwargs or {}))

    x = numbers().to(D)
    with Mode():
        torch.mul(x, x)
    assert names == ["mul"]


def test_a_subclass_sees_calls():
    names = []

    class Wrapped(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            names.append(str(function))
            with torch._C._DisableTorchDispatch():
                return function(*args, **(kwargs or {}))

    x = torch.Tensor._make_subclass(Wrapped, numbers().to(D))
    torch.mul(x, x)
    torch.relu(x)
    assert names == ["aten.mul.Tensor", "aten.relu.default"]


@pytest.mark.parametrize(
    "write",
    [
        lambda x, y: x.add_(y),
        lambda x, y: x.mul_(2),
        lambda x, y: x.relu_(),
        lambda x, y: torch._foreach_add_([x], [y]),
        lambda x, y: torch._foreach_mul_([x], 2.0),
        lambda x, y: x[0].add_(1),
        lambda x, y: torch.add(x, y, out=x),
    ],
)
def test_a_write_is_counted_once(write):
    counts = []
    for device in ("cpu", D):
        x, y = numbers().to(device), numbers(seed=2).to(device)
        write(x, y)
        counts.append(x._version)
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("grad", [True, False])
def test_what_needs_a_gradient_has_one_beside_what_does_not(grad):
    out = []
    for device in ("cpu", D):
        x, y = numbers().to(device).requires_grad_(), numbers(seed=2).to(device)
        with torch.set_grad_enabled(grad):
            z = (y * 2 + y).tanh() * x
        assert z.requires_grad == grad
        if grad:
            z.sum().backward()
            out.append(x.grad.cpu())
    if grad:
        torch.testing.assert_close(out[1], out[0])


def test_a_view_made_without_gradients_refuses_a_write_with_them():
    for device in ("cpu", D):
        x = numbers().to(device).requires_grad_()
        base = x.clone()
        with torch.no_grad():
            view = base[0]
        with pytest.raises(RuntimeError, match="no_grad mode"):
            view.mul_(x[0])


def test_a_write_with_history_to_a_view_reaches_its_base():
    gradients = []
    for device in ("cpu", D):
        w, base = numbers(4).to(device).requires_grad_(), numbers().to(device)
        view = base.transpose(0, 1)[:, 1]  # of a base without history
        view.mul_(w)
        assert base.requires_grad
        base.square().sum().backward()
        gradients.append(w.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_leaf_that_needs_a_gradient_refuses_a_write():
    for device in ("cpu", D):
        x = numbers().to(device).requires_grad_()
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            x.add_(1)
        with torch.no_grad():
            x.add_(1)


def test_what_is_saved_for_backward_may_not_be_written_to():
    for device in ("cpu", D):
        x, y = numbers().to(device).requires_grad_(), numbers(seed=2).to(device)
        z = x * y
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_forward_gradients_go_through():
    tangents = []
    for device in ("cpu", D):
        x, t = numbers().to(device), numbers(seed=2).to(device)
        with torch.no_grad(), forward_ad.dual_level():
            z = forward_ad.make_dual(x, t)
            y = (z * z).transpose(0, 1).tanh() + x.t()
            tangents.append(forward_ad.unpack_dual(y).tangent.cpu())
    torch.testing.assert_close(tangents[1], tangents[0])


def test_transforms_go_through():
    for transform in (vmap, functionalize):
        out = [
            transform(lambda a: (a * 2 + 1).view(-1).relu())(numbers().to(device)).cpu()
            for device in ("cpu", D)
        ]
        torch.testing.assert_close(out[1], out[0])


def test_noted_conjugation_and_sign_are_resolved():
    out = []
    for device in ("cpu", D):
        x = torch.view_as_complex(numbers(3, 2)).to(device)
        out.append([(x.conj() * x).cpu(), (x.conj().imag + 1).cpu(), x.conj().unsqueeze(0).cpu()])
    for ours, theirs in zip(out[1], out[0], strict=True):
        torch.testing.assert_close(ours.resolve_conj(), theirs.resolve_conj())


def test_a_number_on_the_cpu_with_a_noted_sign_is_taken_as_it_is():
    z = torch.tensor(2.0 + 3.0j)
    number = z.conj().imag  # -3, as 3 and a note
    assert number.is_neg()
    torch.testing.assert_close((numbers().to(D) * number).cpu(), numbers() * number)


def test_an_undefined_operand_is_refused_as_by_eager():
    for device in ("cpu", D):
        x = numbers().to(device)
        with pytest.raises((RuntimeError, TypeError)):
            torch.ops.aten.mul.Tensor(x, None)


def test_inference_mode_makes_inference_tensors():
    with torch.inference_mode():
        y = (numbers().to(D) * 2).view(4, 3)
    assert y.is_inference()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        y * numbers(4, 3).to(D).requires_grad_()


def test_the_dispatcher_in_python_finds_the_same_kernels():
    from torch._dispatch.python import enable_python_dispatcher

    out = []
    for device in ("cpu", D):
        x = numbers().to(device).requires_grad_()
        with enable_python_dispatcher():
            y = (x * 2 + x.detach()).view(4, 3)
        y.sum().backward()
        out.append([y.detach().cpu(), x.grad.cpu()])
    torch.testing.assert_close(out[1], out[0])


def test_results_are_dispatched_as_tensors_that_pytorch_makes():
    x = torch.ones(3, device=D)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            for _ in range(2):  # recorded, then followed
                results = [x + 1, x * x, torch.cat([x, x]), x.sum()]
                lazyt.mark_step()
                expected = torch._C._dispatch_keys(torch.empty(3, device=D))
                assert [torch._C._dispatch_keys(r) for r in results] == [expected] * 4
                assert all(r.is_inference() == (mode is torch.inference_mode) for r in results)


class Longer(torch.Tensor):
    """Says of itself that it is longer than it is."""

    @property
    def shape(self):
        return torch.Size([9])

    def size(self, dim=None):
        return self.shape if dim is None else 9


def test_sizes_that_python_says_stop_nothing():
    for _ in range(3):
        x = torch.Tensor._make_subclass(
            Longer, torch.ones(3, device=D), dispatch_sizes_strides_policy="sizes"
        )
        with torch._C.DisableTorchFunctionSubclass():
            y = torch.ones(3, device=D)
            try:
                z = y * x + y
            except RuntimeError:  # PyTorch's own, of shapes that do not fit
                continue
        lazyt.mark_step()
        assert z.shape[0] in (3, 9)


def test_a_call_is_not_taken_for_one_of_other_sizes_numbers_or_operands():
    def step(x, y, n, flag):
        z = x + y * n
        w = (z if flag else y) - x
        return torch.cat([w, z]) * torch.tensor(n)

    for size, n, flag in [(4, 2, True)] * 3 + [
        (4, 3, True),
        (5, 3, True),
        (4, 2.5, True),
        (4, 2, False),
        (4, 2, True),
    ]:
        x, y = numbers(size), numbers(size, seed=2)
        for a, b in ((x, y), (x, x), (x, y.double()), (x, y.flip(0)), (x, y[:1]), (x, y)):
            ours = step(a.to(D), b.to(D), n, flag)
            lazyt.mark_step()
            torch.testing.assert_close(ours.cpu(), step(a, b, n, flag))
