"""Ordinary programs mean what they mean eagerly."""

import copy
import gc
import io
import pickle
import threading
import time

import lazyt
import pytest
import torch


def test_a_branch_on_a_tensor_takes_the_right_side():
    def f(t, maybe):
        if maybe:
            return t + 2
        return t

    for flag in (True, False, True):
        t, maybe = torch.ones(3), torch.tensor(flag)
        assert torch.equal(f(t.to("lazyt"), maybe.to("lazyt")).cpu(), f(t, maybe))


def test_a_loop_until_a_value_is_reached():
    x = torch.ones((), device="lazyt")
    rounds = 0
    while x < 100:
        x = x * 3
        rounds += 1
    assert (x.item(), rounds) == (243.0, 5)


def test_printing_shows_values_and_device():
    x = torch.arange(6.0).reshape(2, 3)
    assert repr(x.to("lazyt")) == repr(x)[:-1] + ", device='lazyt:0')"
    assert "requires_grad=True" in repr(x.to("lazyt").requires_grad_())
    assert f"{torch.tensor(2.5, device='lazyt'):.2f}" == "2.50"


def test_an_exception_in_the_middle_of_a_step_loses_nothing():
    x = torch.ones(3, device="lazyt")
    with pytest.raises(ZeroDivisionError):
        y = x + 1
        x.mul_(2)
        raise ZeroDivisionError
    assert y.tolist() == [2, 2, 2]
    assert x.tolist() == [2, 2, 2]


def test_an_operator_error_is_eagers_and_the_trace_goes_on():
    x = torch.ones(2, 3, device="lazyt")
    y = x + 1
    with pytest.raises(RuntimeError) as lazy:
        y @ x
    with pytest.raises(RuntimeError) as eager:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert str(lazy.value).splitlines()[0] == str(eager.value).splitlines()[0]
    assert y.sum().item() == 12


def test_a_tensor_outlives_its_step():
    kept = []
    x = torch.ones(4, device="lazyt")
    for i in range(5):
        y = x * i
        if i == 2:
            kept.append(y)
        lazyt.mark_step()
    assert kept[0].tolist() == [2, 2, 2, 2]


def test_a_loss_kept_only_sometimes_is_right():
    w = torch.ones(4, device="lazyt")
    losses = []
    for i in range(6):
        loss = (w * i).sum()
        w.add_(1)
        if i % 3 == 0:
            losses.append(loss)
        lazyt.mark_step()
    assert [loss.item() for loss in losses] == [0.0, 4 * 4 * 3.0]


def test_mixed_devices_are_eagers_error():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3, device="lazyt") + torch.ones(3)


def test_zero_dim_cpu_tensors_and_numbers_mix():
    x = torch.ones(3, device="lazyt")
    assert (x * torch.tensor(2.0) + 1).tolist() == [3, 3, 3]


def test_a_scalar_that_changes_compiles_once():
    x = torch.ones(8, device="lazyt")
    for i in range(10):
        y = x * (0.1 * i) + i
        lazyt.mark_step(wait=True)
    assert lazyt.metrics.counter_value("UncachedCompile") <= 2
    torch.testing.assert_close(y.cpu(), torch.full((8,), 9.9))


def test_double_backward():
    def f(x):
        x = x.clone().requires_grad_()
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        return h.detach()

    x = torch.tensor([1.0, 2.0, -3.0])
    torch.testing.assert_close(f(x.to("lazyt")).cpu(), f(x))


def test_autocast_computes_matmul_in_bfloat16():
    a = torch.randn(4, 4)
    with torch.autocast("lazyt", dtype=torch.bfloat16):
        out = a.to("lazyt") @ a.to("lazyt")
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float().cpu(), a @ a, rtol=0.05, atol=0.1)


