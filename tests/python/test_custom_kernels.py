"""Kernels of users for operators of their own: handed to a backend that takes them, refused by name by others."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="cc is not installed")

KERNELS = """
#include <string.h>
#include "lazyt/ext/draft/custom_kernel.h"

/* rows(Tensor x, Tensor? shift, float factor, int[] pick, str how) -> (Tensor, Tensor) */
LAZYT_EXPORT lazyt_code_t rows(void *user_data, const lazyt_kernel_call_t *call) {
  const lazyt_kernel_arg_t *x = lazyt_kernel_arg(call, 0), *shift = lazyt_kernel_arg(call, 1);
  const lazyt_kernel_arg_t *pick = lazyt_kernel_arg(call, 3), *how = lazyt_kernel_arg(call, 4);
  const double factor = lazyt_kernel_arg(call, 2)->number;
  const lazyt_kernel_tensor_t *picked = lazyt_kernel_result(call, 0), *count = lazyt_kernel_result(call, 1);
  if (call->arg_count != 5 || call->result_count != 2 || x->kind != LAZYT_ARG_VALUE) return LAZYT_CODE_INTERNAL;
  const int64_t columns = x->tensor.dims[1];
  const int negate = how->count == 6 && memcmp(how->text, "negate", 6) == 0;
  for (uint32_t i = 0; i < pick->count; i++)
    for (int64_t c = 0; c < columns; c++) {
      float v = ((const float *)x->tensor.data)[pick->ints[i] * columns + c] * (float)factor;
      if (shift->kind == LAZYT_ARG_VALUE) v += ((const float *)shift->tensor.data)[c];
      ((float *)picked->data)[i * columns + c] = negate ? -v : v;
    }
  ((int64_t *)count->data)[0] = (int64_t)pick->count + *(const int *)user_data;
  return LAZYT_CODE_OK;
}

LAZYT_EXPORT lazyt_code_t fails(void *user_data, const lazyt_kernel_call_t *call) {
  (void)user_data, (void)call;
  return LAZYT_CODE_OUT_OF_RANGE;
}
"""

DEFINE = """
import ctypes, sys, torch, lazyt
from typing import Optional
library = ctypes.CDLL({library!r})
base = ctypes.c_int(100)

@torch.library.custom_op("kern::rows", mutates_args=())
def rows(x: torch.Tensor, shift: Optional[torch.Tensor], factor: float, pick: list[int], how: str) -> tuple[torch.Tensor, torch.Tensor]:
    v = x[pick] * factor + (0 if shift is None else shift)
    return (-v if how == "negate" else v), torch.tensor([len(pick)])

@rows.register_fake
def _(x, shift, factor, pick, how):
    return x.new_empty(len(pick), x.shape[1]), x.new_empty(1, dtype=torch.int64)

@torch.library.custom_op("kern::fails", mutates_args=())
def fails(x: torch.Tensor) -> torch.Tensor:
    return x + 1

@fails.register_fake
def _(x):
    return torch.empty_like(x)

x = torch.arange(12.0).reshape(4, 3)
shift = torch.tensor([1.0, 2.0, 3.0])
lazy = x.to("lazyt")
"""


@pytest.fixture(scope="module")
def define(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.c").write_text(KERNELS)
    include = subprocess.run([BIN / "lazyt", "sdk", "include"], check=True, capture_output=True, text=True)
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{include.stdout.strip()}",
        "kernels.c",
    ]
    subprocess.run([*command, "-o", "kernels.so"], cwd=folder, check=True)
    return DEFINE.format(library=str(folder / "kernels.so"))


def run(run_python, define: str, code: str, **environment: str) -> str:
    return run_python(define + textwrap.dedent(code), **{"LAZYT_BACKEND": "onednn", **environment})


@pytest.fixture
def onednn():
    import lazyt

    if "onednn" not in [b["name"] for b in lazyt.backends()]:
        pytest.skip("the oneDNN plugin is not installed")


def test_a_kernel_gets_arguments_of_all_kinds_and_writes_all_results(run_python, define, onednn):
    out = run(
        run_python,
        define,
        """
        lazyt.add_kernel("kern::rows", library.rows, user_data=ctypes.addressof(base))
        for how, s in (("plain", shift), ("negate", None)):
            got, count = rows(lazy.t().contiguous().t() + 0, None if s is None else s.to("lazyt"), 0.5, [3, 0, 3], how)
            want, _ = rows(x, s, 0.5, [3, 0, 3], how)
            assert torch.equal(got.cpu(), want), (got, want)
            assert count.item() == 103
        print("right")
        """,
        LAZYT_FALLBACK="deny",
        LAZYT_LAYERS="validate:abort",
    )
    assert "right" in out


def test_a_kernel_that_comes_later_takes_over_from_the_host(run_python, define, onednn):
    out = run(
        run_python,
        define,
        """
        def count():
            return rows(lazy + 0, None, 2.0, [1], "plain")[1].item()
        print([count(), count()])
        lazyt.add_kernel("kern::rows", library.rows, user_data=ctypes.addressof(base))
        print([count(), count()])
        """,
        LAZYT_LAYERS="validate:abort",
    )
    assert "[1, 1]" in out and "[101, 101]" in out


def test_a_kernel_that_fails_poisons_its_results_only(run_python, define, onednn):
    out = run(
        run_python,
        define,
        """
        lazyt.add_kernel("kern::fails", library.fails)
        try:
            fails(lazy).cpu()
        except IndexError as e:
            print("ERROR", e)
        print((lazy + 1).sum().item())
        """,
    )
    assert "ERROR" in out and "kern::fails" in out and "78.0" in out


def test_what_no_backend_can_take_is_refused_by_name(run_python, define, onednn):
    out = run(
        run_python,
        define,
        """
        def refused(*args, **kw):
            try:
                lazyt.add_kernel(*args, **kw)
            except Exception as e:
                print(type(e).__name__, str(e).splitlines()[0])
        refused("kern::rows", "__global__ void rows() {}", entry="rows")
        refused("aten::add", library.rows)
        refused("kern::rows", 0)
        lazyt.use_backend("null")
        refused("kern::rows", library.rows)
        """,
    )
    assert "NotImplementedError" in out and "onednn takes kernels that are C functions" in out
    assert "'aten::add' is no name of an operator of a user" in out
    assert "null pointer" in out
    assert "backend 'null' takes no kernels of users (lazyt.custom_kernel/1)" in out


def test_the_example_trains(tmp_path, onednn):
    example = ROOT / "examples" / "custom_kernel" / "gauss.py"
    environment = {"LAZYT_BACKEND": "onednn", "LAZYT_FALLBACK": "deny", "LAZYT_LAYERS": "validate:abort"}
    environment["PATH"] = f"{BIN}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, example], env=os.environ | environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step")]
    assert losses[-1] < losses[0] / 20


CUDA_C = """
__device__ void rows(const float* x, const float* shift, double factor, long long twice, float* out, long long* count) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= OUT0_SIZE) return;
  const float v = x[i] * (float)factor + (shift ? shift[i % ARG0_DIM1] : 0);
  out[i] = twice ? 2 * v : v;
  if (i == 0) count[0] = ARG0_DIM0 * 100 + gridDim.x * 10 + blockDim.x;
}
"""

DEFINE_CUDA = f"""
import torch, lazyt
from typing import Optional
CUDA_C = {CUDA_C!r}

