"""Draws that check their probabilities (multinomial, bernoulli, normal) do so on the device: an island each, a token of a
sampled text had three."""

import os

import lazyt
import pytest
import torch

pytestmark = pytest.mark.skipif(os.environ.get("LAZYT_BACKEND") != "onednn", reason="other backends leave checks to the host")


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
