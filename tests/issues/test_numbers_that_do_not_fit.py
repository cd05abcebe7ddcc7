"""Numbers that an integer or half dtype cannot hold wrapped silently where a backend filled with them; eager refuses them."""

import pytest
import torch


def outcome(write, dtype, value, device):
    tensor = torch.ones(3, dtype=dtype, device=device)
    try:
        result = write(tensor, value)
        return (tensor if result is None else result).cpu().tolist()
    except RuntimeError as error:
        return str(error).splitlines()[0]


WRITES = {
    "fill_": lambda t, v: t.fill_(v),
    "full": lambda t, v: torch.full((3,), v, dtype=t.dtype, device=t.device),
    "masked_fill": lambda t, v: t.masked_fill(t > 0, v),
    "index_fill_": lambda t, v: t.index_fill_(0, torch.tensor([1], device=t.device), v),
    "clamp": lambda t, v: t.clamp(max=v),
    "scatter_": lambda t, v: t.scatter_(0, torch.tensor([1], device=t.device), v),
    "scatter_ nowhere": lambda t, v: t.scatter_(0, torch.zeros(1, 1, 0, dtype=torch.long, device=t.device), v),
    "pad": lambda t, v: torch.nn.functional.pad(t, (1, 2), value=v),
    "pad of none": lambda t, v: torch.nn.functional.pad(t[:0], (1, 2), value=v),
    "pad that cuts": lambda t, v: torch.nn.functional.pad(t, (-1, 0), value=v),
    "pad to none": lambda t, v: torch.nn.functional.pad(t[:0, None], (1, 0), value=v),
    "pad out of its dims": lambda t, v: torch.nn.functional.pad(t, (1, 0, 1, 0), value=v),
    "setitem": lambda t, v: t.__setitem__(0, v),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.bool, torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("write", WRITES)
def test_they_are_refused_where_eager_refuses_them(write, dtype):
    for value in (-1, -0.28, 127.5, 128, 300, 70000.0, 1e12, 1e39, float("inf")):
        for _ in range(2):  # recorded, and replayed with another number
            expected = outcome(WRITES[write], dtype, value, "cpu")
            assert outcome(WRITES[write], dtype, value, "lazyt") == expected, value


def test_they_are_refused_at_their_line():
    tensor = torch.zeros(3, dtype=torch.uint8, device="lazyt")
    for value in (1, 2, 3):
        tensor.fill_(value)
        tensor.tolist()
    with pytest.raises(RuntimeError, match="cannot be converted to type uint8_t without overflow"):
        tensor.fill_(256)
    assert tensor.tolist() == [3, 3, 3]
