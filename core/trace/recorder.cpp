#include "trace/recorder.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <iterator>

namespace lazyt::trace {
namespace {

// Tapes that are known: as many as there are programs (cache/program_cache.h), which they keep, but of long ones, which take memory,
// fewer.
constexpr size_t kFewTapes = 16, kGrowing = 16;
constexpr size_t kWordsOfAPlan = 40;     // what a program takes for each operator, about: measured with onednn
constexpr size_t kMaxWords = 64 << 20;  // of more than a few with their programs: 512 MiB
static size_t kept_words(const Tape& t) { return t.words + kWordsOfAPlan * t.tokens.size(); }

// Guarded by recording_lock.
uint64_t last_epoch = 0, last_step = 0;
constexpr uint64_t kMaxDeadBytes = 1 << 20;
struct Dead {
  std::vector<base::Ref<exec::Data>> data;
  uint64_t bytes = 0;
};
Dead& dead(uint8_t device) {
  static auto* lists = new std::array<Dead, kMaxDevices>;
  return (*lists)[device];
}
std::vector<Recorder*>& all_recorders() {
  static auto* all = new std::vector<Recorder*>;
  return *all;
}

// As two words, as they were stored a moment ago: one load of both waited until their stores, and all before them, were in the
// cache (0.8 us of 7.9 for ten operators, two of them with a number).
void push_by_words(std::vector<lazyt_scalar_t>& to, const lazyt_scalar_t& from) {
  uint64_t words[2];
  static_assert(sizeof words == sizeof from.bytes);
  std::memcpy(words, from.bytes, sizeof words);
  asm("" : "+r"(words[0]), "+r"(words[1]));  // else the compiler makes them one
  std::memcpy(to.emplace_back().bytes, words, sizeof words);
}

}  // namespace

base::SpinLock recording_lock;

Recorder::Recorder(uint8_t device) : device(device) {
  live_.previous = live_.next = &live_;
  std::lock_guard lock(mutex());
  epoch_ = ++last_epoch;
  all_recorders().push_back(this);
}

Recorder::~Recorder() {
  std::lock_guard lock(mutex());
  std::erase(all_recorders(), this);
  clear_tapes();
}

const char* flush_reason_name(FlushReason reason) {
  switch (reason) {
    case FlushReason::kValueNeeded: return "ValueNeeded";
    case FlushReason::kMarkStep: return "MarkStep";
    case FlushReason::kOptimizerStep: return "OptimizerStep";
    case FlushReason::kNodeBudget: return "NodeBudget";
    case FlushReason::kHostOperator: return "HostOperator";
    case FlushReason::kOtherThread: return "OtherThread";
    case FlushReason::kTimedEvent: return "TimedEvent";
    case FlushReason::kSetting: return "Setting";
    case FlushReason::kBackendChange: return "BackendChange";
    case FlushReason::kExit: return "Exit";
  }
  return "Unknown";
}

void Recorder::replaced(const Storage& s) {
  if (s.recorder && s.epoch == s.recorder->epoch_) s.recorder->disturbed_ = true;
  if (!s.shared) return;
  for (Recorder* r : all_recorders()) r->disturbed_ |= r->slot_kept_for(s) != nullptr;
}

void Recorder::set_data(Storage& s, base::Ref<exec::Data> data) {
  replaced(s);
  forget(s);
  s.data = std::move(data);
}

base::Ref<exec::Data> Recorder::let_go(Storage& s) {
  forget(s);
  base::Ref<exec::Data> data = std::move(s.data);
  if (!data) return data;
  Dead& waiting = dead(s.device);
  if (waiting.bytes + data->size_bytes > kMaxDeadBytes) return data;
  waiting.bytes += data->size_bytes;
  waiting.data.push_back(std::move(data));
  return nullptr;
}

std::vector<base::Ref<exec::Data>> Recorder::take_dead(uint8_t device) { return std::exchange(dead(device), {}).data; }

const uint32_t* Recorder::slot_kept_for(const Storage& s) const {
  auto it = s.shared ? elsewhere_.find(&s) : elsewhere_.end();
  return it == elsewhere_.end() ? nullptr : &it->second;
}

// The storage's value is no longer what other traces take it for.
void Recorder::forget_elsewhere(Storage& s) {
  for (Recorder* r : all_recorders()) r->elsewhere_.erase(&s);
  s.shared = false;
}

// Fills call.roles as this trace sees its operands now, and tags storages met for the first time. Operands among
// `parts` (bits) become part inputs; their offsets leave the signature. False, and nothing has changed, if an operand
// is pending in another trace, or lies on another device.
bool Recorder::take_roles(Call& call, uint64_t parts) {
  call.roles.clear();
  met_.clear();
  offsets_.clear();
  if (parts) {
    size_t k = 0;
    for_each_tensor(call.signature.data(), call.signature.size(), [&](uint64_t* w) {
      if (k < 64 && (parts >> k & 1)) offsets_.emplace_back(w, std::exchange(w[1], 0));
      k++;
    });
  }
  size_t part = 0;
  for (size_t k = 0; k < call.operands.size(); k++) {
    Storage* s = call.operands[k];
    if (k < 64 && (parts >> k & 1)) {
      auto [w, offset] = offsets_[part++];
      const base::Meta meta = meta_of_tensor(w);
      call.roles.push_back(kPartInput | next_slot_++);
      met_.push_back({s, w});
      inputs_.push_back({s->data, true, offset * lazyt_dtype_size(meta.dtype), meta.span_bytes()});
      continue;
    }
    if (s->epoch == epoch_) {
      call.roles.push_back(s->slot);
      continue;
    }
    if (s->device != device) {
      undo_roles();
      return false;
    }
    if (s->recorder && s->recorder != this) {
      if (s->pending) {
        blocked_by_ = s->recorder;
        undo_roles();
        return false;
      }
      if (const uint32_t* kept = slot_kept_for(*s)) {
        call.roles.push_back(*kept);
        continue;
      }
      if (s->epoch == s->recorder->epoch_) s->recorder->elsewhere_[s] = s->slot, s->shared = true;
    }
    take_whole(*s);
    if (s->data) {
      call.roles.push_back(kNewInput | s->slot);
      put_meta(call.roles, s->data->meta);
      call.roles.push_back(s->size_bytes);
    } else {
      call.roles.push_back(kUninitialised | s->slot);
      call.roles.push_back(s->size_bytes);
    }
  }
  return true;
}

// Under the trace's next slot; what has data is an input.
void Recorder::take_whole(Storage& s) {
  s.recorder = this;
  s.epoch = epoch_;
  s.slot = next_slot_++;
  met_.push_back({&s});
  if (s.data) inputs_.push_back({s.data});
}

// As take_roles does it, for an operand of which no other trace knows anything.
bool Recorder::meet_first(Storage& s, const uint64_t** role, const uint64_t* end) {
  const uint64_t* w = *role;
  if (s.device != device || s.shared || s.pending || (s.recorder && s.recorder != this && s.epoch == s.recorder->epoch_)) return false;
  if (*w != ((s.data ? kNewInput : kUninitialised) | next_slot_)) return false;
  const uint64_t* const size = w + role_words(w) - 1;
  if (size >= end || *size != s.size_bytes) return false;
  if (s.data) {
    const base::Meta& meta = s.data->meta;
    const size_t rank = meta.dims.size();
    if (w[1] != (static_cast<uint64_t>(meta.dtype) | rank << 8)) return false;
    if (!std::equal(meta.dims.begin(), meta.dims.end(), w + 2) || !std::equal(meta.strides.begin(), meta.strides.end(), w + 2 + rank)) return false;
  }
  take_whole(s);
  *role = size + 1;
  return true;
}

// What the call has met, it has not.
void Recorder::undo_roles() {
  for (const Met& m : met_) {
    if (!m.part) m.storage->epoch = 0;
    if (m.part || m.storage->data) inputs_.pop_back();
  }
  next_slot_ -= static_cast<uint32_t>(met_.size());
  for (auto [w, offset] : offsets_) w[1] = offset;
  met_.clear();
  offsets_.clear();
}

// A dense piece of data that this trace does not know as a whole, only read.
// Whether the call writes what another of its operands lies in, too: their places decide whether eager refuses it.
static bool is_written_beside(const Call& call, size_t operand) {
  const Storage* s = call.operands[operand];
  const auto written = [&](size_t i) { return std::ranges::find(call.writes, i) != call.writes.end(); };
  for (size_t i = 0; i < call.operands.size(); i++)
    if (i != operand && call.operands[i] == s && (written(i) || written(operand))) return true;
  return false;
}

bool Recorder::can_be_part(const Call& call, size_t operand, const uint64_t* tensor) const {
  const Storage& s = *call.operands[operand];
  if (operand >= 64 || s.device != device || !s.data || s.pending || s.epoch == epoch_ || slot_kept_for(s)) return false;
  if (std::ranges::find(call.writes, operand) != call.writes.end() || is_written_beside(call, operand)) return false;
  const base::Meta meta = meta_of_tensor(tensor);
  const uint64_t size = meta.span_bytes();
  return meta.is_dense() && size > 0 && size < s.size_bytes;
}

bool Recorder::can_be_parts(const Call& call, uint64_t parts) const {
  bool all = true;
  size_t k = 0;
  for_each_tensor(call.signature.data(), call.signature.size(), [&](const uint64_t* w) {
    if (k < 64 && (parts >> k & 1)) all = all && can_be_part(call, k, w);
    k++;
  });
  return all && (parts == 0 || k >= 64 || parts >> k == 0);
}

// What was an input at another offset the last time (the next batch of a dataset, say) is not baked in again.
uint64_t Recorder::parts_that_move(const Call& call) const {
  if (!parent_ || position_ >= parent_->tokens.size()) return 0;
  const Token& t = parent_->token(position_);
  if (t.op != call.op || t.signature != call.signature.size()) return 0;
  const uint64_t* before = t.words();
  const uint64_t* role = t.role_words();
  const uint64_t* roles_end = t.meta_words();
  const uint64_t were = t.parts;
  uint64_t parts = 0;
  size_t k = 0;
  for_each_tensor(call.signature.data(), call.signature.size(), [&](const uint64_t* w) {
    if (k >= 64 || role >= roles_end) return;
    const uint64_t* b = before + (w - call.signature.data());
    const size_t rank = low_of(*w);
    const bool same = b[0] == w[0] && std::memcmp(b + 2, w + 2, 2 * rank * 8) == 0;
    bool first = *role & kNewInput;  // or once more what this call takes parts of
    for (size_t j = 0; j < k; j++) first |= (parts >> j & 1) && call.operands[j] == call.operands[k];
    const bool moved = first && b[1] != w[1];
    if (same && (moved || (were >> k & 1)) && can_be_part(call, k, w)) parts |= uint64_t{1} << k;
    role += role_words(role);
    k++;
  });
  return parts;
}

// The same for the other movable words, while the trace goes on as its parent did: then it is one number or place that
// changes, and not another operator. Places: within bytes that lie densely, so that they have a flat order.
uint64_t Recorder::words_that_move(const Call& call, uint64_t parts) const {
  if (!aligned_ || !parent_ || position_ >= parent_->tokens.size()) return 0;
  const Token& t = parent_->token(position_);
  if (t.op != call.op || t.signature != call.signature.size()) return 0;
  auto has_flat_order = [&](const Storage& s, const uint64_t* tensor) {
    const base::Meta* natural = s.epoch == epoch_ ? &tape_->slots[s.slot]->meta : s.data ? &s.data->meta : nullptr;
    return natural && natural->is_dense() && natural->span_bytes() == s.size_bytes &&
           s.size_bytes % lazyt_dtype_size(static_cast<base::DType>(mid_of(*tensor))) == 0;
  };
  uint64_t moved = 0;
  size_t operand = 0;
  MovableBits bits;
  for (const uint64_t *w = call.signature.begin(), *b = t.words(); w < call.signature.end();) {
    const size_t n = entry_words(w);
    if (b[0] != w[0]) return 0;
    if (has_movable_word(w)) {
      const bool tensor = tag_of(*w) == kTensor;
      const uint64_t bit = bits.next(w);
      if (b[1] != w[1] && std::memcmp(b + 2, w + 2, (n - 2) * 8) == 0 &&
          !(tensor && ((operand < 64 && parts >> operand & 1) || is_written_beside(call, operand) || !has_flat_order(*call.operands[operand], w))))
        moved |= bit;
      operand += tensor;
    }
    w += n, b += n;
  }
  return moved;
}

// The call just appended is the parent's at this place, but for what moved.
bool Recorder::goes_on_as_parent(const Call& call, uint64_t parts) const {
  if (!parent_ || position_ >= parent_->tokens.size()) return false;
  const Token& t = parent_->token(position_);
  if (t.op != call.op || t.signature != call.signature.size() || t.roles != call.roles.size()) return false;
  for (const uint64_t *w = call.signature.begin(), *b = t.words(); w < call.signature.end(); w++, b++)
    if (*w != *b && *w != kMoved) return false;
  return parts || std::memcmp(t.role_words(), call.roles.data(), t.roles * 8) == 0;
}

bool Recorder::can_move(const Call& call, uint64_t moved) {
  uint64_t all = 0;
  MovableBits bits;
  for (const uint64_t* w = call.signature.begin(); w < call.signature.end(); w += entry_words(w))
    if (has_movable_word(w)) all |= bits.next(w);
  return (moved & ~all) == 0;
}

// Values of movable words (bits) become host scalars, among the others in the order of the signature.
void Recorder::move_words(Call& call, uint64_t moved) {
  moved_.clear();
  size_t scalar = 0;
  MovableBits bits;
  for (uint64_t *w = call.signature.data(), *end = w + call.signature.size(); w < end; w += entry_words(w)) {
    scalar += tag_of(*w) == kHostScalar;
    if (has_movable_word(w) && (moved & bits.next(w))) {
      const bool number = tag_of(*w) == kDouble;
      lazyt_scalar_t value{};
      std::memcpy(value.bytes, w + 1, 8);
      call.scalars.insert(call.scalars.begin() + scalar, value);
      call.scalar_types.insert(call.scalar_types.begin() + scalar, {number ? LAZYT_DTYPE_FLOAT64 : LAZYT_DTYPE_INT64, tag_of(*w) != kTensor});
      moved_.push_back({w + 1, std::exchange(w[1], kMoved), scalar++});
    }
  }
}

void Recorder::unmove_words(Call& call) {
  for (; !moved_.empty(); moved_.pop_back()) {
    const Moved& m = moved_.back();
    *m.word = m.value;
    call.scalars.erase(call.scalars.begin() + m.scalar);
    call.scalar_types.erase(call.scalar_types.begin() + m.scalar);
  }
}

// REQUIRES: call.roles taken.
bool Recorder::matches(Call& call, const Tape& tape, size_t token) {
  if (token >= tape.tokens.size()) return false;
  const Token& t = tape.token(token);
  if (t.op != call.op || t.signature != call.signature.size() || t.roles != call.roles.size() ||
      t.scalars != call.scalars.size())
    return false;
  return std::memcmp(t.words(), call.signature.data(), t.signature * 8) == 0 &&
         std::memcmp(t.role_words(), call.roles.data(), t.roles * 8) == 0;
}

// Another known tape with the same beginning and this call next? The call has those parts and moved words;
// a tape that wants others gets them.
bool Recorder::switch_tape(Call& call, uint64_t parts, uint64_t moved) {
  for (size_t i = tapes_.size(); i-- > 0;) {
    const Tape& t = *tapes_[i];
    if (tapes_[i] == tape_ || position_ >= t.tokens.size() || t.token(position_).op != call.op) continue;
    if (const Token& token = t.token(position_); token.parts != parts || token.moved != moved) {
      unmove_words(call);  // both write into the same words
      undo_roles();
      parts = can_be_parts(call, token.parts) ? token.parts : 0;
      moved = can_move(call, token.moved) ? token.moved : 0;
      take_roles(call, parts);
      if (moved) move_words(call, moved);
    }
    if (!matches(call, t, position_)) continue;
    if (position_ > 0 && !t.begins_as(*tape_, position_)) continue;
    follow_tape(tapes_[i]);
    return true;
  }
  return false;
}

constexpr uint8_t kMostWasted = 2;

// From here on it is this tape that is expected, with the results that it had the last time.
void Recorder::follow_tape(base::Ref<Tape> tape) {
  drop_early();
  tape_ = std::move(tape);
  find_gates();
}

void Recorder::find_gates() {
  const Variant* v = tape_ ? tape_->variant.get() : nullptr;
  if (v && v->waited_for && v->wasted < kMostWasted && v->gates_known.load(std::memory_order_acquire) && !v->gates.empty())
    next_gate_ = v->gates[0].tokens;
}

// What has begun is not what happens. It is let go by the next launch: here nothing may call a plugin.
void Recorder::drop_early() {
  next_gate_ = SIZE_MAX;
  const bool in_vain = std::exchange(begun_, {}).steps > 0;
  if (!early_) return;
  early_->drop();
  early_->variant->wasted += in_vain;
  dropped_.push_back(std::move(early_));
}

base::Ref<Early> Recorder::begin(bool has_room) {
  if (position_ < next_gate_) return nullptr;
  const std::vector<Gate>& gates = tape_->variant->gates;
  auto next = std::ranges::find_if(gates, [this](const Gate& g) { return g.tokens > position_; });
  next_gate_ = next == gates.end() ? SIZE_MAX : next->tokens;
  if (!has_room) return nullptr;
  const Gate& gate = *std::prev(next);
  if (!early_) early_ = base::make_ref<Early>(tape_->variant, tape_->inputs.size() + tape_->scalars.size());
  MetInputs met;
  met.reserve(gate.inputs - begun_.inputs + gate.scalars - begun_.scalars);
  for (uint32_t i = begun_.inputs; i < gate.inputs; i++) met.emplace_back(i, exec::Binding{inputs_[i].data, {}, inputs_[i].part, inputs_[i].offset, inputs_[i].size});
  for (uint32_t i = begun_.scalars; i < gate.scalars; i++)
    met.emplace_back(static_cast<uint32_t>(tape_->inputs.size()) + i, exec::Binding{.scalar = scalars_[i]});
  begun_ = gate;
  return early_->allow(std::move(met), gate.steps) ? early_ : nullptr;
}

const uint64_t* Recorder::replay(Call& call) {
  blocked_by_ = nullptr;
  if (!replay_) return nullptr;
  if (own_) return replay_parent(call);
  if (position_ == 0 && !tape_) follow_tape(guess_);
  if (!tape_ && tapes_.empty()) return nullptr;
  uint64_t parts = 0, moved = 0;
  if (tape_ && position_ < tape_->tokens.size()) parts = tape_->token(position_).parts, moved = tape_->token(position_).moved;
  if (parts && !can_be_parts(call, parts)) parts = 0;
  if (!take_roles(call, parts)) return nullptr;
  moved_.clear();
  if (moved && !can_move(call, moved)) moved = 0;
  if (moved) move_words(call, moved);
  const bool is_next = tape_ && matches(call, *tape_, position_);
  if (is_next ? tape_->is_guess(position_) : !((position_ == 0 || tape_) && switch_tape(call, parts, moved))) {
    undo_roles();
    unmove_words(call);
    return nullptr;
  }
  const Token& token = tape_->token(position_);
  commit(call, token);
  return token.meta_words();
}

// Takes the call for the tape's token at position_, with the parts and moved words that it has there. False, and nothing has
// changed, if it is another call, or meets other slots.
bool Recorder::take_as(Call& call, const Tape& tape) {
  const Token& token = tape.token(position_);
  if (token.op != call.op || token.signature != call.signature.size()) return false;
  if (!can_be_parts(call, token.parts) || !can_move(call, token.moved)) return false;
  if (!take_roles(call, token.parts)) return false;
  moved_.clear();
  if (token.moved) move_words(call, token.moved);
  if (next_slot_ == tape.tokens[position_].first_result && matches(call, tape, position_)) return true;
  unmove_words(call);
  undo_roles();
  return false;
}

// A trace that has left its tape (a size has changed, say) mostly makes the same calls there: what is equal word by word has
// the same results. A call more or less, and slots are no longer the same.
const uint64_t* Recorder::replay_parent(Call& call) {
  if (!parent_ || position_ >= parent_->tokens.size() || parent_->is_guess(position_)) return nullptr;
  if (!take_as(call, *parent_)) return nullptr;
  return write(call, parent_->tokens[position_].token);
}

// The token at position_ of tape_ is what happened: move on.
void Recorder::commit(Call& call, const Token& token) {
  for (const lazyt_scalar_t& scalar : call.scalars) push_by_words(scalars_, scalar);
  first_result_ = next_slot_;
  fresh_count_ = token.fresh;
  uint32_t slot = first_result_ + token.fresh;
  for (uint32_t w : call.writes) bind(*call.operands[w], slot++);
  next_slot_ = slot;
  position_++;
  nodes_.push_back(call.nodes);
  call.op->recorded->add_locked();
  for (base::Counter* c : call.op->stands_for) c->add_locked();
}

// The trace so far, as a tape that ends here.
base::Ref<Tape> Recorder::snapshot() const {
  auto own = base::make_ref<Tape>();
  own->default_float = default_float();
  own->flags = flags();
  if (position_ > 0) {
    const Tape& t = *tape_;
    own->tokens.assign(t.tokens.begin(), t.tokens.begin() + position_);
    for (const Placed& placed : own->tokens) own->words += placed.token->word_count();
    own->slots.assign(t.slots.begin(), t.slots.begin() + next_slot_);
    own->inputs.assign(t.inputs.begin(), t.inputs.begin() + inputs_.size());
    own->scalars.assign(t.scalars.begin(), t.scalars.begin() + scalars_.size());
  }
  return own;
}

// From here on the trace has a tape of its own: a copy of what it followed.
void Recorder::start_own_tape() {
  drop_early();
  parent_ = std::exchange(tape_, snapshot());
  own_ = aligned_ = true;
}

const uint64_t* Recorder::append(Call& call, const Words& metas, uint32_t fresh,
                                 std::shared_ptr<const ir::SourceLine> source) {
  blocked_by_ = nullptr;
  if (const uint64_t* words = confirm_guess(call, metas, fresh)) return words;
  if (!own_) start_own_tape();
  const uint64_t parts = parts_that_move(call);
  const uint64_t moved = words_that_move(call, parts);
  if (!take_roles(call, parts)) return nullptr;
  moved_.clear();
  if (moved) move_words(call, moved);
  const TokenHeader header{.op = call.op, .scalars = static_cast<uint32_t>(call.scalars.size()), .fresh = fresh, .written = static_cast<uint32_t>(call.writes.size())};
  return write(call, Token::of(header, {call.signature.begin(), call.signature.end()}, {call.roles.begin(), call.roles.end()}, metas, parts, moved, std::move(source)));
}

// The call is what was guessed, and its results are: the trace goes on along the guess.
const uint64_t* Recorder::confirm_guess(Call& call, const Words& metas, uint32_t fresh) {
  if (own_ || !tape_ || !tape_->is_guess(position_)) return nullptr;
  if (next_gate_ == SIZE_MAX && !early_) find_gates();  // it may have been compiled meanwhile
  const Token& token = tape_->token(position_);
  if (token.fresh != fresh || token.metas != metas.size() || std::memcmp(token.meta_words(), metas.data(), token.metas * 8) != 0) return nullptr;
  const uint32_t slot = next_slot_;
  if (!take_as(call, *tape_)) return nullptr;
  const std::vector<Slot> made = slots_of(call, slot, metas.data(), fresh);
  if (!std::equal(made.begin(), made.end(), tape_->slots.begin() + slot, [](const Slot& a, const SlotRef& b) { return a == *b; })) {
    unmove_words(call);
    undo_roles();
    return nullptr;
  }
  commit(call, token);
  return token.meta_words();
}

// What the slots show that the call makes, those of what it met first before those of its results. first: of them.
// REQUIRES: call.roles taken, its words moved; tape_ has the slots before.
std::vector<Slot> Recorder::slots_of(const Call& call, uint32_t first, const uint64_t* metas, uint32_t fresh) const {
  std::vector<Slot> made;
  const auto add = [&](base::Meta meta, uint64_t bytes) { made.push_back({std::move(meta), bytes}); };
  std::vector<const uint64_t*> geometry;  // of each operand, in the signature
  if (!met_.empty() || !call.writes.empty())
    for_each_tensor(call.signature.data(), call.signature.size(), [&](const uint64_t* w) { geometry.push_back(w); });
  // Bytes that had no writer are elements of what shows them first: parts of it are written without a cast.
  const auto unwritten_meta = [&](const Storage& s) {
    const size_t shows = static_cast<size_t>(std::ranges::find(call.operands, &s) - call.operands.begin());
    const auto dtype = shows < geometry.size() ? meta_of_tensor(geometry[shows]).dtype : LAZYT_DTYPE_UINT8;
    const uint64_t size = lazyt_dtype_size(dtype);
    return s.size_bytes % size == 0 ? base::Meta::contiguous(dtype, {static_cast<int64_t>(s.size_bytes / size)})
                                    : base::Meta::contiguous(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(s.size_bytes)});
  };
  for (const Met& m : met_) {
    const Storage& s = *m.storage;
    if (m.part) {
      base::Meta part = meta_of_tensor(m.part);
      const uint64_t bytes = part.span_bytes();
      add(std::move(part), bytes);
    } else {
      add(s.data ? s.data->meta : unwritten_meta(s), s.size_bytes);
    }
  }
  // Natural geometry of the results: a fresh one's own; a written one keeps its storage's, and
  // bytes that had none take the geometry of the first view that covers them all.
  for (uint32_t i = 0; i < fresh; i++) {
    base::Meta meta = take_meta(metas);
    const uint64_t bytes = meta.span_bytes();
    add(std::move(meta), bytes);
  }
  for (uint32_t index : call.writes) {
    const Storage& s = *call.operands[index];
    const uint64_t* g = geometry[index];
    base::Meta written = meta_of_tensor(g);
    base::Meta natural = s.slot < first ? tape_->slots[s.slot]->meta : made[s.slot - first].meta;
    bool covers = g[1] == 0 && written.numel() > 0 && written.is_dense() && written.span_bytes() == s.size_bytes;
    bool unwritten = !s.pending && !s.data;
    add(unwritten && covers ? std::move(written) : std::move(natural), s.size_bytes);
  }
  return made;
}

