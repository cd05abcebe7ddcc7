#include "scenario.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "../core/fake_host_runner.h"
#include "base/counters.h"
#include "loader/call.h"
#include "trace/session.h"

namespace fault {
namespace {

using lazyt::base::Meta;
using lazyt::base::Ref;
using lazyt::base::Status;
using namespace lazyt::trace;

constexpr int kMoreSteps = 3;  // behind the call at which the fault strikes
const char* const kUserFile = "model.py";

struct Failure {
  int step;
  const char* stage;
  Status status;
};

class Scenario {
 public:
  Scenario(std::string function, int call, std::string action)
      : function_(std::move(function)), call_(call), action_(action.substr(0, action.find(':'))) {
    for (Op* op : {&mul_, &lgamma_}) op->recorded = &lazyt::base::counter("test::op");
    mul_.name = mul_.functional_name = "aten::mul", mul_.functional_overload = "Tensor";
    mul_.args = {{"self", ArgType::kTensor}, {"other", ArgType::kTensor}};
    lgamma_.name = lgamma_.functional_name = "aten::lgamma";
    lgamma_.args = {{"self", ArgType::kTensor}};
    session_.set_host_runner(&runner_);
  }

  std::string run() {
    const bool of_loading =
        function_.starts_with("plugin.") || (function_.starts_with("device.") && !of_steps());
    if (of_loading) {
      for (int round = 1; round <= call_ + kMoreSteps; round++) load_and_unload(round);
    } else {
      if (Status s = session_.use_backend({faulty()}); !s.ok()) failures_.push_back({0, "load", s});
      for (int i = 1; i <= call_ + kMoreSteps; i++) step(i);
    }
    const std::string outcome = judge();
    return outcome.starts_with("WRONG") || !going_on() ? outcome : check_it_goes_on(outcome);
  }

 private:
  static std::string faulty() { return std::getenv("LAZYT_FAULT_LIBRARY"); }
  static std::string sound() { return std::getenv("LAZYT_FAULT_OTHER"); }
  bool of_steps() const { return function_ == "device.memory_stats" || function_ == "device.trim"; }
  bool going_on() const { return action_ == "hang" || !failures_.empty(); }

  // A call over n elements of each operand from `offset` on; over all of them without n.
  void record(Op& op, std::vector<Storage*> operands, Storage& result, uint32_t line, int64_t n = 0,
              uint64_t offset = 0) {
    call_words_.clear(&op);
    if (n == 0) n = static_cast<int64_t>(operands[0]->size_bytes / 4);
    for (Storage* s : operands) {
      call_words_.operands.push_back(s);
      call_words_.signature.append(
          {tagged(kTensor, 1, LAZYT_DTYPE_FLOAT32), offset, static_cast<uint64_t>(n), 1});
    }
    std::lock_guard lock(recorder_.mutex());
    if (!recorder_.replay(call_words_)) {
      Words metas;
      put_meta(metas, Meta::contiguous(LAZYT_DTYPE_FLOAT32, {n}));
      recorder_.append(
          call_words_, metas, 1,
          std::make_shared<lazyt::ir::SourceLine>(lazyt::ir::SourceLine{kUserFile, "", line}));
    }
    result.size_bytes = static_cast<uint64_t>(n) * 4;
    recorder_.bind(result, recorder_.first_result());
  }

  Status upload(Storage& storage, const std::vector<float>& values) {
    auto keep = std::make_shared<std::vector<float>>(values);
    storage.size_bytes = values.size() * 4;
    LAZYT_ASSIGN_OR_RETURN(auto buffer, session_.upload(keep->data(), storage.size_bytes, keep));
    storage.data = lazyt::base::make_ref<lazyt::exec::Data>(
        Meta::contiguous(LAZYT_DTYPE_FLOAT32, {static_cast<int64_t>(values.size())}), storage.size_bytes,
        std::move(buffer));
    return {};
  }

