// indexing.hpp - operators that read and write at places that tensors name.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_INDEXING_HPP_
#define LAZYT_TOOLKIT_INDEXING_HPP_

#include <string>
#include <utility>

#include "lazyt/toolkit/operands.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {
namespace indexing {

// ---- places

enum class Negative : uint8_t { kWraps, kIsError };
enum class Message : uint8_t { kBounds, kSelf, kData, kTake, kCopy };

// What an error says of an index that is out of range: before, the index if it is shown, after.
struct BadIndex {
  std::string before, after;
  bool shown = true;
};
inline BadIndex bad_index(Message message, int64_t dim, int64_t size) {
  switch (message) {
    case Message::kSelf: return {"index out of range in self", "", false};
    case Message::kData: return {"INDICES element is out of DATA bounds, id=", " axis_dim=" + std::to_string(size)};
    case Message::kTake: return {"out of range: tried to access index ", " on a tensor of " + std::to_string(size) + " elements."};
    default: return {message == Message::kCopy ? "index_copy_(): index " : "index ", " is out of bounds for dimension " + std::to_string(dim) + " with size " + std::to_string(size)};
  }
}

// An index tensor with the dim it counts in.
struct Index {
  Tensor tensor;  // int64, of the dims of all indices
  int64_t dim, size, stride;  // dim is what errors call it: of a list, its place among the indices
};

// Where in a tensor a list of indices leads: the sum over the indices of index * stride, for each of `dims`.
struct Places {
  std::vector<Index> indices;
  Dims dims;
  Negative negative = Negative::kWraps;
  Message message = Message::kBounds;

  int64_t count() const { return count_of(dims); }
};

inline Tensor broadcast(Tensor t, const Dims& dims) {
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

  Dims dims_beside() const {
    Dims out = before;
    out.insert(out.end(), places.dims.begin(), places.dims.end());
    out.insert(out.end(), after.begin(), after.end());
    return out;
  }
};

// `self` indexed by one tensor along `dim` (of a rank 0 tensor: its only element).
inline Indexed index_along(Builder& b, const Tensor& self, int64_t dim, const Tensor& index, Negative negative, Message message) {
  Indexed out;
  const Tensor index64 = as_dtype(b, index, LAZYT_DTYPE_INT64);
  const bool scalar = self.dims().empty();
  const auto d = static_cast<size_t>(dim);
  out.places = {{{index64, dim, scalar ? 1 : self.dims()[d], scalar ? 1 : self.strides()[d]}}, index64.dims(), negative, message};
  for (size_t i = 0; i < self.dims().size(); ++i) {
    if (i == d) continue;
    (i < d ? out.before : out.after).push_back(self.dims()[i]);
    (i < d ? out.before_strides : out.after_strides).push_back(self.strides()[i]);
  }
  return out;
}

// `self` indexed by the list of argument `arg`, as Python's self[a, b, :, ...].
inline Indexed index_by_list(Builder& b, const lazyt_arg_t& list, const Tensor& self) {
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
      const Tensor index = broadcast(as_dtype(b, tensor_at(b, elements[d]), LAZYT_DTYPE_INT64), dims);
      out.places.indices.push_back({index, static_cast<int64_t>(out.places.indices.size()), self.dims()[d], self.strides()[d]});
    } else {
      const bool is_before = adjacent && !seen;
      (is_before ? out.before : out.after).push_back(self.dims()[d]);
      (is_before ? out.before_strides : out.after_strides).push_back(self.strides()[d]);
    }
  }
  out.places.dims = dims;
  out.places.negative = Negative::kWraps;
  out.places.message = Message::kBounds;
  return out;
}

// ---- accepts

