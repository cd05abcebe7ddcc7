// Data: the bytes of one storage on a device, which may still be on their way.
//
// Made empty by whoever launches the work that will fill it, filled once by the executor (fulfil,
// alias or poison; the first wins), read by later work and by waits. What is filled never changes but
// by donation, and donation happens only when a launch holds the last reference, so nobody can see it;
// and what is poisoned may get the bytes from before the launch that failed, once its error was told.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/ref.h"
#include "base/shape.h"
#include "base/spin_lock.h"
#include "base/status.h"
#include "loader/handles.h"

namespace lazyt::exec {

// What all that a failed launch was to fill has in common. Once somebody was told (the error was raised), what a
// launch without memory was to write in place is as it was before: a program that catches the error can go on.
struct Failure : base::RefCounted {
  std::atomic<bool> told{false};
};

class Data final : public base::RefCounted {
 public:
  static void* operator new(size_t size);
  static void operator delete(void* p) noexcept;
  // meta: how the bytes lie (the natural geometry of the storage), never an offset.
  Data(base::Meta meta, uint64_t size_bytes);
  Data(std::shared_ptr<const base::Meta> meta, uint64_t size_bytes);
  Data(base::Meta meta, uint64_t size_bytes, base::Ref<loader::Buffer> buffer);  // filled

  const std::shared_ptr<const base::Meta> shared_meta;
  const base::Meta& meta = *shared_meta;
  const uint64_t size_bytes;
  const uint64_t stable_id;  // unique in the process; with version 1 it keys derived forms (EXE-7)

  struct Filling {
    base::Ref<loader::Buffer> buffer;
    base::Ref<loader::Event> event;            // null: the bytes are there already
    bool opaque = false;                       // private layout: only to_host may read it
    std::shared_ptr<const base::Note> origin;  // added to an error of event; may be null
  };

  // [executor] event may be null when the bytes are there already.
  void fulfil(base::Ref<loader::Buffer> buffer, base::Ref<loader::Event> event);
  void fulfil(Filling filling);
  // before: what the storage held, null if that is lost or this is no storage that was written in place.
  void poison(base::Status error, base::Ref<Failure> failure = nullptr, const base::Ref<Data>& before = nullptr);
  // [executor] Shares the buffer of source, which must be filled. While both live neither is donated:
  // this one holds a reference to source.
  void alias(const base::Ref<Data>& source);
  // The same through another device's buffer over the source's memory.
  void alias(const base::Ref<Data>& source, base::Ref<loader::Buffer> buffer);

  // Blocks until filled and its event is ready; the error that poisoned it, if any. Callers
  // must not hold the GIL or a recorder's lock.
  base::Status wait() const;
  bool filled() const;
  // All that a launch asks of an input, under one lock.
  struct State {
    bool filled = false, opaque = false, aliased = false;
    base::Status error;
    base::Ref<loader::Buffer> buffer;
    base::Ref<loader::Event> event;
  };
  State state() const;
  // REQUIRES: filled.
  base::Ref<loader::Buffer> buffer() const;
  base::Ref<loader::Event> event() const;  // null once it is known to be ready without an error
  base::Status error() const;
  bool opaque() const;
  // Of what is poisoned: null if its error was told already, or if it came from its event.
  base::Ref<Failure> failure() const;

  // wait(), then copies all bytes to dst (size_bytes of them).
  // keep: owns dst, should the plugin hang while it writes there.
  base::Status read(void* dst) const;
  base::Status read(uint64_t offset, void* dst, uint64_t size, loader::Keep keep = nullptr) const;

  // Moves the bytes to another device, through the host; waits for them. [executor]
  base::Status move_to(const base::Ref<loader::Device>& device);

  // Unfinished work that reads the bytes: who overwrites them must wait for it. [executor]
  void add_reader(base::Ref<loader::Event> event);
  std::vector<base::Ref<loader::Event>> readers() const;
  // Whether a launch may hand the buffer over to an output, given its state. True only if the caller's reference is
  // the last.
  bool may_donate(const State& state) const {
    return unique() && state.filled && state.error.ok() && !state.aliased && !state.opaque;
  }

 private:
  mutable base::SpinLock mutex_;
  std::atomic<uint32_t> filled_{false};  // waited for; written under the lock
  // wait() is const but forgets event and origin once the work has succeeded: events are a plugin's
  // resource, and a parameter may live for the whole process.
  mutable Filling filling_;
  mutable base::Status error_;
  mutable base::Ref<Data> alias_of_;  // never itself an alias, so that chains stay short
  struct Poisoned {
    base::Ref<Failure> failure;
    base::Ref<Data> before;  // never itself poisoned
  };
  mutable std::unique_ptr<Poisoned> poisoned_;
  std::unique_lock<base::SpinLock> look() const;
  void share(const base::Ref<Data>& source) const;
  std::vector<base::Ref<loader::Event>> readers_;
};

}  // namespace lazyt::exec
