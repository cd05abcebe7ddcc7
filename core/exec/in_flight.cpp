#include "exec/in_flight.h"

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
  std::list<Entry> done;  // released after the lock: a release may close a device
  std::lock_guard lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    auto next = std::next(it);
    if (it->event->ready()) done.splice(done.end(), entries_, it);
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

}  // namespace lazyt::exec
