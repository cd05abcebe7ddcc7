#include "trace/early.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>

#include "base/counters.h"
#include "base/patience.h"
#include "loader/parallel.h"

namespace lazyt::trace {
namespace {

// Behind such a gate there is too little left to record that it would be worth a hand-over.
constexpr uint32_t kFewestLeft = 8;  // tokens
// To wake the executor takes 30 to 50 us, as long as some tokens: it is woken so many before the first gate, and looks for the next one for so
// long before it sleeps.
constexpr uint32_t kWakeAhead = 16;  // tokens
constexpr std::chrono::microseconds kPatience{100};

// How many inputs and scalars of the tape a trace has met.
struct Met {
  size_t inputs = 0, scalars = 0;
};

void meet(const Tape& tape, size_t token, Met& met) {
  const Token& t = tape.token(token);
  for (const uint64_t* role = t.role_words(); role < t.meta_words(); role += role_words(role)) met.inputs += (*role & (kNewInput | kPartInput)) != 0;
  met.scalars += t.scalars;
}

}  // namespace

std::vector<Gate> gates_of(const Tape& tape, const exec::Plan& plan) {
  std::vector<Gate> gates;
  if (plan.steps.size() < 2 || plan.has_islands() || !plan.device->synchronous()) return gates;
  if (loader::cpu_count() < 2) return gates;  // the executor would run in the recording thread's place
  Met needed, met;
  uint32_t token = 0;
  const auto tokens = static_cast<uint32_t>(tape.tokens.size());
  for (uint32_t s = 0; s + 1 < plan.steps.size(); s++) {
    for (const exec::Source& source : plan.steps[s].inputs) {
      if (source.step != exec::Source::kProgram) continue;
      if (source.index < tape.inputs.size()) needed.inputs = std::max<size_t>(needed.inputs, source.index + 1);
      else needed.scalars = std::max(needed.scalars, source.index - tape.inputs.size() + 1);
    }
    while (token < tokens && (met.inputs < needed.inputs || met.scalars < needed.scalars)) meet(tape, token++, met);
    if (token + kFewestLeft > tokens) break;
    if (gates.empty()) gates.push_back({token - std::min(token, kWakeAhead), 0, 0, 0});
    if (gates.back().tokens == token) gates.pop_back();
    gates.push_back({token, s + 1, static_cast<uint32_t>(needed.inputs), static_cast<uint32_t>(needed.scalars)});
  }
  return gates;
}

bool Early::allow(MetInputs met, uint32_t steps) {
  std::lock_guard lock(mutex_);
  if (met_.empty()) met_ = std::move(met);
  else std::ranges::move(met, std::back_inserter(met_));
  steps_ = steps;
  return !std::exchange(handed_over_, true);
}

void Early::run(const std::function<bool()>& others_wait) {
  for (uint32_t done = 0;;) {
    base::look_for(kPatience, [&] { return steps_ != done || closed_ || dropped_ || others_wait(); });
    MetInputs met;
    {
      std::lock_guard lock(mutex_);
      handed_over_ = steps_ != done && !dropped_;
      if (!handed_over_) return;
      met = std::exchange(met_, {});
      done = steps_;
    }
    const auto start = std::chrono::steady_clock::now();
    try {
      if (!begun_) {
        static base::Counter& begun = base::counter("LaunchBegun");
        begun.add();
        begun_ = std::make_unique<exec::Begun>(variant->plan, inputs_);
      }
      for (auto& [input, binding] : met) begun_->bind(input, std::move(binding));
      begun_->advance(done);
    } catch (const std::exception&) {  // no memory for what a launch keeps: it runs from its beginning
      lose();
    }
    spent_ += std::chrono::steady_clock::now() - start;
  }
}

void Early::lose() { dropped_ = lost_ = true; }

exec::Begun* Early::begun(const exec::Plan& plan) {
  return !lost_ && begun_ && &begun_->plan() == &plan ? begun_.get() : nullptr;
}

}  // namespace lazyt::trace
