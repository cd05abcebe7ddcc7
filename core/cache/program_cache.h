// ProgramCache: from a program's bytes to its compiled plan; in memory, least recently used out.
//
// The key is a 128-bit hash of the block (notes left out) and the compile flags. A hit is proven: the
// stored program is compared with the asked one, and a mismatch is a miss that is counted
// ("HashCollision") and kept apart. Every hit is compared, not only the first: the compare reads
// no more than the hash did, and a hash alone is never trusted with a result.
#pragma once

#include <mutex>
#include <vector>

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
  // Replaces the plan of an equal program. [any thread]
  void insert(base::Ref<ir::Program> program, lazyt_compile_flags_t flags, base::Ref<exec::Plan> plan);
  size_t size() const;
  void clear();

  // For tests: every program hashes to the same number.
  void use_constant_hash_for_test() { constant_hash_ = true; }

 private:
  struct Entry {
    base::Ref<ir::Program> program;
    lazyt_compile_flags_t flags;
    base::Ref<exec::Plan> plan;
  };
  using Bucket = std::vector<Entry>;  // more than one only where hashes collide
  base::Hash128 key(const ir::Program& program, lazyt_compile_flags_t flags) const;
  mutable std::mutex mutex_;
  Lru<base::Hash128, Bucket, base::Hash128::Hasher> entries_;
  bool constant_hash_ = false;
};

}  // namespace lazyt::cache
