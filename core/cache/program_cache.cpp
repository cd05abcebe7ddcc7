#include "cache/program_cache.h"

#include <algorithm>
#include <utility>

namespace lazyt::cache {

ProgramCache::ProgramCache(size_t capacity) : entries_(std::max<size_t>(capacity, 1)) {}

base::Ref<exec::Plan> ProgramCache::find(const Key& key) {
  std::lock_guard lock(mutex_);
  const base::Ref<exec::Plan>* plan = entries_.get(key);
  return plan ? *plan : nullptr;
}

void ProgramCache::insert(const Key& key, base::Ref<exec::Plan> plan) {
  base::Ref<exec::Plan> evicted;  // released after the lock: a plan's end calls the plugin
  std::lock_guard lock(mutex_);
  if (base::Ref<exec::Plan>* old = entries_.get(key))
    evicted = std::exchange(*old, std::move(plan));
  else
    entries_.put(key, std::move(plan), &evicted);
}

size_t ProgramCache::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

void ProgramCache::clear() {
  executables_.clear();
  Entries old(0);
  std::lock_guard lock(mutex_);
  entries_.swap(old);
}

}  // namespace lazyt::cache
