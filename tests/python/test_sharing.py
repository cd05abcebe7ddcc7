"""Memory that others have: DLPack both ways, files, shared memory, pinned memory."""

import gc
import io
from contextlib import nullcontext

import lazyt
import numpy as np
import pytest
import torch

D = "lazyt"


def address(array) -> int:
    return array.__array_interface__["data"][0]


def test_numpy_reads_the_backends_memory():
    x = torch.arange(6.0).reshape(2, 3).to(D)
    first, again = np.from_dlpack(x), np.from_dlpack(x)
    assert address(first) == address(again)
    assert not first.flags.writeable
    np.testing.assert_array_equal(first, x.cpu().numpy())
    assert x.__dlpack_device__() == (1, 0)


def test_views_are_exported_with_their_geometry():
    x = torch.arange(12.0).reshape(3, 4).to(D)
    for view in (x.t(), x[1:, ::2], x[2], x[1, 1], x.expand(2, 3, 4)):
        np.testing.assert_array_equal(np.from_dlpack(view), view.cpu().numpy())
    assert address(np.from_dlpack(x[1])) == address(np.from_dlpack(x)) + 16


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float16]
)
def test_dtypes_are_exported(dtype):
    x = torch.tensor([0, 1, 3]).to(dtype)
    np.testing.assert_array_equal(np.from_dlpack(x.to(D)), x.numpy())


def test_what_was_exported_keeps_its_values():
    x = torch.zeros(1000).to(D)
    y = x + 1
    seen = np.from_dlpack(y)
    y.add_(5)
    for _ in range(3):  # whose buffers could be taken for it
        y = y * 2
        lazyt.mark_step(wait=True)
    assert (seen == 1).all()
    del x, y
    gc.collect()
    lazyt.wait_device_ops()
    z = torch.full((1000,), 7.0, device=D) + 1
    lazyt.mark_step(wait=True)
    assert (seen == 1).all() and z.sum().item() == 8000


def test_exports_without_a_consumer_are_freed():
    before = torch.lazyt.memory_allocated()
    for _ in range(20):
        x = torch.ones(1 << 16).to(D)
        x.__dlpack__(max_version=(1, 0))
        np.from_dlpack(x)
    del x
    gc.collect()
    lazyt.wait_device_ops()
    assert torch.lazyt.memory_allocated() <= before + (1 << 18)


def test_copies_are_made_where_they_are_asked_for():
    x = torch.ones(3).to(D)
    copied = np.from_dlpack(x, copy=True)
    copied[0] = 5
    assert x.tolist() == [1, 1, 1]
    for mode in (nullcontext(), torch.device("cpu")):
        with mode:
            mine = torch.from_dlpack(x)  # PyTorch would write to what it may only read
        mine.add_(1)
        assert x.tolist() == [1, 1, 1] and mine.device.type == "cpu"


def test_consumers_from_before_dlpack_1_get_copies():
    x = torch.ones(3).to(D)
    taken = torch.utils.dlpack.from_dlpack(x.__dlpack__())
    taken.add_(1)
    assert x.tolist() == [1, 1, 1]
    with pytest.raises(BufferError, match="DLPack 1.0"):
        x.__dlpack__(copy=False)


def test_what_eager_exports_not_is_not_exported():
    with pytest.raises(BufferError, match="require gradient"):
        np.from_dlpack(torch.ones(2, device=D, requires_grad=True))
    with pytest.raises(BufferError, match="conjugate"):
        np.from_dlpack(torch.ones(2, dtype=torch.complex64, device=D).conj())
    with pytest.raises(BufferError, match="another device"):
        torch.ones(2, device=D).__dlpack__(max_version=(1, 0), dl_device=(2, 0))


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_empty_tensors_cross_both_ways(shape):
    assert np.from_dlpack(torch.ones(shape, device=D)).shape == shape
    assert lazyt.from_dlpack(np.ones(shape)).shape == shape


def test_imported_memory_is_used_in_place():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = lazyt.from_dlpack(array)
    assert x.device.type == D and x.dtype == torch.float32 and x.tolist() == array.tolist()
    assert address(np.from_dlpack(x)) == address(array)
    assert (x @ x.t()).tolist() == (array @ array.T).tolist()


def test_a_producer_on_cuda_makes_its_bytes_safe_on_the_stream_that_the_backend_waits_for():
    class OnCuda:
        asked = {}

        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **options):
            self.asked.update(options)
            return torch.ones(3).__dlpack__(max_version=(1, 1))

    assert lazyt.from_dlpack(OnCuda()).tolist() == [1, 1, 1]
    assert OnCuda.asked == {"stream": 1, "max_version": (1, 1)}


