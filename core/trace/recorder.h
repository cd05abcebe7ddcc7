// Recorder: turns operator calls into tapes, and follows tapes it already knows.
//
// While a known tape is followed, a call is compared with the tape's next token and nothing else
// is done: no node, no hash, no shapes. A call that differs looks for another tape with the same
// beginning; without one, the prefix is copied and recording goes on from there. Nothing is lost.
//
// Each thread that records has a recorder of its own, and so its own trace and tapes; they share storages. A value
// that is pending in one trace is met by another only once the first is cut: see blocked_by(). Data may be an
// input of several traces at once. A recorder belongs to one device and takes no operand of another.
//
// All functions but flush's caller-side work REQUIRE mutex() held: it is one for all recorders. Nothing in here
// calls out, takes the GIL, or drops a tensor.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ref.h"
#include "base/spin_lock.h"
#include "exec/plan.h"
#include "trace/early.h"
#include "trace/segment.h"
#include "trace/storage.h"
#include "trace/tape.h"

namespace lazyt::trace {

// Why a trace was cut. The names are those of the counters "Flush<Name>".
enum class FlushReason { kValueNeeded, kMarkStep, kOptimizerStep, kNodeBudget, kHostOperator, kOtherThread, kTimedEvent, kSetting, kBackendChange, kExit };
const char* flush_reason_name(FlushReason reason);

// One operator call, filled by the frontend. Reused from call to call: no allocation once warm.
struct Call {
  const Op* op = nullptr;
  WordBuffer signature;
  std::vector<Storage*> operands;  // lazy tensors, in order of the signature
  std::vector<uint32_t> writes;    // indices into operands, in argument order
  std::vector<lazyt_scalar_t> scalars;
  std::vector<ScalarType> scalar_types;
  uint32_t device = 0;  // index of the device it is for: that of its first operand
  uint64_t nodes = 0;   // of autograd's graph, as many as the thread had made before the call; kHooked: Python keeps what they save
  WordBuffer roles;  // filled by the recorder

  void clear(const Op* next) {
    op = next;
    signature.clear(), operands.clear(), writes.clear(), scalars.clear(), scalar_types.clear();
  }
};

inline constexpr uint64_t kHooked = uint64_t{1} << 63;

// A cut trace, ready to be run.
struct Launch {
  base::Ref<Tape> tape;
  base::Ref<Variant> variant;
  std::vector<exec::Binding> inputs;           // tensors, then scalars
  std::vector<base::Ref<exec::Data>> outputs;  // one per variant->outputs
  std::vector<base::Ref<exec::Data>> dead;     // what tensors left that died since the last launch: to be dropped first
  base::Ref<Early> early;                      // what of it has begun; may be null
  std::vector<base::Ref<Early>> dropped;       // what had begun in vain: to be dropped, too
  FlushReason reason = FlushReason::kMarkStep;
  uint64_t step = 0;  // number of this launch in the process
  uint32_t threads = 0;  // that the program wants for compute, 0 = it does not say
};

class Recorder {
 public:
  explicit Recorder(uint8_t device = 0);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  static base::SpinLock& mutex() { return recording_lock; }
  const uint8_t device;  // its index

  // The call is the next token of a known tape, or the one that the tape which this trace has left has here: records it and
  // returns the words of its result metas, valid until the next call. Null otherwise, and nothing has changed.
  const uint64_t* replay(Call& call);
  // The same in steps, for a caller that compares as it reads. What the followed tape has next, if all of it is in its words; null: ask replay.
  const Token* next_token() {
    if (own_ || !replay_ || !tape_ || position_ >= tape_->tokens.size() || tape_->is_guess(position_)) return nullptr;
    const Token& next = tape_->token(position_);
    if (next.parts | next.moved) return nullptr;
    met_.clear(), offsets_.clear();
    return &next;
  }
  // Whether the role entry at *role, of those to `end`, says what this trace knows the operand as, or may now know it as; moves on to the
  // next one.
  bool meet(Storage& s, const uint64_t** role, const uint64_t* end) {
    if (*role == end) return false;
    if (s.epoch == epoch_) return *(*role)++ == s.slot;
    return meet_first(s, role, end);
  }
  // The call was another one, if it was not taken: what it has met, it has not.
  void unmeet() {
    if (!met_.empty()) undo_roles();
  }
  // The call is that token; its numbers and what it writes are filled. Records it and returns as replay.
  const uint64_t* take(Call& call, const Token& token) {
    commit(call, token);
    met_.clear();
    return token.meta_words();
  }
  // Records a call that no tape has next, or only a guess. metas: fresh results, then written ones, as put_meta writes.
  // Returns where they now stand; null if blocked_by(). REQUIRES: the operands lie on the recorder's device.
  const uint64_t* append(Call& call, const Words& metas, uint32_t fresh, std::shared_ptr<const ir::SourceLine> source);
  // After either returned null: the recorder in whose trace an operand is pending. Without the mutex, that one is
  // to be flushed and the call tried again. Null: nothing stands in the way.
  Recorder* blocked_by() const { return blocked_by_; }
  // After either: the slot of the first result. Fresh result i takes slot first_result() + i and must be
  // bound before the mutex is let go; undefined ones take a slot, too.
  uint32_t first_result() const { return first_result_; }
  uint32_t fresh_count() const { return fresh_count_; }  // results that are new tensors
  void bind(Storage& s, uint32_t slot) {
    if (s.shared) forget_elsewhere(s);
    s.recorder = this;
    s.epoch = epoch_;
    s.slot = slot;
    s.data = nullptr;
    link(s);
  }

