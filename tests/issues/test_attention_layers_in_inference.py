"""nn.MultiheadAttention and nn.TransformerEncoderLayer are one operator each in inference: that ran on the host wherever
a backend has no such kernel."""

import copy

import pytest
import torch
from torch import nn

import lazyt

MASKS = {
    "none": {},
    "source": {"src_mask": torch.ones(5, 5, dtype=torch.bool).triu(1)},
    "padding": {
        "src_key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    },
}
MASKS["both"] = MASKS["source"] | MASKS["padding"]


@pytest.fixture(autouse=True)
def no_islands():
    lazyt.metrics.reset()
    yield
    assert set(lazyt.metrics.fallbacks()) <= {"aten::equal", "aten::_local_scalar_dense"}


def compare(eager, *args, near=2e-5, **kwargs):
    def there(value):
        return value.to("lazyt") if isinstance(value, torch.Tensor) else value

    lazy = copy.deepcopy(eager).to("lazyt")
    here = tuple(there(a) for a in args[:1]) * len(args)  # self-attention: one tensor
    with torch.inference_mode():
        want = eager(*args, **kwargs)
        for _ in range(2):
            got = lazy(*here, **{k: there(v) for k, v in kwargs.items()})
    for g, w in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=True):
        assert (g is None) == (w is None)
        if w is not None:
            assert g.stride() == w.stride()
            torch.testing.assert_close(g.cpu(), w, rtol=near, atol=near, equal_nan=True)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
def test_an_encoder_layer(options, mask):
    torch.manual_seed(0)
    compare(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options).eval(),
        torch.randn(3, 5, 8),
        **MASKS[mask],
    )


@pytest.mark.parametrize("weights", [{"need_weights": False}, {}, {"average_attn_weights": False}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_attention(masked, weights):
    torch.manual_seed(0)
    x = torch.randn(3, 5, 8)
    mask = {"key_padding_mask": MASKS["padding"]["src_key_padding_mask"]} if masked else {}
    compare(nn.MultiheadAttention(8, 2, batch_first=True).eval(), x, x, x, **mask, **weights)


def test_rows_that_see_nothing_are_nan():
    torch.manual_seed(0)
    compare(
        nn.MultiheadAttention(8, 2, batch_first=True).eval(),
        *[torch.randn(3, 5, 8)] * 3,
        attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(0),
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().to(dtype)
    compare(layer, torch.randn(3, 5, 8).to(dtype), near=1e-9 if dtype == torch.float64 else 5e-2)


@pytest.mark.parametrize(
    "kind, shape", [(0, (3, 4)), (1, (2, 3)), (2, (2, 2, 4, 3)), (None, (2, 4)), (0, (2, 4, 4))]
)
def test_masks_that_do_not_fit(as_eager, kind, shape):
    def program(device):
        x, w, b = torch.ones(2, 4, 6), torch.ones(18, 6), torch.ones(18)
        given = (
            [t.to(device) for t in (x, x, x)]
            + [6, 2]
            + [t.to(device) for t in (w, b, torch.ones(6, 6), torch.ones(6))]
        )
        return torch._native_multi_head_attention(
            *given, torch.zeros(shape, dtype=torch.bool, device=device), True, True, kind
        )

    as_eager(program, raises=RuntimeError)
