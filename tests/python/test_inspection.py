"""Looking inside: graph, code, metrics, explain, the device's module."""

import re

import lazyt
import pytest
import torch


def test_graph_shows_operators_shapes_and_lines():
    x = torch.ones(2, 3, device="lazyt")
    y = torch.relu(x + 1)
    text = lazyt.graph(y)
    assert "aten::relu" in text and "aten::add" in text and "f32[2,3]" in text
    assert re.search(r"test_inspection\.py:\d+", text)


def test_graph_of_one_tensor_leaves_out_the_rest():
    x = torch.ones(3).to("lazyt")
    y, z = torch.exp(x), torch.log(x)
    assert "aten::log" not in lazyt.graph(y)
    assert "aten::log" in lazyt.graph() and "aten::exp" in lazyt.graph()
    assert z.tolist() == [0, 0, 0]


def test_looking_inside_changes_nothing():
    x = torch.ones(3).to("lazyt")
    y = x * 2
    pending = lazyt._C.pending_ops()
    lazyt.graph(y), lazyt.code(y)
    assert lazyt._C.pending_ops() == pending and lazyt._C.is_pending(y)
    assert y.tolist() == [2, 2, 2]


def run_code(tensor: torch.Tensor, *inputs) -> list[torch.Tensor]:
    scope: dict = {}
    exec(lazyt.code(tensor), scope)
    return scope["program"](*inputs) if inputs else scope["results"]


def test_code_runs_eagerly_with_the_same_result():
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    x, y = a.to("lazyt"), b.to("lazyt")
    z = torch.softmax(x @ y, dim=-1)
    (result,) = run_code(z, a, b)
    torch.testing.assert_close(result, z.cpu())


PROGRAMS = {
    "views": lambda x: (x.T[1:] + 1).reshape(-1),
    "in place": lambda x: x.clone()[1:3].mul_(2).sum(0),
    "lists": lambda x: torch.cat(torch.split(x, 2), 1),
    "two results": lambda x: x.max(dim=1).values + torch.var_mean(x, dim=1)[0],
    "dtypes": lambda x: x.to(torch.bfloat16).double() + x.int(),
    "numbers": lambda x: torch.clamp(x * float("inf"), -2.5, 7) ** 2,
    "conv": lambda x: torch.nn.functional.conv2d(x[None, None], x[None, None, :3, :3], padding=1),
    "index": lambda x: x[:, torch.tensor([1, 0], device=x.device)],
    "factories": lambda x: torch.arange(4, device=x.device) + torch.eye(4, device=x.device),
    "random": lambda x: torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x),
    "norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_code_can_be_pasted(name):
    x = torch.randn(4, 4).to("lazyt")
    y = PROGRAMS[name](x)
    results = run_code(y)
    assert (
        results[0].dtype == y.dtype and results[0].numel() == y.untyped_storage().nbytes() // y.element_size()
    )


def test_code_of_a_training_step_can_be_pasted():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).to("lazyt")
    model(torch.ones(3, 4).to("lazyt")).square().mean().backward()
    assert run_code(model[0].weight.grad)[0].shape == (4, 4)
    assert len(run_code(None)) >= 3


def test_graph_of_a_tensor_elsewhere_is_an_error():
    with pytest.raises(ValueError, match="on cpu"):
        lazyt.graph(torch.ones(1))


def test_metrics_have_the_names_users_know():
    x = torch.ones(3).to("lazyt")
    for _ in range(3):
        (x + 1).cpu()
    lazyt.mark_step()
    lazyt.wait_device_ops()
    names = lazyt.metrics.counter_names()
    for name in (
        "CachedCompile",
        "UncachedCompile",
        "CreateLtcTensor",
        "DestroyLtcTensor",
        "DeviceDataCacheMiss",
    ):
        assert name in names
    assert lazyt.metrics.counter_value("MarkStep") == 1
    assert lazyt.metrics.counter_value("lazyt::add") == 3
    assert lazyt.metrics.counter_value("no such counter") == 0
    count, seconds, samples = lazyt.metrics.metric_data("CompileTime")
    assert count >= 1 and seconds > 0 and len(samples) == count
    assert "CompileTime" in lazyt.metrics.metric_names()
    assert lazyt.metrics.metric_data("no such timer") is None
    assert "lazyt::add" in lazyt.metrics.report()
    lazyt.metrics.reset()
    assert lazyt.metrics.counter_value("lazyt::add") == 0


def test_explain_says_why_traces_were_cut():
    (torch.ones(3).to("lazyt") + 1).cpu()
    lazyt.wait_device_ops()
    text = lazyt.explain()
    assert "asked for a value" in text and "programs were compiled" in text


def test_backends_are_listed_without_loading_them():
    names = {b["name"] for b in lazyt.backends()}
    assert "null" in names and lazyt.backend()["name"] in names


def test_the_devices_module():
    m = torch.lazyt
    assert m.is_available() and m.is_initialized() and m.device_count() == 1 and m.current_device() == 0
    m.set_device("lazyt:0")
    m.synchronize()
    with m.device(0):
        assert torch.ones(1, device="lazyt").device == torch.device("lazyt:0")
    with pytest.raises(RuntimeError, match="lazyt:1"):
        m.set_device(1)
    with pytest.raises(RuntimeError, match="lazyt:1"):
        torch.ones(1, device="lazyt:1")
    assert torch.bfloat16 in m.get_amp_supported_dtype()
    assert set(m.memory_stats()) >= {"bytes_in_use", "peak_bytes_in_use"}
    assert torch.accelerator.current_accelerator().type == "lazyt"
    with torch.device("lazyt"):
        assert torch.ones(1).is_lazyt
    torch.accelerator.synchronize()


def test_streams_and_events_are_there():
    s = torch.lazyt.current_stream()
    e = torch.Event(device="lazyt")
    x = torch.ones(2, device="lazyt") + 1
    e.record(s)
    e.synchronize()
    assert x.tolist() == [2, 2]
