import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
lazyt = pytest.importorskip("lazyt")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))


@pytest.fixture(autouse=True)
def nothing_pending():
    """Each test begins with no trace, no counters and the default policy."""
    lazyt.wait_device_ops()
    lazyt.set_fallback("allow")
    lazyt.metrics.reset()
    torch.manual_seed(0)
    yield
    lazyt.set_fallback("allow")


@pytest.fixture
def run_python():
    """Runs a program in a process of its own; its output. Environment variables by name."""

    def run(program: str, fails: bool = False, timeout: float = 100, **env: str) -> str:
        process = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=ROOT,
        )
        output = process.stdout + process.stderr
        assert (process.returncode != 0) == fails, output
        assert process.returncode >= 0, f"died of signal {-process.returncode}: {output}"
        return output

    return run


@pytest.fixture
def fake_cuda(tmp_path) -> dict[str, str]:
    """The environment in which the CUDA plugin runs on stand-ins for driver and NVRTC (tests/cuda/fake)."""
    import lazyt

    bad = os.environ.get("LAZYT_BAD_PLUGINS", "")
    fake = Path(bad).parents[1] / "cuda" / "fake" if bad else Path("none")
    if not (fake / "lazyt_fake_cuda.so").exists() or "cuda" not in [b["name"] for b in lazyt.backends()]:
        pytest.skip("LAZYT_BAD_PLUGINS does not name the build tree, or there is no CUDA plugin")
    return {
        "LAZYT_BACKEND": "cuda",
        "LAZYT_CUDA_DRIVER": str(fake / "lazyt_fake_cuda.so"),
        "LAZYT_CUDA_NVRTC": str(fake / "lazyt_fake_nvrtc.so"),
        "LAZYT_CUDA_CACHE_DIR": str(tmp_path),
        "LAZYT_FAKE_CUDA": "devices=2",
    }


@pytest.fixture
def both():
    """Runs a function on the CPU and on lazyt; both results, on the CPU."""

    def run(function, *inputs):
        eager = function(*[i.clone() for i in inputs])
        lazy = function(*[i.to("lazyt") for i in inputs])
        return eager, lazyt.to_eager(lazy)

    return run
