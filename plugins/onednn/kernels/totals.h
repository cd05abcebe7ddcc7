// How reductions are added up: in f64 for floats, in int64 for integers, whatever the elements are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "vm.h"

namespace lazyt::onednn {

enum class ReduceKind : uint8_t { kSum, kProd, kMax, kMin, kAny, kAll, kCount };

// How a total is kept while it grows.
union Total {
  double d;
  int64_t i;
};

template <class T, ReduceKind kind>
struct Reducer {
  static constexpr bool kFloat = std::is_floating_point_v<T>;
  using Acc = std::conditional_t<kFloat, double, int64_t>;
  static Acc identity() {
    if constexpr (kind == ReduceKind::kProd || kind == ReduceKind::kAll) return 1;
    if constexpr (kind == ReduceKind::kMax)
      return kFloat ? static_cast<Acc>(-INFINITY) : static_cast<Acc>(INT64_MIN);
    if constexpr (kind == ReduceKind::kMin)
      return kFloat ? static_cast<Acc>(INFINITY) : static_cast<Acc>(INT64_MAX);
    return 0;
  }
  static Acc join(Acc a, Acc b) {
    if constexpr (kind == ReduceKind::kSum)
      return static_cast<Acc>(kFloat ? a + b
                                     : static_cast<Acc>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)));
    if constexpr (kind == ReduceKind::kProd)
      return static_cast<Acc>(kFloat ? a * b
                                     : static_cast<Acc>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)));
    if constexpr (kind == ReduceKind::kMax) return a != a || a > b ? a : b;
    if constexpr (kind == ReduceKind::kMin) return a != a || a < b ? a : b;
    if constexpr (kind == ReduceKind::kAny) return a != 0 || b != 0;
    if constexpr (kind == ReduceKind::kAll) return a != 0 && b != 0;
  }
  static Acc lift(T v) { return static_cast<Acc>(v); }
  static void row(Total& total, const void* in, int n) {
    auto* p = static_cast<const T*>(in);
    Acc acc = kFloat ? static_cast<Acc>(total.d) : static_cast<Acc>(total.i);
    if constexpr (std::is_same_v<T, float> && kind == ReduceKind::kSum) {
      double sum = 0;
      vm::table().sum_f32(&sum, p, n);
      acc = acc + sum;
    } else if constexpr (std::is_same_v<T, float> && (kind == ReduceKind::kMax || kind == ReduceKind::kMin)) {
      acc = join(acc, static_cast<double>(
                          (kind == ReduceKind::kMax ? vm::table().max_f32 : vm::table().min_f32)(p, n)));
    } else {
      for (int i = 0; i < n; ++i) acc = join(acc, lift(p[i]));
    }
    if constexpr (kFloat)
      total.d = acc;
    else
      total.i = acc;
  }
  static void columns(Total* totals, const void* in, int n) {
    auto* p = static_cast<const T*>(in);
    for (int i = 0; i < n; ++i) {
      if constexpr (kFloat)
        totals[i].d = join(totals[i].d, lift(p[i]));
      else
        totals[i].i = join(totals[i].i, lift(p[i]));
    }
  }
  static void combine(Total& a, const Total& b) {
    if constexpr (kFloat)
      a.d = join(a.d, b.d);
    else
      a.i = join(a.i, b.i);
  }
  static Total start() {
    Total t;
    if constexpr (kFloat)
      t.d = identity();
    else
      t.i = identity();
    return t;
  }
};

struct ReduceFunctions {
  void (*row)(Total&, const void*, int);
  void (*columns)(Total*, const void*, int);
  void (*combine)(Total&, const Total&);
  Total start;
  bool floating;
};

template <class T>
ReduceFunctions reduce_functions(ReduceKind kind) {
  auto of = [](auto reducer) {
    using R = decltype(reducer);
    return ReduceFunctions{R::row, R::columns, R::combine, R::start(), R::kFloat};
  };
  switch (kind) {
    case ReduceKind::kSum:
      return of(Reducer<T, ReduceKind::kSum>{});
    case ReduceKind::kProd:
      return of(Reducer<T, ReduceKind::kProd>{});
    case ReduceKind::kMax:
      return of(Reducer<T, ReduceKind::kMax>{});
    case ReduceKind::kMin:
      return of(Reducer<T, ReduceKind::kMin>{});
    case ReduceKind::kAny:
      return of(Reducer<T, ReduceKind::kAny>{});
    default:
      return of(Reducer<T, ReduceKind::kAll>{});
  }
}

inline ReduceFunctions reduce_functions(ReduceKind kind, vm::Type type) {
  using vm::Type;
  switch (type) {
    case Type::kBool:
      return reduce_functions<bool>(kind);
    case Type::kU8:
      return reduce_functions<uint8_t>(kind);
    case Type::kI8:
      return reduce_functions<int8_t>(kind);
    case Type::kI16:
      return reduce_functions<int16_t>(kind);
    case Type::kI32:
      return reduce_functions<int32_t>(kind);
    case Type::kI64:
      return reduce_functions<int64_t>(kind);
    case Type::kF32:
      return reduce_functions<float>(kind);
    default:
      return reduce_functions<double>(kind);
  }
}

}  // namespace lazyt::onednn
