"""Streams, events and memory as torch.accelerator and torch.lazyt name them."""

import gc

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


def test_events_measure_no_time_and_say_so():
    first, second = torch.Event(device=D, enable_timing=True), torch.Event(device=D, enable_timing=True)
    first.record()
    second.record()
    with pytest.raises(NotImplementedError, match="perf_counter"):
        first.elapsed_time(second)


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
