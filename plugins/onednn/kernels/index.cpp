// Reading and writing at places that tensors name. Places are checked before anything is written; what several
// places write to one element happens in the order of the places, whatever the threads.
#include <atomic>
#include <cstring>
#include <limits>

#include "elements.h"

namespace lazyt::onednn {
namespace {

// ---- places

enum class Negative : uint8_t { kWraps, kIsError };
enum class Message : uint8_t { kBounds, kSelf, kTake };

[[noreturn]] void bad_index(Message message, int64_t index, int64_t dim, int64_t size) {
  switch (message) {
    case Message::kSelf: throw plugin::Error(LAZYT_CODE_OUT_OF_RANGE, "index out of range in self");
    case Message::kTake:
      throw plugin::Error(LAZYT_CODE_OUT_OF_RANGE, "out of range: tried to access index " + std::to_string(index) +
                                                       " on a tensor of " + std::to_string(size) + " elements.");
    default:
      throw plugin::Error(LAZYT_CODE_OUT_OF_RANGE, "index " + std::to_string(index) + " is out of bounds for dimension " +
                                                       std::to_string(dim) + " with size " + std::to_string(size));
  }
}

// An index tensor with the dim it counts in.
struct Index {
  Tensor tensor;  // int64, of the dims of all indices
  int64_t dim, size, stride;
};

// Where in a tensor a list of indices leads: offset[i] from its first element, for i over the dims of the indices.
struct Places {
  std::vector<Index> indices;
  Dims dims;
  Tensor offsets;  // int64
  Negative negative;
  Message message;

  int64_t count() const { return toolkit::count_of(dims); }

