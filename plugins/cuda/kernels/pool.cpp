// Pooling, resampling, padding by mirrored or repeated elements, and sampling at points of a grid.
//
// Along each axis (depth, height, width) a result is made of some elements of the operand: its taps. Where they follow from
// the window by arithmetic they are computed, else they are read from tables that the executable keeps. A gradient is a
// gather too: each element of the operand collects from the results that it is part of, so that nothing is added atomically.
#include "lazyt/toolkit/pooling.hpp"
#include "lazyt/toolkit/resizing.hpp"

#include "text.h"

namespace lazyt::cuda {
namespace {

using namespace toolkit::taps;
using toolkit::Axes;
using toolkit::count_of;
using toolkit::memory_order;
using toolkit::Taps;

constexpr uint32_t kThreads = 256;

// [N, C, spatial...] or [C, spatial...] as [N, C, D, H, W].
Tensor with_five_dims(Tensor t, size_t axes) {
  Dims &dims = t.layout.dims, &strides = t.layout.strides;
  if (dims.size() == axes + 1) dims.insert(dims.begin(), 1), strides.insert(strides.begin(), 0);
  while (dims.size() < 5) dims.insert(dims.begin() + 2, 1), strides.insert(strides.begin() + 2, 0);
  return t;
}

// A place for result v that lies in the order of dims in which `like` does (channels last, say).
Tensor make_like(Builder& b, uint32_t v, const Tensor& like) {
  return b.make(v, strides_in_order(b.dims(v), memory_order(like.dims(), like.strides())));
}

// The dims of t from the largest stride to the smallest, and the strides of others in the same order: neighbouring threads
// write neighbouring elements.
struct Order {
  Dims dims;
  std::vector<size_t> order;
  explicit Order(const Tensor& t) : order(memory_order(t.dims(), t.strides())) {
    for (size_t d : order) dims.push_back(t.dims()[d]);
  }
  Dims of(const Dims& strides) const {
    Dims out;
    for (size_t d : order) out.push_back(strides[d]);
    return out;
  }
  Dims coordinate(size_t dim) const {
    Dims one(order.size(), 0);
    one[dim] = 1;
    return of(one);
  }
};

// The taps of one axis as text, AXIS being D, H or W: of result o, taps t from AXIS_FIRST(o) to AXIS_LAST(o) - 1, each the
// element AXIS_AT(o, t) times AXIS_WEIGHT(t), all divided by AXIS_BY(o).
struct Tables {
  std::vector<int32_t> places;
  std::vector<double> weights;
};
// An axis as a window of fixed size, by arithmetic.
struct Stride {
  int64_t size, step, padding, dilation, inputs;
  std::string by;  // the divisor, in terms of o
};
void window_text(const std::string& a, const Stride& w, Defines& defines) {
  const std::string start = "((o) * " + std::to_string(w.step) + " - " + std::to_string(w.padding) + ")", d = std::to_string(w.dilation);
  const std::string rest = "((" + std::to_string(w.inputs) + " - " + start + " + " + d + " - 1) / " + d + ")", size = std::to_string(w.size);
  defines.emplace_back(a + "_FIRST(o)", "(" + start + " < 0 ? (" + d + " - 1 - " + start + ") / " + d + " : 0)");
  defines.emplace_back(a + "_LAST(o)", "(" + rest + " < " + size + " ? " + rest + " : " + size + ")");
  defines.emplace_back(a + "_AT(o, t)", "(" + start + " + (t) * " + d + ")");
  defines.emplace_back(a + "_WEIGHT(t)", "(C)1");
  defines.emplace_back(a + "_BY(o)", w.by.empty() ? "(C)1" : "(C)(" + w.by + ")");
}
Stride stride_of(const Window& w, size_t axis, int64_t inputs) {
  const int64_t size = at(w.kernel, axis, 1);
  Stride out{size, at(w.stride, axis, size), at(w.padding, axis, 0), at(w.dilation, axis, 1), inputs, {}};
  if (!w.average) return out;
  const std::string start = "((o) * " + std::to_string(out.step) + " - " + std::to_string(out.padding) + ")";
  const std::string end = "(" + start + " + " + std::to_string(size) + ")";
  auto least = [&](int64_t most) { return "(" + end + " < " + std::to_string(most) + " ? " + end + " : " + std::to_string(most) + ")"; };
  if (w.divisor) {
    out.by = axis == 0 ? std::to_string(*w.divisor) : "1";
  } else if (w.count_padding) {  // a window that hangs over the end of the padding is cut there
    const std::string n = "(" + least(inputs + out.padding) + " - " + start + ")";
    out.by = "(" + n + " > 1 ? " + n + " : 1)";
  } else {
    const std::string n = "(" + least(inputs) + " - (" + start + " > 0 ? " + start + " : 0))";
    out.by = "(" + n + " > 1 ? " + n + " : 1)";
  }
  return out;
}

void table_text(char axis, const Taps& taps, Tables& tables, Defines& defines) {
  const std::string a(1, axis);
  auto add = [&](const char* name, std::string value) { defines.emplace_back(a + name, std::move(value)); };
  auto places = [&](const std::vector<int32_t>& v) {
    const size_t at = tables.places.size();
    tables.places.insert(tables.places.end(), v.begin(), v.end());
    return "places[" + std::to_string(at) + " + ";
  };
  auto weights = [&](const std::vector<double>& v) {
    const bool ones = std::all_of(v.begin(), v.end(), [](double w) { return w == 1; });
    if (ones) return std::string();
    const size_t at = tables.weights.size();
    tables.weights.insert(tables.weights.end(), v.begin(), v.end());
    return "weights[" + std::to_string(at) + " + ";
  };
  if (taps.outputs() == 1 && taps.index.size() == 1 && taps.index[0] == 0 && taps.weight[0] == 1 && taps.divisor.empty()) {
    add("_FIRST(o)", "0"), add("_LAST(o)", "1"), add("_AT(o, t)", "0"), add("_WEIGHT(t)", "(C)1"), add("_BY(o)", "(C)1");
    return;
  }
  const std::string begin = places(taps.begin), index = places(taps.index), weight = weights(taps.weight), by = weights(taps.divisor);
  add("_FIRST(o)", begin + "(o)]"), add("_LAST(o)", begin + "(o) + 1]"), add("_AT(o, t)", index + "(t)]");
  add("_WEIGHT(t)", weight.empty() ? "(C)1" : weight + "(t)]"), add("_BY(o)", by.empty() ? "(C)1" : by + "(o)]");
}

// Tables as constants: words 2 and 3 of a kernel that begins with kTablesText.
constexpr std::string_view kTablesText = R"(
#define TABLES \
  const int* places = (const int*)a.w[2]; \
  const C* weights = (const C*)a.w[3]; \
  (void)places, (void)weights
)";

struct Resampling {
  Defines defines;
  Tensor places, weights;
};
// window: what the last `spatial` axes are, if they are one of fixed size.
Resampling resampling(Builder& b, const Axes& axes, lazyt_dtype_t dtype, const Window* window = nullptr, size_t spatial = 0) {
  Resampling out;
  Tables tables;
  for (size_t i = 0; i < 3; ++i) {
    if (window && i + spatial >= 3)
      window_text(std::string(1, "DHW"[i]), stride_of(*window, i + spatial - 3, axes[i].inputs), out.defines);
    else
      table_text("DHW"[i], axes[i], tables, out.defines);
  }
  const bool wide = dtype == LAZYT_DTYPE_FLOAT64;
  if (tables.places.empty()) tables.places.push_back(0);
  if (tables.weights.empty()) tables.weights.push_back(1);
  out.places = b.constant(LAZYT_DTYPE_INT32, {static_cast<int64_t>(tables.places.size())}, tables.places.data());
  const Dims count = {static_cast<int64_t>(tables.weights.size())};
  const std::vector<float> narrow(tables.weights.begin(), tables.weights.end());
  out.weights = wide ? b.constant(LAZYT_DTYPE_FLOAT64, count, tables.weights.data()) : b.constant(LAZYT_DTYPE_FLOAT32, count, narrow.data());
  out.defines.emplace_back("T", memory_type(dtype));
  out.defines.emplace_back("C", register_type(dtype));
  return out;
}

// Where element i of y is: plane (n, c) of x at `plane`, coordinates d, h, w of y.
Strides walk_of(const Order& order, const Tensor& x, const Tensor& y) {
  Dims plane = x.strides();
  plane[2] = plane[3] = plane[4] = 0;
  return {{"plane", order.of(plane)}, {"d", order.coordinate(2)}, {"h", order.coordinate(3)}, {"w", order.coordinate(4)}, {"to", order.of(y.strides())}};
}
void add_geometry(Defines& defines, const Tensor& x, const Tensor& y) {
  const Order order(y);
  defines.emplace_back("I", index_type({y.count(), span_of(x.layout), span_of(y.layout)}));
  defines.emplace_back("COUNT", std::to_string(y.count()));
  defines.emplace_back("OFFSETS", offsets("i", order.dims, walk_of(order, x, y)));
  defines.emplace_back("SD", std::to_string(x.strides()[2]));
  defines.emplace_back("SH", std::to_string(x.strides()[3]));
  defines.emplace_back("SW", std::to_string(x.strides()[4]));
  for (size_t i = 0; i < 3; ++i) {
    defines.emplace_back(std::string("X") + "DHW"[i], std::to_string(x.dims()[2 + i]));
    defines.emplace_back(std::string("Y") + "DHW"[i], std::to_string(y.dims()[2 + i]));
  }
}

// Adds a kernel whose `text` has a line STORE where `v` is what belongs at `to` of its first result, `made`.
void add_pool(Builder& b, const char* name, std::string text, Defines defines, const Tensor& made, std::vector<Word> words,
              std::vector<StorageId> reads, std::vector<StorageId> writes) {
  std::vector<StorageId> in_place;
  const std::string store = "{ const long long i = to;\n" + b.store_text(made, 1, words, reads, writes, in_place) + "}\n";
  // Indices are written beside.
  reads.insert(reads.end(), in_place.begin(), in_place.end());
  text.replace(text.find("STORE\n"), 6, store);
  defines.emplace_back("WORDS", std::to_string(words.size()));
  b.add_kernel(specialise(name, each_text(std::string(kTablesText) + text), defines), made.count(), kThreads, std::move(words), reads, writes);
}

// y = the axes applied to x. made: y, as the program knows it.
void add_resample(Builder& b, const char* name, const Tensor& x, const Tensor& y, const Tensor& made, const Axes& axes,
                  const Window* window = nullptr, size_t spatial = 0) {
  if (y.count() == 0) return;
  Resampling r = resampling(b, axes, y.dtype, window, spatial);
  add_geometry(r.defines, x, y);
  add_pool(b, name, R"(
LAZYT_KERNEL(KERNEL, WORDS, 256) {
  TABLES;
  const T* x = (const T*)a.w[0];
  LAZYT_EACH(i, COUNT) {
    OFFSETS
    C sum = 0;
    for (int td = D_FIRST(d); td < D_LAST(d); ++td)
      for (int th = H_FIRST(h); th < H_LAST(h); ++th) {
        const I row = plane + (I)D_AT(d, td) * SD + (I)H_AT(h, th) * SH;
        const C weight = D_WEIGHT(td) * H_WEIGHT(th);
        for (int tw = W_FIRST(w); tw < W_LAST(w); ++tw) sum += weight * W_WEIGHT(tw) * lazyt_load(x, row + (I)W_AT(w, tw) * SW);
      }
    const C v = sum / (D_BY(d) * H_BY(h) * W_BY(w));
    STORE
  }
}
#undef TABLES
)",
           r.defines, made, {Word::address(x), Word::address(y), Word::address(r.places), Word::address(r.weights)},
           {x.storage, r.places.storage, r.weights.storage}, {});
}

