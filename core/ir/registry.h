// Registry: what is known of the operators of the opset. Generated from abi/ops.toml.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lazyt::ir {

// How the tensors that an operator combines are cast before it (explicitly, PRG-4).
enum class Promote : uint8_t {
  kNone,     // not at all
  kCommon,   // to their result_type
  kFloat,    // to their result_type; if that is integral or bool, to the default float dtype
  kCompare,  // to their result_type; the result is bool
  kDivMode,  // kFloat if rounding_mode is none, else kCommon
  kInto,     // to the dtype of the first, which is the result's
};

struct OpInfo {
  std::string_view name;      // "aten::add"
  std::string_view overload;  // "Tensor" or empty
  std::string_view schema;    // "(Tensor self, ...) -> Tensor"
  uint32_t number;            // never reused
  uint32_t version;
  Promote promote;
  bool random;                     // PRG-7
  uint32_t arg_count;              // of the schema, defaults included
  int32_t result_count;            // -1: decided by the arguments (Tensor[])
  uint64_t promote_args;           // bit i: argument i takes part in promotion
  uint64_t static_args;            // bit i: the Scalar's value chooses kernel or shape; never a host scalar
  uint64_t moving_args;            // bit i: the number is a constant until it is seen to change
  uint64_t axis_args;              // bit i: argument i counts dims (PRG-5)
  std::string_view decomposition;  // or empty
};

// Null if the opset does not have it. [any thread]
const OpInfo* find_op(std::string_view name, std::string_view overload);
const OpInfo* find_op(uint32_t number);
std::span<const OpInfo> all_ops();  // by number, ascending

// The argument of that name in the schema, or -1. "seed" of lazyt::uniform is 4.
int32_t arg_index(const OpInfo& op, std::string_view arg);

}  // namespace lazyt::ir