  void run(const Frame& frame) const {
    int64_t* out = frame.at<int64_t>(offsets);
    const int64_t n = count();
    for (size_t k = 0; k < indices.size(); ++k) {
      const Index& index = indices[k];
      const int64_t* in = frame.at<int64_t>(index.tensor);
      std::atomic<int64_t> first_bad{n};
      const bool dense = index.tensor.layout.is_dense();
      parallel(frame, n, n * 4, [&](int64_t begin, int64_t end) {
        Odometer<1> at(dims, {&index.tensor.strides()}, begin);
        for (int64_t i = begin; i < end; ++i) {
          int64_t place = in[dense ? i : at.offsets[0]];
          if (!dense) at.next();
          if (place < 0 && negative == Negative::kWraps) place += index.size;
          if (place < 0 || place >= index.size) {
            int64_t seen = first_bad.load();
            while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
            }
            return;
          }
          out[i] = (k ? out[i] : 0) + place * index.stride;
        }
      });
      if (const int64_t bad = first_bad.load(); bad < n)
        bad_index(message, in[Odometer<1>(dims, {&index.tensor.strides()}, bad).offsets[0]], index.dim, index.size);
    }
  }
};

Tensor as_int64(Builder& b, const Tensor& t) { return t.dtype == LAZYT_DTYPE_INT64 ? t : dense_as(b, t, LAZYT_DTYPE_INT64); }

Tensor broadcast(Tensor t, const Dims& dims) {
  const size_t added = dims.size() - t.dims().size();
  Layout layout{t.layout.offset, dims, Dims(dims.size(), 0)};
  for (size_t d = 0; d < t.dims().size(); ++d)
    if (t.dims()[d] == dims[added + d] && dims[added + d] != 1) layout.strides[added + d] = t.strides()[d];
  t.layout = layout;
  return t;
}

// A tensor seen as [before...][places][after...]: `beside` is another tensor of dims (before, dims of places, after).
struct Indexed {
  Places places;
  Dims before, after;
  Dims before_strides, after_strides;  // of the indexed tensor
};

// `self` indexed by one tensor along `dim` (of a rank 0 tensor: its only element).
Indexed index_along(Builder& b, const Tensor& self, int64_t dim, const Tensor& index, Negative negative, Message message) {
  Indexed out;
  const Tensor index64 = as_int64(b, index);
  const bool scalar = self.dims().empty();
  const auto d = static_cast<size_t>(dim);
  out.places = {{{index64, dim, scalar ? 1 : self.dims()[d], scalar ? 1 : self.strides()[d]}}, index64.dims(), {}, negative, message};
  for (size_t i = 0; i < self.dims().size(); ++i) {
    if (i == d) continue;
    (i < d ? out.before : out.after).push_back(self.dims()[i]);
    (i < d ? out.before_strides : out.after_strides).push_back(self.strides()[i]);
  }
  out.places.offsets = b.scratch(LAZYT_DTYPE_INT64, {out.places.count()});
  return out;
}

// `self` indexed by the list of argument `arg`, as Python's self[a, b, :, ...].
Indexed index_by_list(Builder& b, const lazyt_arg_t& list, const Tensor& self) {
  Indexed out;
  const auto elements = b.program.elements(list);
  Dims dims;
  std::vector<bool> is_indexed(self.dims().size(), false);
  for (uint64_t i = 0; i < elements.size(); ++i) {
    if (b.is_none(elements[i])) continue;
    is_indexed[i] = true;
    const Dims own = b.dims(b.value_of(elements[i]));
    if (own.size() > dims.size()) dims.insert(dims.begin(), own.size() - dims.size(), 1);
    for (size_t k = 0; k < own.size(); ++k) {
      int64_t& d = dims[dims.size() - own.size() + k];
      if (d == 1) d = own[k];
    }
  }
  const auto first = std::find(is_indexed.begin(), is_indexed.end(), true);
  const auto gap = std::find(first, is_indexed.end(), false);
  const bool adjacent = std::find(gap, is_indexed.end(), true) == is_indexed.end();
  bool seen = false;
  for (size_t d = 0; d < self.dims().size(); ++d) {
    if (is_indexed[d]) {
      seen = true;
      const Tensor index = broadcast(as_int64(b, tensor_at(b, elements[d])), dims);
      out.places.indices.push_back({index, static_cast<int64_t>(d), self.dims()[d], self.strides()[d]});
    } else {
      const bool is_before = adjacent && !seen;
      (is_before ? out.before : out.after).push_back(self.dims()[d]);
      (is_before ? out.before_strides : out.after_strides).push_back(self.strides()[d]);
    }
  }
  out.places.dims = dims;
  out.places.offsets = b.scratch(LAZYT_DTYPE_INT64, {toolkit::count_of(dims)});
  out.places.negative = Negative::kWraps;
  out.places.message = Message::kBounds;
  return out;
}

// How an indexed tensor A and a tensor B beside it are walked: outer loops, then places, then a run of n elements.
struct Walk {
  Dims outer;                    // before, and after but its innermost run
  std::array<Dims, 2> strides;   // of A and B
  int64_t n = 1, step_a = 1, step_b = 1;
  Dims place_dims, place_strides;  // of B
  int64_t outer_count() const { return toolkit::count_of(outer); }
};

Walk walk_of(const Indexed& x, const Layout& beside) {
  Walk out;
  const size_t before = x.before.size(), places = x.places.dims.size();
  const Dims sb(beside.strides.begin(), beside.strides.begin() + static_cast<std::ptrdiff_t>(before));
  const Dims sp(beside.strides.begin() + static_cast<std::ptrdiff_t>(before),
                beside.strides.begin() + static_cast<std::ptrdiff_t>(before + places));
  const Dims sa(beside.strides.begin() + static_cast<std::ptrdiff_t>(before + places), beside.strides.end());
  auto loops = [](const Dims& dims, const Dims& a, const Dims& c) {
    std::vector<size_t> order(dims.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const std::array<Dims, 2> both = {a, c};
    return toolkit::collapse(dims, both, order);
  };
  const auto first = loops(x.before, x.before_strides, sb), last = loops(x.after, x.after_strides, sa);
  const auto named = loops(x.places.dims, sp, sp);
  out.place_dims = named.dims;
  out.place_strides = named.strides[0];
  out.outer = first.dims;
  out.outer.insert(out.outer.end(), last.dims.begin(), last.dims.end() - 1);
  for (size_t k = 0; k < 2; ++k) {
    out.strides[k] = first.strides[k];
    out.strides[k].insert(out.strides[k].end(), last.strides[k].begin(), last.strides[k].end() - 1);
  }
  out.n = last.dims.back();
  out.step_a = last.strides[0].back();
  out.step_b = last.strides[1].back();
  return out;
}

// f(offset in A, offset in B, n) for each run, the places in order. Split between the threads by what does not
// depend on the places: outer loops, or the run.
template <class F>
void for_writes(const Frame& frame, const Walk& walk, const int64_t* offsets, F f) {
  const int64_t places = toolkit::count_of(walk.place_dims), outer = walk.outer_count();
  auto part = [&](int64_t begin, int64_t end, int64_t first, int64_t last) {
    if (places == 0 || first == last) return;
    Odometer<2> at(walk.outer, {&walk.strides[0], &walk.strides[1]}, begin);
    for (int64_t i = begin; i < end; ++i, at.next()) {
      Odometer<1> place(walk.place_dims, {&walk.place_strides});
      for (int64_t p = 0; p < places; ++p, place.next())
        f(at.offsets[0] + offsets[p] + first * walk.step_a, at.offsets[1] + place.offsets[0] + first * walk.step_b, last - first);
    }
  };
  const int64_t work = outer * places * walk.n;
  if (outer > 1)
    parallel(frame, outer, work, [&](int64_t begin, int64_t end) { part(begin, end, 0, walk.n); });
  else if (outer == 1)
    parallel(frame, walk.n, work, [&](int64_t begin, int64_t end) { part(0, 1, begin, end); });
}
// The same where no order is needed: split by outer loops and places.
template <class F>
void for_reads(const Frame& frame, const Walk& walk, const int64_t* offsets, F f) {
  const int64_t places = toolkit::count_of(walk.place_dims), outer = walk.outer_count();
  parallel(frame, outer * places, outer * places * walk.n, [&](int64_t begin, int64_t end) {
    Odometer<2> at(walk.outer, {&walk.strides[0], &walk.strides[1]}, begin / places);
    int64_t p = begin % places;
    Odometer<1> place(walk.place_dims, {&walk.place_strides}, p);
    for (int64_t i = begin; i < end; ++i) {
      f(at.offsets[0] + offsets[p], at.offsets[1] + place.offsets[0], walk.n);
      place.next();
      if (++p == places) p = 0, at.next();
    }
  });
}

std::vector<StorageId> index_storages(const Places& places) {
  std::vector<StorageId> out;
  for (const Index& i : places.indices) out.push_back(i.tensor.storage);
  return out;
}

// out[..., place, ...] = self[...]
void add_read(Builder& b, const char* name, const Tensor& self, const Indexed& indexed, const Tensor& out) {
  const Walk walk = walk_of(indexed, out.layout);
  auto reads = index_storages(indexed.places);
  reads.push_back(self.storage);
  with_bytes(self.element(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add(name, reads, {out.storage, indexed.places.offsets.storage}, [=, places = indexed.places](const Frame& frame) {
      places.run(frame);
      const T* x = frame.at<T>(self);
      T* y = frame.at<T>(out);
      const int64_t* offsets = frame.at<int64_t>(places.offsets);
      if (walk.n == 1 && walk.place_dims.size() == 1 && walk.outer_count() > 1) {  // columns: a row at a time
        const int64_t outer = walk.outer_count(), n = walk.place_dims[0], step = walk.place_strides[0];
        parallel(frame, outer, outer * n, [&](int64_t begin, int64_t end) {
          Odometer<2> at(walk.outer, {&walk.strides[0], &walk.strides[1]}, begin);
          for (int64_t i = begin; i < end; ++i, at.next())
            for (int64_t p = 0; p < n; ++p) y[at.offsets[1] + p * step] = x[at.offsets[0] + offsets[p]];
        });
        return;
      }
      for_reads(frame, walk, offsets, [&](int64_t from, int64_t to, int64_t n) {
        if (n == 1)
          y[to] = x[from];
        else if (walk.step_a == 1 && walk.step_b == 1)
          std::memcpy(y + to, x + from, static_cast<size_t>(n) * sizeof(T));
        else
          for (int64_t i = 0; i < n; ++i) y[to + i * walk.step_b] = x[from + i * walk.step_a];
      });
    });
  });
}

// out[..., place, ...] = source[...], in the order of the places. REQUIRES: out holds self.
void add_write(Builder& b, const char* name, const Tensor& out, const Indexed& indexed, const Tensor& source) {
  const Walk walk = walk_of(indexed, source.layout);
  auto reads = index_storages(indexed.places);
  reads.push_back(source.storage);
  reads.push_back(out.storage);
  with_bytes(out.element(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add(name, reads, {out.storage, indexed.places.offsets.storage}, [=, places = indexed.places](const Frame& frame) {
      places.run(frame);
      const T* x = frame.at<T>(source);
      T* y = frame.at<T>(out);
      for_writes(frame, walk, frame.at<int64_t>(places.offsets), [&](int64_t to, int64_t from, int64_t n) {
        if (n == 1)
          y[to] = x[from];
        else if (walk.step_a == 1 && walk.step_b == 1)
          std::memcpy(y + to, x + from, static_cast<size_t>(n) * sizeof(T));
        else
          for (int64_t i = 0; i < n; ++i) y[to + i * walk.step_a] = x[from + i * walk.step_b];
      });
    });
  });
}

template <class T>
T plus(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else
    return narrow<T>(static_cast<Compute<T>>(widen(a) + widen(b)));
}
template <class T>
T times(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a && b;
  else
    return narrow<T>(static_cast<Compute<T>>(widen(a) * widen(b)));
}

// out[..., place, ...] += alpha * source[...]. REQUIRES: out holds self.
void add_accumulate(Builder& b, const char* name, const Tensor& out, const Indexed& indexed, const Tensor& source, Number alpha) {
  const Walk walk = walk_of(indexed, source.layout);
  auto reads = index_storages(indexed.places);
  reads.push_back(source.storage);
  reads.push_back(out.storage);
  with_real(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add(name, reads, {out.storage, indexed.places.offsets.storage}, [=, places = indexed.places](const Frame& frame) {
      places.run(frame);
      const T* x = frame.at<T>(source);
      T* y = frame.at<T>(out);
      using C = Compute<T>;
      const C scale = kIsFloat<T> ? static_cast<C>(frame.as_double(alpha)) : static_cast<C>(frame.as_int(alpha));
      const bool scaled = scale != C(1);
      for_writes(frame, walk, frame.at<int64_t>(places.offsets), [&](int64_t to, int64_t from, int64_t n) {
        T* __restrict o = y + to;
        const T* __restrict s = x + from;
        if (!scaled && walk.step_a == 1 && walk.step_b == 1) {
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) o[i] = plus(o[i], s[i]);
        } else {
          for (int64_t i = 0; i < n; ++i) {
            T& element = o[i * walk.step_a];
            const T value = s[i * walk.step_b];
            element = plus(element, scaled ? times(value, narrow<T>(scale)) : value);
          }
        }
      });
    });
  });
}

