// Executables: what is compiled already of the plans there are, by its bytes, for the plans that come.
//
// Programs that differ in a size share what does not depend on it: of a token of a growing text all pieces
// (partition/pieces.h) but those with the attention. An executable remembers nothing (EXE-12), so plans that
// share one need not know.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "base/ref.h"
#include "base/sha256.h"
#include "base/status.h"
#include "ir/program.h"
#include "loader/handles.h"

namespace lazyt::cache {

class Executables {
 public:
  // Of each program, how many like it a plan has already. They are kept apart unless they keep nothing: a plugin may keep
  // by executable what it makes of weights, and those of two layers are not the same.
  using Turns = std::unordered_map<base::Digest, uint32_t, base::DigestHash>;
  // An executable of this program, compiled if there is none. turns: of the plan that it is for. [any thread]
  base::Result<base::Ref<loader::Executable>> get(const base::Ref<loader::Device>& device, const ir::Program& program,
                                                  lazyt_compile_flags_t flags, Turns& turns);
  size_t size() const;
  void clear();

 private:
  // Those that no plan has any more go when there are twice as many as were in use last.
  static constexpr size_t kFewest = 64;

  struct Key {
    base::Digest program;
    uint32_t turn;
    bool operator==(const Key&) const = default;
  };
  struct Hasher {
    size_t operator()(const Key& key) const { return base::DigestHash()(key.program) + key.turn; }
  };
  using Entries = std::unordered_map<Key, base::Ref<loader::Executable>, Hasher>;
  mutable std::mutex mutex_;
  Entries entries_;
  size_t sweep_at_ = kFewest;
};

}  // namespace lazyt::cache
