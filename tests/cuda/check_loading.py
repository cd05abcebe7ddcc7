"""What a machine says that lacks something of CUDA: why, with which exit status; other backends as they were.

Arguments: the command, the CUDA plugin, stand-ins for driver, NVRTC and cuDNN, the folder of a plugin that works.
"""

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMMAND, PLUGIN, DRIVER, NVRTC, CUDNN, GOOD = (str(Path(a).resolve()) for a in sys.argv[1:7])
FOLDER = str(Path(PLUGIN).parent)
HAS_DRIVER = bool(ctypes.util.find_library("cuda"))
TOOLKIT = list(Path("/usr/local/cuda").glob("lib*/libnvrtc.so*"))
HAS_TOOLKIT = bool(TOOLKIT or ctypes.util.find_library("nvrtc"))


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "ASAN_OPTIONS", "TSAN_OPTIONS")}
    nowhere = {"XDG_DATA_HOME": "/nonexistent", "XDG_CACHE_HOME": "/proc/nonexistent"}
    kept |= {"LAZYT_PLUGIN_PATH": f"{FOLDER}:{GOOD}", **nowhere, **environment}
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, env=kept, timeout=60)


def whole(**environment: str) -> dict[str, str]:
    return {"LAZYT_CUDA_DRIVER": DRIVER, "LAZYT_CUDA_NVRTC": NVRTC, **environment}