Number one() {
  Number n;
  n.d = 1;
  n.i = 1;
  n.integral = true;
  return n;
}

// A dense copy of operand 0 as the result, to be written to.
Tensor begin_from_self(Builder& b, const lazyt_node_t& node) {
  const Tensor self = tensor_at(b, b.program.args(node)[0]);
  const Tensor out = b.make_dense(node.results);
  b.copy(self, out);
  return out;
}

// ---- accepts

Refusal accept_moving(const ProgramView& program, const lazyt_node_t& node, uint64_t index, bool arithmetic) {
  const lazyt_value_t& self = operand(program, node, 0);
  if (arithmetic ? !is_real(self.dtype) : !is_movable(self.dtype)) return refuse_dtype(self.dtype);
  const lazyt_arg_t& arg = program.args(node)[index];
  if (arg.kind == LAZYT_ARG_LIST) {
    bool some = false;
    for (const lazyt_arg_t& element : program.elements(arg)) {
      if (element.kind == LAZYT_ARG_NONE) continue;
      const lazyt_dtype_t dtype = program.values()[element.payload].dtype;
      if (!is_index(dtype)) return refuse_dtype(dtype);
      some = true;
    }
    if (!some) return refuse_argument("no index");
  } else if (!is_index(operand(program, node, index).dtype)) {
    return refuse_dtype(operand(program, node, index).dtype);
  }
  return accepted();
}
template <uint64_t kIndex>
Refusal accept_move(const ProgramView& program, const lazyt_node_t& node) {
  return accept_moving(program, node, kIndex, false);
}
// With a source (argument kSource) of self's dtype.
template <uint64_t kIndex, uint64_t kSource, bool kArithmetic>
Refusal accept_source(const ProgramView& program, const lazyt_node_t& node) {
  if (operand(program, node, kSource).dtype != operand(program, node, 0).dtype) return refuse_dtype(operand(program, node, kSource).dtype);
  return accept_moving(program, node, kIndex, kArithmetic);
}
Refusal accept_index_put(const ProgramView& program, const lazyt_node_t& node) {
  return program.args(node)[3].payload ? accept_source<1, 2, true>(program, node) : accept_source<1, 2, false>(program, node);
}
Refusal accept_value(const ProgramView& program, const lazyt_node_t& node) {
  if (program.args(node)[3].kind == LAZYT_ARG_COMPLEX) return refuse_argument("a complex value");
  return accept_moving(program, node, 2, true);
}

