// Reductions of generated kernels: every kind and type, rows and columns, of lengths around what decides how
// they are cut.
#include <cmath>
#include <cstdint>
#include <numeric>

#include "../../plugins/cuda/compile.h"
#include "fixture.h"
#include "ir/program.h"
#include "ir/text.h"

namespace lazyt::cuda {
namespace {

struct ExecutableRelease {
  void operator()(lazyt_executable_t* e) const { kExecutableTable.release(e); }
};

using Shape = std::vector<int64_t>;

std::string dims(const Shape& shape) {
  std::string out;
  for (int64_t d : shape) out += (out.empty() ? "" : ",") + std::to_string(d);
  return "[" + out + "]";
}

class Reductions : public CudaTest {
 protected:
  // The outputs of a program of one input, as bytes.
  std::vector<std::vector<std::byte>> run_text(const std::string& text, const void* input, uint64_t bytes) {
    auto graph = ir::parse(text);
    EXPECT_TRUE(graph.ok()) << graph.status().to_string() << text;
    const auto program = ir::Program::from_graph(graph.value());
    lazyt_compile_args_t compile_args{.struct_size = sizeof compile_args, .program = program->block()};
    lazyt_executable_t* handle = nullptr;
    EXPECT_EQ(text_of(kExecutableTable.compile(device_, &compile_args, &handle)), "") << text;
    const std::unique_ptr<lazyt_executable_t, ExecutableRelease> executable(handle);
    steps_ = plugin::from_c(handle).steps.size();
    lazyt_host_bytes_t from{.struct_size = sizeof from, .data = input, .size_bytes = bytes};
    lazyt_buffer_t* in = nullptr;
    EXPECT_EQ(text_of(kBufferTable.from_host(device_, &from, &in)), "");
    const BufferPtr keep(in);
    lazyt_execute_input_t inputs[1] = {{.buffer = in}};
    std::vector<BufferPtr> buffers;
    std::vector<lazyt_buffer_t*> outputs;
    for (const auto& output : plugin::from_c(handle).outputs) {
      buffers.push_back(alloc(device_, output.size_bytes));
      outputs.push_back(buffers.back().get());
    }
    lazyt_execute_args_t args{.struct_size = sizeof args,
                              .inputs = inputs,
                              .input_count = 1,
                              .input_stride = sizeof inputs[0],
                              .outputs = outputs.data(),
                              .output_count = outputs.size()};
    lazyt_event_t* event = nullptr;
    EXPECT_EQ(text_of(execute(handle, &args, &event)), "");
    const EventPtr done(event);
    std::vector<std::vector<std::byte>> out;
    for (size_t i = 0; i < buffers.size(); ++i) {
      out.emplace_back(plugin::from_c(handle).outputs[i].size_bytes);
      lazyt_event_t* read = nullptr;
      EXPECT_EQ(text_of(kBufferTable.to_host(buffers[i].get(), 0, out[i].data(), out[i].size(), {&event, 1},
                                             &read)),
                "");
      EXPECT_EQ(wait(EventPtr(read)), "");
    }
    return out;
  }
  template <class T>
  static std::vector<T> as(const std::vector<std::byte>& bytes) {
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }

  // Sum, largest, smallest, any and all of x over `dim`, and of floats mean and norm.
  template <class T>
  void check(const Shape& shape, size_t dim, const char* dtype) {
    SCOPED_TRACE(dims(shape) + " over " + std::to_string(dim) + " of " + dtype);
    const auto count =
        static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
    std::vector<T> x(count);
    for (size_t i = 0; i < count; ++i)
      x[i] = static_cast<T>(static_cast<int64_t>(i * 2654435761u % 1009) - 504) /
             T(sizeof(T) == 8 && !std::is_floating_point_v<T> ? 1 : 8);
    Shape kept = shape;
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(dim));
    const std::string in = std::string(dtype) + dims(shape), out = dims(kept), d = std::to_string(dim);
    constexpr bool kFloats = std::is_floating_point_v<T>;
    const std::string t = dtype, total = kFloats ? t : "i64";
    std::string text = "program(%0: " + in + ") {\n  %1 = aten::sum.dim_IntList(%0, ints[" + d +
                       "], 0, none) : " + total + out + "\n  %2 = aten::amax(%0, ints[" + d + "], 0) : " + t +
                       out + "\n  %3 = aten::amin(%0, ints[" + d + "], 0) : " + t + out +
                       "\n  %4 = aten::any.dim(%0, " + d + ", 0) : b1" + out + "\n  %5 = aten::all.dim(%0, " +
                       d + ", 0) : b1" + out + "\n";
    if (kFloats)
      text += "  %6 = aten::mean.dim(%0, ints[" + d + "], 0, none) : " + t + out +
              "\n  %7 = aten::linalg_vector_norm(%0, 2, ints[" + d + "], 0, none) : " + t + out + "\n";
    text += std::string("  return %1, %2, %3, %4, %5") + (kFloats ? ", %6, %7" : "") + "\n}\n";
    const auto results = run_text(text, x.data(), count * sizeof(T));
    const auto n = static_cast<size_t>(shape[dim]);
    size_t inner = 1;
    for (size_t k = dim + 1; k < shape.size(); ++k) inner *= static_cast<size_t>(shape[k]);
    using Total = std::conditional_t<kFloats, T, int64_t>;
    const auto sum = as<Total>(results[0]);
    const auto largest = as<T>(results[1]), smallest = as<T>(results[2]);
    const auto any = as<uint8_t>(results[3]), all = as<uint8_t>(results[4]);
    for (size_t k = 0; k < sum.size() && !HasFailure(); ++k) {
      const size_t first = k / inner * n * inner + k % inner;
      long double s = 0, squares = 0, magnitudes = 0;
      T high = x[first], low = x[first];
      bool some = false, every = true;
      for (size_t j = 0; j < n; ++j) {
        const T v = x[first + j * inner];
        s += v, squares += static_cast<long double>(v) * v,
            magnitudes += std::abs(static_cast<long double>(v));
        high = std::max(high, v), low = std::min(low, v), some |= v != T(0), every &= v != T(0);
      }
      if constexpr (kFloats) {
        // Totals are f64, rounded once to the result.
        const long double unit = std::ldexp(1.0L, -std::numeric_limits<T>::digits),
                          loose =
                              std::ldexp(static_cast<long double>(n), -53) * magnitudes + unit * std::abs(s);
        EXPECT_LE(std::abs(sum[k] - s), loose) << k;
        EXPECT_LE(std::abs(as<T>(results[5])[k] - s / n), loose / n + unit * std::abs(s / n)) << k;
        EXPECT_LE(std::abs(as<T>(results[6])[k] - std::sqrt(squares)), 4 * unit * std::sqrt(squares)) << k;
      } else {
        EXPECT_EQ(sum[k], static_cast<int64_t>(s)) << k;
      }
      EXPECT_EQ(largest[k], high) << k;
      EXPECT_EQ(smallest[k], low) << k;
      EXPECT_EQ(any[k], some) << k;
      EXPECT_EQ(all[k], every) << k;
    }
  }

