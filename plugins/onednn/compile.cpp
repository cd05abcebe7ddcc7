#include "compile.h"

#include <cstring>

#include "kernels/bytes.h"
#include "kernels/fused.h"
#include "kernels/pointwise.h"
#include "ops.h"

namespace lazyt::onednn {
namespace {

using plugin::from_c;
using plugin::guard;
using plugin::to_handle;

lazyt_status_t* compile(lazyt_device_t* device, const lazyt_compile_args_t* args, lazyt_executable_t** out_executable) {
  return guard([&] {
    const ProgramView program(args->program);
    Device& d = from_c(device);
    // Recording it left some 2 KiB a node of lists that grew; what compiling takes would else come on top.
    d.given_by_host += program.nodes().size() * 2048;
    give_back_of_host(d);
    auto executable = std::make_unique<Executable>(d);
    Builder(*executable, program).run();
    executable->constant_memory = Memory(executable->device, executable->constants.size());
    if (!executable->constants.empty())
      std::memcpy(executable->constant_memory.data(), executable->constants.data(), executable->constants.size());
    std::vector<std::byte>().swap(executable->constants);
    *out_executable = to_handle<lazyt_executable_t>(executable.release());
  });
}

lazyt_status_t* output_meta(lazyt_executable_t* handle, uint64_t index, lazyt_output_meta_t* out_meta) {
  return guard([&] {
    const Executable& executable = from_c(handle);
    plugin::require(index < executable.outputs.size(), "output_meta: no such output");
    out_meta->size_bytes = executable.outputs[index].size_bytes;
    out_meta->alignment = 0;
    out_meta->memory_space = 0;
    out_meta->opaque = 0;
  });
}

lazyt_status_t* memory(lazyt_executable_t* handle, lazyt_executable_memory_t* out_memory) {
  return guard([&] {
    const Executable& executable = from_c(handle);
    out_memory->code_bytes = executable.constant_memory.bytes();
    for (const Executable::KeptPiece& piece : executable.kept) out_memory->code_bytes += piece.kept->bytes();
    out_memory->scratch_bytes = executable.arena_bytes;
    out_memory->flags = executable.kept.empty() ? LAZYT_EXECUTABLE_KEEPS_NOTHING : 0;
  });
}

lazyt_status_t* load(lazyt_device_t*, const void*, uint64_t, lazyt_executable_t**) {
  return plugin::make_status(LAZYT_CODE_UNIMPLEMENTED, "onednn stores no compiled programs");
}

lazyt_status_t* identity(lazyt_device_t*, lazyt_string_t* out_identity) {
  *out_identity = plugin::to_c("onednn 0.1.0");
  return nullptr;
}

void release(lazyt_executable_t* executable) { delete plugin::from_c_or_null(executable); }

}  // namespace

toolkit::Role Builder::role_of(const lazyt_node_t& node) { return operators().role_of(program, node); }
void Builder::lower_node(const lazyt_node_t& node) { operators().find(program, node)->lower(*this, node); }
void Builder::lower_group(const toolkit::Unit& unit) { toolkit::lower_group<FusedKernel>(*this, unit); }
void Builder::copy(const Tensor& src, const Tensor& dst) { lower_copy(*this, src, dst); }
void Builder::fill(const Tensor& dst, Number number) { lower_fill(*this, dst, number); }

void Builder::copy_beside(const Tensor& from, const Tensor& to) {
  add("copy to a donor", {from.storage}, {to.storage}, [from, to, bytes = bytes_of(to.storage)](const Frame& frame) {
    const std::byte* src = frame.at<std::byte>(from);
    std::byte* dst = frame.at<std::byte>(to);
    if (src != dst) copy_bytes(dst, src, bytes);
  });
}

const lazyt_plugin_executable_t kExecutableTable = {
    .struct_size = sizeof(lazyt_plugin_executable_t),
    .next = nullptr,
    .compile = compile,
    .output_meta = output_meta,
    .memory = memory,
    .execute = execute,
    .serialize = nullptr,
    .load = load,
    .identity = identity,
    .release = release,
};

}  // namespace lazyt::onednn