// ---- reads

void lower_index(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor self = tensor_at(b, args[0]);
  const Indexed indexed = index_by_list(b, args[1], self);
  add_read(b, "index", self, indexed, b.make_dense(node.results));
}
void lower_index_select(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor self = tensor_at(b, args[0]);
  Tensor index = tensor_at(b, args[2]), out = b.make_dense(node.results);
  if (index.dims().empty()) index = broadcast(index, {1});
  if (out.dims().empty()) out = broadcast(out, {1});
  add_read(b, "index_select", self, index_along(b, self, b.int_of(args[1]), index, Negative::kIsError, Message::kSelf), out);
}
void lower_embedding(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor weight = tensor_at(b, args[0]), index = tensor_at(b, args[1]);
  add_read(b, "embedding", weight, index_along(b, weight, 0, index, Negative::kIsError, Message::kSelf), b.make_dense(node.results));
}
void lower_take(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  Tensor self = b.dense(tensor_at(b, args[0]));
  self.layout = *self.layout.reshaped(Dims{self.count()});
  const Tensor index = tensor_at(b, args[1]);
  add_read(b, "take", self, index_along(b, self, 0, index, Negative::kWraps, Message::kTake), b.make_dense(node.results));
}

// ---- writes

void lower_index_put(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor out = begin_from_self(b, node);
  const Indexed indexed = index_by_list(b, args[1], out);
  Dims dims = indexed.before;
  dims.insert(dims.end(), indexed.places.dims.begin(), indexed.places.dims.end());
  dims.insert(dims.end(), indexed.after.begin(), indexed.after.end());
  const Tensor source = broadcast(tensor_at(b, args[2]), dims);
  if (b.bool_of(args[3]))
    add_accumulate(b, "index_put accumulate", out, indexed, source, one());
  else
    add_write(b, "index_put", out, indexed, source);
}

// index_add, index_copy: index of rank 0 or 1, source of self's dims but along `dim`.
struct Along {
  Tensor out, source;
  Indexed indexed;
};
Along begin_along(Builder& b, const lazyt_node_t& node, Message message) {
  const auto args = b.program.args(node);
  Along x;
  x.out = begin_from_self(b, node);
  Tensor index = tensor_at(b, args[2]);
  if (index.dims().empty()) index = broadcast(index, {1});
  x.source = tensor_at(b, args[3]);
  x.indexed = index_along(b, x.out, b.int_of(args[1]), index, Negative::kIsError, message);
  if (x.source.dims().size() < x.indexed.before.size() + 1 + x.indexed.after.size()) x.source = broadcast(x.source, {1});
  return x;
}
void lower_index_add(Builder& b, const lazyt_node_t& node) {
  const Along x = begin_along(b, node, Message::kSelf);
  add_accumulate(b, "index_add", x.out, x.indexed, x.source, b.number_of(b.program.args(node)[4]));
}
void lower_index_copy(Builder& b, const lazyt_node_t& node) {
  const Along x = begin_along(b, node, Message::kBounds);
  add_write(b, "index_copy", x.out, x.indexed, x.source);
}
void lower_index_fill(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor out = begin_from_self(b, node), value = b.scratch(out.dtype, {});
  b.fill(value, b.number_of(args[3]));
  Tensor index = tensor_at(b, args[2]);
  if (index.dims().empty()) index = broadcast(index, {1});
  const Indexed indexed = index_along(b, out, b.int_of(args[1]), index, Negative::kWraps, Message::kBounds);
  Dims dims = indexed.before;
  dims.insert(dims.end(), indexed.places.dims.begin(), indexed.places.dims.end());
  dims.insert(dims.end(), indexed.after.begin(), indexed.after.end());
  add_write(b, "index_fill", out, indexed, broadcast(value, dims));
}

