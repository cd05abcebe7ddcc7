// Layer, RMS, group and batch normalisation, and their backwards. Statistics are taken in two passes (mean, then
// squares around it) in the compute type, in pieces of fixed size, so that no number depends on the threads.
#include <cmath>

#include "elements.h"
#include "rows.h"

namespace lazyt::onednn {
namespace {

Refusal accept_norm(const ProgramView& program, const lazyt_node_t& node) {
  if (!all_tensors(program, node, is_floating)) return refuse_dtype(operand(program, node, 0).dtype);
  // Weights and statistics are computed with in the type of the elements.
  if (operand(program, node, 0).dtype != LAZYT_DTYPE_FLOAT64 &&
      !all_tensors(program, node, [](lazyt_dtype_t d) { return d != LAZYT_DTYPE_FLOAT64; }))
    return refuse_dtype(LAZYT_DTYPE_FLOAT64);
  return accepted();
}

// A weight or statistic: dense, in the compute type of `dtype`; no operand has storage that counts.
struct Optional {
  bool given = false;
  Place place;

  Optional() = default;
  Optional(Builder& b, const lazyt_arg_t& arg, lazyt_dtype_t dtype) : given(!Builder::is_none(arg)) {
    if (given) place = Place(dense_as(b, tensor_at(b, arg), compute_dtype(dtype)));
  }
  template <class C>
  const C* at(const Frame& frame) const {
    return given ? frame.at<C>(place) : nullptr;
  }
  void read_by(std::vector<StorageId>& reads) const {
    if (given) reads.push_back(place.storage);
  }
};

// Where a step writes a result, if it is wanted.
struct Written {
  bool wanted = false;
  Place place;

  template <class C>
  C* at(const Frame& frame) const {
    return wanted ? frame.at<C>(place) : nullptr;
  }
};

// A result that the kernel computes in the compute type of `dtype`. One that nobody asked for is empty.
struct Result : Written {
  uint32_t v = 0;
  bool exists = false;
  Tensor tensor;

  Result() = default;  // the operator has no such result
  Result(Builder& b, uint32_t value, lazyt_dtype_t dtype, int64_t count) : v(value), exists(true) {
    wanted = toolkit::count_of(b.dims(v)) == count;
    tensor = wanted ? begin_result(b, v, compute_dtype(dtype)) : b.make_dense(v);
    place = Place(tensor);
  }
  const Written& written() const { return *this; }
  void written_by(std::vector<StorageId>& writes) const {
    if (exists) writes.push_back(tensor.storage);
  }
  void finish(Builder& b) const {
    if (wanted) finish_result(b, v, tensor);
  }
};

template <class... P>
std::vector<StorageId> storages(const P&... parts) {
  std::vector<StorageId> out;
  auto put = [&](const auto& part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_same_v<Part, Optional>)
      part.read_by(out);
    else if constexpr (std::is_same_v<Part, Result>)
      part.written_by(out);
    else
      out.push_back(part.storage);
  };
  (put(parts), ...);
  return out;
}

bool mask_at(Builder& b, const lazyt_arg_t& mask, uint64_t i) { return b.program.ints(mask)[i] != 0; }

// Rows per piece where partial sums of columns are kept.
constexpr int64_t kPiece = 256;
int64_t pieces_of(int64_t n) { return std::max<int64_t>((n + kPiece - 1) / kPiece, 1); }

// ---- layer norm, RMS norm: rows of n elements, one weight an element

struct RowsOf {
  int64_t m, n;
};
RowsOf rows_of(Builder& b, const lazyt_arg_t& normalized, const Tensor& in) {
  const int64_t n = toolkit::count_of(b.ints_of(normalized));
  return {n ? in.count() / n : 0, n};
}

template <bool kRms>
void lower_row_norm(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = b.dense(tensor_at(b, args[0]));
  const RowsOf both = rows_of(b, args[1], in);
  const int64_t m = both.m, n = both.n;
  const Optional weight(b, args[2], in.dtype), bias = kRms ? Optional() : Optional(b, args[3], in.dtype);
  Number eps;
  const lazyt_arg_t& eps_arg = args[kRms ? 3 : 4];
  if (b.is_none(eps_arg))
    eps.d = in.dtype == LAZYT_DTYPE_FLOAT64 ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
  else
    eps = b.number_of(eps_arg);
  const Tensor out = b.make_dense(node.results);
  const Result mean = kRms ? Result() : Result(b, node.results + 1, in.dtype, m);
  const Result rstd(b, node.results + (kRms ? 1 : 2), in.dtype, m);
  with_floating(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add(kRms ? "rms_norm" : "layer_norm", storages(weight, bias), out, {in}, storages(mean, rstd),
          [=, in = Place(in), out = Place(out), mean = mean.written(), rstd = rstd.written()](const Frame& frame) {
            const RowKernels<T>& kernels = rows().of<T>();
            const T* x = frame.at<T>(in);
            T* y = frame.at<T>(out);
            const C *w = weight.template at<C>(frame), *bi = bias.template at<C>(frame);
            C *means = mean.template at<C>(frame), *rstds = rstd.template at<C>(frame);
            const double e = frame.as_double(eps), count = static_cast<double>(n);
            parallel(frame, m, m * n * 4, [&](int64_t begin, int64_t end) {
              if (n <= kernels.most_short)
                return kernels.norm_short(y + begin * n, means ? means + begin : nullptr, rstds ? rstds + begin : nullptr, x + begin * n,
                                          end - begin, n, !kRms, e, w, bi);
              for (int64_t i = begin; i < end; ++i) {
                C mu = kRms ? C(0) : static_cast<C>(kernels.sum(x + i * n, n) / count);
                double about[2];
                kernels.deviations(about, x + i * n, n, mu);
                const double variance = kRms ? about[1] / count : centre(mu, about[0], about[1], count) / count;
                const C r = static_cast<C>(1 / std::sqrt(variance + e));
                kernels.normalize(y + i * n, x + i * n, n, mu, r, w, bi);
                if (means) means[i] = mu;
                if (rstds) rstds[i] = r;
              }
            });
          });
  });
  mean.finish(b);
  rstd.finish(b);
}

