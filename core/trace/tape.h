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

#include "base/hash.h"
#include "base/ref.h"
#include "base/shape.h"
#include "exec/plan.h"
#include "ir/graph.h"
#include "trace/op.h"
#include "trace/words.h"

namespace lazyt::trace {

// What stands before each token's words; then signature, roles and result metas (fresh, written).
struct TokenHeader {
  const Op* op;
  uint32_t signature;  // words
  uint32_t roles;      // words
  uint32_t metas;      // words
  uint32_t scalars;    // host scalars the call brings
  uint32_t fresh;      // results that are new tensors
  uint32_t written;    // results that go into written tensors
};
static_assert(sizeof(TokenHeader) == 32);
inline constexpr size_t kHeaderWords = sizeof(TokenHeader) / 8;

struct Token {
  uint32_t offset;        // of the header, in words
  uint32_t first_result;  // slot of the first result
  uint64_t prefix_hash;   // of all words up to the end of this token
  std::shared_ptr<const ir::SourceLine> source;
  uint64_t parts = 0;     // operands (bits) that are part inputs
  uint64_t moved = 0;     // movable words (bits) whose values are host scalars
  bool guessed = false;   // of a guessed tape: what it has of sizes nobody has recorded yet
};

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
  Words words;
  std::vector<Token> tokens;
  std::vector<base::Meta> slots;      // natural geometry of each slot's bytes
  std::vector<uint64_t> slot_bytes;   // size of the storage behind it
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
    variant->metas.push_back(std::make_shared<const base::Meta>(slots[slot]));
  }
  bool is_guess(size_t token) const { return guessed && token < tokens.size() && tokens[token].guessed; }
  const TokenHeader& header(size_t token) const {
    return *reinterpret_cast<const TokenHeader*>(&words[tokens[token].offset]);
  }
};

// Sizes that grow have made `before` to `tape`, and may make that to `next`, which is guessed.
struct Growth {
  base::Ref<Tape> before, tape, next;
};

// Token::prefix_hash behind a token of these words. before: of the token before it, or 0.
inline uint64_t prefix_hash(uint64_t before, std::span<const uint64_t> words) {
  return base::hash128(words.data(), words.size_bytes(), before).low;
}

}  // namespace lazyt::trace
