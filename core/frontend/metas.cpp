#include "frontend/metas.h"

#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/addmm_meta_dispatch.h>
#include <ATen/ops/addmv_meta_dispatch.h>
#include <ATen/ops/baddbmm_meta_dispatch.h>
#include <ATen/ops/bmm_meta_dispatch.h>
#include <ATen/ops/cat_meta_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/gelu_backward_meta_dispatch.h>
#include <ATen/ops/gelu_meta_dispatch.h>
#include <ATen/ops/mm_meta_dispatch.h>

#include <span>
#include <string_view>
#include <unordered_map>

namespace lazyt::frontend {
namespace {

using at::Tensor;
using torch::jit::Stack;
using Rule = Stack (*)(const Stack& args);  // nothing: ask elsewhere, as for what is wrong

// empty_like and new_empty are written in Python on the meta device; the first imports SymPy, half a second and 20 MB.
Tensor fresh(const Tensor& like, at::IntArrayRef sizes) { return at::empty(sizes, like.options()); }
Tensor fresh(const Tensor& like) { return fresh(like, like.sizes()); }
Tensor laid_out_like(const Tensor& t) {
  if (t.is_non_overlapping_and_dense()) return at::empty_strided(t.sizes(), t.strides(), t.options());
  return at::empty_strided(t.sizes(), at::infer_dense_strides(t.sizes(), t.strides()), t.options());
}

Stack mm(const Stack& a) { return {at::meta::mm(a[0].toTensor(), a[1].toTensor())}; }
Stack bmm(const Stack& a) { return {at::meta::bmm(a[0].toTensor(), a[1].toTensor())}; }
Stack int_mm(const Stack& a) {
  const Tensor &x = a[0].toTensor(), &y = a[1].toTensor();
  if (x.dim() != 2 || y.dim() != 2 || x.size(1) != y.size(0) || y.scalar_type() != at::kChar ||
      (x.scalar_type() != at::kChar && x.scalar_type() != at::kByte))
    return {};
  return {at::empty({x.size(0), y.size(1)}, x.options().dtype(at::kInt))};
}
template <auto f>
Stack with_addend(const Stack& a) {
  return {f(a[0].toTensor(), a[1].toTensor(), a[2].toTensor(), a[3].toScalar(), a[4].toScalar())};
}

// self, mat2, offs, bias, out_dtype: PyTorch's meta kernel takes bf16 alone, the CPU's halves and f32. Groups of rows with a
// matrix each, or of columns and rows with each other.
Stack grouped_mm(const Stack& a) {
  const Tensor &x = a[0].toTensor(), &y = a[1].toTensor();
  const at::ScalarType dtype = x.scalar_type();
  if (x.dim() != 2 || (y.dim() != 2 && y.dim() != 3) || !a[2].isTensor() || !a[3].isNone() || !a[4].isNone()) return {};
  const Tensor& ends = a[2].toTensor();
  const bool of_rows = y.dim() == 3;
  if (y.scalar_type() != dtype || (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf)) return {};
  if (x.size(1) != y.size(-2) || ends.dim() != 1 || ends.scalar_type() != at::kInt || (of_rows && ends.size(0) != y.size(0))) return {};
  for (const Tensor* t : {&x, &y})
    for (int64_t stride : {t->stride(-1), t->stride(-2)})
      if (stride != 1 && stride * t->itemsize() % 16 != 0) return {};  // eager refuses it
  if (of_rows) return {fresh(x, {x.size(0), y.size(2)})};
  return {fresh(x, {ends.size(0), x.size(0), y.size(1)})};
}

// input, weight
Stack linear(const Stack& a) {
  std::vector<int64_t> sizes = a[0].toTensor().sizes().vec();
  sizes.back() = a[1].toTensor().size(0);
  return {fresh(a[0].toTensor(), sizes)};
}

// input or none, grad_output, weight or none, mask
Stack linear_backward(const Stack& a) {
  const Tensor& grad = a[1].toTensor();
  const auto mask = a[3].toBoolList();
  std::vector<int64_t> sizes = grad.sizes().vec();
  const int64_t out = sizes.back();
  Stack made(3, Tensor());
  if (mask[0]) sizes.back() = a[2].toTensor().size(1), made[0] = fresh(grad, sizes);
  if (mask[1]) made[1] = fresh(grad, {out, a[0].toTensor().size(-1)});
  if (mask[2]) made[2] = fresh(grad, {out});
  return made;
}

// input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
Stack convolution(const Stack& a) {
  const Tensor &x = a[0].toTensor(), &w = a[1].toTensor();
  const auto stride = a[3].toIntVector(), padding = a[4].toIntVector(), dilation = a[5].toIntVector(), more = a[7].toIntVector();
  const bool transposed = a[6].toBool();
  const int64_t groups = a[8].toInt();
  const auto axes = static_cast<size_t>(std::max<int64_t>(x.dim() - 2, 0));
  if (axes == 0 || w.dim() != x.dim() || groups < 1 || stride.size() != axes || padding.size() != axes || dilation.size() != axes ||
      more.size() != axes || x.size(1) != (transposed ? w.size(0) : w.size(1) * groups) || w.size(0) % groups != 0 ||
      w.scalar_type() != x.scalar_type())
    return {};
  for (size_t d = 0; d < axes; d++)
    if (stride[d] < 1 || dilation[d] < 1 || padding[d] < 0) return {};
  const auto sizes = transposed ? at::native::conv_input_size(x.sizes(), w.sizes(), padding, more, stride, dilation, groups)
                                : at::native::conv_output_size(x.sizes(), w.sizes(), padding, stride, dilation);
  for (int64_t size : std::span(sizes).subspan(2))
    if (size < 1) return {};
  return {fresh(x, sizes)};
}

// grad_output, input, weight, bias_sizes, ..., output_mask
Stack convolution_backward(const Stack& a) {
  const auto mask = a[10].toBoolList();
  const Tensor &grad = a[0].toTensor(), &input = a[1].toTensor(), &weight = a[2].toTensor();
  auto like = [&](bool wanted, const Tensor& t) { return wanted ? fresh(t) : Tensor(); };
  Tensor bias;
  if (mask[2]) bias = fresh(grad, {grad.size(1)});
  return {like(mask[0], input), like(mask[1], weight), bias};
}

// [batch, heads, length, width], lying with heads behind length.
Tensor by_token(const Tensor& like, int64_t length, int64_t width) {
  return fresh(like, {like.size(0), length, like.size(1), width}).transpose(1, 2);
}
// query, key, value, dropout_p, is_causal, attn_mask, scale
Stack attention(const Stack& a) {
  const Tensor& q = a[0].toTensor();
  const Tensor sums = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::toOpMathType(q.scalar_type())));
  return {laid_out_like(q), sums.transpose(1, 2)};
}
Stack attention_backward(const Stack& a) {
  Stack out;
  for (size_t i : {1, 2, 3}) out.emplace_back(by_token(a[i].toTensor(), a[i].toTensor().size(2), a[i].toTensor().size(3)));
  return out;
}

