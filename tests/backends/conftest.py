"""What a compiling backend is asked for: run on each, by LAZYT_BACKEND (tools/build/run_tests.py does)."""

import os
from pathlib import Path

import pytest

BACKENDS = ("onednn", "cuda")

# Without a GPU: a build's tests/cuda/fake, stand-ins for the driver and NVRTC that run kernels on the host.
if FAKE := os.environ.get("LAZYT_FAKE_CUDA_LIBRARIES"):
    os.environ["LAZYT_CUDA_LIBRARIES"] = "off"  # the real cuBLASLt knows no stand-ins
    os.environ["LAZYT_CUDA_DRIVER"] = str(Path(FAKE, "lazyt_fake_cuda.so").resolve())
    os.environ["LAZYT_CUDA_NVRTC"] = str(Path(FAKE, "lazyt_fake_nvrtc.so").resolve())
    # What the stand-ins compile is linked to them, so it is of no use to another build; they keep it themselves.
    os.environ.setdefault("LAZYT_CUDA_CACHE_DIR", "off")


def pytest_collection_modifyitems(items):
    if os.environ.get("LAZYT_BACKEND") in BACKENDS:
        return
    for item in items:  # of the whole session, other folders included
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="run with LAZYT_BACKEND=" + " or ".join(BACKENDS)))


@pytest.fixture
def no_islands():
    """Fails a test of which an operator ran on the host."""
    import lazyt  # once the environment is set

    lazyt.metrics.reset()
    yield
    assert set(lazyt.metrics.fallbacks()) <= {"aten::_local_scalar_dense"}
