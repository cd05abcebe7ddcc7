"""Bytes of torch.empty were kept as bytes when parts of them were written: each part was cast to bytes and back, and a plugin
that has no such casts left the program to the host (circular padding, caches that are filled by slices)."""

import lazyt
import pytest
import torch


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str
)
def test_parts_are_written_as_what_they_are(dtype):
    x = torch.randint(0, 2, (2, 3)).to(dtype)

    def fill(device):
        out = torch.empty(4, 5, dtype=dtype, device=device)
        out[:2, :3] = x.to(device)
        out[2:, :3] = 1
        out[:, 3:] = out[:, :2]
        return out

    got = fill("lazyt")
    assert "view.dtype" not in lazyt.code(got)
    assert torch.equal(got.cpu(), fill("cpu"))


def test_as_another_dtype_than_the_first():
    def fill(device):
        out = torch.empty(3, 4, dtype=torch.float32, device=device)
        out[0] = 1.5
        out.view(torch.int32)[1:] = 7
        out.view(torch.uint8)[2, 3:6] = 255
        return out

    assert torch.equal(fill("lazyt").view(torch.int32).cpu(), fill("cpu").view(torch.int32))


def test_bytes_that_are_no_whole_elements():
    def fill(device):
        out = torch.empty(10, dtype=torch.uint8, device=device)
        out[:8].view(torch.float32)[:] = 2.5
        out[8:] = 3
        return out

    assert torch.equal(fill("lazyt").cpu(), fill("cpu"))


def test_the_next_step_is_the_same():
    def fill(device, x):
        out = torch.empty(2, 6, device=device)
        out[:, 1:-1] = x
        out[:, :1] = out[:, 4:5]
        out[:, -1:] = out[:, 1:2]
        return out

    compiles = []
    for step in range(4):
        x = torch.full((2, 4), float(step))
        got = fill("lazyt", x.to("lazyt"))
        lazyt.mark_step()
        assert torch.equal(got.cpu(), fill("cpu", x))
        compiles.append(lazyt.metrics.counters().get("UncachedCompile", 0))
    assert compiles[1] == compiles[-1]