// y = the largest of the elements that the axes name, index = which, counted within the volume: the first of equals, the
// last NaN.
void add_max_pool(Builder& b, const Tensor& x, const Tensor& y, const Tensor& made, const Tensor& index, const Axes& axes,
                  const Window* window, size_t spatial) {
  if (y.count() == 0) return;
  Resampling r = resampling(b, axes, y.dtype, window, spatial);
  add_geometry(r.defines, x, y);
  const Order order(y);
  Strides walk = walk_of(order, x, y);
  walk.emplace_back("named", order.of(index.strides()));
  for (auto& [n, value] : r.defines)
    if (n == "OFFSETS") value = offsets("i", order.dims, walk);
  add_pool(b, "max_pool", R"(
LAZYT_KERNEL(KERNEL, WORDS, 256) {
  TABLES;
  const T* x = (const T*)a.w[0];
  LAZYT_EACH(i, COUNT) {
    OFFSETS
    C best = 0;
    int which = -1;
    for (int td = D_FIRST(d); td < D_LAST(d); ++td)
      for (int th = H_FIRST(h); th < H_LAST(h); ++th)
        for (int tw = W_FIRST(w); tw < W_LAST(w); ++tw) {
          const int id = D_AT(d, td), ih = H_AT(h, th), iw = W_AT(w, tw);
          const C v = lazyt_load(x, plane + (I)id * SD + (I)ih * SH + (I)iw * SW);
          if (which < 0 || v > best || v != v) best = v, which = (id * XH + ih) * XW + iw;
        }
    const C v = best;
    STORE
    ((long long*)a.w[4])[named] = which;
  }
}
#undef TABLES
)",
           r.defines, made,
           {Word::address(x), Word::address(y), Word::address(r.places), Word::address(r.weights), Word::address(index)},
           {x.storage, r.places.storage, r.weights.storage}, {index.storage});
}