  // How far the trace has come.
  Place place() const;
  const std::vector<base::Ref<Tape>>& tapes() const { return tapes_; }  // that are known
  base::Ref<Tape> followed() const { return own_ || !replay_ || (tape_ && tape_->guessed) ? nullptr : tape_; }  // null: the trace is none that is known
  const Tape* expected() const { return (tape_ ? tape_ : guess_).get(); }  // what the trace follows, or is expected to
  // What was recorded since `from`, by a caller with these operands, the second of which it has written, if it followed a known tape
  // and can be followed at once the next time.
  std::optional<Segment> segment_since(const Place& from, std::span<Storage* const> operands, std::span<Storage* const> written = {}) const;
  // If nothing is known of what comes after the growth's tape, and it was cut last, the next trace is expected to follow what came after
  // `before`, grown likewise.
  void expect(Growth growth);
  // What the trace brought before the place, for a caller whose records depend on it. None: something of it is not known.
  std::optional<Before> before(const Place& place) const;
  // Whether the trace, as it stands, brought that.
  bool came_as(const Before& before) const;
  // Whether nothing that the segment reads of before it, beside its operands, may be something that a node of autograd's graph kept and
  // that was written since, which autograd refuses: where values were written in place, no node was made since they came to be, or
  // the write is a node's own.
  bool reads_what_nodes_keep(const Segment& segment) const;
  // Whether the trace takes the storages whole, under these slots.
  bool holds(std::span<Storage* const> storages, std::span<const uint32_t> slots) const;
  // How many nodes of autograd's graph there were at the first call. REQUIRES: !empty().
  uint64_t first_call() const { return nodes_[0]; }
  // From this number on they were made in this trace, since its last backward.
  uint64_t first_node() const { return first_node_; }
  void set_first_node(uint64_t nodes) { first_node_ = nodes; }
  // A tensor shows other bytes than the storage's from now on: what autograd kept of it in this trace may be another value.
  static void replaced(const Storage& storage);

  // Follows the segment, if its tape goes on here and each operand is what it was: its results have the slots they had, and those
  // that the caller wants must be bound before the mutex is let go. False: nothing has changed.
  bool follow(const Segment& segment, std::span<Storage* const> operands);

  // The storage takes bytes from outside the trace; or goes away, and with it its pending value.
  static void set_data(Storage& storage, base::Ref<exec::Data> data);
  static void forget(Storage& storage) {
    unlink(storage);
    if (storage.shared) forget_elsewhere(storage);
    storage.epoch = 0;
  }
  // A tensor died: forget, and take its data. Returns what is to be dropped without the mutex; little data waits for the
  // next launch instead, so that finalizers call no plugin and wake no thread.
  static base::Ref<exec::Data> let_go(Storage& storage);
  // What waits for a launch of the device, for callers that want the memory back now.
  static std::vector<base::Ref<exec::Data>> take_dead(uint8_t device);

  // Once pending_ops() has come so far, begin() has something to say.
  size_t next_gate() const { return next_gate_; }
  // What of the known program can run by now, to be handed to the executor; null if what it has already goes on with it, or if
  // it has no room: then the next gate is waited for.
  base::Ref<Early> begin(bool has_room);

  bool empty() const { return position_ == 0; }
  size_t pending_ops() const { return position_; }
  size_t live_storages() const { return live_count_; }

  // Cuts the trace: every pending storage gets data that the launch will fill. REQUIRES: !empty().
  Launch flush(FlushReason reason);

  // The pending trace as a tape of its own, for printing; and the slots of one pending storage or of all.
  base::Ref<Tape> snapshot() const;
  std::vector<uint32_t> pending_slots(const Storage* only) const;

  size_t tape_count() const;
  void set_replay(bool on) { replay_ = on; }
  void set_max_tapes(size_t n) { max_tapes_ = n; }  // at least 1: they keep programs
  // torch.get_default_dtype(), which decides dtypes of results: known tapes are forgotten. REQUIRES: empty().
  void set_default_float(base::DType dtype);
  base::DType default_float() const { return default_float_.load(std::memory_order_relaxed); }  // [any thread]
  // What the user's settings say of how programs are run. Tapes of other flags are kept apart. REQUIRES: empty().
  void set_flags(lazyt_compile_flags_t flags);
  lazyt_compile_flags_t flags() const { return flags_.load(std::memory_order_relaxed); }  // [any thread]
  // Forgets all tapes. REQUIRES: empty().
  void clear_tapes();

