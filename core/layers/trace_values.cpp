#include "layers/trace_values.h"

#include <fmt/format.h>

#include "base/status.h"

namespace lazyt::layers {

Value object(const char* kind, const void* pointer) {
  if (!pointer) return nullptr;
  return fmt::format("{}{}{}", kind, *kind ? ":" : "", pointer);
}

Value describe(lazyt_string_t v) { return v.size ? std::string(v.data, v.size) : std::string(); }

Value describe(lazyt_events_t v) {
  Value out = Value::array();
  for (uint64_t i = 0; i < v.count; i++) out.push_back(describe(v.events[i]));
  return out;
}

Value describe(const lazyt_program_t* v) {
  if (!v) return nullptr;
  return {{"nodes", v->nodes.count}, {"inputs", v->inputs.count}, {"outputs", v->outputs.count}, {"bytes", v->total_size}};
}

Value describe(const lazyt_buffer_desc_t* v) {
  if (!v) return nullptr;
  return {{"size", v->size_bytes}, {"alignment", v->alignment}, {"space", v->memory_space}};
}

Value describe(const lazyt_host_bytes_t* v) {
  if (!v) return nullptr;
  return {{"data", object("", v->data)}, {"size", v->size_bytes}, {"sharing", v->sharing}};
}

Value describe(const lazyt_compile_args_t* v) {
  if (!v) return nullptr;
  return {{"program", describe(v->program)}, {"flags", v->flags}};
}

Value describe(const lazyt_execute_args_t* v) {
  if (!v) return nullptr;
  Value inputs = Value::array(), outputs = Value::array();
  for (uint64_t i = 0; i < v->input_count; i++) {
    const auto& in = *reinterpret_cast<const lazyt_execute_input_t*>(reinterpret_cast<const char*>(v->inputs) + i * v->input_stride);
    if (in.buffer)
      inputs.push_back(object(in.flags & LAZYT_EXECUTE_DONATED ? "donated buffer" : "buffer", in.buffer));
    else
      inputs.push_back(fmt::format("scalar:{:02x}", fmt::join(in.scalar.bytes, in.scalar.bytes + 8, "")));
  }
  for (uint64_t i = 0; i < v->output_count; i++) outputs.push_back(describe(v->outputs[i]));
  return {{"inputs", inputs}, {"outputs", outputs}, {"waits", describe(v->waits)}};
}

Value describe(const lazyt_plugin_info_t& v) {
  return {{"name", describe(v.name)}, {"version", describe(v.version)}, {"score", v.score}, {"why_none", describe(v.why_none)}};
}

Value describe(const lazyt_device_info_t& v) {
  return {{"name", describe(v.name)}, {"flags", v.flags}, {"total_bytes", v.total_bytes}, {"alignment", v.alignment}};
}

Value describe(const lazyt_memory_stats_t& v) {
  return {{"in_use", v.bytes_in_use}, {"peak", v.peak_bytes_in_use}, {"reserved", v.bytes_reserved}};
}

Value describe(const lazyt_output_meta_t& v) {
  return {{"size", v.size_bytes}, {"alignment", v.alignment}, {"space", v.memory_space}, {"opaque", v.opaque}};
}

Value describe(const lazyt_executable_memory_t& v) { return {{"code", v.code_bytes}, {"scratch", v.scratch_bytes}, {"flags", v.flags}}; }

Values handed_out(lazyt_device_t*, const lazyt_program_t* program, lazyt_answer_t* answers, uint64_t count, uint64_t stride) {
  uint64_t taken = 0;
  Value refused = Value::array();
  for (uint64_t i = 0; i < count; i++) {
    const auto& a = *reinterpret_cast<const lazyt_answer_t*>(reinterpret_cast<const char*>(answers) + i * stride);
    taken += a.kind == LAZYT_ANSWER_TAKE;
    if (a.kind == LAZYT_ANSWER_TAKE) continue;
    refused.push_back({{"node", i},
                       {"operator", describe(lazyt_text(program, lazyt_node(program, i)->name))},
                       {"answer", a.kind},
                       {"reason", a.reason},
                       {"detail", describe(a.detail)}});
  }
  return {{{"taken", taken}, {"refused", refused}}};
}

Value outcome(const lazyt_host_t& host, const lazyt_status_t* status) {
  if (!status) return "OK";
  return {{"code", base::code_name(host.status->code(status))}, {"message", describe(host.status->message(status))}};
}

std::string to_text(const Value& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const bool plain = !text.empty() && text.find_first_of("\n\"") == text.npos;
    return plain ? text : value.dump(-1, ' ', false, Value::error_handler_t::replace);
  }
  if (!value.is_structured()) return value.dump();
  std::string out;
  for (const auto& [key, item] : value.items())
    out += (out.empty() ? "" : ", ") + (value.is_object() ? key + ": " : std::string()) + to_text(item);
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

}  // namespace lazyt::layers
