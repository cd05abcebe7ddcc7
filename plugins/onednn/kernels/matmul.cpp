// Matrix products. Every operator becomes c[batch, m, n] = alpha * a[batch, m, k] b[batch, k, n] + beta * addend, with
// transposed operands read as they lie.
#include <algorithm>
#include <optional>

#include "../ops.h"
#include "amx_gemm.h"
#include "dnnl.h"
#include "floats.h"
#include "gemm.h"
#include "lazyt/toolkit/products.hpp"
#include "matmul.h"
#include "packed_gemm.h"
#include "weights.h"

namespace lazyt::onednn {
namespace {

using dnnl::memory;

using toolkit::is_number;
using toolkit::kOne;
using toolkit::kZero;
using toolkit::matrices;
using toolkit::Product;
using toolkit::size;
using toolkit::stride;
using toolkit::stride_or;

Tensor dense_copy(Builder& b, const Tensor& t, lazyt_dtype_t dtype) {
  Tensor out = b.scratch(dtype, t.dims());
  b.copy(t, out);
  return out;
}

// oneDNN and gemv read a matrix whose rows or columns are contiguous and do not overlap.
bool is_matrix(const Tensor& t) {
  const int64_t rows = size(t, 1), columns = size(t, 2);
  const int64_t rs = stride_or(t, 1, columns), cs = stride_or(t, 2, 1);
  if (size(t, 0) > 1 && stride(t, 0) < 0) return false;
  if (cs == 1 && (rs >= columns || rows == 1)) return true;
  return rs == 1 && cs >= rows;
}

// Whether the whole batch reads one matrix.
bool is_shared(const Tensor& t) { return stride(t, 0) == 0 || size(t, 0) == 1; }

// The matrices with no gaps between their rows, or columns.
Tensor together(Builder& b, const Tensor& t) {
  const int64_t rows = size(t, 1), columns = size(t, 2), rs = stride_or(t, 1, columns), cs = stride_or(t, 2, 1);
  return (cs == 1 && rs == columns) || (rs == 1 && cs == rows) ? t : b.dense(t);
}
Tensor as_matrix(Builder& b, const Tensor& t) { return is_matrix(t) ? t : b.dense(t); }

double multiply_adds(const Product& p) { return static_cast<double>(p.c.count()) * static_cast<double>(size(p.a, 2)); }
int most_threads(const Product& p) { return std::min(thread_count(), useful_threads(multiply_adds(p))); }

// ---- The ways to compute it

// alpha * c + beta * addend in place, for numbers that come with the run, f32 or bf16.
void add_scale(Builder& b, const Product& p) {
  std::vector<StorageId> reads;
  if (p.addend) reads.push_back(p.addend->storage);
  const lazyt_dtype_t dtype = p.c.dtype;
  b.add("matmul scale", reads, {p.c.storage}, [p, dtype](const Frame& frame) {
    const double alpha = frame.as_double(p.alpha), beta = frame.as_double(p.beta);
    auto each = [&](auto* c, const auto* addend) {
      const int64_t m = size(p.c, 1), n = size(p.c, 2);
      for (int64_t i = 0; i < size(p.c, 0) * m; ++i) {
        for (int64_t j = 0; j < n; ++j, ++c) {
          double value = static_cast<float>(*c) * alpha;
          if (addend && beta != 0) value += beta * static_cast<float>(addend[i / m * stride(*p.addend, 0) + i % m * stride(*p.addend, 1) + j * stride(*p.addend, 2)]);
          *c = static_cast<float>(value);
        }
      }
    };
    if (dtype == LAZYT_DTYPE_FLOAT32) {
      each(frame.at<float>(p.c), p.addend ? frame.at<float>(*p.addend) : nullptr);
    } else {
      each(frame.at<BFloat16>(p.c), p.addend ? frame.at<BFloat16>(*p.addend) : nullptr);
    }
  });
}

// The product as own kernels take it.
Gemm gemm_of(const Product& p, const Frame& frame) {
  auto matrix = [&](const Tensor& t) {
    return Matrix{address(frame, t), stride(t, 0), stride_or(t, 1, size(t, 2)), stride_or(t, 2, 1)};
  };
  Gemm g{size(p.c, 0), size(p.c, 1), size(p.c, 2), size(p.a, 2), matrix(p.a), matrix(p.b), {}, address(frame, p.c)};
  g.alpha = frame.as_double(p.alpha);
  g.int_alpha = frame.as_int(p.alpha);
  if (p.addend) {
    g.addend = {address(frame, *p.addend), stride(*p.addend, 0), stride(*p.addend, 1), stride(*p.addend, 2)};
    g.beta = frame.as_double(p.beta);
    g.int_beta = frame.as_int(p.beta);
  }
  return g;
}

// Whether columns lie side by side, none over the other.
bool is_turned(const Tensor& t) { return stride_or(t, 1, 1) == 1 && stride_or(t, 2, size(t, 1)) >= size(t, 1); }

void emit_gemm(Builder& b, Product p) {
  toolkit::join_batch(p);
  const lazyt_dtype_t dtype = p.c.dtype;
  auto read = [&](Tensor& t, bool turned) {
    if (stride_or(t, 2, 1) != 1 && !(turned && is_turned(t))) t = b.dense(t);
  };
  read(p.a, reads_turned_left(dtype));
  read(p.b, reads_turned_right(dtype));
  const int64_t batch = size(p.c, 0), m = size(p.c, 1), n = size(p.c, 2), k = size(p.a, 2);
  const int most = most_threads(p);
  std::vector<StorageId> reads{p.a.storage, p.b.storage}, writes{p.c.storage};
  if (p.addend) reads.push_back(p.addend->storage);
  std::optional<StorageId> scratch;
  if (const size_t bytes = gemm_scratch(dtype, {batch, m, n, k}, most)) {
    scratch = b.scratch(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(bytes)}).storage;
    writes.push_back(*scratch);
  }
  b.add("matmul own", reads, writes, [=](const Frame& frame) {
    gemm(dtype, gemm_of(p, frame), std::min(frame.threads, most), scratch ? frame.storages[*scratch] : nullptr);
  });
}

// One row or one column of results.
bool emit_gemv(Builder& b, const Product& p, const Tensor* bias) {
  if (size(p.c, 0) != 1 || (size(p.c, 1) != 1 && size(p.c, 2) != 1)) return false;
  const bool is_row = size(p.c, 1) == 1;
  const Tensor& matrix = is_row ? p.b : p.a;
  Tensor vector = is_row ? p.a : p.b;
  const size_t rows = is_row ? 2 : 1, columns = is_row ? 1 : 2;
  const size_t along = 3 - columns;  // of the vector
  if (size(vector, along) != 1 && stride(vector, along) != 1) vector = b.dense(vector);
  const int64_t rs = stride_or(matrix, rows, size(matrix, columns)), cs = stride_or(matrix, columns, 1);
  if (rs != 1 && cs != 1) return false;
  std::vector<StorageId> reads{matrix.storage, vector.storage};
  if (bias) reads.push_back(bias->storage);
  const Gemv shape{size(matrix, rows), size(matrix, columns), nullptr, nullptr, nullptr, rs, cs, bias ? stride(*bias, rows) : 0, nullptr};
  b.add("matmul vector", reads, {p.c.storage},
        [shape, dtype = p.c.dtype, biased = bias != nullptr, a = Place(matrix), x = Place(vector), added = bias ? Place(*bias) : Place(),
         y = Place(p.c)](const Frame& frame) {
          Gemv g = shape;
          g.a = address(frame, a), g.x = address(frame, x), g.y = address(frame, y);
          if (biased) g.bias = address(frame, added);
          gemv(dtype, g, frame.threads);
        });
  return true;
}

memory::desc describe_matrices(const Tensor& t, bool batched) {
  const int64_t rows = size(t, 1), columns = size(t, 2);
  int64_t rs = stride_or(t, 1, columns), cs = stride_or(t, 2, 1);
  if (rows == 1 && cs != 1) rs = 1;  // a column-major matrix of one row
  const memory::data_type type = to_dnnl(t.dtype);
  if (!batched) return {{rows, columns}, type, {rs, cs}};
  // A matrix that the whole batch shares is a batch of one.
  const bool shared = is_shared(t);
  return {{shared ? 1 : size(t, 0), rows, columns}, type, {shared ? rows * columns : stride(t, 0), rs, cs}};
}

// A vector for each row, which oneDNN adds before it rounds.
bool is_bias(const Product& p) {
  const Tensor& s = *p.addend;
  return is_number(p.alpha, 1) && is_number(p.beta, 1) && stride_or(s, 0, 0) == 0 && stride_or(s, 1, 0) == 0 && stride_or(s, 2, 1) == 1;
}

bool is_scaled(const Product& p) { return !p.alpha.constant || (p.addend && !p.beta.constant); }

void emit_dnnl(Builder& b, Product p) {
  if (p.c.dtype == LAZYT_DTYPE_BFLOAT16 && (is_scaled(p) || (p.addend && !is_bias(p)))) {  // rounded once, behind the sum
    Product wide = p;
    wide.c = b.scratch(LAZYT_DTYPE_FLOAT32, p.c.dims());
    if (p.addend && is_scaled(p)) wide.addend = dense_copy(b, *p.addend, LAZYT_DTYPE_FLOAT32);
    emit_dnnl(b, wide);
    return b.copy(wide.c, p.c);
  }
  // oneDNN 3.2 has its reference loop alone for rows apart where what is scaled is added to.
  if (p.addend && !is_scaled(p) && !is_number(p.alpha, 1)) p.a = together(b, p.a), p.b = together(b, p.b);
  const bool batched = size(p.c, 0) > 1;
  const memory::desc a = describe_matrices(p.a, batched), w = describe_matrices(p.b, batched),
                     c = describe_matrices(p.c, batched);
  PrimitiveArguments arguments{{{DNNL_ARG_SRC, p.a}}, {}, {}};
  dnnl::primitive_attr attr;
  dnnl::post_ops ops;
  memory::desc bias;
  const bool scaled = is_scaled(p);
  if (!scaled) {
    const bool plain = is_number(p.alpha, 1);
    if (!plain) ops.append_eltwise(dnnl::algorithm::eltwise_linear, p.alpha.integral ? static_cast<float>(p.alpha.i) : static_cast<float>(p.alpha.d), 0);
    if (p.addend) {
      const Tensor& s = *p.addend;
      if (is_bias(p)) {
        const int64_t n = size(s, 2);
        bias = batched ? memory::desc({1, 1, n}, to_dnnl(s.dtype), {n, n, 1}) : memory::desc({1, n}, to_dnnl(s.dtype), {n, 1});
        arguments.reads.emplace_back(DNNL_ARG_BIAS, s);
      } else {
        if (s.storage != p.c.storage) b.copy(s, p.c);
        ops.append_sum(p.beta.integral ? static_cast<float>(p.beta.i) : static_cast<float>(p.beta.d));
        arguments.updates.emplace_back(DNNL_ARG_DST, p.c);
      }
    }
    attr.set_post_ops(ops);
  }
  const auto make = [=](const memory::desc& weights,
                        const dnnl::primitive_attr& attr) -> dnnl::primitive_desc_base {
    if (bias.get_size() == 0) return dnnl::matmul::primitive_desc(cpu_engine(), a, weights, c, attr);
    return dnnl::matmul::primitive_desc(cpu_engine(), a, weights, bias, c, attr);
  };
  if (arguments.updates.empty()) arguments.writes.emplace_back(DNNL_ARG_DST, p.c);
  add_primitive(b, "matmul", make, attr, std::move(arguments), p.b, w, useful_threads(multiply_adds(p)));
  if (scaled) add_scale(b, p);
}

bool is_f32(const Product& p) { return p.c.dtype == LAZYT_DTYPE_FLOAT32 && p.a.dtype == p.c.dtype && p.b.dtype == p.c.dtype; }

// A step of our own for f32; scratch: bytes that so many threads want.
template <class Scratch, class Run>
void emit_own(Builder& b, const Product& p, const char* name, Scratch&& scratch_for, Run run) {
  const int most = most_threads(p);
  const Tensor scratch = b.scratch(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(scratch_for(most))});
  std::vector<StorageId> reads{p.a.storage, p.b.storage};
  if (p.addend) reads.push_back(p.addend->storage);
  b.add(name, reads, {p.c.storage, scratch.storage}, [=](const Frame& frame) {
    run(gemm_of(p, frame), std::min(frame.threads, most), frame.storages[scratch.storage]);
  });
}

