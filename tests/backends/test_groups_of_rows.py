"""_grouped_mm, the product of a mixture of experts: groups of rows or columns whose ends the device computes."""

import os

import pytest
import torch

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("LAZYT_BACKEND") != "onednn", reason="other backends leave it to the host"
    ),
    pytest.mark.usefixtures("no_islands"),
]

NEAR = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-4},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
}


def ends(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


@pytest.fixture(params=NEAR, ids=str)
def dtype(request):
    return request.param


def as_slices(left, right, groups):
    """What it means, in f64: (T, K) x (G, K, N), or (M, T) x (T, N)."""
    left, right, begin, out = left.double(), right.double(), 0, []
    for g, end in enumerate(groups.tolist()):
        out.append(left[begin:end] @ right[g] if right.dim() == 3 else left[:, begin:end] @ right[begin:end])
        begin = end
    return torch.cat(out) if right.dim() == 3 else torch.stack(out)


GROUPS = [ends(5, 16, 40), ends(0, 0, 40), ends(40, 40, 40), ends(0, 40, 40), ends(1, 2, 3), ends(0, 0, 0)]


@pytest.mark.parametrize("groups", GROUPS, ids=lambda g: str(g.tolist()))
@pytest.mark.parametrize("turned", [False, True])
def test_groups_of_rows(dtype, groups, turned):
    left = torch.randn(40, 24).to(dtype)
    right = torch.randn(3, 32, 24).to(dtype).mT if turned else torch.randn(3, 24, 32).to(dtype)
    got = torch._grouped_mm(left.to("lazyt"), right.to("lazyt"), groups.to("lazyt")).cpu()
    want = as_slices(left, right, groups).to(dtype)
    assert got.shape == (40, 32) and got.dtype == dtype
    torch.testing.assert_close(got[: len(want)], want, **NEAR[dtype])
    assert not got[len(want) :].any()  # eager leaves what was there


@pytest.mark.parametrize("groups", GROUPS, ids=lambda g: str(g.tolist()))
@pytest.mark.parametrize("turned", [False, True])
def test_groups_of_columns(dtype, groups, turned):
    left = torch.randn(40, 24).to(dtype).t() if turned else torch.randn(24, 40).to(dtype)
    right = torch.randn(40, 32).to(dtype)
    got = torch._grouped_mm(left.to("lazyt"), right.to("lazyt"), groups.to("lazyt")).cpu()
    torch.testing.assert_close(got, as_slices(left, right, groups).to(dtype), **NEAR[dtype])


def test_no_rows(dtype):
    got = torch._grouped_mm(
        *(
            t.to("lazyt")
            for t in (torch.ones(0, 8, dtype=dtype), torch.ones(2, 8, 8, dtype=dtype), ends(0, 0))
        )
    )
    assert got.cpu().shape == (0, 8)


def test_ends_that_are_wrong_read_nothing_outside():
    left, right = torch.randn(8, 4), torch.randn(3, 4, 8)
    for groups in (ends(4, 2, 8), ends(-3, 5, 8), ends(2, 99, 8)):
        got = torch._grouped_mm(left.to("lazyt"), right.to("lazyt"), groups.to("lazyt")).cpu()
        want, begin = torch.zeros(8, 8), 0
        for g, end in enumerate(min(max(e, 0), 8) for e in groups.tolist()):
            want[begin:end] = left[begin:end] @ right[g]
            begin = end
        torch.testing.assert_close(got, want)


def test_a_mixture_of_experts_trains_as_in_eager():
    torch.manual_seed(0)
    tokens, up, down, router = (
        torch.randn(64, 16),
        torch.randn(4, 16, 32) / 4,
        torch.randn(4, 32, 16) / 6,
        torch.randn(16, 4),
    )

    def steps(device):
        x, weights = tokens.to(device), [w.to(device).requires_grad_() for w in (up, down)]
        experts = (x @ router.to(device)).argmax(-1)
        order = experts.argsort(stable=True)
        groups = (
            torch.histc(experts.float() if device == "cpu" else experts.int(), 4, 0, 3)
            .cumsum(0)
            .to(torch.int32)
        )
        optimizer = torch.optim.SGD(weights, 0.01)
        for _ in range(3):
            optimizer.zero_grad()
            hidden = torch.nn.functional.silu(torch._grouped_mm(x[order], weights[0], groups))
            torch._grouped_mm(hidden, weights[1], groups).square().mean().backward()
            optimizer.step()
        return [w.detach().cpu() for w in weights]

    torch.testing.assert_close(steps("lazyt"), steps("cpu"), rtol=1e-4, atol=1e-5)
