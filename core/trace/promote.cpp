#include "trace/promote.h"

#include <algorithm>

namespace lazyt::trace {
namespace {

using base::DType;

// Of two dtypes of any kinds; the order of categories is bool < integral < floating < complex.
DType join(DType a, DType b) {
  if (a == b || b == LAZYT_DTYPE_INVALID) return a;
  if (a == LAZYT_DTYPE_INVALID) return b;
  if (is_complex(a) || is_complex(b)) {
    auto part = [](DType d) {
      switch (d) {
        case LAZYT_DTYPE_COMPLEX32: return LAZYT_DTYPE_FLOAT16;
        case LAZYT_DTYPE_COMPLEX64: return LAZYT_DTYPE_FLOAT32;
        case LAZYT_DTYPE_COMPLEX128: return LAZYT_DTYPE_FLOAT64;
        default: return d;
      }
    };
    DType f = join(part(a), part(b));
    if (f == LAZYT_DTYPE_FLOAT64) return LAZYT_DTYPE_COMPLEX128;
    return f == LAZYT_DTYPE_FLOAT16 ? LAZYT_DTYPE_COMPLEX32 : LAZYT_DTYPE_COMPLEX64;
  }
  if (is_floating(a) || is_floating(b)) {
    if (!is_floating(a)) return b;
    if (!is_floating(b)) return a;
    if (a == LAZYT_DTYPE_FLOAT64 || b == LAZYT_DTYPE_FLOAT64) return LAZYT_DTYPE_FLOAT64;
    return LAZYT_DTYPE_FLOAT32;  // two different narrower ones, as float16 with bfloat16
  }
  if (a == LAZYT_DTYPE_BOOL) return b;
  if (b == LAZYT_DTYPE_BOOL) return a;
  auto is_unsigned = [](DType d) {
    return d == LAZYT_DTYPE_UINT8 || d == LAZYT_DTYPE_UINT16 || d == LAZYT_DTYPE_UINT32 || d == LAZYT_DTYPE_UINT64;
  };
  if (is_unsigned(a) == is_unsigned(b)) return lazyt_dtype_size(a) >= lazyt_dtype_size(b) ? a : b;
  DType s = is_unsigned(a) ? b : a, u = is_unsigned(a) ? a : b;
  if (lazyt_dtype_size(s) > lazyt_dtype_size(u)) return s;
  return u == LAZYT_DTYPE_UINT8 ? LAZYT_DTYPE_INT16 : u == LAZYT_DTYPE_UINT16 ? LAZYT_DTYPE_INT32 : LAZYT_DTYPE_INT64;
}

int category(DType d) {
  if (d == LAZYT_DTYPE_INVALID) return -1;
  return is_complex(d) ? 3 : is_floating(d) ? 2 : is_integral(d) ? 1 : 0;
}

DType complex_of(DType f) {
  switch (f) {
    case LAZYT_DTYPE_FLOAT64: return LAZYT_DTYPE_COMPLEX128;
    case LAZYT_DTYPE_FLOAT16: return LAZYT_DTYPE_COMPLEX32;
    default: return LAZYT_DTYPE_COMPLEX64;
  }
}

}  // namespace

bool is_floating(DType d) {
  return (d >= LAZYT_DTYPE_FLOAT16 && d <= LAZYT_DTYPE_FLOAT64) ||
         (d >= LAZYT_DTYPE_FLOAT8_E4M3FN && d <= LAZYT_DTYPE_FLOAT8_E8M0FNU);
}
bool is_complex(DType d) { return d >= LAZYT_DTYPE_COMPLEX32 && d <= LAZYT_DTYPE_COMPLEX128; }
bool is_integral(DType d) { return d >= LAZYT_DTYPE_UINT8 && d <= LAZYT_DTYPE_INT64; }

DType promote(std::span<const PromoteOperand> operands, DType default_float) {
  DType by_rank[3] = {};
  for (const PromoteOperand& o : operands) {
    DType dtype = o.dtype;
    if (o.rank == Rank::kNumber) {  // a Python number has a category, not a width
      if (is_floating(dtype)) dtype = default_float;
      if (is_complex(dtype)) dtype = complex_of(default_float);
    }
    DType& d = by_rank[static_cast<int>(o.rank)];
    d = join(d, dtype);
  }
  // A weaker rank matters only when its category is higher.
  auto over = [](DType strong, DType weak) {
    if (category(weak) <= category(strong)) return strong;
    if (is_complex(weak) && is_floating(strong)) return complex_of(strong);
    return weak;
  };
  DType out = by_rank[2];
  out = over(out, by_rank[1]);
  return over(out, by_rank[0]);
}

}  // namespace lazyt::trace
