// products.hpp - the products of matrices in the opset, each as one form:
//
//   c[batch, m, n] = alpha * a[batch, m, k] b[batch, k, n] + beta * addend
//
// with operands read as they lie. The backend computes that form.
//
// SPDX-License-Identifier: BSL-1.0
#ifndef LAZYT_TOOLKIT_PRODUCTS_HPP_
#define LAZYT_TOOLKIT_PRODUCTS_HPP_

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "lazyt/toolkit/operands.hpp"

namespace lazyt {
namespace toolkit __attribute__((visibility("hidden"))) {

inline constexpr Number kOne{true, true, 0, 1, 0, LAZYT_DTYPE_INT64};
inline constexpr Number kZero{true, true, 0, 0, 0, LAZYT_DTYPE_INT64};

struct Product {
  Tensor a, b, c;                // rank 3, of one dtype, or of bytes, with c in i32; c is row-major
  std::optional<Tensor> addend;  // of c's dims; strides 0 where it is broadcast
  Number alpha = kOne, beta = kZero;
};

inline int64_t size(const Tensor& t, size_t dim) { return t.dims()[dim]; }
inline int64_t stride(const Tensor& t, size_t dim) { return t.strides()[dim]; }
// A stride that says nothing because its dim has one element counts as `otherwise`.
inline int64_t stride_or(const Tensor& t, size_t dim, int64_t otherwise) {
  return size(t, dim) == 1 ? otherwise : stride(t, dim);
}

// The tensor in dims that its own broadcast to: strides 0 where they grow.
inline Tensor expanded(const Tensor& t, const Dims& dims) {
  Dims strides(dims.size(), 0);
  const size_t added = dims.size() - t.dims().size();
  for (size_t i = 0; i < t.dims().size(); ++i)
    if (t.dims()[i] == dims[added + i] && t.dims()[i] != 1) strides[added + i] = t.strides()[i];
  return reshaped(t, dims, strides);
}

// A batch of one, if the matrices lie as the rows of a larger one over a shared b.
inline void join_batch(Product& p) {
  const int64_t batch = size(p.c, 0), m = size(p.a, 1), k = size(p.a, 2), n = size(p.b, 2);
  if (batch == 1 || stride(p.b, 0) != 0 || stride(p.a, 0) != m * stride_or(p.a, 1, stride(p.a, 0))) return;
  if (p.addend) {
    const Tensor& s = *p.addend;
    if (stride(s, 0) != m * stride_or(s, 1, stride(s, 0))) return;
    p.addend = reshaped(s, {1, batch * m, n}, {0, stride_or(s, 1, stride(s, 0)), stride(s, 2)});
  }
  p.a = reshaped(p.a, {1, batch * m, k}, {0, stride_or(p.a, 1, stride(p.a, 0)), stride(p.a, 2)});
  p.b = reshaped(p.b, {1, k, n}, {0, stride(p.b, 1), stride(p.b, 2)});
  p.c = reshaped(p.c, {1, batch * m, n}, {batch * m * n, n, 1});
}

// [batch, rows, columns] of a tensor of rank 2 or 3.
inline Tensor matrices(const Tensor& t) {
  if (t.dims().size() == 3) return t;
  return reshaped(t, {1, t.dims()[0], t.dims()[1]}, {0, t.strides()[0], t.strides()[1]});
}
inline Tensor column(const Tensor& t) { return reshaped(t, {1, t.dims()[0], 1}, {0, t.strides()[0], 1}); }
inline Tensor row(const Tensor& t) { return reshaped(t, {1, 1, t.dims()[0]}, {0, 0, t.strides()[0]}); }

// The dims before the last `kept` as one, if the layout has such a view.
inline std::optional<Tensor> join_front(const Tensor& t, size_t kept) {
  const size_t front = t.dims().size() - kept;
  Dims dims{count_of(std::span(t.dims()).first(front))};
  dims.insert(dims.end(), t.dims().begin() + static_cast<std::ptrdiff_t>(front), t.dims().end());
  const auto layout = t.layout.reshaped(dims);
  if (!layout) return std::nullopt;
  return Tensor{t.storage, t.dtype, *layout};
}
inline Tensor joined(Builder& b, const Tensor& t, size_t kept) {
  if (auto view = join_front(t, kept)) return *view;
  return *join_front(b.dense(t), kept);
}

// The lowerings. kEmit adds the steps of one product. A backend that has products of bytes adds LAZYT_OP_INT_MM by mm.
template <class BuilderT, void (*kEmit)(BuilderT& b, Product p)>
struct ProductRules {
  static void mm(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor a = tensor_at(b, args[0]), w = tensor_at(b, args[1]);
    kEmit(b, {matrices(a), matrices(w), matrices(b.make_dense(node.results)), {}});
  }

