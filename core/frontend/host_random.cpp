#include "frontend/host_random.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "frontend/dtype.h"

namespace lazyt::frontend {
namespace {

std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t p0 = uint64_t{c[0]} * 0xD2511F53u, p1 = uint64_t{c[2]} * 0xCD9E8D57u;
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1,
         static_cast<uint32_t>(p0)};
  }
  return c;
}

// A number in [0, 1) of an element's word, or in (0, 1].
float unit(uint32_t word, uint32_t open = 0) { return static_cast<float>((word >> 8) + open) * 0x1p-24f; }
double unit(uint64_t word, uint64_t open = 0) { return static_cast<double>((word >> 11) + open) * 0x1p-53; }

class Draw {
 public:
  Draw(const ir::Node& node, const std::vector<at::Tensor>& values) : node_(node), values_(values) {
    offset_ = static_cast<uint64_t>(integer(node.args.size() - 1));
    seed_ = static_cast<uint64_t>(integer(node.args.size() - 2));
  }

  std::vector<at::Tensor> run() const {
    if (node_.name == "lazyt::uniform") return {uniform()};
    if (node_.name == "lazyt::normal") return {normal()};
    if (node_.name == "lazyt::bernoulli") return {bernoulli()};
    if (node_.name == "lazyt::randint") return {randint()};
    if (node_.name == "lazyt::dropout") return dropout();
    TORCH_CHECK(false, "lazyt: no host implementation of ", node_.name, "; the backend must take it");
  }

 private:
  const at::Tensor& tensor(size_t i) const { return values_[node_.args[i].value]; }
  int64_t integer(size_t i) const { return node_.args[i].kind == LAZYT_ARG_VALUE ? tensor(i).item<int64_t>() : node_.args[i].i; }
  double number(size_t i) const {
    const ir::Arg& a = node_.args[i];
    return a.kind == LAZYT_ARG_VALUE ? tensor(i).item<double>() : a.kind == LAZYT_ARG_INT ? static_cast<double>(a.i) : a.d;
  }
  // The first two arguments where there is no operand.
  const std::vector<int64_t>& size() const { return node_.args[0].ints; }
  at::ScalarType dtype() const { return to_torch(static_cast<base::DType>(node_.args[1].i)); }

  // body(i, word, next) for each even element i: Word is uint32_t, or uint64_t where an element takes two.
  template <class Word, class Body>
  void pairs(int64_t count, const Body& body) const {
    constexpr int64_t kEach = 16 / sizeof(Word);
    at::parallel_for(0, (count + kEach - 1) / kEach, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; q++) {
        const auto words = std::bit_cast<std::array<Word, kEach>>(philox(seed_, offset_ + static_cast<uint64_t>(q)));
        for (int64_t k = 0; k < kEach && q * kEach + k < count; k += 2) body(q * kEach + k, words[k], words[k + 1]);
      }
    });
  }
  template <class Word, class Body>
  void each(int64_t count, const Body& body) const {
    pairs<Word>(count, [&](int64_t i, Word word, Word next) {
      body(i, word);
      if (i + 1 < count) body(i + 1, next);
    });
  }

  // fill(elements, count, a word): in double, or in float and rounded once.
  template <class Fill>
  at::Tensor floats(const Fill& fill) const {
    const bool wide = dtype() == at::kDouble;
    at::Tensor out = at::empty(size(), at::TensorOptions(wide ? at::kDouble : at::kFloat));
    if (wide) fill(out.mutable_data_ptr<double>(), out.numel(), uint64_t{});
    else fill(out.mutable_data_ptr<float>(), out.numel(), uint32_t{});
    return out.to(dtype());
  }
  at::Tensor uniform() const {
    return floats([&]<class T, class Word>(T* out, int64_t count, Word) {
      const T low = static_cast<T>(number(2)), span = static_cast<T>(number(3)) - low;
      each<Word>(count, [=](int64_t i, Word word) {
        const T scaled = unit(word) * span;
        out[i] = scaled + low;
      });
    });
  }
  at::Tensor normal() const {
    return floats([&]<class T, class Word>(T* out, int64_t count, Word) {
      const T mean = static_cast<T>(number(2)), deviation = static_cast<T>(number(3));
      pairs<Word>(count, [=](int64_t i, Word word, Word next) {
        const T radius = std::sqrt(T(-2) * std::log(unit(word, 1))), angle = 2 * std::numbers::pi_v<T> * unit(next);
        out[i] = radius * std::cos(angle) * deviation + mean;
        if (i + 1 < count) out[i + 1] = radius * std::sin(angle) * deviation + mean;
      });
    });
  }
  // One word an element whatever the dtype. A comparison of f32 and f64 is in f64, one of f16 in f32.
  at::Tensor units(at::IntArrayRef size) const {
    at::Tensor u = at::empty(size, at::TensorOptions(at::kFloat));
    each<uint32_t>(u.numel(), [out = u.mutable_data_ptr<float>()](int64_t i, uint32_t word) { out[i] = unit(word); });
    return u;
  }
  at::Tensor bernoulli() const { return units(tensor(0).sizes()).lt(tensor(0)).to(tensor(0).scalar_type()); }
  std::vector<at::Tensor> dropout() const {
    const at::Tensor& x = tensor(0);
    const bool wide = x.scalar_type() == at::kDouble;
    const at::Tensor kept = units(x.sizes()).ge(static_cast<float>(number(1)));
    const double rest = wide ? 1 - number(1) : static_cast<double>(1.0f - static_cast<float>(number(1)));
    const double scale = rest <= 0 ? 0 : wide ? 1 / rest : static_cast<double>(1.0f / static_cast<float>(rest));
    return {at::where(kept, x.to(wide ? at::kDouble : at::kFloat).mul(scale), 0.0).to(x.scalar_type()), kept};
  }
  at::Tensor randint() const {
    const auto low = static_cast<uint64_t>(integer(2)), range = static_cast<uint64_t>(integer(3)) - low;
    at::Tensor out = at::empty(size(), at::TensorOptions(at::kLong));
    const auto put = [=, to = out.mutable_data_ptr<int64_t>()](int64_t i, uint64_t word) {
      to[i] = static_cast<int64_t>(low + (range ? word % range : word));
    };
    if (dtype() == at::kDouble || dtype() == at::kLong) each<uint64_t>(out.numel(), put);
    else each<uint32_t>(out.numel(), put);
    return out.to(dtype());
  }

  const ir::Node& node_;
  const std::vector<at::Tensor>& values_;
  uint64_t seed_, offset_;
};

}  // namespace

std::vector<at::Tensor> draw_on_host(const ir::Node& node, const std::vector<at::Tensor>& values) { return Draw(node, values).run(); }

}  // namespace lazyt::frontend
