"""tolist() reads values, so autograd has no say in it: a part of split() can be read after its base was written."""

import torch


def test_a_written_part_of_split_can_be_read(as_eager):
    def program(device):
        x = torch.full((4, 2), 3.0, device=device, requires_grad=True)
        part = (x * 1).split(2, 0)[-1]
        with torch.no_grad():
            part.sin_()
        return part.tolist()

    as_eager(program)
