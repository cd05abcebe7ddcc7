// Devices: numbers, handles, statistics.
#include <bit>

#include "loader/handles.h"
#include "suite.h"

namespace lazyt::conformance {
namespace {

using Device = Case;
using ClosedDevice = DevicelessCase;

LAZYT_CASE(ClosedDevice, CountAndDescribeWorkBeforeOpen, "DEV-1") {
  uint32_t first = 0, second = 0;
  MUST(ok("DEV-1", "device.count before any open", plugin().device->count(&first)));
  MUST(ok("DEV-1", "device.count again", plugin().device->count(&second)));
  keeps("DEV-1", first == second, "device.count twice", fmt::format("{}", first), fmt::format("{}", second));
  for (uint32_t i = 0; i < first; i++) {
    lazyt_device_info_t info{};
    info.struct_size = sizeof info;
    ok("DEV-1", fmt::format("device.describe({}) before any open", i), plugin().device->describe(i, &info));
  }
}

LAZYT_CASE(Device, DescribeIsPlausible, "DEV-6") {
  keeps("DEV-6", info().name.size > 0, "device.describe(0)", "a name", "none");
  keeps("DEV-6", info().alignment == 0 || std::has_single_bit(info().alignment), "device.describe(0)",
        "an alignment that is a power of two", fmt::format("{}", info().alignment));
}

LAZYT_CASE(Device, IndexOutOfRangeIsRefused, "DEV-2") {
  uint32_t count = 0;
  MUST(ok("DEV-2", "device.count", plugin().device->count(&count)));
  for (uint32_t index : {count, count + 1, UINT32_MAX}) {
    lazyt_device_info_t info{};
    info.struct_size = sizeof info;
    fails("DEV-2", fmt::format("device.describe({}) of {}", index, count),
          plugin().device->describe(index, &info), {LAZYT_CODE_INVALID_ARGUMENT});
    lazyt_device_t* handle = nullptr;
    lazyt_status_t* status = plugin().device->open(index, &handle);
    DevicePtr opened(status ? nullptr : handle);
    fails("DEV-2", fmt::format("device.open({}) of {}", index, count), status, {LAZYT_CODE_INVALID_ARGUMENT});
  }
}

LAZYT_CASE(Device, TwoOpensGiveTwoHandles, "DEV-3") {
  DevicePtr second = open(0);
  MUST(keeps("DEV-3", second && second.get() != device(), "opened device 0 twice", "two handles", "one"));
  BufferPtr a = upload(floats({1, 2})), b = upload(floats({3, 4}), second.get());
  MUST(a && b);
  same_bytes("DEV-3", "from_host and to_host on the first", floats({1, 2}), download(a, 8));
  same_bytes("DEV-3", "from_host and to_host on the second", floats({3, 4}), download(b, 8));
  b.reset();
  second.reset();
  same_bytes("DEV-3", "to_host on the first after the second was closed", floats({1, 2}), download(a, 8));
}

LAZYT_CASE(Device, MemoryStatsFallBack, "DEV-4") {
  auto stats = [&](lazyt_memory_stats_t& out) {
    out = {};
    out.struct_size = sizeof out;
    if (!ok("DEV-4", "memory_stats", plugin().device->memory_stats(device(), &out))) return false;
    return keeps("DEV-4", out.bytes_in_use <= out.peak_bytes_in_use && out.derived_bytes <= out.bytes_in_use,
                 "memory_stats", "derived <= in use <= peak",
                 fmt::format("derived {}, in use {}, peak {}", out.derived_bytes, out.bytes_in_use,
                             out.peak_bytes_in_use));
  };
  lazyt_memory_stats_t before, during, after;
  MUST(stats(before));
  BufferPtr a = upload(Bytes(1 << 20, 1)), b = upload(Bytes(1 << 20, 2));
  MUST(a && b);
  MUST(stats(during));
  const uint64_t grown = during.bytes_in_use - before.bytes_in_use;
  keeps("DEV-4", grown >= 2 << 20 && grown < 4 << 20, "memory_stats with two buffers of 1 MiB",
        "2 MiB more in use", fmt::format("{} bytes more", grown));
  a.reset();
  b.reset();
  MUST(stats(after));
  keeps("DEV-4", after.bytes_in_use == before.bytes_in_use, "memory_stats after their release",
        fmt::format("{}", before.bytes_in_use), fmt::format("{}", after.bytes_in_use));
}

LAZYT_CASE(Device, TrimChangesNoResult, "DEV-5") {
  if (!plugin().device->trim) return unsupported("has nothing to trim");
  Compiled mm =
      compile("program(%0: f32[2,2], %1: f32[2,2]) {\n %2 = aten::mm(%0, %1) : f32[2,2]\n return %2\n}\n");
  MUST(mm);
  BufferPtr a = upload(floats({1, 2, 3, 4})), b = upload(floats({5, 6, 7, 8}));
  MUST(a && b);
  std::vector<In> inputs = {in(a), in(b)};
  inputs[1].stable_id = 1;
  inputs[1].content_version = 1;
  std::vector<Bytes> first = run("DEV-5", mm, inputs);
  MUST(ok("DEV-5", "trim", plugin().device->trim(device())));
  std::vector<Bytes> second = run("DEV-5", mm, inputs);
  MUST(first.size() == 1 && second.size() == 1);
  same_bytes("DEV-5", "ran before and after trim", first[0], second[0]);
  same_bytes("DEV-5", "read a buffer after trim", floats({1, 2, 3, 4}), download(a, 16));
}

}  // namespace
}  // namespace lazyt::conformance
