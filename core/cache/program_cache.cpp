#include "cache/program_cache.h"

#include <algorithm>
#include <utility>

#include "base/counters.h"

namespace lazyt::cache {

ProgramCache::ProgramCache(size_t capacity) : entries_(std::max<size_t>(capacity, 1)) {}

base::Hash128 ProgramCache::key(const ir::Program& program, lazyt_compile_flags_t flags) const {
  if (constant_hash_) return {};
  return program.hash(flags);
}

base::Ref<exec::Plan> ProgramCache::find(const ir::Program& program, lazyt_compile_flags_t flags) {
  const base::Hash128 hash = key(program, flags);
  std::lock_guard lock(mutex_);
  const Bucket* bucket = entries_.get(hash);
  if (!bucket) return nullptr;
  for (const Entry& entry : *bucket)
    if (entry.flags == flags && entry.program->same_program(program)) return entry.plan;
  base::counter("HashCollision").add();
  return nullptr;
}

void ProgramCache::insert(base::Ref<ir::Program> program, lazyt_compile_flags_t flags,
                          base::Ref<exec::Plan> plan) {
  const base::Hash128 hash = key(*program, flags);
  Entry entry{std::move(program), flags, std::move(plan)};
  Bucket evicted;  // released after the lock: a plan's end calls the plugin
  std::lock_guard lock(mutex_);
  Bucket* bucket = entries_.get(hash);
  if (!bucket) {
    entries_.put(hash, {}, &evicted).push_back(std::move(entry));
    return;
  }
  for (Entry& old : *bucket)
    if (old.flags == flags && old.program->same_program(*entry.program)) {
      std::swap(old, entry);
      return;
    }
  bucket->push_back(std::move(entry));
}

size_t ProgramCache::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

void ProgramCache::clear() {
  auto old = decltype(entries_)(0);
  std::lock_guard lock(mutex_);
  entries_.swap(old);
}

}  // namespace lazyt::cache
