#include "host.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "loader/handles.h"

namespace lazyt::conformance {
namespace {

constexpr uint64_t kGuard = 64;
constexpr uint8_t kGuardByte = 0xFD;
constexpr uint8_t kFreshByte = 0xCD;  // what is not written yet is neither zero nor a number anyone expects

struct Block {
  uint8_t* start;  // of the whole allocation
  uint64_t front;  // guard bytes before the caller's
  uint64_t size;
};

struct State {
  std::mutex mutex;
  std::map<void*, Block> blocks;
  std::map<lazyt_status_t*, int64_t> statuses;
  std::map<std::string, std::string> options;
  std::vector<Finding> findings;
  int64_t bytes = 0, references = 0;
  int64_t allow = -1;
  bool failed = false;
};

State& state() {
  static auto* s = new State;  // plugins may call until the process ends
  return *s;
}

const lazyt_host_t& core() { return *loader::host_table(); }

bool find_once(State& s, Finding finding) {
  for (const Finding& f : s.findings)
    if (f.did == finding.did && f.got == finding.got) return false;
  s.findings.push_back(std::move(finding));
  return true;
}

// Writes the guard zones again, so that one overrun is one finding.
void check_guards(State& s, const Block& block) {
  auto damage = [](uint8_t* at, uint64_t size) {
    uint64_t first = 0;
    while (first < size && at[first] == kGuardByte) first++;
    const bool damaged = first < size;
    if (damaged) std::memset(at, kGuardByte, size);
    return damaged ? static_cast<int64_t>(first) : -1;
  };
  if (int64_t at = damage(block.start + block.front + block.size, kGuard); at >= 0)
    find_once(s, {"BUF-9", fmt::format("used {} bytes of services.alloc", block.size),
                  "no byte behind them is written", fmt::format("byte {} behind their end was written", at)});
  if (damage(block.start, block.front) >= 0)
    find_once(s, {"BUF-9", fmt::format("used {} bytes of services.alloc", block.size),
                  "no byte before them is written", "bytes before their start were written"});
}

lazyt_status_t* counted(lazyt_status_t* status) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.statuses[status]++;
  s.references++;
  return status;
}

lazyt_status_t* create(lazyt_code_t code, lazyt_string_t message) {
  if (code == LAZYT_CODE_OK || code < 0 || code > LAZYT_CODE_UNAUTHENTICATED) {
    State& s = state();
    std::lock_guard lock(s.mutex);
    find_once(s, {"STA-1", fmt::format("status.create(\"{}\")", loader::to_string(message)),
                  "the code of an error, 1 to 16", fmt::format("code {}", code)});
  }
  return counted(core().status->create(code, message));
}

lazyt_status_t* retain(lazyt_status_t* status) {
  return status ? counted(core().status->retain(status)) : nullptr;
}

void release(lazyt_status_t* status) {
  if (!status) return;
  State& s = state();
  {
    std::lock_guard lock(s.mutex);
    auto it = s.statuses.find(status);
    if (it == s.statuses.end()) {
      find_once(s, {"STA-4", "status.release", "a reference that is held",
                    "a status without references was released again"});
      return;
    }
    if (--it->second == 0) s.statuses.erase(it);
    s.references--;
  }
  core().status->release(status);
}

void* alloc(uint64_t size, uint64_t alignment) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (alignment & (alignment - 1)) {
    find_once(
        s, {"C-11", "services.alloc", "an alignment that is a power of two", fmt::format("{}", alignment)});
    return nullptr;
  }
  if (s.allow >= 0 && s.allow-- == 0) {
    s.allow = 0;
    s.failed = true;
    return nullptr;
  }
  const uint64_t front = std::max(kGuard, alignment);
  if (size > UINT64_MAX / 4) return nullptr;
  void* start = nullptr;
  if (posix_memalign(&start, std::max<uint64_t>(alignment, 16), front + size + kGuard) != 0) return nullptr;
  auto* bytes = static_cast<uint8_t*>(start);
  std::memset(bytes, kGuardByte, front);
  std::memset(bytes + front, kFreshByte, std::min<uint64_t>(size, 1 << 20));
  std::memset(bytes + front + size, kGuardByte, kGuard);
  s.blocks[bytes + front] = {bytes, front, size};
  s.bytes += static_cast<int64_t>(size);
  return bytes + front;
}

void free_block(void* pointer) {
  if (!pointer) return;
  State& s = state();
  std::lock_guard lock(s.mutex);
  auto it = s.blocks.find(pointer);
  if (it == s.blocks.end()) {
    find_once(s, {"C-12", "services.free", "memory that services.alloc gave and that was not freed",
                  "another address"});
    return;
  }
  check_guards(s, it->second);
  s.bytes -= static_cast<int64_t>(it->second.size);
  std::memset(it->second.start, kGuardByte, std::min<uint64_t>(it->second.front + it->second.size, 1 << 20));
  ::free(it->second.start);
  s.blocks.erase(it);
}

lazyt_status_t* option(lazyt_string_t plugin, lazyt_string_t name, lazyt_string_t* out_value) {
  State& s = state();
  {
    std::lock_guard lock(s.mutex);
    auto it = s.options.find(loader::to_string(name));
    if (it != s.options.end()) {
      *out_value = {it->second.data(), it->second.size()};
      return nullptr;
    }
  }
  lazyt_status_t* status = core().services->option(plugin, name, out_value);
  return status ? counted(status) : nullptr;
}

lazyt_host_t make_host() {
  static lazyt_host_status_t status = *core().status;
  status.create = create;
  status.retain = retain;
  status.release = release;
  static lazyt_host_services_t services = *core().services;
  services.alloc = alloc;
  services.free = free_block;
  services.option = option;
  services.log = [](lazyt_log_level_t, lazyt_string_t) {};
  // Their statuses and memory are the real host's; a suite needs no store.
  services.cache_get = nullptr;
  services.cache_put = nullptr;
  lazyt_host_t table = core();
  table.status = &status;
  table.services = &services;
  return table;
}

}  // namespace

const lazyt_host_t* host() {
  static const lazyt_host_t table = make_host();
  return &table;
}

std::vector<Finding> take_findings() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  for (const auto& [address, block] : s.blocks) check_guards(s, block);
  return std::exchange(s.findings, {});
}

int64_t live_bytes() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  return s.bytes;
}

int64_t live_statuses() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  return s.references;
}

void fail_allocations(int64_t skip) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.allow = skip;
  s.failed = false;
}

bool allocation_failed() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  return s.failed;
}

void set_option(const std::string& name, const std::string& value) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (value.empty())
    s.options.erase(name);
  else
    s.options[name] = value;
}

}  // namespace lazyt::conformance
