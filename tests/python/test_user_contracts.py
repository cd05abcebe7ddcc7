"""What users rely on around the operators: each program changes the device string alone."""

import copy
import io
import pickle
import resource
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import rnn
from torch.utils.data import DataLoader, TensorDataset

D = "lazyt"


def close(actual, expected, **tolerance):
    torch.testing.assert_close(actual.detach().cpu(), expected.detach().cpu(), **tolerance)


def test_an_index_may_be_on_the_cpu():
    x = torch.randn(5, 3)
    i = torch.tensor([1, 0])
    close(x.to(D)[i], x[i])


def test_a_mask_may_be_on_the_cpu():
    x = torch.randn(5, 3)
    close(x.to(D)[x > 0], x[x > 0])


def test_an_index_of_an_assignment_may_be_on_the_cpu():
    x = torch.randn(5, 3)
    y = x.to(D)
    y[torch.tensor([1, 0])] = 1.0
    x[torch.tensor([1, 0])] = 1.0
    close(y, x)


def test_weights_that_are_tied_stay_tied_when_moved():
    m = nn.ModuleDict(dict(a=nn.Embedding(5, 4), b=nn.Linear(4, 5, bias=False)))
    m["b"].weight = m["a"].weight
    m.to(D)
    assert m["b"].weight is m["a"].weight and m["a"].weight.device.type == D


def test_an_optimizer_made_before_the_move_trains_the_moved_parameters():
    m = nn.Linear(3, 3)
    o = torch.optim.SGD(m.parameters(), 0.1)
    m.to(D)
    w = m.weight.detach().cpu().clone()
    m(torch.ones(2, 3, device=D)).sum().backward()
    o.step()
    assert not torch.equal(w, m.weight.cpu())


def test_a_deep_copy_is_independent():
    m = nn.Linear(3, 3).to(D)
    n = copy.deepcopy(m)
    close(m.weight, n.weight)
    with torch.no_grad():
        n.weight.add_(1)
    assert not torch.equal(m.weight.cpu(), n.weight.cpu())


def test_save_and_load_with_map_location():
    m = nn.Linear(3, 3).to(D)
    b = io.BytesIO()
    torch.save(m.state_dict(), b)
    b.seek(0)
    s = torch.load(b)
    assert s["weight"].device.type == D
    close(s["weight"], m.weight)
    b.seek(0)
    s = torch.load(b, map_location="cpu")
    assert s["weight"].device.type == "cpu"
    close(s["weight"], m.weight)
    b = io.BytesIO()
    torch.save(m.cpu().state_dict(), b)
    b.seek(0)
    s = torch.load(b, map_location=D)
    assert s["weight"].device.type == D


def test_saved_views_share_their_storage_when_loaded():
    x = torch.arange(12.0).to(D)
    v = x[2:5]
    b = io.BytesIO()
    torch.save([x, v], b)
    b.seek(0)
    y, w = torch.load(b)
    w.add_(1)
    close(y[2:5], w)


def test_tensors_pickle():
    x = torch.randn(3).to(D)
    close(pickle.loads(pickle.dumps(x)), x)


def test_numpy_asks_for_cpu_first():
    x = torch.randn(3).to(D)
    with pytest.raises(TypeError):
        x.numpy()
    x.cpu().numpy()


def test_dlpack_exports_to_torch():
    x = torch.randn(3).to(D)
    y = torch.from_dlpack(x)
    close(y, x)


def test_dlpack_exports_to_numpy():
    x = torch.randn(3).to(D)
    assert x.__dlpack_device__()[0].name == "kDLCPU"
    np.testing.assert_allclose(np.from_dlpack(x), x.cpu().numpy())


def test_tensor_hooks_change_gradients():
    x = torch.randn(3, device=D, requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append(g) or g * 2)
    (x * x).sum().backward()
    close(x.grad, 4 * x)


