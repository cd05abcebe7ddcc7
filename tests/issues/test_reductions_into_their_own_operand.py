"""out= that is the operand, too, and has another shape: eager's kernel resizes it again when it has read it. The call was
recorded with two shapes, and the backend ended the process."""

import pytest
import torch


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("f", [torch.max, torch.min])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_it_is_what_eager_makes_of_it(f, dtype):
    def program(device):
        x, indices = (
            torch.arange(16).to(dtype).view(4, 4, 1).to(device),
            torch.zeros(4, dtype=torch.long, device=device),
        )
        f(x, 0, out=(x, indices))
        return x.tolist(), indices.tolist()

    assert program("lazyt") == program("cpu")
