// A typed call is written in the same words as the boxed one, and compared with the same: else a tape that one has made would not know the other.
#include "frontend/encode.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "frontend/expected.h"
#include "frontend/registration.h"
#include "frontend/schema.h"

namespace lazyt::frontend {
namespace {

struct Encode : testing::Test {
  static void SetUpTestSuite() {
    setenv("LAZYT_BACKEND", "null", 1);
    c10::register_privateuse1_backend("lazyt");
    initialize();
  }

  at::Tensor on_device(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
    return at::empty(sizes, at::TensorOptions().device(c10::Device(c10::DeviceType::PrivateUse1, 0)).dtype(type));
  }
};

// The call is found to be the token that has its words, and no other: each word is looked at, and how many there are.
template <class... Args>
void expect_compared(const TorchOp& op, const trace::Call& written, const Args&... args) {
  trace::Recorder recorder;
  trace::Words words(written.signature.begin(), written.signature.end()), roles;
  for (trace::Storage* s : written.operands) {
    const auto first = std::ranges::find(written.operands, s) - written.operands.begin();
    recorder.bind(*s, static_cast<uint32_t>(first));
    roles.push_back(static_cast<uint64_t>(first));
  }
  trace::Call call;
  const auto takes = [&] {
    const auto token = trace::Token::of({.op = &op.op}, words, roles, {});
    call.clear(&op.op);
    Comparer comparer(recorder, *token, call);
    const trace::OpArg* arg = op.op.args.data();
    return (comparer.take(*arg++, args) && ...) && comparer.same();
  };
  const auto is_rare = [](const auto& arg) {
    if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, at::Scalar>) return arg.isBoolean() || arg.isComplex();
    return false;
  };
  const bool rare = (is_rare(args) || ...);  // left to the call that is written
  EXPECT_EQ(takes(), !rare);
  if (!rare) {
    EXPECT_EQ(call.writes.size(), written.writes.size());
    for (size_t i = 0; i < call.writes.size(); i++) EXPECT_EQ(call.operands[call.writes[i]], written.operands[written.writes[i]]);
    ASSERT_EQ(call.scalars.size(), written.scalars.size());
    for (size_t i = 0; i < call.scalars.size(); i++) EXPECT_EQ(0, std::memcmp(&call.scalars[i], &written.scalars[i], sizeof(lazyt_scalar_t)));
  }
  for (trace::Words* of : {&words, &roles}) {
    for (uint64_t& w : *of) {
      w ^= uint64_t{1} << 1;
      EXPECT_FALSE(takes()) << "word " << &w - of->data();
      w ^= uint64_t{1} << 1;
    }
    of->push_back(0);
    EXPECT_FALSE(takes());
    of->pop_back();
    if (of->empty()) continue;
    const uint64_t last = of->back();
    of->pop_back();
    EXPECT_FALSE(takes());
    of->push_back(last);
  }
  EXPECT_EQ(takes(), !rare);
  for (trace::Storage* s : written.operands) recorder.forget(*s);
}

template <class... Args>
void expect_same_words(const char* name, const char* overload, Args... args) {
  SCOPED_TRACE(name);
  const TorchOp& op = torch_op(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
  const TypedArg typed[] = {TypedArg(args)...};
  const torch::jit::Stack boxed = c10::impl::boxArgs<Args...>(args...);
  ASSERT_EQ(std::size(typed), op.op.args.size());
  trace::Call from_typed, from_boxed;
  EXPECT_TRUE(encode(op, std::span<const TypedArg>(typed), from_typed));
  EXPECT_EQ(encode(op, c10::ArrayRef<c10::IValue>(boxed), from_boxed), Encoded::kWhole);
  EXPECT_EQ(from_typed.signature, trace::Words(from_boxed.signature.begin(), from_boxed.signature.end()));
  EXPECT_EQ(from_typed.operands, from_boxed.operands);
  EXPECT_EQ(from_typed.writes, from_boxed.writes);
  EXPECT_EQ(from_typed.device, from_boxed.device);
  ASSERT_EQ(from_typed.scalars.size(), from_boxed.scalars.size());
  for (size_t i = 0; i < from_typed.scalars.size(); i++) {
    EXPECT_EQ(0, std::memcmp(&from_typed.scalars[i], &from_boxed.scalars[i], sizeof(lazyt_scalar_t)));
    EXPECT_EQ(from_typed.scalar_types[i].dtype, from_boxed.scalar_types[i].dtype);
    EXPECT_EQ(from_typed.scalar_types[i].weak, from_boxed.scalar_types[i].weak);
  }
  expect_compared(op, from_typed, args...);
}

TEST_F(Encode, WritesATypedCallAsTheBoxedOne) {
  const at::Tensor a = on_device({4, 4}), b = on_device({4, 4}), half = on_device({2, 0, 3}, at::kHalf);
  const std::vector<at::Tensor> list = {a, b, half};
  using T = const at::Tensor&;
  using N = const at::Scalar&;
  expect_same_words<T>("aten::relu", "", half);
  expect_same_words<T, T>("aten::mul", "Tensor", a.t(), b.slice(0, 1, 3));
  expect_same_words<T, T>("aten::mul", "Tensor", a, at::scalar_tensor(2.5, at::kDouble));
  for (at::Scalar s : {at::Scalar(1), at::Scalar(2), at::Scalar(1.0), at::Scalar(-0.0), at::Scalar(true), at::Scalar(c10::complex<double>(1, 2))}) {
    expect_same_words<T, T, N>("aten::add", "Tensor", a, b, s);
    expect_same_words<T, N>("aten::pow", "Tensor_Scalar", a, s);
    expect_same_words<T, T, T, N, N>("aten::addmm", "", a, a, b, s, 1);
    expect_same_words<at::TensorList, at::TensorList, N>("aten::_foreach_add_", "List", list, list, s);
    expect_same_words<at::TensorList, N>("aten::_foreach_mul_", "Scalar", list, s);
  }
  expect_same_words<T, int64_t, bool>("aten::_softmax", "", a, -1, true);
  expect_same_words<T, T, int64_t, at::ScalarType>("aten::_log_softmax_backward_data", "", a, b, 1, at::kHalf);
  const int64_t dims[] = {0, -1};
  expect_same_words<T, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>>("aten::sum", "dim_IntList", a, at::IntArrayRef(dims), false, std::nullopt);
  expect_same_words<T, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>>("aten::sum", "dim_IntList", a, std::nullopt, true, at::kDouble);
  expect_same_words<T, std::optional<at::ScalarType>>("aten::sum", "", a, at::kLong);
  expect_same_words<const at::ITensorListRef&, int64_t>("aten::cat", "", list, 1);
  for (std::optional<at::Tensor> bias : {std::optional<at::Tensor>(b), std::optional<at::Tensor>()})
    expect_same_words<T, T, const std::optional<at::Tensor>&>("aten::linear", "", a, b, bias);
  expect_same_words<T, T, T, std::array<bool, 3>>("aten::linear_backward", "", at::Tensor(), a, b, {true, false, true});
  expect_same_words<at::TensorList>("aten::_foreach_neg_", "", at::TensorList());
}

TEST_F(Encode, LeavesTensorsOfOtherDevicesToTheBoxedCall) {
  const at::Tensor a = on_device({2});
  const TorchOp& op = torch_op(c10::Dispatcher::singleton().findSchemaOrThrow("aten::mul", "Tensor"));
  trace::Call call;
  const at::Tensor there = at::ones({2});
  const TypedArg mixed[] = {TypedArg(a), TypedArg(there)};
  EXPECT_FALSE(encode(op, std::span<const TypedArg>(mixed), call));
  const at::Tensor noted = at::_conj(on_device({2}, at::kComplexFloat));
  const TypedArg conjugate[] = {TypedArg(noted), TypedArg(a)};
  EXPECT_FALSE(encode(op, std::span<const TypedArg>(conjugate), call));
}

}  // namespace
}  // namespace lazyt::frontend