// By the CPU's tiles of bf16, where that is faster.
bool emit_amx(Builder& b, const Product& p) {
  const int64_t batch = size(p.c, 0), m = size(p.c, 1), n = size(p.c, 2), k = size(p.a, 2);
  if (!is_f32(p) || !prefers_amx(m, n, k, b.steady_input(p.b) != LAZYT_NONE)) return false;
  emit_own(b, p, "matmul own:amx_bf16", [&](int most) { return amx_scratch(batch, m, n, k, most); },
           [](const Gemm& g, int threads, std::byte* scratch) { amx_gemm(g, threads, scratch); });
  return true;
}

// The right operand of packed_gemm(), packed once.
class Panels final : public Form {
 public:
  // b: its strides count.
  Panels(Device& device, const Matrix& b, int64_t n, int64_t k, const std::byte* from)
      : n_(n), k_(k), row_stride_(b.row_stride), column_stride_(b.column_stride), memory_(device, static_cast<uint64_t>(packed_right_size(n, k)) * sizeof(float)) {
    pack_right({from, 0, row_stride_, column_stride_}, n, k, reinterpret_cast<float*>(memory_.data()));
  }
  std::byte* data() const override { return memory_.data(); }
  bool is(const Matrix& b, int64_t n, int64_t k) const {
    return n_ == n && k_ == k && row_stride_ == b.row_stride && column_stride_ == b.column_stride;
  }
  void unpack(std::byte* to) const override {
    unpack_right(reinterpret_cast<const float*>(memory_.data()), n_, k_, row_stride_, column_stride_, reinterpret_cast<float*>(to));
  }