// Appends the call's token. REQUIRES: own_; call.roles taken, its words moved.
const uint64_t* Recorder::write(Call& call, base::Ref<const Token> token) {
  Tape& t = *tape_;
  const auto first = static_cast<uint32_t>(t.slots.size());
  for (size_t i = 0; i < met_.size(); i++)
    if (met_[i].part || met_[i].storage->data) t.inputs.push_back(first + static_cast<uint32_t>(i));
  for (Slot& made : slots_of(call, first, token->meta_words(), token->fresh)) {
    const size_t at = t.slots.size();
    const bool as_parent = parent_ && at < parent_->slots.size() && *parent_->slots[at] == made;
    t.slots.push_back(as_parent ? parent_->slots[at] : std::make_shared<const Slot>(std::move(made)));
  }
  t.scalars.insert(t.scalars.end(), call.scalar_types.begin(), call.scalar_types.end());
  const Token& written = *token;
  t.add(std::move(token), next_slot_);
  aligned_ = aligned_ && goes_on_as_parent(call, written.parts);
  commit(call, written);
  return written.meta_words();
}

// The known tape of as many tokens, if there is one, that is what the tape begins with.
Tape* Recorder::known_like(const Tape& tape, size_t tokens) const {
  const auto known = std::ranges::find_if(tapes_, [&](const auto& t) { return t->tokens.size() == tokens && t->begins_as(tape, tokens); });
  return known == tapes_.end() ? nullptr : known->get();
}

