// Device: the CPU. Memory: bytes from a cache of freed blocks, because fresh pages cost more than what most
// programs do with them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "lazyt/plugin.hpp"
#include "lazyt/toolkit/block_cache.hpp"

namespace lazyt::onednn {

inline constexpr uint64_t kAlignment = 64;

// The system's memory, for toolkit::BlockCache.
struct SystemMemory {
  static constexpr uint64_t kSpare = uint64_t{8} << 20, kMapped = uint64_t{16} << 10;
  // Keys and values of a growing text are a little longer each time; what steps of training make is as long as before, and the C library
  // would give such to the system and take it again, page by page, in each.
  static constexpr uint64_t kMiddleEnd = uint64_t{256} << 10;
  static constexpr bool is_middle(uint64_t bytes) { return bytes >= 4096 && bytes < kMiddleEnd; }
  static std::byte* take(uint64_t bytes);
  static std::byte* resize(std::byte* block, uint64_t from, uint64_t to) noexcept;
  static void give(std::byte* block, uint64_t bytes) noexcept;
};
using BlockCache = toolkit::BlockCache<SystemMemory>;

struct Device {
  // Shared with tensors that other libraries hold, which may outlive the device.
  std::shared_ptr<BlockCache> memory = std::make_shared<BlockCache>();
  // Bytes that the host has given, and some for each node that it recorded, since the C library was last asked for what the
  // host has let go.
  std::atomic<uint64_t> given_by_host = 0;
  // Bytes in use at which a model that is moved here has let go so much on the host that it is asked again. Only ever more: what
  // goes through buffers step by step never is.
  std::atomic<uint64_t> ask_at = 0;
};

// Bytes of a device, given back at the end. Movable.
class Memory {
 public:
  Memory() = default;
  // Throws RESOURCE_EXHAUSTED.
  Memory(Device& device, uint64_t bytes);
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory() {
    if (block_) cache_->give(block_, bytes_);
  }
  std::byte* data() const { return block_; }
  uint64_t bytes() const { return block_ ? bytes_ : 0; }

 private:
  void swap(Memory& other) {
    std::swap(cache_, other.cache_);
    std::swap(block_, other.block_);
    std::swap(bytes_, other.bytes_);
  }
  BlockCache* cache_ = nullptr;
  std::byte* block_ = nullptr;
  uint64_t bytes_ = 0;
};

// Memory that nobody uses goes back to the system, also what the C library would keep: milliseconds.
void give_back_unused(Device& device);
// Of the host alone, once it has given so much that what it held it in is worth the time: a model that was made on the host,
// a long program.
void give_back_of_host(Device& device);
// Behind each transfer of so many bytes from the host.
void given(Device& device, uint64_t bytes);

// Threads that the user allows for compute on the calling thread.
int thread_count();

extern const lazyt_plugin_device_t kDeviceTable;

}  // namespace lazyt::onednn

template <>
struct lazyt::plugin::Handle<lazyt_device_t> {
  using type = lazyt::onednn::Device;
};
