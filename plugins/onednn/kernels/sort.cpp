// Sorting along one axis: sort, topk, kthvalue, median. Elements become integers of the same order, beside their places.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "elements.h"

namespace lazyt::onednn {
namespace {

Refusal accept_some(const ProgramView& program, const lazyt_node_t& node) {
  if (toolkit::count_of(program.dims(operand(program, node, 0))) == 0) return refuse_argument("an empty operand");
  return accept_real(program, node);
}
Refusal accept_topk(const ProgramView& program, const lazyt_node_t& node) {
  if (!is_constant(program, program.args(node)[1])) return refuse_argument("a k that changes from run to run");
  return accept_real(program, node);
}

// The bits of a float, and of its infinity.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
template <class T>
constexpr Bits<T> infinity() {
  if constexpr (std::is_same_v<T, Half>) return 0x7c00;
  else if constexpr (std::is_same_v<T, BFloat16>) return 0x7f80;
  else return std::bit_cast<Bits<T>>(std::numeric_limits<T>::infinity());
}
template <class T>
constexpr Bits<T> kSign = static_cast<Bits<T>>(Bits<T>(1) << (sizeof(T) * 8 - 1));

template <class T>
bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<Compute<T>>) return static_cast<Bits<T>>(std::bit_cast<Bits<T>>(x) & ~kSign<T>) > infinity<T>();
  else return false;
}

// As unsigned integers, in the same order: zeros are equal, NaN is the largest. Halves are not widened: this code knows no
// instruction that does it.
template <class T>
auto key_of(T x) {
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  if constexpr (std::is_floating_point_v<Compute<T>>) {
    const auto bits = std::bit_cast<Bits<T>>(x);
    if (is_nan(x)) return ~U(0);
    if (bits == kSign<T>) return U(kSign<T>);  // -0
    return U(static_cast<Bits<T>>(bits & kSign<T> ? ~bits : bits | kSign<T>));
  } else if constexpr (sizeof(T) == 8) {
    return static_cast<U>(x) ^ (U(1) << 63);
  } else {
    return static_cast<U>(static_cast<int32_t>(x)) ^ (U(1) << 31);
  }
}

// Compared by (key, place), so that any sort is stable.
struct Narrow {  // lines of less than 2^32 elements
  using Key = uint32_t;
  uint64_t both;
  static Narrow of(uint32_t key, int64_t place) { return {static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(place)}; }
  Key key() const { return static_cast<uint32_t>(both >> 32); }
  int64_t place() const { return static_cast<int64_t>(both & 0xffffffffu); }
  bool operator<(const Narrow& other) const { return both < other.both; }
};
struct Wide {
  using Key = uint64_t;
  uint64_t value;
  int64_t at;
  static Wide of(uint64_t key, int64_t place) { return {key, place}; }
  Key key() const { return value; }
  int64_t place() const { return at; }
  bool operator<(const Wide& other) const { return value != other.value ? value < other.value : at < other.at; }
};

// Byte by byte from the lowest, keeping the order of equals; a byte that is the same everywhere is passed over.
template <class E>
void radix_sort(E* x, E* other, int64_t n) {
  constexpr int bytes = sizeof(typename E::Key);
  uint32_t counts[bytes][256] = {};
  for (int64_t i = 0; i < n; ++i)
    for (int b = 0; b < bytes; ++b) ++counts[b][x[i].key() >> (8 * b) & 0xff];
  E* from = x;
  E* to = other;
  for (int b = 0; b < bytes; ++b) {
    uint32_t* count = counts[b];
    if (count[from[0].key() >> (8 * b) & 0xff] == n) continue;
    uint32_t sum = 0;
    for (int d = 0; d < 256; ++d) sum += std::exchange(count[d], sum);
    for (int64_t i = 0; i < n; ++i) to[count[from[i].key() >> (8 * b) & 0xff]++] = from[i];
    std::swap(from, to);
  }
  if (from != x) std::copy_n(from, n, x);
}

enum class Sorting { kSort, kTopk, kNth, kMedian };

// sort, topk: the first `count` of the sorted line; kthvalue, median: one of them.
struct SortPlan {
  Sorting kind;
  size_t axis;
  int64_t k;
  bool descending;
};

