"""nn.TransformerEncoder makes a nested tensor of a padded batch in inference: it raised an internal error."""

import copy

import lazyt
import pytest
import torch
from torch import nn

PADDED = {
    "some": [5, 3, 4],
    "none": [5, 5, 5],
    "all of one": [5, 0, 2],
    "shorter than the batch": [3, 2, 1],
}




def encoder(layers=2, **options):
    torch.manual_seed(0)
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options), layers
    ).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
@pytest.mark.parametrize("lengths", PADDED.values(), ids=PADDED)
def test_values_are_those_of_eager(lengths, options, dtype):
    eager, x = encoder(**options).to(dtype), torch.randn(3, 5, 8).to(dtype)
    mask = torch.arange(5)[None] >= torch.tensor(lengths)[:, None]
    with torch.inference_mode():
        want = eager(x, src_key_padding_mask=mask)
        lazy = copy.deepcopy(eager).to("lazyt")
        for _ in range(2):
            got = lazy(x.to("lazyt"), src_key_padding_mask=mask.to("lazyt"))
    near = 5e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(got.cpu(), want, rtol=near, atol=near, equal_nan=True)
    assert torch.equal(got.cpu() == 0, want == 0)  # rows of padding


def test_the_lengths_alone_are_read():
    x, mask = torch.randn(3, 5, 8), torch.arange(5)[None] >= torch.tensor([5, 3, 4])[:, None]
    x, mask = x.to("lazyt"), mask.to("lazyt")
    counts = []
    for layers in (1, 4):
        model = encoder(layers).to("lazyt")
        lazyt.metrics.reset()
        with torch.no_grad():
            model(x, src_key_padding_mask=mask).cpu()
        cuts = set(lazyt.metrics.fallbacks()) - {"aten::equal"}  # is the mask aligned to the left?
        assert cuts == set()
        counts.append(lazyt.metrics.counter_value("FlushValueNeeded"))
    assert counts[0] == counts[1]


def test_what_else_would_use_one_gets_the_named_error():
    x, mask = torch.randn(3, 5, 8).to("lazyt"), torch.ones(3, 5, dtype=torch.bool).to("lazyt")
    nested = torch._nested_tensor_from_mask(x, mask)
    with pytest.raises(NotImplementedError, match="lazyt: nested tensors cannot live on the lazyt device"):
        nested + nested
