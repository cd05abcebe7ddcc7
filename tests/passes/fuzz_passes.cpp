// Random programs, run by the ts plugin before and after each pass: equal bits, but for what PyTorch's own kernels make
// depend on where an operand lies (`equal` below). Random operators that have a
// decomposition, run whole and in pieces: equal bits or within the bound.
//
//   fuzz_passes                            a short run, as a test
//   fuzz_passes --programs N [--seed S]    a long one; prints programs per second
//
// A difference prints the seed and both programs. Without a ts plugin on LAZYT_PLUGIN_PATH nothing is run.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "ir/registry.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "loader/loader.h"
#include "passes/decomposition.h"
#include "passes/pipeline.h"

namespace lazyt::passes {
namespace {

using base::Dims;
using base::DType;
using base::Meta;
using ir::Arg;
using ir::ValueId;

uint64_t programs = 300, first_seed = 1;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  const T& of(const std::vector<T>& items) {
    return items[static_cast<size_t>(below(static_cast<int64_t>(items.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

bool is_float(DType d) { return d == LAZYT_DTYPE_FLOAT32 || d == LAZYT_DTYPE_FLOAT64; }

// Well-formed programs, full of what passes look for.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  ir::Graph run() {
    for (int i = 0, n = 1 + static_cast<int>(random_.below(4)); i < n; i++) input();
    seed_ = g_.add_host_scalar(LAZYT_DTYPE_INT64, false);
    offset_ = g_.add_host_scalar(LAZYT_DTYPE_INT64, false);
    scalar_ = g_.add_host_scalar(LAZYT_DTYPE_FLOAT64, true);
    if (random_.chance(40)) constant();
    for (int i = 0, n = 3 + static_cast<int>(random_.below(30)); i < n; i++) node();
    outputs();
    return std::move(g_);
  }

 private:
  const Meta& meta(ValueId v) const { return g_.values[v].meta; }
  ValueId any() {  // recent ones more often, so that chains are long
    const auto n = static_cast<int64_t>(pool_.size());
    return pool_[static_cast<size_t>(random_.chance(60) ? n - 1 - random_.below(std::min<int64_t>(n, 3)) : random_.below(n))];
  }
  ValueId any_float() {
    for (int i = 0; i < 20; i++)
      if (ValueId v = any(); is_float(meta(v).dtype)) return v;
    return pool_[0];
  }
  ValueId keep(ValueId v) { return pool_.push_back(v), v; }
  ValueId op(std::string name, std::string overload, std::vector<Arg> args, DType dtype, Dims dims) {
    return keep(g_.add_op(std::move(name), std::move(overload), std::move(args), Meta::contiguous(dtype, std::move(dims))));
  }
  Dims dims() {
    static const std::vector<Dims> shapes = {{}, {1}, {4}, {2, 3}, {4, 6}, {3, 1}, {2, 3, 4}, {40}, {17, 9}, {0, 3}};
    return random_.of(shapes);
  }
  void input() {
    Meta m = Meta::contiguous(pool_.empty() || random_.chance(80) ? LAZYT_DTYPE_FLOAT32
                              : random_.chance(50)                ? LAZYT_DTYPE_INT64
                                                                  : LAZYT_DTYPE_FLOAT64,
                              dims());
    if (m.dims.size() == 2 && random_.chance(30)) m.strides = {1, std::max<int64_t>(m.dims[0], 1)};
    keep(g_.add_input(m));
    g_.inputs.back().may_donate = random_.chance(50);
  }
  void constant() {
    Meta m = Meta::contiguous(random_.chance(50) ? LAZYT_DTYPE_INT32 : LAZYT_DTYPE_FLOAT32, random_.of<Dims>({{2, 3}, {4}, {}}));
    std::vector<uint8_t> bytes(m.span_bytes());
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      auto number = static_cast<int32_t>(random_.below(7) - 3);
      auto real = static_cast<float>(number) / 2;
      std::memcpy(bytes.data() + i, m.dtype == LAZYT_DTYPE_INT32 ? static_cast<void*>(&number) : &real, 4);
    }
    keep(g_.add_constant(m, std::move(bytes)));
  }
  Dims reshaped(const Dims& d) {
    const int64_t n = base::numel(d);
    switch (random_.below(4)) {
      case 0: return {n};
      case 1: return d;
      case 2: {
        Dims more = d;
        more.insert(more.begin() + random_.below(static_cast<int64_t>(d.size()) + 1), 1);
        return more;
      }
      default:
        for (int64_t f : {2, 3, 5})
          if (n > 0 && n % f == 0) return {f, n / f};
        return {1, n};
    }
  }
  ValueId same_shape(ValueId x) {
    for (int i = 0; i < 20; i++)
      if (ValueId v = any(); meta(v).dtype == meta(x).dtype && (meta(v).dims == meta(x).dims || meta(v).dims.empty())) return v;
    return x;
  }
  Arg number() {
    switch (random_.below(7)) {
      case 0: return Arg::of_int(1);
      case 1: return Arg::of_int(0);
      case 2: return Arg::of_double(1.0);
      case 3: return Arg::of_double(-0.0);
      case 4: return Arg::of_double(0.1);
      case 5: return Arg::of_value(scalar_);
      default: return Arg::of_int(3);
    }
  }
  Arg fill_type(DType d) { return Arg::of_int(d, LAZYT_ARG_DTYPE); }

  void view(ValueId x) {
    const Dims d = meta(x).dims;
    const DType t = meta(x).dtype;
    const auto rank = static_cast<int64_t>(d.size());
    switch (random_.below(7)) {
      case 0:
      case 1: {
        Dims to = reshaped(d);
        op("aten::reshape", "", {Arg::of_value(x), Arg::of_ints(to)}, t, to);
        return;
      }
      case 2: {
        Dims order(d.size()), to;
        for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<int64_t>(i);
        if (rank > 1 && random_.chance(75)) std::swap(order[0], order[static_cast<size_t>(1 + random_.below(rank - 1))]);
        for (int64_t i : order) to.push_back(d[static_cast<size_t>(i)]);
        op("aten::permute", "", {Arg::of_value(x), Arg::of_ints(order)}, t, to);
        return;
      }
      case 3: {
        if (rank != 2) return;
        if (random_.chance(50))
          op("aten::t", "", {Arg::of_value(x)}, t, {d[1], d[0]});
        else
          op("aten::transpose", "int", {Arg::of_value(x), Arg::of_int(0), Arg::of_int(1)}, t, {d[1], d[0]});
        return;
      }
      case 4: {
        if (rank == 0) return;
        const int64_t dim = random_.below(rank), size = d[static_cast<size_t>(dim)];
        const int64_t start = random_.chance(40) ? 0 : random_.below(size + 1);
        const int64_t end = random_.chance(50) ? size : start + random_.below(size - start + 1);
        const int64_t step = random_.chance(85) ? 1 : 2;
        Dims to = d;
        to[static_cast<size_t>(dim)] = (end - start + step - 1) / step;
        op("aten::slice", "Tensor", {Arg::of_value(x), Arg::of_int(dim), Arg::of_int(start), Arg::of_int(end), Arg::of_int(step)}, t, to);
        return;
      }
      case 5: {
        Dims to = d;
        for (int64_t& s : to)
          if (s == 1 && random_.chance(70)) s = 3;
        if (random_.chance(40)) to.insert(to.begin(), 2);
        op("aten::expand", "", {Arg::of_value(x), Arg::of_ints(to), Arg::of_bool(false)}, t, to);
        return;
      }
      default:
        op("aten::alias", "", {Arg::of_value(x)}, t, d);
    }
  }

  void copy(ValueId x) {
    static const std::vector<DType> types = {LAZYT_DTYPE_FLOAT32, LAZYT_DTYPE_FLOAT32, LAZYT_DTYPE_FLOAT64, LAZYT_DTYPE_INT64,
                                             LAZYT_DTYPE_INT32,   LAZYT_DTYPE_BOOL,    LAZYT_DTYPE_BFLOAT16};
    Arg format = random_.chance(70) ? Arg::none() : Arg::of_int(random_.below(2), LAZYT_ARG_MEMORY_FORMAT);
    if (random_.chance(50)) {
      op("aten::clone", "", {Arg::of_value(x), format}, meta(x).dtype, meta(x).dims);
      return;
    }
    DType to = random_.chance(40) ? meta(x).dtype : random_.of(types);
    // Out of range and NaN to integer is not defined.
    if (is_float(meta(x).dtype) && !is_float(to) && to != LAZYT_DTYPE_BFLOAT16 && to != LAZYT_DTYPE_BOOL) to = meta(x).dtype;
    if (meta(x).dtype == LAZYT_DTYPE_BFLOAT16) to = LAZYT_DTYPE_FLOAT32;
    op("aten::_to_copy", "", {Arg::of_value(x), fill_type(to), Arg::none(), Arg::none(), Arg::none(), Arg::of_bool(false), format}, to, meta(x).dims);
  }

  void node() {
    static const std::vector<std::string> unary = {"neg", "neg", "exp", "abs", "relu", "tanh", "sigmoid", "sqrt"};
    static const std::vector<std::string> binary = {"add", "sub", "mul", "maximum"};
    switch (random_.below(17)) {
      case 0:
      case 1:
      case 2: return view(any());
      case 3:
      case 4: return copy(any());
      case 5: {
        ValueId x = any_float();
        op("aten::" + random_.of(unary), "", {Arg::of_value(x)}, meta(x).dtype, meta(x).dims);
        return;
      }
      case 6:
      case 7: {
        ValueId x = any_float(), y = same_shape(x);
        const std::string& name = random_.of(binary);
        std::vector<Arg> args = {Arg::of_value(x), Arg::of_value(y)};
        if (name == "add" || name == "sub") args.push_back(random_.chance(70) ? Arg::of_int(1) : number());
        op("aten::" + name, name == "maximum" ? "" : "Tensor", args, meta(x).dtype, meta(x).dims);
        return;
      }
      case 8: {
        ValueId x = random_.chance(70) ? any_float() : any();
        if (!is_float(meta(x).dtype) && meta(x).dtype != LAZYT_DTYPE_INT64 && meta(x).dtype != LAZYT_DTYPE_INT32) return;
        Arg n = is_float(meta(x).dtype) ? number() : Arg::of_int(random_.below(3));
        if (random_.chance(50))
          op("aten::mul", "Scalar", {Arg::of_value(x), n}, meta(x).dtype, meta(x).dims);
        else
          op("aten::add", "Scalar", {Arg::of_value(x), n, Arg::of_int(1)}, meta(x).dtype, meta(x).dims);
        return;
      }
      case 9: {
        ValueId x = any_float();
        Dims d = meta(x).dims;
        if (d.empty() || random_.chance(30)) {
          op("aten::sum", "", {Arg::of_value(x), Arg::none()}, meta(x).dtype, {});
          return;
        }
        const int64_t dim = random_.below(static_cast<int64_t>(d.size()));
        const bool stays = random_.chance(50);
        const std::string name = random_.chance(70) ? "sum" : "mean";
        if (stays)
          d[static_cast<size_t>(dim)] = 1;
        else
          d.erase(d.begin() + dim);
        op("aten::" + name, name == "sum" ? "dim_IntList" : "dim",
           {Arg::of_value(x), Arg::of_ints({dim}), Arg::of_bool(stays), Arg::none()}, meta(x).dtype, d);
        return;
      }
      case 10: {
        std::vector<Arg> a, b;
        std::vector<Meta> metas;
        for (int i = 0; i < 1 + random_.below(3); i++) {
          ValueId x = any_float();
          a.push_back(Arg::of_value(x)), b.push_back(Arg::of_value(x));
          metas.push_back(Meta::contiguous(meta(x).dtype, meta(x).dims));
        }
        std::vector<Arg> args = {Arg::of_list(a)};
        const bool lists = random_.chance(50);
        if (lists)
          args.insert(args.end(), {Arg::of_list(b), Arg::of_double(0.5)});
        else
          args.push_back(number());
        ir::NodeId n = g_.add_node("aten::_foreach_add", lists ? "List" : "Scalar", args, metas);
        for (uint32_t r = 0; r < metas.size(); r++) keep(g_.nodes[n].first_result + r);
        return;
      }
      case 11: {  // a write through a view
        ValueId x = any();
        const Dims d = meta(x).dims;
        if (d.empty()) return;
        const int64_t dim = random_.below(static_cast<int64_t>(d.size())), size = d[static_cast<size_t>(dim)];
        const int64_t start = random_.chance(50) ? 0 : random_.below(size + 1), end = random_.chance(40) ? size : start + random_.below(size - start + 1);
        ValueId source = x;
        Dims part = d;
        part[static_cast<size_t>(dim)] = end - start;
        if (end - start != size)
          source = op("aten::full", "", {Arg::of_ints(part), Arg::of_int(1), fill_type(meta(x).dtype), Arg::none(), Arg::none(), Arg::none()},
                      meta(x).dtype, part);
        else if (ValueId y = same_shape(x); meta(y).dims == d)
          source = y;
        const ValueId written =
            op("aten::slice_scatter", "", {Arg::of_value(x), Arg::of_value(source), Arg::of_int(dim), Arg::of_int(start), Arg::of_int(end), Arg::of_int(1)},
               meta(x).dtype, d);
        if (random_.chance(40)) return;  // else a part is read, and perhaps written where it was
        const int64_t first = random_.chance(30) ? start : random_.below(size + 1), last = first + random_.below(size - first + 1);
        part[static_cast<size_t>(dim)] = last - first;
        const ValueId read = op("aten::slice", "Tensor", {Arg::of_value(written), Arg::of_int(dim), Arg::of_int(first), Arg::of_int(last), Arg::of_int(1)},
                                meta(x).dtype, part);
        if (random_.chance(50)) return;
        const int64_t back = random_.chance(70) ? first : 0;
        op("aten::slice_scatter", "", {Arg::of_value(written), Arg::of_value(read), Arg::of_int(dim), Arg::of_int(back), Arg::of_int(back + last - first), Arg::of_int(1)},
           meta(x).dtype, d);
        return;
      }
      case 12: {
        Dims d = dims();
        DType t = random_.chance(70) ? LAZYT_DTYPE_FLOAT32 : LAZYT_DTYPE_FLOAT64;
        if (random_.chance(60))
          op("aten::full", "", {Arg::of_ints(d), number(), fill_type(t), Arg::of_int(0, LAZYT_ARG_LAYOUT), Arg::of_int(0, LAZYT_ARG_DEVICE), Arg::none()}, t, d);
        else
          op("aten::zeros", "", {Arg::of_ints(d), fill_type(t), Arg::of_int(0, LAZYT_ARG_LAYOUT), Arg::of_int(0, LAZYT_ARG_DEVICE), Arg::none()}, t, d);
        view(pool_.back());
        return;
      }
      case 13: {
        ValueId x = any_float();
        if (meta(x).dims.size() != 2) return;
        ValueId y = op("aten::t", "", {Arg::of_value(x)}, meta(x).dtype, {meta(x).dims[1], meta(x).dims[0]});
        op("aten::mm", "", {Arg::of_value(x), Arg::of_value(y)}, meta(x).dtype, {meta(x).dims[0], meta(x).dims[0]});
        return;
      }
      case 14: return slice_gradients(any());
      case 15: {
        Dims d = dims();
        op("lazyt::uniform", "", {Arg::of_ints(d), fill_type(LAZYT_DTYPE_FLOAT32), Arg::of_double(0.0), Arg::of_double(1.0), Arg::of_value(seed_), Arg::of_value(offset_)},
           LAZYT_DTYPE_FLOAT32, d);
        return;
      }
      default: {
        ValueId x = any_float(), y = same_shape(x);
        ValueId c = op("aten::lt", "Tensor", {Arg::of_value(x), Arg::of_value(y)}, LAZYT_DTYPE_BOOL, meta(x).dims);
        op("aten::where", "self", {Arg::of_value(c), Arg::of_value(x), Arg::of_value(y)}, meta(x).dtype, meta(x).dims);
      }
    }
  }

  // What autograd makes of a loop over slices of x: their gradients, added one by one.
  void slice_gradients(ValueId x) {
    const Dims d = meta(x).dims;
    const DType t = meta(x).dtype;
    if (d.empty() || base::numel(d) == 0 || t == LAZYT_DTYPE_BOOL) return;
    const int64_t dim = random_.below(static_cast<int64_t>(d.size())), size = d[static_cast<size_t>(dim)];
    const bool selects = random_.chance(60);
    ValueId sum = random_.chance(40) ? x : ir::kNone;
    for (int64_t i = 0, n = 2 + random_.below(5); i < n; i++) {
      const int64_t start = random_.chance(60) ? i % size : random_.below(size), end = selects ? start + 1 : start + 1 + random_.below(size - start);
      ValueId from = same_shape(x);
      if (meta(from).dims != d) from = x;
      Dims part = d;
      part[static_cast<size_t>(dim)] = end - start;
      ValueId v = op("aten::slice", "Tensor", {Arg::of_value(from), Arg::of_int(dim), Arg::of_int(start), Arg::of_int(end), Arg::of_int(1)}, t, part);
      if (selects) {
        part.erase(part.begin() + dim);
        v = op("aten::reshape", "", {Arg::of_value(v), Arg::of_ints(part)}, t, part);
        v = op("aten::select_backward", "", {Arg::of_value(v), Arg::of_ints(d), Arg::of_int(dim), Arg::of_int(start)}, t, d);
      } else {
        v = op("aten::slice_backward", "", {Arg::of_value(v), Arg::of_ints(d), Arg::of_int(dim), Arg::of_int(start), Arg::of_int(end), Arg::of_int(1)}, t, d);
      }
      if (random_.chance(90)) pool_.pop_back();  // nobody else reads it
      const bool swapped = random_.chance(20);
      if (sum == ir::kNone)
        sum = v;
      else
        sum = op("aten::add", "Tensor", {Arg::of_value(swapped ? v : sum), Arg::of_value(swapped ? sum : v), Arg::of_int(1)}, t, d);
      if (i + 1 < n && sum == pool_.back() && random_.chance(90)) pool_.pop_back();
    }
  }

  void outputs() {
    std::vector<bool> used(g_.values.size(), false);
    for (int i = 0, n = 1 + static_cast<int>(random_.below(4)); i < n; i++) {
      ValueId v = any();
      if (g_.values[v].kind == ir::ValueKind::kConstant || used[v]) continue;
      used[v] = true;
      g_.outputs.push_back({v});
    }
    if (g_.outputs.empty()) g_.outputs.push_back({pool_[0]});
  }

  Random random_;
  ir::Graph g_;
  std::vector<ValueId> pool_;
  ValueId seed_ = 0, offset_ = 0, scalar_ = 0;
};

using Bytes = std::vector<uint8_t>;

class Runner {
 public:
  static Runner* get() {
    static Runner* runner = []() -> Runner* {
      auto plugin = loader::load("ts");
      if (!plugin.ok()) return nullptr;
      auto device = loader::Device::open(plugin.value(), 0);
      return device.ok() ? new Runner(device.value()) : nullptr;
    }();
    return runner;
  }

  // wild: inputs hold NaN, infinities, -0.0 and denormals.
  base::Result<std::vector<Bytes>> run(const ir::Graph& graph, uint64_t seed, bool wild) {
    auto program = ir::Program::from_graph(graph);
    LAZYT_ASSIGN_OR_RETURN(auto executable, loader::Executable::compile(device_, *program, LAZYT_COMPILE_DETERMINISTIC));
    Random random(seed);
    std::vector<loader::ExecuteInput> inputs;
    std::vector<base::Ref<loader::Buffer>> buffers;
    for (const ir::Input& in : graph.inputs) {
      const ir::Value& value = graph.values[in.value];
      loader::ExecuteInput input;
      if (value.kind == ir::ValueKind::kHostScalar) {
        const double number = 0.75;
        const int64_t integer = 42;
        std::memcpy(input.scalar.bytes, value.meta.dtype == LAZYT_DTYPE_INT64 ? static_cast<const void*>(&integer) : &number, 8);
      } else {
        const Bytes bytes = data(value.meta, random, wild);
        LAZYT_ASSIGN_OR_RETURN(auto buffer, loader::Buffer::from_host(device_, bytes.data(), bytes.size()));
        input.buffer = &*buffer;
        buffers.push_back(std::move(buffer));
      }
      inputs.push_back(input);
    }
    std::vector<base::Ref<loader::Buffer>> outputs;
    std::vector<const loader::Buffer*> raw;
    for (const lazyt_output_meta_t& m : executable->output_metas()) {
      LAZYT_ASSIGN_OR_RETURN(auto buffer, loader::Buffer::alloc(device_, m.size_bytes));
      raw.push_back(&*buffer);
      outputs.push_back(std::move(buffer));
    }
    LAZYT_ASSIGN_OR_RETURN(auto event, executable->execute(inputs, raw, {}));
    LAZYT_RETURN_IF_ERROR(event->wait());
    std::vector<Bytes> result;
    for (size_t i = 0; i < outputs.size(); i++) {
      Bytes bytes(graph.values[graph.outputs[i].value].meta.span_bytes());
      if (!bytes.empty()) LAZYT_RETURN_IF_ERROR(outputs[i]->to_host(0, bytes.data(), bytes.size()));
      result.push_back(std::move(bytes));
    }
    return result;
  }

 private:
  explicit Runner(base::Ref<loader::Device> device) : device_(std::move(device)) {}

  static Bytes data(const Meta& m, Random& random, bool wild) {
    static const std::vector<double> odd = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 1e-40, -1e-310, 1e30};
    Bytes bytes(m.span_bytes());
    const size_t size = lazyt_dtype_size(m.dtype);
    for (size_t i = 0; i + size <= bytes.size(); i += size) {
      double d = static_cast<double>(random.below(4001) - 2000) / 1000;
      if (wild && random.chance(10)) d = random.of(odd);
      auto f = static_cast<float>(d);
      auto n = static_cast<int64_t>(random.below(7) - 3);
      const void* from = m.dtype == LAZYT_DTYPE_FLOAT32 ? static_cast<const void*>(&f) : m.dtype == LAZYT_DTYPE_FLOAT64 ? static_cast<const void*>(&d) : &n;
      std::memcpy(bytes.data() + i, from, size);
    }
    return bytes;
  }

  base::Ref<loader::Device> device_;
};

template <class T>
bool equal_elements(const Bytes& a, const Bytes& b, bool zeros) {
  for (size_t i = 0; i + sizeof(T) <= a.size(); i += sizeof(T)) {
    T x, y;
    std::memcpy(&x, &a[i], sizeof(T));
    std::memcpy(&y, &b[i], sizeof(T));
    const bool same = std::memcmp(&x, &y, sizeof(T)) == 0;
    if (!same && !(std::isnan(x) && std::isnan(y)) && !(zeros && x == 0 && y == 0)) return false;
  }
  return true;
}

// Equal bits, or a NaN of other bits; in a program with aten::maximum also a zero of the other sign. PyTorch's
// maximum gives both as its vector or its scalar loop comes to an element, and a pass may move elements.
bool equal(const ir::Graph& graph, const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
  const bool zeros = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const ir::Node& n) { return n.name == "aten::maximum"; });
  for (size_t i = 0; i < a.size(); i++) {
    if (a[i] == b[i]) continue;
    const DType t = graph.values[graph.outputs[i].value].meta.dtype;
    if (a[i].size() != b[i].size() || !(t == LAZYT_DTYPE_FLOAT32   ? equal_elements<float>(a[i], b[i], zeros)
                                        : t == LAZYT_DTYPE_FLOAT64 ? equal_elements<double>(a[i], b[i], zeros)
                                                                   : false))
      return false;
  }
  return true;
}

struct Tally {
  uint64_t programs = 0, rewritten = 0, differences = 0, refused = 0, excused = 0;
  std::map<std::string, uint64_t> by_pass;  // rewrites
};

void check_program(uint64_t seed, Tally& tally) {
  ir::Graph graph = Generator(seed).run();
  tally.programs++;
  ASSERT_EQ(ir::verify(graph).to_string(), "OK") << "seed " << seed << "\n" << ir::print(graph);
  auto want = Runner::get()->run(graph, seed, true);
  if (!want.ok()) {  // the generator's fault, or the plugin's
    tally.refused++;
    if (tally.refused <= 3) std::printf("seed %llu does not run: %s\n", static_cast<unsigned long long>(seed), want.status().to_string().c_str());
    return;
  }
  for (const Pass& pass : pipeline()) {
    const std::string before = ir::print(graph);
    ASSERT_EQ(pass.run(graph).to_string(), "OK");
    ASSERT_EQ(ir::verify(graph).to_string(), "OK") << "seed " << seed << " pass " << pass.name << "\n" << before;
    const std::string after = ir::print(graph);
    if (after == before) continue;
    tally.rewritten++;
    tally.by_pass[pass.name]++;
    auto got = Runner::get()->run(graph, seed, true);
    if (got.ok() && got.value() == want.value()) continue;
    if (got.ok() && equal(graph, got.value(), want.value())) {
      tally.excused++;
      continue;
    }
    tally.differences++;
    ADD_FAILURE() << "seed " << seed << " pass " << pass.name << (got.ok() ? "" : got.status().to_string()) << "\n"
                  << before << "----\n" << after;
    return;
  }
}

// ---- decompositions

struct Sample {
  const char* text;
  bool equal;  // bits; else within the bound
};

constexpr Sample kSamples[] = {
    {"program(%0: f32[5,7], %1: f32[5,7]) { %2, %3 = aten::_foreach_add.List([%0, %1], [%1, %0], 0.5) : f32[5,7], f32[5,7] return %2, %3 }", true},
    {"program(%0: f32[5,7], %1: host weak f64) { %2 = aten::_foreach_mul.Scalar([%0], %1) : f32[5,7] return %2 }", true},
    {"program(%0: f32[5,7], %1: f32[9]) { %2, %3 = aten::_foreach_add.ScalarList([%0, %1], doubles[0.1,2.5]) : f32[5,7], f32[9] return %2, %3 }", true},
    {"program(%0: f32[5,7], %1: f32[5,7]) { %2 = aten::_foreach_addcmul.Scalar([%0], [%1], [%0], 0.3) : f32[5,7] %3 = aten::_foreach_addcdiv.Scalar([%0], [%1], [%0], 0.3) : f32[5,7] return %2, %3 }", true},
    {"program(%0: f32[5,7], %1: f32[5,7]) { %2 = aten::_foreach_lerp.Scalar([%0], [%1], 0.3) : f32[5,7] %3 = aten::_foreach_norm.Scalar([%0], 2, none) : f32[] return %2, %3 }", true},
    {"program(%0: f32[5,7], %1: f32[5,7]) { %2 = aten::_foreach_maximum.Scalar([%0], 0.5) : f32[5,7] %3 = aten::_foreach_pow.Scalar([%0], 2) : f32[5,7] %4 = aten::_foreach_div.List([%0], [%1]) : f32[5,7] return %2, %3, %4 }", true},
    {"program(%0: f32[4,6]) { %1 = aten::t(%0) : f32[6,4] %2 = aten::transpose.int(%0, 0, 1) : f32[6,4] %3 = aten::select.int(%0, 1, 2) : f32[4] %4 = aten::unsqueeze(%0, 1) : f32[4,1,6] return %1, %2, %3, %4 }", true},
    {"program(%0: f32[4,6]) { %1, %2, %3 = aten::split.Tensor(%0, 2, 1) : f32[4,2], f32[4,2], f32[4,2] %4, %5, %6, %7 = aten::unbind.int(%0, 0) : f32[6], f32[6], f32[6], f32[6] return %1, %2, %3, %4, %7 }", true},
    {"program(%0: f32[4,6], %1: f32[4,6]) { %2 = aten::stack([%0, %1, %0], 1) : f32[4,3,6] return %2 }", true},
    {"program(%0: f32[4,6], %1: f32[4,6]) { %2 = aten::threshold_backward(%0, %1, 0) : f32[4,6] %3 = aten::threshold(%0, 0.5, -1.0) : f32[4,6] %4 = aten::leaky_relu(%0, 0.01) : f32[4,6] return %2, %3, %4 }", true},
    {"program(%0: f32[4,6]) { %1 = aten::relu6(%0) : f32[4,6] %2 = aten::hardtanh(%0, -0.5, 0.5) : f32[4,6] %3 = aten::square(%0) : f32[4,6] %4 = aten::ones_like(%0, none, none, none, none, none) : f32[4,6] return %1, %2, %3, %4 }", true},
    {"program(%0: f32[4,6], %1: f32[4,5], %2: f32[5,6]) { %3 = aten::addmm(%0, %1, %2, 1, 1) : f32[4,6] %4 = aten::addmm(%0, %1, %2, 0.5, 2) : f32[4,6] %5 = aten::addmm(%0, %1, %2, 0, 1) : f32[4,6] return %3, %4, %5 }", false},
    {"program(%0: f32[2,3,5], %1: f32[4,5], %2: f32[4]) { %3 = aten::linear(%0, %1, %2) : f32[2,3,4] return %3 }", false},
    {"program(%0: f32[9,33]) { %1 = aten::_softmax(%0, 1, false) : f32[9,33] %2 = aten::_log_softmax(%0, 0, false) : f32[9,33] return %1, %2 }", false},
    {"program(%0: f32[9,33], %1: f32[9,33]) { %2 = aten::_softmax_backward_data(%0, %1, 1, dtype(f32)) : f32[9,33] %3 = aten::_log_softmax_backward_data(%0, %1, 1, dtype(f32)) : f32[9,33] return %2, %3 }", false},
    {"program(%0: f32[6,20], %1: f32[20], %2: f32[20]) { %3, %4, %5 = aten::native_layer_norm(%0, ints[20], %1, %2, 1e-05) : f32[6,20], f32[6,1], f32[6,1] return %3, %4, %5 }", false},
    {"program(%0: f32[6,20]) { %1 = aten::gelu(%0, \"none\") : f32[6,20] %2 = aten::gelu(%0, \"tanh\") : f32[6,20] %3 = aten::silu(%0) : f32[6,20] return %1, %2, %3 }", false},
    {"program(%0: f32[6,20], %1: f32[6,20]) { %2 = aten::tanh_backward(%0, %1) : f32[6,20] %3 = aten::sigmoid_backward(%0, %1) : f32[6,20] %4 = aten::addcmul(%0, %1, %0, 0.3) : f32[6,20] return %2, %3, %4 }", false},
    {"program(%0: f32[30], %1: f32[30], %2: f32[30], %3: f32[30]) { %4 = aten::full(ints[], 3.0, dtype(f32), layout(0), device(0), none) : f32[] %5 = aten::abs(%3) : f32[30] %6 = aten::abs(%2) : f32[30] %7, %8, %9, %10 = aten::_fused_adam([%0], [%1], [%2], [%5], [], [%4], 0.01, 0.9, 0.999, 0.1, 1e-08, false, false, none, none) : f32[30], f32[30], f32[30], f32[30] return %7, %9, %10 }", false},
    {"program(%0: f32[30], %1: f32[30], %2: f32[30], %3: f32[30]) { %4 = aten::full(ints[], 3.0, dtype(f32), layout(0), device(0), none) : f32[] %5 = aten::abs(%3) : f32[30] %6 = aten::abs(%2) : f32[30] %7, %8, %9, %10 = aten::_fused_adamw([%0], [%1], [%2], [%5], [], [%4], 0.01, 0.9, 0.999, 0.1, 1e-08, false, true, none, none) : f32[30], f32[30], f32[30], f32[30] return %7, %9, %10 }", false},
    {"program(%0: f32[30], %1: f32[30], %2: f32[30], %3: f32[30]) { %4 = aten::full(ints[], 3.0, dtype(f32), layout(0), device(0), none) : f32[] %5 = aten::abs(%3) : f32[30] %6 = aten::abs(%2) : f32[30] %7, %8, %9, %10, %11 = aten::_fused_adam([%0], [%1], [%2], [%5], [%6], [%4], 0.01, 0.9, 0.999, 0.0, 1e-08, true, false, none, none) : f32[30], f32[30], f32[30], f32[30], f32[30] return %7, %9, %10, %11 }", false},
    {"program(%0: f32[30], %1: f32[30], %2: f32[30]) { %3, %4, %5 = aten::_fused_sgd([%0], [%1], [%2], 0.1, 0.9, 0.01, 0.2, true, false, false, none, none) : f32[30], f32[30], f32[30] return %3, %5 }", false},
    {"program(%0: f32[30], %1: f32[30]) { %2, %3 = aten::_fused_sgd([%0], [%1], [], 0.1, 0.0, 0.01, 0.0, false, true, false, none, none) : f32[30], f32[30] return %2 }", false},
    {"program(%0: f32[4,6], %1: f32[4], %2: f32[1]) { %3 = aten::gt.Scalar(%0, 0) : b1[4,6] %4 = aten::index_put(%0, [%3], %2, false) : f32[4,6] %5 = aten::gt.Scalar(%1, 0) : b1[4] %6 = aten::index_put(%0, [%5], %2, true) : f32[4,6] return %4, %6 }", true},
    {"program(%0: f32[30,4], %1: f32[2,3]) { %2 = aten::full(ints[2,3], 2, dtype(i64), layout(0), device(0), none) : i64[2,3] %3 = aten::embedding(%0, %2, -1, false, false) : f32[2,3,4] return %3 }", true},
};

void check_decomposition(uint64_t seed, const Sample& sample, Tally& tally) {
  auto parsed = ir::parse(sample.text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string() << sample.text;
  const ir::Graph graph = std::move(parsed).value();
  std::set<std::string> names;  // the sample's operators are refused, what they are made of is taken
  for (const ir::Node& n : graph.nodes)
    if (const ir::OpInfo* op = ir::find_op(n.name, n.overload); op && !op->decomposition.empty()) names.insert(n.name);
  auto refuses = [&](const ir::Graph& g) -> base::Result<std::vector<bool>> {
    std::vector<bool> refused;
    for (const ir::Node& n : g.nodes) refused.push_back(names.contains(n.name));
    return refused;
  };
  auto pieces = decompose(graph, refuses(graph).value(), refuses);
  ASSERT_TRUE(pieces.ok() && pieces.value()) << sample.text;
  ASSERT_EQ(ir::verify(*pieces.value()).to_string(), "OK") << ir::print(*pieces.value());
  tally.programs++;
  auto want = Runner::get()->run(graph, seed, sample.equal), got = Runner::get()->run(*pieces.value(), seed, sample.equal);
  ASSERT_TRUE(want.ok()) << want.status().to_string() << sample.text;
  ASSERT_TRUE(got.ok()) << got.status().to_string() << ir::print(*pieces.value());
  bool near = want.value() == got.value();
  if (!near && !sample.equal) {
    near = true;
    for (size_t i = 0; i < want.value().size() && near; i++) {
      const size_t count = want.value()[i].size() / sizeof(float);
      std::vector<float> a(count), b(count);
      std::memcpy(a.data(), want.value()[i].data(), count * sizeof(float));
      std::memcpy(b.data(), got.value()[i].data(), count * sizeof(float));
      float most = 1;
      for (float x : a) most = std::max(most, std::abs(x));
      // Of an f32 result: 16 roundings of the largest element.
      for (size_t k = 0; k < count; k++)
        near = near && (std::abs(a[k] - b[k]) <= 16 * 1.2e-7f * most || (std::isnan(a[k]) && std::isnan(b[k])));
    }
  }
  if (near) return;
  tally.differences++;
  ADD_FAILURE() << "seed " << seed << "\n" << ir::print(graph) << "----\n" << ir::print(*pieces.value());
}

void report(const char* what, const Tally& t, std::chrono::steady_clock::time_point start) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s: %llu programs (%llu did not run), %llu rewrites compared, %llu differences (%llu in the bits of a NaN or a maximum's zero), %.0f programs/s\n", what,
              static_cast<unsigned long long>(t.programs), static_cast<unsigned long long>(t.refused),
              static_cast<unsigned long long>(t.rewritten), static_cast<unsigned long long>(t.differences),
              static_cast<unsigned long long>(t.excused),
              static_cast<double>(t.programs) / seconds);
  for (const auto& [pass, count] : t.by_pass)
    std::printf("  %s: %llu\n", pass.c_str(), static_cast<unsigned long long>(count));
}

TEST(FuzzPasses, EachPassKeepsTheBitsOfRandomPrograms) {
  if (!Runner::get()) GTEST_SKIP() << "no ts plugin on LAZYT_PLUGIN_PATH";
  Tally tally;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < programs && tally.differences < 5 && !::testing::Test::HasFatalFailure(); i++)
    check_program(first_seed + i, tally);
  report("passes", tally, start);
  EXPECT_LT(tally.refused, tally.programs / 10 + 1) << "programs that do not run test nothing";
}

TEST(FuzzPasses, DecompositionsAreWithinTheirBounds) {
  if (!Runner::get()) GTEST_SKIP() << "no ts plugin on LAZYT_PLUGIN_PATH";
  Tally tally;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < std::max<uint64_t>(programs / 20, 5) && tally.differences < 5 && !::testing::Test::HasFatalFailure(); i++)
    for (const Sample& sample : kSamples) check_decomposition(first_seed + i, sample, tally);
  report("decompositions", tally, start);
}

}  // namespace
}  // namespace lazyt::passes

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--programs")) lazyt::passes::programs = std::strtoull(argv[i + 1], nullptr, 10);
    if (!std::strcmp(argv[i], "--seed")) lazyt::passes::first_seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  return RUN_ALL_TESTS();
}
