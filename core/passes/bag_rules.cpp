// Rules of embedding bags: rows of a table, added up bag by bag. What PyTorch's kernel for the CPU returns beside the sums is made
// as it makes it: the bag of each index (nothing where its fast way needs none), and of means how many each bag has.
#include "passes/decomposition.h"

namespace lazyt::passes {
namespace {

using base::DType;
using ir::Arg;
using ir::ValueId;

constexpr DType kInt64 = LAZYT_DTYPE_INT64;
constexpr int64_t kSum = 0, kMean = 1;  // modes

ValueId index_add(Pieces& p, ValueId to, ValueId index, ValueId rows) {
  return p.op("aten::index_add", "", {Arg::of_value(to), Arg::of_int(0), Arg::of_value(index), Arg::of_value(rows), Arg::of_int(1)}, p.dtype(to), p.dims(to));
}
ValueId rows_of(Pieces& p, ValueId table, ValueId index) {
  return p.op("aten::index_select", "", {Arg::of_value(table), Arg::of_int(0), Arg::of_value(index)}, p.dtype(table), {p.size(index, 0), p.size(table, 1)});
}
// A number per row beside rows.
ValueId column(Pieces& p, ValueId v) { return p.with_one(v, 1); }

// The bag of each of n indices, of where bags begin: a one at each beginning, added up along the way. With include_last_offset there
// is an offset more than bags, which begins none.
ValueId bags_of(Pieces& p, ValueId offsets, int64_t count, int64_t n) {
  offsets = p.slice(p.cast(offsets, kInt64), 0, 0, count);
  const ValueId ones = p.full(Arg::of_int(1), kInt64, {count});
  const ValueId begins = p.slice(index_add(p, p.zeros(kInt64, {n + 1}), offsets, ones), 0, 0, n);
  return p.plus(p.op("aten::cumsum", "", {Arg::of_value(begins), Arg::of_int(0), Arg::none()}, kInt64, {n}), -1);
}

// What of a bag counts: all, or what is no padding.
struct Counted {
  ValueId padding = ir::kNone;  // which indices are

  Counted(Pieces& p, ValueId indices, int64_t padding_idx) {
    if (padding_idx >= 0) padding = p.is("eq", indices, static_cast<double>(padding_idx));
  }
  ValueId rows(Pieces& p, ValueId v) const { return padding == ir::kNone ? v : p.number_where(column(p, padding), 0, v); }
  ValueId sizes(Pieces& p, ValueId bags, int64_t count) const {
    ValueId ones = p.full(Arg::of_int(1), kInt64, p.dims(bags));
    if (padding != ir::kNone) ones = p.number_where(padding, 0, ones);
    return index_add(p, p.zeros(kInt64, {count}), bags, ones);
  }
};
// What means divide by: 1 for a bag without any.
ValueId divisor(Pieces& p, ValueId sizes, DType dtype) {
  return column(p, p.cast(p.op("aten::clamp_min", "", {Arg::of_value(sizes), Arg::of_int(1)}, kInt64, p.dims(sizes)), dtype));
}

bool is_plain(const Pieces& p, size_t mode, size_t weights) {
  return (p.arg(mode).i == kSum || p.arg(mode).i == kMean) && (p.is_none(weights) || p.arg(mode).i == kSum) && is_float(p.result().dtype) &&
         p.result().numel() != 0;
}

// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights?, include_last_offset, padding_idx) -> sums, bags, sizes, largest
Results embedding_bag(Pieces& p) {
  constexpr size_t kMode = 4, kWeights = 6, kPadding = 8;
  if (!is_plain(p, kMode, kWeights) || p.rank(p.value(1)) != 1) return kNot;
  const ValueId indices = p.cast(p.value(1), kInt64);
  const int64_t n = p.size(indices, 0), count = p.result().dims.at(0);
  if (n == 0) return kNot;
  const ValueId bags = bags_of(p, p.value(2), count, n);
  const Counted counted(p, indices, p.arg(kPadding).i);
  ValueId rows = rows_of(p, p.operand(0), indices);
  if (!p.is_none(kWeights)) rows = p.mul(rows, column(p, p.operand(kWeights)));
  ValueId sums = index_add(p, p.zeros(p.dtype(rows), p.result().dims), bags, counted.rows(p, rows));
  ValueId sizes = p.zeros(kInt64, {count});
  if (p.arg(kMode).i == kMean) {
    sizes = counted.sizes(p, bags, count);
    sums = p.div(sums, divisor(p, sizes, p.dtype(sums)));
  }
  const auto beside = [&](ValueId v, uint32_t r) { return p.meta(v).numel() == p.result(r).numel() ? p.rounded(v, r) : p.zeros(p.result(r).dtype, p.result(r).dims); };
  return std::vector<ValueId>{p.rounded(sums), beside(bags, 1), beside(sizes, 2), beside(sizes, 3)};
}

// (grad, indices, offsets, bags, sizes, largest, num_weights, scale_grad_by_freq, mode, sparse, per_sample_weights?, padding_idx)
Results embedding_bag_backward(Pieces& p) {
  constexpr size_t kByFrequency = 7, kMode = 8, kSparse = 9, kWeights = 10, kPadding = 11;
  if (!is_plain(p, kMode, kWeights) || p.arg(kByFrequency).i || p.arg(kSparse).i) return kNot;
  const ValueId indices = p.cast(p.value(1), kInt64);
  const int64_t n = p.size(indices, 0);
  if (n == 0 || p.meta(p.value(0)).numel() == 0) return kNot;
  ValueId grad = p.operand(0);
  const ValueId bags = bags_of(p, p.value(2), p.size(grad, 0), n);
  const Counted counted(p, indices, p.arg(kPadding).i);
  if (p.arg(kMode).i == kMean) grad = p.div(grad, divisor(p, counted.sizes(p, bags, p.size(grad, 0)), p.dtype(grad)));
  ValueId rows = rows_of(p, grad, bags);
  if (!p.is_none(kWeights)) rows = p.mul(rows, column(p, p.operand(kWeights)));
  return one(p.rounded(index_add(p, p.zeros(p.dtype(rows), p.result().dims), indices, counted.rows(p, rows))));
}

// (grad, weight, indices, offsets, bags, mode, padding_idx)
Results embedding_bag_weights_backward(Pieces& p) {
  const ValueId indices = p.cast(p.value(2), kInt64), grad = p.operand(0);
  if (!is_float(p.result().dtype) || p.result().numel() == 0 || p.meta(grad).numel() == 0 || p.arg(5).i != kSum) return kNot;
  const ValueId bags = bags_of(p, p.value(3), p.size(grad, 0), p.size(indices, 0));
  const ValueId product = p.mul(rows_of(p, grad, bags), rows_of(p, p.operand(1), indices));
  return one(p.rounded(p.reduce("sum", Counted(p, indices, p.arg(6).i).rows(p, product), {1})));
}

}  // namespace

const Rules& bag_rules() {
  static const auto& rules = *new Rules{
      {"aten::_embedding_bag", embedding_bag},
      {"aten::_embedding_bag_backward", embedding_bag_backward},
      {"aten::_embedding_bag_forward_only", embedding_bag},
      {"aten::_embedding_bag_per_sample_weights_backward", embedding_bag_weights_backward},
  };
  return rules;
}

}  // namespace lazyt::passes