def test_saving_and_loading():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to("lazyt")
    model(torch.randn(8, 3).to("lazyt"))
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    for where, device in (("cpu", "cpu"), (None, "lazyt"), ("lazyt", "lazyt")):
        buffer.seek(0)
        state = torch.load(buffer, map_location=where)
        for name, value in model.state_dict().items():
            assert state[name].device.type == device
            assert torch.equal(state[name].cpu(), value.cpu())


@pytest.mark.parametrize("again", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_deepcopy_and_pickle_share_storages_as_eager_does(again):
    results = []
    for device in ("cpu", "lazyt"):
        x = torch.arange(6.0, device=device).reshape(2, 3)
        pair = again({"base": x, "view": x[1]})
        pair["view"].add_(10)
        assert pair["base"].device == x.device
        results.append((pair["base"].tolist(), pair["view"].tolist(), x.tolist()))
    assert results[0] == results[1]


def test_to_lazy_and_to_eager_take_nests():
    nest = {"a": torch.ones(2), "b": [torch.zeros(1), 3]}
    lazy = lazyt.to_lazy(nest)
    assert lazy["a"].device.type == "lazyt" and lazy["b"][1] == 3
    back = lazyt.to_eager(lazy)
    assert torch.equal(back["a"], nest["a"]) and back["b"][0].device.type == "cpu"


def test_a_result_is_computed_once():
    y = torch.ones(3, device="lazyt") * 2
    lazyt.to_eager(y)
    launches = lazyt.metrics.counter_value("FlushValueNeeded")
    lazyt.to_eager(y)
    assert lazyt.metrics.counter_value("FlushValueNeeded") == launches == 1


def test_generated_methods():
    x = torch.ones(2)
    assert x.lazyt().is_lazyt and not x.is_lazyt
    assert next(torch.nn.Linear(2, 2).lazyt().parameters()).is_lazyt


def test_memory_is_returned():
    torch.zeros(1, device="lazyt").cpu()
    gc.collect()
    lazyt.wait_device_ops()
    before = torch.lazyt.memory_allocated()
    x = torch.ones(1 << 20, device="lazyt") + 1
    lazyt.mark_step(wait=True)
    assert torch.lazyt.memory_allocated() >= before + (4 << 20)
    del x
    gc.collect()
    lazyt.wait_device_ops()
    assert torch.lazyt.memory_allocated() <= before + (1 << 20)


def test_threads_record_side_by_side():
    results: dict[int, float] = {}

    def work(n: int):
        x = torch.ones(16, device="lazyt", requires_grad=True)
        for _ in range(20):
            y = (x * n).sum()
            (g,) = torch.autograd.grad(y, x)
        results[n] = g.sum().item()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert results == {n: 16.0 * n for n in range(1, 5)}


def test_mark_step_returns_while_the_step_runs():
    x = torch.randn(700, 700).to("lazyt")

    def step():
        y = x
        for _ in range(20):
            y = y @ x * 0.01
        return y

    step(), lazyt.mark_step(wait=True)
    y = step()
    begin = time.perf_counter()
    lazyt.mark_step()
    returned = time.perf_counter() - begin
    lazyt.wait_device_ops()
    done = time.perf_counter() - begin
    assert returned < done / 2, f"mark_step took {returned:.4f} s of {done:.4f} s"
    assert y.isfinite().all()


def test_mark_step_after_an_optimizer_step_launches_nothing():
    model = torch.nn.Linear(3, 3).to("lazyt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 3, device="lazyt")).sum().backward()
    lazyt.metrics.reset()
    optimizer.step()
    lazyt.mark_step()
    counters = lazyt.metrics.counters()
    assert counters.get("FlushOptimizerStep") == 1
    assert "FlushMarkStep" not in counters
    assert counters["MarkStep"] == 1


def test_an_optimizer_on_the_cpu_cuts_nothing():
    pending = torch.ones(3, device="lazyt") + 1
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    torch.optim.SGD([weight], lr=0.1).step()
    assert lazyt._C.is_pending(pending)


def test_sync_multi():
    x = torch.ones(3, device="lazyt") + 1
    lazyt.sync_multi([x], ["lazyt:0"])
    assert not lazyt._C.is_pending(x)
    with pytest.raises(ValueError, match="lazyt:1"):
        lazyt.sync_multi([x], ["lazyt:1"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_infinities_are_told_apart_without_the_host(dtype):
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0, 2.0])
    x = x if dtype.is_floating_point else torch.tensor([0, 1, 2])
    x = x.to(dtype)
    for what in (torch.isneginf, torch.isposinf):
        result = what(x.to("lazyt"))
        assert result.dtype == torch.bool and torch.equal(result.cpu(), what(x))
    assert set(lazyt.metrics.fallbacks()) <= {"aten::_local_scalar_dense"}


def test_gradients_of_rows_that_were_picked_need_no_host():
    x, rows = torch.arange(8.0).reshape(4, 2), torch.tensor([1, 1, 3])
    gradients = []
    for device in ("cpu", "lazyt"):
        leaf = x.clone().to(device).requires_grad_()
        (leaf[rows.to(device)] ** 2).sum().backward()
        gradients.append(leaf.grad.cpu())
    assert torch.equal(*gradients)
    assert set(lazyt.metrics.fallbacks()) <= {"aten::_local_scalar_dense"}


def test_memory_that_nobody_wrote_shows_under_deterministic_algorithms():
    def made(device):
        grown = torch.zeros(2, device=device).resize_(5)
        return [
            torch.empty(3, device=device),
            torch.empty(2, 2, dtype=torch.int32, device=device),
            torch.empty(2, dtype=torch.bool, device=device),
            torch.empty(2, 3, device=device, memory_format=torch.contiguous_format).t(),
            torch.zeros(2, device=device),
            grown,
        ]

    torch.use_deterministic_algorithms(True)
    try:
        expected, ours = made("cpu"), made("lazyt")
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close([t.cpu() for t in ours], expected, equal_nan=True)


LAYOUTS = {
    "dense": lambda x: x,
    "turned": lambda x: x.transpose(0, 2),
    "channels last": lambda x: x[None].contiguous(memory_format=torch.channels_last),
    "with holes": lambda x: x[:, ::2, 1:],
    "expanded": lambda x: x[:1].expand(4, -1, -1),
    "empty": lambda x: x[:0],
    "a number": lambda x: x[0, 0, 0],
}


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gelu_and_its_gradient_lie_as_eagers(layout, dtype, approximate):
    x, grad = (torch.randn(3, 6, 8).to(dtype) for _ in range(2))

    def both(device, lay_gradient):
        on = LAYOUTS[layout](x.to(device))
        gradient = LAYOUTS[layout](grad.to(device))
        if not lay_gradient:
            gradient = gradient.contiguous()
        made = torch.nn.functional.gelu(on, approximate=approximate)
        return made, torch.ops.aten.gelu_backward(gradient, on, approximate=approximate)

    for lay_gradient in (False, True):
        for got, want in zip(both("lazyt", lay_gradient), both("cpu", lay_gradient), strict=True):
            assert (got.shape, got.stride(), got.dtype) == (want.shape, want.stride(), want.dtype)
            torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: torch.nn.functional.gelu(x.int()),
        lambda x: torch.nn.functional.gelu(x, approximate="erf"),
        lambda x: torch.ops.aten.gelu_backward(x[:1, :3], x),
        lambda x: torch.ops.aten.gelu_backward(x.double(), x),
    ],
)
def test_gelu_refuses_what_eager_refuses(wrong):
    x, outcomes = torch.randn(2, 4), []
    for device in ("cpu", "lazyt"):
        try:
            outcomes.append(wrong(x.to(device)).cpu())
        except RuntimeError as e:
            outcomes.append(str(e).split("\n")[0])
    assert isinstance(outcomes[1], str) == isinstance(outcomes[0], str), outcomes
    if isinstance(outcomes[0], str):
        assert outcomes[1] == outcomes[0]
    else:
        torch.testing.assert_close(outcomes[1], outcomes[0])
