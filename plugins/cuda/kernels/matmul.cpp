// Matrix products. Every operator becomes c[batch, m, n] = alpha * a[batch, m, k] b[batch, k, n] + beta *
// addend, with operands read as they lie.
#include <algorithm>
#include <optional>

#include "contraction.h"
#include "product.h"

namespace lazyt::cuda {
namespace {

// The tensor in dims that its own broadcast to: strides 0 where they grow.
Tensor expanded(const Tensor& t, const Dims& dims) {
  Dims strides(dims.size(), 0);
  const size_t added = dims.size() - t.dims().size();
  for (size_t i = 0; i < t.dims().size(); ++i)
    if (t.dims()[i] == dims[added + i] && t.dims()[i] != 1) strides[added + i] = t.strides()[i];
  return reshaped(t, dims, strides);
}

// A batch of one, if the matrices lie as the rows of a larger one over a shared b.
void join_batch(Product& p) {
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

// ---- Our own kernel: sizes and strides are words, so that shapes share it.

constexpr std::string_view kLeft = R"(
  struct Left {
    const T* p;
    __device__ __forceinline__ void begin(const Args& a, long long z, long long m) {
      p = (const T*)a.w[0] + z * (long long)a.w[6] + m * (long long)a.w[7];
      step = LEFT_STEP;
    }
    long long step;
    __device__ __forceinline__ C at(long long k) const { return lazyt_load(p, k * step); }
  };
)";
constexpr std::string_view kRight = R"(
  struct Right {
    const T* p;
    long long step;
    __device__ __forceinline__ void begin(const Args& a, long long z, long long n) {
      p = (const T*)a.w[1] + z * (long long)a.w[9] + n * RIGHT_ACROSS;
      step = (long long)a.w[10];
    }
    __device__ __forceinline__ C at(long long k) const { return lazyt_load(p, k * step); }
  };
)";
// The result is row-major.
constexpr std::string_view kStore = R"(
  struct Store {
    static __device__ __forceinline__ void put(const Args& a, long long z, long long m, long long n, A v) {
      if (SCALED) v = NUMBER(a.w[12]) * v;
      if (ADDS) {
        const A beta = NUMBER(a.w[13]);
        if (beta != 0) v += beta * (A)lazyt_load((const T*)a.w[14], z * (long long)a.w[15] + m * (long long)a.w[16] + n * (long long)a.w[17]);
      }
      lazyt_store((T*)a.w[2], (z * (long long)a.w[3] + m) * (long long)a.w[4] + n, (C)v);
    }
  };
)";

void emit_own(Builder& b, const Product& p) {
  Contraction c;
  c.name = "matmul";
  c.dtype = p.c.dtype;
  c.batch = size(p.c, 0), c.m = size(p.c, 1), c.n = size(p.c, 2), c.k = size(p.a, 2);
  c.text_m = "(long long)a.w[3]", c.text_n = "(long long)a.w[4]", c.text_k = "(long long)a.w[5]";
  c.left_along_k = stride_or(p.a, 2, 1) == 1 && (stride_or(p.a, 1, 0) != 1 || c.m == 1);
  c.right_along_k = stride_or(p.b, 2, 1) != 1 && stride_or(p.b, 1, 1) == 1;
  c.left = kLeft, c.right = kRight, c.store = kStore;
  const bool integers = !is_floating(c.dtype), scaled = !is_number(p.alpha, 1), adds = p.addend.has_value();
  c.defines = {{"LEFT_STEP", c.left_along_k && c.k > 1 ? "1" : "(long long)a.w[8]"},
               {"RIGHT_ACROSS", !c.right_along_k && stride_or(p.b, 2, 1) == 1 ? "1" : "(long long)a.w[11]"},
               {"NUMBER(w)", integers ? "(A)(long long)(w)" : "(A)lazyt_f64(w)"},
               {"SCALED", scaled ? "true" : "false"},
               {"ADDS", adds ? "true" : "false"}};
  auto number = [&](const Number& n) { return integers ? Word::i64(n) : Word::f64(n); };
  auto word = [](int64_t n) { return Word::integer(n); };
  c.words = {Word::address(p.a),
             Word::address(p.b),
             Word::address(p.c),
             word(c.m),
             word(c.n),
             word(c.k),
             word(stride(p.a, 0)),
             word(stride(p.a, 1)),
             word(stride(p.a, 2)),
             word(stride(p.b, 0)),
             word(stride(p.b, 1)),
             word(stride(p.b, 2)),
             number(p.alpha),
             number(p.beta)};
  c.reads = {p.a.storage, p.b.storage};
  if (adds) {
    const Tensor& s = *p.addend;
    for (const Word& w : {Word::address(s), word(stride(s, 0)), word(stride(s, 1)), word(stride(s, 2))})
      c.words.push_back(w);
    c.reads.push_back(s.storage);
  }
  c.write = p.c.storage;
  add_contraction(b, std::move(c));
}

