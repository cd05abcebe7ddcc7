// HostRunner: runs nodes on the CPU that the plugin refused. The frontend implements it with ATen;
// tests without libtorch give a fake.
#pragma once

#include <span>

#include "base/shape.h"
#include "base/status.h"
#include "ir/graph.h"

namespace lazyt::exec {

// A tensor in host memory. data is borrowed for the call; a host scalar is rank 0.
struct HostTensor {
  base::Meta meta;
  void* data = nullptr;
  bool weak = false;  // host scalars: a Python number (PRG-6)
};

class HostRunner {
 public:
  virtual ~HostRunner() = default;
  // Runs all nodes of the graph in order: inputs as the graph's inputs, outputs written
  // as the graph's output values' metas say. Called on the executor thread.
  virtual base::Status run(const ir::Graph& graph, std::span<const HostTensor> inputs,
                           std::span<const HostTensor> outputs) = 0;
  // Threads that the program wants for compute, 0 = it does not say. Called on the thread that launches.
  virtual uint32_t threads() const { return 0; }
};

}  // namespace lazyt::exec