// x = the sum of the gradients that index sends there; back: of each element of x, the results that it may be the largest of.
void add_max_pool_backward(Builder& b, const Tensor& grad, const Tensor& index, const Tensor& x, const Tensor& made, const Axes& back) {
  if (x.count() == 0) return;
  Resampling r = resampling(b, back, x.dtype);
  add_geometry(r.defines, grad, x);
  const Order order(x);
  Strides walk = walk_of(order, grad, x);
  Dims plane = index.strides();
  plane[2] = plane[3] = plane[4] = 0;
  walk.emplace_back("named", order.of(plane));
  for (auto& [n, value] : r.defines)
    if (n == "OFFSETS") value = offsets("i", order.dims, walk);
  for (size_t i = 0; i < 3; ++i) r.defines.emplace_back(std::string("N") + "DHW"[i], std::to_string(index.strides()[2 + i]));
  add_pool(b, "max_pool_backward", R"(
LAZYT_KERNEL(KERNEL, WORDS, 256) {
  TABLES;
  const T* grad = (const T*)a.w[0];
  const long long* index = (const long long*)a.w[4];
  LAZYT_EACH(i, COUNT) {
    OFFSETS
    const long long own = ((long long)d * YH + h) * YW + w;
    C sum = 0;
    for (int td = D_FIRST(d); td < D_LAST(d); ++td)
      for (int th = H_FIRST(h); th < H_LAST(h); ++th)
        for (int tw = W_FIRST(w); tw < W_LAST(w); ++tw) {
          const I od = D_AT(d, td), oh = H_AT(h, th), ow = W_AT(w, tw);
          if (index[named + od * ND + oh * NH + ow * NW] == own) sum += lazyt_load(grad, plane + od * SD + oh * SH + ow * SW);
        }
    const C v = sum;
    STORE
  }
}
#undef TABLES
)",
           r.defines, made,
           {Word::address(grad), Word::address(x), Word::address(r.places), Word::address(r.weights), Word::address(index)},
           {grad.storage, index.storage, r.places.storage, r.weights.storage}, {});
}

