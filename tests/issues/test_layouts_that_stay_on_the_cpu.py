"""Sparse, quantized and strided nested tensors cannot live on the device: making one there is an error that names it.
A compressed sparse one could be moved or made like another, and nothing could be done with it."""

import pytest
import torch

D = "lazyt"


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr])
def test_sparse_ones(layout):
    dense = torch.ones(4, 4)
    blocks = {"blocksize": (2, 2)} if layout == torch.sparse_bsr else {}
    makers = [
        lambda: dense.to_sparse(layout=layout, **blocks).to(D),
        lambda: dense.to(D).to_sparse(layout=layout, **blocks),
    ]
    if not blocks:
        makers.append(lambda: torch.zeros(4, 4, layout=layout, device=D))
    for make in makers:
        with pytest.raises(
            NotImplementedError, match="lazyt: .*(sparse|Sparse).* cannot live on the lazyt device.*CPU"
        ):
            make()


def test_a_compressed_one_of_its_parts():
    parts = [torch.tensor([0, 1, 1]), torch.tensor([0]), torch.ones(1)]
    for given in (parts, [p.to(D) for p in parts]):
        with pytest.raises(
            NotImplementedError, match="lazyt: sparse tensors cannot live on the lazyt device"
        ):
            torch.sparse_csr_tensor(*given, device=D)


@pytest.mark.parametrize("like", [torch.empty_like, torch.zeros_like, torch.ones_like, torch.rand_like])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr])
def test_one_like_a_sparse_one_of_the_cpu(like, layout):
    blocks = {"blocksize": (2, 2)} if layout == torch.sparse_bsr else {}
    sparse = torch.eye(4).to_sparse(layout=layout, **blocks)
    with pytest.raises(NotImplementedError, match="lazyt: sparse tensors cannot live on the lazyt device"):
        like(sparse, device=D)


def test_nested_ones():
    parts = [torch.ones(2, 3), torch.ones(1, 3)]
    with pytest.raises(NotImplementedError, match="lazyt: nested tensors cannot live on the lazyt device"):
        torch.nested.nested_tensor(parts).to(D)
    with pytest.raises(NotImplementedError, match="lazyt: nested tensors cannot live on the lazyt device"):
        torch.nested.as_nested_tensor([p.to(D) for p in parts])
    with pytest.raises(NotImplementedError, match="lazyt: nested tensors cannot live on the lazyt device"):
        torch.nested.nested_tensor(parts, device=D)
    assert torch.nested.nested_tensor(parts).size(0) == torch.nested.nested_tensor(parts, device="cpu").size(0) == 2


def test_jagged_ones_are_made_of_dense_ones(as_eager):
    def program(device):
        parts = [torch.ones(2, 3, device=device), torch.ones(1, 3, device=device)]
        nested = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
        return (nested * 2).values(), nested.sum(-1).values()

    as_eager(program)


def test_quantized_ones():
    for make in (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).to(D),
        lambda: torch.quantize_per_tensor(torch.ones(3, device=D), 0.1, 0, torch.qint8),
        lambda: torch.empty(2, dtype=torch.qint8, device=D),
    ):
        with pytest.raises(NotImplementedError, match="lazyt: .* cannot live on the lazyt device.*CPU"):
            make()
