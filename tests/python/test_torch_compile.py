"""Programs with torch.compile run as they are: what it captures is recorded."""

import lazyt
import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def train(device: str, prepare=lambda model: model, steps: int = 5):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3)).to(device)
    x, y = torch.randn(10, 6).to(device), torch.randint(0, 3, (10,)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    forward = prepare(model)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu(), [v.cpu() for v in model.state_dict().values()]


@pytest.mark.parametrize(
    "options",
    [{}, {"fullgraph": True}, {"dynamic": True}, {"mode": "reduce-overhead"}, {"backend": "lazyt"}],
    ids=lambda o: "default" if not o else "=".join(map(str, *o.items())),
)
def test_a_compiled_model_trains_as_eager(options):
    expected = train("cpu")
    losses, state = train("lazyt", lambda model: torch.compile(model, **options))
    torch.testing.assert_close(losses, expected[0])
    torch.testing.assert_close(state, expected[1], rtol=1e-4, atol=1e-4)


def test_a_step_with_a_compiled_model_is_one_program_as_without():
    lazyt.metrics.reset()
    train("lazyt", steps=8)
    without = lazyt.metrics.counter_value("UncachedCompile")
    lazyt.metrics.reset()
    train("lazyt", torch.compile, steps=8)
    assert lazyt.metrics.counter_value("UncachedCompile") <= without


def test_a_graph_that_takes_nothing_and_makes_tensors_of_the_device_is_recorded():
    @torch.compile(fullgraph=True)
    def ramp():
        return torch.ones(3, device="lazyt") + torch.arange(3, device="lazyt")

    assert ramp().tolist() == [1, 2, 3]


def test_branches_on_values_break_graphs_and_stay_right():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y - 1
        return y + x.sum().item()

    for sign in (1, -1):
        x = sign * torch.ones(3)
        torch.testing.assert_close(torch.compile(f)(x.to("lazyt")).cpu(), f(x))


def test_a_compiled_optimizer_step_ends_the_step():
    weight = nn.Parameter(torch.ones(4, device="lazyt"))
    weight.grad = torch.ones(4, device="lazyt")
    optimizer = torch.optim.SGD([weight], lr=0.5)
    lazyt.wait_device_ops()
    lazyt.metrics.reset()
    torch.compile(optimizer.step)()
    assert lazyt.metrics.counter_value("FlushOptimizerStep") == 1
    assert weight.tolist() == [0.5] * 4


def test_graphs_of_other_devices_go_to_the_compiler(monkeypatch):
    from torch._inductor import compile_fx

    seen = []
    monkeypatch.setattr(compile_fx, "compile_fx", lambda graph, inputs, **_: seen.append(inputs) or graph.forward)
    f = torch.compile(lambda x: x + 1)
    f(torch.ones(2, device="lazyt"))
    assert not seen
    assert f(torch.ones(2)).tolist() == [2, 2]
    assert len(seen) == 1