// The recurrent cells and layers, as rnn.cpp computes them.
Stack lstm_cell(const Stack& a) {
  const Tensor& cx = a[2].toTensor();
  return {fresh(cx), fresh(cx), fresh(cx, {cx.size(0), 4 * cx.size(1)})};
}
Stack lstm_cell_backward(const Stack& a) {
  if (a[0].isNone() && a[1].isNone()) return {Tensor(), Tensor(), Tensor()};
  const Tensor &cx = a[2].toTensor(), &workspace = a[4].toTensor();
  Tensor bias;
  if (a[5].toBool()) bias = fresh(workspace, {workspace.size(1)});
  return {fresh(workspace), fresh(cx), bias};
}
Stack gru_cell(const Stack& a) {
  const Tensor& hx = a[2].toTensor();
  return {fresh(hx), fresh(hx, {hx.size(0), 5 * hx.size(1)})};
}
Stack gru_cell_backward(const Stack& a) {
  const Tensor& grad = a[0].toTensor();
  const int64_t gates = 3 * grad.size(1);
  auto bias = [&] { return a[2].toBool() ? fresh(grad, {gates}) : Tensor(); };
  return {fresh(grad, {grad.size(0), gates}), fresh(grad, {grad.size(0), gates}), fresh(grad), bias(), bias()};
}

