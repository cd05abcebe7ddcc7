// Trains a small convolutional network on device lazyt from C++, without Python.
//
// The data is made here: pictures of 12x12 with noise and a bar across, which lies, stands or leans one of
// two ways. Exits with 1 if the network does not learn it.
#include <ATen/ATen.h>
#include <lazyt/torch.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <chrono>
#include <cstdio>
#include <random>

namespace F = torch::nn::functional;

constexpr int64_t kSize = 12, kKinds = 4;

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 8, 3)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(8, 16, 3)};
  torch::nn::Linear hidden{16 * 4 * 4, 32}, out{32, kKinds};

  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("hidden", hidden);
    register_module("out", out);
  }

  at::Tensor forward(at::Tensor x) {
    x = F::relu(conv1(x));
    x = F::max_pool2d(F::relu(conv2(x)), F::MaxPool2dFuncOptions(2));
    x = F::relu(hidden(x.flatten(1)));
    return F::log_softmax(out(x), F::LogSoftmaxFuncOptions(1));
  }
};

struct Data {
  at::Tensor pictures, kinds;
};

Data make_data(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> noise(0.0f, 0.4f);
  Data data{at::empty({count, 1, kSize, kSize}), at::empty({count}, at::kLong)};
  auto pictures = data.pictures.accessor<float, 4>();
  auto kinds = data.kinds.accessor<int64_t, 1>();
  for (int64_t i = 0; i < count; i++) {
    const int64_t kind = kinds[i] = random() % kKinds, shift = random() % 7 + 3;
    for (int64_t y = 0; y < kSize; y++)
      for (int64_t x = 0; x < kSize; x++) {
        const int64_t at[] = {y, x, (y + x) / 2, (y + kSize - 1 - x) / 2};
        pictures[i][0][y][x] = noise(random) + (at[kind] == shift ? 1.0f : 0.0f);
      }
  }
  return data;
}

double accuracy(Net& net, const Data& data) {
  at::NoGradGuard no_grad;
  const at::Tensor right =
      net.forward(data.pictures.to(lazyt::device())).argmax(1).to(at::kCPU).eq(data.kinds);
  return right.sum().item<int64_t>() / static_cast<double>(data.kinds.size(0));
}

int main() {
  lazyt::initialize();
  at::manual_seed(1);

  const Data train = make_data(2048, 1), test = make_data(512, 2);
  Net net;
  net.to(lazyt::device());
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(0.003));

  const int64_t batch = 64, batches = train.kinds.size(0) / batch;
  for (int epoch = 1; epoch <= 4; epoch++) {
    const auto start = std::chrono::steady_clock::now();
    at::Tensor loss;
    for (int64_t i = 0; i < batches; i++) {
      optimizer.zero_grad();
      const at::Tensor pictures = train.pictures.narrow(0, i * batch, batch).to(lazyt::device());
      const at::Tensor kinds = train.kinds.narrow(0, i * batch, batch).to(lazyt::device());
      loss = F::nll_loss(net.forward(pictures), kinds);
      loss.backward();
      optimizer.step();
      lazyt::mark_step();  // runs this step while the next is recorded
    }
    const double last = loss.item<float>();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("epoch %d  loss %.4f  %.2f s  test accuracy %.3f\n", epoch, last, seconds,
                accuracy(net, test));
  }

  int64_t compiled = 0, on_host = 0;
  for (const auto& [name, count] : lazyt::counters()) {
    if (name == "UncachedCompile") compiled = count;
    if (name.rfind("aten::", 0) == 0 && name != "aten::_local_scalar_dense") {  // an item() is no fallback
      std::printf("ran on the host: %s, %lld times\n", name.c_str(), static_cast<long long>(count));
      on_host += count;
    }
  }
  std::printf("programs compiled %lld, fallbacks %lld\n", static_cast<long long>(compiled),
              static_cast<long long>(on_host));
  const double reached = accuracy(net, test);
  if (reached < 0.95) std::printf("did not learn: accuracy %.3f, expected at least 0.95\n", reached);
  return reached < 0.95;
}
