"""Chains that read and keep more values than a kernel has registers become several kernels: they failed to compile (gelu of 64
branches, all kept for their gradients)."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("no_islands")


@pytest.mark.parametrize("branches", [1, 40, 63, 64, 65, 130])
def test_a_chain_whose_links_are_all_kept(branches):
    torch.manual_seed(0)
    factors, terms = torch.randn(branches, 37).unbind(), torch.randn(branches, 37).unbind()

    def run(device):
        value, kept = torch.zeros(37, device=device), []
        for i, (f, t) in enumerate(zip(factors, terms, strict=True)):
            value = torch.tanh(value * f.to(device) + t.to(device)) * (i + 1.5)
            kept.append(value)
        return [k.cpu() for k in kept]

    torch.testing.assert_close(run("lazyt"), run("cpu"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("branches", [64, 100])
def test_branches_with_gradients_of_their_own(branches):
    torch.manual_seed(0)
    inputs = torch.randn(branches, 5, 33, dtype=torch.float64).unbind()

    def run(device):
        leaves = [x.to(device).requires_grad_() for x in inputs]
        total = sum(torch.nn.functional.gelu(x) * (i + 0.5) for i, x in enumerate(leaves))
        return [g.cpu() for g in torch.autograd.grad(total.square().sum(), leaves)]

    torch.testing.assert_close(run("lazyt"), run("cpu"))


@pytest.mark.parametrize(
    "shape, beside", [((40, 300), (40, 1)), ((40, 300), (300,)), ((40, 48), (48,))], ids=str
)
def test_a_chain_that_reads_many_values_beside_rows(shape, beside):
    torch.manual_seed(0)
    x, others = torch.rand(shape), (torch.rand(110, *beside) * 0.1).unbind()

    def run(device):
        value = x.to(device)
        for a, b in zip(others[::2], others[1::2], strict=True):
            value = torch.addcmul(value, a.to(device), b.to(device))
        return value.cpu()

    torch.testing.assert_close(run("lazyt"), run("cpu"), rtol=1e-5, atol=1e-5)
