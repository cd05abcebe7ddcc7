#include "exec/in_flight.h"

#include <algorithm>

#include "base/counters.h"
#include "base/log.h"

namespace lazyt::exec {

InFlight& InFlight::get() {
  // Leaked: static destructors run while executors of other owners may still sweep.
  static auto* in_flight = new InFlight;
  return *in_flight;
}

void InFlight::hold(base::Ref<loader::Event> event, Objects objects) {
  std::lock_guard lock(mutex_);
  entries_.push_back({std::move(event), std::move(objects)});
}

void InFlight::sweep() {
  // The plugin is asked without the lock: a call that hangs would keep it.
  std::vector<base::Ref<loader::Event>> ready;
  {
    std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) ready.push_back(entry.event);
  }
  std::erase_if(ready, [](const auto& event) { return !event->ready(); });
  if (ready.empty()) return;
  std::list<Entry> done;  // released after the lock: a release may close a device
  std::lock_guard lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    auto next = std::next(it);
    if (std::ranges::find(ready, it->event) != ready.end()) done.splice(done.end(), entries_, it);
    it = next;
  }
}

void InFlight::finish(const loader::Device* device) {
  std::list<Entry> mine;
  {
    std::lock_guard lock(mutex_);
    for (auto it = entries_.begin(); it != entries_.end();) {
      auto next = std::next(it);
      if (it->event->device.get() == device) mine.splice(mine.end(), entries_, it);
      it = next;
    }
  }
  // The outcome belongs to the outputs that carry the event; here only the end counts.
  for (auto& entry : mine) (void)entry.event->wait();
}

void InFlight::limit(const loader::Device* device, size_t limit) {
  while (true) {
    base::Ref<loader::Event> oldest;
    {
      std::lock_guard lock(mutex_);
      size_t count = 0;
      for (const Entry& entry : entries_)
        if (entry.event->device.get() == device && count++ == 0) oldest = entry.event;
      if (count < limit) return;
    }
    (void)oldest->wait();
    sweep();
  }
}

void make_room(const loader::Device& device) {
  base::counter("MemoryRetries").add();
  loader::settle();
  InFlight::get().finish(&device);
  loader::settle();
  if (base::Status trimmed = device.trim(); !trimmed.ok())
    base::log(LAZYT_LOG_WARNING, "memory is short, and trimming failed: " + trimmed.to_string());
}

}  // namespace lazyt::exec
