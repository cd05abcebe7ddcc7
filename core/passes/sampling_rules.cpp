// Rules of images and volumes that are sampled at places which a tensor names (grid_sample), and of their gradients: what lies at
// the corners around each place, gathered, times how near it is. As PyTorch's kernels for the CPU (ATen/native/GridSampler.h); a place
// that is no number has nothing near it. Bound 8; gradients of the operand are sums of as many terms as places share an element.
#include "passes/decomposition.h"

namespace lazyt::passes {
namespace {

using base::Dims;
using base::DType;
using ir::Arg;
using ir::ValueId;

constexpr DType kInt64 = LAZYT_DTYPE_INT64;
constexpr int64_t kBilinear = 0, kNearest = 1;  // interpolation_mode
constexpr int64_t kZeros = 0, kReflection = 2;  // padding_mode
constexpr int64_t kMostPlaces = 1 << 24;        // along an axis, which f32 counts

// One of the two elements beside a place along an axis, of shape [N, points].
struct Side {
  ValueId index;   // 0 where there is no such element
  ValueId weight;  // 0 there
  ValueId slope;   // how fast the weight grows with the place
};
// An axis: the sides of all places (one of the nearest), and how fast places move with the numbers of the grid.
struct Axis {
  std::vector<Side> sides;
  ValueId speed;
};

struct Sampling {
  Pieces& p;
  const DType dtype;
  const int64_t mode, padding;
  const bool corners;

  Axis axis(ValueId x, int64_t n) const {
    const auto size = static_cast<double>(n);
    const ValueId from_edge = p.plus(x, 1);
    ValueId at = corners ? p.times(p.times(from_edge, 0.5), size - 1) : p.times(p.plus(p.times(from_edge, size), -1), 0.5);
    ValueId speed = p.full(Arg::of_double(corners ? (size - 1) / 2 : size / 2), dtype, p.dims(x));
    if (padding == kReflection) reflect(at, speed, corners ? 0 : -0.5, corners ? size - 1 : size);
    if (padding != kZeros) {
      const ValueId outside = p.both("logical_or", p.is("le", at, 0), p.is("ge", at, size - 1));
      speed = p.number_where(outside, 0, speed);
      at = p.op("aten::clamp", "", {Arg::of_value(at), Arg::of_double(0), Arg::of_double(size - 1)}, dtype, p.dims(at));
    }
    Axis out{{}, speed};
    if (mode == kNearest) {
      const ValueId nearest = p.unary("aten::round", at), one = p.full(Arg::of_int(1), dtype, p.dims(at));
      out.sides.push_back(side(nearest, one, 0, n));
      return out;
    }
    const ValueId low = p.unary("aten::floor", at), high = p.plus(low, 1);
    out.sides.push_back(side(low, p.sub(high, at), -1, n));
    out.sides.push_back(side(high, p.sub(at, low), 1, n));
    return out;
  }

  // Mirrored at low and low + span until it lies between.
  void reflect(ValueId& at, ValueId& speed, double low, double span) const {
    if (span <= 0) {
      at = p.zeros(dtype, p.dims(at));
      speed = at;
      return;
    }
    const ValueId from = p.plus(at, -low), far = p.unary("aten::abs", from);
    const ValueId turns = p.unary("aten::floor", p.scalar("div", far, Arg::of_double(span)));
    const ValueId rest = p.scalar("fmod", far, Arg::of_double(span));
    const ValueId odd = p.is("ne", p.scalar("fmod", turns, Arg::of_int(2)), 0);
    at = p.plus(p.where(odd, p.from(span, rest), rest), low);
    speed = p.where(p.both("logical_xor", odd, p.is("lt", from, 0)), p.unary("aten::neg", speed), speed);
  }

  Side side(ValueId at, ValueId weight, double slope, int64_t n) const {
    const ValueId zeros = p.zeros(dtype, p.dims(at));  // also of what is no number
    const ValueId inside = p.both("logical_and", p.is("ge", at, 0), p.is("le", at, static_cast<double>(n - 1)));
    return {p.cast(p.where(inside, at, zeros), kInt64), p.where(inside, weight, zeros),
            p.where(inside, p.full(Arg::of_double(slope), dtype, p.dims(at)), zeros)};
  }
};

// Corners around each place: one side of each axis.
struct Corner {
  ValueId index;  // [N, 1, points], within a plane
  std::vector<const Side*> sides;

