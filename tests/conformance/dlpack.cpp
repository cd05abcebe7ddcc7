// Buffers that go to other libraries and come from them, where the plugin offers it.
#include <atomic>

#include "lazyt/dlpack.hpp"
#include "suite.h"

namespace lazyt::conformance {
namespace {

constexpr int32_t kCpu = 1;
constexpr uint8_t kUInt = 1;

class Dlpack : public Case {
 protected:
  // A tensor of the caller over `bytes`, on the CPU; counts calls of its deleter.
  struct Foreign {
    explicit Foreign(Bytes& bytes) : shape(static_cast<int64_t>(bytes.size())) {
      tensor.version = {1, 0};
      tensor.manager_ctx = this;
      tensor.deleter = [](DLManagedTensorVersioned* self) {
        static_cast<Foreign*>(self->manager_ctx)->deleted++;
      };
      tensor.dl_tensor = {bytes.data(), {kCpu, 0}, 1, {kUInt, 8, 1}, &shape, &stride, 0};
    }
    int64_t shape, stride = 1;
    DLManagedTensorVersioned tensor{};
    std::atomic<int> deleted{0};
  };
};

LAZYT_CASE(Dlpack, ExportsItsBytes, "BUF-10", "BUF-11", "BUF-16") {
  if (!plugin().buffer->export_dlpack) return unsupported("export_dlpack is not offered");
  const Bytes bytes = floats({1, 2, 3, 4, 5});
  BufferPtr buffer = upload(bytes);
  MUST(buffer);
  DLManagedTensorVersioned* tensor = nullptr;
  MUST(ok("BUF-16", "export_dlpack of 20 bytes", plugin().buffer->export_dlpack(buffer.get(), &tensor)));
  MUST(keeps("BUF-16", tensor && tensor->deleter, "export_dlpack", "a tensor with a deleter", "none"));
  const DLTensor& t = tensor->dl_tensor;
  const bool plain = tensor->version.major == 1 && t.ndim == 1 && t.dtype.code == kUInt &&
                     t.dtype.bits == 8 && t.dtype.lanes == 1 && t.shape && (!t.strides || t.strides[0] == 1);
  keeps("BUF-10", plain && t.shape[0] == 20, "looked at the tensor", "uint8[20] of DLPack 1",
        fmt::format("DLPack {}, {} dims, dtype {}:{}:{}", tensor->version.major, t.ndim, t.dtype.code,
                    t.dtype.bits, t.dtype.lanes));
  keeps("BUF-10", t.device.device_type == info().dlpack_type && t.device.device_id == info().dlpack_id,
        "compared its device with describe", fmt::format("{}:{}", info().dlpack_type, info().dlpack_id),
        fmt::format("{}:{}", t.device.device_type, t.device.device_id));
  if (plain && t.device.device_type == kCpu) {
    auto* at = static_cast<uint8_t*>(t.data) + t.byte_offset;
    same_bytes("BUF-11", "read the tensor", bytes, Bytes(at, at + 20));
    at[3] = 0x11;
    keeps("BUF-11", download(buffer, 20)[3] == 0x11, "wrote byte 3 of the tensor, then to_host", "0x11",
          "another byte");
    buffer.reset();
    keeps("BUF-16", at[3] == 0x11 && at[4] == bytes[4], "released the buffer, read the tensor", "the same bytes",
          "others");
  }
  tensor->deleter(tensor);
}

LAZYT_CASE(Dlpack, ExportsEmptyBuffers, "BUF-1", "BUF-16") {
  if (!plugin().buffer->export_dlpack) return unsupported("export_dlpack is not offered");
  BufferPtr empty = alloc(0);
  MUST(empty);
  DLManagedTensorVersioned* tensor = nullptr;
  MUST(ok("BUF-1", "export_dlpack of 0 bytes", plugin().buffer->export_dlpack(empty.get(), &tensor)));
  MUST(keeps("BUF-16", tensor && tensor->deleter, "export_dlpack", "a tensor with a deleter", "none"));
  keeps("BUF-1", tensor->dl_tensor.ndim == 1 && tensor->dl_tensor.shape[0] == 0, "looked at the tensor",
        "uint8[0]", "another shape");
  empty.reset();
  tensor->deleter(tensor);
}

LAZYT_CASE(Dlpack, ImportsATensorAndGivesItBackOnce, "BUF-10", "BUF-11", "BUF-15") {
  if (!plugin().buffer->import_dlpack) return unsupported("import_dlpack is not offered");
  for (uint64_t size : {1, 64, 1000}) {
    Bytes bytes(size);
    for (uint64_t i = 0; i < size; i++) bytes[i] = static_cast<uint8_t>(i * 3 + 1);
    Foreign foreign(bytes);
    lazyt_buffer_t* handle = nullptr;
    const std::string did = fmt::format("import_dlpack of uint8[{}] on the CPU", size);
    lazyt_status_t* status = plugin().buffer->import_dlpack(device(), &foreign.tensor, nullptr, &handle);
    if (status && info().dlpack_type != kCpu) {
      take_code(status);
      keeps("BUF-15", foreign.deleted == 0, did + ", which failed", "the tensor is still the caller's",
            "its deleter was called");
      return unsupported("takes no tensors of the CPU");
    }
    MUST(ok("BUF-15", did, status));
    BufferPtr buffer(handle);
    uint64_t got = 0;
    ok("BUF-10", "size", plugin().buffer->size(buffer.get(), &got));
    keeps("BUF-10", got == size, did + ", then size", fmt::format("{}", size), fmt::format("{}", got));
    same_bytes("BUF-11", did + ", then to_host", bytes, download(buffer, size));
    buffer.reset();
    keeps("BUF-15", foreign.deleted == 1, did + ", then release", "its deleter was called once",
          fmt::format("{} calls", foreign.deleted.load()));
  }
}

LAZYT_CASE(Dlpack, RefusedTensorsStayTheCallers, "BUF-15", "STA-1") {
  if (!plugin().buffer->import_dlpack) return unsupported("import_dlpack is not offered");
  Bytes bytes(64, 1);
  Foreign foreign(bytes);
  foreign.tensor.dl_tensor.dtype = {kUInt, 8, 7};  // vectors of seven: nobody has them
  lazyt_buffer_t* handle = nullptr;
  MUST(fails("STA-1", "import_dlpack of uint8x7",
             plugin().buffer->import_dlpack(device(), &foreign.tensor, nullptr, &handle)));
  keeps("BUF-15", foreign.deleted == 0, "import_dlpack that failed", "the tensor is still the caller's",
        "its deleter was called");
}

LAZYT_CASE(Dlpack, ImportedBuffersCompute, "BUF-11", "EXE-4", "BUF-15") {
  if (!plugin().buffer->import_dlpack || info().dlpack_type != kCpu)
    return unsupported("takes no tensors of the CPU");
  Compiled add =
      compile("program(%0: f32[4]) {\n %1 = aten::add.Tensor(%0, %0, 1) : f32[4]\n return %1\n}\n");
  MUST(add);
  Bytes bytes = floats({1, 2, 3, 4});
  const Bytes before = bytes;
  Foreign foreign(bytes);
  lazyt_buffer_t* handle = nullptr;
  MUST(ok("BUF-15", "import_dlpack",
          plugin().buffer->import_dlpack(device(), &foreign.tensor, nullptr, &handle)));
  BufferPtr buffer(handle);
  std::vector<Bytes> out = run("BUF-11", add, {in(buffer)});
  MUST(out.size() == 1);
  same_bytes("BUF-11", "executed x + x over the tensor's bytes", floats({2, 4, 6, 8}), out[0]);
  same_bytes("EXE-4", "looked at the tensor", before, bytes);
}

}  // namespace
}  // namespace lazyt::conformance
