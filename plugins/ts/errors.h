// PyTorch's exceptions as statuses.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

#include "lazyt/plugin.hpp"

namespace lazyt::ts {

// The code that fits PyTorch's message. The interpreter hands errors of operators on as text only, so
// the text decides also where the exception's type would have said it.
inline lazyt_code_t code_of(std::string_view message) {
  auto has = [&](std::string_view part) { return message.find(part) != std::string_view::npos; };
  if (has("not enough memory") || has("can't allocate memory") || has("out of memory")) {
    return LAZYT_CODE_RESOURCE_EXHAUSTED;
  }
  if (has("INTERNAL ASSERT FAILED")) return LAZYT_CODE_INTERNAL;
  if (has("not implemented for") || has("Could not run '")) return LAZYT_CODE_UNIMPLEMENTED;
  if (has("out of bounds") || has("out of range")) return LAZYT_CODE_OUT_OF_RANGE;
  return LAZYT_CODE_INVALID_ARGUMENT;
}

inline std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

// plugin::guard that also knows PyTorch's exceptions.
template <class F>
lazyt_status_t* guard(F&& f) noexcept {
  return plugin::guard([&] {
    try {
      return std::forward<F>(f)();
    } catch (const c10::OutOfMemoryError& e) {
      throw plugin::Error(LAZYT_CODE_RESOURCE_EXHAUSTED, first_line(e.what_without_backtrace()));
    } catch (const c10::Error& e) {
      throw plugin::Error(code_of(e.what_without_backtrace()), first_line(e.what_without_backtrace()));
    }
  });
}

}  // namespace lazyt::ts
