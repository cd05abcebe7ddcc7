// Images sampled at places that a tensor names: grid_sampler_2d and its gradient.
#include <algorithm>
#include <cmath>

#include "../ops.h"
#include "elements.h"
#include "products.h"

namespace lazyt::onednn {
namespace {

enum Padding : int64_t { kZeros, kBorder, kReflection };

// kinds: of the arguments, two of them from `image`: an image and places.
Refusal accept(const ProgramView& program, const lazyt_node_t& node, const char* kinds, size_t image, uint32_t results) {
  if (!toolkit::has_arguments(program, node, kinds) || node.result_count != results)
    return toolkit::refuse_argument("other arguments, or some that change");
  const lazyt_dtype_t dtype = operand(program, node, 0).dtype;
  if (!toolkit::is_floating(dtype)) return refuse_dtype(dtype);
  if (!toolkit::all_tensors(program, node, [&](lazyt_dtype_t d) { return d == dtype; }))
    return toolkit::refuse_argument("operands of several dtypes");
  const lazyt_value_t& of = operand(program, node, image);
  const auto x = program.dims(of), places = program.dims(operand(program, node, image + 1));
  if (x.size() != 4 || places.size() != 4) return {LAZYT_REASON_RANK, "an image of another rank"};
  if (x[0] != places[0] || x[2] < 1 || x[3] < 1 || places[3] != 2)
    return toolkit::refuse_argument("an image and places that do not fit");
  // Offsets in a plane are of 32 bits.
  if (lazyt_value_numel(program.block(), &of) > INT32_MAX)
    return {LAZYT_REASON_SIZE, "an image of more than 2^31 elements"};
  if (int_at(program, node, image + 2) > 1) return toolkit::refuse_argument("bicubic interpolation");
  return {};
}
Refusal accept_forward(const ProgramView& program, const lazyt_node_t& node) {
  return accept(program, node, "ttiib", 0, 1);
}
Refusal accept_backward(const ProgramView& program, const lazyt_node_t& node) {
  return accept(program, node, "tttiibB", 1, 2);
}

// As PyTorch places a coordinate in [-1, 1] among n elements; by: the place's derivative.
struct Axis {
  int64_t n, padding;
  bool corners;

  template <Padding kPadding, bool kCorners, class C>
  LAZYT_INLINE C place(C v, C& by) const {
    const C size = static_cast<C>(n), last = size - 1;
    by = kCorners ? last / 2 : size / 2;
    v = kCorners ? (v + 1) / 2 * last : ((v + 1) * size - 1) / 2;
    if constexpr (kPadding == kReflection) v = reflected<kCorners>(v, by);
    if constexpr (kPadding == kZeros) return v;
    by = v > 0 && v < last ? by : C(0);
    return v < last ? (v > 0 ? v : C(0)) : v != v ? C(0) : last;
  }

 private:
  // Between the first and the last element's middles (corners), or their outer edges.
  template <bool kCorners, class C>
  LAZYT_INLINE C reflected(C v, C& by) const {
    const C low = kCorners ? C(0) : C(-0.5), span = kCorners ? static_cast<C>(n - 1) : static_cast<C>(n),
            twice = 2 * span;
    by = span > 0 ? v < low ? -by : by : C(0);
    v = std::abs(v - low);
    const C rest = span > 0 ? v - std::trunc(v / twice) * twice : C(0), back = twice - rest;
    by = rest < back ? by : -by;
    return (rest < back ? rest : back) + low;
  }
};

constexpr int64_t kPoints = 64;

// The four elements around each of some places, side by side for vectors.
template <class C>
struct Corners {
  using Offset = OffsetOf<C>;

  Offset offset[4][kPoints], inside[4][kPoints];  // in a plane, of the nearest element there; 1 or 0
  C share[4][kPoints];
  C along_x[4][kPoints], along_y[4][kPoints];  // derivatives of the shares
  C by_x[kPoints], by_y[kPoints];              // and of the places
};

struct Sampler {
  Tensor x, grid;  // [N, C, H, W], [N, Ho, Wo, 2]; dense
  Axis width, height;
  bool nearest;