 private:
  bool matches(Call& call, const Tape& tape, size_t token);
  bool take_roles(Call& call, uint64_t parts);
  void take_whole(Storage& s);
  bool meet_first(Storage& s, const uint64_t** role, const uint64_t* end);
  void undo_roles();
  const uint32_t* slot_kept_for(const Storage& s) const;
  bool leads_to(const Segment& s) const;
  static void forget_elsewhere(Storage& s);
  bool can_be_part(const Call& call, size_t operand, const uint64_t* tensor) const;
  bool can_be_parts(const Call& call, uint64_t parts) const;
  uint64_t parts_that_move(const Call& call) const;
  void commit(Call& call, const Token& token);
  uint64_t words_that_move(const Call& call, uint64_t parts) const;
  static bool can_move(const Call& call, uint64_t moved);
  void move_words(Call& call, uint64_t moved);
  void unmove_words(Call& call);
  bool switch_tape(Call& call, uint64_t parts, uint64_t moved);
  bool goes_on_as_parent(const Call& call, uint64_t parts) const;
  bool take_as(Call& call, const Tape& tape);
  const uint64_t* replay_parent(Call& call);
  std::vector<Slot> slots_of(const Call& call, uint32_t first, const uint64_t* metas, uint32_t fresh) const;
  const Growth* growth_of(const base::Ref<Tape>& tape) const;
  base::Ref<Tape> grown(const base::Ref<Tape>& tape) const;
  base::Ref<Tape> after(const base::Ref<Tape>& tape, const base::Ref<Tape>& last) const;
  const uint64_t* confirm_guess(Call& call, const Words& metas, uint32_t fresh);
  Tape* known_like(const Tape& tape, size_t tokens) const;
  const uint64_t* write(Call& call, base::Ref<const Token> token);
  void follow_tape(base::Ref<Tape> tape);
  void find_gates();
  void drop_early();
  void start_own_tape();
  void finish_tape();
  void link(Storage& s) {
    if (s.pending) return;
    s.pending = true;
    s.previous = live_.previous;
    s.next = &live_;
    live_.previous->next = &s;
    live_.previous = &s;
    live_count_++;
  }
  static void unlink(Storage& s) {
    if (!s.pending) return;
    s.pending = false;
    s.recorder->live_count_--;
    s.previous->next = s.next;
    s.next->previous = s.previous;
    s.previous = s.next = nullptr;
  }
  void evict();

  bool replay_ = true;
  size_t max_tapes_ = 1024;
  std::atomic<base::DType> default_float_ = LAZYT_DTYPE_FLOAT32;
  std::atomic<lazyt_compile_flags_t> flags_ = 0;
  uint64_t epoch_ = 0;  // of the current trace: no other one of the process has it
  uint64_t clock_ = 0;
  struct Known {
    std::vector<base::Ref<Tape>> tapes;
    base::Ref<Tape> guess, last;
  };
  std::unordered_map<lazyt_compile_flags_t, Known> of_other_flags_;
  std::vector<base::Ref<Tape>> tapes_;  // known, finished
  base::Ref<Tape> tape_;                // followed, or (own_) being written
  base::Ref<Tape> parent_;              // what the own tape left
  base::Ref<Tape> guess_;               // to follow in the next trace
  base::Ref<Tape> last_;                // of the last trace
  std::deque<Growth> growing_;          // newest first: a step may be several traces
  bool own_ = false;
  bool aligned_ = false;  // the own tape is the parent's, but for what moved
  size_t position_ = 0;                 // tokens recorded in this trace
  std::vector<uint64_t> nodes_;         // Call::nodes of each
  uint64_t first_node_ = 0;
  bool disturbed_ = false;              // replaced(), or written from outside
  size_t next_gate_ = SIZE_MAX;         // of tape_, in tokens
  base::Ref<Early> early_;              // what of tape_ has begun
  Gate begun_{};                        // the gate of early_
  std::vector<base::Ref<Early>> dropped_;
  uint32_t next_slot_ = 0;
  uint32_t first_result_ = 0, fresh_count_ = 0;
  struct Input {
    base::Ref<exec::Data> data;
    bool part = false;
    uint64_t offset = 0, size = 0;  // bytes, of a part
  };
  std::vector<Input> inputs_;
  std::vector<lazyt_scalar_t> scalars_;
  Storage live_;  // head of the ring of pending storages
  size_t live_count_ = 0;
  Recorder* blocked_by_ = nullptr;
  // Slots of inputs that another recorder has met since, and tagged with its own.
  std::unordered_map<const Storage*, uint32_t> elsewhere_;
  // What the current call met first, in the order of the slots; a part has the words of its tensor. Scratch.
  struct Met {
    Storage* storage;
    const uint64_t* part = nullptr;
  };
  std::vector<Met> met_;
  std::vector<std::pair<uint64_t*, uint64_t>> offsets_;  // words of part inputs, and what the call says; scratch
  struct Moved {
    uint64_t* word;
    uint64_t value;
    size_t scalar;  // where it is among the call's scalars
  };
  std::vector<Moved> moved_;  // of the current call; scratch
};

}  // namespace lazyt::trace