 private:
  const int64_t n_, k_, row_stride_, column_stride_;
  const Memory memory_;
};

class PanelChoice final : public WeightChoice {
 public:
  explicit PanelChoice(const Tensor& b)
      : n_(size(b, 2)), k_(size(b, 1)), b_{nullptr, 0, stride_or(b, 1, n_), stride_or(b, 2, 1)} {}
  bool has_packed() override { return true; }
  uint64_t plain_bytes() const override { return static_cast<uint64_t>(n_ * k_) * sizeof(float); }
  uint64_t packed_bytes() const override { return static_cast<uint64_t>(packed_right_size(n_, k_)) * sizeof(float); }
  bool is(const Form& form) const override {
    const auto* there = dynamic_cast<const Panels*>(&form);
    return there && there->is(b_, n_, k_);
  }
  std::shared_ptr<const Form> make(Device& device, std::byte* from) const override {
    return std::make_shared<Panels>(device, b_, n_, k_, from);
  }

 private:
  const int64_t n_, k_;
  const Matrix b_;
};

// Where oneDNN has no AVX-512.
bool emit_packed(Builder& b, Product p) {
  if (!is_f32(p) || !has_packed_gemm()) return false;
  std::shared_ptr<PanelChoice> choice;
  if (const uint32_t input = b.steady_input(p.b); input != LAZYT_NONE && size(p.c, 0) == 1) {
    choice = std::make_shared<PanelChoice>(p.b);
    p.b = add_weights(b, p.b, input, choice);
  }
  emit_own(b, p, "matmul own:packed", [&](int most) { return packed_scratch(size(p.c, 0), size(p.c, 2), size(p.a, 2), most); },
           [choice](const Gemm& g, int threads, std::byte* scratch) {
             packed_gemm(g, choice && choice->is_packed ? static_cast<const float*>(g.b.data) : nullptr, threads, scratch);
           });
  return true;
}

