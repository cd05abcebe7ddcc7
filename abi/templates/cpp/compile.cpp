// compile.cpp - which nodes are taken, and what is kept of a program made of them.
#include <algorithm>

#include "plugin.h"

namespace acme_backend {
namespace {

// [region query]
void query(Device& device, const ProgramView& program, lazyt_answer_t* answers, uint64_t count, uint64_t stride) {
  device.details.clear();
  device.details.reserve(count);  // answers borrow the texts until the next query
  for (uint64_t i = 0; i < count; ++i) {
    auto& answer = *reinterpret_cast<lazyt_answer_t*>(reinterpret_cast<char*>(answers) + i * stride);  // C-3
    const lazyt_node_t& node = program.nodes()[i];
    const Refusal refused = refusal(program, node);
    answer.kind = refused.why ? LAZYT_ANSWER_REFUSE : LAZYT_ANSWER_TAKE;
    answer.reason = refused.reason;
    if (refused.why) answer.detail = to_c(device.details.emplace_back(program.full_name(node) + ": " + refused.why));
  }
}
// [end]

Memory copy_of(const lazyt_program_t* block) {
  Memory copy = allocate(block->total_size);
  std::memcpy(copy.get(), block, block->total_size);
  return copy;
}

}  // namespace

Refusal refusal(const ProgramView& program, const lazyt_node_t& node) {
  const Operator* op = find(program, node);
  return op ? op->refuse(program, node) : Refusal{LAZYT_REASON_UNKNOWN_OPERATOR, "acme does not have this operator"};
}

// The host's block is ours during compile only (EXE-1).
Executable::Executable(Device& d, const lazyt_program_t* p)
    : device(d), block(copy_of(p)), program(reinterpret_cast<const lazyt_program_t*>(block.get())) {
  for (const lazyt_node_t& node : program.nodes()) {
    if (const Refusal refused = refusal(program, node); refused.why)
      throw Error(LAZYT_CODE_UNIMPLEMENTED, program.full_name(node) + ": " + refused.why);
    operators.push_back(find(program, node));
  }
  for (const lazyt_constant_t& constant : program.constants())
    if (constant.file.size) throw Error(LAZYT_CODE_UNIMPLEMENTED, "acme: constants in files are not read");
  for (const lazyt_value_t& value : program.values()) {
    places.push_back(scratch);
    const auto bytes = static_cast<uint64_t>(lazyt_value_numel(p, &value)) * lazyt_dtype_size(value.dtype);
    scratch += (std::max<uint64_t>(bytes, sizeof(Scalar)) + kAlignment - 1) / kAlignment * kAlignment;
  }
  device.count(static_cast<int64_t>(p->total_size));
}

Executable::~Executable() { device.count(-static_cast<int64_t>(program.block()->total_size)); }

const lazyt_plugin_capability_t capability_table = {
    .struct_size = sizeof(lazyt_plugin_capability_t),
    .query = [](lazyt_device_t* device, const lazyt_program_t* program, lazyt_answer_t* answers, uint64_t count,
                uint64_t stride) {
      return guard([&] { query(from_c(device), ProgramView(program), answers, count, stride); });
    },
};

const lazyt_plugin_executable_t executable_table = {
    .struct_size = sizeof(lazyt_plugin_executable_t),
    .compile = [](lazyt_device_t* device, const lazyt_compile_args_t* args, lazyt_executable_t** out) {
      return guard([&] { *out = to_handle<lazyt_executable_t>(new Executable(from_c(device), args->program)); });
    },
    .output_meta = [](lazyt_executable_t* handle, uint64_t index, lazyt_output_meta_t* out) {
      return guard([&] {
        const ProgramView& p = from_c(handle).program;
        require(index < p.outputs().size(), "acme: no such output");
        out->size_bytes = p.span_bytes(p.values()[p.outputs()[index].value]);
        out->alignment = kAlignment;
        out->memory_space = out->opaque = 0;
      });
    },
    .memory = [](lazyt_executable_t* handle, lazyt_executable_memory_t* out) {
      return guard([&] {
        out->code_bytes = from_c(handle).program.block()->total_size;
        out->scratch_bytes = from_c(handle).scratch;
      });
    },
    .execute = execute,
    .release = [](lazyt_executable_t* handle) { delete from_c_or_null(handle); },
};

}  // namespace acme_backend
