#include "ir/text.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

namespace lazyt::ir {

namespace {

constexpr uint64_t kQuietNan = 0x7ff8000000000000;

class Printer {
 public:
  explicit Printer(const Graph& graph) : g_(graph) {}

  std::string print() {
    out_ = "program(";
    for (size_t i = 0; i < g_.inputs.size(); i++) {
      const Input& in = g_.inputs[i];
      const Value& v = g_.values[in.value];
      put("{}%{}: ", i ? ", " : "", in.value);
      if (v.kind == ValueKind::kHostScalar)
        put("host {}{}", v.weak ? "weak " : "", base::dtype_name(v.meta.dtype));
      else
        out_ += base::to_string(v.meta);
      if (in.may_donate) out_ += " donate";
      if (v.may_overwrite) out_ += " overwrite";
    }
    out_ += ") {\n";
    for (const Constant& c : g_.constants) {
      put("  const %{}: ", c.value);
      type(c.value);
      out_ += " = hex(";
      for (uint8_t b : c.bytes) put("{:02x}", b);
      out_ += ")\n";
    }
    for (const Node& n : g_.nodes) node(n);
    out_ += "  return";
    for (size_t i = 0; i < g_.outputs.size(); i++) {
      put("{} %{}", i ? "," : "", g_.outputs[i].value);
      if (g_.outputs[i].donor != kNone) put(" <- %{}", g_.inputs[g_.outputs[i].donor].value);
    }
    out_ += "\n}\n";
    return std::move(out_);
  }

 private:
  template <class... T>
  void put(fmt::format_string<T...> format, T&&... items) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<T>(items)...);
  }

  void type(ValueId v) {
    out_ += base::to_string(g_.values[v].meta);
    if (g_.values[v].may_overwrite) out_ += " overwrite";
  }

  void quoted(std::string_view s) {
    out_ += '"';
    for (char c : s) {
      if (c == '"' || c == '\\')
        put("\\{}", c);
      else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        put("\\x{:02x}", static_cast<unsigned char>(c));
      else
        out_ += c;
    }
    out_ += '"';
  }

  // A file or module: bare where that reads back.
  void path(std::string_view s) {
    bool bare = !s.empty() && std::all_of(s.begin(), s.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             std::string_view("_./+-").find(c) != std::string_view::npos;
    });
    bare ? void(out_ += s) : quoted(s);
  }

  void number(double d) {
    uint64_t bits = std::bit_cast<uint64_t>(d);
    if (std::isnan(d)) return bits == kQuietNan ? void(out_ += "nan") : put("nan({:#x})", bits);
    std::string s = fmt::format("{}", d);  // the shortest text that reads back
    if (s.find_first_not_of("-0123456789") == std::string::npos) s += ".0";
    out_ += s;
  }

  template <class List, class F>
  void list(std::string_view open, const List& items, std::string_view separator, F&& one) {
    out_ += open;
    for (size_t i = 0; i < items.size(); i++) {
      if (i) out_ += separator;
      one(items[i]);
    }
    out_ += ']';
  }

  void arg(const Arg& a) {
    switch (a.kind) {
      case LAZYT_ARG_NONE:
        out_ += "none";
        break;
      case LAZYT_ARG_VALUE:
        put("%{}", a.value);
        break;
      case LAZYT_ARG_INT:
        put("{}", a.i);
        break;
      case LAZYT_ARG_DOUBLE:
        number(a.d);
        break;
      case LAZYT_ARG_BOOL:
        out_ += a.i ? "true" : "false";
        break;
      case LAZYT_ARG_COMPLEX:
        out_ += "complex(";
        number(a.doubles[0]);
        out_ += ", ";
        number(a.doubles[1]);
        out_ += ')';
        break;
      case LAZYT_ARG_STRING:
        quoted(a.string);
        break;
      case LAZYT_ARG_DTYPE:
        put("dtype({})", base::dtype_name(static_cast<DType>(a.i)));
        break;
      case LAZYT_ARG_LIST:
        list("[", a.list, ", ", [&](const Arg& e) { arg(e); });  // lists hold no lists
        break;
      case LAZYT_ARG_INTS:
        list("ints[", a.ints, ",", [&](int64_t i) { put("{}", i); });
        break;
      case LAZYT_ARG_DOUBLES:
        list("doubles[", a.doubles, ",", [&](double d) { number(d); });
        break;
      case LAZYT_ARG_BOOLS:
        list("bools[", a.ints, ",", [&](int64_t b) { out_ += b ? "true" : "false"; });
        break;
      case LAZYT_ARG_MEMORY_FORMAT:
        put("memory_format({})", a.i);
        break;
      case LAZYT_ARG_LAYOUT:
        put("layout({})", a.i);
        break;
      case LAZYT_ARG_DEVICE:
        put("device({})", a.i);
        break;
    }
  }

  void node(const Node& n) {
    out_ += "  ";
    for (uint32_t r = 0; r < n.result_count; r++) put("{}%{}", r ? ", " : "", n.first_result + r);
    if (n.result_count) out_ += " = ";
    put("{}{}{}(", n.name, n.overload.empty() ? "" : ".", n.overload);
    for (size_t i = 0; i < n.args.size(); i++) {
      if (i) out_ += ", ";
      arg(n.args[i]);
    }
    out_ += ')';
    for (uint32_t r = 0; r < n.result_count; r++) {
      out_ += r ? ", " : " : ";
      type(n.first_result + r);
    }
    if (n.source) {
      out_ += "  # ";
      path(n.source->file);
      put(":{}", n.source->line);
      if (!n.source->module.empty()) {
        out_ += " in ";
        path(n.source->module);
      }
    }
    out_ += '\n';
  }

  const Graph& g_;
  std::string out_;
};

}  // namespace

std::string print(const Graph& graph) { return Printer(graph).print(); }

}  // namespace lazyt::ir
