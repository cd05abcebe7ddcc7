"""A step that reads another part of a tensor each time follows its tape; where it also writes that tensor, each part is
held against what is written, as eager does."""

import pytest
import torch


@pytest.mark.parametrize("made", ["before", "in the step"])
@pytest.mark.parametrize(
    "call",
    [
        lambda to, of: to.copy_(of),
        lambda to, of: to.add_(of),
        lambda to, of: torch.mul(of, 2.0, out=to),
    ],
    ids=["copied", "added", "out="],
)
def test_a_part_that_comes_to_overlap_is_refused(call, made):
    def outcomes(device):
        kept, seen = torch.arange(20.0, device=device), []
        for offset in (4, 8, 12, 16, 2, 6, 0, 3):
            buffer = kept if made == "before" else kept + 0.0
            try:
                call(buffer[:4], buffer[offset : offset + 4])
                seen.append(buffer.tolist())
            except RuntimeError as error:
                seen.append(str(error).split("\n")[0])
            if device == "lazyt":
                torch.lazyt.synchronize()
        return seen

    assert outcomes("lazyt") == outcomes("cpu")
