"""A reduction into out= computes in the dtype of out=, which the result without out= does not have."""

import torch


def test_sum_into_integers_converts_before_it_adds(as_eager):
    def program(device):
        out = torch.zeros(2, dtype=torch.int64, device=device)
        torch.sum(torch.tensor([[0.6, 0.6, 0.6], [-0.6, -0.6, -0.9]], device=device), -1, out=out)
        return out

    as_eager(program)


def test_pointwise_into_another_dtype(as_eager):
    def program(device):
        out = torch.zeros(3, dtype=torch.bfloat16, device=device)
        return torch.add(torch.arange(3, device=device), 0.3, out=out)

    as_eager(program)


def test_out_is_resized_on_the_host_too(as_eager):
    def program(device):
        x = torch.arange(6, device=device)
        return torch.stack([x, x], out=torch.zeros((), dtype=torch.float16, device=device))

    as_eager(program)
