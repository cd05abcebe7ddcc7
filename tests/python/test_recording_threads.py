"""Several threads record: each follows its own steps, and values cross between them as in eager."""

import os
import queue
import threading
import time

import lazyt
import pytest
import torch
from torch import nn


def in_threads(*functions) -> None:
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def count(name: str) -> int:
    return lazyt.metrics.counters().get(name, 0)


def test_threads_that_share_a_model_compile_its_step_once_and_do_not_cut_each_other():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    lazy = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).to("lazyt")
    lazy.load_state_dict(model.state_dict())
    results = [[] for _ in range(4)]

    def serve(k):
        def run():
            x = torch.full((2, 8), k / 4).to("lazyt")
            for i in range(50):
                results[k].append(lazy(x).detach() * i)
                lazyt.mark_step()

        return run

    in_threads(*map(serve, range(4)))
    assert count("UncachedCompile") == 1
    assert count("FlushOtherThread") == 0
    for k in range(4):
        expected = model(torch.full((2, 8), k / 4)).detach()
        for i in (0, 1, 49):
            torch.testing.assert_close(results[k][i].cpu(), expected * i)


def test_threads_that_train_models_of_their_own_replay_their_steps():
    def train(k, device, steps=30):
        torch.manual_seed(k)
        model = nn.Linear(4, 3 + k)
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.full((2, 4), 0.5).to(device)
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return model.weight.detach().cpu()

    weights = {}
    seeded = threading.Lock()  # the generator of weights is one for the process

    def lazy(k):
        def run():
            with seeded:
                torch.manual_seed(k)
                model = nn.Linear(4, 3 + k)
            model.to("lazyt")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            x = torch.full((2, 4), 0.5).to("lazyt")
            for _ in range(30):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            weights[k] = model.weight.detach().cpu()

        return run

    in_threads(*map(lazy, range(4)))
    assert count("UncachedCompile") == 4  # a model of its own shape each
    for k in range(4):
        torch.testing.assert_close(weights[k], train(k, "cpu"))


def test_values_cross_between_threads_in_the_order_of_the_program():
    items: queue.Queue = queue.Queue()
    results = []

    def produce():
        for i in range(40):
            items.put(torch.ones(3, device="lazyt") * i)

    def consume():
        for _ in range(40):
            t = items.get()
            t.add_(1)
            results.append(t * 2)

    in_threads(produce, consume)
    assert [r[0].item() for r in results] == [2.0 * (i + 1) for i in range(40)]


def test_what_a_thread_wrote_is_seen_by_a_trace_that_read_the_tensor_before():
    x = torch.zeros(3).to("lazyt")
    before = x + 1
    in_threads(lambda: x.add_(5))
    after = x + 1
    assert before.tolist() == [1, 1, 1] and after.tolist() == [6, 6, 6]


def test_results_of_a_thread_that_has_ended_are_there():
    kept = []
    in_threads(lambda: kept.append(torch.ones(3, device="lazyt") + 2))
    assert lazyt._C.is_pending(kept[0])
    assert kept[0].tolist() == [3, 3, 3]


def test_waiting_runs_what_ended_threads_left():
    lazyt.wait_device_ops()
    lazyt.metrics.reset()
    kept = []
    in_threads(lambda: kept.append(torch.ones(3, device="lazyt") * 7))
    give_up = time.monotonic() + 20
    while count("FlushValueNeeded") == 0 and time.monotonic() < give_up:  # a joined thread may still be ending
        lazyt.wait_device_ops()
    assert count("FlushValueNeeded") == 1
    in_threads(lambda: kept.append(torch.ones(3, device="lazyt") * 7))  # finds nothing to cut
    assert lazyt.metrics.counter_value("FlushOtherThread") == 0
    assert [t.tolist() for t in kept] == [[7, 7, 7], [7, 7, 7]]


def test_a_short_lived_thread_takes_up_the_steps_of_those_before():
    def step():
        y = torch.ones(3, device="lazyt") * 2 + 3
        lazyt.mark_step()
        assert y.tolist() == [5, 5, 5]

    tapes = lazyt._C.tape_count()
    for _ in range(40):
        in_threads(step)
    assert lazyt._C.tape_count() - tapes < 10  # a thread may begin before the end of the last is known


@pytest.mark.filterwarnings("error")
def test_a_backward_on_the_device_thread_of_autograd_joins_the_callers_step():
    w = torch.tensor([1.0, 2.0]).to("lazyt").requires_grad_()
    loss = (w * w).sum()
    torch.autograd.set_multithreading_enabled(True)
    try:
        loss.backward()
    finally:
        torch.autograd.set_multithreading_enabled(False)
    assert count("FlushOtherThread") == 0
    assert w.grad.tolist() == [2, 4]


@pytest.mark.filterwarnings("error")
def test_a_backward_in_another_thread_than_the_forward():
    w = torch.tensor([1.0, 2.0]).to("lazyt").requires_grad_()
    loss = (w * w).sum()
    in_threads(loss.backward)
    assert w.grad.tolist() == [2, 4]


def test_a_dtype_that_becomes_the_default_holds_for_threads_that_record_already():
    steps = [threading.Barrier(2), threading.Barrier(2)]
    dtypes = []

    def work():
        x = torch.ones(2, dtype=torch.int64, device="lazyt")
        dtypes.append((x + 0.5).dtype)
        steps[0].wait(10)
        steps[1].wait(10)
        dtypes.append((x + 0.5).dtype)

    def change():
        steps[0].wait(10)
        torch.set_default_dtype(torch.float64)
        steps[1].wait(10)

    try:
        in_threads(work, change)
    finally:
        torch.set_default_dtype(torch.float32)
    assert dtypes == [torch.float32, torch.float64]


BEGUN = """
    import random, threading
    import lazyt, torch

    def weights():
        return [torch.randn(16, 16).to("lazyt") for _ in range(30)]

    shared = weights()

    @torch.no_grad()
    def work(seed):
        choice, mine = random.Random(seed), weights()
        for _ in range(100):
            layers, other_way = (shared if choice.random() < 0.5 else mine), choice.random() < 0.2
            x = torch.randn(1, 16).to("lazyt")
            for i, w in enumerate(layers):
                x = torch.tanh(x @ w)
                if other_way and i == 20:
                    x = x * 2
            if choice.random() < 0.1:
                lazyt.mark_step()
            if choice.random() < 0.05:
                mine[3] = mine[3] * 0.9
            x.sum().item()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print("begun:", lazyt.metrics.counter_value("LaunchBegun") or 0)
    """


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: nothing is begun")
def test_threads_begin_launches_of_which_others_record_the_next(run_python):
    """As test_begun_launches.py; here for the sanitizers, on a backend that computes nothing."""
    said = run_python(BEGUN, LAZYT_BACKEND="null", LAZYT_PIECE_BYTES="1024")
    assert int(said.split("begun:")[1]) > 0, said
