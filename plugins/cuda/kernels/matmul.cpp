// Matrix products. Every operator becomes c[batch, m, n] = alpha * a[batch, m, k] b[batch, k, n] + beta *
// addend, with operands read as they lie.
#include "contraction.h"
#include "product.h"

namespace lazyt::cuda {
namespace {

// ---- Our own kernel: sizes and strides are words, so that shapes share it.

constexpr std::string_view kLeft = R"(
  struct Left {
    const L* p;
    __device__ __forceinline__ void begin(const Args& a, long long z, long long m) {
      p = (const L*)a.w[0] + z * (long long)a.w[6] + m * (long long)a.w[7];
      step = LEFT_STEP;
    }
    long long step;
    __device__ __forceinline__ C at(long long k) const { return (C)lazyt_load(p, k * step); }
  };
)";
constexpr std::string_view kRight = R"(
  struct Right {
    const R* p;
    long long step;
    __device__ __forceinline__ void begin(const Args& a, long long z, long long n) {
      p = (const R*)a.w[1] + z * (long long)a.w[9] + n * RIGHT_ACROSS;
      step = (long long)a.w[10];
    }
    __device__ __forceinline__ C at(long long k) const { return (C)lazyt_load(p, k * step); }
  };
)";
// Up to what becomes of v, element i of the row-major result.
constexpr std::string_view kStore = R"(
  struct Store {
    static __device__ __forceinline__ void put(const Args& a, long long z, long long m, long long n, A v) {
      if (SCALED) v = NUMBER(a.w[12]) * v;
      if (ADDS) {
        const A beta = NUMBER(a.w[13]);
        if (beta != 0) v += beta * (A)lazyt_load((const T*)a.w[14], z * (long long)a.w[15] + m * (long long)a.w[16] + n * (long long)a.w[17]);
      }
      const long long i = (z * (long long)a.w[3] + m) * (long long)a.w[4] + n;
)";

void emit_own(Builder& b, const Product& p, Epilogue* epilogue) {
  Contraction c;
  c.name = "matmul";
  c.dtype = p.c.dtype;
  c.batch = size(p.c, 0), c.m = size(p.c, 1), c.n = size(p.c, 2), c.k = size(p.a, 2);
  c.text_m = "(long long)a.w[3]", c.text_n = "(long long)a.w[4]", c.text_k = "(long long)a.w[5]";
  c.left_along_k = stride_or(p.a, 2, 1) == 1 && (stride_or(p.a, 1, 0) != 1 || c.m == 1);
  c.right_along_k = stride_or(p.b, 2, 1) != 1 && stride_or(p.b, 1, 1) == 1;
  c.left = kLeft, c.right = kRight;
  const bool integers = !is_floating(c.dtype), scaled = !is_number(p.alpha, 1), adds = p.addend.has_value();
  c.defines = {{"L", memory_type(p.a.dtype)},
               {"R", memory_type(p.b.dtype)},
               {"LEFT_STEP", c.left_along_k && c.k > 1 ? "1" : "(long long)a.w[8]"},
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
  c.store = kStore;
  if (epilogue && epilogue->kind == Epilogue::Kind::kChain) {
    c.store += b.chain_text(*epilogue, p.c, c.words, c.reads, c.writes, c.reads_in_place);
  } else {
    c.store += "lazyt_store((T*)a.w[2], i, (C)v);\n";
    c.writes = {p.c.storage};
  }
  c.store += "}\n};\n";
  add_contraction(b, std::move(c));
}

void emit(Builder& b, Product p) {
  if (p.c.count() == 0) return;
  if (p.addend && is_number(p.beta, 0)) p.addend.reset();
  toolkit::join_batch(p);
  // A product with a vector is one pass over the matrix.
  const bool worth_it = size(p.c, 1) > 1 && size(p.c, 2) > 1 && size(p.a, 2) > 0;
  Epilogue* const epilogue = b.epilogue();
  if (!worth_it || !add_library_product(b, p, epilogue)) emit_own(b, p, epilogue);
  if (!epilogue) return;
  epilogue->lowered = true;
  if (epilogue->sum_place && !epilogue->summed) b.add_sum(*epilogue);
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

Refusal accept_bytes(const ProgramView& program, const lazyt_node_t& node) {
  for (const lazyt_arg_t& arg : program.args(node)) {
    const lazyt_dtype_t dtype = program.values()[arg.payload].dtype;
    if (dtype != LAZYT_DTYPE_INT8 && dtype != LAZYT_DTYPE_UINT8) return refuse_dtype(dtype);
  }
  return accepted();
}

}  // namespace

void register_matmul(Operators& all) {
  using Rules = toolkit::ProductRules<Builder, emit>;
  Rules::add(all, accept);
  all.add(LAZYT_OP_INT_MM, {toolkit::Role::kOpaque, accept_bytes, Rules::mm});
}

}  // namespace lazyt::cuda