  // The product of the weights, of all axes but one.
  ValueId weight(Pieces& p, size_t without = SIZE_MAX) const {
    ValueId product = ir::kNone;
    for (size_t a = 0; a < sides.size(); a++) {
      if (a == without) continue;
      product = product == ir::kNone ? sides[a]->weight : p.mul(product, sides[a]->weight);
    }
    return product;
  }
};

std::vector<Corner> corners_of(Pieces& p, const std::vector<Axis>& axes, const Dims& image) {
  std::vector<Corner> out;
  const size_t sides = axes[0].sides.size(), count = size_t{1} << (sides == 1 ? 0 : axes.size());
  for (size_t k = 0; k < count; k++) {
    Corner corner;
    ValueId index = ir::kNone;
    for (size_t a = 0; a < axes.size(); a++) {
      const Side& side = axes[a].sides[k >> a & 1];
      corner.sides.push_back(&side);
      index = index == ir::kNone ? side.index : p.add(p.scalar("mul", index, Arg::of_int(image.at(2 + a))), side.index);
    }
    corner.index = p.with_one(index, 1);
    out.push_back(std::move(corner));
  }
  return out;
}

// (input, grid, mode, padding, align_corners), (grad, input, grid, ..., output_mask) -> of input, of grid
Results grid_sampler(Pieces& p) {
  const bool backward = p.node.name.ends_with("_backward");
  const size_t first = backward ? 1 : 0;
  const DType dtype = wide(p.result().dtype);
  const Dims image = p.dims(p.value(first)), grid = p.dims(p.value(first + 1));
  if (!is_float(dtype) || image.size() < 4 || grid.size() != image.size() || p.arg(first + 2).i > kNearest) return kNot;
  if (p.dtype(p.value(first)) != p.result().dtype || p.dtype(p.value(first + 1)) != p.result().dtype) return kNot;
  const auto axes_count = static_cast<int64_t>(image.size()) - 2;
  const int64_t n = image.at(0), channels = image.at(1);
  int64_t plane = 1, points = 1;
  for (int64_t a = 0; a < axes_count; a++) {
    plane *= image.at(static_cast<size_t>(2 + a)), points *= grid.at(static_cast<size_t>(1 + a));
    if (image.at(static_cast<size_t>(2 + a)) > kMostPlaces) return kNot;
  }
  if (plane == 0) return kNot;
  std::vector<ValueId> out;  // of a gradient what is not asked for is zeros
  for (uint32_t r = 0; r < p.node.result_count; r++) out.push_back(p.zeros(p.result(r).dtype, p.result(r).dims));
  if (p.elements({n, channels, points}) == 0) return out;  // nothing is sampled

  const Sampling sampling{p, dtype, p.arg(first + 2).i, p.arg(first + 3).i, p.arg(first + 4).i != 0};
  const ValueId places = p.reshape(p.cast(p.value(first + 1), dtype), {n, points, axes_count});
  std::vector<Axis> axes;  // the grid names the last one first
  for (int64_t a = 0; a < axes_count; a++)
    axes.push_back(sampling.axis(p.without(p.slice(places, 2, axes_count - 1 - a, axes_count - a), 2), image.at(static_cast<size_t>(2 + a))));
  const std::vector<Corner> corners = corners_of(p, axes, image);
  const auto everywhere = [&](const Corner& c) { return p.expand(c.index, {n, channels, points}); };
  const ValueId flat = p.reshape(p.cast(p.value(first), dtype), {n, channels, plane});
  const auto at = [&](const Corner& c) {
    return p.op("aten::gather", "", {Arg::of_value(flat), Arg::of_int(2), Arg::of_value(everywhere(c)), Arg::of_bool(false)}, dtype, {n, channels, points});
  };
  const auto plus = [&](ValueId sum, ValueId v) { return sum == ir::kNone ? v : p.add(sum, v); };

  if (!backward) {
    ValueId sum = ir::kNone;
    for (const Corner& c : corners) sum = plus(sum, p.mul(at(c), p.with_one(c.weight(p), 1)));
    return one(p.rounded(sum));
  }

  const ValueId grad = p.reshape(p.cast(p.value(0), dtype), {n, channels, points});
  const auto wanted = [&](size_t r) { return p.arg(6).ints.at(r) != 0; };
  if (wanted(0)) {
    ValueId sum = p.zeros(dtype, {n, channels, plane});
    for (const Corner& c : corners)
      sum = p.op("aten::scatter_add", "",
                 {Arg::of_value(sum), Arg::of_int(2), Arg::of_value(everywhere(c)), Arg::of_value(p.mul(grad, p.with_one(c.weight(p), 1)))}, dtype,
                 {n, channels, plane});
    out[0] = p.rounded(sum, 0);
  }
  if (wanted(1) && sampling.mode == kBilinear) {
    std::vector<ValueId> sums(axes.size(), ir::kNone);
    for (const Corner& c : corners) {
      const ValueId along = p.without(p.reduce("sum", p.mul(grad, at(c)), {1}), 1);
      for (size_t a = 0; a < axes.size(); a++) sums[a] = plus(sums[a], p.mul(p.mul(along, c.sides[a]->slope), c.weight(p, a)));
    }
    std::vector<ValueId> parts;
    for (size_t a = axes.size(); a-- > 0;) parts.push_back(p.with_one(p.mul(sums[a], axes[a].speed), 2));
    out[1] = p.rounded(p.cat(parts, 2), 1);
  }
  return out;
}

}  // namespace

const Rules& sampling_rules() {
  static const auto& rules = *new Rules{
      {"aten::grid_sampler_2d_backward", grid_sampler},
      {"aten::grid_sampler_3d", grid_sampler},
      {"aten::grid_sampler_3d_backward", grid_sampler},
  };
  return rules;
}

}  // namespace lazyt::passes
