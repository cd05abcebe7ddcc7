#include "frontend/elements.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <ATen/Dispatch.h>
#include <ATen/ops/result_type.h>

namespace lazyt::frontend {
namespace {

struct Rule {
  std::string_view name, overload, argument;
};
// Without the underscore of those that write.
constexpr std::array kRules = {
    Rule{"aten::fill", "Scalar", "value"},     Rule{"aten::masked_fill", "Scalar", "value"},
    Rule{"aten::index_fill", "int_Scalar", "value"}, Rule{"aten::scatter", "value", "value"},
    Rule{"aten::clamp", "", "min"},            Rule{"aten::clamp", "", "max"},
    Rule{"aten::clamp_min", "", "min"},        Rule{"aten::clamp_max", "", "max"},
    Rule{"aten::constant_pad_nd", "", "value"},
};

constexpr std::array kDispatched = {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kBool, at::kHalf, at::kBFloat16,
                                    at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

bool promotes(const TorchOp& op) { return std::string_view(op.op.name).starts_with("aten::clamp"); }

// A pad fills its whole result first, unless it only cuts; what is wrong with its widths is not for here to say.
bool fills_a_pad(const at::Tensor& self, c10::ArrayRef<c10::IValue> args) {
  const std::vector<c10::SymInt> widths = args[1].toSymIntVector();
  if (widths.size() % 2 != 0 || widths.size() / 2 > static_cast<size_t>(self.dim())) return false;
  bool widens = false;
  for (int64_t d = self.dim(); d-- > 0;) {
    int64_t size = self.size(d);
    for (size_t i = 2 * static_cast<size_t>(self.dim() - 1 - d), end = i + 2; i < end && i < widths.size(); i++) {
      const int64_t width = widths[i].guard_int(__FILE__, __LINE__);
      widens |= width > 0, size += width;
    }
    if (size < 0) return false;
  }
  return widens;
}

}  // namespace

uint64_t element_numbers(const c10::FunctionSchema& schema) {
  std::string_view name = schema.name();
  if (name.ends_with('_')) name.remove_suffix(1);
  uint64_t mask = 0;
  for (const Rule& rule : kRules)
    for (size_t i = 0; i < schema.arguments().size() && i < 64; i++)
      if (rule.name == name && rule.overload == schema.overload_name() && rule.argument == schema.arguments()[i].name())
        mask |= uint64_t{1} << i;
  return mask;
}

void check_elements(const TorchOp& op, c10::ArrayRef<c10::IValue> args) {
  const at::Tensor& self = args[0].toTensor();
  const std::string_view name = op.op.name;
  if (name == "aten::constant_pad_nd" ? !fills_a_pad(self, args) : self.numel() == 0) return;
  if (name.starts_with("aten::scatter") && args[2].toTensor().numel() == 0) return;
  // x[i] = 1e5 makes a tensor of the number first, on a device by fill_: eager's, made on the CPU, lets f16 and bf16 become inf.
  if (self.dim() == 0 && at::isReducedFloatingType(self.scalar_type())) return;
  for (size_t i = 1; i < args.size(); i++) {
    if (!(op.element_numbers >> i & 1) || !args[i].isScalar()) continue;
    const at::Scalar number = args[i].toScalar();
    if (number.isComplex() && name.starts_with("aten::index_fill")) continue;  // has words of its own
    const at::ScalarType dtype = promotes(op) ? at::result_type(self, number) : self.scalar_type();
    if (std::ranges::find(kDispatched, dtype) == kDispatched.end()) continue;
    AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(at::kBool, at::kHalf, at::kBFloat16, dtype, "elements", [&] { (void)number.to<scalar_t>(); });
  }
}

}  // namespace lazyt::frontend
