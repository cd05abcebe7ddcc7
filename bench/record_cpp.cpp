// Cost of recording an operator on 4x4 tensors from C++, against eager CPU's own run: rounds of each device in turn,
// medians. --only CASE --device D --calls N runs just that, for counting instructions (bench/instructions.py).
#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "frontend/registration.h"
#include "frontend/thread_state.h"
#include "trace/session.h"

namespace {

using Body = std::function<void()>;
struct Case {
  const char* name;
  std::function<Body(c10::Device)> setup;
};

at::Tensor ones(c10::Device d, bool requires_grad = false) {
  return at::ones({4, 4}, at::TensorOptions().device(d)).set_requires_grad(requires_grad);
}

const std::vector<Case> kCases = {
    {"add", [](c10::Device d) -> Body { return [a = ones(d), b = ones(d)] { a.add(b); }; }},
    {"add, requires_grad", [](c10::Device d) -> Body { return [a = ones(d, true)] { a.add(a); }; }},
    {"add_", [](c10::Device d) -> Body { return [a = ones(d), b = ones(d)]() mutable { a.add_(b); }; }},
    {"mul by a scalar", [](c10::Device d) -> Body { return [a = ones(d)] { a.mul(1.5); }; }},
    {"relu", [](c10::Device d) -> Body { return [a = ones(d)] { at::relu(a); }; }},
    {"mm", [](c10::Device d) -> Body { return [a = ones(d), b = ones(d)] { at::mm(a, b); }; }},
    {"addmm", [](c10::Device d) -> Body { return [a = ones(d), b = ones(d)] { at::addmm(a, a, b); }; }},
    {"softmax", [](c10::Device d) -> Body { return [a = ones(d)] { at::softmax(a, 1); }; }},
    {"slice", [](c10::Device d) -> Body { return [a = ones(d)] { a.slice(0, 1, 3); }; }},
    {"t", [](c10::Device d) -> Body { return [a = ones(d)] { a.t(); }; }},
    {"cat of 4", [](c10::Device d) -> Body { return [l = std::vector<at::Tensor>(4, ones(d))] { at::cat(l); }; }},
    {"foreach add_ of 20", [](c10::Device d) -> Body {
       std::vector<at::Tensor> l, r;
       for (int i = 0; i < 20; i++) l.push_back(ones(d)), r.push_back(ones(d));
       return [l, r] { at::_foreach_add_(l, r, -0.1); };
     }},
};

void discard() {
  lazyt::frontend::wait();
}

double microseconds(const Body& body, int calls) {
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; i++) body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / calls;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  setenv("LAZYT_BACKEND", "null", 0);
  setenv("LAZYT_PLUGIN_PATH", (std::filesystem::canonical("/proc/self/exe").parent_path() / "../plugins/null").c_str(), 0);
  std::string only, device;
  int calls = 1000, rounds = 21;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--only")) only = argv[i + 1];
    else if (!strcmp(argv[i], "--device")) device = argv[i + 1];
    else if (!strcmp(argv[i], "--calls")) calls = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "--rounds")) rounds = atoi(argv[i + 1]);
    else return fprintf(stderr, "unknown option %s\n", argv[i]), 2;
  }
  c10::register_privateuse1_backend("lazyt");
  lazyt::frontend::initialize();
  const c10::Device cpu(c10::kCPU), lazy(c10::DeviceType::PrivateUse1, 0);
  for (const Case& c : kCases) {
    if (!only.empty() && only != c.name) continue;
    if (!device.empty()) {
      Body body = c.setup(device == "cpu" ? cpu : lazy);
      for (int r = 0; r < rounds; r++) {
        discard();
        for (int i = 0; i < calls; i++) body();
      }
      continue;
    }
    Body on_cpu = c.setup(cpu), on_lazy = c.setup(lazy);
    std::vector<double> eager, recorded, ratio;
    for (int r = 0; r < rounds + 3; r++) {
      double e = microseconds(on_cpu, calls), l = microseconds(on_lazy, calls);
      discard();
      if (r < 3) continue;
      eager.push_back(e), recorded.push_back(l), ratio.push_back(l / e);
    }
    printf("%-22s eager %6.3f us   lazyt %6.3f us   ratio %.2f\n", c.name, median(eager), median(recorded), median(ratio));
    fflush(stdout);
  }
  discard();
  lazyt::trace::Session::shut_down_all();
}
