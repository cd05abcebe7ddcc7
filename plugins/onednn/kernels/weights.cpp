#include "weights.h"

#include <new>
#include <utility>

namespace lazyt::onednn {
namespace {

class KeptWeight final : public Kept {
 public:
  KeptWeight(Device& device, int64_t offset, std::shared_ptr<WeightChoice> choice)
      : device_(device), offset_(offset), choice_(std::move(choice)) {}

  std::byte* get(const lazyt_execute_input_t& input, bool is_read, Run& run) const override {
    Buffer& buffer = plugin::from_c(input.buffer);
    WeightChoice& choice = *choice_;
    choice.is_packed = false;
    if (buffer.is_small()) return buffer.small();
    if (!is_read && offset_ == 0 && choice.plain_bytes() == buffer.size && choice.has_packed()) {
      auto make = [&](std::byte* from) -> std::shared_ptr<const Form> {
        try {
          make_room(device_, choice.packed_bytes());
          auto made = choice.make(device_, from);
          run.let_go += buffer.size;
          return made;
        } catch (const plugin::Error& e) {  // a form that there is no memory for is done without
          if (e.code() != LAZYT_CODE_RESOURCE_EXHAUSTED) throw;
          return nullptr;
        } catch (const std::bad_alloc&) {
          return nullptr;
        }
      };
      if (std::shared_ptr<const Form> form = buffer.form_for(run.number, [&](const Form& there) { return choice.is(there); }, make)) {
        choice.is_packed = true;
        std::byte* data = form->data();
        run.held.push_back(std::move(form));
        return data;
      }
    }
    std::shared_ptr<Bytes> bytes = buffer.plain();
    std::byte* data = bytes->data();
    run.held.push_back(std::move(bytes));
    return data;
  }
  uint64_t bytes() const override { return 0; }

 private:
  Device& device_;
  const int64_t offset_;  // bytes
  const std::shared_ptr<WeightChoice> choice_;
};

}  // namespace

void make_room(Device& device, uint64_t bytes) {
  if (bytes >= uint64_t{1} << 20) device.memory->trim();
}

Tensor add_weights(Builder& b, const Tensor& like, uint32_t input, std::shared_ptr<WeightChoice> choice) {
  Tensor out = like;
  const int64_t offset = like.layout.offset * static_cast<int64_t>(like.element());
  out.storage = b.add_kept(std::make_unique<KeptWeight>(b.device(), offset, std::move(choice)), input).storage;
  return out;
}

}  // namespace lazyt::onednn
