#include "host.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "loader/handles.h"

namespace lazyt::conformance {
namespace {

constexpr uint8_t kFreshByte = 0xCD;  // what is not written yet is neither zero nor a number anyone expects

struct State {
  std::mutex mutex;
  std::map<void*, uint64_t> blocks;
  std::map<std::string, std::string> options;
  int64_t bytes = 0, references = 0;
  int64_t allow = -1;
  bool failed = false;
};

State& state() {
  static auto* s = new State;  // plugins may call until the process ends
  return *s;
}

const lazyt_host_t& core() { return *loader::host_table(); }

lazyt_status_t* counted(lazyt_status_t* status) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.references++;
  return status;
}

lazyt_status_t* create(lazyt_code_t code, lazyt_string_t message) {
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
    s.references--;
  }
  core().status->release(status);
}

void* alloc(uint64_t size, uint64_t alignment) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (s.allow >= 0 && s.allow-- == 0) {
    s.allow = 0;
    s.failed = true;
    return nullptr;
  }
  void* bytes = core().services->alloc(size, alignment);
  if (!bytes) return nullptr;
  std::memset(bytes, kFreshByte, std::min<uint64_t>(size, 1 << 20));
  s.blocks[bytes] = size;
  s.bytes += static_cast<int64_t>(size);
  return bytes;
}

void free_block(void* pointer) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  auto it = s.blocks.find(pointer);
  if (it == s.blocks.end()) return;
  s.bytes -= static_cast<int64_t>(it->second);
  std::memset(pointer, kFreshByte, std::min<uint64_t>(it->second, 1 << 20));
  s.blocks.erase(it);
  core().services->free(pointer);
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