template <bool kRms>
void lower_row_norm_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor grad = b.dense(tensor_at(b, args[0])), in = dense_as(b, tensor_at(b, args[1]), grad.dtype);
  const RowsOf both = rows_of(b, args[2], in);
  const int64_t m = both.m, n = both.n;
  const Optional mean = kRms ? Optional() : Optional(b, args[3], in.dtype);
  const Optional rstd(b, args[kRms ? 3 : 4], in.dtype), weight(b, args[kRms ? 4 : 5], in.dtype);
  const lazyt_arg_t& mask = args[kRms ? 5 : 7];
  const bool wants_in = mask_at(b, mask, 0);
  const Tensor grad_in = b.make_dense(node.results);
  const Result grad_weight(b, node.results + 1, in.dtype, mask_at(b, mask, 1) ? n : -1);
  const Result grad_bias = kRms ? Result() : Result(b, node.results + 2, in.dtype, mask_at(b, mask, 2) ? n : -1);
  const bool wants_weights = grad_weight.wanted || grad_bias.wanted;
  const int64_t pieces = std::clamp<int64_t>(m / 32, 1, 16);
  const Tensor partial = b.scratch(compute_dtype(in.dtype), {wants_weights ? pieces : 0, 2, n});
  with_floating(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add(kRms ? "rms_norm_backward" : "layer_norm_backward", storages(mean, rstd, weight),
          grad_in, {grad, in}, storages(grad_weight, grad_bias, partial),
          [=, grad = Place(grad), in = Place(in), grad_in = Place(grad_in), partial = Place(partial), grad_weight = grad_weight.written(),
           grad_bias = grad_bias.written()](const Frame& frame) {
            const RowKernels<T>& kernels = rows().of<T>();
            const T *g = frame.at<T>(grad), *x = frame.at<T>(in);
            T* gi = frame.at<T>(grad_in);
            const C *mu = mean.template at<C>(frame), *r = rstd.template at<C>(frame), *w = weight.template at<C>(frame);
            C* sums = frame.at<C>(partial);
            parallel(frame, pieces, m * n * 4, [&](int64_t begin, int64_t end) {
              for (int64_t p = begin; p < end; ++p) {
                C *gw = sums + p * 2 * n, *gb = gw + n;
                if (wants_weights) std::fill(gw, gw + 2 * n, C(0));
                const int64_t first = m * p / pieces, last = m * (p + 1) / pieces;
                if (n <= kernels.most_together) {
                  kernels.norm_backward_short(wants_in ? gi + first * n : nullptr, wants_weights ? gw : nullptr, wants_weights ? gb : nullptr, g + first * n,
                                              x + first * n, last - first, n, mu ? mu + first : nullptr, r + first, w);
                  continue;
                }
                for (int64_t i = first; i < last; ++i) {
                  const T *gr = g + i * n, *xr = x + i * n;
                  const C mean_i = mu ? mu[i] : C(0), r_i = r[i];
                  if (wants_weights) kernels.backward_weights(gw, gb, gr, xr, n, mean_i, r_i);
                  if (wants_in) {
                    double s[2];
                    kernels.backward_sums(s, gr, xr, n, mean_i, w);
                    const double rd = static_cast<double>(r_i), count = static_cast<double>(n);
                    kernels.backward(gi + i * n, gr, xr, n, mean_i, w, r_i, static_cast<C>(-rd * rd * rd * s[1] / count),
                                     kRms ? C(0) : static_cast<C>(-rd * s[0] / count));
                  }
                }
              }
            });
            if (!wants_weights) return;
            C *gw = grad_weight.template at<C>(frame), *gb = grad_bias.template at<C>(frame);
            for (int64_t j = 0; j < n; ++j) {
              C a = 0, c = 0;
              for (int64_t p = 0; p < pieces; ++p) a += sums[p * 2 * n + j], c += sums[(p * 2 + 1) * n + j];
              if (gw) gw[j] = a;
              if (gb) gb[j] = c;
            }
          });
  });
  grad_weight.finish(b);
  grad_bias.finish(b);
}

