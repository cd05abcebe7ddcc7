// Why bits stay: views of constants become constants with the view's own strides over the same bytes; casts
// are folded only when every element is exact in the new dtype (and no NaN); a view of a filled tensor
// becomes a filled tensor where it lies the same, or where all its readers give the same bits for any
// layout (is_exact_pointwise).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "passes/layout.h"
#include "passes/pass.h"

namespace lazyt::passes {

namespace {

using base::Dims;
using base::DType;
using base::Meta;
using ir::Arg;
using ir::kNone;
using ir::Node;
using ir::ValueId;

// A view of a constant: how it lies, and its first element.
struct View {
  Meta meta;
  int64_t offset = 0;
};

template <class T>
double load(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof(v));
  return static_cast<double>(v);
}

// One element as a double; nothing if the dtype is not handled or a double cannot hold it.
std::optional<double> read(DType dtype, const uint8_t* p) {
  switch (dtype) {
    case LAZYT_DTYPE_BOOL:
    case LAZYT_DTYPE_UINT8:
      return load<uint8_t>(p);
    case LAZYT_DTYPE_INT8:
      return load<int8_t>(p);
    case LAZYT_DTYPE_INT16:
      return load<int16_t>(p);
    case LAZYT_DTYPE_INT32:
      return load<int32_t>(p);
    case LAZYT_DTYPE_INT64: {
      int64_t v;
      std::memcpy(&v, p, sizeof(v));
      if (v > (int64_t{1} << 53) || v < -(int64_t{1} << 53)) return std::nullopt;
      return static_cast<double>(v);
    }
    case LAZYT_DTYPE_FLOAT32:
      return load<float>(p);
    case LAZYT_DTYPE_FLOAT64:
      return load<double>(p);
    default:
      return std::nullopt;
  }
}

template <class T>
bool store(double v, uint8_t* p) {
  if constexpr (std::is_integral_v<T>) {
    // -0.0 has no integer; the upper bound is exclusive, as 2^63 is no int64.
    if (std::signbit(v) && v == 0) return false;
    if (v < static_cast<double>(std::numeric_limits<T>::min()) ||
        v >= std::ldexp(1.0, std::numeric_limits<T>::digits) || v != std::trunc(v))
      return false;
  }
  T t = static_cast<T>(v);
  if (static_cast<double>(t) != v) return false;
  std::memcpy(p, &t, sizeof(t));
  return true;
}

// False if dtype cannot hold v exactly.
bool write(DType dtype, double v, uint8_t* p) {
  if (std::isnan(v)) return false;
  switch (dtype) {
    case LAZYT_DTYPE_BOOL:
      return (v == 0 || v == 1) && store<uint8_t>(v, p);
    case LAZYT_DTYPE_UINT8:
      return store<uint8_t>(v, p);
    case LAZYT_DTYPE_INT8:
      return store<int8_t>(v, p);
    case LAZYT_DTYPE_INT16:
      return store<int16_t>(v, p);
    case LAZYT_DTYPE_INT32:
      return store<int32_t>(v, p);
    case LAZYT_DTYPE_INT64:
      return store<int64_t>(v, p);
    case LAZYT_DTYPE_FLOAT32:
      return store<float>(v, p);
    case LAZYT_DTYPE_FLOAT64:
      return store<double>(v, p);
    default:
      return false;
  }
}

bool is_fill(const Node& n) {
  return n.overload.empty() && (n.name == "aten::full" || n.name == "aten::zeros" || n.name == "aten::ones");
}

class Folding {
 public:
  explicit Folding(ir::Graph& graph) : g_(graph), constant_of_(graph.values.size(), kNone) {
    for (uint32_t c = 0; c < g_.constants.size(); c++) constant_of_[g_.constants[c].value] = c;
    layout_ = layouts(g_);
    is_output_.assign(g_.values.size(), false);
    for (const ir::Output& out : g_.outputs) is_output_[out.value] = true;
    find_readers();
  }

