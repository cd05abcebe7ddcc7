// Products of matrices, and attention.
#include "ir/shape_rules/rules.h"

namespace lazyt::ir {
namespace {

// ---- products

void mm(const NodeView& v) {
  require(v.rank(0) == 2 && v.rank(1) == 2 && v.dims(0)[1] == v.dims(1)[0], "{} times {}", v.dims(0), v.dims(1));
  v.gives({v.dims(0)[0], v.dims(1)[1]});
}
Dims product_of(const Dims& a, const Dims& b) {
  const bool fits = a.size() == b.size() && (a.size() == 2 || (a.size() == 3 && a[0] == b[0]));
  const size_t n = a.size();
  require(fits && a[n - 1] == b[n - 2], "{} times {}", a, b);
  return n == 2 ? Dims{a[0], b[1]} : Dims{a[0], a[1], b[2]};
}
void bmm(const NodeView& v) {
  require(v.rank(0) == 3, "no batch of matrices");
  v.gives(product_of(v.dims(0), v.dims(1)));
}
void addmm(const NodeView& v) {
  const Dims out = product_of(v.dims(1), v.dims(2));
  v.gives(out);
  v.gives(broadcast(v.dims(0), out));
}
Dims by_vector(const Dims& a, const Dims& b) {
  require(a.size() == 2 && b.size() == 1 && a[1] == b[0], "{} times {}", a, b);
  return {a[0]};
}
void mv(const NodeView& v) { v.gives(by_vector(v.dims(0), v.dims(1))); }
void addmv(const NodeView& v) {
  const Dims out = by_vector(v.dims(1), v.dims(2));
  v.gives(out);
  v.gives(broadcast(v.dims(0), out));
}
void dot(const NodeView& v) {
  require(v.rank(0) == 1 && v.dims(0) == v.dims(1), "{} times {}", v.dims(0), v.dims(1));
  v.gives({});
}
void matmul(const NodeView& v) {
  Dims a = v.dims(0), b = v.dims(1);
  require(!a.empty() && !b.empty(), "a number is no matrix");
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  require(a.back() == b[b.size() - 2], "{} times {}", a, b);
  Dims out = broadcast({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2});
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  v.gives(out);
}
void linear(const NodeView& v) {
  Dims out = v.dims(0);
  const Dims& w = v.dims(1);
  require(!out.empty() && (w.size() == 2 || w.size() == 1) && out.back() == w.back(), "{} times {}", out, w);
  out.pop_back();
  if (w.size() == 2) out.push_back(w[0]);
  v.gives(out);
  if (v.has(2)) v.gives(broadcast(v.dims(2), out));
}

// ---- attention

// What queries [..., L, E], keys [..., S, E] and values [..., S, Ev] give; keys may have fewer heads.
Dims attended(const NodeView& v, size_t first, int mask, bool grouped) {
  const Dims &q = v.dims(first), &k = v.dims(first + 1), &x = v.dims(first + 2);
  const size_t n = q.size();
  const auto fit = [&](bool holds) { require(holds, "{}, {} and {} are no queries, keys and values", q, k, x); };
  fit(n >= 2 && k.size() >= 2 && x.size() >= 2 && q[n - 1] == k.back() && k[k.size() - 2] == x[x.size() - 2]);
  Dims before(q.begin(), q.end() - 2);
  const Dims of_keys(k.begin(), k.end() - 2), of_values(x.begin(), x.end() - 2);
  if (grouped) {
    fit(n >= 3 && k.size() == n && x.size() == n && k[n - 3] > 0 && x[n - 3] > 0 && q[n - 3] % k[n - 3] == 0 && q[n - 3] % x[n - 3] == 0);
  } else {
    before = broadcast(broadcast(before, of_keys), of_values);
  }
  Dims scores = before;
  scores.insert(scores.end(), {q[n - 2], k[k.size() - 2]});
  if (mask >= 0 && v.has(static_cast<size_t>(mask))) broadcast(v.dims(static_cast<size_t>(mask)), scores);
  Dims out = before;
  out.insert(out.end(), {q[n - 2], x.back()});
  return out;
}
void attention(const NodeView& v) { v.gives(attended(v, 0, 3, v.flag(7))); }
void attention_math(const NodeView& v) { v.gives(attended(v, 0, 3, v.flag(8))); }
// [batch, heads, ...], of which keys and values may have fewer.
Dims heads_attended(const NodeView& v, size_t first, int mask) {
  for (size_t i = first; i < first + 3; i++) require(v.rank(i) == 4 && v.dims(i)[0] == v.dims(first)[0], "queries, keys and values of other batches");
  return attended(v, first, mask, true);
}
void flash_attention(const NodeView& v) {
  const Dims out = heads_attended(v, 0, 5);
  v.gives(out);
  v.gives_elements(product(out, 0, 3), 1);
}
void flash_attention_backward(const NodeView& v) {
  const Dims out = heads_attended(v, 1, 8);
  v.is(0, out), v.is(4, out);
  require(v.numel(5) == product(out, 0, 3), "logsumexp is of other queries");
  for (uint32_t r = 0; r < 3; r++) v.gives(v.dims(1 + r), r);
}
void fused_attention(const NodeView& v) {
  const Dims out = heads_attended(v, 0, 3);
  v.gives(out);
  v.gives_elements(product(out, 0, 3), 1);
}
void fused_attention_backward(const NodeView& v) {
  const Dims out = heads_attended(v, 1, -1);
  v.is(0, out), v.is(6, out);
  require(v.numel(7) == product(out, 0, 3), "logsumexp is of other queries");
  for (uint32_t r = 0; r < 3; r++)
    if (v.mask(5, r)) v.gives(v.dims(1 + r), r);
  if (v.mask(5, 3)) v.gives(v.dims(4), 3);
}

}  // namespace

void add_products(ShapeRules& all) {
  all.add(mm, {"aten::mm", "aten::_int_mm"});
  all.add(bmm, {"aten::bmm"});
  all.add(addmm, {"aten::addmm", "aten::baddbmm"});
  all.add(addmv, {"aten::addmv"});
  all.add(mv, {"aten::mv"});
  all.add(dot, {"aten::dot"});
  all.add(matmul, {"aten::matmul"});
  all.add(linear, {"aten::linear"});
  all.add(attention, {"aten::scaled_dot_product_attention"});
  all.add(attention_math, {"aten::_scaled_dot_product_attention_math"});
  all.add(flash_attention, {"aten::_scaled_dot_product_flash_attention_for_cpu"});
  all.add(flash_attention_backward, {"aten::_scaled_dot_product_flash_attention_for_cpu_backward"});
  all.add(fused_attention, {"aten::_scaled_dot_product_fused_attention_overrideable"});
  all.add(fused_attention_backward, {"aten::_scaled_dot_product_fused_attention_overrideable_backward"});
}

}  // namespace lazyt::ir