// The gradient of an embedding: rows added up in the compute type; padding_idx gets none.
Refusal accept_embedding_backward(const ProgramView& program, const lazyt_node_t& node) {
  if (!is_floating(operand(program, node, 0).dtype)) return refuse_dtype(operand(program, node, 0).dtype);
  if (!is_index(operand(program, node, 1).dtype)) return refuse_dtype(operand(program, node, 1).dtype);
  if (!is_constant(program, program.args(node)[3])) return refuse_argument("a padding_idx that changes from run to run");
  return accepted();
}
void lower_embedding_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor grad = b.dense(tensor_at(b, args[0])), index = dense_as(b, tensor_at(b, args[1]), LAZYT_DTYPE_INT64);
  const int64_t padding = b.int_of(args[3]), places = index.count();
  const bool by_frequency = b.bool_of(args[4]);
  const Tensor out = begin_result(b, node.results, compute_dtype(grad.dtype));
  const int64_t words = out.dims()[0], n = out.dims()[1];
  const Tensor counts = b.scratch(LAZYT_DTYPE_INT64, {by_frequency ? words : 0});
  with_floating(grad.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("embedding_backward", {grad.storage, index.storage}, {out.storage, counts.storage}, [=](const Frame& frame) {
      const T* g = frame.at<T>(grad);
      const int64_t* at = frame.at<int64_t>(index);
      C* y = frame.at<C>(out);
      int64_t* seen = frame.at<int64_t>(counts);
      for (int64_t p = 0; p < places; ++p)
        if (at[p] != padding && (at[p] < 0 || at[p] >= words)) bad_index(Message::kSelf, at[p], 0, words);
      if (by_frequency) {
        std::fill(seen, seen + words, int64_t{0});
        for (int64_t p = 0; p < places; ++p)
          if (at[p] != padding) ++seen[at[p]];
      }
      parallel(frame, words, words * n, [&](int64_t begin, int64_t end) { std::fill(y + begin * n, y + end * n, C(0)); });
      parallel(frame, n, places * n, [&](int64_t begin, int64_t end) {
        for (int64_t p = 0; p < places; ++p) {
          if (at[p] == padding) continue;
          C* __restrict o = y + at[p] * n;
          const T* __restrict s = g + p * n;
          const C scale = by_frequency ? C(1) / static_cast<C>(seen[at[p]]) : C(1);
#pragma omp simd
          for (int64_t i = begin; i < end; ++i) o[i] += widen(s[i]) * scale;
        }
      });
    });
  });
  finish_result(b, node.results, out);
}

// ---- gather and scatter: index[i][j][k] replaces one of i, j, k

