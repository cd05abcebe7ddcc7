"""Streams, events and memory as torch.accelerator and torch.lazyt name them."""

import gc
import time

import lazyt
import pytest
import torch

D = "lazyt"


def test_the_accelerator_is_the_device():
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
    assert torch.accelerator.current_accelerator() == torch.device(D)
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(0)
    with torch.accelerator.device_index(0):
        torch.accelerator.synchronize()
    with pytest.raises(RuntimeError, match="no device lazyt:1"):
        torch.accelerator.set_device_index(1)


def test_work_of_streams_is_ordered_as_it_is_written():
    x = torch.zeros(3, device=D)
    side, ready = torch.Stream(device=D), torch.Event(device=D)
    with side:
        x.add_(1)
        ready.record(side)
    with torch.lazyt.stream(torch.lazyt.Stream(device=D)) as other, torch.lazyt.stream(None):
        other.wait_event(ready)
        other.wait_stream(side)
        x.mul_(3)
        done = other.record_event()
    torch.accelerator.current_stream().wait_event(done)
    done.synchronize()
    side.synchronize()
    assert side.query() and done.query()
    x.record_stream(side)
    assert x.tolist() == [3, 3, 3]


def test_a_stream_is_known_by_its_device():
    stream = torch.lazyt.current_stream()
    assert stream.device == torch.device(D, 0) and stream == torch.accelerator.current_stream()
    assert torch.lazyt.default_stream() == stream
    torch.lazyt.set_stream(stream)


def test_a_synchronized_event_has_seen_the_work_before_it():
    x = torch.ones(64, 64, device=D)
    y = x @ x
    event = torch.Event(device=D)
    event.record()
    event.synchronize()
    assert not lazyt._C.is_pending(y)


def test_events_measure_the_time_of_the_work_between_them():
    x = torch.rand(512, 512).to(D)
    first, middle, last = (torch.lazyt.Event(enable_timing=True) for _ in range(3))
    lazyt.wait_device_ops()
    begin = time.perf_counter()
    first.record()
    for _ in range(10):
        x = x @ x / 512
    middle.record()
    last.record()
    last.synchronize()
    passed = (time.perf_counter() - begin) * 1e3
    assert first.query() and middle.query() and not lazyt._C.is_pending(x)
    work, nothing = first.elapsed_time(middle), middle.elapsed_time(last)
    assert 0 <= nothing < work and work + nothing <= passed
    assert work > 0.5  # 2.7 GFLOP
    assert first.elapsed_time(last) == pytest.approx(work + nothing)
    assert last.elapsed_time(first) == -first.elapsed_time(last)


def test_an_event_is_reached_when_the_work_before_it_is_done():
    x = torch.rand(512, 512).to(D)
    event = torch.Event(device=D, enable_timing=True)
    for _ in range(20):
        x = x @ x / 512
    event.record()
    assert not event.query()
    with pytest.raises(RuntimeError, match="must be completed"):
        event.elapsed_time(event)
    event.synchronize()
    assert event.query()
    event.record()  # again, with nothing to wait for
    event.synchronize()
    assert event.elapsed_time(event) == 0


def test_a_timed_step_is_the_same_step_each_time():
    x = torch.rand(8, 8).to(D)
    counts = []
    for _ in range(6):
        first, last = (torch.Event(device=D, enable_timing=True) for _ in range(2))
        first.record()
        x = (x @ x).softmax(1)
        last.record()
        last.synchronize()
        assert first.elapsed_time(last) >= 0
        counts.append(lazyt.metrics.counter_value("UncachedCompile"))
    assert counts[-1] == 1 and lazyt.metrics.counter_value("FlushTimedEvent") == 6


def test_an_event_without_timing_cuts_nothing_and_measures_nothing():
    y = torch.ones(3).to(D) + 1
    first, last = torch.Event(device=D), torch.Event(device=D)
    first.record()
    last.record()
    assert lazyt._C.is_pending(y)
    with pytest.raises(ValueError, match="enable_timing"):
        first.elapsed_time(last)
    with pytest.raises(ValueError, match="must be recorded"):
        torch.Event(device=D, enable_timing=True).elapsed_time(torch.Event(device=D, enable_timing=True))


def test_memory_is_asked_for_as_on_other_accelerators():
    gc.collect()
    lazyt.wait_device_ops()
    before = torch.accelerator.memory_allocated()
    x = torch.ones(1 << 20).to(D)
    assert torch.accelerator.memory_allocated() >= before + (4 << 20)
    assert torch.accelerator.memory_allocated() == torch.lazyt.memory_allocated()
    assert torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] >= 4 << 20
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free < total and torch.lazyt.mem_get_info()[1] == total
    torch.accelerator.empty_cache()
    with pytest.raises(NotImplementedError, match="cannot be reset"):
        torch.accelerator.reset_peak_memory_stats()
    assert x.sum().item() == 1 << 20
