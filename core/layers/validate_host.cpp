// What the plugin asks of the host: statuses that it owns or not, memory between guard zones.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "layers/validate_call.h"

namespace lazyt::layers {
namespace {

constexpr uint64_t kGuard = 64;
constexpr uint8_t kGuardByte = 0xFD;

}  // namespace

void Validate::may_call_host(const char* function) {
  if (phase_ == Phase::kShutDown) report(Side::kPlugin, "LIB-9", function, "called after shutdown returned");
}

// --- statuses ---------------------------------------------------------------------------------

lazyt_status_t* Validate::give(lazyt_status_t* status) {
  if (!status) return nullptr;
  std::lock_guard lock(mutex_);
  statuses_[status]++;
  return status;
}

lazyt_status_t* Validate::take(lazyt_status_t* status, const char* function) {
  if (!status) return nullptr;
  std::unique_lock lock(mutex_);
  auto it = statuses_.find(status);
  if (it != statuses_.end()) {
    if (--it->second == 0) statuses_.erase(it);
    return status;
  }
  lock.unlock();
  // Whatever it is, it is not the host's to release.
  report(Side::kPlugin, "STA-4", function, "it returned a status of which it holds no reference");
  const std::string text =
      std::string(function) + " returned a status of which the plugin holds no reference (STA-4)";
  return above->status->create(LAZYT_CODE_INTERNAL, {text.data(), text.size()});
}

bool Validate::holds(const lazyt_status_t* status, const char* function) {
  may_call_host(function);
  std::unique_lock lock(mutex_);
  const bool held = statuses_.contains(status);
  lock.unlock();
  if (!held) report(Side::kPlugin, "STA-4", function, "the plugin holds no reference to this status");
  return held;
}

lazyt_status_t* Validate::status_create(lazyt_code_t code, lazyt_string_t message) {
  may_call_host("status.create");
  if (code <= LAZYT_CODE_OK || code > LAZYT_CODE_UNAUTHENTICATED)
    report(Side::kPlugin, "STA-1", "status.create", fmt::format("code {} is no error's", code));
  if (message.size == 0) report(Side::kPlugin, "STA-2", "status.create", "the message is empty");
  if (!is_text(message)) {
    report(Side::kPlugin, "C-4", "status.create", "the message is not UTF-8");
    if (!message.data) message.size = 0;
  }
  return give(above->status->create(code, message));
}

void Validate::status_annotate(lazyt_status_t* status, lazyt_string_t where, lazyt_string_t detail) {
  if (!holds(status, "status.annotate")) return;
  if (!is_text(where) || !is_text(detail))
    return report(Side::kPlugin, "C-4", "status.annotate", "a note is not UTF-8");
  above->status->annotate(status, where, detail);
}

lazyt_code_t Validate::status_code(const lazyt_status_t* status) {
  return holds(status, "status.code") ? above->status->code(status) : LAZYT_CODE_UNKNOWN;
}

lazyt_string_t Validate::status_message(const lazyt_status_t* status) {
  return holds(status, "status.message") ? above->status->message(status) : lazyt_string_t{nullptr, 0};
}

uint64_t Validate::status_note_count(const lazyt_status_t* status) {
  return holds(status, "status.note_count") ? above->status->note_count(status) : 0;
}

void Validate::status_note(const lazyt_status_t* status, uint64_t index, lazyt_string_t* out_where,
                           lazyt_string_t* out_detail) {
  *out_where = *out_detail = {nullptr, 0};
  if (holds(status, "status.note")) above->status->note(status, index, out_where, out_detail);
}

lazyt_status_t* Validate::status_retain(lazyt_status_t* status) {
  return holds(status, "status.retain") ? give(above->status->retain(status)) : nullptr;
}

void Validate::status_release(lazyt_status_t* status) {
  if (!status || !holds(status, "status.release")) return;
  {
    std::lock_guard lock(mutex_);
    auto it = statuses_.find(status);
    if (it != statuses_.end() && --it->second == 0) statuses_.erase(it);
  }
  above->status->release(status);
}

// --- memory -----------------------------------------------------------------------------------

// What is wrong with the guard zones, or nothing. Writes them again, so that one overrun is one violation.
std::string Validate::damage(const Block& block) {
  auto damaged = [](uint8_t* at, uint64_t size) {
    if (std::all_of(at, at + size, [](uint8_t byte) { return byte == kGuardByte; })) return false;
    std::memset(at, kGuardByte, size);
    return true;
  };
  if (block.front == 0) return "";  // made by another function
  auto* start = static_cast<uint8_t*>(block.start);
  const bool before = damaged(start, block.front);
  const bool behind = damaged(start + block.front + block.size, kGuard);
  if (!before && !behind) return "";
  return fmt::format("bytes {} {} bytes of services.alloc were written", before ? "before" : "behind",
                     block.size);
}

void Validate::check_guards(const char* function) {
  std::vector<std::string> found;
  std::unique_lock lock(mutex_);
  for (const auto& [pointer, block] : blocks_)
    if (std::string text = damage(block); !text.empty()) found.push_back(std::move(text));
  lock.unlock();
  for (std::string& text : found) report(Side::kPlugin, "BUF-9", function, std::move(text));
}

void* Validate::service_alloc(uint64_t size, uint64_t alignment) {
  may_call_host("services.alloc");
  if (alignment & (alignment - 1)) {
    report(Side::kPlugin, "C-11", "services.alloc",
           fmt::format("alignment {} is not a power of two", alignment));
    return nullptr;
  }
  const uint64_t front = std::max(kGuard, alignment);
  if (size > UINT64_MAX / 4) return above->services->alloc(size, alignment);
  auto* start =
      static_cast<uint8_t*>(above->services->alloc(front + size + kGuard, std::max<uint64_t>(alignment, 16)));
  if (!start) return nullptr;
  std::memset(start, kGuardByte, front);
  std::memset(start + front + size, kGuardByte, kGuard);
  std::lock_guard lock(mutex_);
  blocks_[start + front] = {start, front, size};
  return start + front;
}

void Validate::service_free(void* pointer) {
  if (!pointer) return;
  may_call_host("services.free");
  std::unique_lock lock(mutex_);
  auto node = blocks_.extract(pointer);
  lock.unlock();
  if (node.empty())
    return report(Side::kPlugin, "C-12", "services.free",
                  "the memory is not of services.alloc, or was freed before");
  if (std::string text = damage(node.mapped()); !text.empty())
    report(Side::kPlugin, "BUF-9", "services.free", std::move(text));
  above->services->free(node.mapped().start);
}

lazyt_status_t* Validate::service_option(lazyt_string_t plugin, lazyt_string_t name, lazyt_string_t* out) {
  may_call_host("services.option");
  return give(above->services->option(plugin, name, out));
}

lazyt_status_t* Validate::service_cache_get(lazyt_string_t key, void** out_data, uint64_t* out_size) {
  may_call_host("services.cache_get");
  lazyt_status_t* status = above->services->cache_get(key, out_data, out_size);
  if (status) return give(status);
  std::lock_guard lock(mutex_);
  if (*out_data) blocks_[*out_data] = {*out_data, 0, *out_size};
  return nullptr;
}

lazyt_status_t* Validate::service_cache_put(lazyt_string_t key, const void* data, uint64_t size) {
  may_call_host("services.cache_put");
  return give(above->services->cache_put(key, data, size));
}

}  // namespace lazyt::layers