// The dims of the index are walked with the last one innermost: the index, a tensor beside it, and the tensor that it
// leads into, whose own stride along `dim` is `stride`.
struct Grid {
  Dims outer;
  std::array<Dims, 3> strides;  // index, beside, indexed
  int64_t n = 1, step_index = 0, step_beside = 0, step_into = 0;
  int64_t dim = 0, size = 1, stride = 1;
  bool along_last = true;
};
Grid grid_of(const Tensor& index, const Tensor& beside, const Tensor& into, int64_t dim) {
  Grid g;
  g.dim = dim;
  const size_t rank = index.dims().size();
  if (rank == 0) {
    if (!into.dims().empty()) g.size = into.dims()[0], g.stride = into.strides()[0];
    return g;
  }
  const auto d = static_cast<size_t>(dim);
  const bool scalar = into.dims().empty();
  if (!scalar) g.size = into.dims()[d], g.stride = into.strides()[d];
  auto stride_of = [](const Tensor& t, size_t i) { return t.dims().empty() ? 0 : t.strides()[i]; };
  for (size_t i = 0; i < rank; ++i) {
    const int64_t own = i == d ? 0 : stride_of(into, i);
    if (i + 1 == rank) {
      g.n = index.dims()[i];
      g.step_index = index.strides()[i];
      g.step_beside = stride_of(beside, i);
      g.step_into = own;
    } else {
      g.outer.push_back(index.dims()[i]);
      g.strides[0].push_back(index.strides()[i]);
      g.strides[1].push_back(stride_of(beside, i));
      g.strides[2].push_back(own);
    }
  }
  g.along_last = d + 1 == rank;
  return g;
}
// f(offset beside, offset into) for each place. Threads share the outer loops where a run of the last dim stays
// apart from others (or `reads`), and else each takes a part of the last dim.
template <class F>
void for_grid(const Frame& frame, const Grid& g, const int64_t* index, bool reads, F f) {
  const int64_t outer = toolkit::count_of(g.outer), work = outer * g.n * 4;
  const bool dense = g.step_index == 1 && g.step_beside == 1;
  auto part = [&](int64_t begin, int64_t end, int64_t first, int64_t last) {
    if (first == last) return;
    Odometer<3> at(g.outer, {&g.strides[0], &g.strides[1], &g.strides[2]}, begin);
    for (int64_t i = begin; i < end; ++i, at.next()) {
      const int64_t beside = at.offsets[1], into = at.offsets[2];
      const int64_t* in = index + at.offsets[0];
      if (dense && g.step_into == 0 && g.stride == 1)
        for (int64_t j = first; j < last; ++j) f(beside + j, into + in[j]);
      else if (dense)
        for (int64_t j = first; j < last; ++j) f(beside + j, into + j * g.step_into + in[j] * g.stride);
      else
        for (int64_t j = first; j < last; ++j) f(beside + j * g.step_beside, into + j * g.step_into + in[j * g.step_index] * g.stride);
    }
  };
  if (outer == 0) return;
  if (reads || g.along_last)
    parallel(frame, outer, work, [&](int64_t begin, int64_t end) { part(begin, end, 0, g.n); });
  else
    parallel(frame, g.n, work, [&](int64_t begin, int64_t end) { part(0, outer, begin, end); });
}
void check_grid(const Frame& frame, const Grid& g, const int64_t* index) {
  const int64_t outer = toolkit::count_of(g.outer);
  std::atomic<bool> bad{false};
  std::atomic<int64_t> which{0};
  parallel(frame, outer, outer * g.n, [&](int64_t begin, int64_t end) {
    Odometer<1> at(g.outer, {&g.strides[0]}, begin);
    for (int64_t i = begin; i < end; ++i, at.next()) {
      const int64_t* in = index + at.offsets[0];
      bool some = false;
      if (g.step_index == 1)
        for (int64_t j = 0; j < g.n; ++j) some |= static_cast<uint64_t>(in[j]) >= static_cast<uint64_t>(g.size);
      else
        for (int64_t j = 0; j < g.n; ++j) some |= static_cast<uint64_t>(in[j * g.step_index]) >= static_cast<uint64_t>(g.size);
      for (int64_t j = 0; some && j < g.n; ++j)
        if (const int64_t place = in[j * g.step_index]; place < 0 || place >= g.size) which = place, bad = true;
    }
  });
  if (bad) bad_index(Message::kBounds, which, g.dim, g.size);
}

void lower_gather(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor self = tensor_at(b, args[0]), index = as_int64(b, tensor_at(b, args[2])), out = b.make_dense(node.results);
  const Grid grid = grid_of(index, out, self, b.int_of(args[1]));
  with_bytes(self.element(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add("gather", {self.storage, index.storage}, {out.storage}, [=](const Frame& frame) {
      const int64_t* at = frame.at<int64_t>(index);
      const T* x = frame.at<T>(self);
      T* y = frame.at<T>(out);
      check_grid(frame, grid, at);
      for_grid(frame, grid, at, true, [&](int64_t to, int64_t from) { y[to] = x[from]; });
    });
  });
}

enum class Reduce : uint8_t { kNone, kSum, kProd, kMean, kMax, kMin };

// Of scatter_reduce: what an element starts from that is not to take part itself.
template <class T>
T identity(Reduce reduce) {
  using C = Compute<T>;
  using L = std::numeric_limits<C>;
  switch (reduce) {
    case Reduce::kProd: return narrow<T>(C(1));
    case Reduce::kMax: return narrow<T>(kIsFloat<T> ? -L::infinity() : L::lowest());
    case Reduce::kMin: return narrow<T>(kIsFloat<T> ? L::infinity() : L::max());
    default: return narrow<T>(C(0));
  }
}
template <class T>
T combine(Reduce reduce, T a, T b) {
  const auto x = widen(a), y = widen(b);
  switch (reduce) {
    case Reduce::kProd: return times(a, b);
    case Reduce::kMax: return x != x ? a : y != y || y > x ? b : a;
    case Reduce::kMin: return x != x ? a : y != y || y < x ? b : a;
    default: return plus(a, b);
  }
}

