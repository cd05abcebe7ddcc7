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


@pytest.mark.parametrize("shape", [(5,), (3, 4)], ids=["of its own", "expanded"])
def test_resizing_counts_where_eager_does_it_by_an_operator(as_eager, shape):
    def program(device):
        x = torch.ones(2, 3, device=device)
        outs = [
            [
                torch.zeros(3, 1, device=device).expand(3, 4)
                if len(shape) == 2
                else torch.zeros(shape, device=device)
                for _ in range(2)
            ]
            for _ in range(3)
        ]
        torch.unbind_copy(x, out=outs[0])
        torch.split_with_sizes_copy(x, [1, 1], out=outs[1])
        torch.ops.aten._foreach_exp.out([x, x], out=outs[2])  # resizes without one
        return tuple(t._version for out in outs for t in out)

    as_eager(program)
