"""torch._foreach_add_ and its like wrote tensors without counting it: saved tensors that were written went unnoticed by autograd."""

import pytest
import torch


@pytest.mark.parametrize("grad", [False, True])
def test_each_tensor_of_the_list_counts_a_write(grad):
    for device in ("cpu", "lazyt", "lazyt"):
        x, y = (torch.ones(n, device=device, requires_grad=grad) for n in (2, 3))
        view = x[:1]
        with torch.no_grad():
            torch._foreach_add_([x, y], [y[:2], y])
            torch._foreach_mul_([x], 3.0)
            torch._foreach_zero_([y])
        assert (x._version, y._version, view._version) == (2, 2, 2)
        assert x.tolist() == [6, 6]


def test_a_saved_tensor_that_was_written_is_refused():
    for device in ("cpu", "lazyt"):
        x = torch.ones(2, device=device, requires_grad=True)
        y = x.exp()
        with torch.no_grad():
            torch._foreach_mul_([y], 2.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
