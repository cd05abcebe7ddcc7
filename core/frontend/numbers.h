// Numbers: what words the numbers and strings among an operator's arguments are.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/macros/Macros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "frontend/dtype.h"
#include "trace/op.h"
#include "trace/promote.h"
#include "trace/words.h"

namespace lazyt::frontend {

inline lazyt_scalar_t scalar_bytes(const void* data, size_t size) {
  lazyt_scalar_t s{};
  if (C10_LIKELY(size == 8)) std::memcpy(s.bytes, data, 8);
  else std::memcpy(s.bytes, data, size);
  return s;
}

// Self says where words go: word(w), number(tag, value), host_scalar(dtype, weak, data); and what there is of them: has_operand(), words(), the
// first of which is an operand's then; movable(), whether numbers that are no Scalars are movable words.
template <class Self>
class Numbers {
 protected:
  C10_ALWAYS_INLINE void integer(const trace::OpArg& arg, int64_t v) {
    if (arg.type == trace::ArgType::kScalar || arg.type == trace::ArgType::kScalarList) {
      if (!arg.is_static && arg.default_int != v && holds(static_cast<double>(v))) return self().host_scalar(LAZYT_DTYPE_INT64, true, &v);
    } else if (arg.type == trace::ArgType::kDType) {
      v = from_torch(static_cast<at::ScalarType>(v));
    }
    self().number(trace::number_tag(trace::kInt, moves(arg), static_cast<uint64_t>(v)), static_cast<uint64_t>(v));
  }

  void real(const trace::OpArg& arg, double d) {
    if (!arg.is_static && (arg.type == trace::ArgType::kScalar || arg.type == trace::ArgType::kScalarList) && holds(d))
      return self().host_scalar(LAZYT_DTYPE_FLOAT64, true, &d);
    self().number(trace::number_tag(trace::kDouble, self().movable() || (arg.moves && d != 0), trace::bits_of(d)), trace::bits_of(d));  // kernels may leave out what a 0 does
  }

  void string(std::string_view text) {
    self().word(trace::tagged(trace::kString, text.size()));
    for (; !text.empty(); text.remove_prefix(std::min<size_t>(text.size(), 8))) {
      uint64_t w = 0;
      std::memcpy(&w, text.data(), std::min<size_t>(text.size(), 8));
      self().word(w);
    }
  }

  void boolean(bool v) { self().number(trace::tagged(trace::kBool), v); }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  const Self& self() const { return static_cast<const Self&>(*this); }

  // Integers to a negative power are an error, so integers move only where the operand is not integral.
  bool moves(const trace::OpArg& arg) const {
    if (!arg.moves) return self().movable() && arg.type == trace::ArgType::kInt;
    if (!self().has_operand()) return true;
    const auto dtype = static_cast<base::DType>(trace::mid_of(*self().words()));
    return trace::is_floating(dtype) || trace::is_complex(dtype);
  }

  // A number that the operand's dtype cannot hold is one that eager may refuse: part of the signature, so that it is asked.
  bool holds(double v) const {
    if (C10_LIKELY(std::abs(v) <= 127) || !self().has_operand()) return true;
    const uint64_t* w = self().words();
    while (trace::tag_of(*w) == trace::kList) w++;
    if (trace::tag_of(*w) != trace::kTensor) return true;
    switch (static_cast<base::DType>(trace::mid_of(*w))) {
      case LAZYT_DTYPE_INT8: return false;
      case LAZYT_DTYPE_UINT8: return std::abs(v) <= 255;
      case LAZYT_DTYPE_INT16: return std::abs(v) <= 32767;
      case LAZYT_DTYPE_INT32: return std::abs(v) <= 2147483647;
      case LAZYT_DTYPE_FLOAT16: return std::abs(v) <= 65504 || !std::isfinite(v);
      default: return true;
    }
  }
};

}  // namespace lazyt::frontend