def test_a_retained_graph_runs_twice():
    x = torch.randn(3, device=D, requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    close(x.grad, 4 * x)


def test_third_derivatives():
    x = torch.randn(3, device=D, requires_grad=True)
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    (i,) = torch.autograd.grad(h.sum(), x)
    close(i, torch.full((3,), 6.0))


def test_custom_autograd_functions():

    class Fn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.exp()

    x = torch.randn(3, device=D, requires_grad=True)
    Fn.apply(x).sum().backward()
    close(x.grad, x.exp())


def test_checkpointing_restores_the_random_state():
    from torch.utils.checkpoint import checkpoint as cp

    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)).to(D)
    x = torch.randn(3, 4, device=D, requires_grad=True)
    torch.manual_seed(1)
    a = m(x).sum()
    a.backward()
    g = x.grad.cpu().clone()
    x.grad = None
    for r in (False, True):
        torch.manual_seed(1)
        b = cp(m, x, use_reentrant=r).sum()
        b.backward()
        close(a, b)
        close(x.grad, g)
        x.grad = None


def test_anomaly_mode_finds_the_nan():
    with torch.autograd.detect_anomaly(check_nan=True):
        x = torch.tensor([-1.0], device=D, requires_grad=True)
        with pytest.raises(RuntimeError, match="nan"):
            x.sqrt().sum().backward()


def test_forward_mode():
    import torch.autograd.forward_ad as fw

    with fw.dual_level():
        x = fw.make_dual(torch.tensor([2.0], device=D), torch.tensor([1.0], device=D))
        y = fw.unpack_dual(x**2)
        close(y.tangent, torch.tensor([4.0]))


def test_function_transforms():
    from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap

    x = torch.randn(3, device=D)
    close(grad(lambda x: (x**2).sum())(x), 2 * x)
    close(vmap(lambda x: x * 2)(torch.ones(3, 2, device=D)), torch.full((3, 2), 2.0))
    close(jvp(torch.sin, (x,), (torch.ones_like(x),))[1], x.cos())
    close(hessian(lambda x: (x**3).sum())(x), torch.diag(6 * x.cpu()))
    close(jacrev(torch.sin)(x), torch.diag(x.cpu().cos()))
    m = nn.Linear(3, 2).to(D)
    close(functional_call(m, dict(m.named_parameters()), (x,)), m(x))


def test_gradients_per_sample():
    from torch.func import grad, vmap

    m = nn.Linear(3, 1).to(D)
    p = dict(m.named_parameters())
    from torch.func import functional_call

    def f(p, x):
        return functional_call(m, p, (x,)).sum()

    g = vmap(grad(f), (None, 0))(p, torch.randn(5, 3, device=D))
    assert g["weight"].shape == (5, 1, 3)
    g["weight"].cpu()


def test_autocast_chooses_dtypes_as_cuda_does():
    m = nn.Linear(4, 4).to(D)
    with torch.autocast(D, dtype=torch.bfloat16):
        y = m(torch.randn(2, 4, device=D))
        assert y.dtype == torch.bfloat16
        z = functional.softmax(y, -1)
        assert z.dtype == torch.float32


def test_grad_scaler_scales_and_steps():
    m = nn.Linear(4, 1).to(D)
    o = torch.optim.SGD(m.parameters(), 0.1)
    s = torch.amp.GradScaler(D)
    for _ in range(3):
        o.zero_grad()
        with torch.autocast(D, dtype=torch.float16):
            loss = m(torch.randn(2, 4, device=D)).square().mean()
        s.scale(loss).backward()
        s.unscale_(o)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        s.step(o)
        s.update()
    assert torch.isfinite(m.weight.cpu()).all()
    assert s.get_scale() > 0


def test_a_generator_goes_back_to_its_state():
    g = torch.Generator(device=D)
    g.manual_seed(3)
    s = g.get_state()
    a = torch.rand(4, device=D, generator=g)
    g.set_state(s)
    b = torch.rand(4, device=D, generator=g)
    close(a, b)


def test_fork_rng_leaves_the_state_alone():
    torch.manual_seed(1)
    s = torch.lazyt.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type=D):
        torch.rand(3, device=D)
    assert torch.equal(s, torch.lazyt.get_rng_state())


def test_data_may_be_assigned():
    p = nn.Parameter(torch.zeros(2, device=D))
    p.data = torch.ones(2, device=D)
    close(p, torch.ones(2))
    q = p.data
    q.add_(1)
    close(p, torch.full((2,), 2.0))


