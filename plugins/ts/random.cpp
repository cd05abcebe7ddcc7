#include "random.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace lazyt::ts {
namespace {

// Counters made at a time: enough lanes for the compiler to fill vector registers.
constexpr int kCounters = 16;
constexpr int kWords = 4 * kCounters;
// Blocks below which another thread costs more than it saves.
constexpr int64_t kGrain = 64;

struct Stream {
  uint64_t seed;
  uint64_t offset;
};

// One copy for each vector width, chosen by the dynamic linker: the wheel runs on any x86-64.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LAZYT_TS_VECTORISED __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define LAZYT_TS_VECTORISED
#endif

// Words 4 * j .. 4 * j + 3 of out belong to counter + j. The rounds are unrolled, so that the loop over
// counters is the innermost one and its state stays in vector registers.
LAZYT_TS_VECTORISED void philox_block(uint64_t seed, uint64_t counter, uint64_t counter_high, uint32_t* out) {
  uint32_t lanes[4][kCounters];
  const uint32_t high0 = static_cast<uint32_t>(counter_high), high1 = static_cast<uint32_t>(counter_high >> 32);
  for (int j = 0; j < kCounters; ++j) {
    const uint64_t c = counter + static_cast<uint64_t>(j);
    uint32_t c0 = static_cast<uint32_t>(c), c1 = static_cast<uint32_t>(c >> 32), c2 = high0, c3 = high1;
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = static_cast<uint64_t>(c0) * 0xD2511F53u;
      const uint64_t p1 = static_cast<uint64_t>(c2) * 0xCD9E8D57u;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(p1);
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    lanes[0][j] = c0;
    lanes[1][j] = c1;
    lanes[2][j] = c2;
    lanes[3][j] = c3;
  }
  for (int j = 0; j < kCounters; ++j) {
    for (int lane = 0; lane < 4; ++lane) out[4 * j + lane] = lanes[lane][j];
  }
}

// Dropout of one run, for the dtype that matters. Without a branch: which lanes are kept is noise, which
// no predictor learns.
LAZYT_TS_VECTORISED void drop_floats(const float* __restrict__ in, const uint32_t* __restrict__ words,
                                     uint32_t threshold, float scale, int64_t count, float* __restrict__ out,
                                     uint8_t* __restrict__ kept) {
  uint32_t keep[kWords];
  for (int64_t i = 0; i < count; ++i) keep[i] = (words[i] >> 8) >= threshold ? 1 : 0;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(in[i] * scale) & (0u - keep[i]));
  }
  for (int64_t i = 0; i < count; ++i) kept[i] = static_cast<uint8_t>(keep[i]);
}

// Calls body(first element, count, words) for runs of elements, `per_element` words each, in parallel.
// words always holds kWords, those past the end included.
template <class Body>
void for_each_run(int64_t numel, int per_element, Stream stream, Body body) {
  const int64_t run = kWords / per_element;
  at::parallel_for(0, (numel + run - 1) / run, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[kWords];
    for (int64_t block = begin; block < end; ++block) {
      philox_block(stream.seed, stream.offset + static_cast<uint64_t>(block) * kCounters, 0, words);
      body(block * run, std::min(run, numel - block * run), static_cast<const uint32_t*>(words));
    }
  });
}

uint64_t wide(const uint32_t* words, int64_t i) {
  return words[2 * i] | static_cast<uint64_t>(words[2 * i + 1]) << 32;
}

float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
double unit(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }
float unit_open(uint32_t word) { return static_cast<float>((word >> 8) + 1) * 0x1p-24f; }
double unit_open(uint64_t word) { return static_cast<double>((word >> 11) + 1) * 0x1p-53; }

// Calls body with a value of the C++ type of a floating dtype.
template <class Body>
void for_floating(at::ScalarType dtype, const char* name, Body body) {
  switch (dtype) {
    case at::kFloat: return body(float{});
    case at::kDouble: return body(double{});
    case at::kHalf: return body(at::Half{});
    case at::kBFloat16: return body(at::BFloat16{});
    default: TORCH_CHECK(false, name, ": dtype ", dtype, " is not a floating point type");
  }
}

template <class Body>
void for_number(at::ScalarType dtype, const char* name, Body body) {
  switch (dtype) {
    case at::kByte: return body(uint8_t{});
    case at::kChar: return body(int8_t{});
    case at::kShort: return body(int16_t{});
    case at::kInt: return body(int32_t{});
    case at::kLong: return body(int64_t{});
    case at::kBool: return body(bool{});
    default: return for_floating(dtype, name, body);
  }
}

template <class T>
constexpr int words_per_element() {
  return std::is_same_v<T, double> || std::is_same_v<T, int64_t> ? 2 : 1;
}

// The type in which a dtype is computed.
template <class T>
using Math = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
auto word_of(const uint32_t* words, int64_t i) {
  if constexpr (words_per_element<T>() == 2) {
    return wide(words, i);
  } else {
    return words[i];
  }
}

Stream pop_stream(torch::jit::Stack& stack) {
  uint64_t offset = static_cast<uint64_t>(torch::jit::pop(stack).toInt());
  uint64_t seed = static_cast<uint64_t>(torch::jit::pop(stack).toInt());
  return {seed, offset};
}

at::Tensor pop_empty(torch::jit::Stack& stack) {
  auto dtype = torch::jit::pop(stack).toScalarType();
  auto size = torch::jit::pop(stack).toIntVector();
  return at::empty(size, at::TensorOptions(dtype));
}

}  // namespace

std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter_low, uint64_t counter_high) {
  uint32_t words[kWords];
  philox_block(seed, counter_low, counter_high, words);
  return {words[0], words[1], words[2], words[3]};
}