  static void mv(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor a = tensor_at(b, args[0]), x = tensor_at(b, args[1]);
    kEmit(b, {matrices(a), column(x), column(b.make_dense(node.results)), {}});
  }

  static void dot(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor x = tensor_at(b, args[0]), y = tensor_at(b, args[1]);
    kEmit(b, {row(x), column(y), reshaped(b.make_dense(node.results), {1, 1, 1}, {1, 1, 1}), {}});
  }

  // addmm, baddbmm, addmv: self, two factors, beta, alpha.
  static void add_product(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor self = tensor_at(b, args[0]), x = tensor_at(b, args[1]), y = tensor_at(b, args[2]);
    const Tensor result = b.make_dense(node.results);
    Product p{matrices(x), {}, {}, {}, b.number_of(args[4]), b.number_of(args[3])};
    const Tensor addend = expanded(self, result.dims());
    if (node.op == LAZYT_OP_ADDMV) {
      p.b = column(y), p.c = column(result), p.addend = column(addend);
    } else {
      p.b = matrices(y), p.c = matrices(result), p.addend = matrices(addend);
    }
    kEmit(b, p);
  }

  static void linear(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    const Tensor x = tensor_at(b, args[0]), w = tensor_at(b, args[1]);
    const Tensor result = b.make_dense(node.results);
    // A weight of rank 1 gives results without the last dim.
    const bool is_vector = w.dims().size() == 1;
    const int64_t k = w.dims().back(), n = is_vector ? 1 : w.dims()[0];
    const Tensor rows = joined(b, x, 1);
    const int64_t m = rows.dims()[0];
    Product p{matrices(rows),
              reshaped(w, {1, k, n}, {0, w.strides().back(), is_vector ? 1 : w.strides()[0]}),
              reshaped(result, {1, m, n}, {m * n, n, 1}),
              {}};
    if (!b.is_none(args[2])) {
      const Tensor bias = expanded(tensor_at(b, args[2]), {n});
      p.addend = reshaped(bias, {1, m, n}, {0, 0, bias.strides()[0]});
      p.beta = kOne;
    }
    kEmit(b, p);
  }

  static void matmul(BuilderT& b, const lazyt_node_t& node) {
    const auto args = b.program.args(node);
    Tensor x = tensor_at(b, args[0]), y = tensor_at(b, args[1]);
    const Tensor result = b.make_dense(node.results);
    if (x.dims().size() == 1) x = reshaped(x, {1, x.dims()[0]}, {0, x.strides()[0]});
    if (y.dims().size() == 1) y = reshaped(y, {y.dims()[0], 1}, {y.strides()[0], 1});
    const size_t front = std::max(x.dims().size(), y.dims().size()) - 2;
    const int64_t m = x.dims()[x.dims().size() - 2], k = x.dims().back(), n = y.dims().back();
    Dims batch_dims(front, 1);
    for (const Tensor* t : {&x, &y})
      for (size_t i = 0; i + 2 < t->dims().size(); ++i)
        if (t->dims()[i] != 1) batch_dims[front - (t->dims().size() - 2) + i] = t->dims()[i];
    const int64_t batch = count_of(batch_dims);
    auto batched = [&](const Tensor& t, int64_t rows, int64_t columns) {
      Dims dims = batch_dims;
      dims.insert(dims.end(), {rows, columns});
      Tensor wide = expanded(t, dims);
      // One element along a dim keeps its own stride.
      wide.layout.strides[front] = t.strides()[t.strides().size() - 2];
      wide.layout.strides[front + 1] = t.strides().back();
      const Dims flat{batch, rows, columns};
      if (const auto layout = wide.layout.reshaped(flat)) return Tensor{t.storage, t.dtype, *layout};
      return reshaped(b.dense(wide), flat, row_major(flat));
    };
    kEmit(b, {batched(x, m, k), batched(y, k, n), reshaped(result, {batch, m, n}, {m * n, n, 1}), {}});
  }

  static void add(Operators<BuilderT>& all, Accept accept) {
    auto opaque = [&](lazyt_op_t op, typename Operator<BuilderT>::Lower lower) { all.add(op, {Role::kOpaque, accept, lower}); };
    opaque(LAZYT_OP_MM, mm);
    opaque(LAZYT_OP_BMM, mm);
    opaque(LAZYT_OP_ADDMM, add_product);
    opaque(LAZYT_OP_BADDBMM, add_product);
    opaque(LAZYT_OP_ADDMV, add_product);
    opaque(LAZYT_OP_MV, mv);
    opaque(LAZYT_OP_DOT, dot);
    opaque(LAZYT_OP_LINEAR, linear);
    opaque(LAZYT_OP_MATMUL, matmul);
  }
};

}  // namespace toolkit
}  // namespace lazyt

#endif  // LAZYT_TOOLKIT_PRODUCTS_HPP_