// ---- channels: group norm and batch norm

// An operand of dims (n, c, spatial...): channel by channel ([n][c][hw]), or with the channels last ([n][hw][c]).
struct Slab {
  int64_t n, c, hw;
  bool last;

  int64_t pieces() const { return last ? pieces_of(hw) : 1; }  // in which sums over hw are taken
};

// The tensor, copied if it lies in neither way.
Slab slab_of(Builder& b, Tensor& t) {
  const Dims& dims = t.dims();
  Slab slab{dims[0], dims[1], 1, false};
  Layout last = t.layout;
  for (size_t d = 2; d < dims.size(); ++d) {
    slab.hw *= dims[d];
    last.dims[d - 1] = dims[d];
    last.strides[d - 1] = t.strides()[d];
  }
  last.dims.back() = dims[1];
  last.strides.back() = t.strides()[1];
  slab.last = last.is_dense() && (slab.hw == 1 || !t.layout.is_dense());
  if (!slab.last) t = b.dense(t);
  return slab;
}
Dims strides_of(const Slab& slab, const Dims& dims) {
  Dims strides = toolkit::row_major(dims);
  if (!slab.last) return strides;
  int64_t step = slab.c;
  for (size_t d = dims.size(); d-- > 2;) strides[d] = step, step *= dims[d];
  strides[1] = 1;
  strides[0] = step;
  return strides;
}
// The same elements lying as the slab says, in `dtype`.
Tensor lay(Builder& b, const Tensor& t, const Slab& slab, lazyt_dtype_t dtype) {
  const Dims strides = strides_of(slab, t.dims());
  bool same = t.dtype == dtype;
  for (size_t d = 0; d < strides.size(); ++d) same = same && (t.dims()[d] == 1 || t.strides()[d] == strides[d]);
  if (same || (t.count() == 0 && t.dtype == dtype)) return t;
  Tensor out = b.scratch(dtype, t.dims(), strides, static_cast<uint64_t>(t.count()) * lazyt_dtype_size(dtype));
  b.copy(t, out);
  return out;
}

// out[k][n][c], k < kNumbers = sums over hw of what the kernels sum: row(sums, offset, image, channel) gives those of a channel;
// columns(sums, offset, rows, image) adds up rows of all channels, in parts[piece][k][c].
template <int kNumbers, class C, class Row, class Columns>
void channel_sums(const Frame& frame, const Slab& s, C* out, C* parts, Row row, Columns columns) {
  const int64_t images = s.n * s.c, work = images * s.hw;
  const auto put = [&](int64_t i, const double* sums) {
    for (int k = 0; k < kNumbers; ++k) out[k * images + i] = static_cast<C>(sums[k]);
  };
  if (!s.last) {
    parallel(frame, images, work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double sums[kNumbers];
        row(sums, i * s.hw, i / s.c, i % s.c);
        put(i, sums);
      }
    });
    return;
  }
  const int64_t pieces = s.pieces();
  parallel(frame, s.n * pieces, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / pieces, first = i % pieces * kPiece;
      C* sums = parts + i * kNumbers * s.c;
      std::fill(sums, sums + kNumbers * s.c, C(0));
      columns(sums, (image * s.hw + first) * s.c, std::min(kPiece, s.hw - first), image);
    }
  });
  for (int64_t i = 0; i < images; ++i) {
    double sums[kNumbers] = {};
    for (int64_t p = 0; p < pieces; ++p)
      for (int k = 0; k < kNumbers; ++k) sums[k] += static_cast<double>(parts[((i / s.c * pieces + p) * kNumbers + k) * s.c + i % s.c]);
    put(i, sums);
  }
}
// f(image, channel, offset, count) row by row, or g(image, offset, rows) piece by piece.
template <class F, class G>
void for_slab(const Frame& frame, const Slab& s, F f, G g) {
  const int64_t work = s.n * s.c * s.hw;
  if (!s.last) {
    parallel(frame, s.n * s.c, work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i / s.c, i % s.c, i * s.hw, s.hw);
    });
    return;
  }
  const int64_t pieces = s.pieces();
  parallel(frame, s.n * pieces, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / pieces, first = i % pieces * kPiece;
      g(image, (image * s.hw + first) * s.c, std::min(kPiece, s.hw - first));
    }
  });
}

