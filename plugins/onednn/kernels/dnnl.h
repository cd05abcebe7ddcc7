// oneDNN primitives as steps: made when a program is compiled, with their descriptors and scratchpads; a run sets
// addresses and executes.
#pragma once

#include <dnnl.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../compile.h"
#include "lazyt/toolkit/operands.hpp"

namespace lazyt::onednn {

const dnnl::engine& cpu_engine();

// Whether oneDNN computes with bf16 on this CPU (AVX-512 with its instructions; elsewhere it has none or a plain loop), and with bytes
// exactly: without VNNI sums of two products saturate.
bool has_bf16();
bool has_bytes();

// LAZYT_ONEDNN_ISA is oneDNN's limit, too. Before any other call of it.
void limit_dnnl();

// f32, bf16, bytes and i32. Throws UNIMPLEMENTED for others.
dnnl::memory::data_type to_dnnl(lazyt_dtype_t dtype);

// The tensor as it lies. Dims of size 1 get the stride of a dense tensor, because oneDNN tells layouts by strides.
dnnl::memory::desc describe(const Tensor& t);

using toolkit::reshaped;

// First element of a tensor while the program runs.
inline std::byte* address(const Frame& frame, const Tensor& t) {
  return frame.storages[t.storage] + t.layout.offset * static_cast<int64_t>(t.element());
}
inline std::byte* address(const Frame& frame, const Place& p) { return frame.at<std::byte>(p); }

// Threads worth waking for so many multiply-adds: below 64^3 a second one costs more than it brings.
inline int useful_threads(double multiply_adds) { return multiply_adds < 64.0 * 64 * 64 ? 1 : 1 << 20; }

// For the lifetime: OpenMP regions of the calling thread take n threads.
class ThreadScope {
 public:
  explicit ThreadScope(int n);
  ~ThreadScope();

 private:
  int before_;
};

// A oneDNN argument (DNNL_ARG_SRC) and the tensor that stands for it.
using Argument = std::pair<int, Tensor>;

// How to make a primitive's descriptor under the number of threads in force. No descriptor in it is `any`.
using MakePrimitive = std::function<dnnl::primitive_desc_base(const dnnl::primitive_attr& attr)>;

// Adds the step that runs the primitive over the arguments, at most max_threads wide. `attr` holds its post-ops.
// Throws what dnnl::error means.
struct PrimitiveArguments {
  std::vector<Argument> reads, writes, updates;  // updates: read, then written
};
void add_primitive(Builder& b, const std::string& name, const MakePrimitive& make,
                   const dnnl::primitive_attr& attr, const PrimitiveArguments& arguments,
                   int max_threads = 1 << 20);

// The same for a primitive with weights (DNNL_ARG_WEIGHTS, not among `arguments`): they lie as `desc` says,
// or, of an input that nothing writes and that more than one run met, packed as oneDNN wants them, in place
// of the input's bytes. Which of the two changes no bit of a result. The name, `desc`, attr, and the dtypes, dims and strides of
// the arguments say all that `make` depends on.
using MakeWithWeights = std::function<dnnl::primitive_desc_base(const dnnl::memory::desc& weights,
                                                                const dnnl::primitive_attr& attr)>;
void add_primitive(Builder& b, const std::string& name, const MakeWithWeights& make,
                   const dnnl::primitive_attr& attr, PrimitiveArguments arguments, const Tensor& weights,
                   const dnnl::memory::desc& desc, int max_threads);

// Adds a step that writes `from` in the private format `to`; the result is bytes of the arena, or, of an
// input that nothing writes, bytes that are kept, beside the input's or instead of them, and made again only
// when the input changed.
Tensor add_reorder(Builder& b, const Tensor& from, const dnnl::memory::desc& from_desc,
                   const dnnl::memory::desc& to);
// The way back: `from` holds the private format.
void add_reorder_back(Builder& b, const Tensor& from, const dnnl::memory::desc& from_desc, const Tensor& to,
                      const dnnl::memory::desc& to_desc);

// Whether oneDNN answers with one of its plain loops, which are slower than ours.
bool is_reference(const dnnl::primitive_desc_base& pd);

// Runs f under n threads, with dnnl::error turned into plugin::Error that says `what`.
template <class F>
auto with_dnnl(const std::string& what, int threads, F&& f) {
  ThreadScope scope(threads);
  try {
    return f();
  } catch (const dnnl::error& e) {
    throw plugin::Error(e.status == dnnl_out_of_memory ? LAZYT_CODE_RESOURCE_EXHAUSTED : LAZYT_CODE_INTERNAL,
                        "oneDNN: " + what + ": " + e.what());
  }
}

}  // namespace lazyt::onednn
