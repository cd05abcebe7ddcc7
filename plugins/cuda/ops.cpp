#include "ops.h"

#include "codegen/kernel.h"
#include "custom.h"
#include "lazyt/toolkit/moves.hpp"
#include "lazyt/toolkit/recurrent.hpp"

namespace lazyt::cuda {
namespace {

lazyt_status_t* query(lazyt_device_t* device, const lazyt_program_t* block, lazyt_answer_t* answers, uint64_t count,
                      uint64_t stride) {
  return plugin::guard([&] {
    plugin::from_c(device);
    operators().query(block, answers, count, stride);
  });
}

}  // namespace

const Operators& operators() {
  static const auto& all = *new Operators([] {
    Operators made("cuda", find_custom);
    toolkit::add_common<FusedKernel>(made);
    toolkit::add_moves(made);
    toolkit::add_recurrent<FusedKernel>(made);
    register_random(made);
    register_index(made);
    register_pool(made);
    register_loss(made);
    register_matmul(made);
    register_conv(made);
    register_norm(made);
    register_softmax(made);
    register_rows(made);
    register_attention(made);
    register_assertion(made);
    return made;
  }());
  return all;
}

const lazyt_plugin_capability_t kCapabilityTable = {
    .struct_size = sizeof(lazyt_plugin_capability_t),
    .next = nullptr,
    .query = query,
};

}  // namespace lazyt::cuda
