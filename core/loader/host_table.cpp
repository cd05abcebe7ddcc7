// The host's side of the ABI: statuses and services that plugins are handed.
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>

#include "base/counters.h"
#include "base/log.h"
#include "loader/handles.h"
#include "loader/parallel.h"
#include "loader/worker.h"

// A core Status that C can hold. Notes added through the table stay apart from the (shared,
// immutable) Status, so that strings handed out earlier stay where they are.
struct lazyt_status_s {
  explicit lazyt_status_s(lazyt::base::Status s) : status(std::move(s)) {}
  std::atomic<uint32_t> references{1};
  const lazyt::base::Status status;
  mutable std::mutex mutex;
  std::deque<lazyt::base::Note> added;
};

namespace lazyt::loader {
namespace {

using Clock = std::chrono::steady_clock;

std::string_view view(lazyt_string_t s) { return s.size ? std::string_view(s.data, s.size) : std::string_view(); }

// --- status -------------------------------------------------------------------------------

// What create gives when there is no memory for a status. Never freed, never annotated.
lazyt_status_t* exhausted() {
  static auto* status =
      new lazyt_status_s(base::Status(LAZYT_CODE_RESOURCE_EXHAUSTED, "out of memory while reporting an error"));
  return status;
}

lazyt_status_t* new_status(base::Status status) noexcept {
  try {
    return new lazyt_status_s(std::move(status));
  } catch (const std::bad_alloc&) {
    return exhausted();
  }
}

lazyt_status_t* status_create(lazyt_code_t code, lazyt_string_t message) {
  try {
    // A failure that says OK is a mistake of the caller, and stays a failure.
    if (code == LAZYT_CODE_OK) code = LAZYT_CODE_UNKNOWN;
    return new_status(base::Status(code, message.size ? to_string(message) : "(no message was given)"));
  } catch (const std::bad_alloc&) {
    return exhausted();
  }
}

void status_annotate(lazyt_status_t* status, lazyt_string_t where, lazyt_string_t detail) {
  if (!status || status == exhausted()) return;
  try {
    std::lock_guard lock(status->mutex);
    status->added.push_back({to_string(where), to_string(detail)});
  } catch (const std::bad_alloc&) {  // the note is lost, the error is not
  }
}

lazyt_code_t status_code(const lazyt_status_t* status) { return status ? status->status.code() : LAZYT_CODE_OK; }

lazyt_string_t status_message(const lazyt_status_t* status) {
  return status ? to_abi(status->status.message()) : lazyt_string_t{nullptr, 0};
}

uint64_t status_note_count(const lazyt_status_t* status) {
  if (!status) return 0;
  std::lock_guard lock(status->mutex);
  return status->status.notes().size() + status->added.size();
}

void status_note(const lazyt_status_t* status, uint64_t index, lazyt_string_t* out_where, lazyt_string_t* out_detail) {
  *out_where = *out_detail = {nullptr, 0};
  if (!status) return;
  std::lock_guard lock(status->mutex);
  const auto& own = status->status.notes();
  if (index >= own.size() + status->added.size()) return;
  const base::Note& note = index < own.size() ? own[index] : status->added[index - own.size()];
  *out_where = to_abi(note.where);
  *out_detail = to_abi(note.detail);
}

lazyt_status_t* status_retain(lazyt_status_t* status) {
  if (status) status->references.fetch_add(1, std::memory_order_relaxed);
  return status;
}

void status_release(lazyt_status_t* status) {
  if (!status || status == exhausted()) return;
  if (status->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete status;
}

// --- services -----------------------------------------------------------------------------

void service_log(lazyt_log_level_t level, lazyt_string_t message) { base::log(level, view(message)); }

base::Counter& host_bytes() {
  static base::Counter& c = base::counter("HostBytesOfPlugins");
  return c;
}

void* service_alloc(uint64_t size, uint64_t alignment) {
  // malloc keeps what a thread has freed at hand, posix_memalign looks at none of that.
  void* p = nullptr;
  if (alignment <= sizeof(void*) || alignment == alignof(std::max_align_t)) p = std::malloc(size ? size : 1);
  else if (posix_memalign(&p, alignment, size ? size : 1) != 0) p = nullptr;
  if (!p) return nullptr;
  host_bytes().add(static_cast<int64_t>(malloc_usable_size(p)));
  return p;
}

void service_free(void* pointer) {
  if (!pointer) return;
  host_bytes().add(-static_cast<int64_t>(malloc_usable_size(pointer)));
  std::free(pointer);
}

struct Spans {
  std::mutex mutex;
  uint64_t last = 0;
  std::map<uint64_t, std::pair<std::string, Clock::time_point>> open;
};
Spans& spans() {
  static auto* s = new Spans;
  return *s;
}

uint64_t service_trace_begin(lazyt_string_t name) {
  Spans& s = spans();
  std::lock_guard lock(s.mutex);
  s.open.emplace(++s.last, std::pair(to_string(name), Clock::now()));
  return s.last;
}

void service_trace_end(uint64_t token) {
  const auto now = Clock::now();
  Spans& s = spans();
  std::unique_lock lock(s.mutex);
  auto span = s.open.extract(token);
  lock.unlock();
  if (span) {
    auto& [name, begin] = span.mapped();
    base::record_time(name, std::chrono::duration<double>(now - begin).count());
  }
}

void service_count(lazyt_string_t name, int64_t delta) { base::counter(view(name)).add(delta); }

uint32_t service_cancelled() { return work_cancelled() ? 1 : 0; }

void append_upper(std::string& out, std::string_view text) {
  for (char c : text) out += c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : (c == '-' || c == '.' || c == ' ') ? '_' : c;
}

lazyt_status_t* service_option(lazyt_string_t plugin, lazyt_string_t name, lazyt_string_t* out_value) {
  std::string variable = "LAZYT_";
  append_upper(variable, view(plugin));
  variable += '_';
  append_upper(variable, view(name));
  const char* value = std::getenv(variable.c_str());
  if (!value) {
    *out_value = {nullptr, 0};
    return nullptr;
  }
  // Handed out as static, while the environment may change: one copy of each text is kept.
  static auto* mutex = new std::mutex;
  static auto* texts = new std::set<std::string, std::less<>>;
  std::lock_guard lock(*mutex);
  *out_value = to_abi(*texts->emplace(value).first);
  return nullptr;
}

const void* host_extension(lazyt_string_t) { return nullptr; }

const lazyt_host_status_t kStatus = {
    sizeof(lazyt_host_status_t), nullptr,     status_create, status_annotate, status_code,
    status_message,              status_note_count, status_note, status_retain, status_release};

const lazyt_host_services_t kServices = {
    sizeof(lazyt_host_services_t),
    nullptr,
    service_log,
    service_alloc,
    service_free,
    thread_count,
    parallel_for,
    service_trace_begin,
    service_trace_end,
    service_count,
    service_cancelled,
    service_option,
    nullptr,  // cache_get, cache_put: optional, no store for plugins' own bytes yet
    nullptr};

const lazyt_host_t kHost = {sizeof(lazyt_host_t), nullptr,  LAZYT_ABI_MAJOR, LAZYT_ABI_MINOR, LAZYT_ABI_DRAFT, 0,
                            LAZYT_STR("lazyt 0.1.0"), &kStatus, &kServices,      host_extension};

}  // namespace

base::Status take_status(lazyt_status_t* status) {
  if (!status) return {};
  base::Status out = status->status;
  {
    std::lock_guard lock(status->mutex);
    for (const base::Note& n : status->added) out = out.with_note(n.where, n.detail);
  }
  status_release(status);
  return out;
}

lazyt_status_t* to_abi(const base::Status& status) { return status.ok() ? nullptr : new_status(status); }

const lazyt_host_t* host_table() { return &kHost; }

}  // namespace lazyt::loader
