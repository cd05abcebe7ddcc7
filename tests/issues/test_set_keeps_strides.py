"""set_() to a storage with the sizes that the tensor has keeps its strides."""

import torch


def test_an_expanded_tensor_stays_expanded(as_eager):
    def program(device):
        x = torch.arange(4.0, device=device)
        y = x.as_strided((3,), (0,))
        y.set_(x.untyped_storage(), 0, (3,))
        z = x.as_strided((3,), (0,))
        z.set_(x.untyped_storage(), 0, (2,))
        return y, z

    as_eager(program)