// With channels last, batch norm sees one image of all rows.
Slab as_batch(Slab s) { return s.last ? Slab{1, s.c, s.n * s.hw, true} : s; }

// ---- group norm

void lower_group_norm(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  Tensor in = tensor_at(b, args[0]);
  const Slab slab = slab_of(b, in);
  const int64_t groups = b.int_of(args[6]), per_group = groups ? slab.c / groups : 0;
  const Optional weight(b, args[1], in.dtype), bias(b, args[2], in.dtype);
  const Number eps = b.number_of(args[7]);
  const Tensor out = b.make(node.results, strides_of(slab, in.dims()));
  const Result mean(b, node.results + 1, in.dtype, slab.n * groups), rstd(b, node.results + 2, in.dtype, slab.n * groups);
  const lazyt_dtype_t compute = compute_dtype(in.dtype);
  const Tensor sums = b.scratch(compute, {4, slab.n, slab.c}), parts = b.scratch(compute, {slab.n * slab.pieces(), 2, slab.c});
  const Tensor scratch_mean = b.scratch(compute, {slab.n * groups});
  with_floating(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("group_norm", storages(weight, bias), out, {in}, storages(mean, rstd, sums, parts, scratch_mean), [=](const Frame& frame) {
      const RowKernels<T>& kernels = rows().of<T>();
      const T* x = frame.at<T>(in);
      T* y = frame.at<T>(out);
      const C *w = weight.template at<C>(frame), *bi = bias.template at<C>(frame);
      const int64_t images = slab.n * slab.c;
      C *s = frame.at<C>(sums), *shift = s + 2 * images, *bias_of = shift + images, *part = frame.at<C>(parts), *mu = frame.at<C>(scratch_mean);
      C *means = mean.template at<C>(frame), *rstds = rstd.template at<C>(frame);
      const double count = static_cast<double>(per_group * slab.hw), e = frame.as_double(eps);
      auto total_of = [&](int64_t i, const C* of) {  // of a group, from the sums of its channels
        double total = 0;
        for (int64_t c = 0; c < per_group; ++c) total += static_cast<double>(of[i * per_group + c]);
        return total;
      };
      auto put_mean = [&](int64_t i) { std::fill(shift + i * per_group, shift + (i + 1) * per_group, mu[i]); };
      channel_sums<1>(
          frame, slab, s, part, [&](double* o, int64_t at, int64_t, int64_t) { *o = kernels.sum(x + at, slab.hw); },
          [&](C* o, int64_t at, int64_t rows, int64_t) { kernels.column_sums(o, x + at, rows, slab.c, slab.c); });
      for (int64_t i = 0; i < slab.n * groups; ++i) {
        mu[i] = static_cast<C>(total_of(i, s) / count);
        put_mean(i);
      }
      channel_sums<2>(
          frame, slab, s, part, [&](double* o, int64_t at, int64_t image, int64_t c) { kernels.deviations(o, x + at, slab.hw, shift[image * slab.c + c]); },
          [&](C* o, int64_t at, int64_t rows, int64_t image) {
            kernels.column_deviations(o, o + slab.c, x + at, shift + image * slab.c, rows, slab.c, slab.c);
          });
      // From here on s is the scale of each channel.
      for (int64_t i = 0; i < slab.n * groups; ++i) {
        const double r = 1 / std::sqrt(centre(mu[i], total_of(i, s), total_of(i, s + images), count) / count + e);
        put_mean(i);
        if (means) means[i] = mu[i];
        if (rstds) rstds[i] = static_cast<C>(r);
        for (int64_t c = 0; c < per_group; ++c) {
          const int64_t channel = i % groups * per_group + c;
          s[i * per_group + c] = static_cast<C>(r * (w ? static_cast<double>(w[channel]) : 1.0));
          bias_of[i * per_group + c] = bi ? bi[channel] : C(0);
        }
      }
      for_slab(
          frame, slab,
          [&](int64_t image, int64_t c, int64_t at, int64_t n) {
            const int64_t i = image * slab.c + c;
            kernels.affine(y + at, x + at, n, shift[i], s[i], bias_of[i]);
          },
          [&](int64_t image, int64_t at, int64_t rows) {
            const int64_t i = image * slab.c;
            kernels.affine_columns(y + at, x + at, shift + i, s + i, bias_of + i, rows, slab.c, slab.c);
          });
    });
  });
  mean.finish(b);
  rstd.finish(b);
}

