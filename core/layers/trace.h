// The layer `trace`: a line for each call that crosses, in both directions: when, on which thread, who is called,
// arguments, result, what was handed out, and how long it took. As text, or as JSON objects, one a line; to
// stderr, or appended to the file LAZYT_TRACE, which plugins and processes may share.
//
// Tables' thunks bring each call here (Layer::trace): nothing is overridden call by call.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "layers/layer.h"
#include "layers/trace_values.h"

namespace lazyt::layers {

class Trace {
 public:
  Trace(bool json, bool enter);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // UNAVAILABLE if LAZYT_TRACE cannot be written.
  const base::Status& opened() const { return opened_; }

  // layer.method(args...), with a line about it. name: "buffer.alloc".
  template <class R, class... A>
  R call(Layer& layer, const char* name, R (Layer::*method)(A...), A... args) {
    const Values in = {describe(args)...};
    enter(name, in);
    const auto begin = Clock::now();
    if constexpr (std::is_void_v<R>) {
      (layer.*method)(args...);
      leave(name, in, begin, Clock::now(), nullptr, handed_out(args...));
    } else {
      const R result = (layer.*method)(args...);
      const auto end = Clock::now();
      bool ok = true;
      Value told = describe(result);
      if constexpr (std::is_same_v<R, lazyt_status_t*>)
        if (returns_outcome(name)) ok = !result, told = outcome(*layer.above, result);
      leave(name, in, begin, end, told, ok ? handed_out(args...) : Values());
      return result;
    }
  }

  std::string plugin = "plugin";  // its name, once it told

 private:
  using Clock = std::chrono::steady_clock;
  static bool returns_outcome(std::string_view name) { return !name.starts_with("status."); }
  void enter(const char* name, const Values& in);
  void leave(const char* name, const Values& in, Clock::time_point begin, Clock::time_point end, const Value& result,
             const Values& out);
  void write(const std::string& line);

  const bool json_, enter_;
  const Clock::time_point start_ = Clock::now();
  int file_ = 2;
  base::Status opened_;
};

class TraceLayer : public Layer {
 public:
  TraceLayer(bool json, bool enter) : trace_(json, enter) { trace = &trace_; }
  lazyt_status_t* init() override;
  lazyt_status_t* info(lazyt_plugin_info_t* out) override;

 private:
  Trace trace_;
};

}  // namespace lazyt::layers
