"""`set_` with the tensor's own sizes and larger strides left eager's tensor past the end of its storage; ours grows it."""

import torch


def test_a_tensor_never_reaches_past_its_storage():
    wide, narrow = torch.ones(5, 5, device="lazyt"), torch.arange(6.0, device="lazyt")
    x = wide[:3, :3].diagonal()
    x.set_(narrow.untyped_storage(), 0, (3,))
    end = x.storage_offset() + (x.numel() - 1) * x.stride(0) + 1
    assert narrow.untyped_storage().nbytes() >= end * x.element_size()
    assert x[0].item() == 0 and narrow.tolist() == [0, 1, 2, 3, 4, 5]
    x.fill_(7)
    assert x.tolist() == [7, 7, 7] and narrow.tolist() == [7, 1, 2, 3, 4, 5]