  int64_t images() const { return x.dims()[0]; }
  int64_t channels() const { return x.dims()[1]; }
  int64_t plane() const { return x.dims()[2] * x.dims()[3]; }
  int64_t points() const { return grid.dims()[1] * grid.dims()[2]; }
};

// The largest number that is no more than n.
template <class C>
C no_more_than(int64_t n) {
  const C c = static_cast<C>(n);
  return static_cast<int64_t>(c) > n ? std::nextafter(c, C(0)) : c;
}
// A loop for each way: branches within, and truths that are joined, would keep it from vectors.
template <bool kNearest, Padding kPadding, bool kCorners, class C>
LAZYT_INLINE void find(Corners<C>& out, const Axis width, const Axis height, const C* grid, int64_t n) {
  using Offset = OffsetOf<C>;
  const C last_column = no_more_than<C>(width.n - 1), last_row = no_more_than<C>(height.n - 1);
  const auto row = static_cast<Offset>(width.n);
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const C fx = width.place<kPadding, kCorners>(grid[2 * j], out.by_x[j]), fy = height.place<kPadding, kCorners>(grid[2 * j + 1], out.by_y[j]);
    const C lx = kNearest ? std::nearbyint(fx) : std::floor(fx),
            ly = kNearest ? std::nearbyint(fy) : std::floor(fy);
    const C wx = kNearest ? C(0) : fx - lx, wy = kNearest ? C(0) : fy - ly;
    const C left = 1 - wx, above = 1 - wy;
    const C of_x[2] = {left, wx}, of_y[2] = {above, wy};
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const C px = lx + static_cast<C>(k & 1), py = ly + static_cast<C>(k >> 1);
      // The nearest element of the image; that of the place itself if it is inside.
      C x = px > 0 ? px : C(0), y = py > 0 ? py : C(0);
      x = x < last_column ? x : last_column, y = y < last_row ? y : last_row;
      const Offset inside_x = x == px ? 1 : 0, inside_y = y == py ? 1 : 0;
      out.inside[k][j] = k == 0 || !kNearest ? inside_x & inside_y : 0;
      out.offset[k][j] = static_cast<Offset>(y) * row + static_cast<Offset>(x);
      out.share[k][j] = of_x[k & 1] * of_y[k >> 1];
      out.along_x[k][j] = kNearest ? C(0) : k & 1 ? of_y[k >> 1] : -of_y[k >> 1];
      out.along_y[k][j] = kNearest ? C(0) : k >> 1 ? of_x[k & 1] : -of_x[k & 1];
    }
  }
}
template <bool kNearest, Padding kPadding, class C>
LAZYT_INLINE void find(Corners<C>& out, const Axis& width, const Axis& height, const C* grid, int64_t n) {
  width.corners ? find<kNearest, kPadding, true>(out, width, height, grid, n) : find<kNearest, kPadding, false>(out, width, height, grid, n);
}
template <bool kNearest, class C>
LAZYT_INLINE void find(Corners<C>& out, const Axis& width, const Axis& height, const C* grid, int64_t n) {
  if (width.padding == kZeros) return find<kNearest, kZeros>(out, width, height, grid, n);
  if (width.padding == kBorder) return find<kNearest, kBorder>(out, width, height, grid, n);
  return find<kNearest, kReflection>(out, width, height, grid, n);
}
// Instructions that gather: on AMD they take longer than as many loads.
#ifdef __x86_64__
const bool gathers = (__builtin_cpu_init(), __builtin_cpu_is("intel"));
#else
const bool gathers = false;
#endif

