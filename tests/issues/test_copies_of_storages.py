"""select_scatter and its like copy the whole storage of their operand, as_strided_copy reads outside of it: both took the
operand for a row-major tensor of its own."""

import pytest
import torch


def base(device):
    return torch.arange(24.0).view(4, 6).to(device)


OPERANDS = {
    "whole": base,
    "transposed": lambda device: base(device).t(),
    "a part": lambda device: base(device)[1:, 2:4],
    "a row": lambda device: base(device)[1],
    "with holes": lambda device: base(device)[::2, ::3],
    "expanded": lambda device: base(device)[:, :1].expand(4, 3),
    "channels last": lambda device: torch.arange(24.0).view(1, 2, 3, 4).to(device).to(memory_format=torch.channels_last),
}
CALLS = {
    "select_scatter": lambda x: torch.select_scatter(x, torch.zeros_like(x[0]), 0, 0),
    "slice_scatter": lambda x: torch.slice_scatter(x, torch.zeros_like(x[1:]), 0, 1),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x.unsqueeze(0), torch.zeros_like(x.unsqueeze(0).diagonal())),
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x, torch.zeros(2, device=x.device), (2,), (1,)),
    "as_strided_copy": lambda x: torch.as_strided_copy(x, (2, 2), (1, 1)),
}


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("call", CALLS)
def test_they_keep_geometry_and_read_what_eager_reads(call, operand):
    shown = []
    for device in ("cpu", "lazyt", "lazyt"):
        try:
            result = CALLS[call](OPERANDS[operand](device))
            shown.append((result.shape, result.stride(), result.storage_offset(), result.untyped_storage().nbytes(), result.cpu().tolist()))
        except RuntimeError as e:
            shown.append(str(e))
    assert shown[1] == shown[0]
    assert shown[2] == shown[0]
