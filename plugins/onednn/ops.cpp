#include "ops.h"

#include "kernels/custom.h"
#include "kernels/fused.h"
#include "lazyt/toolkit/moves.hpp"
#include "lazyt/toolkit/recurrent.hpp"

namespace lazyt::onednn {
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
    Operators made("onednn", find_custom);
    toolkit::add_common<FusedKernel>(made);
    toolkit::add_moves(made);
    toolkit::add_recurrent<FusedKernel>(made);
    for (auto f : {register_random, register_matmul, register_grouped, register_conv, register_pool, register_norm,
                   register_softmax, register_running, register_sort, register_loss, register_index, register_triangle,
                   register_attention, register_grid, register_assertion})
      f(made);
    return made;
  }());
  return all;
}

Refusal accept_f32(const ProgramView& program, const lazyt_node_t& node) {
  return toolkit::accept_if(program, node, [](lazyt_dtype_t d) {
    const toolkit::Type t = toolkit::type_of(d);
    return t != toolkit::Type::kCount && (!toolkit::is_float(t) || d == LAZYT_DTYPE_FLOAT32);
  });
}

const lazyt_plugin_capability_t kCapabilityTable = {
    .struct_size = sizeof(lazyt_plugin_capability_t),
    .next = nullptr,
    .query = query,
};

}  // namespace lazyt::onednn
