// What steps of vendor libraries share: a handle for each context, and what a plan is promised of the addresses it gets.
#pragma once

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "../execute.h"

namespace lazyt::cuda {

// T(ContextRef) is made at the first call for the device's context, and again after the last holder let go.
// [any thread]
template <class T>
std::shared_ptr<T> per_context(const Device& device) {
  static std::mutex mutex;
  static auto& all = *new std::map<CUcontext, std::weak_ptr<T>>;
  const std::lock_guard lock(mutex);
  std::weak_ptr<T>& known = all[device.context->handle()];
  if (auto held = known.lock()) return held;
  auto made = std::make_shared<T>(device.context);
  known = made;
  return made;
}

// Of a tensor's first element in any run. Buffers of other libraries lie at multiples of 16 at least, or the
// run says so (require_alignment).
inline uint32_t alignment_of(const Builder& b, const Tensor& t) {
  const auto offset = static_cast<uint64_t>(t.layout.offset) * t.element();
  const uint64_t base = b.is_own(t.storage) ? kAlignment : 16;
  return static_cast<uint32_t>(offset ? std::min(base, uint64_t{1} << std::countr_zero(offset)) : base);
}
// of: "a matrix product".
inline void require_alignment(const Run& run, const Tensor& t, uint32_t alignment, const char* of) {
  if (run.at(t) % alignment)
    throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, std::string("cuda: a buffer of ") + of + " lies at an address that is no multiple of " +
                                                         std::to_string(alignment) + "; copy it to a tensor of its own");
}

}  // namespace lazyt::cuda
