"""isin ran on the host, where text generation asks it at each token whether the text has ended."""

import lazyt
import pytest
import torch


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32, torch.float16])
def test_a_few_others_are_compared_on_the_device(dtype, invert):
    elements, others = torch.randint(0, 9, (7, 5)).to(dtype), torch.tensor([[3, 5], [8, 3]]).to(dtype)
    want = torch.isin(elements, others, invert=invert)
    lazyt.metrics.reset()
    on = elements.to("lazyt")
    for test in (others, others[0, 0]):
        got = torch.isin(on, test.to("lazyt"), invert=invert).cpu()
        assert torch.equal(got, torch.isin(elements, test, invert=invert))
    assert torch.equal(torch.isin(on[0, 0], others.to("lazyt"), invert=invert).cpu(), want[0, 0])
    assert "aten::isin" not in lazyt.metrics.fallbacks()


def test_not_a_number_is_in_nothing():
    x = torch.tensor([1.0, float("nan"), 2.0])
    assert torch.equal(torch.isin(x.to("lazyt"), x[:2].to("lazyt")).cpu(), torch.isin(x, x[:2]))


@pytest.mark.parametrize("others", [torch.arange(100), torch.tensor([]).long(), torch.tensor([1.5, 3.0]), torch.tensor([True])], ids=str)
@pytest.mark.parametrize("elements", [torch.arange(12).reshape(3, 4), torch.zeros(0, 2).long(), torch.tensor([1.0, 2.5])], ids=str)
def test_all_else_is_as_eager(elements, others):
    def call(device):
        try:
            return torch.isin(elements.to(device), others.to(device)).cpu()
        except RuntimeError as e:
            return str(e).splitlines()[0]

    want, got = call("cpu"), call("lazyt")
    assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want
