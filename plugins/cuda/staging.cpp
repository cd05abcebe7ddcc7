#include "staging.h"

namespace lazyt::cuda {

Staging::~Staging() {
  CUcontext before = nullptr;
  if (!data_ || cu().cuCtxPushCurrent(context_->handle()) != CUDA_SUCCESS) return;
  cu().cuMemFreeHost(data_);
  cu().cuCtxPopCurrent(&before);
}

Staging::Slice Staging::take(uint64_t bytes, bool wait) {
  std::unique_lock lock(mutex_);
  if (!data_) {
    void* pinned = nullptr;
    context_->check(cu().cuMemHostAlloc(&pinned, bytes_, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc, pinned memory for copies");
    data_ = static_cast<std::byte*>(pinned);
  }
  // A slice lies in one piece: the rest of the ring is left out where it is too short.
  uint64_t begin = (end_ + 63) / 64 * 64;
  if (begin % bytes_ + bytes > bytes_) begin = (begin / bytes_ + 1) * bytes_;
  const auto has_room = [&] { return begin + bytes <= begin_ + bytes_; };
  if (!has_room() && !wait) return {};
  changed_.wait(lock, has_room);
  end_ = begin + bytes;
  return {data_ + begin % bytes_, end_};
}

void Staging::give(const Slice& slice) noexcept {
  {
    const std::lock_guard lock(mutex_);
    begin_ = slice.end;
  }
  changed_.notify_all();
}

}  // namespace lazyt::cuda
