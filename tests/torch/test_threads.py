"""Four threads train at once: bit for bit what each gets alone, while tensors are freed by other threads."""

import gc
import queue
import threading
import time

import lazyt
import pytest
import torch
from torch import nn

THREADS = 4
making = threading.Lock()  # the generator of weights is one for the process


def train(number, device, steps, drop=lambda t: None):
    """An MLP of its own shape; losses of each step, weights at the end."""
    with making:
        torch.manual_seed(number)
        model = nn.Sequential(nn.Linear(6, 8 + number), nn.Tanh(), nn.Linear(8 + number, 2))
        data = torch.randn(8, 4, 6)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for step in range(steps):
        x = data[step % 8].to(device)
        optimizer.zero_grad()
        out = model(x)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        drop(out)
        if step % 100 == 0:
            losses.append(loss.item())
    return [torch.tensor(losses), *(p.detach().cpu() for p in model.parameters())]


def collect(dropped):
    """Frees tensors of other threads."""
    while (t := dropped.get()) is not None:
        del t
        if dropped.qsize() % 64 == 0:
            gc.collect(0)


@pytest.mark.parametrize("steps", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_threads_that_train_get_what_each_gets_alone(steps):
    alone = [train(n, "lazyt", steps) for n in range(THREADS)]
    dropped: queue.Queue = queue.Queue()
    together: dict[int, list[torch.Tensor]] = {}
    errors = []

    def work(n):
        try:
            together[n] = train(n, "lazyt", steps, dropped.put)
        except BaseException as error:
            errors.append(error)

    lazyt.wait_device_ops()
    lazyt.metrics.reset()
    collector = threading.Thread(target=collect, args=(dropped,))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    begin = time.perf_counter()
    for t in [collector, *threads]:
        t.start()
    for t in threads:
        t.join()
    print(f"{THREADS} threads x {steps} steps in {time.perf_counter() - begin:.2f} s")
    dropped.put(None)
    collector.join()
    assert not errors, errors
    for n in range(THREADS):
        assert all(torch.equal(a, b) for a, b in zip(together[n], alone[n], strict=True)), n
        torch.testing.assert_close(together[n], train(n, "cpu", steps), rtol=1e-3, atol=1e-4)
    assert lazyt.metrics.counter_value("FlushOtherThread") == 0