def test_tensors_swap():
    a = torch.zeros(2, device=D)
    b = torch.ones(2, device=D)
    torch.utils.swap_tensors(a, b)
    close(a, torch.ones(2))


def test_set_and_resize_work_on_storages():
    a = torch.arange(4.0).to(D)
    b = torch.empty(0, device=D)
    b.set_(a)
    b.add_(1)
    close(a, torch.arange(4.0) + 1)
    a.resize_(2)
    close(a, torch.tensor([1.0, 2.0]))


def test_batch_norm_updates_its_statistics():
    m = nn.BatchNorm1d(3)
    n = copy.deepcopy(m).to(D)
    x = torch.randn(8, 3)
    m(x)
    n(x.to(D))
    close(n.running_mean, m.running_mean)
    close(n.running_var, m.running_var)
    assert n.num_batches_tracked.item() == 1


def test_recurrent_layers_train():
    for M in (nn.LSTM, nn.GRU, nn.RNN):
        m = M(4, 5, 2, batch_first=True, bidirectional=True)
        n = copy.deepcopy(m).to(D)
        x = torch.randn(2, 6, 4)
        a = m(x)[0]
        b = n(x.to(D))[0]
        close(a, b)
        a.sum().backward()
        b.sum().backward()
        close(n.weight_ih_l0.grad, m.weight_ih_l0.grad, rtol=0.0001, atol=1e-05)


def test_packed_sequences():
    m = nn.LSTM(4, 5, batch_first=True)
    n = copy.deepcopy(m).to(D)
    x = torch.randn(3, 6, 4)
    lengths = [6, 4, 2]
    close(
        rnn.pad_packed_sequence(
            n(rnn.pack_padded_sequence(x.to(D), lengths, batch_first=True))[0], batch_first=True
        )[0],
        rnn.pad_packed_sequence(
            m(rnn.pack_padded_sequence(x, lengths, batch_first=True))[0], batch_first=True
        )[0],
    )


def test_attention_layers_train_and_infer():
    m = nn.MultiheadAttention(8, 2, batch_first=True)
    n = copy.deepcopy(m).to(D)
    x = torch.randn(2, 5, 8)
    a, w = m(x, x, x)
    b, v = n(x.to(D), x.to(D), x.to(D))
    close(a, b)
    close(w, v)
    m.eval()
    n.eval()
    with torch.no_grad():
        close(m(x, x, x)[0], n(x.to(D), x.to(D), x.to(D))[0])


def test_a_transformer_encoder_infers():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    on_device = copy.deepcopy(model).to(D)
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        close(model(x), on_device(x.to(D)))


def test_std_has_a_gradient():
    x = torch.randn(3, 4)
    y = x.clone().to(D).requires_grad_()
    x.requires_grad_()
    x.std(1).sum().backward()
    y.std(1).sum().backward()
    close(x.grad, y.grad)


def test_a_data_loader_with_workers_and_pinned_memory():
    for (x,) in DataLoader(TensorDataset(torch.randn(8, 2)), 4, num_workers=2, pin_memory=True):
        x.to(D, non_blocking=True).sum().item()


def test_a_data_loader_over_tensors_of_the_device():
    for (x,) in DataLoader(TensorDataset(torch.randn(8, 2).to(D)), 4):
        x.sum().item()


