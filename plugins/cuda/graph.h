// Graphs: the steps of an executable as CUDA graphs, one launch each.
//
// Buffers of a training loop come back at the same few addresses (memory.h), so a graph is kept for each of the last
// combinations of addresses; where none fits, the oldest gets the new ones. In both cases only nodes whose parameters
// differ are updated: for a learning rate that changes, one or two.
#pragma once

#include <memory>
#include <vector>

#include "execute.h"

namespace lazyt::cuda {

class Graphs {
 public:
  explicit Graphs(Device& device) : device_(device) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;

  // Runs all steps. words: of all kernel steps, one after the other. The context is current.
  void launch(const Executable& executable, const Run& run, const std::vector<uint64_t>& words);

 private:
  struct Node {
    const Step* step;
    CUgraphNode node = nullptr;
    size_t first_word = 0;
    CUgraph child = nullptr;  // of a library step
  };
  struct Variant {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    std::vector<Node> nodes;
    std::vector<uint64_t> words;
    std::vector<CUdeviceptr> storages;
    uint64_t last_use = 0;
    ~Variant();
  };
  std::shared_ptr<Variant> build(const Executable& executable, const Run& run, const std::vector<uint64_t>& words);
  void update(Variant& variant, const Run& run, const std::vector<uint64_t>& words);
  CUgraph capture(const LibraryStep& step, const Run& run);

  Device& device_;
  std::vector<std::shared_ptr<Variant>> variants_;
  uint64_t uses_ = 0;
};

}  // namespace lazyt::cuda
