// ProgramCache: from a program's bytes to its compiled plan; in memory, least recently used out.
//
// The key is the SHA-256 of the block (notes left out), of the compile flags and of whether the plan is one piece. That is the proof of a hit, so that
// nothing else is kept of a program: its block is as large as its tape.
#pragma once

#include <mutex>

#include "base/sha256.h"
#include "cache/executables.h"
#include "cache/lru.h"
#include "exec/plan.h"
#include "ir/program.h"

namespace lazyt::cache {

class ProgramCache {
 public:
  using Key = base::Digest;
  static Key key(const ir::Program& program, lazyt_compile_flags_t flags, bool whole = false) {
    return program.digest(flags | static_cast<uint64_t>(whole) << 63);
  }

  explicit ProgramCache(size_t capacity = 1024);
  // Null on a miss. [any thread]
  base::Ref<exec::Plan> find(const Key& key);
  // Replaces the key's plan. [any thread]
  void insert(const Key& key, base::Ref<exec::Plan> plan);
  size_t size() const;
  size_t capacity() const { return entries_.capacity(); }
  // What plans share. [any thread]
  Executables& executables() { return executables_; }
  void clear();

 private:
  using Entries = Lru<Key, base::Ref<exec::Plan>, base::DigestHash>;
  mutable std::mutex mutex_;
  Entries entries_;
  Executables executables_;
};

}  // namespace lazyt::cache
