"""Memory shared with PyTorch's own CUDA tensors and CuPy's: no copy, and in the order of their streams."""

import lazyt
import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs PyTorch with CUDA")


def slow(x):
    """The same values, long after the call returns."""
    busy = torch.randn(4096, 4096, device="cuda")
    for _ in range(50):
        busy = busy @ busy
        busy = busy / busy.norm()
    return x + 0 * busy[0, 0]


def test_a_tensor_of_torch_cuda_is_used_where_it_lies():
    there = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    here = lazyt.from_dlpack(there)
    assert here.device.type == "lazyt"
    torch.testing.assert_close((here * 2).cpu(), (there * 2).cpu())


def test_work_of_the_producer_that_is_under_way_comes_first():
    there = slow(torch.ones(1000, device="cuda"))
    torch.testing.assert_close((lazyt.from_dlpack(there) + 1).cpu(), torch.full((1000,), 2.0))


def test_work_on_a_stream_of_its_own_comes_first():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        there = slow(torch.ones(1000, device="cuda"))
        here = lazyt.from_dlpack(there)
    torch.testing.assert_close((here + 1).cpu(), torch.full((1000,), 2.0))


def test_memory_is_not_handed_out_again_while_torch_still_reads_it():
    for _ in range(20):
        x = torch.full((1 << 20,), 3.0).to("lazyt")
        capsule = x.__dlpack__(max_version=(1, 1))
        there = torch.utils.dlpack.from_dlpack(capsule)
        del x, capsule
        read = slow(there)
        del there
        other = (torch.zeros(1 << 20).to("lazyt") + 7).sum().item()
        assert other == 7 * (1 << 20)
        assert read.min().item() == read.max().item() == 3.0


def test_cupy_reads_it():
    cupy = pytest.importorskip("cupy")
    x = torch.arange(5, dtype=torch.float32).to("lazyt") * 2
    assert cupy.from_dlpack(x).get().tolist() == [0, 2, 4, 6, 8]


def test_torch_cuda_goes_on_beside_it():
    stream = torch.cuda.current_stream()
    x = torch.randn(256, 256)
    here, there = x.to("lazyt"), x.to("cuda")
    for _ in range(100):
        here, there = torch.tanh(here @ here / 16), torch.tanh(there @ there / 16)
    assert torch.cuda.current_stream() == stream
    torch.testing.assert_close(here.cpu(), there.cpu(), rtol=1e-3, atol=1e-3)
