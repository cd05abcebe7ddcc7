"""Programs in C++, built out of tree against the installed package and libtorch, and run without Python."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import lazyt
import pytest
import torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cpp_train"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (shutil.which("make") and shutil.which("g++")), reason="no make or no g++"),
]

# What needs more than kernels: recurrent cells, statistics, random numbers, autograd's engine, threads, exit
# with work in flight. `check X` exits with 0 if X is right.
CHECK = r"""
#include <ATen/ATen.h>
#include <lazyt/torch.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adamw.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace F = torch::nn::functional;

struct Net : torch::nn::Module {
  torch::nn::Embedding words{50, 16};
  torch::nn::LSTM lstm{torch::nn::LSTMOptions(16, 24).batch_first(true)};
  torch::nn::GRU gru{torch::nn::GRUOptions(24, 12).batch_first(true).bidirectional(true)};
  torch::nn::LayerNorm layer{torch::nn::LayerNormOptions({24})};
  torch::nn::BatchNorm1d batch{24};
  torch::nn::Linear out{24, 5};
  Net() {
    register_module("words", words), register_module("lstm", lstm), register_module("gru", gru);
    register_module("layer", layer), register_module("batch", batch), register_module("out", out);
  }
  at::Tensor forward(at::Tensor x) {
    x = std::get<0>(gru(F::gelu(std::get<0>(lstm(words(x))))));
    return out(batch(layer(x).mean(1)));
  }
};

double last_loss(c10::Device device) {
  at::manual_seed(3);
  Net net;
  const at::Tensor x = at::randint(0, 50, {8, 7}).to(device), y = at::randint(0, 5, {8}).to(device);
  net.to(device);
  torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(0.01));
  at::Tensor loss;
  for (int i = 0; i < 6; i++) {
    optimizer.zero_grad();
    loss = F::cross_entropy(net.forward(x), y);
    loss.backward();
    optimizer.step();
    if (!device.is_cpu()) lazyt::mark_step();
  }
  return loss.item<double>();
}

bool learns_as_eager() {
  const double eager = last_loss(at::kCPU), lazy = last_loss(lazyt::device());
  std::printf("loss %.7f, eager %.7f\n", lazy, eager);
  for (const auto& [name, count] : lazyt::counters())
    if (count && name.rfind("aten::", 0) == 0) std::printf("host %s\n", name.c_str());
  return std::abs(eager - lazy) < 1e-4 * eager;
}

bool drops_without_the_cpus_numbers() {
  at::manual_seed(5);
  const double want = at::rand({}).item<double>();
  at::manual_seed(5);
  const double mean = at::dropout(at::ones({300, 300}, lazyt::device()), 0.5, true).mean().item<double>();
  std::printf("mean %f\n", mean);
  return std::abs(mean - 1) < 0.05 && at::rand({}).item<double>() == want;
}

bool records_on_threads() {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 1; t <= 3; t++)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; i++) {
        at::Tensor x = at::full({4, 4}, t, lazyt::device()).to(at::kFloat).requires_grad_();
        (x * x).sum().backward();
        wrong += x.grad().cpu().sum().item<double>() != 2.0 * t * 16;
      }
    });
  for (auto& thread : threads) thread.join();
  return wrong == 0;
}

at::Tensor kept;  // destroyed after main

void leave_work() {
  at::Tensor x = at::randn({300, 300}, lazyt::device());
  for (int i = 0; i < 60; i++) {
    x = at::tanh(x.matmul(x) * 0.01);
    if (i % 5 == 0) lazyt::mark_step();
  }
  kept = x;
}

int main(int, char** argv) {
  lazyt::initialize();
  const std::string what = argv[1];
  if (what == "learns") return !learns_as_eager();
  if (what == "dropout") return !drops_without_the_cpus_numbers();
  if (what == "threads") return !records_on_threads();
  leave_work();
  if (what == "exit") std::exit(0);
  return what != "return";
}
"""


def site(package) -> str:
    return str(Path(package.__file__).parent)


def run(command: list, folder: Path, **env: str) -> str:
    """Output of a program that must succeed, in an environment without Python's."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LAZYT_BACKEND") if name in os.environ}
    process = subprocess.run(
        command, cwd=folder, env={**kept, **env}, capture_output=True, text=True, timeout=600
    )
    assert process.returncode == 0, f"{command}: {process.returncode}\n{process.stdout}{process.stderr}"
    return process.stdout


def make(folder: Path, *arguments: str) -> str:
    return run(["make", "-f", EXAMPLE / "Makefile", f"PYTHON={sys.executable}", *arguments], folder)


def expect_learned(output: str):
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
    assert losses[-1] < losses[0] / 4, output
    compiled, on_host = map(int, re.search(r"programs compiled (\d+), fallbacks (\d+)", output).groups())
    assert compiled <= 4, output  # a step, the first one, and the evaluations
    assert on_host == 0, output


def test_the_example_learns_out_of_tree(tmp_path):
    expect_learned(make(tmp_path, "run"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train"]


@pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake")
def test_the_readmes_cmake_file_builds_it(tmp_path):
    snippet = (EXAMPLE / "README.md").read_text(encoding="utf-8").split("```cmake\n")[1].split("```")[0]
    (tmp_path / "CMakeLists.txt").write_text(snippet, encoding="utf-8")
    shutil.copy(EXAMPLE / "train.cpp", tmp_path)
    places = [f"-DCMAKE_PREFIX_PATH={site(torch)}", f"-DLAZYT={site(lazyt)}"]
    run(["cmake", "-S", ".", "-B", "build", *places], tmp_path)
    run(["cmake", "--build", "build"], tmp_path)
    expect_learned(run([tmp_path / "build" / "train"], tmp_path))


@pytest.fixture(scope="module")
def check(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    (folder / "check.cpp").write_text(CHECK, encoding="utf-8")
    make(folder, f"SOURCE={folder}/check.cpp")
    return folder / "train"


@pytest.mark.parametrize("probe_bytes", ["262144", "0"])  # 0: operands count as too large to ask eager first
def test_a_network_learns_as_in_eager(check, tmp_path, probe_bytes):
    output = run([check, "learns"], tmp_path, LAZYT_PROBE_BYTES=probe_bytes)
    assert set(re.findall(r"host (\S+)", output)) <= {"aten::_local_scalar_dense"}, output


@pytest.mark.parametrize("what", ["dropout", "threads"])
def test_without_python(check, tmp_path, what):
    run([check, what], tmp_path, LAZYT_FALLBACK="deny" if what == "dropout" else "allow")


@pytest.mark.parametrize("way", ["exit", "return"])
def test_the_process_ends_with_work_in_flight(check, tmp_path, way):
    for _ in range(5):
        run([check, way], tmp_path, LAZYT_QUEUE="64")
