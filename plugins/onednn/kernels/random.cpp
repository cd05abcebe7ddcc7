// Random tensors from the ABI's Philox stream (PRG-7); lazyt::dropout is a pointwise instruction (fused.cpp).
#include <bit>
#include <cmath>
#include <numbers>

#include "../ops.h"
#include "team.h"
#include "vm.h"

namespace lazyt::onednn {
namespace {

constexpr int64_t kRun = 256;  // elements made at a time

Refusal accept_float_result(const ProgramView& program, const lazyt_node_t& node) {
  if (Refusal r = accept_known(program, node); r.reason != LAZYT_REASON_NONE) return r;
  const lazyt_dtype_t d = program.values()[node.results].dtype;
  return d == LAZYT_DTYPE_FLOAT32 || d == LAZYT_DTYPE_FLOAT64 ? Refusal{} : refuse_dtype(d);
}

double unit(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }
float unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
uint64_t wide(const uint32_t* words, int64_t i) {
  return words[2 * i] | static_cast<uint64_t>(words[2 * i + 1]) << 32;
}

// Calls body(first element, count, words) for runs of elements, `per_element` words each.
template <class Body>
void draw(const Frame& frame, const Number& seed, const Number& offset, int64_t count, int per_element,
          Body&& body) {
  const auto s = static_cast<uint64_t>(frame.as_int(seed)), o = static_cast<uint64_t>(frame.as_int(offset));
  const int64_t runs = (count + kRun - 1) / kRun;
  for_each(runs > 32 ? frame.threads : 1, runs, [&](int64_t r) {
    alignas(64) uint32_t words[2 * kRun];
    const int64_t first = r * kRun;
    vm::table().philox(s, o + static_cast<uint64_t>(first * per_element / 4), words,
                       static_cast<int>(kRun) * per_element);
    body(first, std::min(kRun, count - first), static_cast<const uint32_t*>(words));
  });
}

void uniform(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor out = b.make_dense(node.results);
  const Number from = b.number_of(args[2]), to = b.number_of(args[3]), seed = b.number_of(args[4]),
               offset = b.number_of(args[5]);
  const int64_t count = out.count();
  b.add("uniform", {}, {out.storage}, [=](const Frame& f) {
    const double low = f.as_double(from), high = f.as_double(to);
    if (out.dtype == LAZYT_DTYPE_FLOAT64) {
      auto* o = f.at<double>(out);
      return draw(f, seed, offset, count, 2, [&](int64_t first, int64_t n, const uint32_t* words) {
        for (int64_t i = 0; i < n; ++i) {
          const double scaled = unit(wide(words, i)) * (high - low);
          o[first + i] = scaled + low;
        }
      });
    }
    auto* o = f.at<float>(out);
    const float base = static_cast<float>(low), range = static_cast<float>(high) - base;
    draw(f, seed, offset, count, 1, [&](int64_t first, int64_t n, const uint32_t* words) {
      for (int64_t i = 0; i < n; ++i) {
        const float scaled = unit(words[i]) * range;
        o[first + i] = scaled + base;
      }
    });
  });
}

void normal(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor out = b.make_dense(node.results);
  const Number mean = b.number_of(args[2]), std = b.number_of(args[3]), seed = b.number_of(args[4]),
               offset = b.number_of(args[5]);
  const int64_t count = out.count();
  b.add("normal", {}, {out.storage}, [=](const Frame& f) {
    const double m = f.as_double(mean), s = f.as_double(std);
    if (out.dtype == LAZYT_DTYPE_FLOAT64) {
      return draw(f, seed, offset, count, 2, [&](int64_t first, int64_t n, const uint32_t* w) {
        double* o = f.at<double>(out) + first;
        for (int64_t i = 0; i < n; i += 2) {
          const double u = static_cast<double>((wide(w, i) >> 11) + 1) * 0x1p-53;
          const double r = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * unit(wide(w, i + 1));
          o[i] = r * std::cos(angle) * s + m;
          if (i + 1 < n) o[i + 1] = r * std::sin(angle) * s + m;
        }
      });
    }
    draw(f, seed, offset, count, 1, [&](int64_t first, int64_t n, const uint32_t* w) {
      static_assert(kRun <= vm::kBlock);
      vm::table().normal_f32(f.at<float>(out) + first, w, static_cast<int>(n), static_cast<float>(m), static_cast<float>(s));
    });
  });
}

void bernoulli(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor p = b.dense(Builder::value_of(args[0]));
  const Tensor out = b.make_dense(node.results);
  const Number seed = b.number_of(args[1]), offset = b.number_of(args[2]);
  const int64_t count = out.count();
  b.add("bernoulli", {p.storage}, {out.storage}, [=](const Frame& f) {
    draw(f, seed, offset, count, 1, [&](int64_t first, int64_t n, const uint32_t* w) {
      for (int64_t i = 0; i < n; ++i) {
        if (out.dtype == LAZYT_DTYPE_FLOAT64)
          f.at<double>(out)[first + i] = unit(w[i]) < f.at<double>(p)[first + i];
        else
          f.at<float>(out)[first + i] = unit(w[i]) < f.at<float>(p)[first + i];
      }
    });
  });
}

void randint(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor out = b.make_dense(node.results);
  const Number low = b.number_of(args[2]), high = b.number_of(args[3]), seed = b.number_of(args[4]),
               offset = b.number_of(args[5]);
  const int64_t count = out.count();
  const bool two = out.dtype == LAZYT_DTYPE_INT64 || out.dtype == LAZYT_DTYPE_FLOAT64;
  b.add("randint", {}, {out.storage}, [=](const Frame& f) {
    const auto base = static_cast<uint64_t>(f.as_int(low));
    const uint64_t range = static_cast<uint64_t>(f.as_int(high)) - base;
    // x % range without a division: the quotient by the rounded inverse is at most 1 too small.
    const uint64_t inverse = range ? UINT64_MAX / range : 0;
    auto within = [=](uint64_t x) {
      const uint64_t rest = x - static_cast<uint64_t>((static_cast<unsigned __int128>(x) * inverse) >> 64) * range;
      return range && rest >= range ? rest - range : rest;
    };
    draw(f, seed, offset, count, two ? 2 : 1, [&](int64_t first, int64_t n, const uint32_t* w) {
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t x = two ? wide(w, i) : w[i];
        const auto v = static_cast<int64_t>(base + within(x));
        const int64_t at = first + i;
        switch (out.dtype) {
          case LAZYT_DTYPE_FLOAT32:
            f.at<float>(out)[at] = static_cast<float>(v);
            break;
          case LAZYT_DTYPE_FLOAT64:
            f.at<double>(out)[at] = static_cast<double>(v);
            break;
          case LAZYT_DTYPE_BOOL:
            f.at<uint8_t>(out)[at] = v != 0;
            break;
          case LAZYT_DTYPE_INT64:
            f.at<int64_t>(out)[at] = v;
            break;
          case LAZYT_DTYPE_INT32:
            f.at<int32_t>(out)[at] = static_cast<int32_t>(v);
            break;
          case LAZYT_DTYPE_INT16:
            f.at<int16_t>(out)[at] = static_cast<int16_t>(v);
            break;
          default:
            f.at<int8_t>(out)[at] = static_cast<int8_t>(v);
        }
      }
    });
  });
}

Refusal accept_randint(const ProgramView& program, const lazyt_node_t& node) {
  if (Refusal r = accept_known(program, node); r.reason != LAZYT_REASON_NONE) return r;
  const lazyt_dtype_t d = program.values()[node.results].dtype;
  return d == LAZYT_DTYPE_FLOAT16 || d == LAZYT_DTYPE_BFLOAT16 ? refuse_dtype(d) : Refusal{};
}

}  // namespace

void register_random(Operators& all) {
  using enum toolkit::Role;
  all.add(LAZYT_OP_LAZYT_UNIFORM, {kOpaque, accept_float_result, uniform});
  all.add(LAZYT_OP_LAZYT_NORMAL, {kOpaque, accept_float_result, normal});
  all.add(LAZYT_OP_LAZYT_BERNOULLI, {kOpaque, accept_float_result, bernoulli});
  all.add(LAZYT_OP_LAZYT_RANDINT, {kOpaque, accept_randint, randint});
}

}  // namespace lazyt::onednn