Stack lstm_layer(const Stack& a) {
  const Tensor &x = a[0].toTensor(), &cx = a[2].toTensor();
  const int64_t length = x.size(0), batch = cx.size(0), width = cx.size(1);
  const Tensor steps = fresh(x, {length, batch, width});
  return {steps, fresh(cx), fresh(cx), fresh(steps), fresh(x, {length, batch, 4 * width})};
}
Stack lstm_layer_backward(const Stack& a) {
  Stack out;
  for (size_t i : {3, 4, 5, 6, 7}) out.emplace_back(fresh(a[i].toTensor()));
  out.emplace_back(fresh(a[6].toTensor(), {a[6].toTensor().size(0)}));
  return out;
}
Stack gru_layer(const Stack& a) {
  const Tensor &x = a[0].toTensor(), &hx = a[1].toTensor();
  const int64_t length = x.size(0), batch = hx.size(0), width = hx.size(1);
  return {fresh(x, {length, batch, width}), fresh(hx), fresh(x, {length, batch, 5 * width})};
}
Stack gru_layer_backward(const Stack& a) {
  Stack out;
  for (size_t i : {2, 3, 4, 5}) out.emplace_back(fresh(a[i].toTensor()));
  for (size_t i : {4, 5}) out.emplace_back(fresh(a[i].toTensor(), {a[i].toTensor().size(0)}));
  return out;
}

bool is_common(at::ScalarType t) {
  return (at::isFloatingType(t) && !at::isFloat8Type(t) && t != at::kFloat4_e2m1fn_x2) || t == at::kBool || t == at::kByte || t == at::kChar ||
         t == at::kShort || t == at::kInt || t == at::kLong;
}
// What the CPU's kernels of floating-point operators take.
bool is_real_float(at::ScalarType t) { return t == at::kFloat || t == at::kDouble || t == at::kBFloat16 || t == at::kHalf; }
Tensor on_meta(const Tensor& t) { return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta)); }

// By the function that eager's kernel asks, too.
std::optional<Stack> certain_cat(c10::ArrayRef<c10::IValue> a) {
  const auto list = a[0].toTensorList();
  if (list.empty()) return std::nullopt;
  std::vector<Tensor> parts;
  for (const Tensor& t : list) {
    if (!t.defined() || !is_common(t.scalar_type()) || t.scalar_type() != list.get(0).scalar_type()) return std::nullopt;
    parts.push_back(on_meta(t));
  }
  return Stack{at::meta::cat(parts, a[1].toInt())};
}

std::optional<Stack> certain_attention(c10::ArrayRef<c10::IValue> a) {
  const Tensor &q = a[0].toTensor(), &k = a[1].toTensor(), &v = a[2].toTensor();
  for (const Tensor* t : {&q, &k, &v})
    if (t->dim() != 4 || t->numel() == 0 || t->scalar_type() != q.scalar_type() || t->size(0) != q.size(0) || t->size(1) != q.size(1) ||
        t->size(3) != q.size(3))
      return std::nullopt;
  const at::ScalarType dtype = q.scalar_type();
  if (!is_real_float(dtype)) return std::nullopt;
  if (k.size(2) != v.size(2) || a[3].toDouble() != 0) return std::nullopt;
  if (a[5].isTensor()) {  // spread over what it has no dims of
    const Tensor& mask = a[5].toTensor();
    if (mask.dim() != 4 || mask.scalar_type() != dtype || a[4].toBool()) return std::nullopt;
    const int64_t sizes[] = {q.size(0), q.size(1), q.size(2), k.size(2)};
    for (int64_t d = 0; d < 4; d++)
      if (mask.size(d) != 1 && mask.size(d) != sizes[d]) return std::nullopt;
  }
  return attention({on_meta(q), on_meta(k), on_meta(v)});
}