// The trace ends here: tape_ becomes a finished tape that ends here, too.
void Recorder::finish_tape() {
  const bool ends_here = !own_ && tape_->tokens.size() == position_;
  if (ends_here && !tape_->guessed) return;
  if (Tape* known = known_like(*tape_, position_)) {
    tape_ = base::Ref<Tape>(known);
    return;
  }
  if (!own_ && !ends_here) start_own_tape();
  if (!replay_) return;
  evict();
  tapes_.push_back(tape_);
  Tape& t = *tape_;
  // A guess is as long as it will be, and the executor may read it.
  if (std::exchange(t.guessed, false)) {
    static base::Counter& followed = base::counter("FollowedAhead");
    return followed.add_locked();
  }
  // Kept for long, and grown by doubling.
  t.tokens.shrink_to_fit(), t.slots.shrink_to_fit();
}

// By which the tape may go on; null: none is known.
const Growth* Recorder::growth_of(const base::Ref<Tape>& tape) const {
  const auto found = std::ranges::find(growing_, tape, &Growth::tape);
  return found == growing_.end() ? nullptr : &*found;
}

// What the tape becomes in the next step.
base::Ref<Tape> Recorder::grown(const base::Ref<Tape>& tape) const {
  const Growth* growth = growth_of(tape);
  return growth ? growth->next : tape;
}

