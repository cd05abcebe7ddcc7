#!/usr/bin/env python3
"""Which engines the real cuDNN has for what the plugin asks, without a GPU: plans are built, none is run.

    check_cudnn.py BUILD FOLDER...

BUILD: a build of lazyt, installed. FOLDER: where libcudnn.so.9 (9.8 or later), libcublasLt and libnvrtc of one CUDA
lie, as the wheels nvidia-cudnn-cu13, nvidia-cublas and nvidia-cuda-nvrtc bring them (900 MB, for this alone). The
library is told of a GPU of each architecture, and of a driver that can do nothing (a library of ours).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
GPUS = {"sm_80": (800, 108, 166912), "sm_90": (900, 132, 232448), "sm_100": (1000, 148, 232448)}


def device(version, multiprocessors, shared):
    """As cuDNN writes it down itself (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), with NVIDIA's tables' numbers."""
    return {
        "version": 1, "deviceVer": version, "driverVer": 13000, "deviceName": "none", "cudaDeviceId": 0,
        "pciDeviceId": 0, "isTccDriver": 0, "multiProcessorCount": multiprocessors, "smCountOrigin": 0,
        "warpSize": 32, "supportCoopLaunch": 1, "maxGridSize": [2147483647, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
        "maxCtasPerSM": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
        "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": shared,
        "reservedSharedMemoryPerBlock": 1024, "oversizedSharedMemoryPerBlock": 0,
        "totalGlobalMem": 80 << 30, "l2CacheSize": 50 << 20, "smClockRateKHz": 1755000,
        "memClockRateKHz": 2619000, "memoryBusWidth": 5120,
    }  # fmt: skip


def driver(folder):
    """A libcuda.so.1 that loads modules and does nothing: engines compile theirs when a plan is built."""
    header = next(
        Path(p, "nvidia/cu13/include/cuda.h")
        for p in sys.path
        if Path(p, "nvidia/cu13/include/cuda.h").exists()
    )
    names = set(re.findall(r"\bcu[A-Z]\w*\b", header.read_text())) | {
        "cuTensorMapEncodeTiled",
        "cuTensorMapEncodeIm2col",
    }
    lines = []
    for name in sorted(n for n in names if not n.endswith(("_t", "_st"))):
        if re.match(
            r"cu(ModuleLoadData|ModuleGet(Function|Global)|Library(LoadData|Get)|KernelGetFunction)", name
        ):
            lines.append(f"int {name}(void** out) {{ *out = (void*)16; return 0; }}")
        elif name == "cuDriverGetVersion":
            lines.append(f"int {name}(int* out) {{ *out = 13000; return 0; }}")
        elif name in ("cuGetErrorName", "cuGetErrorString"):
            lines.append(f'int {name}(int e, const char** out) {{ *out = "no driver"; return 0; }}')
        else:
            can = re.match(r"cu(FuncSet|KernelSet|ModuleUnload|LibraryUnload|Init|Ctx\w*Current)", name)
            lines.append(f"int {name}(void) {{ return {0 if can else 100}; }}")
    source = folder / "driver.c"
    source.write_text("\n".join(lines))
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1", source],
        check=True,
    )


def main():
    build, *folders = [Path(p).resolve() for p in sys.argv[1:]]
    fake = build / "tests/cuda/fake"
    library = next(f / "libcudnn.so.9" for f in folders if (f / "libcudnn.so.9").exists())
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver(folder)
        for gpu, (version, *sizes) in GPUS.items():
            (folder / "device.json").write_text(json.dumps(device(version, *sizes)))
            for kind in ("windows", "chains", "attention"):
                dump = folder / f"{gpu}_{kind}"
                dump.mkdir()
                env = os.environ | {
                    "LAZYT_BACKEND": "cuda",
                    "LAZYT_CUDA_DUMP": str(dump),
                    "LAZYT_CUDA_CACHE_DIR": str(folder / "cache"),
                    "LAZYT_CUDA_DRIVER": str(fake / "lazyt_fake_cuda.so"),
                    "LAZYT_CUDA_NVRTC": str(fake / "lazyt_fake_nvrtc.so"),
                    "LAZYT_CUDA_CUBLASLT": str(fake / "lazyt_fake_cublaslt.so"),
                    "LAZYT_CUDA_CUDNN": str(fake / "lazyt_cudnn_plans.so"),
                    "LAZYT_DNN_LIBRARY": str(library),
                    "LAZYT_DNN_DEVICE": str(folder / "device.json"),
                    "LD_LIBRARY_PATH": ":".join(map(str, [folder, *folders])),
                }
                done = subprocess.run(
                    [sys.executable, HERE.parent / "backends/library_plans.py", kind],
                    env=env,
                    capture_output=True,
                    text=True,
                )
                if done.returncode:
                    print(f"{gpu} {kind}: failed\n{done.stderr[-2000:]}")
                    failed = 1
                    continue
                for model, plan in json.loads(done.stdout.splitlines()[-1]).items():
                    calls = [s.removeprefix("cudnn ") for s in plan["steps"] if s.startswith("cudnn")]
                    own = [
                        s for s in plan["steps"] if s.startswith(("kernel convolution", "kernel attention"))
                    ]
                    print(
                        f"{gpu} {kind} {model}: {'; '.join(calls) or 'nothing'}"
                        + (f", and {len(own)} kernels of ours" if own else "")
                    )
    return failed


if __name__ == "__main__":
    sys.exit(main())