template <class C>
LAZYT_INLINE C element(const Corners<C>& at, int k, int64_t j, const C* plane) {
  const C v = plane[at.offset[k][j]];
  return at.inside[k][j] ? v : C(0);
}
template <class C>
LAZYT_INLINE void sample(C* y, const Corners<C>& at, const C* plane, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j)
    y[j] = element(at, 0, j, plane) * at.share[0][j] + element(at, 1, j, plane) * at.share[1][j] +
           element(at, 2, j, plane) * at.share[2][j] + element(at, 3, j, plane) * at.share[3][j];
}
// along += the derivatives of one channel's results, whose gradients are g.
template <class C>
LAZYT_INLINE void turn(C* along_x, C* along_y, const Corners<C>& at, const C* plane, const C* g, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    C x = 0, y = 0;
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const C v = element(at, k, j, plane);
      x += v * at.along_x[k][j], y += v * at.along_y[k][j];
    }
    along_x[j] += x * g[j], along_y[j] += y * g[j];
  }
}
#define LAZYT_GRID(C)                                                                                   \
  LAZYT_CLONES void find_of(Corners<C>& out, const Axis& w, const Axis& h, bool nearest, const C* grid, \
                            int64_t n) {                                                                \
    nearest ? find<true>(out, w, h, grid, n) : find<false>(out, w, h, grid, n);                         \
  }                                                                                                     \
  LAZYT_CLONES void sample_of(C* y, const Corners<C>& at, const C* plane, int64_t n) {                  \
    sample(y, at, plane, n);                                                                            \
  }                                                                                                     \
  LAZYT_CLONES void turn_of(C* x, C* y, const Corners<C>& at, const C* plane, const C* g, int64_t n) {  \
    turn(x, y, at, plane, g, n);                                                                        \
  }
LAZYT_GRID(float)
LAZYT_GRID(double)
#undef LAZYT_GRID

template <class C>
void sample_at(C* y, const Corners<C>& at, const C* plane, int64_t n) {
  if (!gathers) return sample_of(y, at, plane, n);
  products().gather_four<C>()(y, at.offset[0], at.inside[0], at.share[0], kPoints, plane, n);
}

// args from `first`: input, grid, interpolation_mode, padding_mode, align_corners. Halves are computed as f32.
Sampler sampler_of(Builder& b, const lazyt_node_t& node, size_t first) {
  const auto args = b.program.args(node);
  const lazyt_dtype_t dtype = toolkit::compute_dtype(b.tensor(b.value_of(args[first])).dtype);
  const Tensor x = dense_as(b, tensor_at(b, args[first]), dtype),
               grid = dense_as(b, tensor_at(b, args[first + 1]), dtype);
  const int64_t padding = b.int_of(args[first + 3]);
  const bool corners = b.bool_of(args[first + 4]);
  return {x,
          grid,
          {x.dims()[3], padding, corners},
          {x.dims()[2], padding, corners},
          b.int_of(args[first + 2]) == 1};
}

template <class F>
void with_compute(lazyt_dtype_t dtype, F&& f) {
  dtype == LAZYT_DTYPE_FLOAT64 ? f(double()) : f(float());
}

// f(n, first, count, at) for all places, some of an image at once.
template <class C, class F>
void for_places(const Frame& frame, const Sampler& s, F f) {
  const int64_t points = s.points(), parts = (points + kPoints - 1) / kPoints;
  parallel(
      frame, s.images() * parts, s.images() * points * s.channels() * 4, [&](int64_t begin, int64_t end) {
        Corners<C> at;
        for (int64_t i = begin; i < end; ++i) {
          const int64_t n = i / parts, first = i % parts * kPoints, count = std::min(kPoints, points - first);
          find_of(at, s.width, s.height, s.nearest, frame.at<C>(s.grid) + 2 * (n * points + first), count);
          f(n, first, count, at);
        }
      });
}

void lower(Builder& b, const lazyt_node_t& node) {
  const Sampler s = sampler_of(b, node, 0);
  const Tensor y = begin_result(b, node.results, s.x.dtype);
  if (y.count())
    b.add("grid_sampler", {s.x.storage, s.grid.storage}, {y.storage}, [s, y](const Frame& frame) {
      with_compute(s.x.dtype, [&](auto zero) {
        using C = decltype(zero);
        const int64_t points = s.points(), channels = s.channels(), plane = s.plane();
        for_places<C>(frame, s, [&](int64_t n, int64_t first, int64_t count, const Corners<C>& at) {
          for (int64_t c = n * channels; c < (n + 1) * channels; ++c)
            sample_at(frame.at<C>(y) + c * points + first, at, frame.at<C>(s.x) + c * plane, count);
        });
      });
    });
  finish_result(b, node.results, y);
}

// grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask. Threads share
// channels of the input's gradient and places of the grid's, so sums do not depend on how many there are.
void lower_backward(Builder& b, const lazyt_node_t& node) {
  const Sampler s = sampler_of(b, node, 1);
  const auto args = b.program.args(node);
  const Tensor grad = dense_as(b, tensor_at(b, args[0]), s.x.dtype);
  const Dims mask = b.ints_of(args[6]);
  const auto wanted = [&](uint32_t r) { return mask[r] && b.is_used(node.results + r); };
  if (wanted(0)) {
    const Tensor to = begin_result(b, node.results, s.x.dtype);
    if (to.count())
      b.add("grid_sampler backward", {s.grid.storage, grad.storage}, {to.storage},
            [s, grad, to](const Frame& frame) {
              with_compute(s.x.dtype, [&](auto zero) {
                using C = decltype(zero);
                const int64_t points = s.points(), channels = s.channels(), plane = s.plane();
                constexpr int64_t kTogether = 16;  // channels for which places are found once
                const int64_t parts = (channels + kTogether - 1) / kTogether;
                parallel(frame, s.images() * parts, grad.count() * 4, [&](int64_t begin, int64_t end) {
                  Corners<C> at;
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t n = i / parts, from = n * channels + i % parts * kTogether,
                                  last = std::min((n + 1) * channels, from + kTogether);
                    std::fill_n(frame.at<C>(to) + from * plane, (last - from) * plane, C(0));
                    for (int64_t first = 0; first < points; first += kPoints) {
                      const int64_t count = std::min(kPoints, points - first);
                      find_of(at, s.width, s.height, s.nearest,
                              frame.at<C>(s.grid) + 2 * (n * points + first), count);
                      for (int64_t c = from; c < last; ++c) {
                        const C* g = frame.at<C>(grad) + c * points + first;
                        C* sums = frame.at<C>(to) + c * plane;
                        for (int64_t j = 0; j < count; ++j)
                          for (int k = 0; k < 4; ++k)
                            if (at.inside[k][j]) sums[at.offset[k][j]] += g[j] * at.share[k][j];
                      }
                    }
                  }
                });
              });
            });
    finish_result(b, node.results, to);
  }
  if (!wanted(1)) return;
  const Tensor to = begin_result(b, node.results + 1, s.x.dtype);
  if (to.count())
    b.add("grid_sampler backward of the grid", {s.x.storage, s.grid.storage, grad.storage}, {to.storage},
          [s, grad, to](const Frame& frame) {
            with_compute(s.x.dtype, [&](auto zero) {
              using C = decltype(zero);
              const int64_t points = s.points(), channels = s.channels(), plane = s.plane();
              for_places<C>(frame, s, [&](int64_t n, int64_t first, int64_t count, const Corners<C>& at) {
                C along_x[kPoints] = {}, along_y[kPoints] = {};
                for (int64_t c = n * channels; c < (n + 1) * channels; ++c)
                  turn_of(along_x, along_y, at, frame.at<C>(s.x) + c * plane,
                          frame.at<C>(grad) + c * points + first, count);
                C* out = frame.at<C>(to) + 2 * (n * points + first);
                for (int64_t j = 0; j < count; ++j)
                  out[2 * j] = along_x[j] * at.by_x[j], out[2 * j + 1] = along_y[j] * at.by_y[j];
              });
            });
          });
  finish_result(b, node.results + 1, to);
}

}  // namespace

void register_grid(Operators& all) {
  all.add(LAZYT_OP_GRID_SAMPLER_2D, {toolkit::Role::kOpaque, accept_forward, lower});
  all.add_named("aten::grid_sampler_2d_backward", {toolkit::Role::kOpaque, accept_backward, lower_backward});
}

}  // namespace lazyt::onednn
