"""What checks the values that it is given (multinomial, bernoulli, normal, the loss of probabilities) does so on the
device: an island each, a token of a sampled text had three."""

import lazyt
import pytest
import torch
from torch.nn import functional as F


@pytest.mark.usefixtures("no_islands")
@pytest.mark.parametrize(
    "draw",
    [
        lambda p: torch.multinomial(p, 1),
        lambda p: torch.multinomial(p, 4, replacement=True),
        torch.bernoulli,
        lambda p: torch.normal(p, p),
    ],
    ids="multinomial with_replacement bernoulli normal".split(),
)
def test_draws_have_no_islands(draw):
    p = torch.rand(3, 50)
    assert draw(p.to("lazyt")).cpu().shape == draw(p).shape


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, 0.0], ids=str)
def test_wrong_probabilities_are_eagers_error(wrong):
    p = torch.full((4, 5), 0.2)
    p[2] = wrong
    with pytest.raises(RuntimeError) as eager:
        torch.multinomial(p, 1)
    with pytest.raises(RuntimeError) as here:
        torch.multinomial(p.to("lazyt"), 1).cpu()
    assert str(eager.value).splitlines()[0] in str(here.value)
    # The next step runs, the same program included.
    assert torch.multinomial(torch.tensor([0.0, 1.0, 0.0], device="lazyt"), 1).item() == 1
    p[2] = 0.2
    assert torch.multinomial(p.to("lazyt"), 1).cpu().max() < 5


def test_what_was_written_before_the_check_stays():
    x = torch.ones(3, device="lazyt")
    lazyt.mark_step()
    x.add_(1)
    lazyt.mark_step()
    bad = torch.multinomial(torch.tensor([-1.0, 2.0], device="lazyt"), 1)
    with pytest.raises(RuntimeError, match="probability tensor"):
        bad.cpu()
    assert x.tolist() == [2, 2, 2]


@pytest.mark.usefixtures("no_islands")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_the_loss_of_probabilities_has_no_islands(dtype):
    x, y = torch.rand(7, 30).to(dtype), torch.rand(7, 30).to(dtype)
    x[0, :2], y[1, :2] = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])
    torch.testing.assert_close(
        F.binary_cross_entropy(x.to("lazyt"), y.to("lazyt")).cpu(), F.binary_cross_entropy(x, y)
    )


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1e-6, 1.0001], ids=str)
@pytest.mark.parametrize("which", ["input", "target"])
def test_what_is_no_probability_is_eagers_error(which, wrong):
    x, y = torch.full((40,), 0.25), torch.full((40,), 0.5)
    (x if which == "input" else y)[37] = wrong
    with pytest.raises(RuntimeError) as eager:
        F.binary_cross_entropy(x, y)
    with pytest.raises(RuntimeError) as here:
        F.binary_cross_entropy(x.to("lazyt"), y.to("lazyt")).item()
    assert str(eager.value).splitlines()[0] in str(here.value)


def test_a_step_of_training_by_probabilities_that_are_none():
    w = torch.full((3,), 2.0, device="lazyt", requires_grad=True)
    loss = F.binary_cross_entropy(w * 1, torch.ones(3, device="lazyt"))
    loss.backward()
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        loss.item()
