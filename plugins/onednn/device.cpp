#include "device.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace lazyt::onednn {
namespace {

using plugin::from_c;
using plugin::guard;
using plugin::to_c;

uint64_t physical_bytes() {
  static const uint64_t bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

uint64_t whole_pages(uint64_t bytes) {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

const std::string& cpu_name() {
  static const auto& name = *new std::string([] {
    std::ifstream info("/proc/cpuinfo");
    std::string line, model = "CPU";
    while (std::getline(info, line)) {
      if (!line.starts_with("model name")) continue;
      if (auto colon = line.find(": "); colon != std::string::npos) model = line.substr(colon + 2);
      break;
    }
    return model + ", " + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + " threads";
  }());
  return name;
}

void require_index(uint32_t index) { plugin::require(index == 0, "onednn: device index is out of range"); }

lazyt_status_t* count(uint32_t* out_count) {
  *out_count = 1;
  return nullptr;
}

lazyt_status_t* describe(uint32_t index, lazyt_device_info_t* out_info) {
  return guard([&] {
    require_index(index);
    out_info->name = to_c(cpu_name());
    out_info->vendor = to_c("lazyt");
    out_info->flags = LAZYT_DEVICE_HOST_VISIBLE | LAZYT_DEVICE_SYNCHRONOUS;
    out_info->total_bytes = physical_bytes();
    out_info->alignment = kAlignment;
    out_info->dlpack_type = 1;  // kDLCPU
    out_info->dlpack_id = 0;
  });
}

lazyt_status_t* open(uint32_t index, lazyt_device_t** out_device) {
  return guard([&] {
    require_index(index);
    *out_device = plugin::to_handle<lazyt_device_t>(new Device);
  });
}

void close(lazyt_device_t* device) { delete plugin::from_c_or_null(device); }

lazyt_status_t* memory_stats(lazyt_device_t* device, lazyt_memory_stats_t* out_stats) {
  return guard([&] {
    const BlockCache& memory = *from_c(device).memory;
    out_stats->bytes_in_use = memory.in_use();
    out_stats->peak_bytes_in_use = memory.peak();
    out_stats->bytes_reserved = memory.in_use() + memory.cached();
    out_stats->derived_bytes = 0;
  });
}

lazyt_status_t* trim(lazyt_device_t* device) {
  return guard([&] { from_c(device).memory->trim(); });
}

}  // namespace

constexpr uint64_t kHugePage = uint64_t{2} << 20;

// Mapped blocks of middle sizes have the addresses of the largest, so that one becomes another where it lies: moving pages has every
// CPU forget where they were. An address without a page costs nothing, so they get no huge ones.
static bool has_room(uint64_t bytes) { return bytes >= SystemMemory::kMapped && SystemMemory::is_middle(bytes); }
static uint64_t addresses(uint64_t bytes) { return has_room(bytes) ? SystemMemory::kMiddleEnd : whole_pages(bytes); }

// Blocks are mapped, so that they go back to the system when they are given back, and that weights leave no holes among what
// programs are made of; free() may keep them. Large ones lie on huge pages where the system lends them: a kernel of many
// operands walks more small pages than the CPU remembers.
std::byte* SystemMemory::take(uint64_t bytes) {
  if (bytes > physical_bytes()) return nullptr;
  if (bytes < kMapped) return static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
  if (bytes < kHugePage) {
    void* mapped = mmap(nullptr, addresses(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    if (has_room(bytes)) (void)madvise(mapped, addresses(bytes), MADV_NOHUGEPAGE);
    return static_cast<std::byte*>(mapped);
  }
  void* mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(mapped);
  const uint64_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage, after = kHugePage - before;
  const uint64_t kept = whole_pages(bytes);
  if (before) (void)munmap(begin, before);
  std::byte* block = begin + before;
  if (const uint64_t unused = bytes + after - kept) (void)munmap(block + kept, unused);
  (void)madvise(block, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a wish
  return block;
}

// Pages that the block has stay its own: a fresh one costs as much as copying it.
std::byte* SystemMemory::resize(std::byte* block, uint64_t from, uint64_t to) noexcept {
  if (!has_room(from) || !has_room(to)) return nullptr;
  const uint64_t kept = whole_pages(to), had = whole_pages(from);
  if (kept < had) (void)madvise(block + kept, had - kept, MADV_DONTNEED);
  return block;
}

void SystemMemory::give(std::byte* block, uint64_t bytes) noexcept {
  if (bytes < kMapped) return std::free(block);
  // A hole too many for the kernel's table of mappings: their memory goes all the same.
  if (munmap(block, addresses(bytes)) != 0) (void)madvise(block, whole_pages(bytes), MADV_DONTNEED);
}

Memory::Memory(Device& device, uint64_t bytes) : cache_(device.memory.get()), bytes_(bytes) {
  if (!bytes) return;
  block_ = cache_->take(bytes_);
  if (!block_) {
    throw plugin::Error(LAZYT_CODE_RESOURCE_EXHAUSTED,
                        "onednn: no memory for " + std::to_string(bytes) + " bytes");
  }
}

namespace {

void trim_heap() {
#ifdef __GLIBC__
  (void)malloc_trim(0);
#endif
}

}  // namespace

void give_back_unused(Device& device) {
  device.memory->trim();
  trim_heap();
}

constexpr uint64_t kMuch = uint64_t{4} << 20;

void give_back_of_host(Device& device) {
  if (device.given_by_host < kMuch) return;
  device.given_by_host = 0;
  trim_heap();
}

void given(Device& device, uint64_t bytes) {
  device.given_by_host += bytes;
  const uint64_t in_use = device.memory->in_use();
  uint64_t at = device.ask_at.load(std::memory_order_relaxed);
  if (in_use < at || !device.ask_at.compare_exchange_strong(at, in_use + std::max(kMuch, in_use / 8))) return;
  if (at) give_back_of_host(device);
}

int thread_count() { return static_cast<int>(plugin::host().services->thread_count()); }

const lazyt_plugin_device_t kDeviceTable = {
    .struct_size = sizeof(lazyt_plugin_device_t),
    .next = nullptr,
    .count = count,
    .describe = describe,
    .open = open,
    .close = close,
    .memory_stats = memory_stats,
    .trim = trim,
};

}  // namespace lazyt::onednn