  Status read(Storage& storage, std::vector<float>& values) {
    LAZYT_ASSIGN_OR_RETURN(auto data, session_.materialize(storage));
    auto bytes = std::make_shared<std::vector<float>>(storage.size_bytes / 4);
    LAZYT_RETURN_IF_ERROR(data->read(0, bytes->data(), storage.size_bytes, bytes));
    values = *bytes;
    return {};
  }

  // The plans of earlier steps go, and their executables with them.
  void forget_programs() {
    {
      std::lock_guard lock(recorder_.mutex());
      recorder_.clear_tapes();
    }
    session_.programs().clear();
    lazyt::loader::settle();
  }

  // x is uploaded and read back; y = mul(x, x) on the device, lgamma(y) on the host, mul of both on the
  // device.
  void step(int number) {
    const auto fail = [&](const char* stage, Status s) {
      failures_.push_back({number, stage, std::move(s)});
    };
    std::vector<float> values(8 + number % 150), got;  // each step is another program
    for (size_t i = 0; i < values.size(); i++) values[i] = 1.f + static_cast<float>(i % 7);
    Storage x, y, z, out;
    if (Status s = upload(x, values); !s.ok()) return fail("upload", s);
    record(mul_, {&x, &x}, y, 11);
    record(lgamma_, {&y}, z, 12);
    record(mul_, {&z, &y}, out, 13);
    forget(y), forget(z);
    if (Status s = session_.flush(recorder_, FlushReason::kMarkStep); !s.ok()) {
      fail("launch", s);
    } else if (Status s = read(out, got); !s.ok()) {
      const bool again = read(out, got).ok();
      fail(again ? "read once" : "result", s);
    } else {
      for (size_t i = 0; i < got.size(); i++) {
        const float square = values[i] * values[i], expected = std::lgamma(square) * square;
        if (std::abs(got[i] - expected) > 1e-5f * std::abs(expected)) wrong_values_++;
      }
    }
    forget(out);
    if (failures_.empty()) parts(x, values, fail);
    if (Status s = read(x, got); !s.ok())
      fail(read(x, got).ok() ? "read once" : "result", s);
    else if (got != values)
      wrong_values_++;
    if (auto device = session_.device(); device.ok())
      if (auto stats = device.value()->memory_stats(); !stats.ok()) fail("statistics", stats.status());
    if (recorder_.empty()) forget_programs();
    if (failures_.empty() || failures_.back().step != number) good_steps_++;
  }

  // The same program over another part of x each time: the host copies the part.
  template <class Fail>
  void parts(Storage& x, const std::vector<float>& values, Fail fail) {
    std::vector<float> got;
    for (uint64_t offset = 0; offset < 4; offset++) {
      Storage square;
      record(mul_, {&x, &x}, square, 14, 4, offset);
      Status s = session_.flush(recorder_, FlushReason::kMarkStep);
      if (s.ok()) s = read(square, got);
      if (!s.ok()) {
        const bool again = read(square, got).ok();
        fail(again ? "read once" : "result", s);
      } else {
        for (size_t i = 0; i < 4; i++) wrong_values_ += got[i] != values[i + offset] * values[i + offset];
      }
      forget(square);
    }
  }

  void forget(Storage& s) {
    std::lock_guard lock(recorder_.mutex());
    recorder_.forget(s);
  }

  void load_and_unload(int round) {
    if (Status s = session_.use_backend({faulty()}); !s.ok())
      failures_.push_back({round, "load", s});
    else
      step(round);
    if (Status s = session_.use_backend({sound()}); !s.ok())
      failures_.push_back({round, "the other backend", s});
    lazyt::loader::settle();  // the library is gone
  }

  int64_t calls() const { return lazyt::base::counter("fault." + function_).value(); }

