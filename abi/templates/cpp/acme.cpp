// acme.cpp - a lazyt backend: who it is, and its operators. Rules such as (BUF-5) stand in lazyt's headers.
#include <algorithm>
#include <cmath>

#include "lazyt/interpreter.hpp"

namespace {

using namespace lazyt::interpreter;

constexpr int kMean = 1, kSum = 2;  // PyTorch's Reduction

// --- which nodes are taken

// [region refuse]
template <uint32_t dim_argument>
Refusal last_dim(const ProgramView& p, const lazyt_node_t& node) {
  if (integer(p, node, dim_argument) != static_cast<int64_t>(dims_of(p, p.args(node)[0]).size()) - 1)
    return {LAZYT_REASON_ARGUMENT, "takes the last dim only"};
  return float32(p, node);
}
// [end]

template <uint32_t argument>
Refusal reduction(const ProgramView& p, const lazyt_node_t& node) {
  const int64_t r = integer(p, node, argument);
  if (r != kMean && r != kSum) return {LAZYT_REASON_ARGUMENT, "takes the reductions mean and sum"};
  return {};
}

// (input, target, reduction) from argument `first` on.
template <uint32_t first>
Refusal mse(const ProgramView& p, const lazyt_node_t& node) {
  if (Refusal no = reduction<first + 2>(p, node); no.why) return no;
  if (!std::ranges::equal(dims_of(p, p.args(node)[first]), dims_of(p, p.args(node)[first + 1])))
    return {LAZYT_REASON_ARGUMENT, "takes input and target of one shape"};
  return float32(p, node);
}

// (input, target, weight, reduction, ignore_index) from argument `first` on.
template <uint32_t first>
Refusal nll(const ProgramView& p, const lazyt_node_t& node) {
  if (dims_of(p, p.args(node)[first]).size() != 2) return {LAZYT_REASON_RANK, "takes [batch, classes]"};
  if (p.args(node)[first + 2].kind != LAZYT_ARG_NONE) return {LAZYT_REASON_ARGUMENT, "takes no class weights"};
  if (Refusal no = reduction<first + 3>(p, node); no.why) return no;
  return float32_but(p, node, first + 1);
}

Refusal lists(const ProgramView& p, const lazyt_node_t& node) {
  const auto a = p.elements(p.args(node)[0]), b = p.elements(p.args(node)[1]);
  for (uint64_t i = 0; i < a.size(); ++i)
    if (!std::ranges::equal(dims_of(p, a[i]), dims_of(p, b[i])))
      return {LAZYT_REASON_ARGUMENT, "takes lists of equal shapes"};
  return float32(p, node);
}

// --- moving elements

void permute(const Call& c) {
  const Tensor t = c.in(0), o = c.out();
  std::vector<int64_t> strides;
  for (int64_t d : c.ints(1)) strides.push_back(dense(t.dims)[static_cast<size_t>(d)]);
  for (int64_t i = 0; i < o.count; ++i) o.data[i] = t.data[offset(o.dims, strides, i)];
}

void same_elements(const Call& c) { std::copy_n(c.in(0).data, c.in(0).count, c.out().data); }  // reshape, clone
void full(const Call& c) { std::fill_n(c.out().data, c.out().count, static_cast<float>(c.number(1))); }

// --- element by element

// o[i] = f(a[i], b[i]); also where o is a or b.
template <class F>
void zip(const Tensor& o, const Tensor& a, const Tensor& b, F f) {
  if (a.count == o.count && b.count == o.count) {
    for (int64_t i = 0; i < o.count; ++i) o.data[i] = f(a.data[i], b.data[i]);
    return;
  }
  const auto sa = broadcast(a, o.dims), sb = broadcast(b, o.dims);
  for (int64_t i = 0; i < o.count; ++i)
    o.data[i] = f(a.data[offset(o.dims, sa, i)], b.data[offset(o.dims, sb, i)]);
}

void add(const Call& c) {
  zip(c.out(), c.in(0), c.in(1), [alpha = static_cast<float>(c.number(2))](float x, float y) { return x + alpha * y; });
}
void mul(const Call& c) { zip(c.out(), c.in(0), c.in(1), std::multiplies<float>()); }
void relu(const Call& c) {
  zip(c.out(), c.in(0), c.in(0), [](float x, float) { return x < 0 ? 0 : x; });  // NaN stays
}
void threshold_backward(const Call& c) {
  const auto threshold = static_cast<float>(c.number(2));
  zip(c.out(), c.in(0), c.in(1), [threshold](float grad, float x) { return x <= threshold ? 0 : grad; });
}

void foreach_add(const Call& c) {  // the step of SGD
  const auto a = c.list(0), b = c.list(1);
  const auto alpha = static_cast<float>(c.number(2));
  for (size_t k = 0; k < a.size(); ++k) zip(c.out(k), a[k], b[k], [alpha](float x, float y) { return x + alpha * y; });
}
void foreach_mul(const Call& c) {  // momentum
  const auto a = c.list(0);
  const auto factor = static_cast<float>(c.number(1));
  for (size_t k = 0; k < a.size(); ++k) zip(c.out(k), a[k], a[k], [factor](float x, float) { return x * factor; });
}

// --- matrices and sums

void multiply(const Tensor& a, const Tensor& b, const Tensor& o, float alpha) {  // o += alpha * a @ b
  const int64_t inner = a.dims[1], columns = o.dims[1];
  for (int64_t i = 0; i < o.dims[0]; ++i)
    for (int64_t k = 0; k < inner; ++k) {
      const float x = alpha * a.data[i * inner + k];
      for (int64_t j = 0; j < columns; ++j) o.data[i * columns + j] += x * b.data[k * columns + j];
    }
}

void mm(const Call& c) {
  std::fill_n(c.out().data, c.out().count, 0.0f);
  multiply(c.in(0), c.in(1), c.out(), 1);
}

void addmm(const Call& c) {  // beta * bias + alpha * a @ b
  const auto beta = static_cast<float>(c.number(3));
  zip(c.out(), c.in(0), c.out(), [beta](float bias, float) { return beta == 0 ? 0 : beta * bias; });
  multiply(c.in(1), c.in(2), c.out(), static_cast<float>(c.number(4)));
}

void sum(const Call& c) {
  const Tensor t = c.in(0), o = c.out();
  std::vector<int64_t> kept(t.dims.begin(), t.dims.end());
  const bool some = c.arg(1).kind == LAZYT_ARG_INTS && c.arg(1).count > 0;
  if (some) for (int64_t d : c.ints(1)) kept[static_cast<size_t>(d)] = 1;
  else std::ranges::fill(kept, 1);
  std::vector<int64_t> strides = dense(kept);  // of the result, read with the dims of t
  for (size_t d = 0; d < kept.size(); ++d) strides[d] = kept[d] == 1 ? 0 : strides[d];
  std::fill_n(o.data, o.count, 0.0f);
  for (int64_t i = 0; i < t.count; ++i) o.data[offset(t.dims, strides, i)] += t.data[i];
}

// --- losses

int64_t row_length(const Tensor& t) { return t.dims.empty() ? 1 : t.dims.back(); }

void log_softmax(const Call& c) {
  const Tensor t = c.in(0), o = c.out();
  const int64_t n = row_length(t);
  for (int64_t row = 0; row < t.count; row += n) {
    const float most = *std::max_element(t.data + row, t.data + row + n);
    float total = 0;
    for (int64_t i = 0; i < n; ++i) total += std::exp(t.data[row + i] - most);
    for (int64_t i = 0; i < n; ++i) o.data[row + i] = t.data[row + i] - most - std::log(total);
  }
}

void log_softmax_backward(const Call& c) {
  const Tensor grad = c.in(0), t = c.in(1), o = c.out();
  const int64_t n = row_length(t);
  for (int64_t row = 0; row < t.count; row += n) {
    float total = 0;
    for (int64_t i = 0; i < n; ++i) total += grad.data[row + i];
    for (int64_t i = 0; i < n; ++i) o.data[row + i] = grad.data[row + i] - std::exp(t.data[row + i]) * total;
  }
}

// Calls f(where the row's class lies) for each row that counts. A bad class poisons the outputs (EXE-2), never the process.
template <class F>
void for_each_target(const Tensor& input, const Tensor& targets, int64_t ignored, F f) {
  const int64_t classes = input.dims[1];
  int64_t row = 0;
  for (int64_t target : targets.as<int64_t>()) {
    if (target != ignored) {
      if (target < 0 || target >= classes)
        throw Error(LAZYT_CODE_OUT_OF_RANGE, "acme: nll_loss: target " + std::to_string(target) + " of " +
                                                 std::to_string(classes) + " classes");
      f(row * classes + target);
    }
    ++row;
  }
}

void nll_loss(const Call& c) {
  const Tensor t = c.in(0);
  float loss = 0, weight = 0;
  for_each_target(t, c.in(1), static_cast<int64_t>(c.number(4)), [&](int64_t at) {
    loss -= t.data[at];
    weight += 1;
  });
  c.out(0).data[0] = c.number(3) == kMean ? loss / weight : loss;
  c.out(1).data[0] = weight;
}

void nll_loss_backward(const Call& c) {
  const Tensor o = c.out();
  const float step = c.number(4) == kMean ? c.in(0).data[0] / c.in(6).data[0] : c.in(0).data[0];
  std::fill_n(o.data, o.count, 0.0f);
  for_each_target(c.in(1), c.in(2), static_cast<int64_t>(c.number(5)), [&](int64_t at) { o.data[at] = -step; });
}

void mse_loss(const Call& c) {
  const Tensor a = c.in(0), b = c.in(1);
  float total = 0;
  for (int64_t i = 0; i < a.count; ++i) total += (a.data[i] - b.data[i]) * (a.data[i] - b.data[i]);
  c.out().data[0] = c.number(2) == kMean ? total / static_cast<float>(a.count) : total;
}

void mse_loss_backward(const Call& c) {
  const float n = c.number(3) == kMean ? static_cast<float>(c.in(1).count) : 1;
  zip(c.out(), c.in(1), c.in(2), [step = 2 * c.in(0).data[0] / n](float x, float y) { return step * (x - y); });
}

// [region table]
constexpr Operator kOperators[] = {
    {"aten::_foreach_add.List", lists, foreach_add},
    {"aten::_foreach_mul.Scalar", float32, foreach_mul},
    {"aten::_log_softmax", last_dim<1>, log_softmax},
    {"aten::_log_softmax_backward_data", last_dim<2>, log_softmax_backward},
    {"aten::add.Tensor", float32, add},
    {"aten::addmm", float32, addmm},
    {"aten::clone", float32, same_elements},
    {"aten::full", float32, full},
    {"aten::mm", float32, mm},
    {"aten::mse_loss", mse<0>, mse_loss},
    {"aten::mse_loss_backward", mse<1>, mse_loss_backward},
    {"aten::mul.Tensor", float32, mul},
    {"aten::nll_loss_backward", nll<1>, nll_loss_backward},
    {"aten::nll_loss_forward", nll<0>, nll_loss},
    {"aten::permute", float32, permute},
    {"aten::relu", float32, relu},
    {"aten::reshape", float32, same_elements},
    {"aten::sum.dim_IntList", float32, sum},
    {"aten::threshold_backward", float32, threshold_backward},
};
// [end]

// [region plugin]
constexpr Plugin kAcme = {
    .name = "acme",
    .version = "0.1.0",
    .description = "acme: runs programs on the CPU",
    .vendor = "acme",
    .device = "acme on the CPU",
    .score = -1,  // below 0: taken only by those who name it; raise it when acme is fast
    .operators = kOperators,
};

}  // namespace

LAZYT_INTERPRETER(kAcme)
// [end]
