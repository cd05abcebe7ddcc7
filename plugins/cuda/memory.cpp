#include "memory.h"

namespace lazyt::cuda {
namespace {

uint64_t total_bytes(CUdevice device) {
  size_t total = 0;
  check(cu().cuDeviceTotalMem(&total, device), "cuDeviceTotalMem");
  return total;
}

}  // namespace

Pool::Pool(ContextRef context) : context_(std::move(context)) {
  const std::string_view option = plugin::option("cuda", "pool");
  const bool wanted = option.empty() || plugin::is_on(option);
  if (!wanted || !context_->attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)) return;
  const Current current(*context_);
  context_->check(cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = context_->index};
  CUresult result = cu().cuMemPoolCreate(&pool_, &properties);
  // Freed bytes stay in the pool until trim: by default the driver gives them back whenever the stream is idle.
  uint64_t keep = UINT64_MAX;
  if (result == CUDA_SUCCESS) result = cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
  if (result == CUDA_SUCCESS) return;
  if (pool_) cu().cuMemPoolDestroy(pool_);
  cu().cuStreamDestroy(stream_);
  context_->check(result, "cuMemPoolCreate");
}

Pool::~Pool() {
  CUcontext before = nullptr;
  if (!pool_ || cu().cuCtxPushCurrent(context_->handle()) != CUDA_SUCCESS) return;
  cu().cuStreamSynchronize(stream_);
  cu().cuMemPoolDestroy(pool_);
  cu().cuStreamDestroy(stream_);
  cu().cuCtxPopCurrent(&before);
}

CUdeviceptr Pool::take(uint64_t bytes) {
  const Current current(*context_);
  CUdeviceptr block = 0;
  CUresult result;
  if (pool_) {
    result = cu().cuMemAllocFromPoolAsync(&block, bytes, pool_, stream_);
    if (result == CUDA_SUCCESS) result = cu().cuStreamSynchronize(stream_);
  } else {
    result = cu().cuMemAlloc(&block, bytes);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return 0;
  context_->check(result, "allocating memory");
  reserved_.fetch_add(bytes, std::memory_order_relaxed);
  return block;
}

void Pool::give(CUdeviceptr block, uint64_t bytes) noexcept {
  CUcontext before = nullptr;
  if (cu().cuCtxPushCurrent(context_->handle()) != CUDA_SUCCESS) return;
  // On a lost device this fails, and its memory goes with the process.
  if (pool_)
    cu().cuMemFreeAsync(block, stream_);
  else
    cu().cuMemFree(block);
  cu().cuCtxPopCurrent(&before);
  reserved_.fetch_sub(bytes, std::memory_order_relaxed);
}

void Pool::trim() noexcept {
  CUcontext before = nullptr;
  if (!pool_ || cu().cuCtxPushCurrent(context_->handle()) != CUDA_SUCCESS) return;
  cu().cuStreamSynchronize(stream_);
  cu().cuMemPoolTrimTo(pool_, 0);
  cu().cuCtxPopCurrent(&before);
}

Memory::Memory(ContextRef context) : context_(context), total_(total_bytes(context->device())), cache_(context) {}

CUdeviceptr Memory::take(uint64_t& bytes) {
  const uint64_t wanted = bytes;
  context_->require_alive();
  if (late_bytes_.load(std::memory_order_relaxed)) collect(false);
  CUdeviceptr block = wanted <= total_ ? cache_.take(bytes) : 0;
  if (!block && wanted <= total_) {
    trim();
    bytes = wanted;
    block = cache_.take(bytes);
  }
  if (block) return block;
  context_->require_alive();
  throw plugin::Error(LAZYT_CODE_RESOURCE_EXHAUSTED,
                      "cuda: device " + std::to_string(context_->index) + " has no memory for " + std::to_string(wanted) + " bytes: " +
                          std::to_string(total_) + " in all, " + std::to_string(in_use()) + " in use by lazyt");
}

void Memory::give(CUdeviceptr block, uint64_t bytes, MarkRef mark) noexcept {
  if (mark) {
    try {
      const std::lock_guard lock(mutex_);
      late_.push_back({block, bytes, mark});
      late_bytes_.fetch_add(bytes, std::memory_order_relaxed);
      return;
    } catch (...) {
      try {
        mark->wait();
      } catch (...) {  // lost: nobody will use the block
      }
    }
  }
  cache_.give(block, bytes);
}

void Memory::collect(bool wait) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto it = late_.begin(); it != late_.end();) {
    bool reached = true;
    try {
      if (wait)
        it->mark->wait();
      else
        reached = it->mark->reached();
    } catch (...) {  // lost: nobody will use the block
    }
    if (!reached) {
      ++it;
      continue;
    }
    late_bytes_.fetch_sub(it->bytes, std::memory_order_relaxed);
    cache_.give(it->block, it->bytes);
    it = late_.erase(it);
  }
}

void Memory::trim() {
  collect(true);
  cache_.trim();
  cache_.source().trim();
}

}  // namespace lazyt::cuda