// ---- lowerings

Tensor operand_five(Builder& b, const lazyt_node_t& node, size_t i, size_t axes) {
  return with_five_dims(tensor_at(b, b.program.args(node)[i]), axes);
}
Tensor result_five(Builder& b, uint32_t v, const Tensor& like, size_t axes) { return with_five_dims(make_like(b, v, like), axes); }

Axes axes_between(const Tensor& x, const Tensor& y, size_t n, const AxisOf& f) { return axes_of(x.dims(), y.dims(), n, f); }

void lower_resample(Builder& b, const lazyt_node_t& node, const char* name, const AxisOf& axis, size_t n, const Window* window = nullptr) {
  const Tensor x = tensor_at(b, b.program.args(node)[0]), y = result_five(b, node.results, x, n), five = with_five_dims(x, n);
  add_resample(b, name, five, y, b.tensor(node.results), axes_between(five, y, n, axis), window, n);
}
// like: the operand in whose order of dims the gradient lies.
void lower_resample_backward(Builder& b, const lazyt_node_t& node, const char* name, const AxisOf& axis, const Tensor& like, size_t n) {
  const Tensor grad = operand_five(b, node, 0, n), x = result_five(b, node.results, like, n);
  add_resample(b, name, grad, x, b.tensor(node.results), transposed(axes_between(x, grad, n, axis)));
}

