// torch.h - the device "lazyt" for C++ programs on libtorch, without Python.
//
//   lazyt::initialize();
//   torch::Tensor x = torch::rand({2, 3}, lazyt::device());
//
// Include path: the installed package's include/; link liblazyt_torch of its lib/ and libtorch. The backend
// is found as ever: LAZYT_BACKEND, LAZYT_PLUGIN_PATH, the package's plugins/, ... at the first use that needs
// it. examples/cpp_train is a whole program. Errors are c10::Error with the text of the runtime.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lazyt {

// Puts the device into PyTorch, for this process. Loads no backend. What is in flight when the process exits
// is finished first. Idempotent. [any thread]
void initialize();

// lazyt:index; c10::Error if there is none. initialize() has been called. [any thread]
c10::Device device(int index = 0);

// How many devices the process has: those that LAZYT_DEVICES lists, or those of the backend, which is loaded for
// this. [any thread]
int device_count();

// Cuts the calling thread's traces here and starts running it; returns while it runs. A hint, but without Python nothing else
// cuts at the end of a step: call it after the optimizer's. wait: also waits for it. [any thread]
void mark_step(bool wait = false);

// Waits until everything recorded so far has run. Errors stay with the tensors that they spoiled. [any
// thread]
void wait_device_ops();

// What happened so far, by name, sorted: "UncachedCompile" programs compiled, "lazyt::<operator>" recorded,
// "aten::<operator>" run on the host instead, ... [any thread]
std::vector<std::pair<std::string, int64_t>> counters();

}  // namespace lazyt
