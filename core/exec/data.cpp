#include "exec/data.h"

#include <fmt/format.h>

#include <atomic>

#include "base/free_list.h"
#include "exec/in_flight.h"

namespace lazyt::exec {

namespace {
uint64_t next_stable_id() {
  static std::atomic<uint64_t> next{1};  // 0 means "no key" (EXE-7)
  return next.fetch_add(1, std::memory_order_relaxed);
}
constinit base::FreeList<sizeof(Data)> data_memory;
}  // namespace

void* Data::operator new(size_t) { return data_memory.take(); }
void Data::operator delete(void* p) noexcept { data_memory.give_back(p); }

Data::Data(base::Meta meta, uint64_t size_bytes)
    : Data(std::make_shared<const base::Meta>(std::move(meta)), size_bytes) {}

Data::Data(std::shared_ptr<const base::Meta> meta, uint64_t size_bytes)
    : shared_meta(std::move(meta)), size_bytes(size_bytes), stable_id(next_stable_id()) {}

Data::Data(base::Meta meta, uint64_t size_bytes, base::Ref<loader::Buffer> buffer)
    : Data(std::move(meta), size_bytes) {
  filling_.buffer = std::move(buffer);
  filled_ = true;
}

void Data::fulfil(base::Ref<loader::Buffer> buffer, base::Ref<loader::Event> event) {
  fulfil(Filling{std::move(buffer), std::move(event), false, nullptr});
}

void Data::fulfil(Filling filling) {
  {
    std::lock_guard lock(mutex_);
    if (filled_) return;
    filling_ = std::move(filling);
    filled_ = true;
  }
  filled_.notify_all();
}

base::Status Data::move_to(const base::Ref<loader::Device>& device) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(size_bytes);
  LAZYT_RETURN_IF_ERROR(read(0, bytes->data(), size_bytes, bytes));
  LAZYT_ASSIGN_OR_RETURN(auto buffer, loader::Buffer::from_host(device, bytes->data(), size_bytes, bytes));
  Filling old{std::move(buffer), nullptr, false, nullptr};
  std::vector<base::Ref<loader::Event>> readers;  // of the old buffer
  std::lock_guard lock(mutex_);  // what is let go is so after it
  std::swap(filling_, old);
  std::swap(readers_, readers);
  return {};
}

void Data::poison(base::Status error, base::Ref<Failure> failure, const base::Ref<Data>& before) {
  auto poisoned = failure ? std::make_unique<Poisoned>(Poisoned{std::move(failure), nullptr}) : nullptr;
  if (poisoned && before) {  // in a loop that goes on, thousands of launches fail: all of them left what the first found
    const auto lock = before->look();
    if (before->filled_) poisoned->before = before->error_.ok() ? before : before->poisoned_ ? before->poisoned_->before : nullptr;
  }
  {
    std::lock_guard lock(mutex_);
    if (filled_) return;
    error_ = std::move(error);
    poisoned_ = std::move(poisoned);
    filled_ = true;
  }
  filled_.notify_all();
}

// The lock under which to look at what is filled.
std::unique_lock<base::SpinLock> Data::look() const {
  std::unique_lock lock(mutex_);
  if (poisoned_ && poisoned_->before && poisoned_->failure && poisoned_->failure->told) {
    share(poisoned_->before);
    poisoned_ = nullptr;
  }
  return lock;
}

// REQUIRES: mutex_ is held; source is older, so that locks are taken in one order.
void Data::share(const base::Ref<Data>& source) const {
  const auto lock = source->look();
  alias_of_ = source->alias_of_ ? source->alias_of_ : source;
  filling_ = source->filling_;
  error_ = source->error_;
}

void Data::alias(const base::Ref<Data>& source) { alias(source, nullptr); }

void Data::alias(const base::Ref<Data>& source, base::Ref<loader::Buffer> buffer) {
  {
    std::lock_guard lock(mutex_);
    if (filled_) return;
    share(source);
    if (buffer) filling_ = {std::move(buffer), nullptr, false, nullptr};
    filled_ = true;
  }
  filled_.notify_all();
}

base::Status Data::wait() const {
  base::Ref<loader::Event> event;
  std::shared_ptr<const base::Note> origin;
  {
    filled_.wait(false, std::memory_order_acquire);
    const auto lock = look();
    if (!error_.ok()) return error_;
    event = filling_.event;
    origin = filling_.origin;
  }
  if (!event) return {};
  base::Status status = event->wait();
  if (!status.ok() && origin) status = status.with_note(origin->where, origin->detail);
  Filling done;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = status;
    if (!error_.ok()) return error_;
    std::swap(done.event, filling_.event);
    std::swap(done.origin, filling_.origin);
  }
  // Waits are where a program that launches nothing more gives its memory back.
  loader::post([] { InFlight::get().sweep(); });
  return {};
}

bool Data::filled() const { return filled_.load(std::memory_order_acquire); }

Data::State Data::state() const {
  const auto lock = look();
  return {filled_ != 0, filling_.opaque, static_cast<bool>(alias_of_), error_, filling_.buffer, filling_.event};
}

base::Ref<loader::Buffer> Data::buffer() const {
  const auto lock = look();
  return filling_.buffer;
}

base::Ref<loader::Event> Data::event() const {
  const auto lock = look();
  return filling_.event;
}

base::Status Data::error() const {
  const auto lock = look();
  return error_;
}

bool Data::opaque() const {
  const auto lock = look();
  return filling_.opaque;
}

base::Ref<Failure> Data::failure() const {
  const auto lock = look();
  return poisoned_ && poisoned_->failure && !poisoned_->failure->told ? poisoned_->failure : nullptr;
}

base::Status Data::read(void* dst) const { return read(0, dst, size_bytes); }

base::Status Data::read(uint64_t offset, void* dst, uint64_t size, loader::Keep keep) const {
  if (offset > size_bytes || size > size_bytes - offset)
    return {
        LAZYT_CODE_OUT_OF_RANGE,
        fmt::format("cannot read {} bytes from offset {} of a tensor of {} bytes", size, offset, size_bytes)};
  LAZYT_RETURN_IF_ERROR(wait());
  if (size == 0) return {};
  return buffer()->to_host(offset, dst, size, std::move(keep));
}

void Data::add_reader(base::Ref<loader::Event> event) {
  std::unique_lock lock(mutex_);
  if (alias_of_) {  // the bytes are the source's, which may be donated once this alias is gone
    const base::Ref<Data> root = alias_of_;
    lock.unlock();
    return root->add_reader(std::move(event));
  }
  // Frozen weights are read by every step: forget the readers that are done. Without the lock, which a plugin
  // that hangs would keep; readers are added on the executor's thread alone.
  auto readers = std::move(readers_);
  lock.unlock();
  std::erase_if(readers, [](const auto& e) { return e->ready(); });
  readers.push_back(std::move(event));
  lock.lock();
  readers_ = std::move(readers);
}

std::vector<base::Ref<loader::Event>> Data::readers() const {
  std::lock_guard lock(mutex_);
  return readers_;
}


}  // namespace lazyt::exec
