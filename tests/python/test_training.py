"""Training: equal to eager, few programs, no recompilation."""

import lazyt
import mnist
import pytest
import torch
from torch.utils.data import DataLoader


def small_net() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, 2),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 13 * 13, 10),
    )


def assert_as_near_as_eager(found, eager, exact, tolerance: float) -> None:
    """No further from double than four times as far as eager's f32 is: what noise decides is asked of nobody.

    (A bias before a batch norm, where Adam makes steps of rounding errors; a training that doubles them.)"""
    found, eager, exact = found.double(), eager.double(), exact.double()
    noise = (eager - exact).abs().max().item()
    torch.testing.assert_close(found, exact, rtol=tolerance, atol=tolerance + 4 * noise)


def train(device: str, steps: int, optimizer="SGD", schedule=False, dtype=torch.float32, **options):
    torch.manual_seed(3)
    model = small_net()
    images, labels = torch.randn(steps, 8, 1, 28, 28).to(dtype), torch.randint(10, (steps, 8))
    model.to(device, dtype)
    opt = getattr(torch.optim, optimizer)(model.parameters(), **options)
    scheduler = torch.optim.lr_scheduler.StepLR(opt, 1, 0.9) if schedule else None
    losses = []
    for x, y in zip(images, labels, strict=True):
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        opt.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu(), {k: v.cpu() for k, v in model.state_dict().items()}


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("SGD", {"lr": 0.05, "momentum": 0.9}),
        ("Adam", {"lr": 0.01}),
        ("AdamW", {"lr": 0.01, "foreach": False}),
        ("Adadelta", {"lr": 1.0}),
        ("RMSprop", {"lr": 0.001}),
    ],
)
def test_twenty_steps_equal_eager(optimizer, options):
    losses, state = train("lazyt", 20, optimizer=optimizer, **options)
    eager_losses, eager_state = train("cpu", 20, optimizer=optimizer, **options)
    exact_losses, exact_state = train("cpu", 20, optimizer=optimizer, dtype=torch.float64, **options)
    assert_as_near_as_eager(losses, eager_losses, exact_losses, 1e-4)
    assert state.keys() == eager_state.keys()
    for name in state:
        assert_as_near_as_eager(state[name], eager_state[name], exact_state[name], 1e-3)


def mnist_steps(device: str, steps: int, dtype=torch.float32) -> torch.Tensor:
    torch.manual_seed(1)
    model = mnist.Net(dropout=False).to(device, dtype)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    images, labels = mnist.load_digits()[0].tensors
    losses = []
    for i in range(steps):
        at = i * 16 % 1488
        x, y = images[at : at + 16].to(device, dtype), labels[at : at + 16].to(device)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def test_a_hundred_steps_of_mnist_equal_eager():
    losses, eager = mnist_steps("lazyt", 100), mnist_steps("cpu", 100)
    exact = mnist_steps("cpu", 100, torch.float64)
    for at in range(0, 100, 10):  # errors grow from 1e-7 to 1e-1, in eager as well
        part = slice(at, at + 10)
        assert_as_near_as_eager(losses[part], eager[part], exact[part], 1e-4)


def test_an_epoch_compiles_a_handful_of_programs():
    train_set, test_set = mnist.load_digits()
    model = mnist.Net().to("lazyt")
    optimizer = torch.optim.Adadelta(model.parameters())
    subset = torch.utils.data.Subset(train_set, range(8 * 64 + 17))  # a partial batch at the end
    loader, test_loader = DataLoader(subset, 64), DataLoader(test_set, 99)
    lazyt.wait_device_ops()
    lazyt.metrics.reset()
    mnist.train_epoch(model, loader, optimizer, "lazyt", 1)
    lazyt.wait_device_ops()
    # First step (the optimizer makes its state), the steps after it, the partial batch.
    assert lazyt.metrics.counter_value("UncachedCompile") <= 3, lazyt.explain()
    mnist.evaluate(model, test_loader, "lazyt")
    lazyt.wait_device_ops()
    evaluated = lazyt.metrics.counter_value("UncachedCompile")
    assert evaluated <= 5, lazyt.explain()
    mnist.train_epoch(model, loader, optimizer, "lazyt", 2)
    mnist.evaluate(model, test_loader, "lazyt")
    lazyt.wait_device_ops()
    assert lazyt.metrics.counter_value("UncachedCompile") == evaluated, lazyt.explain()
    host = set(lazyt.metrics.fallbacks()) - {"aten::_local_scalar_dense"}
    assert host == set()


def test_a_learning_rate_schedule_recompiles_nothing():
    train("lazyt", 6, optimizer="Adadelta", lr=1.0, schedule=True)
    lazyt.wait_device_ops()
    assert lazyt.metrics.counter_value("UncachedCompile") <= 4, lazyt.explain()
    losses, _ = train("lazyt", 6, optimizer="Adadelta", lr=1.0, schedule=True)
    eager, _ = train("cpu", 6, optimizer="Adadelta", lr=1.0, schedule=True)
    torch.testing.assert_close(losses, eager, rtol=1e-4, atol=1e-5)


def test_a_long_chain_is_no_recursion():
    x = torch.zeros(2, device="lazyt")
    for _ in range(15000):
        x = x + 1
    assert x.tolist() == [15000, 15000]


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_ten_thousand_steps_need_no_more_memory_and_no_more_programs(run_python):
    # Without the validate layer, which remembers what was released.
    seen = run_python(
        """
        import gc, os, lazyt, torch
        from torch import nn

        def resident():
            with open("/proc/self/statm", encoding="ascii") as f:
                return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)).to("lazyt")
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(10_001):
            x = torch.randn(16, 32).to("lazyt")
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if step in (100, 10_000):
                lazyt.wait_device_ops()
                gc.collect()
                print(resident(), lazyt.metrics.counters()["UncachedCompile"])
        """,
        timeout=600,
        LAZYT_LAYERS="",
    )
    (memory, programs), (later, programs_later) = (map(int, line.split()) for line in seen.splitlines())
    print(f"resident after 100 steps {memory}, after 10,000 {later}; programs {programs}, {programs_later}")
    assert later <= 1.01 * memory, seen
    assert programs_later == programs, seen
