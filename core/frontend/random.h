// Random numbers: seed and offset of the device's generator; the numbers follow from them alone (PRG-7).
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace lazyt::frontend {

struct RandomState {
  uint64_t seed;
  uint64_t offset;  // counters of Philox consumed so far
};

// Takes `counters` of them from the generator (the device's default one if not given): a random operator with n
// elements takes ceil(n / 2), enough for elements of two words each.
RandomState draw(const std::optional<at::Generator>& generator, uint32_t device, uint64_t counters);

const at::Generator& default_generator(uint32_t device);
at::Generator make_generator(uint32_t device);

}  // namespace lazyt::frontend