// Whether one of n elements may come before `last`; NaN always may.
template <class T>
LAZYT_INLINE bool some_before(const T* x, int64_t n, Compute<T> last, bool descending) {
  int some = last != last;
  if (descending) {
#pragma omp simd reduction(| : some)
    for (int64_t i = 0; i < n; ++i) some |= (widen(x[i]) > last) | (widen(x[i]) != widen(x[i]));
  } else {
#pragma omp simd reduction(| : some)
    for (int64_t i = 0; i < n; ++i) some |= widen(x[i]) < last;
  }
  return some;
}
#define LAZYT_SOME(T) \
  LAZYT_CLONES bool some_before_of(const T* x, int64_t n, Compute<T> last, bool descending) { return some_before(x, n, last, descending); }
LAZYT_SOME(float)
LAZYT_SOME(double)
LAZYT_SOME(Half)
LAZYT_SOME(BFloat16)
LAZYT_SOME(int16_t)
LAZYT_SOME(int32_t)
LAZYT_SOME(int64_t)
#undef LAZYT_SOME

constexpr int64_t kFew = 32;

// The first k <= kFew of n elements, in order: they are kept sorted while the line goes by.
template <class E, class T>
void few_of(E* first, const T* x, int64_t step, int64_t n, int64_t k, bool descending) {
  constexpr int64_t kChunk = 64;
  auto element = [&](int64_t i) {
    const auto key = key_of(x[i * step]);
    return E::of(descending ? ~key : key, i);
  };
  for (int64_t i = 0; i < k; ++i) first[i] = element(i);
  std::sort(first, first + k);
  for (int64_t begin = k; begin < n; begin += kChunk) {
    const int64_t end = std::min(n, begin + kChunk);
    if constexpr (sizeof(T) > 1)
      if (step == 1 && !some_before_of(x + begin, end - begin, widen(x[first[k - 1].place()]), descending)) continue;
    for (int64_t i = begin; i < end; ++i) {
      const E e = element(i);
      if (!(e < first[k - 1])) continue;
      int64_t to = k - 1;
      for (; to > 0 && e < first[to - 1]; --to) first[to] = first[to - 1];
      first[to] = e;
    }
  }
}

// The first k of all, in order, at the front.
template <class E>
void first_of(E* x, E* other, int64_t n, int64_t k) {
  constexpr int64_t kRadix = 128;
  if (k == 0) return;
  if (k == n && n >= kRadix && n < INT32_MAX) return radix_sort(x, other, n);
  if (k < n) std::nth_element(x, x + k - 1, x + n);
  std::sort(x, x + k);
}

// Where the k-th of n elements lies, of equals as a stable sort places them. nan_first: the first NaN, if there is one.
template <class Key, class T>
int64_t nth_place(Key* keys, const T* x, int64_t step, int64_t n, int64_t k, bool nan_first) {
  for (int64_t i = 0; i < n; ++i) {
    const T v = x[i * step];
    if (nan_first && is_nan(v)) return i;
    keys[i] = key_of(v);
  }
  std::nth_element(keys, keys + k, keys + n);
  const Key nth = keys[k];
  int64_t equals_before = std::count(keys, keys + k, nth), place = 0;
  while (key_of(x[place * step]) != nth || equals_before-- > 0) ++place;
  return place;
}

template <class E, class T>
void sort_lines(const Frame& frame, const SortPlan& plan, const Lines<2>& lines, const T* x, T* y, int64_t* p, E* all) {
  const int64_t n = lines.n, k = plan.k;
  std::array<const Dims*, 2> strides = {&lines.strides[0], &lines.strides[1]};
  parallel(frame, lines.count(), lines.count() * n * 8, [&](int64_t begin, int64_t end) {
    Odometer<2> at(lines.dims, strides, begin);
    for (int64_t line = begin; line < end; ++line, at.next()) {
      E* own = all + line * n * 2;
      const T* from = x + at.offsets[0];
      auto put = [&](int64_t to, int64_t place) {
        y[to] = from[place * lines.step[0]];
        p[to] = place;
      };
      const bool sorts = plan.kind == Sorting::kSort || plan.kind == Sorting::kTopk;
      if (sorts && k > 0 && k <= kFew && k * 4 <= n) {
        few_of(own, from, lines.step[0], n, k, plan.descending);
        for (int64_t i = 0; i < k; ++i) put(at.offsets[1] + i * lines.step[1], own[i].place());
        continue;
      }
      if (!sorts) {
        put(at.offsets[1], nth_place(reinterpret_cast<typename E::Key*>(own), from, lines.step[0], n, k, plan.kind == Sorting::kMedian));
        continue;
      }
      for (int64_t i = 0; i < n; ++i) {
        const auto key = key_of(from[i * lines.step[0]]);
        own[i] = E::of(plan.descending ? ~key : key, i);
      }
      first_of(own, own + n, n, k);
      for (int64_t i = 0; i < k; ++i) put(at.offsets[1] + i * lines.step[1], own[i].place());
    }
  });
}