void lower_pooling(Builder& b, const lazyt_node_t& node) {
  const Pooling& p = pooling_of(b.program, node);
  const auto window = window_of(b, node, p);
  const AxisOf axis = axis_of(b, node, p);
  if (!p.max) return lower_resample(b, node, p.adaptive ? "adaptive_avg_pool" : "avg_pool", axis, p.axes, window ? &*window : nullptr);
  const Tensor x = tensor_at(b, b.program.args(node)[0]), five = with_five_dims(x, p.axes);
  const Tensor y = result_five(b, node.results, x, p.axes), index = result_five(b, node.results + 1, x, p.axes);
  add_max_pool(b, five, y, b.tensor(node.results), index, axes_between(five, y, p.axes, axis), window ? &*window : nullptr, p.axes);
}

void lower_pooling_backward(Builder& b, const lazyt_node_t& node) {
  const Pooling& p = pooling_of(b.program, node);
  const auto args = b.program.args(node);
  const Tensor self = tensor_at(b, args[p.self()]);
  const AxisOf axis = axis_of(b, node, p);
  if (!p.max) return lower_resample_backward(b, node, p.adaptive ? "adaptive_avg_pool_backward" : "avg_pool_backward", axis, self, p.axes);
  const Tensor grad = operand_five(b, node, 0, p.axes), index = operand_five(b, node, args.size() - 1, p.axes);
  const Tensor x = result_five(b, node.results, self, p.axes);
  add_max_pool_backward(b, grad, index, x, b.tensor(node.results), transposed(axes_between(x, grad, p.axes, axis)));
}

// ---- padding: each element is one of the operand's