  void run() {
    std::vector<bool> keep(g_.nodes.size(), true);
    for (ir::NodeId n = 0; n < g_.nodes.size(); n++) {
      Node& node = g_.nodes[n];
      for (Arg& arg : node.args)
        ir::for_each_value(arg, [&](ValueId& v) {
          if (v < folded_.size() && folded_[v] != kNone) v = folded_[v];
        });
      if (node.result_count != 1 || node.args.empty() || node.args[0].kind != LAZYT_ARG_VALUE) continue;
      const ValueId x = node.args[0].value;
      if (fill(node, x)) continue;
      if (g_.values[x].kind != ir::ValueKind::kConstant || is_output_[node.first_result]) continue;
      if (fold(node, x)) keep[n] = false;
    }
    g_.compact(keep);
  }

 private:
  void find_readers() {
    any_layout_.assign(g_.values.size(), true);
    for (const Node& node : g_.nodes) {
      bool exact = is_exact_pointwise(node);
      // Beside another operand of another order, the order of the result could change.
      for (const Arg& arg : node.args)
        ir::for_each_value(arg, [&](const ValueId& v) {
          const ir::Value& value = g_.values[v];
          const bool expanded =
              value.kind == ir::ValueKind::kResult && g_.nodes[value.producer].name == "aten::expand";
          exact = exact && (layout_[v] == Layout::kPlain || expanded);
        });
      if (exact) continue;
      for (const Arg& arg : node.args)
        ir::for_each_value(arg, [&](const ValueId& v) { any_layout_[v] = false; });
    }
  }

  // A filled tensor seen through a view or a cast is a filled tensor.
  bool fill(Node& node, ValueId x) {
    const ir::Value& value = g_.values[x];
    if (value.kind != ir::ValueKind::kResult || !is_fill(g_.nodes[value.producer])) return false;
    const Node& filled = g_.nodes[value.producer];
    const Meta& to = g_.values[node.first_result].meta;
    std::vector<Arg> args = filled.args;
    args[0] = Arg::of_ints(to.dims);
    const bool reshapes = (node.name == "aten::reshape" || node.name == "aten::view") && node.overload.empty();
    if (node.name == "aten::_to_copy") {
      if (!cast_fill(node, filled, value.meta.dtype, to.dtype, args)) return false;
    } else if (!reshapes && !(node.name == "aten::expand" && any_layout_[node.first_result])) {
      return false;
    }
    node.name = filled.name;
    node.overload = filled.overload;
    node.args = std::move(args);
    return true;
  }

  bool cast_fill(const Node& node, const Node& filled, DType from, DType to, std::vector<Arg>& args) const {
    const Arg& format = node.args.back();
    if (format.kind != LAZYT_ARG_NONE && !(format.kind == LAZYT_ARG_MEMORY_FORMAT && format.i <= 1)) return false;
    const size_t dtype = filled.name == "aten::full" ? 2 : 1;
    if (dtype == 2) {
      const Arg& number = filled.args[1];
      uint8_t bytes[8];
      double v;
      if (number.kind == LAZYT_ARG_INT && std::abs(number.i) < (int64_t{1} << 53))
        v = static_cast<double>(number.i);
      else if (number.kind == LAZYT_ARG_DOUBLE)
        v = number.d;
      else
        return false;
      if (!write(from, v, bytes) || !write(to, v, bytes)) return false;
    } else if (uint8_t bytes[8]; !write(from, 1, bytes) || !write(to, 1, bytes)) {
      return false;
    }
    args[dtype] = Arg::of_int(to, LAZYT_ARG_DTYPE);
    return true;
  }

