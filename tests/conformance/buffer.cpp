// Bytes on a device: sizes, sharing, ranges, waits.
#include <atomic>
#include <numeric>
#include <random>

#include "suite.h"

namespace lazyt::conformance {
namespace {

class Buffer : public Case {
 protected:
  struct Done {
    std::atomic<int> calls{0};
    static void call(void* self) { static_cast<Done*>(self)->calls++; }
  };

  lazyt_status_t* from_host(const void* data, uint64_t size, lazyt_sharing_t sharing, Done* done,
                            lazyt_buffer_t** out) {
    lazyt_host_bytes_t bytes{};
    bytes.struct_size = sizeof bytes;
    bytes.data = data;
    bytes.size_bytes = size;
    bytes.sharing = sharing;
    bytes.done = done ? Done::call : nullptr;
    bytes.done_user_data = done;
    return plugin().buffer->from_host(device(), &bytes, out);
  }

  static Bytes pattern(uint64_t size, uint8_t first) {
    Bytes out(size);
    for (uint64_t i = 0; i < size; i++) out[i] = static_cast<uint8_t>(first + i * 7);
    return out;
  }
};

const char* const kSharing[] = {"COPY", "UNTIL_DONE", "ALIAS", "ALIAS_MUTABLE"};

LAZYT_CASE(Buffer, EmptyOnesAreValid, "BUF-1") {
  BufferPtr empty = alloc(0), from = upload({}), full = upload(floats({1}));
  MUST(keeps("BUF-1", empty && from && full, "alloc(0) and from_host(0 bytes)", "buffers", "none"));
  uint64_t size = 1;
  ok("BUF-1", "size", plugin().buffer->size(empty.get(), &size));
  keeps("BUF-1", size == 0, "size of an empty buffer", "0", fmt::format("{}", size));
  uint8_t byte = kStale;
  ok("BUF-1", "to_host(0, 0 bytes)",
     plugin().buffer->to_host(empty.get(), 0, &byte, 0, {nullptr, 0}, nullptr));
  ok("BUF-1", "to_host(0, NULL, 0 bytes)",
     plugin().buffer->to_host(empty.get(), 0, nullptr, 0, {nullptr, 0}, nullptr));
  ok("BUF-1", "copy of 0 bytes",
     plugin().buffer->copy(empty.get(), 0, from.get(), 0, 0, {nullptr, 0}, nullptr));
  ok("BUF-1", "to_host(4, 0 bytes) of 4",
     plugin().buffer->to_host(full.get(), 4, &byte, 0, {nullptr, 0}, nullptr));
  keeps("BUF-1", byte == kStale, "to_host of 0 bytes", "dst as it was", "it was written");
}

LAZYT_CASE(Buffer, BytesComeBack, "BUF-4", "BUF-10") {
  std::mt19937_64 random(options().seed);
  std::vector<uint64_t> sizes = {1, 3, 4, 63, 64, 65, 4095, 4096, 4097, 100003, random() % 70000 + 1};
  if (options().full) sizes.push_back(64 << 20);
  for (uint64_t size : sizes) {
    const Bytes bytes = pattern(size, static_cast<uint8_t>(random()));
    BufferPtr buffer = upload(bytes);
    MUST(buffer);
    MUST(same_bytes("BUF-4", fmt::format("from_host and to_host of {} bytes", size), bytes,
                    download(buffer, size)));
    uint64_t answered = 0;
    MUST(ok("BUF-10", "size", plugin().buffer->size(buffer.get(), &answered)));
    keeps("BUF-10", answered == size, "size after from_host", fmt::format("{}", size),
          fmt::format("{}", answered));
  }
}

LAZYT_CASE(Buffer, SizeIsWhatWasAsked, "BUF-10") {
  for (uint64_t size : {0, 1, 5, 64, 1000}) {
    BufferPtr buffer = alloc(size);
    MUST(buffer);
    uint64_t answered = ~UINT64_C(0);
    MUST(ok("BUF-10", "size", plugin().buffer->size(buffer.get(), &answered)));
    keeps("BUF-10", answered == size, fmt::format("size after alloc({})", size), fmt::format("{}", size),
          fmt::format("{}", answered));
  }
}

LAZYT_CASE(Buffer, CopyHasReadAllBytes, "BUF-4") {
  for (uint64_t size : {16, 4096, 1 << 20}) {
    const Bytes bytes = pattern(size, 3);
    Bytes mine = bytes;
    lazyt_buffer_t* handle = nullptr;
    MUST(ok("BUF-4", "from_host with COPY",
            from_host(mine.data(), size, LAZYT_SHARING_COPY, nullptr, &handle)));
    BufferPtr buffer(handle);
    std::fill(mine.begin(), mine.end(), kStale);
    same_bytes(
        "BUF-4",
        fmt::format("from_host with COPY of {} bytes, then wrote over the caller's, then to_host", size),
        bytes, download(buffer, size));
  }
}

LAZYT_CASE(Buffer, SharedBytesAreDoneOnce, "BUF-8", "BUF-4") {
  for (lazyt_sharing_t sharing = LAZYT_SHARING_COPY; sharing <= LAZYT_SHARING_ALIAS_MUTABLE; sharing++) {
    for (uint64_t size : {0, 4, 8192}) {
      const std::string did = fmt::format("from_host with {} of {} bytes", kSharing[sharing], size);
      const Bytes bytes = pattern(size, 9);
      alignas(64) static uint8_t mine[8192];
      std::copy(bytes.begin(), bytes.end(), mine);
      Done done;
      lazyt_buffer_t* handle = nullptr;
      MUST(ok("BUF-8", did, from_host(mine, size, sharing, &done, &handle)));
      BufferPtr buffer(handle);
      same_bytes("BUF-8", did + ", to_host", bytes, download(buffer, size));
      // From done on the bytes are the caller's again.
      if (done.calls == 1) {
        std::fill(mine, mine + size, kStale);
        same_bytes(sharing == LAZYT_SHARING_COPY ? "BUF-4" : "BUF-8",
                   did + ", wrote over the bytes after done, to_host", bytes, download(buffer, size));
      }
      buffer.reset();
      keeps("BUF-8", done.calls == 1, did + ", release", "done called once",
            fmt::format("called {} times", done.calls.load()));
    }
  }
}

LAZYT_CASE(Buffer, DoneIsNotCalledOnFailure, "BUF-8") {
  Bytes bytes = pattern(64, 1);
  bool failed = false;
  for (int64_t k = 0; k < 20; k++) {
    Done done;
    lazyt_buffer_t* handle = nullptr;
    fail_allocations(k);
    lazyt_status_t* status = from_host(bytes.data(), bytes.size(), LAZYT_SHARING_ALIAS, &done, &handle);
    fail_allocations(-1);
    BufferPtr buffer(status ? nullptr : handle);
    if (status) {
      failed = true;
      keeps("BUF-8", done.calls == 0, "from_host that failed for want of memory", "done not called",
            fmt::format("called {} times", done.calls.load()));
    }
    buffer.reset();
    if (!take_code(status)) break;
  }
  if (!failed) unsupported("from_host cannot be made to fail");
}

LAZYT_CASE(Buffer, ReadOnlySharedBytesStayAsTheyWere, "BUF-13") {
  Compiled program = compile(
      "program(%0: f32[64] donate) {\n %1 = aten::add.Tensor(%0, %0, 1) : f32[64]\n return %1 <- %0\n}\n");
  MUST(program);
  for (lazyt_sharing_t sharing : {LAZYT_SHARING_UNTIL_DONE, LAZYT_SHARING_ALIAS}) {
    alignas(64) uint8_t mine[256];
    const Bytes bytes = pattern(256, 1);
    std::copy(bytes.begin(), bytes.end(), mine);
    Done done;
    lazyt_buffer_t* handle = nullptr;
    MUST(ok("BUF-13", "from_host", from_host(mine, 256, sharing, &done, &handle)));
    BufferPtr buffer(handle);
    run("BUF-13", program, {in(buffer)});
    buffer.reset();
    same_bytes("BUF-13", fmt::format("executed with an input made with {}, released it", kSharing[sharing]),
               bytes, Bytes(mine, mine + 256));
  }
}

LAZYT_CASE(Buffer, ReadingOutOfRangeIsRefused, "BUF-5") {
  BufferPtr buffer = upload(pattern(64, 0));
  MUST(buffer);
  const std::pair<uint64_t, uint64_t> ranges[] = {
      {0, 65}, {64, 1}, {60, 8}, {65, 0}, {1, UINT64_MAX}, {UINT64_MAX, 1}, {UINT64_MAX - 3, 8}};
  for (auto [offset, size] : ranges) {
    Bytes dst(128, kStale);
    lazyt_status_t* status =
        plugin().buffer->to_host(buffer.get(), offset, dst.data(), size, {nullptr, 0}, nullptr);
    const std::string did = fmt::format("to_host(offset {}, size {}) of 64 bytes", offset, size);
    fails("BUF-5", did, status, {LAZYT_CODE_OUT_OF_RANGE});
    MUST(keeps("BUF-5", dst == Bytes(128, kStale), did, "nothing moved", "bytes were moved"));
  }
}

LAZYT_CASE(Buffer, CopyOutOfRangeIsRefused, "BUF-5") {
  const Bytes a_bytes = pattern(64, 0), b_bytes = pattern(32, 100);
  BufferPtr a = upload(a_bytes), b = upload(b_bytes);
  MUST(a && b);
  const uint64_t calls[][3] = {{0, 0, 33},
                               {60, 0, 8},
                               {0, 30, 4},
                               {65, 0, 0},
                               {0, 33, 0},
                               {0, UINT64_MAX, 1},
                               {UINT64_MAX - 1, 0, 4},
                               {0, 0, UINT64_MAX}};
  for (auto [from, to, size] : calls) {
    const std::string did = fmt::format("copy(64 bytes at {}, 32 bytes at {}, size {})", from, to, size);
    fails("BUF-5", did, plugin().buffer->copy(a.get(), from, b.get(), to, size, {nullptr, 0}, nullptr),
          {LAZYT_CODE_OUT_OF_RANGE});
    MUST(same_bytes("BUF-5", did + ", then read the destination", b_bytes, download(b, 32)));
  }
}

LAZYT_CASE(Buffer, ToHostWritesItsRangeOnly, "BUF-9") {
  const Bytes bytes = pattern(256, 5);
  BufferPtr buffer = upload(bytes);
  MUST(buffer);
  for (auto [offset, size] : {std::pair{0, 256}, {0, 1}, {255, 1}, {3, 61}, {64, 128}}) {
    Bytes dst(512, kStale), expected = dst;
    std::copy_n(bytes.begin() + offset, size, expected.begin() + 128);
    MUST(ok("BUF-9", "to_host",
            plugin().buffer->to_host(buffer.get(), static_cast<uint64_t>(offset), dst.data() + 128,
                                     static_cast<uint64_t>(size), {nullptr, 0}, nullptr)));
    same_bytes("BUF-9", fmt::format("to_host(offset {}, size {}) into the middle of 512 bytes", offset, size),
               expected, dst);
  }
}

LAZYT_CASE(Buffer, CopyWritesItsRangeOnly, "BUF-9") {
  const Bytes a_bytes = pattern(256, 5), b_bytes = pattern(256, 90);
  for (auto [from, to, size] : {std::tuple{0, 0, 256}, {0, 255, 1}, {200, 3, 56}, {1, 64, 63}}) {
    BufferPtr a = upload(a_bytes), b = upload(b_bytes);
    MUST(a && b);
    Bytes expected = b_bytes;
    std::copy_n(a_bytes.begin() + from, size, expected.begin() + to);
    MUST(ok("BUF-9", "copy",
            plugin().buffer->copy(a.get(), static_cast<uint64_t>(from), b.get(), static_cast<uint64_t>(to),
                                  static_cast<uint64_t>(size), {nullptr, 0}, nullptr)));
    same_bytes("BUF-9",
               fmt::format("copy({} to {}, size {}) of 256 bytes, read the destination", from, to, size),
               expected, download(b, 256));
    same_bytes("BUF-9", "copy, read the source", a_bytes, download(a, 256));
  }
}

LAZYT_CASE(Buffer, CopyGoesBetweenTwoHandlesOfADevice, "DEV-3") {
  DevicePtr other = open(0);
  MUST(other);
  BufferPtr a = upload(pattern(64, 5)), b = upload(pattern(64, 90), other.get());
  MUST(a && b);
  MUST(ok("DEV-3", "copy between two handles of device 0",
          plugin().buffer->copy(a.get(), 0, b.get(), 0, 64, {nullptr, 0}, nullptr)));
  same_bytes("DEV-3", "copy between two handles of device 0", pattern(64, 5), download(b, 64));
  b.reset();
}

LAZYT_CASE(Buffer, WithoutAnEventItIsDoneOnReturn, "BUF-7") {
  const Bytes bytes = pattern(1 << 20, 2);
  BufferPtr a = upload(bytes), b = alloc(1 << 20);
  MUST(a && b);
  MUST(ok("BUF-7", "copy without an event",
          plugin().buffer->copy(a.get(), 0, b.get(), 0, bytes.size(), {nullptr, 0}, nullptr)));
  Bytes dst(bytes.size(), kStale);
  MUST(ok("BUF-7", "to_host without an event",
          plugin().buffer->to_host(b.get(), 0, dst.data(), dst.size(), {nullptr, 0}, nullptr)));
  same_bytes("BUF-7", "copy and to_host without events", bytes, dst);
}

LAZYT_CASE(Buffer, AnEventIsGivenWhenAsked, "BUF-7") {
  const Bytes bytes = pattern(4096, 2);
  BufferPtr a = upload(bytes), b = alloc(4096);
  MUST(a && b);
  lazyt_event_t* raw = nullptr;
  MUST(ok("BUF-7", "copy with an event",
          plugin().buffer->copy(a.get(), 0, b.get(), 0, 4096, {nullptr, 0}, &raw)));
  EventPtr copied(raw);
  MUST(keeps("BUF-7", raw != nullptr, "copy with an event", "an event", "NULL"));
  lazyt_event_t* waits[] = {copied.get()};
  Bytes dst(4096, kStale);
  raw = nullptr;
  MUST(ok("BUF-7", "to_host that waits for it",
          plugin().buffer->to_host(b.get(), 0, dst.data(), 4096, {waits, 1}, &raw)));
  EventPtr read(raw);
  MUST(keeps("BUF-7", raw != nullptr, "to_host with an event", "an event", "NULL"));
  MUST(wait("BUF-7", "to_host", read));
  same_bytes("BUF-7", "copy, then to_host that waits for it", bytes, dst);
}

LAZYT_CASE(Buffer, ErrorsOfWaitsArePassedOn, "BUF-6") {
  EventPtr failed = failed_event();
  MUST(failed);
  lazyt_event_t* waits[] = {failed.get()};
  const lazyt_code_t code = take_code(plugin().event->wait(failed.get(), LAZYT_WAIT_FOREVER));
  const Bytes bytes = pattern(64, 2), other = pattern(64, 50);
  BufferPtr a = upload(bytes), b = upload(other);
  MUST(a && b);
  Bytes dst(64, kStale);
  fails("BUF-6", "to_host after an event that carries an error",
        plugin().buffer->to_host(a.get(), 0, dst.data(), 64, {waits, 1}, nullptr), {code});
  keeps("BUF-6", dst == Bytes(64, kStale), "to_host after an event that carries an error", "no bytes moved",
        show(dst));
  lazyt_event_t* raw = nullptr;
  MUST(ok("BUF-6", "copy with an event after one that carries an error",
          plugin().buffer->copy(a.get(), 0, b.get(), 0, 64, {waits, 1}, &raw)));
  EventPtr copied(raw);
  fails("BUF-6", "its event", plugin().event->wait(copied.get(), LAZYT_WAIT_FOREVER), {code});
  same_bytes("BUF-6", "copy after an event that carries an error, read the destination", other,
             download(b, 64));
}

LAZYT_CASE(Buffer, HostPointerShowsTheSameBytes, "BUF-11") {
  if (!host_visible() || !plugin().buffer->host_pointer)
    return unsupported("the device's memory is not visible to the CPU");
  const Bytes bytes = pattern(1000, 2);
  BufferPtr buffer = upload(bytes);
  MUST(buffer);
  void* pointer = nullptr;
  MUST(ok("BUF-11", "host_pointer", plugin().buffer->host_pointer(buffer.get(), &pointer)));
  MUST(keeps("BUF-11", pointer != nullptr, "host_pointer of 1000 bytes", "an address", "NULL"));
  same_bytes("BUF-11", "read at host_pointer", bytes,
             Bytes(static_cast<uint8_t*>(pointer), static_cast<uint8_t*>(pointer) + 1000));
  const Bytes written = pattern(1000, 77);
  std::copy(written.begin(), written.end(), static_cast<uint8_t*>(pointer));
  same_bytes("BUF-11", "wrote at host_pointer, then to_host", written, download(buffer, 1000));
}

LAZYT_CASE(Buffer, AlignmentIsKeptOrRefused, "BUF-12") {
  for (uint64_t alignment : {1, 16, 64, 256, 4096}) {
    lazyt_buffer_desc_t desc{sizeof desc, nullptr, 100, alignment, 0, 0};
    lazyt_buffer_t* handle = nullptr;
    lazyt_status_t* status = plugin().buffer->alloc(device(), &desc, &handle);
    const std::string did = fmt::format("alloc with alignment {}", alignment);
    if (status) {
      fails("BUF-12", did, status, {LAZYT_CODE_INVALID_ARGUMENT});
      keeps("BUF-12", alignment > info().alignment, did,
            fmt::format("success: the device's own is {}", info().alignment), "refused");
      continue;
    }
    BufferPtr buffer(handle);
    if (!host_visible() || !plugin().buffer->host_pointer) continue;
    void* pointer = nullptr;
    MUST(ok("BUF-12", "host_pointer", plugin().buffer->host_pointer(handle, &pointer)));
    const uint64_t wanted = std::max(alignment, info().alignment);
    keeps("BUF-12", reinterpret_cast<uintptr_t>(pointer) % wanted == 0, did,
          fmt::format("an address that {} divides", wanted), fmt::format("{}", pointer));
  }
}

LAZYT_CASE(Buffer, UnknownMemorySpaceIsRefused, "BUF-12") {
  lazyt_buffer_desc_t desc{sizeof desc, nullptr, 64, 0, 0x7ffffffe, 0};
  lazyt_buffer_t* handle = nullptr;
  lazyt_status_t* status = plugin().buffer->alloc(device(), &desc, &handle);
  BufferPtr buffer(status ? nullptr : handle);
  fails("BUF-12", "alloc in memory space 0x7ffffffe", status, {LAZYT_CODE_INVALID_ARGUMENT});
}

}  // namespace
}  // namespace lazyt::conformance
