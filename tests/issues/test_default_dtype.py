"""torch.set_default_dtype() changes the dtype of results whose operands are the same."""

import threading

import torch


def test_results_follow_the_default_dtype(as_eager):
    def program(device):
        x = torch.arange(3, device=device)
        before = x / 2
        torch.set_default_dtype(torch.float64)
        try:
            during = x / 2, x.sin(), x == 0.1
        finally:
            torch.set_default_dtype(torch.float32)
        return before, *during, x / 2

    as_eager(program)


def test_a_thread_knows_when_another_that_records_into_its_trace_has_changed_it():
    def program(device):
        i = torch.arange(3, device=device) + 16777216
        stream = torch.accelerator.current_stream()

        def on_another_thread():
            torch.accelerator.set_stream(stream)
            (i / 3).cpu()

        torch.set_default_dtype(torch.float64)
        try:
            thread = threading.Thread(target=on_another_thread)
            thread.start(), thread.join()
        finally:
            torch.set_default_dtype(torch.float32)
        return i.eq(16777217.0).tolist(), i.lt(16777217.0).tolist(), (i / 3).dtype

    assert program("lazyt") == program("cpu")