// A few rows beside a matrix whose columns lie side by side, read once for all as it lies. oneDNN packs the matrix first, which takes 2 to 4
// times as long as its products; one that it has packed, an input that stays, it multiplies 0.95 to 1.1 times as fast, faster still
// where sums are short.
bool emit_gemvs(Builder& b, const Product& p) {
  const int64_t m = size(p.c, 1), n = size(p.c, 2), k = size(p.a, 2), bytes = n * k * static_cast<int64_t>(sizeof(float));
  constexpr int64_t kFromMemory = 1 << 20, kLong = 256;
  if (!is_f32(p) || size(p.c, 0) != 1 || m < 2 || m > kMaxVectors || stride_or(p.b, 1, 1) != 1) return false;
  const bool from_memory = m <= 3 && bytes >= kFromMemory;  // reading it is what takes the time
  if (!from_memory && (has_packed_gemm() || prefers_amx(m, n, k, true))) return false;
  if (!from_memory && k < kLong && bytes >= Buffer::kSmall && b.steady_input(p.b) != LAZYT_NONE) return false;
  Tensor x = p.a;
  if (stride_or(x, 2, 1) != 1) x = b.dense(x);
  std::vector<StorageId> reads{p.b.storage, x.storage};
  if (p.addend) reads.push_back(p.addend->storage);
  const Gemv shape{n, k, nullptr, nullptr, nullptr, stride_or(p.b, 2, k), 1, p.addend ? stride(*p.addend, 2) : 0, nullptr};
  const Vectors vectors{static_cast<int>(m), stride(x, 1), n, p.addend ? stride(*p.addend, 1) : 0};
  b.add("matmul vectors", reads, {p.c.storage},
        [=, biased = p.addend.has_value(), a = Place(p.b), from = Place(x), added = p.addend ? Place(*p.addend) : Place(), y = Place(p.c)](const Frame& frame) {
          Gemv g = shape;
          g.a = address(frame, a), g.x = address(frame, from), g.y = address(frame, y);
          if (biased) g.bias = address(frame, added);
          gemvs(g, vectors, frame.threads);
        });
  return true;
}