// Along the last dims, `before` elements are added in front; negative ones are cut.
void add_pad(Builder& b, const lazyt_node_t& node, const Dims& pads, std::string_view mode) {
  const Tensor x = tensor_at(b, b.program.args(node)[0]), y = b.make_dense(node.results);
  if (y.count() == 0) return;
  const size_t rank = y.layout.rank(), padded = pads.size() / 2;
  Dims rest = x.strides();
  for (size_t d = rank - padded; d < rank; ++d) rest[d] = 0;
  Strides walk = {{"from", rest}};
  std::string text;
  for (size_t k = 0; k < padded; ++k) {
    const size_t d = rank - 1 - k;
    Dims one(rank, 0);
    one[d] = 1;
    const std::string at = "at" + std::to_string(k), size = std::to_string(x.dims()[d]);
    walk.emplace_back(at, one);
    text += at + " -= (I)" + std::to_string(pads[2 * k]) + "; ";
    if (mode == "reflect") text += "if (" + at + " < 0) " + at + " = -" + at + "; if (" + at + " >= " + size + ") " + at + " = 2 * (" + size + " - 1) - " + at + "; ";
    if (mode == "replicate") text += at + " = " + at + " < 0 ? 0 : " + at + " >= " + size + " ? " + size + " - 1 : " + at + "; ";
    if (mode == "circular") text += "if (" + at + " < 0) " + at + " += " + size + "; if (" + at + " >= " + size + ") " + at + " -= " + size + "; ";
    text += "from += " + at + " * (I)" + std::to_string(x.strides()[d]) + "; ";
  }
  b.add_kernel(specialise("pad", each_text(R"(
LAZYT_KERNEL(KERNEL, 2, 256) {
  LAZYT_EACH(i, COUNT) {
    OFFSETS
    PADS
    ((T*)a.w[1])[i] = ((const T*)a.w[0])[from];
  }
}
)"),
                          {{"T", bits_type(x.element())},
                           {"I", index_type({y.count(), span_of(x.layout)})},
                           {"COUNT", std::to_string(y.count())},
                           {"OFFSETS", offsets("i", y.dims(), walk)},
                           {"PADS", text}}),
               y.count(), kThreads, {Word::address(x), Word::address(y)}, {x.storage}, {y.storage});
}

// ---- other sizes of an image, and borders

void lower_resizing(Builder& b, const lazyt_node_t& node) {
  const Resizing& r = resizing_of(b.program, node);
  if (r.is_border() && !r.backward)
    return add_pad(b, node, b.ints_of(b.program.args(node)[1]), r.filter == Filter::kReflection ? "reflect" : "replicate");
  const AxisOf axis = axis_of(b, node, r);
  if (!r.backward) return lower_resample(b, node, "upsample", axis, r.axes);
  lower_resample_backward(b, node, "upsample_backward", axis, tensor_at(b, b.program.args(node)[0]), r.axes);
}

// ---- grid_sampler_2d: input, grid, interpolation_mode, padding_mode, align_corners