// What may come after the tape, which came after `last`.
base::Ref<Tape> Recorder::after(const base::Ref<Tape>& tape, const base::Ref<Tape>& last) const {
  if (tape->next) return tape->next == last ? grown(last) : tape->next;
  // As far in the step before: what came after what `last` has grown from, and then.
  if (const Growth* growth = growth_of(last))
    if (const base::Ref<Tape>& before = growth->before->next; before && before->next) return grown(before->next);
  return tape;
}

void Recorder::expect(Growth growth) {
  if (!replay_ || !growth.next->guessed || growth.next->flags != flags()) return;
  if (Tape* known = known_like(*growth.next, growth.next->tokens.size())) growth.next = base::Ref<Tape>(known);
  else if (growth.next->variant)
    growth.next->variant->waited_for = growth.tape->variant->waited_for, growth.next->variant->wasted = growth.tape->variant->wasted;
  growing_.push_front(std::move(growth));
  if (growing_.size() > kGrowing) growing_.pop_back();
  const auto& [before, tape, next] = growing_.front();
  if (position_ == 0 && last_ == tape && !tape->next && before->next) guess_ = grown(before->next);
}

void Recorder::evict() {
  size_t words = kept_words(*tape_);
  if (tapes_.size() >= kFewTapes)
    for (auto& t : tapes_) words += kept_words(*t);
  while (tapes_.size() >= max_tapes_ || (tapes_.size() >= kFewTapes && words > kMaxWords)) {
    auto oldest = std::min_element(tapes_.begin(), tapes_.end(), [](auto& a, auto& b) { return a->used < b->used; });
    for (auto& t : tapes_)
      if (t->next == *oldest) t->next = nullptr;
    words -= kept_words(**oldest);
    (*oldest)->next = nullptr;
    (*oldest)->forgotten = true;
    tapes_.erase(oldest);
  }
}

