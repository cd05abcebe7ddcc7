// Tape: one recorded trace, from its first operator to the flush, as words that can be followed.
//
// Values are slots, numbered in the order in which a trace meets them: an input at its first use, a
// result when its operator is recorded. Since numbering depends on nothing else, the same
// step of a program gives the same words, whatever tensors, addresses and scalars it uses.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ref.h"
#include "base/shape.h"
#include "exec/plan.h"
#include "ir/graph.h"
#include "trace/op.h"
#include "trace/words.h"

namespace lazyt::trace {

// What is known of an operator call beside its words: signature, roles and result metas (fresh, written).
struct TokenHeader {
  const Op* op;
  uint32_t signature = 0;  // words
  uint32_t roles = 0;      // words
  uint32_t metas = 0;      // words
  uint32_t scalars;        // host scalars the call brings
  uint32_t fresh;          // results that are new tensors
  uint32_t written;        // results that go into written tensors
  friend bool operator==(const TokenHeader&, const TokenHeader&) = default;
};

// One operator call as it was recorded, and the words behind it. Tapes share it: those that begin alike, and those that differ in
// a size which it does not depend on, as most of a token of a text does not.
struct Token final : base::RefCounted, TokenHeader {
  const uint64_t parts;  // operands (bits) that are part inputs
  const uint64_t moved;  // movable words (bits) whose values are host scalars
  const std::shared_ptr<const ir::SourceLine> source;

  // Its words are to be written, before others see it.
  static base::Ref<Token> make(const TokenHeader& header, uint64_t parts, uint64_t moved, std::shared_ptr<const ir::SourceLine> source) {
    void* place = ::operator new(sizeof(Token) + 8 * (size_t{header.signature} + header.roles + header.metas));
    return base::Ref<Token>(::new (place) Token(header, parts, moved, std::move(source)));
  }
  // The same with words that are there already; header: all but their counts.
  static base::Ref<Token> of(TokenHeader header, std::span<const uint64_t> signature, std::span<const uint64_t> roles, std::span<const uint64_t> metas,
                             uint64_t parts = 0, uint64_t moved = 0, std::shared_ptr<const ir::SourceLine> source = nullptr);
  static void operator delete(void* token) { ::operator delete(token); }

  uint64_t* words() { return reinterpret_cast<uint64_t*>(this + 1); }
  const uint64_t* words() const { return reinterpret_cast<const uint64_t*>(this + 1); }
  size_t word_count() const { return size_t{signature} + roles + metas; }
  const uint64_t* role_words() const { return words() + signature; }
  const uint64_t* meta_words() const { return words() + signature + roles; }
  // Whether both are one call, word by word.
  bool says_as(const Token& other) const {
    return this == &other || (static_cast<const TokenHeader&>(*this) == other && std::equal(words(), words() + word_count(), other.words()));
  }

 private:
  Token(const TokenHeader& header, uint64_t parts, uint64_t moved, std::shared_ptr<const ir::SourceLine> source)
      : TokenHeader(header), parts(parts), moved(moved), source(std::move(source)) {}
};
static_assert(sizeof(Token) % alignof(uint64_t) == 0);

// A token in its tape.
struct Placed {
  base::Ref<const Token> token;
  uint64_t prefix_hash;   // of all words up to the end of this token
  uint32_t first_result;  // slot of the first result
  bool guessed = false;   // of a guessed tape: what it has of sizes nobody has recorded yet
};

// What a slot shows of bytes: their natural geometry, and the size of the storage behind it. Shared as tokens are.
struct Slot {
  base::Meta meta;
  uint64_t bytes = 0;
  friend bool operator==(const Slot&, const Slot&) = default;
};
using SlotRef = std::shared_ptr<const Slot>;

struct ScalarType {
  base::DType dtype;
  bool weak;
};

// After so many tokens a trace has met so many inputs and scalars, all that the plan's first steps read (early.h).
struct Gate {
  uint32_t tokens, steps, inputs, scalars;
};

// A set of outputs of a tape, and the plan that computes them. The plan is made on the executor
// thread at first launch.
struct Variant : base::RefCounted {
  std::vector<uint32_t> outputs;  // slots, ascending
  std::vector<std::shared_ptr<const base::Meta>> metas;  // of the outputs, shared with their data
  base::Ref<exec::Plan> plan;     // executor only
  std::vector<uint32_t> rewrites; // executor only: for each output the input whose storage it goes into, or ir::kNone
  // What a launch takes, of the last two the shorter: one that was interrupted says nothing.
  std::atomic<uint32_t> launch_ns{UINT32_MAX};
  uint32_t last_launch_ns = UINT32_MAX;  // executor only
  std::vector<Gate> gates;               // of the first plan; written once, before gates_known
  std::atomic<bool> gates_known{false};
  void set_gates(std::vector<Gate> of_plan) {
    gates = std::move(of_plan);
    gates_known.store(true, std::memory_order_release);
  }
  bool waited_for = false;  // the last time; recorder's mutex
  uint8_t wasted = 0;       // how often what had begun was dropped, since it last was of use; recorder's mutex
};

struct Tape : base::RefCounted {
  // What a caller keeps of a tape, and loses with it.
  struct Kept {
    virtual ~Kept() = default;
  };
  std::vector<Placed> tokens;
  size_t words = 0;                   // of its tokens: that it would hold if it shared none
  std::vector<SlotRef> slots;
  std::vector<uint32_t> inputs;       // slots that are inputs, in order
  std::vector<ScalarType> scalars;
  base::DType default_float = LAZYT_DTYPE_FLOAT32;  // what integers become beside a Python float
  lazyt_compile_flags_t flags = 0;                  // of its programs
  base::Ref<Variant> variant;         // of the last launch; recorder's mutex
  std::vector<uint32_t> output_of_slot;  // index into variant->outputs, or none; as long as slots
  base::Ref<Tape> next;               // what followed it last time: the first guess for the next trace
  uint64_t used = 0;                  // when it was last followed, for eviction
  bool forgotten = false;             // no recorder knows it any more
  bool guessed = false;               // no trace has come to its end (ahead.h); recorder's mutex
  std::unique_ptr<Kept> backwards;    // the frontend's (backward.h)

  // The slot is an output of the variant, too. REQUIRES: output_of_slot has all slots
  void add_output(uint32_t slot) {
    output_of_slot[slot] = static_cast<uint32_t>(variant->outputs.size());
    variant->outputs.push_back(slot);
    variant->metas.push_back(std::shared_ptr<const base::Meta>(slots[slot], &slots[slot]->meta));
  }
  bool is_guess(size_t token) const { return guessed && token < tokens.size() && tokens[token].guessed; }
  const Token& token(size_t index) const { return *tokens[index].token; }
  void add(base::Ref<const Token> token, uint32_t first_result, bool guessed = false);
  // Whether both begin with the same tokens. REQUIRES: they have so many
  bool begins_as(const Tape& other, size_t count) const;
};

// Sizes that grow have made `before` to `tape`, and may make that to `next`, which is guessed.
struct Growth {
  base::Ref<Tape> before, tape, next;
};

}  // namespace lazyt::trace
