// Run: what the steps of an executable see in one run; Scratch: the memory that all programs of a device compute in.
#pragma once

#include "compile.h"

namespace lazyt::cuda {

// Executes of a device run one after the other on one stream, so that one block serves them all: as large as the largest
// arena, and at the same address from run to run.
class Scratch {
 public:
  explicit Scratch(Device& device) : device_(device) {}
  ~Scratch() { retire(); }
  // At least `bytes`, from here on in the order of the compute stream. The context is current. Throws RESOURCE_EXHAUSTED.
  CUdeviceptr reserve(uint64_t bytes);

 private:
  void retire() noexcept;
  Device& device_;
  Block block_;
};

struct Run {
  Device& device;
  CUstream stream;
  const std::vector<CUdeviceptr>& storages;
  const lazyt_execute_input_t* inputs;
  uint64_t input_stride;
  CUdeviceptr faults = 0;  // see Fault

  // Of the tensor's first element.
  CUdeviceptr at(const Tensor& t) const {
    return storages[t.storage] + static_cast<uint64_t>(t.layout.offset) * t.element();
  }
  double as_double(const Number& n) const { return toolkit::number_in<double>(n, inputs, input_stride); }
  int64_t as_int(const Number& n) const { return toolkit::number_in<int64_t>(n, inputs, input_stride); }
  // A kernel's parameter.
  void fill(const std::vector<Word>& words, uint64_t* out) const;
  bool is_needed(const CopyStep& copy) const { return copy.bytes && storages[copy.from.storage] != storages[copy.to.storage]; }
  // Submits one step to the stream. words: for it to use.
  void submit(const Step& step, std::vector<uint64_t>& words) const;
};

// After the builder: constants go to the device, memory that is kept is made. The functions of kernels are not its
// business. Throws.
void prepare(Executable& executable);

}  // namespace lazyt::cuda
