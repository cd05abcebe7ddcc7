"""Devices whose calls only compute (LAZYT_DEVICE_SYNCHRONOUS): known short steps run where they are cut."""

import os
import threading
import time

import lazyt
import pytest
import torch

pytestmark = pytest.mark.skipif(
    os.environ.get("LAZYT_BACKEND") != "onednn",
    reason="of these backends only onednn's device is synchronous",
)


def share_of_executor(step, repeats=50) -> float:
    """Of the time that launches take, behind some that make the step known, the executor's share."""
    for _ in range(5):
        step()
    lazyt.wait_device_ops()
    lazyt.metrics.reset()
    before = lazyt._C.executor_busy_seconds()
    for _ in range(repeats):
        step()
    lazyt.wait_device_ops()
    count, seconds, _ = lazyt.metrics.metric_data("ExecuteTime")
    assert count == repeats
    return (lazyt._C.executor_busy_seconds() - before) / seconds


def lowest_share_of_executor(step, tries=8) -> float:
    """Of some tries: where other programs have the processors, the executor may come before the thread that is about to wait."""
    shares = []
    while len(shares) < tries and not (shares and shares[-1] < 0.5):
        time.sleep(0.25 if shares else 0)
        shares.append(share_of_executor(step))
    return shares[-1]


def test_a_short_step_that_is_waited_for_runs_on_the_waiting_thread():
    x = torch.ones(4, 4, device="lazyt")
    values = []
    assert share_of_executor(lambda: values.append((x * 2 + 1).sum().item())) < 0.5
    assert set(values) == {48.0}


def test_a_short_step_runs_where_it_is_cut():
    x = torch.zeros(4, 4, device="lazyt")

    def step():
        x.add_(1)
        lazyt.mark_step()

    assert share_of_executor(step) < 0.5
    assert (x == 55).all()


def test_a_long_step_runs_on_the_executor():
    x = torch.full((512, 512), 1 / 512, device="lazyt")
    kept = []

    def step():
        kept[:] = [x @ x]
        lazyt.mark_step()

    assert share_of_executor(step) > 0.5
    torch.testing.assert_close(kept[0].cpu(), torch.full((512, 512), 1 / 512))


def test_a_longer_step_of_one_thread_runs_on_the_thread_that_waits():
    x = torch.full((256, 256), 1 / 256, device="lazyt")
    kept = []

    def step():
        kept[:] = [x @ x @ x @ x]
        lazyt.mark_step()
        lazyt.wait_device_ops()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert lowest_share_of_executor(step) < 0.5
        assert lowest_share_of_executor(lambda: kept.append((x @ x @ x @ x).sum().item())) < 0.5
    finally:
        torch.set_num_threads(threads)
    assert set(kept[1:]) == {256.0}


def test_what_a_thread_has_set_for_its_own_arithmetic_changes_no_result():
    x = torch.full((4,), 1e-38).to("lazyt")
    expected = (x * 0.01).cpu()
    assert expected[0] != 0  # a denormal number
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    try:
        found = [(x * 0.01).cpu() for _ in range(10)]
        own = torch.full((4,), 1e-38) * 0.01
    finally:
        torch.set_flush_denormal(False)
    assert all(torch.equal(f, expected) for f in found)
    assert own.tolist() == [0.0] * 4  # the thread's own setting stayed


def test_an_error_reaches_the_values_it_concerns():
    table, good, bad = (torch.tensor(t, device="lazyt") for t in ([1.0, 2.0], [1, 0], [5, 0]))

    def pick(index):
        return table.index_select(0, index).tolist()

    for _ in range(5):
        assert pick(good) == [2.0, 1.0]
    for _ in range(5):
        with pytest.raises((IndexError, RuntimeError)):
            pick(bad)
        assert pick(good) == [2.0, 1.0]


def test_threads_share_the_device():
    results = {}

    def count(number):
        x = torch.full((3,), float(number), device="lazyt")
        total = 0.0
        for _ in range(200):
            total += (x * 2).sum().item()
        results[number] = total

    threads = [threading.Thread(target=count, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: 200 * 6.0 * n for n in range(4)}
