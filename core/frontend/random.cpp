#include "frontend/random.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <array>

#include "frontend/storage.h"

namespace lazyt::frontend {
namespace {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::Device device, uint64_t seed = c10::default_rng_seed_val)
      : GeneratorImpl(device, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), state_{seed, 0} {}

  void set_current_seed(uint64_t seed) override { state_ = {seed, 0}; }
  uint64_t current_seed() const override { return state_.seed; }
  void set_offset(uint64_t offset) override { state_.offset = offset; }
  uint64_t get_offset() const override { return state_.offset; }
  uint64_t seed() override {
    uint64_t s = c10::detail::getNonDeterministicRandom();
    set_current_seed(s);
    return s;
  }
  // 16 bytes: seed, offset.
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 16 && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.device().is_cpu(),
                "RNG state must be a torch.ByteTensor of 16 elements on the CPU");
    std::memcpy(&state_, static_cast<const uint8_t*>(state.data()), 16);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor t = at::empty({16}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    std::memcpy(t.mutable_data_ptr(), &state_, 16);
    return t.getIntrusivePtr();
  }
  RandomState take(uint64_t counters) {
    RandomState s = state_;
    state_.offset += counters;
    return s;
  }

 private:
  Generator* clone_impl() const override {
    auto* g = new Generator(device(), state_.seed);
    g->state_ = state_;
    return g;
  }
  RandomState state_;
};

}  // namespace

const at::Generator& default_generator(uint32_t device) {
  static auto* all = [] {
    auto* made = new std::array<at::Generator, trace::kMaxDevices>;
    for (uint32_t i = 0; i < made->size(); i++) (*made)[i] = make_generator(i);
    return made;
  }();
  return (*all)[device];
}

at::Generator make_generator(uint32_t device) { return at::make_generator<Generator>(frontend::device(device)); }

RandomState draw(const std::optional<at::Generator>& generator, uint32_t device, uint64_t counters) {
  at::Generator g = generator && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(g.device().type() == kDeviceType, "Expected a '", kDeviceType, "' device type for generator but found '",
              g.device().type(), "'");
  std::lock_guard lock(g.mutex());
  return static_cast<Generator*>(g.unsafeGetGeneratorImpl())->take(counters);
}

}  // namespace lazyt::frontend