Refusal accept_grid_sampler(const ProgramView& program, const lazyt_node_t& node) {
  const auto args = program.args(node);
  const lazyt_dtype_t dtype = program.values()[args[0].payload].dtype;
  if (!toolkit::is_floating(dtype) || program.values()[args[1].payload].dtype != dtype) return refuse_dtype(dtype);
  if (args[2].payload > 1) return refuse_argument("bicubic interpolation");
  return {};
}
void lower_grid_sampler(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor x = tensor_at(b, args[0]), grid = tensor_at(b, args[1]), y = make_like(b, node.results, x);
  if (y.count() == 0) return;
  const Order order(y);
  Dims plane = x.strides(), points = {grid.strides()[0], 0, grid.strides()[1], grid.strides()[2]};
  plane[2] = plane[3] = 0;
  b.add_kernel(specialise("grid_sampler", each_text(R"(
#ifndef LAZYT_GRID_TEXT
#define LAZYT_GRID_TEXT
template <class Value> __device__ __forceinline__ Value lazyt_reflect(Value v, Value low, Value span) {
  if (span <= 0) return 0;
  v = lazyt_abs(v - low);
  const Value turns = lazyt_floor(v / span), rest = v - turns * span;
  return lazyt_fmod(turns, (Value)2) == 0 ? rest + low : span - rest + low;
}
// Where a coordinate in [-1, 1] is among n elements.
template <class Value> __device__ __forceinline__ Value lazyt_grid_place(Value v, long long n, int padding, bool corners) {
  v = corners ? (v + 1) / 2 * (Value)(n - 1) : ((v + 1) * (Value)n - 1) / 2;
  if (padding == 2) v = corners ? lazyt_reflect(v, (Value)0, (Value)(n - 1)) : lazyt_reflect(v, (Value)-0.5, (Value)n);
  if (padding != 0) v = v < (Value)(n - 1) ? (v > 0 ? v : (Value)0) : v != v ? (Value)0 : (Value)(n - 1);
  // Far outside, or no number: nothing is near.
  return v > (Value)-1e9 && v < (Value)1e9 ? v : (Value)-100;
}
#endif
LAZYT_KERNEL(KERNEL, 3, 256) {
  const T* x = (const T*)a.w[0];
  LAZYT_EACH(i, COUNT) {
    OFFSETS
    const C fx = lazyt_grid_place((C)lazyt_load((const T*)a.w[1], point), XW, PADDING, CORNERS);
    const C fy = lazyt_grid_place((C)lazyt_load((const T*)a.w[1], point + (I)SG), XH, PADDING, CORNERS);
    C value = 0;
#define LAZYT_AT(ih, iw) ((ih) >= 0 && (ih) < XH && (iw) >= 0 && (iw) < XW ? lazyt_load(x, plane + (I)(ih) * (I)SH + (I)(iw) * (I)SW) : (C)0)
    if (NEAREST) {
      const long long iw = (long long)lazyt_round(fx), ih = (long long)lazyt_round(fy);
      value = LAZYT_AT(ih, iw);
    } else {
      const C lx = lazyt_floor(fx), ly = lazyt_floor(fy), wx = fx - lx, wy = fy - ly;
      const long long iw = (long long)lx, ih = (long long)ly;
      value = LAZYT_AT(ih, iw) * ((1 - wx) * (1 - wy)) + LAZYT_AT(ih, iw + 1) * (wx * (1 - wy)) + LAZYT_AT(ih + 1, iw) * ((1 - wx) * wy) +
              LAZYT_AT(ih + 1, iw + 1) * (wx * wy);
    }
#undef LAZYT_AT
    lazyt_store((T*)a.w[2], to, value);
  }
}
)"),
                          {{"T", memory_type(x.dtype)},
                           {"C", register_type(x.dtype)},
                           {"I", index_type({y.count(), span_of(x.layout), span_of(y.layout), span_of(grid.layout)})},
                           {"COUNT", std::to_string(y.count())},
                           {"OFFSETS", offsets("i", order.dims, {{"plane", order.of(plane)}, {"point", order.of(points)}, {"to", order.of(y.strides())}})},
                           {"XH", std::to_string(x.dims()[2])},
                           {"XW", std::to_string(x.dims()[3])},
                           {"SH", std::to_string(x.strides()[2])},
                           {"SW", std::to_string(x.strides()[3])},
                           {"SG", std::to_string(grid.strides()[3])},
                           {"NEAREST", b.int_of(args[2]) == 1 ? "true" : "false"},
                           {"PADDING", std::to_string(b.int_of(args[3]))},
                           {"CORNERS", b.bool_of(args[4]) ? "true" : "false"}}),
               y.count(), kThreads, {Word::address(x), Word::address(grid), Word::address(y)}, {x.storage, grid.storage}, {y.storage});
}

}  // namespace

void register_pool(Operators& all) {
  using enum toolkit::Role;
  add_poolings(all, lower_pooling, lower_pooling_backward);
  add_resizings(all, {kOpaque, toolkit::taps::accept_resizing, lower_resizing});
  all.add(LAZYT_OP_GRID_SAMPLER_2D, {kOpaque, accept_grid_sampler, lower_grid_sampler});
}

}  // namespace lazyt::cuda
