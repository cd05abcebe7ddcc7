// Tensors of the device: plain TensorImpls over plain StorageImpls whose DataPtr carries the lazy state.
//
// data_ptr() is an address in a range reserved without access: it tells storages and offsets
// apart as in eager and is never read. The state is the DataPtr's context, so it goes
// wherever PyTorch moves the bytes (swap, set_, pickling through UntypedStorage).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "exec/data.h"
#include "trace/session.h"
#include "trace/storage.h"

namespace lazyt::frontend {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;
inline c10::Device device(uint32_t index) { return {kDeviceType, static_cast<c10::DeviceIndex>(index)}; }

inline bool is_lazy(const at::Tensor& t) { return t.defined() && t.device().type() == kDeviceType; }

c10::Allocator* allocator();

// How many elements there are of the sizes; eager's error where 64 bits do not hold the number.
int64_t checked_numel(c10::IntArrayRef sizes);

// A process that forks takes the locks that are for the death of tensors, so that its child has them free.
void free_locks_in_forks();

// The lazy state behind a tensor. Errors for layouts that have no storage (sparse, ...).
trace::Storage& state_of(const at::Tensor& t);
trace::Storage& state_of(const c10::StorageImpl& s);
void delete_state(void* context);  // the deleter by which a storage of the device is known
// Null for every other tensor.
inline trace::Storage* state_if_ours(const at::Tensor& t) {
  const c10::StorageImpl* s = t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(!s)) return nullptr;
  const c10::DataPtr& data = s->data_ptr();
  return C10_LIKELY(data.get_deleter() == &delete_state) ? static_cast<trace::Storage*>(data.get_context())
                                                         : nullptr;
}

// A tensor over a new, unwritten storage of lazyt:device. The state is filled in out_state.
at::Tensor make_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype, uint32_t device,
                       trace::Storage** out_state = nullptr);
// The same for callers that hold the recorders' mutex.
at::Tensor make_result(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype, uint32_t device,
                       trace::Storage** out_state);
// A view of self's storage. offset: in elements.
at::Tensor make_view(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset);

// t is about to show other bytes, or as another tensor: see Recorder::replaced.
void note_replaced(const at::Tensor& t);

inline trace::Session& session_of(const trace::Storage& s) { return trace::Session::get(s.device); }

// Raises the error of data, the storage's, which was waited for; from then on what the launch that failed was to write
// in place is as before it. May block.
void check(const base::Status& status, const trace::Storage& state, const base::Ref<exec::Data>& data);

// The storage's bytes: cuts the trace if they are pending in it. Null if never written. May block.
base::Ref<exec::Data> data_of(const at::Tensor& t);

// Bytes from the host, which keep owns, become the storage's value.
void upload(trace::Storage& state, base::Meta meta, const void* bytes, uint64_t size, loader::Keep keep);

// Grows or shrinks the storage; bytes kept as far as both sizes have them, new ones zero.
void resize_storage(c10::StorageImpl& storage, size_t size);

// A CPU storage with the storage's bytes. Blocks.
c10::Storage download_storage(const c10::StorageImpl& storage);

// A CPU tensor with t's values, sizes and strides (contiguous if t overlaps itself). Blocks.
at::Tensor download(const at::Tensor& t);

}  // namespace lazyt::frontend
