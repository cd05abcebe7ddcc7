"""What OpInfo found: dims of gradients, views that do not say so, lists of out= tensors."""

import torch


def test_gradient_of_select_from_behind(as_eager):
    def program(device):
        x = torch.arange(60.0, device=device).reshape(3, 4, 5).requires_grad_()
        return torch.autograd.grad((x.select(-1, -2) * x.select(-2, 1).sum()).sum(), x)

    as_eager(program)


def test_out_through_a_view_that_does_not_say_so(as_eager):
    def program(device):
        out = torch.ones(4, 6, device=device)
        torch.kron(torch.arange(4.0, device=device).reshape(2, 2), torch.ones(2, 3, device=device), out=out)
        return out, *torch.unsafe_chunk(torch.arange(12.0, device=device).reshape(3, 4), 2, 1)

    as_eager(program)


def test_a_list_of_out_tensors_is_resized(as_eager):
    def program(device):
        outs = [torch.empty(0, device=device) for _ in range(3)]
        torch.unbind_copy(torch.arange(6.0, device=device).reshape(3, 2), out=outs)
        return tuple(outs)

    as_eager(program)


def test_out_of_batch_norm_beside_its_statistics(as_eager):
    def program(device):
        x = torch.arange(12.0, device=device).reshape(4, 3)
        mean, var = torch.zeros(3, device=device), torch.ones(3, device=device)
        outs = [torch.empty(0, device=device) for _ in range(3)]
        torch.ops.aten._native_batch_norm_legit.out(x, None, None, mean, var, True, 0.1, 1e-5, out=outs[0], save_mean=outs[1], save_invstd=outs[2])
        return mean, var, *outs

    as_eager(program)


def test_layout_of_a_result_of_linear_algebra(as_eager):
    def program(device):
        a = torch.eye(5, device=device) * 3
        return torch.cholesky_inverse(a, out=torch.empty(0, device=device)), torch.linalg.inv(a), torch.linalg.solve(a, a)

    as_eager(program)
