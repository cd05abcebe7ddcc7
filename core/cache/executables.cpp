#include "cache/executables.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/counters.h"

namespace lazyt::cache {

using base::Ref;
using loader::Executable;

base::Result<Ref<Executable>> Executables::get(const Ref<loader::Device>& device, const ir::Program& program,
                                               lazyt_compile_flags_t flags, Turns& turns) {
  const base::Digest digest = program.digest(flags);
  const Key key{digest, turns[digest]++};
  {
    std::lock_guard lock(mutex_);
    auto found = entries_.find({digest, 0});
    if (key.turn > 0 && (found == entries_.end() || !found->second->keeps_nothing())) found = entries_.find(key);
    if (found != entries_.end() && found->second->device == device) {
      static base::Counter& shared = base::counter("SharedExecutable");
      shared.add();
      return found->second;
    }
  }
  LAZYT_ASSIGN_OR_RETURN(Ref<Executable> made, Executable::compile(device, program, flags));
  std::vector<Ref<Executable>> unused;  // released after the lock: an executable's end calls the plugin
  std::lock_guard lock(mutex_);
  if (entries_.size() >= sweep_at_) {
    for (auto entry = entries_.begin(); entry != entries_.end();)
      if (entry->second->unique()) {
        unused.push_back(std::move(entry->second));
        entry = entries_.erase(entry);
      } else {
        ++entry;
      }
    sweep_at_ = std::max(kFewest, 2 * entries_.size());
  }
  Ref<Executable>& entry = entries_[key];
  unused.push_back(std::exchange(entry, made));
  return made;
}

size_t Executables::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

void Executables::clear() {
  Entries old;
  std::lock_guard lock(mutex_);
  entries_.swap(old);
  sweep_at_ = kFewest;
}

}  // namespace lazyt::cache