  size_t steps_ = 0;
};

TEST_F(Reductions, RowsOfEveryLength) {
  for (int64_t n : {1, 2, 3, 7, 31, 32, 33, 127, 128, 1023, 1024, 1025}) check<float>({5, n}, 1, "f32");
}
TEST_F(Reductions, ColumnsOfEveryLength) {
  for (int64_t n : {1, 2, 5, 33, 257}) check<float>({n, 3}, 0, "f32"), check<float>({n, 67}, 0, "f32");
}
TEST_F(Reductions, BetweenKeptDims) {
  check<float>({3, 40, 5}, 1, "f32");
  check<float>({2, 9, 128}, 1, "f32");
  check<double>({4, 33, 7}, 1, "f64");
}
TEST_F(Reductions, FewLongRowsAndColumnsAreCutAndCombined) {
  check<float>({1, 100003}, 1, "f32");
  check<float>({50001, 2}, 0, "f32");
  check<int64_t>({2, 30000}, 1, "i64");
  const Floats x(100003, 1);
  const auto out =
      run_text("program(%0: f32[100003]) {\n  %1 = aten::sum(%0, none) : f32[]\n  return %1\n}\n", x.data(),
               x.size() * 4);
  EXPECT_EQ(steps_, 1u) << "the last block adds the parts up";
  EXPECT_EQ(as<float>(out[0])[0], 100003);
}
TEST_F(Reductions, OfIntegersAreExact) {
  check<int32_t>({6, 300}, 1, "i32"), check<int64_t>({300, 6}, 0, "i64"), check<int16_t>({4, 70}, 1, "i16");
}
TEST_F(Reductions, OfF64) { check<double>({3, 1000}, 1, "f64"), check<double>({1000, 3}, 0, "f64"); }

TEST_F(Reductions, OverNothingAreTheirStart) {
  const auto out = run_text(
      "program(%0: f32[3,0]) {\n  %1 = aten::sum.dim_IntList(%0, ints[1], 0, none) : f32[3]\n  %2 = "
      "aten::prod.dim_int(%0, 1, 0, none) : f32[3]\n"
      "  %3 = aten::any.dim(%0, 1, 0) : b1[3]\n  %4 = aten::all.dim(%0, 1, 0) : b1[3]\n  return %1, %2, %3, "
      "%4\n}\n",
      nullptr, 0);
  EXPECT_EQ(as<float>(out[0]), (Floats{0, 0, 0}));
  EXPECT_EQ(as<float>(out[1]), (Floats{1, 1, 1}));
  EXPECT_EQ(as<uint8_t>(out[2]), (std::vector<uint8_t>{0, 0, 0}));
  EXPECT_EQ(as<uint8_t>(out[3]), (std::vector<uint8_t>{1, 1, 1}));
}

TEST_F(Reductions, ANaNStaysTheLargestAndTheSmallest) {
  Floats x(2048, 1);
  x[1500] = NAN;
  const auto out = run_text(
      "program(%0: f32[2,1024]) {\n  %1 = aten::amax(%0, ints[1], 0) : f32[2]\n  %2 = aten::amin(%0, "
      "ints[0], 0) : f32[1024]\n  return %1, %2\n}\n",
      x.data(), x.size() * 4);
  EXPECT_EQ(as<float>(out[0])[0], 1);
  EXPECT_TRUE(std::isnan(as<float>(out[0])[1]));
  EXPECT_TRUE(std::isnan(as<float>(out[1])[1500 - 1024]));
  EXPECT_EQ(as<float>(out[1])[0], 1);
}

TEST_F(Reductions, GiveTheSameBitsInEveryRun) {
  Floats x(200000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761u % 1000003) * 1e-3f;
  const char* text = "program(%0: f32[200000]) {\n  %1 = aten::sum(%0, none) : f32[]\n  return %1\n}\n";
  const auto first = run_text(text, x.data(), x.size() * 4);
  setenv("LAZYT_SHIM_ORDER", "backwards", 1);
  const auto second = run_text(text, x.data(), x.size() * 4);
  unsetenv("LAZYT_SHIM_ORDER");
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace lazyt::cuda