void add_scatter(Builder& b, const char* name, const Tensor& out, const Tensor& index_in, const Tensor& source, int64_t dim,
                 Reduce reduce, bool include_self) {
  const Tensor index = as_int64(b, index_in);
  const Grid grid = grid_of(index, source, out, dim);
  std::vector<StorageId> reads = {index.storage, source.storage, out.storage};
  if (reduce == Reduce::kNone) {
    with_bytes(out.element(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      b.add(name, reads, {out.storage}, [=](const Frame& frame) {
        const int64_t* at = frame.at<int64_t>(index);
        const T* x = frame.at<T>(source);
        T* y = frame.at<T>(out);
        check_grid(frame, grid, at);
        for_grid(frame, grid, at, false, [&](int64_t from, int64_t to) { y[to] = x[from]; });
      });
    });
    return;
  }
  // Counts lie as `out` does, which is dense.
  const Tensor counts = b.scratch(LAZYT_DTYPE_INT64, {reduce == Reduce::kMean ? out.count() : 0});
  with_real(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add(name, reads, {out.storage, counts.storage}, [=](const Frame& frame) {
      const int64_t* at = frame.at<int64_t>(index);
      const T* x = frame.at<T>(source);
      T* y = frame.at<T>(out);
      int64_t* seen = frame.at<int64_t>(counts);
      check_grid(frame, grid, at);
      if (!include_self) for_grid(frame, grid, at, false, [&](int64_t, int64_t to) { y[to] = identity<T>(reduce); });
      if (reduce == Reduce::kMean) {
        std::fill(seen, seen + out.count(), int64_t{include_self});
        for_grid(frame, grid, at, false, [&](int64_t, int64_t to) { ++seen[to]; });
      }
      if (reduce == Reduce::kSum)
        for_grid(frame, grid, at, false, [&](int64_t from, int64_t to) { y[to] = plus(y[to], x[from]); });
      else
        for_grid(frame, grid, at, false, [&](int64_t from, int64_t to) { y[to] = combine(reduce, y[to], x[from]); });
      if (reduce != Reduce::kMean) return;
      for (int64_t i = 0; i < out.count(); ++i) {
        if (seen[i] <= 1) continue;
        if constexpr (kIsFloat<T>) {
          y[i] = narrow<T>(widen(y[i]) / static_cast<C>(seen[i]));
        } else {  // rounded down
          const auto total = static_cast<int64_t>(y[i]);
          y[i] = static_cast<T>(total / seen[i] - (total % seen[i] < 0));
        }
      }
    });
  });
}

void lower_scatter_src(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  add_scatter(b, "scatter", begin_from_self(b, node), tensor_at(b, args[2]), tensor_at(b, args[3]), b.int_of(args[1]),
              Reduce::kNone, true);
}
void lower_scatter_value(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor out = begin_from_self(b, node), value = b.scratch(out.dtype, {}), index = tensor_at(b, args[2]);
  b.fill(value, b.number_of(args[3]));
  add_scatter(b, "scatter", out, index, broadcast(value, index.dims()), b.int_of(args[1]), Reduce::kNone, true);
}
void lower_scatter_add(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  add_scatter(b, "scatter_add", begin_from_self(b, node), tensor_at(b, args[2]), tensor_at(b, args[3]),
              b.int_of(args[1]), Reduce::kSum, true);
}

Reduce reduce_named(std::string_view name) {
  if (name == "sum") return Reduce::kSum;
  if (name == "prod") return Reduce::kProd;
  if (name == "mean") return Reduce::kMean;
  if (name == "amax") return Reduce::kMax;
  return name == "amin" ? Reduce::kMin : Reduce::kNone;
}
void lower_scatter_reduce(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  add_scatter(b, "scatter_reduce", begin_from_self(b, node), tensor_at(b, args[2]), tensor_at(b, args[3]),
              b.int_of(args[1]), reduce_named(b.program.string(args[4])), b.bool_of(args[5]));
}
Refusal accept_scatter_reduce(const ProgramView& program, const lazyt_node_t& node) {
  if (reduce_named(program.string(program.args(node)[4])) == Reduce::kNone) return refuse_argument("an unknown reduction");
  return accept_source<2, 3, true>(program, node);
}

// ---- masks

Refusal accept_masked_scatter(const ProgramView& program, const lazyt_node_t& node) {
  const lazyt_dtype_t dtype = operand(program, node, 0).dtype;
  if (!is_movable(dtype)) return refuse_dtype(dtype);
  if (operand(program, node, 1).dtype != LAZYT_DTYPE_BOOL) return refuse_dtype(operand(program, node, 1).dtype);
  if (operand(program, node, 2).dtype != dtype) return refuse_dtype(operand(program, node, 2).dtype);
  return accepted();
}
void lower_masked_scatter(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor out = b.make_dense(node.results);
  b.copy(tensor_at(b, args[0]), out);
  const Tensor mask = broadcast(tensor_at(b, args[1]), out.dims()), source = b.dense(tensor_at(b, args[2]));
  with_bytes(out.element(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add("masked_scatter", {mask.storage, source.storage, out.storage}, {out.storage}, [=](const Frame& frame) {
      const bool* m = frame.at<bool>(mask);
      const T* x = frame.at<T>(source);
      T* y = frame.at<T>(out);
      const int64_t count = out.count(), available = source.count();
      if (count == 0) return;
      Odometer<1> at(out.dims(), {&mask.strides()});
      int64_t taken = 0;
      for (int64_t i = 0; i < count; ++i, at.next()) {
        if (!m[at.offsets[0]]) continue;
        if (taken == available)
          throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, "masked_scatter: expected the number of elements of source to be at least the number of ones in mask");
        y[i] = x[taken++];
      }
    });
  });
}

// ---- searching

