#include "frontend/dlpack.h"

#include <ATen/DLConvertor.h>

#include <memory>
#include <vector>

#include "frontend/dtype.h"
#include "frontend/errors.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"

namespace lazyt::frontend {
namespace {

// What an exported tensor stands on: the plugin's export, and the data, which is so never donated.
struct Exported {
  DLManagedTensorVersioned tensor{};
  DLManagedTensorVersioned* bytes;
  base::Ref<exec::Data> data;
  std::vector<int64_t> sizes, strides;

  ~Exported() {
    if (bytes->deleter) bytes->deleter(bytes);
  }
};

bool unsupported(const base::Status& status) { return status.code() == LAZYT_CODE_UNIMPLEMENTED; }

}  // namespace

std::pair<int32_t, int32_t> dlpack_device(uint32_t index) {
  const base::Ref<loader::Device> device = check(trace::Session::get(index).device());
  if (device->info.dlpack_type == 0 || !device->table().buffer->export_dlpack) return {kDLCPU, 0};
  return {device->info.dlpack_type, device->info.dlpack_id};
}

DLManagedTensorVersioned* to_dlpack(const at::Tensor& t) {
  const base::Ref<exec::Data> data = data_of(t);
  if (!data || t.numel() == 0 || t.is_conj() || t.is_neg()) return nullptr;
  check(data->wait(), state_of(t), data);
  if (data->opaque()) return nullptr;
  auto bytes = data->buffer()->export_dlpack();
  if (!bytes.ok() && unsupported(bytes.status())) return nullptr;
  auto e = std::make_unique<Exported>();
  e->bytes = check(std::move(bytes));
  e->data = data;
  e->sizes = t.sizes().vec();
  e->strides = t.strides().vec();
  e->tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  e->tensor.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  e->tensor.dl_tensor = e->bytes->dl_tensor;
  e->tensor.dl_tensor.ndim = static_cast<int32_t>(t.dim());
  e->tensor.dl_tensor.dtype = at::getDLDataType(t);
  e->tensor.dl_tensor.shape = e->sizes.data();
  e->tensor.dl_tensor.strides = e->strides.data();
  // Some consumers want it folded into the address.
  e->tensor.dl_tensor.data = static_cast<char*>(e->tensor.dl_tensor.data) + e->tensor.dl_tensor.byte_offset +
                             t.storage_offset() * static_cast<int64_t>(t.itemsize());
  e->tensor.dl_tensor.byte_offset = 0;
  e->tensor.manager_ctx = e.get();
  e->tensor.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Exported*>(self->manager_ctx); };
  return &e.release()->tensor;
}

at::Tensor from_dlpack(DLManagedTensorVersioned* tensor) {
  const uint32_t device = thread_state().device;
  const DLTensor& from = tensor->dl_tensor;
  const at::ScalarType type = at::toScalarType(from.dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(from_torch(type) != LAZYT_DTYPE_INVALID, "lazyt: dtype ", type, " is not supported on the device");
  const base::Meta meta = base::Meta::contiguous(from_torch(type), base::Dims(from.shape, from.shape + from.ndim));
  if (meta.numel() == 0) return {};
  const uint64_t size = static_cast<uint64_t>(meta.numel()) * c10::elementSize(type);
  auto imported = loader::Buffer::import_dlpack(check(trace::Session::get(device).device()), tensor, size);
  // What memory a backend takes is its business (geometry, alignment, memory that may only be read): else it is copied.
  if (!imported.ok() && (unsupported(imported.status()) || imported.status().code() == LAZYT_CODE_INVALID_ARGUMENT)) return {};
  // Aliased data is never donated: the memory is its owner's.
  auto owner = base::make_ref<exec::Data>(meta, size, check(std::move(imported)));
  auto data = base::make_ref<exec::Data>(meta, size);
  data->alias(owner);
  trace::Storage* state = nullptr;
  const std::vector<int64_t> strides(meta.strides.begin(), meta.strides.end());
  at::Tensor out = make_tensor({from.shape, static_cast<size_t>(from.ndim)}, strides, type, device, &state);
  std::lock_guard lock(trace::recording_lock);
  trace::Recorder::set_data(*state, std::move(data));
  return out;
}

}  // namespace lazyt::frontend