// sums of g and of g * (x - mean) for each (image, channel); mean[image][channel].
template <class T, class C>
void channel_backward_sums(const Frame& frame, const Slab& s, const T* g, const T* x, const C* mean, C* sums, C* parts) {
  const RowKernels<T>& kernels = rows().of<T>();
  channel_sums<2>(
      frame, s, sums, parts,
      [&](double* two, int64_t at, int64_t image, int64_t c) { kernels.backward_sums(two, g + at, x + at, s.hw, mean[image * s.c + c], nullptr); },
      [&](C* own, int64_t at, int64_t rows, int64_t image) {
        kernels.column_backward_sums(own, own + s.c, g + at, x + at, mean + image * s.c, rows, s.c, s.c);
      });
}

// grad_in = a g + b (x - mean) + c, with the four numbers for each (image, channel).
template <class T, class C>
void channel_backward(const Frame& frame, const Slab& s, T* grad_in, const T* g, const T* x, const C* mean, const C* a, const C* b, const C* c) {
  const RowKernels<T>& kernels = rows().of<T>();
  for_slab(
      frame, s,
      [&](int64_t image, int64_t channel, int64_t at, int64_t n) {
        const int64_t i = image * s.c + channel;
        kernels.backward(grad_in + at, g + at, x + at, n, mean[i], nullptr, a[i], b[i], c[i]);
      },
      [&](int64_t image, int64_t at, int64_t rows) {
        const int64_t i = image * s.c;
        kernels.backward_columns(grad_in + at, g + at, x + at, mean + i, a + i, b + i, c + i, rows, s.c, s.c);
      });
}

void lower_group_norm_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  Tensor in = tensor_at(b, args[1]);
  const Slab slab = slab_of(b, in);
  const Tensor grad = lay(b, tensor_at(b, args[0]), slab, in.dtype);
  const Optional mean(b, args[2], in.dtype), rstd(b, args[3], in.dtype), weight(b, args[4], in.dtype);
  const int64_t groups = b.int_of(args[8]), per_group = groups ? slab.c / groups : 0;
  const bool wants_in = mask_at(b, args[9], 0);
  const Tensor grad_in = wants_in ? b.make(node.results, strides_of(slab, in.dims())) : b.make_dense(node.results);
  const Result grad_weight(b, node.results + 1, in.dtype, mask_at(b, args[9], 1) ? slab.c : -1);
  const Result grad_bias(b, node.results + 2, in.dtype, mask_at(b, args[9], 2) ? slab.c : -1);
  const lazyt_dtype_t compute = compute_dtype(in.dtype);
  const Tensor numbers = b.scratch(compute, {6, slab.n, slab.c}), parts = b.scratch(compute, {slab.n * slab.pieces(), 2, slab.c});
  with_floating(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("group_norm_backward", storages(mean, rstd, weight), grad_in, {grad, in}, storages(grad_weight, grad_bias, numbers, parts),
          [=](const Frame& frame) {
            const T *g = frame.at<T>(grad), *x = frame.at<T>(in);
            const C *mu = mean.template at<C>(frame), *r = rstd.template at<C>(frame), *w = weight.template at<C>(frame);
            const int64_t images = slab.n * slab.c;
            C *sums_g = frame.at<C>(numbers), *sums_gx = sums_g + images, *m = sums_gx + images, *ka = m + images, *kb = ka + images, *kc = kb + images;
            for (int64_t i = 0; i < images; ++i) m[i] = mu[i / per_group];
            channel_backward_sums(frame, slab, g, x, m, sums_g, frame.at<C>(parts));
            const double count = static_cast<double>(per_group * slab.hw);
            for (int64_t i = 0; i < slab.n * groups; ++i) {
              double total_g = 0, total_gx = 0;
              const double rd = static_cast<double>(r[i]);
              for (int64_t k = 0; k < per_group; ++k) {
                const double scale = w ? static_cast<double>(w[i % groups * per_group + k]) : 1.0;
                ka[i * per_group + k] = static_cast<C>(scale * rd);
                total_g += scale * static_cast<double>(sums_g[i * per_group + k]);
                total_gx += scale * static_cast<double>(sums_gx[i * per_group + k]);
              }
              for (int64_t k = 0; k < per_group; ++k) {
                kb[i * per_group + k] = static_cast<C>(-rd * rd * rd * total_gx / count);
                kc[i * per_group + k] = static_cast<C>(-rd * total_g / count);
              }
            }
            if (wants_in) channel_backward(frame, slab, frame.at<T>(grad_in), g, x, m, ka, kb, kc);
            C *gw = grad_weight.template at<C>(frame), *gb = grad_bias.template at<C>(frame);
            for (int64_t c = 0; c < slab.c; ++c) {
              double total_w = 0, total_b = 0;
              for (int64_t i = c; i < images; i += slab.c) {
                total_w += static_cast<double>(sums_gx[i]) * static_cast<double>(r[i / per_group]);
                total_b += static_cast<double>(sums_g[i]);
              }
              if (gw) gw[c] = static_cast<C>(total_w);
              if (gb) gb[c] = static_cast<C>(total_b);
            }
          });
  });
  grad_weight.finish(b);
  grad_bias.finish(b);
}

