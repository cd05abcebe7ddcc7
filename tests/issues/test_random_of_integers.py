"""Found by the fuzzer of replayed steps: drawing into integers failed when the program ran, and whether it ran depended
on what was alive."""

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("draw", [torch.rand_like, torch.Tensor.uniform_, torch.Tensor.normal_])
def test_numbers_drawn_into_integers_are_eagers_error_at_once(draw, dtype):
    errors = []
    for device in ("cpu", "lazyt"):
        with pytest.raises(NotImplementedError) as error:
            draw(torch.ones(2, 2, dtype=dtype, device=device))
        errors.append(str(error.value))
    assert errors[0] == errors[1]
