// dlpack.hpp - the structs of DLPack 1.x that buffer.h names (github.com/dmlc/dlpack), and exporting flat bytes.
//
// Include it instead of dlpack.h, not beside it.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_DLPACK_HPP_
#define LAZYT_DLPACK_HPP_

#include <cstddef>
#include <cstdint>
#include <utility>

extern "C" {
struct DLPackVersion {
  uint32_t major, minor;
};
struct DLDevice {
  int32_t device_type, device_id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
}

namespace lazyt {
namespace plugin __attribute__((visibility("hidden"))) {

inline constexpr int32_t kDLCPU = 1;
inline constexpr uint8_t kDLUInt = 1;
inline constexpr uint64_t kDLReadOnly = 1;

// uint8[size] over `data`; keeps `owner` until its deleter is called (given to the caller).
template <class Owner>
DLManagedTensorVersioned* export_bytes(void* data, uint64_t size, DLDevice device, Owner owner, bool read_only = false) {
  struct Managed {
    DLManagedTensorVersioned tensor;
    int64_t shape, stride;
    Owner owner;
  };
  auto* made = new Managed{{}, static_cast<int64_t>(size), 1, std::move(owner)};
  made->tensor.version = {1, 0};
  made->tensor.manager_ctx = made;
  made->tensor.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Managed*>(self->manager_ctx); };
  made->tensor.flags = read_only ? kDLReadOnly : 0;
  made->tensor.dl_tensor = {data, device, 1, {kDLUInt, 8, 1}, &made->shape, &made->stride, 0};
  return &made->tensor;
}

// Bytes of a tensor that lies row-major without gaps; -1 if it does not, or has elements of no whole bytes or of lanes.
inline int64_t dense_bytes(const DLTensor& t) {
  if (t.dtype.lanes != 1 || t.dtype.bits % 8 != 0) return -1;
  int64_t count = 1;
  for (int32_t i = t.ndim; i-- > 0;) {
    if (t.strides && t.shape[i] != 1 && t.strides[i] != count) return -1;
    count *= t.shape[i];
  }
  return count * (t.dtype.bits / 8);
}

}  // namespace plugin
}  // namespace lazyt

#endif  // LAZYT_DLPACK_HPP_