// A matrix of bytes as int16, rows (or, turned, columns) one after the other and of an even length, as int32 that hold two each.
Tensor pairs(Builder& b, Tensor t, bool turned) {
  if (turned) t = reshaped(t, {size(t, 0), size(t, 2), size(t, 1)}, {stride(t, 0), stride(t, 2), stride(t, 1)});
  const int64_t batch = size(t, 0), lines = size(t, 1), depth = size(t, 2), even = (depth + 1) / 2 * 2;
  const Tensor all = b.scratch(LAZYT_DTYPE_INT16, {batch, lines, even});
  if (even != depth) b.fill(all, kZero);
  b.copy(t, reshaped(all, {batch, lines, depth}, {lines * even, even, 1}));
  Tensor out = turned ? reshaped(all, {batch, even / 2, lines}, {lines * even / 2, 1, even / 2})
                      : reshaped(all, {batch, lines, even / 2}, {lines * even / 2, even / 2, 1});
  out.dtype = LAZYT_DTYPE_INT32;
  return out;
}

// Bytes to int32, exact.
void emit_bytes(Builder& b, Product p) {
  p.a = pairs(b, p.a, false);
  p.b = pairs(b, p.b, true);
  const int most = most_threads(p);
  b.add("matmul own:bytes", {p.a.storage, p.b.storage}, {p.c.storage}, [=](const Frame& frame) {
    gemm_pairs(gemm_of(p, frame), std::min(frame.threads, most));
  });
}

