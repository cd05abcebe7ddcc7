#include "frontend/captured_graph.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>

#include "base/counters.h"
#include "frontend/dtype.h"
#include "frontend/history.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"
#include "frontend/tracer.h"

namespace lazyt::frontend {
namespace {

constexpr size_t kMaxKnown = 256;  // of a graph: as many as a recorder keeps tapes

const at::Tensor* tensor_in(const GraphValue& v) {
  const auto* t = std::get_if<const at::Tensor*>(&v);
  return t ? *t : nullptr;
}

}  // namespace

// False: the arguments are none by which the graph can be known.
bool CapturedGraph::read(std::span<const GraphValue> arguments) {
  words_.clear();
  operands_.clear();
  if (is_watched()) return false;
  const bool notes_history = at::GradMode::is_enabled();
  for (const GraphValue& v : arguments) {
    if (const auto* number = std::get_if<int64_t>(&v)) {
      words_.append({trace::tagged(trace::kInt), static_cast<uint64_t>(*number)});
    } else if (const auto* real = std::get_if<double>(&v)) {
      words_.append({trace::tagged(trace::kDouble), trace::bits_of(*real)});
    } else if (const auto* truth = std::get_if<bool>(&v)) {
      words_.append({trace::tagged(trace::kBool), *truth});
    } else if (const at::Tensor* t = tensor_in(v)) {
      trace::Storage* state = state_if_plain(*t);
      if (!state || (notes_history && has_history(*t))) return false;
      if (operands_.empty()) device_ = state->device;
      if (state->device != device_ || from_torch(t->scalar_type()) == LAZYT_DTYPE_INVALID) return false;
      operands_.push_back(state);
      put_tensor(words_, *t);
    } else {
      words_.push_back(trace::tagged(trace::kNone));
    }
  }
  return !operands_.empty();
}

bool CapturedGraph::follow(std::span<const GraphValue> arguments, std::vector<GraphResult>& results, trace::Place& place) {
  static base::Counter &followed = base::counter("GraphFollowed"), &called = base::counter("GraphCalled");
  place = {};
  if (!read(arguments)) return called.add(), false;
  Lane& lane = thread_state().lanes[device_];
  trace::Recorder& recorder = recorder_of(lane, device_);
  const Known* found = nullptr;
  std::vector<at::Tensor> bases;
  {
    std::lock_guard lock(recorder.mutex());
    place = recorder.place();
    // The tape that is expected first: arguments alone do not tell steps apart.
    for (const bool expected : {true, false})
      for (const Known& known : known_) {
        if (found || (known.segment.tape.get() == recorder.expected()) != expected || !(words_ == known.arguments)) continue;
        if (follow_segment(lane, known.segment, operands_)) found = &known;
      }
    if (!found) return called.add(), false;
    followed.add_locked();
    bases = found->bases.make(recorder);
  }
  results.clear();
  results.reserve(found->results.size());
  for (const Made& made : found->results) {
    const auto view = [&](const at::Tensor& t) { return at::as_strided(t, made.sizes, made.strides, made.offset); };
    switch (made.kind) {
      case Made::kNumber: results.push_back({{}, {}, made.number}); break;
      case Made::kArgument: results.push_back({{}, made.of, {}}); break;
      case Made::kViewOfArgument: results.push_back({view(*tensor_in(arguments[made.of])), {}, {}}); break;
      case Made::kBase: results.push_back({bases[made.of], {}, {}}); break;
      case Made::kViewOfBase: results.push_back({view(bases[made.of]), {}, {}}); break;
      case Made::kResult: results.push_back(GraphResult(results[made.of])); break;
    }
  }
  return true;
}

// None: another call may not make it alike. before: the results before it.
std::optional<CapturedGraph::Made> CapturedGraph::made_of(const GraphValue& result, std::span<const GraphValue> arguments,
                                                          std::span<const GraphValue> before, Known& known) {
  const at::Tensor* t = tensor_in(result);
  if (!t) return Made{.number = result};
  const auto is_it = [&](const GraphValue& v) { return tensor_in(v) && tensor_in(v)->is_same(*t); };
  if (auto a = std::ranges::find_if(arguments, is_it); a != arguments.end())
    return Made{.kind = Made::kArgument, .of = static_cast<size_t>(a - arguments.begin())};
  if (auto r = std::ranges::find_if(before, is_it); r != before.end())
    return Made{.kind = Made::kResult, .of = static_cast<size_t>(r - before.begin())};
  const trace::Storage* state = t->requires_grad() ? nullptr : state_if_plain(*t);
  if (!state) return std::nullopt;
  Made made{.sizes = t->sizes().vec(), .strides = t->strides().vec(), .offset = t->storage_offset()};
  const auto holds_it = [&](const GraphValue& v) {
    const at::Tensor* argument = tensor_in(v);
    return argument && state_if_ours(*argument) == state && argument->scalar_type() == t->scalar_type();
  };
  if (auto a = std::ranges::find_if(arguments, holds_it); a != arguments.end()) {
    made.kind = Made::kViewOfArgument, made.of = a - arguments.begin();
    return made;
  }
  const auto place = known.bases.add(*t, known.segment);
  if (!place) return std::nullopt;
  made.kind = place->whole ? Made::kBase : Made::kViewOfBase, made.of = place->of;
  return made;
}

void CapturedGraph::learn(std::span<const GraphValue> arguments, std::span<const GraphValue> results, const trace::Place& place) {
  if (place.epoch == 0 || !read(arguments)) return;
  Known known{.arguments = trace::Words(words_.begin(), words_.end())};
  std::vector<Known> dropped;  // after the lock: with a tape go its programs
  std::lock_guard lock(trace::recording_lock);
  auto segment = recorder_of(thread_state().lanes[device_], device_).segment_since(place, operands_);
  if (!segment) return;
  known.segment = std::move(*segment);
  for (size_t i = 0; i < results.size(); i++) {
    auto made = made_of(results[i], arguments, results.first(i), known);
    if (!made) return;
    known.results.push_back(std::move(*made));
  }
  const auto kept = std::ranges::stable_partition(known_, [](const Known& k) { return !k.segment.tape->forgotten; });
  std::ranges::move(kept, std::back_inserter(dropped));
  known_.erase(kept.begin(), kept.end());
  if (known_.size() == kMaxKnown) {
    dropped.push_back(std::move(known_.front()));
    known_.erase(known_.begin());
  }
  known_.push_back(std::move(known));
}

}  // namespace lazyt::frontend
