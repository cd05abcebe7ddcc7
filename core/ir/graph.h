// Graph: a program while it is being made and rewritten. The finished form is Program (program.h).
//
// The records mirror the block of lazyt/program.h: values, and nodes in execution order whose args
// stand in the order of the operator's schema. Value and node ids are indices and stay valid while
// a graph only grows; passes that remove things end with compact(). Nothing here recurses: the
// depth of a program is data. Not thread-safe; a graph belongs to one thread at a time.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/shape.h"
#include "lazyt/program.h"

namespace lazyt::ir {

using base::DType;
using base::Meta;

using ValueId = uint32_t;
using NodeId = uint32_t;
inline constexpr uint32_t kNone = LAZYT_NONE;

enum class ValueKind : uint8_t { kInput, kHostScalar, kConstant, kResult };

struct Value {
  Meta meta;  // strides bind for inputs and outputs; elsewhere a hint (PRG-2)
  ValueKind kind = ValueKind::kResult;
  bool weak = false;           // PRG-6; host scalars only
  bool may_overwrite = false;  // set by the donation pass
  NodeId producer = kNone;     // kResult only
};

// One argument of a node. What a schema calls Scalar, int, float or bool may hold a ValueId of a
// host scalar instead (kind kValue).
struct Arg {
  lazyt_arg_kind_t kind = LAZYT_ARG_NONE;
  union {
    int64_t i = 0;  // INT, BOOL, DTYPE, MEMORY_FORMAT, LAYOUT, DEVICE
    double d;       // DOUBLE
    ValueId value;  // VALUE
  };
  std::vector<Arg> list;         // LIST: values, scalars, nones
  std::vector<int64_t> ints;     // INTS, BOOLS
  std::vector<double> doubles;   // DOUBLES; COMPLEX: {re, im}
  std::string string;            // STRING

  static Arg none() { return {}; }
  static Arg of_value(ValueId v);
  static Arg of_int(int64_t v, lazyt_arg_kind_t kind = LAZYT_ARG_INT);
  static Arg of_double(double v);
  static Arg of_bool(bool v);
  static Arg of_ints(std::vector<int64_t> v, lazyt_arg_kind_t kind = LAZYT_ARG_INTS);
  static Arg of_doubles(std::vector<double> v);
  static Arg of_complex(std::complex<double> v);
  static Arg of_list(std::vector<Arg> v);
  static Arg of_string(std::string v);
  friend bool operator==(const Arg&, const Arg&);
};

// Calls f(ValueId&) for each value an argument names, those in lists included.
template <class A, class F>
void for_each_value(A& arg, F&& f) {
  if (arg.kind == LAZYT_ARG_VALUE) f(arg.value);
  for (auto& e : arg.list)
    if (e.kind == LAZYT_ARG_VALUE) f(e.value);
}

struct SourceLine {
  std::string file;
  std::string module;
  uint32_t line = 0;
};

struct Node {
  std::string name;      // "aten::add"
  std::string overload;  // "Tensor" or empty
  std::vector<Arg> args;
  ValueId first_result = kNone;  // results are consecutive
  uint32_t result_count = 0;
  std::shared_ptr<const SourceLine> source;  // may be null
};

struct Output {
  ValueId value;
  uint32_t donor = kNone;  // index into inputs (PRG-8)
};

struct Input {
  ValueId value;
  bool may_donate = false;
};

struct Constant {
  ValueId value;
  std::vector<uint8_t> bytes;  // laid out by the value's strides
};

class Graph {
 public:
  ValueId add_input(Meta meta);
  ValueId add_host_scalar(DType dtype, bool weak);
  ValueId add_constant(Meta meta, std::vector<uint8_t> bytes);
  // Appends a node; returns its id. Its results are first_result, first_result + 1, ...
  NodeId add_node(std::string name, std::string overload, std::vector<Arg> args, std::vector<Meta> results,
                  std::shared_ptr<const SourceLine> source = nullptr);
  // The same for one result; returns that value.
  ValueId add_op(std::string name, std::string overload, std::vector<Arg> args, Meta result,
                 std::shared_ptr<const SourceLine> source = nullptr);

  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Input> inputs;  // tensors and host scalars, in execute's order
  std::vector<Output> outputs;
  std::vector<Constant> constants;

  // Removes nodes for which keep[node] is false and the values nobody can name any more (results of
  // removed nodes; constants without readers), renumbering the rest. Inputs always stay: they are
  // the program's signature.
  // REQUIRES: no kept node and no output reads a removed value.
  void compact(const std::vector<bool>& keep);
};

}  // namespace lazyt::ir
