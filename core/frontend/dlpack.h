// dlpack: tensors that share memory with other libraries, where the backend can.
//
// What is shared is a value, not a tensor's identity: it is read-only for both sides as long as both live. A tensor
// that is written afterwards takes another buffer, and what was exported keeps the bytes it had.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/dlpack.h>

#include <utility>

namespace lazyt::frontend {

// (DLDeviceType, id) of the memory of lazyt:device; the CPU's if it exports none, as tensors then go out as copies.
std::pair<int32_t, int32_t> dlpack_device(uint32_t device);

// The tensor's values, given, with the read-only flag; null where they have to be copied: the backend exports no
// memory, or keeps these in a layout of its own. Waits for them. [any thread, without the GIL]
DLManagedTensorVersioned* to_dlpack(const at::Tensor& t);

// A tensor of the current device over the foreign one's memory; undefined where it has to be copied: the backend cannot use that memory.
// Takes `tensor` over if the result is defined. Its owner writes no more to it. [any thread, without the GIL]
at::Tensor from_dlpack(DLManagedTensorVersioned* tensor);

}  // namespace lazyt::frontend
