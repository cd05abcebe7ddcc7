"""The bytes of a tensor that was resized and filled, seen as another dtype."""

import torch


def test_a_scalar_broadcast_over_resized_bytes(as_eager):
    def program(device):
        x = torch.ones(1, device=device)
        x.resize_(3, 2).zero_()
        x[..., None] = -1
        return x, x.view(torch.uint8)

    as_eager(program)