void lower_sorting(Builder& b, const lazyt_node_t& node, const SortPlan& plan) {
  const Tensor in = tensor_at(b, b.program.args(node)[0]);
  const Tensor values = b.make_dense(node.results), places = b.make_dense(node.results + 1);
  Layout axis_in = in.layout, out;
  const bool reduces = plan.kind == Sorting::kNth || plan.kind == Sorting::kMedian;
  size_t axis = plan.axis;
  Tensor x_in = in;
  if (reduces) {
    std::vector<bool> reduced(in.dims().size(), false);
    if (!reduced.empty()) reduced[plan.axis] = true;
    x_in = with_last_axis(b, in, reduced);
    axis = x_in.dims().size() - 1;
    axis_in = x_in.layout;
    out = beside_axis(values, axis_in);
  } else {
    out = values.layout;
    if (out.rank()) out.dims[axis] = axis_in.dims[axis];  // only counted
  }
  const auto lines = lines_of<2>({axis_in, out}, axis, false);
  // Each line has room of its own, and as much again: threads share nothing, whatever their number.
  const bool wide = in.element() == 8 || lines.n > UINT32_MAX;
  const Tensor order = b.scratch(LAZYT_DTYPE_INT64, {lines.count() * lines.n * 2 * (wide ? 2 : 1)});
  with_real(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add("sort", {x_in.storage}, {values.storage, places.storage, order.storage}, [=](const Frame& frame) {
      const T* x = frame.at<T>(x_in);
      T* y = frame.at<T>(values);
      int64_t* p = frame.at<int64_t>(places);
      std::byte* all = frame.at<std::byte>(order);
      if constexpr (sizeof(T) < 8)
        if (!wide) return sort_lines(frame, plan, lines, x, y, p, reinterpret_cast<Narrow*>(all));
      sort_lines(frame, plan, lines, x, y, p, reinterpret_cast<Wide*>(all));
    });
  });
}

int64_t length_of(Builder& b, const lazyt_node_t& node, size_t axis) {
  const Dims dims = b.dims(b.value_of(b.program.args(node)[0]));
  return dims.empty() ? 1 : dims[axis];
}
size_t axis_or_last(const ProgramView& program, const lazyt_node_t& node, uint64_t arg) {
  const int64_t axis = int_at(program, node, arg);
  const int64_t rank = static_cast<int64_t>(operand(program, node, 0).rank);
  return static_cast<size_t>(rank == 0 ? 0 : axis < 0 ? axis + rank : axis);
}
template <uint64_t kAxis>
void lower_sort(Builder& b, const lazyt_node_t& node) {
  const size_t axis = axis_or_last(b.program, node, kAxis);
  lower_sorting(b, node, {Sorting::kSort, axis, length_of(b, node, axis), b.bool_of(b.program.args(node)[kAxis + 1])});
}
void lower_topk(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  lower_sorting(b, node, {Sorting::kTopk, axis_or_last(b.program, node, 2), b.int_of(args[1]), b.bool_of(args[3])});
}
void lower_kthvalue(Builder& b, const lazyt_node_t& node) {
  lower_sorting(b, node, {Sorting::kNth, axis_or_last(b.program, node, 2), b.int_of(b.program.args(node)[1]) - 1, false});
}
void lower_median(Builder& b, const lazyt_node_t& node) {
  const size_t axis = axis_or_last(b.program, node, 1);
  lower_sorting(b, node, {Sorting::kMedian, axis, (length_of(b, node, axis) - 1) / 2, false});
}

}  // namespace

void register_sort(Operators& all) {
  auto opaque = [&](lazyt_op_t op, toolkit::Accept accept, Operator::Lower lower) { all.add(op, {toolkit::Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_SORT, accept_real, lower_sort<1>);
  opaque(LAZYT_OP_SORT_STABLE, accept_real, lower_sort<2>);
  opaque(LAZYT_OP_TOPK, accept_topk, lower_topk);
  opaque(LAZYT_OP_KTHVALUE, accept_some, lower_kthvalue);
  opaque(LAZYT_OP_MEDIAN_DIM, accept_some, lower_median);
}

}  // namespace lazyt::onednn
