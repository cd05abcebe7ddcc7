// Attention by cuDNN: its engines take exactly these graphs, which are those of NVIDIA's cudnn-frontend (composite SDPA).
#include "attention.h"

#include <limits>

#include "dnn.h"

namespace lazyt::cuda {
namespace {

// Of 9.6: what sums up the gradient of the queries need not be zeroed by its caller.
constexpr int kVersion = 90600;
// What a masked score is: the library's own choice, as it subtracts scores from each other.
constexpr float kMasked = -std::numeric_limits<float>::max();

// batch, heads, rows, columns
std::optional<Tensor> as_heads(const Tensor& t) {
  const Dims &dims = t.dims(), &strides = t.strides();
  if (dims.size() < 2 || dims.size() > 4 || strides.back() != 1) return std::nullopt;
  const size_t added = 4 - dims.size();
  Tensor out = t;
  out.layout.dims.insert(out.layout.dims.begin(), added, 1);
  out.layout.strides.insert(out.layout.strides.begin(), added, 0);
  for (size_t d = 3; d-- > 0;)  // a dim of one element has a stride as if it had more
    if (out.dims()[d] == 1) out.layout.strides[d] = out.dims()[d + 1] * out.strides()[d + 1];
  for (int64_t s : out.strides())
    if (s <= 0) return std::nullopt;
  return out;
}
Tensor transposed(Tensor t) {
  std::swap(t.layout.dims[2], t.layout.dims[3]);
  std::swap(t.layout.strides[2], t.layout.strides[3]);
  return t;
}

// What forward and backward share: scores up to the softmax.
class Scores {
 public:
  Scores(const Attention& a, const char* name)
      : graph("attention", std::string("cudnn ") + name + " " + memory_type(a.q.dtype) + (a.causal ? " causal" : ""), false), a_(a) {}

  // False if the library cannot be asked: by dtypes and places.
  bool prepare() {
    if (!has_dnn(kVersion) || (a_.q.dtype != LAZYT_DTYPE_FLOAT16 && a_.q.dtype != LAZYT_DTYPE_BFLOAT16) || !a_.scale.constant) return false;
    const auto heads = {std::pair{&q, &a_.q}, {&k, &a_.k}, {&v, &a_.v}};
    for (auto [to, from] : heads) {
      const auto made = as_heads(*from);
      if (!made) return false;
      *to = *made;
    }
    if (q.dims()[3] % 8 || v.dims()[3] % 8 || k.dims()[0] != q.dims()[0]) return false;
    return true;
  }

  Dims dims() const { return {q.dims()[0], q.dims()[1], q.dims()[2], k.dims()[2]}; }
  Dims row_dims() const { return {q.dims()[0], q.dims()[1], q.dims()[2], 1}; }
  DnnGraph::Id between(const Dims& dims, DnnDataType type = kDnnF32) { return graph.between(type, dims, toolkit::row_major(dims)); }
  DnnGraph::Id product(DnnGraph::Id a, DnnGraph::Id b) {
    const DnnGraph::Id out = between(dims());
    graph.matmul(a, b, out);
    return out;
  }
  DnnGraph::Id scaled(DnnGraph::Id x) {
    if (!scale_) scale_ = graph.number(static_cast<float>(a_.scale.integral ? static_cast<double>(a_.scale.i) : a_.scale.d));
    return graph.pointwise(kDnnMul, x, kDnnF32, scale_);
  }
  DnnGraph::Id causal(DnnGraph::Id x) {
    if (!a_.causal) return x;
    const DnnGraph::Id rows = graph.pointwise(kDnnIndex, x, kDnnI32, 0, 0, 2), columns = graph.pointwise(kDnnIndex, x, kDnnI32, 0, 0, 3);
    const DnnGraph::Id is_seen = graph.pointwise(kDnnGreaterEqual, rows, kDnnBool, columns);
    return graph.pointwise(kDnnSelect, x, kDnnF32, graph.number(kMasked), is_seen);
  }

  DnnGraph graph;
  Tensor q, k, v;