inline Refusal accept_moving(const plugin::ProgramView& program, const lazyt_node_t& node, uint64_t index, bool arithmetic) {
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
Refusal accept_move(const plugin::ProgramView& program, const lazyt_node_t& node) {
  return accept_moving(program, node, kIndex, false);
}
// With a source (argument kSource) of self's dtype.
template <uint64_t kIndex, uint64_t kSource, bool kArithmetic>
Refusal accept_source(const plugin::ProgramView& program, const lazyt_node_t& node) {
  if (operand(program, node, kSource).dtype != operand(program, node, 0).dtype) return refuse_dtype(operand(program, node, kSource).dtype);
  return accept_moving(program, node, kIndex, kArithmetic);
}
inline Refusal accept_index_put(const plugin::ProgramView& program, const lazyt_node_t& node) {
  return program.args(node)[3].payload ? accept_source<1, 2, true>(program, node) : accept_source<1, 2, false>(program, node);
}
inline Refusal accept_value(const plugin::ProgramView& program, const lazyt_node_t& node) {
  if (program.args(node)[3].kind == LAZYT_ARG_COMPLEX) return refuse_argument("a complex value");
  return accept_moving(program, node, 2, true);
}

inline Refusal accept_embedding_backward(const plugin::ProgramView& program, const lazyt_node_t& node) {
  if (!is_floating(operand(program, node, 0).dtype)) return refuse_dtype(operand(program, node, 0).dtype);
  if (!is_index(operand(program, node, 1).dtype)) return refuse_dtype(operand(program, node, 1).dtype);
  if (!is_constant(program, program.args(node)[3])) return refuse_argument("a padding_idx that changes from run to run");
  return accepted();
}
inline Refusal accept_masked_scatter(const plugin::ProgramView& program, const lazyt_node_t& node) {
  const lazyt_dtype_t dtype = operand(program, node, 0).dtype;
  if (!is_movable(dtype)) return refuse_dtype(dtype);
  if (operand(program, node, 1).dtype != LAZYT_DTYPE_BOOL) return refuse_dtype(operand(program, node, 1).dtype);
  if (operand(program, node, 2).dtype != dtype) return refuse_dtype(operand(program, node, 2).dtype);
  return accepted();
}

inline Refusal accept_search(const plugin::ProgramView& program, const lazyt_node_t& node, uint64_t sequence, uint64_t values, uint64_t sorter) {
  const lazyt_dtype_t dtype = operand(program, node, sequence).dtype;
  if (!is_real(dtype) || operand(program, node, values).dtype != dtype) return refuse_dtype(operand(program, node, values).dtype);
  if (sorter && has(program, node, sorter) && operand(program, node, sorter).dtype != LAZYT_DTYPE_INT64) return refuse_dtype(operand(program, node, sorter).dtype);
  return accepted();
}
inline Refusal accept_searchsorted(const plugin::ProgramView& program, const lazyt_node_t& node) { return accept_search(program, node, 0, 1, 5); }
inline Refusal accept_bucketize(const plugin::ProgramView& program, const lazyt_node_t& node) { return accept_search(program, node, 1, 0, 0); }

enum class Reduce : uint8_t { kNone, kSum, kProd, kMean, kMax, kMin };

inline Reduce reduce_named(std::string_view name) {
  if (name == "sum") return Reduce::kSum;
  if (name == "prod") return Reduce::kProd;
  if (name == "mean") return Reduce::kMean;
  if (name == "amax") return Reduce::kMax;
  return name == "amin" ? Reduce::kMin : Reduce::kNone;
}
inline Refusal accept_scatter_reduce(const plugin::ProgramView& program, const lazyt_node_t& node) {
  if (reduce_named(program.string(program.args(node)[4])) == Reduce::kNone) return refuse_argument("an unknown reduction");
  return accept_source<2, 3, true>(program, node);
}

// ---- lowerings. Kernels: the backend's, static functions. `out` is the dense place of the result; it does not hold self
// yet. What several places write to one element happens in the order of the places.
//   read(b, name, self, indexed, out)                     out[..., place, ...] = self[...]
//   write(b, name, self, out, indexed, source)            out = self; out[..., place, ...] = source[...]
//   accumulate(b, name, self, out, indexed, source, alpha)             ... += alpha * source[...]
//   gather(b, self, index, out, dim)
//   scatter(b, name, self, out, index, source, dim, reduce, include_self)
//   embedding_backward(b, grad, index, out, padding, by_frequency)     kSumsInMemory: out is to have the compute dtype
//   add_rows(b, self, out, places, source)   out = self; out[place] += source[place's number], with kSumsInMemory: of halves,
//                                            each rounded once; source is dense
//   masked_scatter(b, self, mask, source, out)
//   search(b, sequence, values, sorter or null, right, out)            out is int64

template <class Kernels, class BuilderT>
struct IndexLowerings {
  static Tensor at_least_1d(const Tensor& t) { return t.dims().empty() ? broadcast(t, {1}) : t; }

  static void index(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor self = tensor_at(b, args[0]);
    const Tensor out = b.make_dense(node.results);
    if (out.count() != 0) Kernels::read(b, "index", self, index_by_list(b, args[1], self), out);
  }
  static void index_select(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor self = tensor_at(b, args[0]), index = at_least_1d(tensor_at(b, args[2]));
    const Tensor out = at_least_1d(b.make_dense(node.results));
    const int64_t dim = b.int_of(args[1]);
    const Message message = dim == 1 || out.count() == 0 ? Message::kData : Message::kSelf;  // PyTorch has a kernel for dim 1
    Kernels::read(b, "index_select", self, index_along(b, self, dim, index, Negative::kIsError, message), out);
  }
  static void embedding(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor weight = tensor_at(b, args[0]), index = tensor_at(b, args[1]);
    const Message message = weight.count() == 0 ? Message::kData : Message::kSelf;
    Kernels::read(b, "embedding", weight, index_along(b, weight, 0, index, Negative::kIsError, message), b.make_dense(node.results));
  }
  static void take(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    Tensor self = b.dense(tensor_at(b, args[0]));
    self.layout = *self.layout.reshaped(Dims{self.count()});
    const Tensor index = tensor_at(b, args[1]);
    Kernels::read(b, "take", self, index_along(b, self, 0, index, Negative::kWraps, Message::kTake), b.make_dense(node.results));
  }

  static void index_put(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor self = tensor_at(b, args[0]), out = b.make_dense(node.results);
    const Indexed indexed = index_by_list(b, args[1], out);
    if (count_of(indexed.dims_beside()) == 0) return b.copy(self, out);  // nor is an index looked at
    const Tensor source = broadcast(tensor_at(b, args[2]), indexed.dims_beside());
    if (b.bool_of(args[3]))
      Kernels::accumulate(b, "index_put_accumulate", self, out, indexed, source, {true, true, 1, 1, 0, LAZYT_DTYPE_INT64});
    else
      Kernels::write(b, "index_put", self, out, indexed, source);
  }
  // index_add, index_copy: index of rank 0 or 1, source of self's dims but along `dim`.
  static std::pair<Indexed, Tensor> along(BuilderT& b, const lazyt_node_t& node, const Tensor& out, Message message) {
    const auto args = b.program.args(node);
    const Tensor index = at_least_1d(tensor_at(b, args[2]));
    Indexed indexed = index_along(b, out, b.int_of(args[1]), index, Negative::kIsError, message);
    Tensor source = tensor_at(b, args[3]);
    if (source.dims().size() < indexed.before.size() + 1 + indexed.after.size()) source = broadcast(source, {1});
    return {std::move(indexed), std::move(source)};
  }
  static void index_add(BuilderT& b, const lazyt_node_t& node) {
    const Tensor self = tensor_at(b, b.program.args(node)[0]);
    const int64_t dim = b.int_of(b.program.args(node)[1]), last = static_cast<int64_t>(self.dims().size()) - 1;
    const Number alpha = b.number_of(b.program.args(node)[4]);
    // By scatter_add, in PyTorch, which rounds halves once; else each sum is.
    const bool rounds_once = last > 0 && (dim == 0 || dim == last) && is_number(alpha, 1);
    const Message message = rounds_once ? Message::kBounds : Message::kSelf;
    if constexpr (Kernels::kSumsInMemory) {
      if (rounds_once && dim == 0 && compute_dtype(self.dtype) != self.dtype && self.count() != 0) {
        const Tensor out = b.make_dense(node.results);
        const auto [indexed, source] = along(b, node, out, message);
        return Kernels::add_rows(b, self, out, indexed.places, b.dense(as_dtype(b, source, out.dtype)));
      }
    }
    const Tensor out = begin_result(b, node.results, rounds_once && Kernels::kSumsInMemory ? compute_dtype(self.dtype) : self.dtype);
    if (out.count() == 0) return finish_result(b, node.results, out);
    const auto [indexed, source] = along(b, node, out, message);
    Kernels::accumulate(b, "index_add", self, out, indexed, as_dtype(b, source, out.dtype), alpha);
    finish_result(b, node.results, out);
  }
  static void index_copy(BuilderT& b, const lazyt_node_t& node) {
    const Tensor self = tensor_at(b, b.program.args(node)[0]), out = b.make_dense(node.results);
    if (out.count() == 0) return;
    const auto [indexed, source] = along(b, node, out, Message::kCopy);
    Kernels::write(b, "index_copy", self, out, indexed, source);
  }
  static void index_fill(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor self = tensor_at(b, args[0]), out = b.make_dense(node.results), value = b.scratch(out.dtype, {});
    if (out.count() == 0) return;
    b.fill(value, b.number_of(args[3]));
    const Tensor index = at_least_1d(tensor_at(b, args[2]));
    const Indexed indexed = index_along(b, out, b.int_of(args[1]), index, Negative::kWraps, Message::kBounds);
    Kernels::write(b, "index_fill", self, out, indexed, broadcast(value, indexed.dims_beside()));
  }
  // Rows added up in the compute dtype; padding_idx gets none.
  static void embedding_backward(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor grad = b.dense(tensor_at(b, args[0])), index = dense_as(b, tensor_at(b, args[1]), LAZYT_DTYPE_INT64);
    const Tensor out = begin_result(b, node.results, Kernels::kSumsInMemory ? compute_dtype(grad.dtype) : grad.dtype);
    Kernels::embedding_backward(b, grad, index, out, b.int_of(args[3]), b.bool_of(args[4]));
    finish_result(b, node.results, out);
  }

  static void gather(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor self = tensor_at(b, args[0]), index = as_dtype(b, tensor_at(b, args[2]), LAZYT_DTYPE_INT64);
    const Tensor out = b.make_dense(node.results);
    if (index.count() != 0) Kernels::gather(b, self, index, out, b.int_of(args[1]));
  }
  static void scatter(BuilderT& b, const lazyt_node_t& node, const char* name, const Tensor& source, Reduce reduce, bool include_self) {
    const auto args = b.program.args(node);
    const Tensor self = tensor_at(b, args[0]), out = b.make_dense(node.results), index = as_dtype(b, tensor_at(b, args[2]), LAZYT_DTYPE_INT64);
    if (index.count() == 0) return b.copy(self, out);  // an index without elements may have any rank
    Kernels::scatter(b, name, self, out, index, source, b.int_of(args[1]), reduce, include_self);
  }
  static void scatter_src(BuilderT& b, const lazyt_node_t& node) {
    scatter(b, node, "scatter", tensor_at(b, b.program.args(node)[3]), Reduce::kNone, true);
  }
  static void scatter_value(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor value = b.scratch(b.dtype(node.results), {});
    b.fill(value, b.number_of(args[3]));
    scatter(b, node, "scatter", broadcast(value, b.dims(b.value_of(args[2]))), Reduce::kNone, true);
  }
  static void scatter_add(BuilderT& b, const lazyt_node_t& node) {
    scatter(b, node, "scatter_add", tensor_at(b, b.program.args(node)[3]), Reduce::kSum, true);
  }
  static void scatter_reduce(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    scatter(b, node, "scatter_reduce", tensor_at(b, args[3]), reduce_named(b.program.string(args[4])), b.bool_of(args[5]));
  }

  static void masked_scatter(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor self = tensor_at(b, args[0]), out = b.make_dense(node.results);
    const Tensor mask = broadcast(tensor_at(b, args[1]), out.dims()), source = b.dense(tensor_at(b, args[2]));
    Kernels::masked_scatter(b, self, mask, source, out);
  }

  static void search(BuilderT& b, const lazyt_node_t& node, uint64_t sequence, uint64_t values, const Tensor* sorter, bool right) {
    const auto args = b.program.args(node);
    const Tensor s = b.dense(tensor_at(b, args[sequence])), v = b.dense(tensor_at(b, args[values]));
    const Tensor out = begin_result(b, node.results, LAZYT_DTYPE_INT64);
    Kernels::search(b, s, v, sorter, right, out);
    finish_result(b, node.results, out);
  }
  static void searchsorted(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const bool right = b.bool_of(args[3]) || (!b.is_none(args[4]) && b.program.string(args[4]) == "right");
    if (b.is_none(args[5])) return search(b, node, 0, 1, nullptr, right);
    const Tensor sorter = b.dense(tensor_at(b, args[5]));
    search(b, node, 0, 1, &sorter, right);
  }
  static void bucketize(BuilderT& b, const lazyt_node_t& node) {
    search(b, node, 1, 0, nullptr, b.bool_of(b.program.args(node)[3]));
  }
};

}  // namespace indexing

