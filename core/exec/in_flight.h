// InFlight: keeps buffers alive while unfinished work reads or writes them (BUF-3).
//
// Plugins do not count references to buffers, so whoever starts work holds its buffers here until
// the event is ready. Nothing is released from inside an event's callback: the last reference to a
// buffer may be the last to its device and library. Instead launches and waits sweep.
#pragma once

#include <list>
#include <mutex>
#include <vector>

#include "base/ref.h"
#include "loader/handles.h"

namespace lazyt::exec {

class InFlight {
 public:
  static InFlight& get();  // one for the process, never destroyed

  using Objects =
      std::vector<base::Ref<const base::RefCounted>>;  // buffers, and the executable that uses them

  void hold(base::Ref<loader::Event> event, Objects objects);  // [any thread]
  // Releases what finished work held. Does not block on work. [any thread]
  void sweep();
  // Waits for all work on the device and releases what it held: before a device is closed. [any thread]
  void finish(const loader::Device* device);
  // Waits until less than `limit` pieces of work are unfinished on the device: a host that runs ahead of an
  // asynchronous device holds the memory of all it has launched. [any thread]
  void limit(const loader::Device* device, size_t limit);

 private:
  struct Entry {
    base::Ref<loader::Event> event;
    Objects objects;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;
};

// When memory is short: waits for the work in flight, whose buffers then go, and has the plugin free what it only
// caches. [any thread]
void make_room(const loader::Device& device);

// f(), and once more after make_room if it fails for want of memory. f returns a base::Result.
template <class F>
auto with_room(const loader::Device& device, F f) {
  auto result = f();
  if (result.ok() || result.status().code() != LAZYT_CODE_RESOURCE_EXHAUSTED) return result;
  make_room(device);
  return f();
}

}  // namespace lazyt::exec
