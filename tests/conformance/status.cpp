// Errors: their shape, what they leave behind, and memory that runs out.
#include <chrono>
#include <thread>

#include "suite.h"

namespace lazyt::conformance {
namespace {

using Status = Case;

constexpr const char* kAdd =
    "program(%0: f32[4], %1: f32[4]) {\n %2 = aten::add.Tensor(%0, %1, 1) : f32[4]\n return %2\n}\n";

template <class T>
T stale() {
  T out;
  std::memset(static_cast<void*>(&out), kStale, sizeof out);
  return out;
}
template <class T>
bool is_stale(const T& value) {
  const T other = stale<T>();
  return std::memcmp(&value, &other, sizeof value) == 0;
}

LAZYT_CASE(Status, FailureWritesNoResult, "STA-1", "C-5", "DEV-2", "BUF-5") {
  auto untouched = [&](const std::string& did, bool same) {
    keeps("STA-1", same, did, "the out argument as it was", "it was written");
  };
  auto* device_out = stale<lazyt_device_t*>();
  fails("DEV-2", "device.open(4000000000)", plugin().device->open(4000000000u, &device_out));
  untouched("device.open(4000000000)", is_stale(device_out));

  BufferPtr buffer = upload(floats({1, 2, 3, 4}));
  MUST(buffer);
  auto* event_out = stale<lazyt_event_t*>();
  Bytes dst(16, kStale);
  fails("BUF-5", "to_host(12, 8 bytes) of 16",
        plugin().buffer->to_host(buffer.get(), 12, dst.data(), 8, {nullptr, 0}, &event_out));
  untouched("to_host out of range", is_stale(event_out));
  keeps("C-5", dst == Bytes(16, kStale), "to_host out of range", "dst as it was", show(dst));
}

LAZYT_CASE(Status, MessagesSayWhat, "STA-2", "DEV-2") {
  lazyt_device_t* device_out = nullptr;
  lazyt_status_t* status = plugin().device->open(4000000000u, &device_out);
  MUST(keeps("DEV-2", status != nullptr, "device.open(4000000000)", "an error", "OK"));
  const auto& t = *host()->status;
  keeps("STA-2", t.message(status).size >= 8, "read the message of its error", "a sentence",
        std::string(t.message(status).data, t.message(status).size));
  t.release(status);
}

LAZYT_CASE(Status, ErrorsDoNotPileUp, "STA-4", "DEV-2") {
  const int64_t before = live_statuses();
  for (int i = 0; i < 100; i++) {
    lazyt_device_t* out = nullptr;
    MUST(fails("DEV-2", "device.open(4000000000)", plugin().device->open(4000000000u, &out)));
  }
  keeps("STA-4", live_statuses() == before, "made and released 100 errors",
        fmt::format("{} references", before), fmt::format("{}", live_statuses()));
}

LAZYT_CASE(Status, OptionalSlotsMayDecline, "STA-3") {
  BufferPtr buffer = upload(floats({1, 2}));
  MUST(buffer);
  auto declined = [&](const char* what, lazyt_status_t* status) {
    if (status) fails("STA-3", what, status, {LAZYT_CODE_UNIMPLEMENTED});
  };
  if (plugin().buffer->host_pointer && !host_visible()) {
    void* pointer = nullptr;
    declined("host_pointer on a device that is not host-visible",
             plugin().buffer->host_pointer(buffer.get(), &pointer));
  }
  if (plugin().executable->identity) {
    lazyt_string_t identity{};
    declined("identity", plugin().executable->identity(device(), &identity));
  }
  if (plugin().device->trim) declined("trim", plugin().device->trim(device()));
}

// Every allocation in turn fails: the error is the right one, and nothing is lost.
LAZYT_CASE(Status, HostMemoryRunsOut, "STA-5", "STA-1") {
  Compiled add = compile(kAdd);
  MUST(add);
  BufferPtr a = upload(floats({1, 2, 3, 4}));
  MUST(a);
  std::vector<BufferPtr> out = outputs(add);
  MUST(out.size() == 1);
  bool asked = false;
  auto each = [&](const char* what, auto&& attempt) {
    for (int64_t k = 0; k < 40; k++) {
      const int64_t bytes = live_bytes();
      fail_allocations(k);
      lazyt_status_t* status = attempt();
      const bool refused = allocation_failed();
      fail_allocations(-1);
      asked |= refused;
      if (!refused) {
        ok("STA-1", what, status);
        return;
      }
      if (status)
        fails("STA-5", fmt::format("{} while allocation {} of host memory fails", what, k), status,
              {LAZYT_CODE_RESOURCE_EXHAUSTED});
      // Threads of the plugin may hold their references a little longer than the event takes.
      for (int i = 0; i < 200 && live_bytes() > bytes; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (status)
        keeps("STA-5", live_bytes() <= bytes, fmt::format("{} without memory", what),
              fmt::format("{} bytes in use", bytes), fmt::format("{}", live_bytes()));
    }
  };
  each("device.open", [&] {
    lazyt_device_t* handle = nullptr;
    lazyt_status_t* status = plugin().device->open(0, &handle);
    DevicePtr device(status ? nullptr : handle);
    return status;
  });
  each("buffer.alloc", [&] {
    lazyt_buffer_desc_t desc{sizeof desc, nullptr, 64, 0, 0, 0};
    lazyt_buffer_t* handle = nullptr;
    lazyt_status_t* status = plugin().buffer->alloc(device(), &desc, &handle);
    BufferPtr buffer(status ? nullptr : handle);
    return status;
  });
  each("buffer.from_host", [&] {
    lazyt_host_bytes_t bytes{};
    bytes.struct_size = sizeof bytes;
    bytes.data = "0123456789";
    bytes.size_bytes = 10;
    lazyt_buffer_t* handle = nullptr;
    lazyt_status_t* status = plugin().buffer->from_host(device(), &bytes, &handle);
    BufferPtr buffer(status ? nullptr : handle);
    return status;
  });
  each("executable.compile", [&] {
    lazyt_compile_args_t args{sizeof args, nullptr, add.program->block(), 0};
    lazyt_executable_t* handle = nullptr;
    lazyt_status_t* status = plugin().executable->compile(device(), &args, &handle);
    ExecutablePtr executable(status ? nullptr : handle);
    return status;
  });
  each("execute", [&] {
    lazyt_event_t* handle = nullptr;
    lazyt_status_t* status = execute_raw(add, {in(a), in(a)}, {out[0].get()}, &handle);
    if (status) return status;
    EventPtr event(handle);
    return plugin().event->wait(handle, LAZYT_WAIT_FOREVER);
  });
  if (!asked) unsupported("takes no memory from services.alloc");
}

LAZYT_CASE(Status, MoreMemoryThanThereIs, "STA-5") {
  for (uint64_t size : {UINT64_C(1) << 62, UINT64_MAX - 4096, UINT64_MAX}) {
    lazyt_buffer_desc_t desc{sizeof desc, nullptr, size, 0, 0, 0};
    lazyt_buffer_t* handle = nullptr;
    lazyt_status_t* status = plugin().buffer->alloc(device(), &desc, &handle);
    if (!status) plugin().buffer->release(handle);
    fails("STA-5", fmt::format("buffer.alloc({} bytes)", size), status, {LAZYT_CODE_RESOURCE_EXHAUSTED});
  }
  BufferPtr small = alloc(64);
  keeps("STA-5", small != nullptr, "buffer.alloc(64) after that", "a buffer", "none");
}

}  // namespace
}  // namespace lazyt::conformance