template <class Kernels, class BuilderT>
void add_indexing(Operators<BuilderT>& all) {
  using namespace indexing;
  using L = IndexLowerings<Kernels, BuilderT>;
  auto opaque = [&](lazyt_op_t op, Accept accept, typename Operator<BuilderT>::Lower lower) { all.add(op, {Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_INDEX_TENSOR, accept_move<1>, L::index);
  opaque(LAZYT_OP_UNSAFE_INDEX_TENSOR, accept_move<1>, L::index);
  opaque(LAZYT_OP_INDEX_SELECT, accept_move<2>, L::index_select);
  opaque(LAZYT_OP_EMBEDDING, accept_move<1>, L::embedding);
  opaque(LAZYT_OP_TAKE, accept_move<1>, L::take);
  opaque(LAZYT_OP_INDEX_PUT, accept_index_put, L::index_put);
  opaque(LAZYT_OP_UNSAFE_INDEX_PUT, accept_index_put, L::index_put);
  opaque(LAZYT_OP_INDEX_ADD, accept_source<2, 3, true>, L::index_add);
  opaque(LAZYT_OP_INDEX_COPY, accept_source<2, 3, false>, L::index_copy);
  opaque(LAZYT_OP_INDEX_FILL_INT_SCALAR, accept_value, L::index_fill);
  opaque(LAZYT_OP_EMBEDDING_DENSE_BACKWARD, accept_embedding_backward, L::embedding_backward);
  opaque(LAZYT_OP_GATHER, accept_move<2>, L::gather);
  opaque(LAZYT_OP_SCATTER_SRC, accept_source<2, 3, false>, L::scatter_src);
  opaque(LAZYT_OP_SCATTER_VALUE, accept_value, L::scatter_value);
  opaque(LAZYT_OP_SCATTER_ADD, accept_source<2, 3, true>, L::scatter_add);
  opaque(LAZYT_OP_SCATTER_REDUCE_TWO, accept_scatter_reduce, L::scatter_reduce);
  opaque(LAZYT_OP_MASKED_SCATTER, accept_masked_scatter, L::masked_scatter);
  opaque(LAZYT_OP_SEARCHSORTED_TENSOR, accept_searchsorted, L::searchsorted);
  opaque(LAZYT_OP_BUCKETIZE_TENSOR, accept_bucketize, L::bucketize);
}

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_INDEXING_HPP_