class Loading(unittest.TestCase):
    def refused(self, *said: str, **environment: str):
        """The plugin loads, has no device for this reason, and the other backend works."""
        done = run("info", "cuda", **environment)
        self.assertEqual(done.returncode, 1, done.stdout)
        for text in said:
            self.assertIn(text, done.stderr)
        report = run("doctor", "--json", **environment)
        self.assertEqual(report.returncode, 0, report.stdout)
        reasons = {c["name"]: c["reason"] for c in json.loads(report.stdout)["candidates"]}
        self.assertEqual(reasons, {"cuda": "no-device", "null": "loaded"})
        self.assertEqual(run("doctor", "cuda", **environment).returncode, 1)
        self.assertEqual(run("info", "null", **environment).returncode, 0)

    def test_with_everything_it_tells_versions_and_paths(self):
        done = run("info", "cuda", **whole(LAZYT_FAKE_CUDA="devices=2"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"driver        for CUDA 13.0 ({DRIVER})", done.stdout)
        self.assertIn(f"NVRTC         13.0 ({NVRTC})", done.stdout)
        self.assertRegex(done.stdout, "cuBLASLt      (not found|1)")
        self.assertIn("device 1: Fake GPU, sm_90", done.stdout)

    def test_list_runs_nothing_of_it(self):
        done = run("list", LAZYT_CUDA_DRIVER="/nonexistent.so")
        self.assertEqual(done.returncode, 0)
        self.assertIn(PLUGIN, done.stdout)

    @unittest.skipIf(HAS_DRIVER, "this machine has a driver")
    def test_without_a_driver(self):
        self.refused("the NVIDIA driver: not found (libcuda.so.1:", "LAZYT_CUDA_DRIVER names a file")

    def test_a_driver_that_does_not_open(self):
        self.refused("LAZYT_CUDA_DRIVER does not open: /nonexistent.so", LAZYT_CUDA_DRIVER="/nonexistent.so")
        self.refused("LAZYT_CUDA_DRIVER=libcuda.so is not an absolute path", LAZYT_CUDA_DRIVER="libcuda.so")

    def test_a_library_that_is_no_driver(self):
        self.refused("has no function cuDriverGetVersion", LAZYT_CUDA_DRIVER=NVRTC)

    def test_an_old_driver(self):
        self.refused(
            "is for CUDA 11.8; CUDA 12.0 or later is needed", **whole(LAZYT_FAKE_CUDA="version=11080")
        )

    def test_a_driver_without_a_device(self):
        self.refused("finds no device", "CUDA_VISIBLE_DEVICES", **whole(LAZYT_FAKE_CUDA="devices=0"))

    def test_a_driver_that_does_not_start(self):
        said = "does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver"
        self.refused(said, **whole(LAZYT_FAKE_CUDA="init=803"))

    def test_a_gpu_that_nvrtc_does_not_know_any_more(self):
        self.refused("GPU 0 is sm_30, NVRTC 13.0", "compiles for sm_", **whole(LAZYT_FAKE_CUDA="capability=30"))

    @unittest.skipIf(HAS_TOOLKIT, "this machine has a toolkit")
    def test_without_nvrtc(self):
        self.refused("NVRTC: not found (", "it compiles the kernels", LAZYT_CUDA_DRIVER=DRIVER)

    def test_an_nvrtc_that_does_not_open(self):
        self.refused("LAZYT_CUDA_NVRTC does not open", **whole(LAZYT_CUDA_NVRTC="/nonexistent.so"))

    def test_without_cublaslt_it_works(self):
        done = run("info", "cuda", **whole(LAZYT_CUDA_CUBLASLT="/nonexistent.so"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cuBLASLt      the library of LAZYT_CUDA_CUBLASLT does not open", done.stdout)
        done = run("info", "cuda", **whole(LAZYT_CUDA_LIBRARIES="off"))
        self.assertIn("cuBLASLt      switched off by LAZYT_CUDA_LIBRARIES", done.stdout)

    def test_without_cudnn_it_works(self):
        for environment, said in (
            ({"LAZYT_CUDA_CUDNN": CUDNN}, f"9.10.2 ({CUDNN})"),
            ({"LAZYT_CUDA_CUDNN": "/nonexistent.so"}, "the library of LAZYT_CUDA_CUDNN does not open"),
            ({"LAZYT_CUDA_CUDNN": NVRTC}, f"{NVRTC} has no function cudnnGetVersion"),
            ({"LAZYT_CUDA_LIBRARIES": "off"}, "switched off by LAZYT_CUDA_LIBRARIES"),
            (
                {"LAZYT_CUDA_CUDNN": CUDNN, "LAZYT_FAKE_CUDNN": "version=8902"},
                f"{CUDNN} is cuDNN 8.9.2; 9.0 or later is needed: pip install nvidia-cudnn-cu13",
            ),
            (
                {"LAZYT_CUDA_CUDNN": CUDNN, "LAZYT_FAKE_CUDNN": "cudart=14000"},
                f"{CUDNN} is for CUDA 14.0, the driver for CUDA 13.0",
            ),
        ):
            done = run("info", "cuda", **whole(**environment))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"cuDNN         {said}", done.stdout)

    def test_wheels_of_the_environment_are_found_in_their_order(self):
        with tempfile.TemporaryDirectory() as folder:
            # The first that is there is taken, wheels before CONDA_PREFIX before a toolkit.
            wheel = Path(folder) / "venv/lib/python3.12/site-packages/nvidia/cu13/lib"
            places = {"VIRTUAL_ENV": wheel, "CONDA_PREFIX": Path(folder) / "conda/lib"}
            places["CUDA_HOME"] = Path(folder) / "cuda/lib64"
            homes = {"VIRTUAL_ENV": "venv", "CONDA_PREFIX": "conda", "CUDA_HOME": "cuda"}
            environment = {"LAZYT_CUDA_DRIVER": DRIVER}
            for name, place in reversed(places.items()):
                place.mkdir(parents=True)
                shutil.copy(NVRTC, place / "libnvrtc.so.13")
                environment[name] = f"{folder}/{homes[name]}"
                said = run("info", "cuda", **environment).stdout
                self.assertIn(f"NVRTC         13.0 ({place}/libnvrtc.so.13)", said)
            if not HAS_TOOLKIT:  # one of a newer major than the driver's is not taken
                self.refused("NVRTC: not found", **environment, LAZYT_FAKE_CUDA="version=12040")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
