"""Writes into a list of out= count: autograd finds out that a tensor it keeps was written."""

import pytest
import torch


def test_each_tensor_of_the_list_counts_one(as_eager):
    def program(device):
        x = torch.ones(2, 3, device=device)
        parts = [torch.zeros(2, 1, device=device), torch.zeros(2, 2, device=device)]
        torch.split_with_sizes_copy(x, [1, 2], 1, out=parts)
        rows = [torch.zeros(3, device=device), torch.zeros(0, device=device)]  # growing counts, too
        torch.unbind_copy(x, out=rows)
        return tuple(t._version for t in (*parts, *rows))

    as_eager(program)


def test_a_kept_one_is_found_out(as_eager):
    def program(device):
        w = torch.ones(3, device=device, requires_grad=True)
        kept = [torch.ones(3, device=device), torch.ones(3, device=device)]
        y = (w * kept[0]).sum()
        torch.unbind_copy(torch.ones(2, 3, device=device), out=kept)
        try:
            y.backward()
        except RuntimeError as e:
            return "modified by an inplace operation" in str(e)
        return False

    as_eager(program)


@pytest.mark.parametrize("kernel", ["CPU", "CompositeExplicitAutograd"])
def test_an_operator_of_a_library_that_writes(as_eager, kernel):
    with torch.library._scoped_library("lazyt_issue", "FRAGMENT") as library:
        library.define("more(Tensor(a!) x) -> ()")
        library.impl("more", lambda x: x.add_(1).is_leaf and None, kernel)
        library.impl("more", lambda x: None, "Meta")

        def program(device):
            x = torch.zeros(2, device=device)
            torch.ops.lazyt_issue.more(x)
            return x, x._version

        as_eager(program)