// ---- batch norm

// Which arguments and results a variant has; -1 = none.
struct BatchNorm {
  int running, training, momentum, eps;  // running_mean; running_var is the next
  bool always_trains, never_trains;
  bool updates;  // results 3 and 4
};

template <int kVariant>
void lower_batch_norm(Builder& b, const lazyt_node_t& node) {
  constexpr BatchNorm variants[] = {{3, 5, 6, 7, false, false, true}, {-1, 3, 4, 5, true, false, false}, {3, -1, 5, 6, false, true, false}};
  constexpr BatchNorm kind = variants[kVariant];
  const auto args = b.program.args(node);
  Tensor in = tensor_at(b, args[0]);
  const Slab slab = as_batch(slab_of(b, in));
  const bool training = kind.always_trains || (!kind.never_trains && b.bool_of(args[static_cast<uint64_t>(std::max(kind.training, 0))]));
  const Optional weight(b, args[1], in.dtype), bias(b, args[2], in.dtype);
  Optional running_mean, running_var;
  if (kind.running >= 0) {
    running_mean = Optional(b, args[static_cast<uint64_t>(kind.running)], in.dtype);
    running_var = Optional(b, args[static_cast<uint64_t>(kind.running) + 1], in.dtype);
  }
  const Number eps = b.number_of(args[kind.eps]), momentum = b.number_of(args[kind.momentum]);
  const Tensor out = b.make(node.results, strides_of(slab_of(b, in), in.dims()));
  const Result mean(b, node.results + 1, in.dtype, slab.c), invstd(b, node.results + 2, in.dtype, slab.c);
  const Result new_mean = kind.updates ? Result(b, node.results + 3, in.dtype, slab.c) : Result();
  const Result new_var = kind.updates ? Result(b, node.results + 4, in.dtype, slab.c) : Result();
  const lazyt_dtype_t compute = compute_dtype(in.dtype);
  const Tensor sums = b.scratch(compute, {2, slab.n, slab.c}), parts = b.scratch(compute, {slab.n * slab.pieces(), 2, slab.c});
  const Tensor scales = b.scratch(compute, {3, slab.c});
  const auto writes = storages(mean, invstd, new_mean, new_var, sums, parts, scales);
  with_floating(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("batch_norm", storages(weight, bias, running_mean, running_var), out, {in}, writes, [=](const Frame& frame) {
      const RowKernels<T>& kernels = rows().of<T>();
      const T* x = frame.at<T>(in);
      T* y = frame.at<T>(out);
      const C *w = weight.template at<C>(frame), *bi = bias.template at<C>(frame);
      const C *old_mean = running_mean.template at<C>(frame), *old_var = running_var.template at<C>(frame);
      C *s = frame.at<C>(sums), *part = frame.at<C>(parts), *mu = frame.at<C>(scales), *scale = mu + slab.c, *shift = scale + slab.c;
      C *means = mean.template at<C>(frame), *invstds = invstd.template at<C>(frame);
      C *nm = new_mean.template at<C>(frame), *nv = new_var.template at<C>(frame);
      const double count = static_cast<double>(slab.n * slab.hw), e = frame.as_double(eps), m = frame.as_double(momentum);
      auto total_of = [&](int64_t c, const C* of) {
        double total = 0;
        for (int64_t i = 0; i < slab.n; ++i) total += static_cast<double>(of[i * slab.c + c]);
        return total;
      };
      if (training) {
        channel_sums<1>(
            frame, slab, s, part, [&](double* o, int64_t at, int64_t, int64_t) { *o = kernels.sum(x + at, slab.hw); },
            [&](C* o, int64_t at, int64_t rows, int64_t) { kernels.column_sums(o, x + at, rows, slab.c, slab.c); });
        for (int64_t c = 0; c < slab.c; ++c) mu[c] = static_cast<C>(total_of(c, s) / count);
        channel_sums<2>(
            frame, slab, s, part, [&](double* o, int64_t at, int64_t, int64_t c) { kernels.deviations(o, x + at, slab.hw, mu[c]); },
            [&](C* o, int64_t at, int64_t rows, int64_t) { kernels.column_deviations(o, o + slab.c, x + at, mu, rows, slab.c, slab.c); });
      }
      for (int64_t c = 0; c < slab.c; ++c) {
        const double var_c = training ? centre(mu[c], total_of(c, s), total_of(c, s + slab.n * slab.c), count) / count : static_cast<double>(old_var[c]);
        const double mean_c = static_cast<double>(training ? mu[c] : old_mean[c]);
        const double inv = 1 / std::sqrt(var_c + e), a = inv * (w ? static_cast<double>(w[c]) : 1.0);
        mu[c] = static_cast<C>(mean_c);
        scale[c] = static_cast<C>(a);
        shift[c] = bi ? bi[c] : C(0);
        if (means) means[c] = static_cast<C>(mean_c);
        if (invstds) invstds[c] = static_cast<C>(inv);
        if (nm) nm[c] = training ? static_cast<C>(m * mean_c + (1 - m) * static_cast<double>(old_mean[c])) : old_mean[c];
        if (nv) nv[c] = training ? static_cast<C>(m * var_c * count / (count - 1) + (1 - m) * static_cast<double>(old_var[c])) : old_var[c];
      }
      for_slab(
          frame, slab, [&](int64_t, int64_t c, int64_t at, int64_t n) { kernels.affine(y + at, x + at, n, mu[c], scale[c], shift[c]); },
          [&](int64_t, int64_t at, int64_t rows) { kernels.affine_columns(y + at, x + at, mu, scale, shift, rows, slab.c, slab.c); });
    });
  });
  mean.finish(b);
  invstd.finish(b);
  new_mean.finish(b);
  new_var.finish(b);
}