void emit(Builder& b, Product p) {
  if (p.c.count() == 0) return;
  if (p.addend && is_number(p.beta, 0)) p.addend.reset();
  join_batch(p);
  // A product with a vector is one pass over the matrix.
  const bool worth_it = size(p.c, 1) > 1 && size(p.c, 2) > 1 && size(p.a, 2) > 0;
  if (worth_it && add_library_product(b, p)) return;
  emit_own(b, p);
}

// ---- The operators

// [batch, rows, columns] of a tensor of rank 2 or 3.
Tensor matrices(const Tensor& t) {
  if (t.dims().size() == 3) return t;
  return reshaped(t, {1, t.dims()[0], t.dims()[1]}, {0, t.strides()[0], t.strides()[1]});
}
Tensor column(const Tensor& t) { return reshaped(t, {1, t.dims()[0], 1}, {0, t.strides()[0], 1}); }
Tensor row(const Tensor& t) { return reshaped(t, {1, 1, t.dims()[0]}, {0, 0, t.strides()[0]}); }

void lower_mm(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor a = tensor_at(b, args[0]), w = tensor_at(b, args[1]);
  emit(b, {matrices(a), matrices(w), matrices(b.make_dense(node.results)), {}});
}

void lower_mv(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor a = tensor_at(b, args[0]), x = tensor_at(b, args[1]);
  emit(b, {matrices(a), column(x), column(b.make_dense(node.results)), {}});
}

void lower_dot(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor x = tensor_at(b, args[0]), y = tensor_at(b, args[1]);
  emit(b, {row(x), column(y), reshaped(b.make_dense(node.results), {1, 1, 1}, {1, 1, 1}), {}});
}

// addmm, baddbmm, addmv: self, two factors, beta, alpha.
void lower_add(Builder& b, const lazyt_node_t& node) {
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
  emit(b, p);
}

// The dims before the last `kept` as one, if the layout has such a view.
std::optional<Tensor> join_front(const Tensor& t, size_t kept) {
  const size_t front = t.dims().size() - kept;
  Dims dims{toolkit::count_of(std::span(t.dims()).first(front))};
  dims.insert(dims.end(), t.dims().begin() + static_cast<std::ptrdiff_t>(front), t.dims().end());
  const auto layout = t.layout.reshaped(dims);
  if (!layout) return std::nullopt;
  return Tensor{t.storage, t.dtype, *layout};
}
Tensor joined(Builder& b, const Tensor& t, size_t kept) {
  if (auto view = join_front(t, kept)) return *view;
  return *join_front(b.dense(t), kept);
}

void lower_linear(Builder& b, const lazyt_node_t& node) {
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
  emit(b, p);
}

void lower_matmul(Builder& b, const lazyt_node_t& node) {
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
  const int64_t batch = toolkit::count_of(batch_dims);
  auto batched = [&](const Tensor& t, int64_t rows, int64_t columns) {
    Dims dims = batch_dims;
    dims.insert(dims.end(), {rows, columns});
    Tensor wide = expanded(t, dims);
    // One element along a dim keeps its own stride.
    wide.layout.strides[front] = t.strides()[t.strides().size() - 2];
    wide.layout.strides[front + 1] = t.strides().back();
    const Dims flat{batch, rows, columns};
    if (const auto layout = wide.layout.reshaped(flat)) return Tensor{t.storage, t.dtype, *layout};
    return reshaped(b.dense(wide), flat, toolkit::row_major(flat));
  };
  emit(b, {batched(x, m, k), batched(y, k, n), reshaped(result, {batch, m, n}, {m * n, n, 1}), {}});
}

Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  const lazyt_dtype_t dtype = result(program, node, 0).dtype;
  if (!is_real(dtype) || dtype == LAZYT_DTYPE_BOOL) return refuse_dtype(dtype);
  for (const lazyt_arg_t& arg : program.args(node)) {
    if (arg.kind != LAZYT_ARG_VALUE) continue;
    const lazyt_value_t& value = program.values()[arg.payload];
    if (!toolkit::is_host_scalar(value) && value.dtype != dtype) return refuse_dtype(value.dtype);
  }
  return accepted();
}

}  // namespace

void register_matmul(Operators& all) {
  auto opaque = [&](lazyt_op_t op, Operator::Lower lower) {
    all.add(op, {toolkit::Role::kOpaque, accept, lower});
  };
  opaque(LAZYT_OP_MM, lower_mm);
  opaque(LAZYT_OP_BMM, lower_mm);
  opaque(LAZYT_OP_ADDMM, lower_add);
  opaque(LAZYT_OP_BADDBMM, lower_add);
  opaque(LAZYT_OP_ADDMV, lower_add);
  opaque(LAZYT_OP_MV, lower_mv);
  opaque(LAZYT_OP_DOT, lower_dot);
  opaque(LAZYT_OP_LINEAR, lower_linear);
  opaque(LAZYT_OP_MATMUL, lower_matmul);
}

}  // namespace lazyt::cuda