  std::string wrong(const std::string& what) const {
    std::string text = fmt::format("WRONG: {}; {} calls of {}, {} good steps, {} wrong values", what, calls(),
                                   function_, good_steps_, wrong_values_);
    for (const Failure& f : failures_)
      text += fmt::format(" | step {}, {}: {}", f.step, f.stage, f.status.to_string());
    for (char& c : text)
      if (c == '\n') c = ';';
    return text;
  }

  std::string judge() {
    if (calls() < call_) return calls() == 0 ? "not called" : wrong("the call did not come");
    if (wrong_values_ > 0) return wrong("a value is wrong");
    for (const Failure& f : failures_)
      if (!strcmp(f.stage, "the other backend")) return wrong("the other backend suffers");
    if (failures_.empty()) {
      // Loading goes on after what is let go has hung; the library is just not used again.
      if (action_ == "hang" && lazyt::loader::lost_subjects().empty()) return wrong("nothing was lost");
      return action_ == "hang" ? "plugin given up" : action_ == "fail" ? "no effect" : "late";
    }
    return action_ == "hang" ? judge_hang() : judge_failure();
  }

  std::string judge_hang() {
    const std::string text = failures_[0].status.to_string();
    const bool again = text.find("in this process") != text.npos;  // it hung when it was let go
    if (text.find("LAZYT_DEADLINE") == text.npos && !again)
      return wrong("the error does not name the deadline");
    const std::string awaited = function_ == "executable.work" ? "the work behind an event"
                                : function_ == "plugin.entry"  ? "the entry"
                                                               : function_;
    if (text.find(awaited + " did not come back") == text.npos && !again)
      return wrong("the error does not name the function");
    if (!strcmp(failures_[0].stage, "load")) return "plugin given up";
    for (const Failure& f : failures_)
      if (f.status.code() != LAZYT_CODE_UNAVAILABLE) return wrong("an error is not UNAVAILABLE");
    return "device lost";
  }

  // One step was hit, and names it; those before and behind are as ever.
  std::string judge_failure() {
    for (const Failure& f : failures_)
      if (f.step != failures_[0].step) return wrong("more than one step failed");
    const Failure& f = failures_[0];
    const std::string text = f.status.to_string(), stage = f.stage;
    if (text.find("injected: call " + std::to_string(call_) + " of " + function_) == text.npos)
      return wrong("the error is another one");
    if (stage == "load") return "load fails";
    if (text.find("plugin fault") == text.npos) return wrong("the error does not name the plugin");
    if (stage == "upload") return "upload fails";
    if (stage == "read once") return "read fails";
    if (stage == "statistics") return "question fails";
    for (const char* part : {"launch ", "aten::", "model.py:1"})
      if (text.find(part) == text.npos) return wrong(fmt::format("the error does not name '{}'", part));
    return "step fails";
  }

  // The process goes on with another backend, and its values are right.
  std::string check_it_goes_on(const std::string& outcome) {
    failures_.clear();
    wrong_values_ = 0;
    if (Status s = session_.use_backend({sound()}); !s.ok()) failures_.push_back({-1, "the other backend", s});
    step(200);
    return failures_.empty() && wrong_values_ == 0 ? outcome
                                                   : wrong("it does not go on with another backend");
  }

  Session& session_ = Session::get();
  Recorder& recorder_ = session_.take_recorder();
  lazyt::testing::FakeHostRunner runner_;
  const std::string function_;
  const int call_;
  const std::string action_;
  Op mul_, lgamma_;
  Call call_words_;
  std::vector<Failure> failures_;
  int good_steps_ = 0, wrong_values_ = 0;
};

}  // namespace

int run_cell(const std::string& function, int call, const std::string& action) {
  Scenario scenario(function, call, action);
  const std::string outcome = scenario.run();
  std::printf("%s\n", outcome.c_str());
  std::fflush(stdout);
  Session::shut_down_all();
  return 0;  // through exit handlers: a hung thread must not keep the process
}

}  // namespace fault