def test_what_is_written_to_an_imported_tensor_does_not_reach_its_owner():
    array = np.ones(64, dtype=np.float32)
    x = lazyt.from_dlpack(array)
    for _ in range(3):
        x.mul_(2)
        lazyt.mark_step(wait=True)
    assert x[0].item() == 8 and (array == 1).all()


def test_imported_memory_lives_as_long_as_its_tensor():
    x = lazyt.from_dlpack(np.full(1 << 16, 3.0, dtype=np.float32))
    gc.collect()
    np.full(1 << 16, 9.0, dtype=np.float32)
    assert x.sum().item() == 3 * (1 << 16)

    class Owner:
        deleted = False

        def __init__(self):
            self.values = torch.ones(4)

        def __dlpack__(self, **options):
            return self.values.__dlpack__(**options)

    owner = Owner()
    x = lazyt.from_dlpack(owner)
    y = x + 1
    del x
    assert y.tolist() == [2, 2, 2, 2]


def test_other_geometries_and_older_capsules_are_imported():
    array = np.arange(12.0).reshape(3, 4)
    assert lazyt.from_dlpack(array.T).tolist() == array.T.tolist()
    assert lazyt.from_dlpack(array[1:, ::2]).tolist() == array[1:, ::2].tolist()
    array.flags.writeable = False
    assert lazyt.from_dlpack(array).tolist() == array.tolist()

    class Old:
        def __dlpack__(self, stream=None):
            return torch.ones(2).__dlpack__()

    assert lazyt.from_dlpack(Old()).tolist() == [1, 1]


def test_a_backend_without_dlpack_exports_and_imports_copies(run_python):
    run_python(
        """
        import numpy as np, torch, lazyt
        x = torch.arange(4.0).to("lazyt")
        assert x.__dlpack_device__() == (1, 0)
        assert np.from_dlpack(x).tolist() == [0, 1, 2, 3]
        assert lazyt.from_dlpack(np.ones(2)).tolist() == [1, 1]
        try:
            x.__dlpack__(max_version=(1, 0), copy=False)
        except BufferError as e:
            assert "exports no memory" in str(e)
        else:
            raise SystemExit("copied")
        """,
        LAZYT_BACKEND="null",
    )


def test_values_go_on_with_another_backend(run_python):
    run_python("""
        import numpy as np, torch, lazyt
        x = torch.arange(4.0).to("lazyt")
        seen, given = np.from_dlpack(x), np.ones(3, dtype=np.float32)
        y = lazyt.from_dlpack(given)
        lazyt.use_backend("null")
        assert seen.tolist() == x.tolist() == [0, 1, 2, 3] and y.tolist() == [1, 1, 1]
    """)


# Files


def test_safetensors_files_come_back():
    safetensors = pytest.importorskip(
        "safetensors.torch", reason="safetensors is not installed: make test-models"
    )
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(D)
    state = safetensors.load(safetensors.save(model.state_dict()))
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(D)
    other.load_state_dict(state)
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name].cpu(), value.cpu()), name
    tied = torch.zeros(4).to(D)
    with pytest.raises(RuntimeError, match="share memory"):
        safetensors.save({"a": tied, "b": tied[1:]})


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_saved_optimizers_and_scalars_come_back(options):
    x = torch.nn.Parameter(torch.ones(3).to(D))
    optimizer = torch.optim.Adam([x])
    x.grad = torch.ones_like(x)
    optimizer.step()
    file = io.BytesIO()
    torch.save(
        {"optimizer": optimizer.state_dict(), "parameter": x, "generator": torch.lazyt.get_rng_state()},
        file,
        **options,
    )
    for where in (None, "cpu", D, lambda storage, location: storage, {f"{D}:0": "cpu"}):
        file.seek(0)
        saved = torch.load(file, map_location=where, weights_only=not callable(where))
        assert isinstance(saved["parameter"], torch.nn.Parameter)
        assert torch.equal(saved["parameter"].detach().cpu(), x.detach().cpu())
        moments = saved["optimizer"]["state"][0]["exp_avg"]
        assert torch.equal(moments.cpu(), optimizer.state[x]["exp_avg"].cpu())


# Other processes


def test_sharing_memory_is_as_on_accelerators():
    x = torch.ones(3, device=D)
    assert x.share_memory_() is x and x.is_shared()  # PyTorch's no-op
    from multiprocessing.reduction import ForkingPickler

    with pytest.raises(RuntimeError, match="only available on CPU"):
        ForkingPickler.dumps(x)


def test_pinning_is_for_tensors_of_the_cpu():
    assert torch.ones(3).pin_memory().to(D, non_blocking=True).tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.ones(3, device=D).pin_memory()