@torch.library.custom_op("kern::scaled", mutates_args=())
def scaled(x: torch.Tensor, shift: Optional[torch.Tensor], factor: float, twice: bool) -> tuple[torch.Tensor, torch.Tensor]:
    v = x * factor + (0 if shift is None else shift)
    return (2 * v if twice else v), torch.zeros(1, dtype=torch.int64)

@scaled.register_fake
def _(x, shift, factor, twice):
    return torch.empty_like(x), x.new_empty(1, dtype=torch.int64)

x, shift = torch.arange(12.0).reshape(4, 3), torch.tensor([1.0, 2.0, 3.0])
lazy = x.to("lazyt")
"""


def test_cuda_c_is_compiled_for_the_shapes_and_called_by_each_thread(run_python, fake_cuda):
    run_python(
        DEFINE_CUDA
        + textwrap.dedent("""
        for grid, block, told in (((), (), 410 + 256), ((3,), (4,), 430 + 4)):
            lazyt.add_kernel("kern::scaled", CUDA_C, entry="rows", grid=grid, block=block)
            for s, twice in ((shift, True), (None, False)):
                out, count = scaled(lazy.t().contiguous().t() + 0, None if s is None else s.to("lazyt"), 0.5, twice)
                assert torch.equal(out.cpu(), scaled(x, s, 0.5, twice)[0]), out
                assert count.item() == told, count
        out, count = scaled(lazy[:2], None, 2.0, False)   # other shapes: compiled for them
        assert torch.equal(out.cpu(), 2 * x[:2]) and count.item() // 100 == 2
        """),
        LAZYT_FALLBACK="deny", LAZYT_LAYERS="validate:abort", **fake_cuda,
    )  # fmt: skip


def test_cuda_c_that_cannot_be_used_is_told(run_python, fake_cuda):
    out = run_python(
        DEFINE_CUDA
        + textwrap.dedent("""
        def refused(call):
            try:
                call()
            except Exception as e:
                print(type(e).__name__, str(e).splitlines()[0][:300])
        refused(lambda: lazyt.add_kernel("kern::scaled", 1 << 20))
        refused(lambda: lazyt.add_kernel("kern::scaled", CUDA_C, entry="two words"))
        refused(lambda: lazyt.add_kernel("kern::scaled", CUDA_C, entry="rows", block=(32, 64)))
        refused(lambda: lazyt.add_kernel("kern::scaled", CUDA_C, entry="rows", grid=(0,)))
        lazyt.add_kernel("kern::scaled", "__device__ void rows( {", entry="rows")
        refused(lambda: scaled(lazy, None, 1.0, False)[0].cpu())
        """),
        LAZYT_LAYERS="", **fake_cuda,
    )  # fmt: skip
    assert "NotImplementedError" in out and "cuda takes kernels that are CUDA C" in out
    assert "no name of its function ('two words')" in out and "more than 1024 threads" in out
    assert "no sizes of a grid or a block" in out
    assert "NVRTC_ERROR_COMPILATION for kernel custom_rows" in out


def test_the_example_trains_with_cuda_c(tmp_path, fake_cuda):
    example = ROOT / "examples" / "custom_kernel" / "gauss.py"
    environment = fake_cuda | {"LAZYT_FALLBACK": "deny", "LAZYT_LAYERS": "validate:abort"}
    done = subprocess.run(
        [sys.executable, example], env=os.environ | environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(word) for word in done.stdout.split() if word.startswith("0.")]
    assert losses[-1] < losses[0] / 2
