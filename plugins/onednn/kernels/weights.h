// Weights that a kernel reads packed: in place of an input's bytes, once more than one run met the same.
#pragma once

#include <cstdint>
#include <memory>

#include "../buffer.h"
#include "../compile.h"

namespace lazyt::onednn {

// How a step can have its weights besides as they lie. Which of the two it reads must change no bit of a result.
class WeightChoice {
 public:
  virtual ~WeightChoice() = default;
  // Whether there is a packed form. Asked late, as most programs of training never do.
  virtual bool has_packed() = 0;
  // Bytes of the weights as they lie without gaps, and packed.
  virtual uint64_t plain_bytes() const = 0;
  virtual uint64_t packed_bytes() const = 0;
  virtual bool is(const Form& form) const = 0;
  virtual std::shared_ptr<const Form> make(Device& device, std::byte* from) const = 0;

  bool is_packed = false;  // What the step of this run reads. Changed by a run, of which there is one at a time (EXE-9).
};

// What lies unused, such as the arena of the run before, makes room for so many bytes that are not made again each step.
void make_room(Device& device, uint64_t bytes);

// The weights as a step reads them: `like`, of an input that nothing writes (steady_input), where `choice` says.
Tensor add_weights(Builder& b, const Tensor& like, uint32_t input, std::shared_ptr<WeightChoice> choice);

}  // namespace lazyt::onednn
