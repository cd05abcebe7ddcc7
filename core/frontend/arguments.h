// Arguments: walking over the tensors of a boxed call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "frontend/storage.h"

namespace lazyt::frontend {

// v with each of its tensors replaced by f(tensor), in lists too.
template <class F>
c10::IValue map_tensors(const c10::IValue& v, F&& f) {
  if (v.isTensor()) return f(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const auto& e : v.toListRef()) out.push_back(f(e.toTensor()));
    return out;
  }
  if (v.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> out;
    for (const auto& e : v.toListRef()) out.push_back(e.isNone() ? std::nullopt : std::optional<at::Tensor>(f(e.toTensor())));
    return out;
  }
  return v;
}

// v with each tensor of our device replaced by f(tensor), and the device by another; other tensors stay.
// Generators of our device become None.
template <class F>
c10::IValue replace(const c10::IValue& v, c10::Device device, F&& f) {
  if (v.isDevice()) return device;
  if (v.isGenerator() && v.toGenerator().device().type() == kDeviceType) return {};
  return map_tensors(v, [&](const at::Tensor& t) { return is_lazy(t) ? f(t) : t; });
}

template <class F>
torch::jit::Stack replace(c10::ArrayRef<c10::IValue> args, c10::Device device, F&& f) {
  torch::jit::Stack out;
  for (const c10::IValue& a : args) out.push_back(replace(a, device, f));
  return out;
}

// Tensors of a result or argument, in order; undefined ones too.
inline void collect(std::vector<at::Tensor>& out, const c10::IValue& v) {
  if (v.isTensor()) out.push_back(v.toTensor());
  else if (v.isNone()) out.emplace_back();
  else for (const auto& e : v.toListRef()) out.push_back(e.isNone() ? at::Tensor() : e.toTensor());
}

// The device of the first tensor of ours; without one, that which an argument names.
inline std::optional<c10::Device> device_of(c10::ArrayRef<c10::IValue> args) {
  std::optional<c10::Device> named;
  for (const c10::IValue& arg : args) {
    if (arg.isDevice() && arg.toDevice().type() == kDeviceType) named = arg.toDevice();
    if (!arg.isTensor() && !arg.isTensorList() && !arg.isOptionalTensorList()) continue;
    std::vector<at::Tensor> tensors;
    collect(tensors, arg);
    for (const at::Tensor& t : tensors)
      if (is_lazy(t)) return t.device();
  }
  return named;
}

inline bool is_mask(const at::Tensor& t) { return t.scalar_type() == at::kBool || t.scalar_type() == at::kByte; }

// A boolean or byte tensor in a list of the call: an index whose number of elements depends on its values.
inline bool has_mask(c10::ArrayRef<c10::IValue> args) {
  for (const c10::IValue& arg : args) {
    if (!arg.isList() || arg.isIntList()) continue;
    for (const c10::IValue& e : arg.toListRef())
      if (e.isTensor() && is_mask(e.toTensor())) return true;
  }
  return false;
}

}  // namespace lazyt::frontend