void random_dropout(torch::jit::Stack& stack) {
  Stream stream = pop_stream(stack);
  double p = torch::jit::pop(stack).toDouble();
  at::Tensor input = torch::jit::pop(stack).toTensor().contiguous();
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  at::Tensor output = at::empty(input.sizes(), input.options());
  at::Tensor mask = at::empty(input.sizes(), input.options().dtype(at::kBool));
  // u >= p for u = k * 2^-24 is a comparison of integers.
  const uint32_t threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(static_cast<float>(p)) * 0x1p24));
  auto* kept = static_cast<uint8_t*>(mask.mutable_data_ptr());  // bool: one byte, 0 or 1
  for_floating(input.scalar_type(), "lazyt::dropout", [&](auto tag) {
    using T = decltype(tag);
    const T* in = input.const_data_ptr<T>();
    T* out = output.mutable_data_ptr<T>();
    const Math<T> scale = p < 1 ? Math<T>(1) / (Math<T>(1) - static_cast<Math<T>>(p)) : Math<T>(0);
    for_each_run(input.numel(), 1, stream, [=](int64_t first, int64_t count, const uint32_t* words) {
      if constexpr (std::is_same_v<T, float>) {
        drop_floats(in + first, words, threshold, scale, count, out + first, kept + first);
        return;
      }
      for (int64_t i = 0; i < count; ++i) {
        bool keep = (words[i] >> 8) >= threshold;
        kept[first + i] = keep;
        out[first + i] = static_cast<T>(keep ? static_cast<Math<T>>(in[first + i]) * scale : Math<T>(0));
      }
    });
  });
  torch::jit::push(stack, std::move(output), std::move(mask));
}

void random_uniform(torch::jit::Stack& stack) {
  Stream stream = pop_stream(stack);
  double to = torch::jit::pop(stack).toDouble();
  double from = torch::jit::pop(stack).toDouble();
  at::Tensor output = pop_empty(stack);
  for_floating(output.scalar_type(), "lazyt::uniform", [&](auto tag) {
    using T = decltype(tag);
    T* out = output.mutable_data_ptr<T>();
    const auto low = static_cast<Math<T>>(from), span = static_cast<Math<T>>(to) - low;
    for_each_run(output.numel(), words_per_element<T>(), stream,
                 [=](int64_t first, int64_t count, const uint32_t* words) {
                   for (int64_t i = 0; i < count; ++i) {
                     out[first + i] = static_cast<T>(unit(word_of<T>(words, i)) * span + low);
                   }
                 });
  });
  torch::jit::push(stack, std::move(output));
}

void random_normal(torch::jit::Stack& stack) {
  Stream stream = pop_stream(stack);
  double std_dev = torch::jit::pop(stack).toDouble();
  double mean = torch::jit::pop(stack).toDouble();
  at::Tensor output = pop_empty(stack);
  for_floating(output.scalar_type(), "lazyt::normal", [&](auto tag) {
    using T = decltype(tag);
    using M = Math<T>;
    T* out = output.mutable_data_ptr<T>();
    const auto m = static_cast<M>(mean), s = static_cast<M>(std_dev);
    for_each_run(output.numel(), words_per_element<T>(), stream,
                 [=](int64_t first, int64_t count, const uint32_t* words) {
                   for (int64_t i = 0; i < count; i += 2) {
                     const M radius = std::sqrt(M(-2) * std::log(unit_open(word_of<T>(words, i))));
                     const M angle = M(2) * std::numbers::pi_v<M> * unit(word_of<T>(words, i + 1));
                     out[first + i] = static_cast<T>(radius * std::cos(angle) * s + m);
                     if (i + 1 < count) out[first + i + 1] = static_cast<T>(radius * std::sin(angle) * s + m);
                   }
                 });
  });
  torch::jit::push(stack, std::move(output));
}

void random_bernoulli(torch::jit::Stack& stack) {
  Stream stream = pop_stream(stack);
  at::Tensor p = torch::jit::pop(stack).toTensor().contiguous();
  at::Tensor output = at::empty(p.sizes(), p.options());
  for_floating(p.scalar_type(), "lazyt::bernoulli", [&](auto tag) {
    using T = decltype(tag);
    const T* chance = p.const_data_ptr<T>();
    T* out = output.mutable_data_ptr<T>();
    for_each_run(p.numel(), 1, stream, [=](int64_t first, int64_t count, const uint32_t* words) {
      for (int64_t i = 0; i < count; ++i) {
        out[first + i] = static_cast<T>(unit(words[i]) < static_cast<Math<T>>(chance[first + i]) ? 1.f : 0.f);
      }
    });
  });
  torch::jit::push(stack, std::move(output));
}

void random_randint(torch::jit::Stack& stack) {
  Stream stream = pop_stream(stack);
  int64_t high = torch::jit::pop(stack).toInt();
  int64_t low = torch::jit::pop(stack).toInt();
  at::Tensor output = pop_empty(stack);
  TORCH_CHECK(low < high, "random_ expects 'from' to be less than 'to', but got from=", low, " >= to=", high);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  for_number(output.scalar_type(), "lazyt::randint", [&](auto tag) {
    using T = decltype(tag);
    T* out = output.mutable_data_ptr<T>();
    for_each_run(output.numel(), words_per_element<T>(), stream,
                 [=](int64_t first, int64_t count, const uint32_t* words) {
                   for (int64_t i = 0; i < count; ++i) {
                     uint64_t x = word_of<T>(words, i);
                     out[first + i] = static_cast<T>(static_cast<int64_t>(static_cast<uint64_t>(low) + x % range));
                   }
                 });
  });
  torch::jit::push(stack, std::move(output));
}

}  // namespace lazyt::ts
