// Memory: bytes of one GPU, and Block: a run of them.
//
// Freed blocks are kept by size and handed out again by the host alone, without ordering by streams: buffers are
// released when nothing works on them any more (BUF-3), and what the device still uses is given back behind a mark.
// Below lies a pool of the driver's (cuMemAllocAsync), which can make large blocks of freed small ones.
#pragma once

#include <deque>

#include "context.h"
#include "lazyt/toolkit/block_cache.hpp"

namespace lazyt::cuda {

inline constexpr uint64_t kAlignment = 256;

// Blocks from the driver, at once usable by every stream.
class Pool {
 public:
  static constexpr bool kLowestFirst = true;  // graphs know addresses (graph.h)
  explicit Pool(ContextRef context);
  ~Pool();
  // 0 when there is no more. Throws what else goes wrong.
  CUdeviceptr take(uint64_t bytes);
  void give(CUdeviceptr block, uint64_t bytes) noexcept;
  // What was given goes back to the system.
  void trim() noexcept;
  uint64_t reserved() const { return reserved_.load(std::memory_order_relaxed); }

 private:
  ContextRef context_;
  CUmemoryPool pool_ = nullptr;  // null where the device has none
  CUstream stream_ = nullptr;    // of allocations alone, so that it is always idle
  std::atomic<uint64_t> reserved_{0};
};

// Thread-safe. Lives as long as a block of it.
class Memory {
 public:
  explicit Memory(ContextRef context);
  ~Memory() { collect(true); }

  // bytes: rounded up to what was taken. Throws RESOURCE_EXHAUSTED.
  CUdeviceptr take(uint64_t& bytes);
  // After `mark`, if there is one, nothing works on the block.
  void give(CUdeviceptr block, uint64_t bytes, MarkRef mark) noexcept;
  void trim();

  const ContextRef& context() const { return context_; }
  uint64_t in_use() const { return cache_.in_use() - late_bytes_.load(std::memory_order_relaxed); }
  uint64_t peak() const { return cache_.peak(); }
  uint64_t reserved() { return cache_.source().reserved(); }

 private:
  struct Late {
    CUdeviceptr block;
    uint64_t bytes;
    MarkRef mark;
  };
  // Gives back what is no longer worked on; with `wait`, all.
  void collect(bool wait) noexcept;

  ContextRef context_;
  const uint64_t total_;
  toolkit::BlockCache<Pool> cache_;
  std::mutex mutex_;
  std::deque<Late> late_;
  std::atomic<uint64_t> late_bytes_{0};
};

using MemoryRef = std::shared_ptr<Memory>;

// Given back at the end. Movable.
class Block {
 public:
  Block() = default;
  // Throws RESOURCE_EXHAUSTED. 0 bytes are no memory.
  Block(MemoryRef memory, uint64_t bytes) : memory_(std::move(memory)), bytes_(bytes) {
    if (bytes_) address_ = memory_->take(bytes_);
  }
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept {
    Block(std::move(other)).swap(*this);
    return *this;
  }
  ~Block() {
    if (address_) memory_->give(address_, bytes_, std::move(busy_));
  }
  CUdeviceptr address() const { return address_; }
  uint64_t bytes() const { return address_ ? bytes_ : 0; }
  // What is submitted up to the mark may still use the bytes when the block ends.
  void busy_until(MarkRef mark) { busy_ = std::move(mark); }

 private:
  void swap(Block& other) {
    std::swap(memory_, other.memory_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(busy_, other.busy_);
  }
  MemoryRef memory_;
  CUdeviceptr address_ = 0;
  uint64_t bytes_ = 0;
  MarkRef busy_;
};

}  // namespace lazyt::cuda
