// What the layer `trace` says of arguments: objects by kind and address, structs by their fields, programs by
// their size. Bytes of buffers are not looked at.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "lazyt/lazyt.h"

namespace lazyt::layers {

using Value = nlohmann::ordered_json;
using Values = std::vector<Value>;

Value object(const char* kind, const void* pointer);  // "buffer:0x55d0c8"; null for NULL

inline Value describe(uint32_t v) { return v; }
inline Value describe(int32_t v) { return v; }
inline Value describe(uint64_t v) { return v; }
inline Value describe(int64_t v) { return v; }
Value describe(lazyt_string_t v);
Value describe(lazyt_events_t v);
inline Value describe(const void* v) { return object("", v); }
inline Value describe(const lazyt_status_t* v) { return object("status", v); }
inline Value describe(lazyt_device_t* v) { return object("device", v); }
inline Value describe(lazyt_buffer_t* v) { return object("buffer", v); }
inline Value describe(lazyt_event_t* v) { return object("event", v); }
inline Value describe(lazyt_executable_t* v) { return object("executable", v); }
inline Value describe(DLManagedTensorVersioned* v) { return object("dlpack", v); }
Value describe(const lazyt_program_t* v);
Value describe(const lazyt_buffer_desc_t* v);
Value describe(const lazyt_host_bytes_t* v);
Value describe(const lazyt_compile_args_t* v);
Value describe(const lazyt_execute_args_t* v);
template <class R, class... A>
Value describe(R (*v)(A...)) {
  return object("function", reinterpret_cast<const void*>(v));
}
// Where a result goes: told afterwards.
template <class T>
inline constexpr bool is_result = false;
template <class T>
inline constexpr bool is_result<T**> = true;
template <>
inline constexpr bool is_result<uint32_t*> = true;
template <>
inline constexpr bool is_result<uint64_t*> = true;
template <>
inline constexpr bool is_result<lazyt_string_t*> = true;
template <>
inline constexpr bool is_result<lazyt_plugin_info_t*> = true;
template <>
inline constexpr bool is_result<lazyt_device_info_t*> = true;
template <>
inline constexpr bool is_result<lazyt_memory_stats_t*> = true;
template <>
inline constexpr bool is_result<lazyt_output_meta_t*> = true;
template <>
inline constexpr bool is_result<lazyt_executable_memory_t*> = true;
template <class T>
  requires is_result<T>
Value describe(T) {
  return "out";
}

Value describe(const lazyt_plugin_info_t& v);
Value describe(const lazyt_device_info_t& v);
Value describe(const lazyt_memory_stats_t& v);
Value describe(const lazyt_output_meta_t& v);
Value describe(const lazyt_executable_memory_t& v);

// What the results of a call that went well are, in their order.
template <class... A>
Values handed_out(A... args) {
  Values out;
  [[maybe_unused]] auto add = [&out](auto arg) {
    if constexpr (is_result<decltype(arg)>)
      if (arg) out.push_back(describe(*arg));
  };
  (add(args), ...);
  return out;
}
// capability.query: how many nodes are taken, and each refusal.
Values handed_out(lazyt_device_t*, const lazyt_program_t* program, lazyt_answer_t* answers, uint64_t count, uint64_t stride);

// "OK", or the code's name and the message.
Value outcome(const lazyt_host_t& host, const lazyt_status_t* status);

// {a: 1, b: [x]} without the quotes that JSON needs.
std::string to_text(const Value& value);

}  // namespace lazyt::layers
