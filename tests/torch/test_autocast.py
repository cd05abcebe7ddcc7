"""Autocast is CUDA's: the operators that PyTorch registers for it, the dtypes of PyTorch's own test lists."""

import collections

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's own test lists need it")
from torch.testing._internal.autocast_test_lists import AutocastTestLists, TestAutocast

D = "lazyt"
LOW = [torch.float16, torch.bfloat16]
# Kernels of one vendor's library, which exist on no other device.
OF_CUDA = ("cudnn_", "miopen_")


@pytest.fixture(scope="module")
def lists():
    torch.manual_seed(0)
    return AutocastTestLists(torch.device(D))


def entries(lists, name):
    """(operator, arguments, what follows) of one of PyTorch's lists."""
    for op, args, *rest in getattr(lists, name):
        # einsum's text is no tensor, and check compares its call as a method of one
        if not op.startswith(OF_CUDA) and op != "einsum":
            yield op, args, rest


def check(op, args, runs_as, **options):
    TestAutocast()._run_autocast_outofplace(op, args, runs_as, device=D, **options)


def test_the_operators_are_those_of_cuda():
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")]

    def cast_on(key):
        return {n for n in names if torch._C._dispatch_has_kernel_for_dispatch_key(n, key)}

    of_cuda = cast_on("AutocastCUDA")
    assert len(of_cuda) > 100
    missing, more = of_cuda - cast_on("AutocastPrivateUse1"), cast_on("AutocastPrivateUse1") - of_cuda
    assert not more
    assert {n for n in missing if not n.removeprefix("aten::").startswith(OF_CUDA)} == set()


@pytest.mark.parametrize("low", LOW)
def test_matrix_products_and_convolutions_run_in_the_lower_dtype(lists, low):
    for op, args, rest in entries(lists, "torch_fp16"):
        if not (rest and rest[0] is True):  # marked as skipped in the list
            check(op, args, low, amp_dtype=low)
    for op, args, _ in entries(lists, "nn_fp16"):
        check(op, args, low, module=torch._C._nn, amp_dtype=low)
    for op, args, _ in entries(lists, "methods_fp16"):
        check(op, args, low, module=None, amp_dtype=low)


def test_einsum_runs_in_the_lower_dtype():
    a = torch.randn(2, 3, device=D)
    with torch.autocast(D, dtype=torch.bfloat16):
        assert torch.einsum("ij,kj->ik", a, a).dtype == torch.bfloat16


@pytest.mark.parametrize("low", LOW)
def test_what_needs_range_runs_in_float32(lists, low):
    for op, args, rest in entries(lists, "torch_fp32"):
        check(op, args, torch.float32, add_kwargs=rest[0] if rest else None, amp_dtype=low)
    for op, args, _ in entries(lists, "nn_fp32"):
        check(op, args, torch.float32, module=torch._C._nn, amp_dtype=low)
    for op, args, _ in entries(lists, "methods_fp32"):
        check(op, args, torch.float32, module=None, amp_dtype=low)


def test_mixed_operands_take_the_widest_dtype(lists):
    for op, args, _ in entries(lists, "torch_need_autocast_promote"):
        check(op, args, torch.float32, amp_dtype=torch.float16)
    for op, args, rest in entries(lists, "torch_expect_builtin_promote"):
        check(op, args, torch.float32, out_type=rest[0], amp_dtype=torch.float16)
    for op, args, rest in entries(lists, "methods_expect_builtin_promote"):
        check(op, args, torch.float32, module=None, out_type=rest[0], amp_dtype=torch.float16)


def test_what_is_unsafe_is_an_error(lists):
    with torch.autocast(D):
        for op, args, rest in entries(lists, "banned"):
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                getattr(rest[0], op)(*args)


def test_casts_of_weights_are_kept_within_a_region():
    import lazyt

    weight = torch.randn(4, 4, device=D, requires_grad=True)
    x = torch.randn(4, 4, device=D)
    lazyt.metrics.reset()
    with torch.autocast(D, dtype=torch.bfloat16):
        y = x.mm(weight).mm(weight).mm(weight)
    assert lazyt.metrics.counter_value("lazyt::_copy_from") <= 2  # x and the weight, once each
    y.sum().backward()
    assert weight.grad.dtype == torch.float32


def test_custom_functions_cast_their_inputs():
    from torch.amp import custom_bwd, custom_fwd

    seen = collections.defaultdict(list)

    class Product(torch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type=D, cast_inputs=torch.float32)
        def forward(ctx, a, b):
            seen["forward"].append((a.dtype, torch.is_autocast_enabled(D)))
            ctx.save_for_backward(a, b)
            return a.mm(b)

        @staticmethod
        @custom_bwd(device_type=D)
        def backward(ctx, gradient):
            a, b = ctx.saved_tensors
            seen["backward"].append((gradient.dtype, torch.is_autocast_enabled(D)))
            return gradient.mm(b.t()), a.t().mm(gradient)

    a = torch.randn(3, 3, device=D, dtype=torch.float16, requires_grad=True)
    with torch.autocast(D, dtype=torch.float16):
        Product.apply(a, a).sum().backward()
    assert seen == {"forward": [(torch.float32, False)], "backward": [(torch.float32, False)]}


class TestScaler:
    """GradScaler: what it does to losses, gradients and steps, as on the CPU."""

    def run(self, device, gradients, **options):
        weight = torch.nn.Parameter(torch.ones(3).to(device))
        optimizer = torch.optim.SGD([weight], 0.5)
        scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=2, **options)
        scales = []
        for g in gradients:
            optimizer.zero_grad()
            scaler.scale((weight * torch.tensor(g).to(device)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, weight.detach().cpu(), scaler.state_dict()

    def test_overflows_skip_the_step_and_lower_the_scale(self):
        gradients = [
            [1.0, 2.0, 3.0],
            [1.0, float("inf"), 1.0],
            [1.0, 1.0, 1.0],
            [0.5, 1.0, 2.0],
            [float("nan"), 0.0, 0.0],
        ]
        (scales, weight, state), expected = (self.run(d, gradients) for d in (D, "cpu"))
        assert scales == expected[0] == [8.0, 4.0, 4.0, 8.0, 4.0]
        assert torch.equal(weight, expected[1]) and state == expected[2]

    def test_a_state_goes_to_another_scaler(self):
        _, _, state = self.run(D, [[1.0, 1.0, 1.0]])
        other = torch.amp.GradScaler(D)
        other.load_state_dict(state)
        assert other.get_scale() == 8.0 and other.state_dict() == state

    @pytest.mark.parametrize("fused", [False, True])
    @pytest.mark.pending
    def test_steps_read_one_value_at_most(self, fused):
        import lazyt

        weight = torch.nn.Parameter(torch.ones(3, device=D))
        optimizer = torch.optim.Adam([weight], 0.1, fused=fused)
        scaler = torch.amp.GradScaler(D)
        for step in range(12):
            if step == 4:
                lazyt.wait_device_ops()
                lazyt.metrics.reset()
            optimizer.zero_grad()
            scaler.scale(weight.square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        # Whether there was an overflow; a fused step asks on the device.
        assert lazyt.metrics.counter_value("FlushValueNeeded") == (0 if fused else 8), lazyt.explain()
        assert lazyt.metrics.counter_value("UncachedCompile") <= 1  # behind the wait
