#include "frontend/dtype.h"

namespace lazyt::frontend {
namespace {

constexpr std::pair<at::ScalarType, base::DType> kTypes[] = {
    {at::kBool, LAZYT_DTYPE_BOOL},
    {at::kByte, LAZYT_DTYPE_UINT8},
    {at::kChar, LAZYT_DTYPE_INT8},
    {at::kUInt16, LAZYT_DTYPE_UINT16},
    {at::kShort, LAZYT_DTYPE_INT16},
    {at::kUInt32, LAZYT_DTYPE_UINT32},
    {at::kInt, LAZYT_DTYPE_INT32},
    {at::kUInt64, LAZYT_DTYPE_UINT64},
    {at::kLong, LAZYT_DTYPE_INT64},
    {at::kHalf, LAZYT_DTYPE_FLOAT16},
    {at::kBFloat16, LAZYT_DTYPE_BFLOAT16},
    {at::kFloat, LAZYT_DTYPE_FLOAT32},
    {at::kDouble, LAZYT_DTYPE_FLOAT64},
    {at::kComplexHalf, LAZYT_DTYPE_COMPLEX32},
    {at::kComplexFloat, LAZYT_DTYPE_COMPLEX64},
    {at::kComplexDouble, LAZYT_DTYPE_COMPLEX128},
    {at::kFloat8_e4m3fn, LAZYT_DTYPE_FLOAT8_E4M3FN},
    {at::kFloat8_e5m2, LAZYT_DTYPE_FLOAT8_E5M2},
    {at::kFloat8_e4m3fnuz, LAZYT_DTYPE_FLOAT8_E4M3FNUZ},
    {at::kFloat8_e5m2fnuz, LAZYT_DTYPE_FLOAT8_E5M2FNUZ},
    {at::kFloat8_e8m0fnu, LAZYT_DTYPE_FLOAT8_E8M0FNU},
    {at::kFloat4_e2m1fn_x2, LAZYT_DTYPE_FLOAT4_E2M1FN_X2},
};

}  // namespace

DTypeTables::DTypeTables() {
  for (auto& t : of_lazyt) t = at::ScalarType::Undefined;
  for (auto [torch, lazyt] : kTypes) of_torch[static_cast<int>(torch)] = lazyt, of_lazyt[lazyt] = torch;
}
const DTypeTables dtype_tables;

base::Meta meta_of(const at::Tensor& t) {
  return {from_torch(t.scalar_type()), t.sizes().vec(), t.strides().vec()};
}

}  // namespace lazyt::frontend