void lower_batch_norm_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  Tensor in = tensor_at(b, args[1]);
  const Slab lies = slab_of(b, in), slab = as_batch(lies);
  const Tensor grad = lay(b, tensor_at(b, args[0]), lies, in.dtype);
  const bool training = b.bool_of(args[7]);
  const Optional weight(b, args[2], in.dtype), mean(b, args[training ? 5 : 3], in.dtype), spread(b, args[training ? 6 : 4], in.dtype);
  const Number eps = b.number_of(args[8]);
  const bool wants_in = mask_at(b, args[9], 0);
  const Tensor grad_in = wants_in ? b.make(node.results, strides_of(lies, in.dims())) : b.make_dense(node.results);
  const Result grad_weight(b, node.results + 1, in.dtype, mask_at(b, args[9], 1) ? slab.c : -1);
  const Result grad_bias(b, node.results + 2, in.dtype, mask_at(b, args[9], 2) ? slab.c : -1);
  const lazyt_dtype_t compute = compute_dtype(in.dtype);
  const Tensor numbers = b.scratch(compute, {6, slab.n, slab.c}), parts = b.scratch(compute, {slab.n * slab.pieces(), 2, slab.c});
  with_floating(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("batch_norm_backward", storages(weight, mean, spread), grad_in, {grad, in}, storages(grad_weight, grad_bias, numbers, parts),
          [=](const Frame& frame) {
            const T *g = frame.at<T>(grad), *x = frame.at<T>(in);
            const C *mu = mean.template at<C>(frame), *sp = spread.template at<C>(frame), *w = weight.template at<C>(frame);
            const int64_t images = slab.n * slab.c;
            C *sums_g = frame.at<C>(numbers), *sums_gx = sums_g + images, *m = sums_gx + images, *ka = m + images, *kb = ka + images, *kc = kb + images;
            for (int64_t i = 0; i < images; ++i) m[i] = mu[i % slab.c];
            channel_backward_sums(frame, slab, g, x, m, sums_g, frame.at<C>(parts));
            C *gw = grad_weight.template at<C>(frame), *gb = grad_bias.template at<C>(frame);
            const double count = static_cast<double>(slab.n * slab.hw), e = frame.as_double(eps);
            for (int64_t c = 0; c < slab.c; ++c) {
              double total_g = 0, total_gx = 0;
              for (int64_t i = c; i < images; i += slab.c) total_g += static_cast<double>(sums_g[i]), total_gx += static_cast<double>(sums_gx[i]);
              const double inv = training ? static_cast<double>(sp[c]) : 1 / std::sqrt(static_cast<double>(sp[c]) + e);
              const double a = inv * (w ? static_cast<double>(w[c]) : 1.0);
              for (int64_t i = c; i < images; i += slab.c) {
                ka[i] = static_cast<C>(a);
                kb[i] = training ? static_cast<C>(-a * inv * inv * total_gx / count) : C(0);
                kc[i] = training ? static_cast<C>(-a * total_g / count) : C(0);
              }
              if (gw) gw[c] = static_cast<C>(total_gx * inv);
              if (gb) gb[c] = static_cast<C>(total_g);
            }
            if (wants_in) channel_backward(frame, slab, frame.at<T>(grad_in), g, x, m, ka, kb, kc);
          });
  });
  grad_weight.finish(b);
  grad_bias.finish(b);
}