// Asked, PyTorch's oneDNN would compile a kernel for each shape.
bool is_gelu(const Tensor& self, const c10::IValue& approximate) {
  const auto name = approximate.toStringView();
  return is_real_float(self.scalar_type()) && (name == "none" || name == "tanh");
}
std::optional<Stack> certain_gelu(c10::ArrayRef<c10::IValue> a) {
  const Tensor& self = a[0].toTensor();
  if (!is_gelu(self, a[1])) return std::nullopt;
  return Stack{at::meta::gelu(on_meta(self), a[1].toStringView())};
}
std::optional<Stack> certain_gelu_backward(c10::ArrayRef<c10::IValue> a) {
  const Tensor &grad = a[0].toTensor(), &self = a[1].toTensor();
  if (!is_gelu(self, a[2]) || grad.scalar_type() != self.scalar_type() || grad.sizes() != self.sizes()) return std::nullopt;
  return Stack{at::meta::gelu_backward(on_meta(grad), on_meta(self), a[2].toStringView())};
}

const auto& rules() {
  static const auto& all = *new std::unordered_map<std::string_view, Rule>{
      {"aten::mm", mm},
      {"aten::bmm", bmm},
      {"aten::_int_mm", int_mm},
      {"aten::_grouped_mm", grouped_mm},
      {"aten::addmm", with_addend<at::meta::addmm>},
      {"aten::addmv", with_addend<at::meta::addmv>},
      {"aten::baddbmm", with_addend<at::meta::baddbmm>},
      {"aten::linear", linear},
      {"aten::linear_backward", linear_backward},
      {"aten::convolution", convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::_thnn_fused_lstm_cell", lstm_cell},
      {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
      {"aten::_thnn_fused_gru_cell", gru_cell},
      {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward},
      {"lazyt::lstm_layer", lstm_layer},
      {"lazyt::lstm_layer_backward", lstm_layer_backward},
      {"lazyt::gru_layer", gru_layer},
      {"lazyt::gru_layer_backward", gru_layer_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
  };
  return all;
}

}  // namespace

bool is_contraction(const TorchOp& op) {
  const std::string_view name = op.op.name;
  if (rules().contains(name)) return true;
  for (std::string_view part : {"attention", "bilinear", "cdist", "cholesky", "conv", "ctc_loss", "eig", "geqrf", "inverse", "linalg", "linear",
                                "lstsq", "lstm", "lu_", "matmul", "matrix_exp", "ormqr", "pdist", "qr", "svd", "triangular", "trilinear"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

std::optional<Stack> contraction_results(const TorchOp& op, const Stack& args) {
  const auto rule = rules().find(op.op.name);
  if (rule == rules().end() || !op.op.overload.empty()) return std::nullopt;
  Stack results = rule->second(args);
  return results.empty() ? std::nullopt : std::optional(std::move(results));
}

std::optional<Stack> certain_results(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  if (!op.op.overload.empty()) return std::nullopt;
  if (op.op.name == "aten::cat") return certain_cat(args);
  if (op.op.name == "aten::_scaled_dot_product_flash_attention_for_cpu") return certain_attention(args);
  if (op.op.name == "aten::gelu") return certain_gelu(args);
  if (op.op.name == "aten::gelu_backward") return certain_gelu_backward(args);
  return std::nullopt;
}

}  // namespace lazyt::frontend
