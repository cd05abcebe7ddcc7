#include "layers/trace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/env.h"

namespace lazyt::layers {
namespace {

// gettid() is younger than the oldest glibc that lazyt runs on (2.28).
long thread_number() { return ::syscall(SYS_gettid); }

thread_local int depth = 0;  // calls that this thread is in

bool to_host(std::string_view name) {
  return name.starts_with("status.") || name.starts_with("services.") || name.starts_with("host.");
}

double seconds(std::chrono::nanoseconds t) { return std::chrono::duration<double>(t).count(); }

std::string listed(const Values& values) {
  std::string out;
  for (const Value& v : values) out += (out.empty() ? "" : ", ") + to_text(v);
  return out;
}

}  // namespace

Trace::Trace(bool json, bool enter) : json_(json), enter_(enter) {
  const auto path = base::env("LAZYT_TRACE");
  if (!path) return;
  const int file = ::open(path->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file >= 0)
    file_ = file;
  else
    opened_ = base::unavailable(fmt::format("LAZYT_TRACE: the layer `trace` cannot write {}: {}", *path, std::strerror(errno)));
}

Trace::~Trace() {
  if (file_ != 2) ::close(file_);
}

void Trace::enter(const char* name, const Values& in) {
  if (enter_) {
    if (json_)
      write(Value{{"t", seconds(Clock::now() - start_)}, {"thread", thread_number()}, {"plugin", plugin}, {"to", to_host(name) ? "host" : "plugin"},
                  {"depth", depth}, {"enter", name}, {"args", in}}.dump(-1, ' ', false, Value::error_handler_t::replace) + "\n");
    else
      write(fmt::format("{:12.6f} {:7} {:{}}{}: {}({}) ...\n", seconds(Clock::now() - start_), thread_number(), "", 2 * depth,
                        to_host(name) ? "host" : plugin, name, listed(in)));
  }
  depth++;
}

void Trace::leave(const char* name, const Values& in, Clock::time_point begin, Clock::time_point end, const Value& result,
                  const Values& out) {
  depth--;
  const double took = seconds(end - begin) * 1e6;
  if (json_) {
    write(Value{{"t", seconds(begin - start_)}, {"thread", thread_number()}, {"plugin", plugin}, {"to", to_host(name) ? "host" : "plugin"},
                {"depth", depth}, {"call", name}, {"args", in}, {"result", result}, {"out", out}, {"us", took}}
              .dump(-1, ' ', false, Value::error_handler_t::replace) + "\n");
    return;
  }
  write(fmt::format("{:12.6f} {:7} {:{}}{}: {}({}){}{}  {:.1f} us\n", seconds(begin - start_), thread_number(), "", 2 * depth,
                    to_host(name) ? "host" : plugin, name, listed(in), result.is_null() ? "" : " = " + to_text(result),
                    out.empty() ? "" : " -> " + listed(out), took));
}

// One write a line: lines of several threads and processes do not mix.
void Trace::write(const std::string& line) {
  if (::write(file_, line.data(), line.size()) < 0) return;  // a full disk is no reason to end a program
}

lazyt_status_t* TraceLayer::init() {
  if (const base::Status& opened = trace_.opened(); !opened.ok())
    return above->status->create(opened.code(), lazyt_string(opened.message().data(), opened.message().size()));
  return below->init();
}

lazyt_status_t* TraceLayer::info(lazyt_plugin_info_t* out) {
  lazyt_status_t* status = below->info(out);
  if (!status && out->name.size) trace_.plugin.assign(out->name.data, out->name.size);
  return status;
}

}  // namespace lazyt::layers
