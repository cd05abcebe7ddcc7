#include "frontend/follow.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>

#include "frontend/dtype.h"
#include "frontend/history.h"
#include "frontend/storage.h"
#include "frontend/tracer.h"

namespace lazyt::frontend {

bool is_watched() {
  constexpr c10::DispatchKeySet kTransforms{c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::Functionalize};
  return c10::impl::TorchDispatchModeTLS::any_modes_set() || c10::impl::tls_local_dispatch_key_set().included_.has_any(kTransforms);
}

trace::Storage* state_if_plain(const at::Tensor& t) { return t.defined() && !t.key_set().has_any(kWatchers) ? state_if_ours(t) : nullptr; }

void put_tensor(trace::WordBuffer& words, const at::Tensor& t) {
  const auto sizes = t.sizes(), strides = t.strides();
  uint64_t* w = words.extend(2 + 2 * sizes.size());
  *w++ = trace::tagged(trace::kTensor, sizes.size(), static_cast<uint64_t>(from_torch(t.scalar_type())));
  *w++ = static_cast<uint64_t>(t.storage_offset());
  w = std::copy(sizes.begin(), sizes.end(), w);
  std::copy(strides.begin(), strides.end(), w);
}

bool follow_segment(const Lane& lane, const trace::Segment& s, std::span<trace::Storage* const> operands) {
  return s.end.tokens < max_pending() && has_settings_of(*lane.recorder, s.multiplies) && lane.recorder->follow(s, operands);
}

std::optional<Bases::Place> Bases::add(const at::Tensor& t, const trace::Segment& segment) {
  const trace::Storage* state = t.requires_grad() ? nullptr : state_if_plain(t);
  if (!state || !state->pending || !segment.makes(state->slot)) return std::nullopt;
  const base::Meta& natural = segment.tape->slots[state->slot]->meta;
  if (natural.dtype != from_torch(t.scalar_type())) return std::nullopt;
  auto base = std::ranges::find(bases_, state->slot, &Base::slot);
  if (base == bases_.end()) base = bases_.insert(base, {state->slot});
  const bool whole = !base->taken && t.storage_offset() == 0 && meta_of(t) == natural;
  base->taken |= whole;
  return Place{static_cast<size_t>(base - bases_.begin()), whole};
}

std::vector<at::Tensor> Bases::make(trace::Recorder& recorder) const {
  std::vector<at::Tensor> made;
  made.reserve(bases_.size());
  for (const Base& base : bases_) {
    const base::Meta& m = recorder.expected()->slots[base.slot]->meta;
    trace::Storage* state;
    made.push_back(make_result({m.dims.data(), m.dims.size()}, {m.strides.data(), m.strides.size()}, to_torch(m.dtype), recorder.device, &state));
    recorder.bind(*state, base.slot);
  }
  return made;
}

}  // namespace lazyt::frontend
