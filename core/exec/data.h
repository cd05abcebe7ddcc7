// Data: the bytes of one storage on a device, which may still be on their way.
//
// Made empty by whoever launches the work that will fill it, filled once by the executor (fulfil or
// poison), read by later work and by waits. What is filled never changes but by donation, and
// donation happens only when a launch holds the last reference, so nobody can see it.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/ref.h"
#include "base/shape.h"
#include "base/status.h"
#include "loader/handles.h"

namespace lazyt::exec {

class Data : public base::RefCounted {
 public:
  // meta: how the bytes lie (the natural geometry of the storage), never an offset.
  Data(base::Meta meta, uint64_t size_bytes);
  Data(base::Meta meta, uint64_t size_bytes, base::Ref<loader::Buffer> buffer);  // filled

  const base::Meta meta;
  const uint64_t size_bytes;
  const uint64_t stable_id;  // unique in the process; with version 1 it keys derived forms (EXE-7)

  // [executor] event may be null when the bytes are there already.
  void fulfil(base::Ref<loader::Buffer> buffer, base::Ref<loader::Event> event);
  void poison(base::Status error);

  // Blocks until filled and its event is ready; the error that poisoned it, if any. Callers
  // must not hold the GIL or a recorder's lock.
  base::Status wait() const;
  bool filled() const;
  // REQUIRES: filled.
  base::Ref<loader::Buffer> buffer() const;
  base::Ref<loader::Event> event() const;
  base::Status error() const;

  // wait(), then copies all bytes to dst (size_bytes of them).
  base::Status read(void* dst) const;
  base::Status read(uint64_t offset, void* dst, uint64_t size) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable filled_cv_;
  bool filled_ = false;
  base::Ref<loader::Buffer> buffer_;
  base::Ref<loader::Event> event_;
  base::Status error_;
};

}  // namespace lazyt::exec