Launch Recorder::flush(FlushReason reason) {
  assert(position_ > 0);
  const Tape* guess = tape_->guessed ? tape_.get() : nullptr;
  finish_tape();
  Tape& t = *tape_;
  t.used = ++clock_;
  // What a step before kept alive would be computed for ever after.
  if (&t == guess && t.variant && t.variant->outputs.size() != live_count_) t.variant = nullptr, t.output_of_slot.clear();

  // Outputs: all that was ever live at this tape's end. What is not live now is computed and dropped.
  if (t.output_of_slot.empty()) t.output_of_slot.assign(t.slots.size(), ir::kNone);
  bool grown = !t.variant;
  for (Storage* s = live_.next; s != &live_; s = s->next)
    if (t.output_of_slot[s->slot] == ir::kNone) {
      t.output_of_slot[s->slot] = 0;
      grown = true;
    }
  if (grown) {
    t.variant = base::make_ref<Variant>();
    for (uint32_t slot = 0; slot < t.slots.size(); slot++)
      if (t.output_of_slot[slot] != ir::kNone) t.add_output(slot);
  }

  // The trace may have come to the tape's end with other results than those that the plan has.
  if (early_ && early_->variant != t.variant) drop_early();
  t.variant->waited_for = reason == FlushReason::kValueNeeded;

  Launch launch;
  launch.dead = take_dead(device);
  launch.early = std::move(early_);
  if (launch.early) launch.early->close(), t.variant->wasted = 0;
  launch.dropped = std::exchange(dropped_, {});
  next_gate_ = SIZE_MAX;
  begun_ = {};
  launch.tape = tape_;
  launch.variant = t.variant;
  launch.reason = reason;
  launch.step = ++last_step;
  launch.outputs.reserve(t.variant->outputs.size());
  for (size_t i = 0; i < t.variant->outputs.size(); i++)
    launch.outputs.push_back(base::make_ref<exec::Data>(t.variant->metas[i], t.slots[t.variant->outputs[i]]->bytes));
  for (Storage* s = live_.next; s != &live_;) {
    Storage* next = s->next;
    s->data = launch.outputs[t.output_of_slot[s->slot]];
    unlink(*s);
    s = next;
  }
  launch.inputs.reserve(inputs_.size() + scalars_.size());
  for (Input& in : inputs_) launch.inputs.push_back({std::move(in.data), {}, in.part, in.offset, in.size});
  for (const auto& scalar : scalars_) launch.inputs.push_back({.scalar = scalar});

  if (last_ && replay_) last_->next = tape_;
  guess_ = after(tape_, std::exchange(last_, tape_));
  tape_ = parent_ = nullptr;
  own_ = false;
  position_ = 0;
  first_node_ = nodes_.back() & ~kHooked;
  nodes_.clear();
  disturbed_ = false;
  next_slot_ = 0;
  inputs_.clear();
  scalars_.clear();
  elsewhere_.clear();
  epoch_ = ++last_epoch;
  return launch;
}

