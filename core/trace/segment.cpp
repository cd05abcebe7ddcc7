#include "trace/segment.h"

#include <algorithm>
#include <cstring>

#include "trace/recorder.h"

namespace lazyt::trace {

bool Segment::makes(uint32_t slot) const {
  return slot >= begin.slots && slot < end.slots && !std::ranges::binary_search(tape->inputs, slot);
}

// What was in the one tensor that the token writes: self, or out=. Null: it writes none, several, or another argument.
static const uint64_t* role_of_written(const Token& t) {
  if (t.written != 1) return nullptr;
  const auto is_written = [](const OpArg& a) { return a.written && a.type == ArgType::kTensor; };
  const uint64_t *first = t.role_words(), *end = t.meta_words(), *last = first;
  for (const uint64_t* r = first; r < end; r += role_words(r)) last = r;
  return is_written(t.op->args.front()) ? first : is_written(t.op->args.back()) ? last : nullptr;
}

// The token that made the slot; null: none did, or it is before `first`.
static const Placed* maker_of(const Tape& tape, uint32_t slot, size_t first) {
  const auto next = std::ranges::upper_bound(tape.tokens, slot, {}, &Placed::first_result);
  const size_t made = next - tape.tokens.begin() - 1;
  if (next == tape.tokens.begin() || made < first) return nullptr;
  const Token& t = tape.token(made);
  return slot - tape.tokens[made].first_result < t.fresh + t.written ? &tape.tokens[made] : nullptr;
}

// Whether the token writes nothing but bytes that were made from slot `first` on, or those of `others`.
static bool writes_own(const Token& t, uint32_t first, std::span<const uint32_t> others) {
  if (t.written == 0) return true;
  const std::vector<OpArg>& args = t.op->args;
  const bool only_self = t.written == 1 && args[0].written && args[0].type == ArgType::kTensor;
  const uint32_t slot = low_of(*t.role_words());
  return only_self && (slot >= first || std::ranges::find(others, slot) != others.end());
}

Place Recorder::place() const { return {epoch_, position_, scalars_.size(), next_slot_}; }

std::optional<Segment> Recorder::segment_since(const Place& from, std::span<Storage* const> operands, std::span<Storage* const> written) const {
  if (!followed() || from.epoch != epoch_ || from.tokens == position_) return std::nullopt;
  Segment s{.tape = tape_, .recorder = this, .begin = from, .end = place()};
  const auto first = std::ranges::lower_bound(tape_->inputs, from.slots), last = std::ranges::lower_bound(tape_->inputs, next_slot_);
  s.inputs = static_cast<uint32_t>(last - first);
  std::vector<bool> met(s.inputs);
  // Whether the slot is one of before, or an input first met here.
  const auto is_from_outside = [&](uint32_t slot) {
    if (slot < from.slots) return true;
    const auto input = std::lower_bound(first, last, slot);
    if (input == last || *input != slot) return false;  // written by the segment, or by nobody
    met[input - first] = true;
    return true;
  };
  for (const Storage* o : operands) {
    const bool here = o->epoch == epoch_;
    if (!here && slot_kept_for(*o)) return std::nullopt;
    s.operands.push_back(here ? o->slot : Segment::kUnread);
    if (here && !is_from_outside(o->slot)) return std::nullopt;
  }
  for (const Storage* w : written) {
    const Placed* last_write = w->epoch == epoch_ ? maker_of(*tape_, w->slot, from.tokens) : nullptr;
    const uint64_t* before = last_write ? role_of_written(*last_write->token) : nullptr;
    if (!before || !is_from_outside(low_of(*before))) return std::nullopt;
    s.operands.push_back(low_of(*before));
    s.written.push_back(w->slot);
  }
  const auto before = std::span(s.operands).last(written.size());
  for (size_t i = from.tokens; i < position_; i++) {
    const Token& t = tape_->token(i);
    // Random numbers are others each time, parts of operands may lie elsewhere.
    if (t.op->random || t.parts != 0 || !writes_own(t, from.slots, before)) return std::nullopt;
    s.multiplies |= t.op->multiplies;
  }
  // What it takes beside its operands may be another one the next time.
  if (std::ranges::find(met, false) != met.end()) return std::nullopt;
  s.scalars.assign(scalars_.begin() + from.scalars, scalars_.end());
  return s;
}

std::optional<Before> Recorder::before(const Place& place) const {
  if (own_ || !tape_ || disturbed_ || place.epoch != epoch_ || place.tokens == 0) return std::nullopt;
  Before b{.scalars = {scalars_.begin(), scalars_.begin() + place.scalars}};
  for (size_t i = 0; i < place.tokens; i++) {
    if (nodes_[i] & kHooked) return std::nullopt;
    b.nodes.push_back(nodes_[i] - nodes_[0]);
    const Token& t = tape_->token(i);
    b.drawn.insert(b.drawn.end(), t.scalars, false);
    if (t.op->random) std::fill(b.drawn.end() - 2, b.drawn.end(), true);
  }
  return b;
}

bool Recorder::came_as(const Before& b) const {
  if (disturbed_ || nodes_.size() != b.nodes.size() || scalars_.size() != b.scalars.size() || nodes_[0] & kHooked) return false;
  for (size_t i = 0; i < nodes_.size(); i++)
    if (nodes_[i] - nodes_[0] != b.nodes[i]) return false;
  for (size_t i = 0; i < scalars_.size(); i++)
    if (!b.drawn[i] && std::memcmp(scalars_[i].bytes, b.scalars[i].bytes, sizeof scalars_[i].bytes) != 0) return false;
  return true;
}

bool Recorder::reads_what_nodes_keep(const Segment& s) const {
  const Tape& t = *s.tape;
  const auto is_kept = [&](uint32_t slot) {
    if (std::ranges::binary_search(t.inputs, slot) || std::ranges::find(s.operands, slot) != s.operands.end()) return true;
    for (std::optional<size_t> last_write;;) {
      const Placed* maker = maker_of(t, slot, 0);
      if (!maker) return false;  // bytes that nobody wrote
      const size_t made = maker - t.tokens.data();
      const Token& token = *maker->token;
      const uint32_t result = slot - maker->first_result;
      if (!last_write) last_write = made;
      const bool by_node = made > 0 && nodes_[made] != nodes_[made - 1];
      if (result < token.fresh || by_node) return *last_write == made || nodes_[*last_write] == nodes_[made];
      const uint64_t* before = role_of_written(token);
      if (!before) return false;
      if (*before & kUninitialised) return nodes_[*last_write] == nodes_[made];
      slot = low_of(*before);
    }
  };
  for (size_t i = s.begin.tokens; i < s.end.tokens; i++) {
    const Token& token = t.token(i);
    for (const uint64_t* r = token.role_words(); r < token.meta_words(); r += role_words(r))
      if (low_of(*r) < s.begin.slots && !is_kept(low_of(*r))) return false;
  }
  return true;
}

bool Recorder::holds(std::span<Storage* const> storages, std::span<const uint32_t> slots) const {
  const bool whole = std::ranges::equal(storages, slots, [&](const Storage* s, uint32_t slot) { return s->epoch == epoch_ && s->slot == slot; });
  return whole && std::ranges::none_of(inputs_, [&](const Input& in) {
    return in.part && std::ranges::any_of(storages, [&](const Storage* s) { return s->data.get() == in.data.get(); });
  });
}

// Whether the trace, as it stands, is what the segment's tape begins with.
bool Recorder::leads_to(const Segment& s) const {
  if (!replay_ || own_ || s.recorder != this || s.tape->forgotten || position_ != s.begin.tokens) return false;
  if (s.tape->flags != flags() || s.tape->default_float != default_float()) return false;
  return position_ == 0 || tape_ == s.tape || s.tape->begins_as(*tape_, position_);
}

bool Recorder::follow(const Segment& s, std::span<Storage* const> operands) {
  if (!leads_to(s) || operands.size() != s.operands.size()) return false;
  const Tape& t = *s.tape;
  const size_t inputs = inputs_.size();
  const size_t first = std::ranges::lower_bound(t.inputs, s.begin.slots) - t.inputs.begin();
  inputs_.resize(inputs + s.inputs);
  met_.clear();
  const bool same = std::ranges::equal(operands, s.operands, [&](Storage* o, uint32_t slot) {
    if (slot == Segment::kUnread) return true;
    if (o->epoch == epoch_) return o->slot == slot;
    if (slot < s.begin.slots || o->device != device || o->pending || !o->data) return false;
    // Another thread's trace has met it: the way that keeps its slot there is take_roles'.
    if (o->recorder && o->recorder != this && (o->shared || o->epoch == o->recorder->epoch_)) return false;
    Input& input = inputs_[inputs + (std::ranges::lower_bound(t.inputs, slot) - t.inputs.begin()) - first];
    if (input.data || o->size_bytes != t.slots[slot]->bytes || o->data->meta != t.slots[slot]->meta) return false;
    input.data = o->data;
    o->recorder = this;
    o->epoch = epoch_;
    o->slot = slot;
    met_.push_back({o});
    return true;
  });
  if (!same || met_.size() != s.inputs) {
    for (const Met& m : met_) m.storage->epoch = 0;
    inputs_.resize(inputs);
    return false;
  }
  scalars_.insert(scalars_.end(), s.scalars.begin(), s.scalars.end());
  for (size_t i = position_; i < s.end.tokens; i++) {
    const Op& op = *t.token(i).op;
    op.recorded->add_locked();
    for (base::Counter* c : op.stands_for) c->add_locked();
  }
  if (tape_ != s.tape) follow_tape(s.tape);
  position_ = s.end.tokens;
  nodes_.resize(position_, nodes_.empty() ? 0 : nodes_.back());
  next_slot_ = s.end.slots;
  return true;
}

}  // namespace lazyt::trace