void emit(Builder& b, Product p) {
  if (p.c.count() == 0) return;
  if (p.addend && is_number(p.beta, 0)) p.addend.reset();
  const lazyt_dtype_t dtype = p.c.dtype;
  const bool of_bytes = p.a.dtype != dtype;
  if (size(p.a, 2) == 0) {  // an empty sum
    b.fill(p.c, kZero);
    if (p.addend) {
      p.alpha = kOne;
      if (is_number(p.beta, 1)) return b.copy(*p.addend, p.c);
    } else {
      return;
    }
  }
  const bool bias_only = is_number(p.alpha, 1) && (!p.addend || is_number(p.beta, 1)), has_own = has_gemm(dtype) && !of_bytes;
  const bool widens = dtype == LAZYT_DTYPE_FLOAT16 || (dtype == LAZYT_DTYPE_BFLOAT16 && !has_bf16());
  if (has_own || widens) {  // matrices as they lie, or not at all
    const bool vector = bias_only && size(p.a, 2) > 0 && is_matrix(p.a) && is_matrix(p.b);
    if (vector && emit_gemv(b, p, p.addend ? &*p.addend : nullptr)) return;
  }
  if (has_own) return emit_gemm(b, p);
  if (widens) {
    Product wide = p;
    wide.a = dense_copy(b, p.a, LAZYT_DTYPE_FLOAT32);
    wide.b = dense_copy(b, p.b, LAZYT_DTYPE_FLOAT32);
    if (p.addend) wide.addend = dense_copy(b, *p.addend, LAZYT_DTYPE_FLOAT32);
    wide.c = b.scratch(LAZYT_DTYPE_FLOAT32, p.c.dims());
    emit(b, wide);
    return b.copy(wide.c, p.c);
  }
  if (size(p.a, 2) == 0) return add_scale(b, p);
  toolkit::join_batch(p);
  p.a = as_matrix(b, p.a);
  p.b = as_matrix(b, p.b);
  // oneDNN gives as many results as the larger batch of the two has.
  if (size(p.c, 0) > 1 && is_shared(p.a) && is_shared(p.b)) p.b = b.dense(p.b);
  if (bias_only && !of_bytes && (emit_gemv(b, p, p.addend ? &*p.addend : nullptr) || emit_gemvs(b, p))) return;
  if (of_bytes && !has_bytes()) return emit_bytes(b, p);
  if (emit_amx(b, p) || emit_packed(b, p)) return;
  emit_dnnl(b, p);
}

Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  const lazyt_dtype_t dtype = program.values()[node.results].dtype;
  const bool is_half = dtype == LAZYT_DTYPE_FLOAT16 || dtype == LAZYT_DTYPE_BFLOAT16;
  if (!is_half && dtype != LAZYT_DTYPE_FLOAT32 && !has_gemm(dtype)) return refuse_dtype(dtype);
  for (const lazyt_arg_t& arg : program.args(node)) {
    if (arg.kind != LAZYT_ARG_VALUE) continue;
    const lazyt_value_t& value = program.values()[arg.payload];
    if (!(value.flags & LAZYT_VALUE_HOST_SCALAR) && value.dtype != dtype) return refuse_dtype(value.dtype);
  }
  return {};
}

Refusal accept_bytes(const ProgramView& program, const lazyt_node_t& node) {
  for (const lazyt_arg_t& arg : program.args(node)) {
    const lazyt_dtype_t dtype = program.values()[arg.payload].dtype;
    if (dtype != LAZYT_DTYPE_INT8 && dtype != LAZYT_DTYPE_UINT8) return refuse_dtype(dtype);
  }
  return {};
}

}  // namespace

void add_product(Builder& b, const Tensor& left, const Tensor& right, const Tensor& c, bool adds) {
  Product p{matrices(left), matrices(right), matrices(c), {}};
  if (adds) p.addend = p.c, p.beta = kOne;
  emit(b, p);
}

void register_matmul(Operators& all) {
  using Rules = toolkit::ProductRules<Builder, emit>;
  Rules::add(all, accept);
  all.add(LAZYT_OP_INT_MM, {toolkit::Role::kOpaque, accept_bytes, Rules::mm});
}

}  // namespace lazyt::onednn
