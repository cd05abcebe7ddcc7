"""scaled_dot_product_attention is one operator where eager takes its fused kernel, and means what eager means."""

import lazyt
import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 3e-2, torch.float16: 4e-3}
FORWARD = "lazyt::_scaled_dot_product_flash_attention_for_cpu"


def attention(q, k, v, *mask, **options):
    """Result and gradients."""
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    out = functional.scaled_dot_product_attention(*leaves, attn_mask=mask[0] if mask else None, **options)
    weight = torch.arange(out.numel(), device="cpu").reshape(out.shape).remainder(7).to(out.device, out.dtype)
    (out * weight).sum().backward()
    return [out.detach(), *[t.grad for t in leaves]]


def check(both, *inputs, **options):
    eager, lazy = both(lambda *t: attention(*t, **options), *inputs)
    for e, got in zip(eager, lazy, strict=True):
        assert (e.dtype, e.stride()) == (got.dtype, got.stride())
        bound = TOLERANCE[e.dtype] * max(1.0, e.double().abs().max().item())
        torch.testing.assert_close(got.double(), e.double(), rtol=0, atol=bound)


def heads(*shape, dtype=torch.float32):
    """As models have them: [batch, places, heads, size] seen as [batch, heads, places, size]."""
    b, h, n, e = shape
    return torch.randn(b, n, h, e).to(dtype).transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_values_gradients_and_layouts_are_eagers(both, dtype, causal):
    q, k, v = (heads(2, 3, n, 16, dtype=dtype) for n in (33, 40, 40))
    check(both, q, k, v, is_causal=causal)
    assert lazyt.metrics.counter_value(FORWARD) == 1
    assert lazyt.metrics.counter_value(FORWARD + "_backward") == 1


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("queries, keys, size", [(1, 300, 24), (7, 40, 33), (40, 300, 72), (70, 33, 100)])
def test_tiles_end_where_their_operands_do(both, queries, keys, size, dtype):
    q, k, v = (heads(1, h, n, size, dtype=dtype) for h, n in ((4, queries), (2, keys), (2, keys)))
    check(both, q, k, v, enable_gqa=True)
    check(both, q, k, v, torch.rand(queries, keys) > 0.3, enable_gqa=True)


def test_operands_above_the_probed_size_lie_as_eagers(both):
    check(both, *[heads(4, 4, 200, 64) for _ in range(3)], is_causal=True)


@pytest.mark.parametrize("shape", [(5, 7), (1, 1, 5, 7), (2, 3, 5, 7), (2, 1, 1, 7)], ids=str)
@pytest.mark.parametrize("kind", [torch.bool, torch.float32], ids=str)
def test_masks(both, shape, kind):
    mask = torch.rand(shape) > 0.3 if kind == torch.bool else torch.randn(shape)
    check(both, heads(2, 3, 5, 8), heads(2, 3, 7, 8), heads(2, 3, 7, 8), mask, scale=0.3)
    assert lazyt.metrics.counter_value(FORWARD) == 1


def test_a_row_whose_keys_are_all_masked_is_zero(both):
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[2] = False
    check(both, heads(2, 3, 5, 8), heads(2, 3, 7, 8), heads(2, 3, 7, 8), mask)


def test_query_heads_share_key_heads(both):
    check(both, heads(2, 8, 17, 16), heads(2, 2, 19, 16), heads(2, 2, 19, 16), enable_gqa=True)


def test_what_the_fused_kernel_cannot_do_is_decomposed_as_eagerly(both):
    q = torch.randn(3, 5, 8)  # no heads
    check(both, q, q, q, is_causal=True)
    check(both, *[heads(1, 2, 6, 8) for _ in range(2)], heads(1, 2, 6, 4))  # values of another size
    with sdpa_kernel(SDPBackend.MATH):
        check(both, *[heads(1, 2, 6, 8) for _ in range(3)])
    assert lazyt.metrics.counter_value(FORWARD) == 0


def test_dropout_draws_from_the_devices_generator():
    q = torch.ones(1, 2, 64, 8, device="lazyt")

    def run():
        torch.manual_seed(3)
        return functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)

    first, again = run().cpu(), run().cpu()
    assert torch.equal(first, again)
    assert len(first.unique()) > 1
    assert lazyt.metrics.counter_value(FORWARD) == 0


def test_errors_are_eagers():
    x = torch.ones(1, 1, 2, 4)
    texts = []
    for device in ("cpu", "lazyt"):
        with pytest.raises(RuntimeError) as e:
            functional.scaled_dot_product_attention(x.to(device), x.double().to(device), x.to(device))
        texts.append(str(e.value).splitlines()[0])
    assert texts[0] == texts[1]


def test_a_replayed_step_runs_attention_in_its_one_program(both):
    q = heads(2, 3, 33, 16).to("lazyt")
    lazyt.set_fallback("deny")
    for _ in range(3):
        out = attention(q, q, q, is_causal=True)
        lazyt.mark_step()
    assert out[0].isfinite().all().item()