Refusal accept_search(const ProgramView& program, const lazyt_node_t& node, uint64_t sequence, uint64_t values, uint64_t sorter) {
  const lazyt_dtype_t dtype = operand(program, node, sequence).dtype;
  if (!is_real(dtype) || operand(program, node, values).dtype != dtype) return refuse_dtype(operand(program, node, values).dtype);
  if (sorter && has(program, node, sorter) && operand(program, node, sorter).dtype != LAZYT_DTYPE_INT64) return refuse_dtype(operand(program, node, sorter).dtype);
  return accepted();
}
Refusal accept_searchsorted(const ProgramView& program, const lazyt_node_t& node) { return accept_search(program, node, 0, 1, 5); }
Refusal accept_bucketize(const ProgramView& program, const lazyt_node_t& node) { return accept_search(program, node, 1, 0, 0); }

void add_search(Builder& b, const lazyt_node_t& node, const Tensor& sequence, const Tensor& values, bool right, const Tensor* sorter) {
  const Tensor out = begin_result(b, node.results, LAZYT_DTYPE_INT64);
  const bool shared = sequence.dims().size() <= 1;  // one sequence for all values
  const int64_t n = sequence.dims().empty() ? 1 : sequence.dims().back();
  const int64_t each = shared ? std::max<int64_t>(values.count(), 1) : values.dims().back();
  const bool sorted_by = sorter != nullptr;
  const Tensor order = sorted_by ? *sorter : sequence;
  with_real(sequence.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add("searchsorted", {sequence.storage, values.storage, order.storage}, {out.storage}, [=](const Frame& frame) {
      const T *s = frame.at<T>(sequence), *v = frame.at<T>(values);
      const int64_t* o = sorted_by ? frame.at<int64_t>(order) : nullptr;
      int64_t* y = frame.at<int64_t>(out);
      const int64_t count = values.count();
      parallel(frame, count, count * 32, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t base = i / each * n;
          const auto value = widen(v[i]);
          int64_t low = 0, high = n;
          while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            const auto x = widen(s[base + (o ? o[base + middle] : middle)]);
            if (right ? !(x > value) : !(x >= value))
              low = middle + 1;
            else
              high = middle;
          }
          y[i] = low;
        }
      });
    });
  });
  finish_result(b, node.results, out);
}
void lower_searchsorted(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor sequence = b.dense(tensor_at(b, args[0])), values = b.dense(tensor_at(b, args[1]));
  const bool right = b.bool_of(args[3]) || (!b.is_none(args[4]) && b.program.string(args[4]) == "right");
  if (b.is_none(args[5])) return add_search(b, node, sequence, values, right, nullptr);
  const Tensor sorter = b.dense(tensor_at(b, args[5]));
  add_search(b, node, sequence, values, right, &sorter);
}
void lower_bucketize(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  add_search(b, node, b.dense(tensor_at(b, args[1])), b.dense(tensor_at(b, args[0])), b.bool_of(args[3]), nullptr);
}

}  // namespace

void register_index(Operators& all) {
  using toolkit::Role;
  auto opaque = [&](lazyt_op_t op, toolkit::Accept accept, Operator::Lower lower) { all.add(op, {Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_INDEX_TENSOR, accept_move<1>, lower_index);
  opaque(LAZYT_OP_UNSAFE_INDEX_TENSOR, accept_move<1>, lower_index);
  opaque(LAZYT_OP_INDEX_SELECT, accept_move<2>, lower_index_select);
  opaque(LAZYT_OP_EMBEDDING, accept_move<1>, lower_embedding);
  opaque(LAZYT_OP_TAKE, accept_move<1>, lower_take);
  opaque(LAZYT_OP_INDEX_PUT, accept_index_put, lower_index_put);
  opaque(LAZYT_OP_UNSAFE_INDEX_PUT, accept_index_put, lower_index_put);
  opaque(LAZYT_OP_INDEX_ADD, accept_source<2, 3, true>, lower_index_add);
  opaque(LAZYT_OP_INDEX_COPY, accept_source<2, 3, false>, lower_index_copy);
  opaque(LAZYT_OP_INDEX_FILL_INT_SCALAR, accept_value, lower_index_fill);
  opaque(LAZYT_OP_EMBEDDING_DENSE_BACKWARD, accept_embedding_backward, lower_embedding_backward);
  opaque(LAZYT_OP_GATHER, accept_move<2>, lower_gather);
  opaque(LAZYT_OP_SCATTER_SRC, accept_source<2, 3, false>, lower_scatter_src);
  opaque(LAZYT_OP_SCATTER_VALUE, accept_value, lower_scatter_value);
  opaque(LAZYT_OP_SCATTER_ADD, accept_source<2, 3, true>, lower_scatter_add);
  opaque(LAZYT_OP_SCATTER_REDUCE_TWO, accept_scatter_reduce, lower_scatter_reduce);
  opaque(LAZYT_OP_MASKED_SCATTER, accept_masked_scatter, lower_masked_scatter);
  opaque(LAZYT_OP_SEARCHSORTED_TENSOR, accept_searchsorted, lower_searchsorted);
  opaque(LAZYT_OP_BUCKETIZE_TENSOR, accept_bucketize, lower_bucketize);
}

}  // namespace lazyt::onednn