Refusal accept_channels(const ProgramView& program, const lazyt_node_t& node, uint64_t input) {
  if (operand(program, node, input).rank < 2) return {LAZYT_REASON_RANK, "an operand of rank below 2"};
  if (toolkit::count_of(program.dims(operand(program, node, input))) == 0) return refuse_argument("an empty operand");
  return accept_norm(program, node);
}
Refusal accept_forward(const ProgramView& program, const lazyt_node_t& node) { return accept_channels(program, node, 0); }
Refusal accept_backward(const ProgramView& program, const lazyt_node_t& node) {
  if (operand(program, node, 0).dtype != operand(program, node, 1).dtype) return refuse_dtype(operand(program, node, 0).dtype);
  return accept_channels(program, node, 1);
}
Refusal accept_no_stats(const ProgramView& program, const lazyt_node_t& node) {
  if (!program.args(node)[3].payload) return refuse_argument("training=False without statistics");
  return accept_channels(program, node, 0);
}
Refusal accept_batch_backward(const ProgramView& program, const lazyt_node_t& node) {
  const bool training = program.args(node)[7].payload != 0;
  if (!has(program, node, training ? 5 : 3) || !has(program, node, training ? 6 : 4)) return refuse_argument("missing statistics");
  return accept_backward(program, node);
}
Refusal accept_rows_backward(const ProgramView& program, const lazyt_node_t& node) {
  if (operand(program, node, 0).dtype != operand(program, node, 1).dtype) return refuse_dtype(operand(program, node, 0).dtype);
  return accept_norm(program, node);
}

}  // namespace

void register_norm(Operators& all) {
  using toolkit::Role;
  auto opaque = [&](lazyt_op_t op, toolkit::Accept accept, Operator::Lower lower) { all.add(op, {Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_NATIVE_LAYER_NORM, accept_norm, lower_row_norm<false>);
  opaque(LAZYT_OP_NATIVE_LAYER_NORM_BACKWARD, accept_rows_backward, lower_row_norm_backward<false>);
  opaque(LAZYT_OP_FUSED_RMS_NORM, accept_norm, lower_row_norm<true>);
  opaque(LAZYT_OP_FUSED_RMS_NORM_BACKWARD, accept_rows_backward, lower_row_norm_backward<true>);
  opaque(LAZYT_OP_NATIVE_GROUP_NORM, accept_forward, lower_group_norm);
  opaque(LAZYT_OP_NATIVE_GROUP_NORM_BACKWARD, accept_backward, lower_group_norm_backward);
  opaque(LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_FUNCTIONAL, accept_forward, lower_batch_norm<0>);
  opaque(LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_NO_STATS, accept_no_stats, lower_batch_norm<1>);
  opaque(LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING, accept_forward, lower_batch_norm<2>);
  opaque(LAZYT_OP_NATIVE_BATCH_NORM_BACKWARD, accept_batch_backward, lower_batch_norm_backward);
}

}  // namespace lazyt::onednn