def test_four_threads_record_at_once():
    out = {}

    def w(i):
        x = torch.full((4,), float(i), device=D)
        for _ in range(200):
            x = x * 1.01 + i
        out[i] = x.cpu()

    ts = [threading.Thread(target=w, args=(i,)) for i in range(4)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    for i in range(4):
        x = torch.full((4,), float(i))
        for _ in range(200):
            x = x * 1.01 + i
        close(out[i], x)


def test_streams_and_events_of_the_accelerator_api():
    s = torch.Stream(device=D)
    e = torch.Event(device=D)
    with s:
        torch.ones(2, device=D)
    e.record(s)
    e.synchronize()
    torch.accelerator.synchronize()
    assert torch.accelerator.current_accelerator().type == D


def test_averaged_models():
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    m = nn.Linear(2, 2).to(D)
    a = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    a.update_parameters(m)
    a.update_parameters(m)
    close(a.module.weight, m.weight)


def test_gradient_clipping():
    m = nn.Linear(2, 2).to(D)
    m(torch.ones(1, 2, device=D)).sum().backward()
    n = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    n.item()
    nn.utils.clip_grad_value_(m.parameters(), 0.1)


def test_tensors_print_and_convert():
    x = torch.randn(3, device=D)
    repr(x)
    str(nn.Parameter(x))
    f"{x.sum():.3f}"
    x.tolist()
    bool((x == x).all())
    len(x)
    list(x)


def test_sparse_tensors_get_a_named_error():
    with pytest.raises(NotImplementedError, match="sparse tensors cannot live on the lazyt device"):
        torch.eye(3).to_sparse().to(D)


def test_pixel_shuffle():
    x = torch.randn(1, 4, 2, 2)
    close(functional.pixel_shuffle(x.to(D), 2), functional.pixel_shuffle(x, 2))


def test_interpolation():
    x = torch.randn(1, 3, 4, 4)
    for m in ("nearest", "bilinear", "bicubic"):
        close(
            functional.interpolate(x.to(D), scale_factor=2, mode=m),
            functional.interpolate(x, scale_factor=2, mode=m),
        )


def test_transforms_and_decompositions_of_matrices():
    x = torch.randn(4, 4)
    close(torch.fft.fft(x.to(D)).real, torch.fft.fft(x).real)
    close(torch.linalg.inv(x.to(D)), torch.linalg.inv(x), rtol=0.0001, atol=0.0001)
    torch.linalg.svd(x.to(D))
    torch.linalg.eigh((x + x.T).to(D))


def test_operators_defined_later():

    @torch.library.custom_op("mylib_u::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)

    close(twice(torch.ones(2, device=D)), torch.full((2,), 2.0))


def test_inference_mode():
    with torch.inference_mode():
        x = torch.ones(2, device=D) * 2
        close(x, torch.full((2,), 2.0))


def test_parametrized_layers_train():
    m = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)).to(D)
    m(torch.ones(1, 3, device=D)).sum().backward()
    m = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)).to(D)
    m(torch.ones(1, 3, device=D)).sum().backward()


def test_a_meta_model_is_filled():
    m = nn.Linear(3, 3, device="meta")
    m.to_empty(device=D)
    m.load_state_dict(nn.Linear(3, 3).state_dict())


def test_a_device_context_makes_tensors():
    with torch.device(D):
        m = nn.Linear(2, 2)
        assert m.weight.device.type == D
        torch.randn(3)


def test_the_default_device():
    torch.set_default_device(D)
    try:
        x = torch.ones(2)
    finally:
        torch.set_default_device(None)  # "cpu" would name the CPU in every call from here on
    assert x.device.type == D


def test_cpu_numbers_mix():
    x = torch.ones(3, device=D)
    close(x * torch.tensor(2.0), torch.full((3,), 2.0))
    close(torch.where(x > 0, x, torch.tensor(0.0)), torch.ones(3))


def test_views_share_addresses_as_in_eager():
    x = torch.arange(6.0).to(D)
    v = x.view(2, 3)
    assert (
        v.data_ptr() == x.data_ptr()
        and v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        and (x[1:].data_ptr() == x.data_ptr() + 4)
        and (x.untyped_storage().nbytes() == 24)
    )


def test_there_is_no_host_cache_to_empty():
    torch.ones(3, device=D).cpu()
    torch.accelerator.empty_host_cache()


def test_to_record_a_call_of_an_expanded_tensor_takes_no_memory_of_its_size():
    x = torch.ones(1, device=D).expand(2**29)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    y = x + 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB
    del y


def test_statistics_of_quantization_are_resized_as_in_eager():
    def run(device):
        x = torch.arange(12.0).reshape(4, 3).to(device)
        low, high = torch.zeros(0).to(device), torch.zeros(0).to(device)
        scale, zero = torch.ones(1).to(device), torch.zeros(1, dtype=torch.int).to(device)
        on = torch.ones(1, dtype=torch.long).to(device)
        for step in range(3):
            y = torch.fused_moving_avg_obs_fake_quant(
                x + step, on, on, low, high, scale, zero, 0.01, -128, 127, 0, True, False
            )
        return y, low, high, scale, zero

    for made, wanted in zip(run(D), run("cpu"), strict=True):
        close(made, wanted)