 private:
  const Attention& a_;
  DnnGraph::Id scale_ = 0;
};

// The log of sums as the library writes it: f32, dense.
Tensor as_rows(const Tensor& t, const Dims& dims) { return reshaped(t, dims, toolkit::row_major(dims)); }

}  // namespace

bool add_library_attention(Builder& b, const Attention& a, const AttentionResults& to) {
  Scores s(a, "attention");
  if (!s.prepare()) return false;
  const auto out = as_heads(to.out);
  if (!out || (to.sums && to.sums->dtype != LAZYT_DTYPE_FLOAT32)) return false;
  const Current current(*b.device().context);
  DnnGraph& g = s.graph;
  const auto scores = s.causal(s.scaled(s.product(g.read(b, s.q), g.read(b, transposed(s.k)))));
  const auto top = s.between(s.row_dims());
  g.reduce(kDnnMax, scores, top);
  const auto weights = g.pointwise(kDnnExp, g.pointwise(kDnnSub, scores, kDnnF32, top), kDnnF32);
  const auto sum = s.between(s.row_dims());
  g.reduce(kDnnSum, weights, sum);
  // It is always written: no engine goes without.
  const Tensor sums = to.sums ? *to.sums : b.scratch(LAZYT_DTYPE_FLOAT32, s.row_dims());
  g.pointwise(kDnnAdd, top, g.write(b, as_rows(sums, s.row_dims())), g.pointwise(kDnnLog, sum, kDnnF32));
  g.matmul(g.pointwise(kDnnDiv, weights, *dnn_type(a.q.dtype), sum), g.read(b, s.v), g.write(b, *out));
  return g.add(b);
}

bool add_library_attention(Builder& b, const Attention& a, const AttentionGradients& to) {
  // It adds up the gradient of the queries in no fixed order.
  if (b.flags() & LAZYT_COMPILE_DETERMINISTIC) return false;
  Scores s(a, "attention_backward");
  if (!s.prepare() || to.sums.dtype != LAZYT_DTYPE_FLOAT32) return false;
  const DnnDataType type = *dnn_type(a.q.dtype);
  const auto grad = as_heads(to.grad), out = as_heads(to.out), dq = as_heads(to.q), dk = as_heads(to.k), dv = as_heads(to.v);
  if (!grad || !out || !dq || !dk || !dv || to.out.dtype != a.q.dtype) return false;
  const Current current(*b.device().context);
  DnnGraph& g = s.graph;
  const auto q = g.read(b, s.q), k = g.read(b, transposed(s.k)), v = g.read(b, transposed(s.v)), d_out = g.read(b, *grad);
  // sum(dO O)
  const auto along = s.between(s.row_dims());
  g.reduce(kDnnSum, g.pointwise(kDnnMul, d_out, kDnnF32, g.read(b, *out)), along);
  const auto delta = g.write(b, b.scratch(LAZYT_DTYPE_FLOAT32, s.row_dims()));
  g.pointwise(kDnnMul, along, delta, g.number(1));
  // P = exp(scores - log of sums), dV = P' dO
  const auto scores = s.scaled(s.product(q, k));
  const auto weights = g.pointwise(kDnnExp, s.causal(g.pointwise(kDnnSub, scores, kDnnF32, g.read(b, as_rows(to.sums, s.row_dims())))), kDnnF32);
  const Dims dims = s.dims(), turned = {dims[0], dims[1], dims[3], dims[2]}, places = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], 1, dims[3]};
  auto turn = [&](DnnGraph::Id x) {
    const auto y = g.between(type, turned, places);
    g.reshape(x, y);
    return y;
  };
  // Of query heads; those that share a key's are summed.
  auto product = [&](DnnGraph::Id x, DnnGraph::Id y, const Tensor& into) {
    if (into.dims()[1] == dims[1]) return g.matmul(x, y, g.write(b, into));
    const auto each = s.between({dims[0], dims[1], into.dims()[2], into.dims()[3]}, type);
    g.matmul(x, y, each);
    g.reduce(kDnnSum, each, g.write(b, into));
  };
  product(turn(weights), d_out, *dv);
  // dS = P (dO V' - delta) scale, dK = dS' Q, dQ = dS K
  const auto differences = g.pointwise(kDnnSub, s.product(d_out, v), kDnnF32, delta);
  const auto slopes = s.scaled(g.pointwise(kDnnMul, differences, kDnnF32, weights));
  product(turn(slopes), q, *dk);
  const auto upright = g.between(type, s.k.dims(), s.k.strides());
  g.reshape(k, upright);
  const auto wide = g.write(b, b.scratch(LAZYT_DTYPE_FLOAT32, s.q.dims()));
  g.matmul(slopes, upright, wide);
  g.pointwise(kDnnIdentity, wide, g.write(b, *dq));
  return g.add(b);
}

}  // namespace lazyt::cuda
