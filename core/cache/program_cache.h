// ProgramCache: from a program's bytes to its compiled plan; in memory, least recently used out.
//
// The key is a 128-bit hash of the block (notes left out) and the compile flags. A hit is proven: on
// the first hit of an entry the stored block is compared with the asked one, byte by byte, and a
// mismatch is a miss that is counted ("HashCollision") and kept apart.
#pragma once

#include <mutex>

#include "base/hash.h"
#include "cache/lru.h"
#include "exec/plan.h"
#include "ir/program.h"

namespace lazyt::cache {

class ProgramCache {
 public:
  explicit ProgramCache(size_t capacity = 1024);
  // Null on a miss. [any thread]
  base::Ref<exec::Plan> find(const ir::Program& program, lazyt_compile_flags_t flags);
  void insert(base::Ref<ir::Program> program, lazyt_compile_flags_t flags, base::Ref<exec::Plan> plan);
  size_t size() const;
  void clear();

  // For tests: every program hashes to the same number.
  void use_constant_hash_for_test() { constant_hash_ = true; }

 private:
  struct Entry;
  base::Hash128 key(const ir::Program& program, lazyt_compile_flags_t flags) const;
  mutable std::mutex mutex_;
  Lru<base::Hash128, std::vector<Entry>, base::Hash128::Hasher> entries_;
  bool constant_hash_ = false;
};

}  // namespace lazyt::cache