  bool fold(const Node& node, ValueId x) {
    const ir::Constant& constant = g_.constants[constant_of_[x]];
    const Meta to = g_.values[node.first_result].meta;
    std::vector<uint8_t> bytes;
    Meta meta;
    if (std::optional<View> view = view_of(node, g_.values[x].meta, to)) {
      meta = std::move(view->meta);
      const uint64_t first = static_cast<uint64_t>(view->offset) * lazyt_dtype_size(meta.dtype);
      const uint64_t size = meta.span_bytes();
      if (size > 0) bytes.assign(constant.bytes.begin() + first, constant.bytes.begin() + first + size);
    } else if (node.name == "aten::_to_copy" && node.args.back().kind == LAZYT_ARG_NONE) {
      const Meta& from = g_.values[x].meta;
      if (!from.is_contiguous() || from.dims != to.dims) return false;
      meta = Meta::contiguous(to.dtype, to.dims);
      bytes.resize(meta.span_bytes());
      for (int64_t i = 0, count = meta.numel(); i < count; i++) {
        auto v = read(from.dtype, constant.bytes.data() + static_cast<uint64_t>(i) * lazyt_dtype_size(from.dtype));
        if (!v || !write(to.dtype, *v, bytes.data() + static_cast<uint64_t>(i) * lazyt_dtype_size(to.dtype)))
          return false;
      }
    } else {
      return false;
    }
    const ValueId result = g_.add_constant(std::move(meta), std::move(bytes));
    constant_of_.resize(g_.values.size(), kNone);
    constant_of_[result] = static_cast<uint32_t>(g_.constants.size() - 1);
    folded_.resize(g_.values.size(), kNone);
    folded_[node.first_result] = result;
    is_output_.resize(g_.values.size(), false);
    return true;
  }

  // The geometry that PyTorch's view has, if it needs no copy.
  static std::optional<View> view_of(const Node& n, const Meta& from, const Meta& to) {
    View view{from};
    const size_t rank = from.dims.size();
    if ((n.name == "aten::reshape" || n.name == "aten::view") && n.overload.empty()) {
      if (!from.is_contiguous()) return std::nullopt;
      view.meta = Meta::contiguous(from.dtype, to.dims);
      return view;
    }
    if (n.name == "aten::permute" && n.args[1].kind == LAZYT_ARG_INTS && n.args[1].ints.size() == rank) {
      for (size_t i = 0; i < rank; i++) {
        const auto d = static_cast<size_t>(n.args[1].ints[i]);
        if (d >= rank) return std::nullopt;
        view.meta.dims[i] = from.dims[d];
        view.meta.strides[i] = from.strides[d];
      }
      return view;
    }
    if (n.name == "aten::slice" && n.args.size() == 5 && n.args[1].kind == LAZYT_ARG_INT) {
      const auto d = static_cast<size_t>(n.args[1].i);
      const Arg &start = n.args[2], &step = n.args[4];
      if (d >= rank || step.kind != LAZYT_ARG_INT || step.i < 1) return std::nullopt;
      if (start.kind != LAZYT_ARG_INT || start.i < 0) return std::nullopt;
      view.offset = std::min(start.i, from.dims[d]) * from.strides[d];
      view.meta.dims[d] = to.dims[d];
      view.meta.strides[d] *= step.i;
      if (view.meta.numel() == 0) view.offset = 0;
      return view;
    }
    if (n.name == "aten::expand" && to.dims.size() >= rank) {
      view.meta = {from.dtype, to.dims, Dims(to.dims.size(), 0)};
      const size_t shift = to.dims.size() - rank;
      for (size_t i = 0; i < rank; i++)
        if (from.dims[i] == to.dims[shift + i]) view.meta.strides[shift + i] = from.strides[i];
      return view;
    }
    return std::nullopt;
  }

  ir::Graph& g_;
  std::vector<uint32_t> constant_of_;  // by value: index into constants
  std::vector<Layout> layout_;         // by value of the graph as it came
  std::vector<bool> is_output_, any_layout_;
  std::vector<ValueId> folded_;  // by value: the constant that readers take instead
};

}  // namespace

base::Status constant_folding(ir::Graph& graph) {
  Folding(graph).run();
  return {};
}

}  // namespace lazyt::passes