std::vector<uint32_t> Recorder::pending_slots(const Storage* only) const {
  std::vector<uint32_t> slots;
  for (const Storage* s = live_.next; s != &live_; s = s->next)
    if (!only || s == only) slots.push_back(s->slot);
  std::sort(slots.begin(), slots.end());
  return slots;
}

void Recorder::set_default_float(base::DType dtype) {
  clear_tapes();
  default_float_.store(dtype, std::memory_order_relaxed);
}

void Recorder::set_flags(lazyt_compile_flags_t flags) {
  of_other_flags_[this->flags()] = {std::move(tapes_), std::move(guess_), std::move(last_)};
  Known known = std::exchange(of_other_flags_[flags], {});
  tapes_ = std::move(known.tapes), guess_ = std::move(known.guess), last_ = std::move(known.last);
  flags_.store(flags, std::memory_order_relaxed);
}

size_t Recorder::tape_count() const {
  size_t count = tapes_.size();
  for (const auto& [flags, known] : of_other_flags_) count += known.tapes.size();
  return count;
}

void Recorder::clear_tapes() {
  growing_.clear();
  auto clear = [](Known known) {
    for (auto& t : known.tapes) t->next = nullptr, t->forgotten = true;  // tapes may follow each other in a ring
    if (known.last) known.last->next = nullptr;
  };
  clear({std::move(tapes_), std::move(guess_), std::move(last_)});
  for (auto& [flags, known] : of_other_flags_) clear(std::move(known));
  of_other_flags_.clear();
}

}  // namespace lazyt::trace
