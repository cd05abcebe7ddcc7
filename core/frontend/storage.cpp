#include "frontend/storage.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/AutogradState.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <sys/mman.h>

#include <array>
#include <bit>
#include <mutex>

#include "base/counters.h"
#include "frontend/dtype.h"
#include "frontend/errors.h"
#include "frontend/thread_state.h"

namespace lazyt::frontend {
namespace {

constexpr int kMinOrder = 9;  // addresses are cut into powers of two from 512 bytes on
constexpr int kOrders = 41;

int order_of(size_t bytes) {
  return std::max(kMinOrder, static_cast<int>(std::bit_width(std::max<size_t>(bytes, 1) - 1)));
}

// Lazy states, each with an address that nobody can read, by size class. A state that is freed is the next
// one to be taken, so tensors that come and go cost no allocation. Shared by all threads.
class StatePool {
 public:
  trace::Storage* take(int order) {
    std::lock_guard lock(mutex_);
    auto& free = free_[order];
    if (!free.empty()) {
      trace::Storage* state = free.back();
      free.pop_back();
      return state;
    }
    if (!base_) reserve();
    size_t size = size_t{1} << order;
    TORCH_CHECK_WITH(OutOfMemoryError, next_ + size <= range_, "lazyt: out of addresses for ", size,
                     " bytes; free some tensors of the device");
    auto* state = new trace::Storage;
    state->address = base_ + next_;
    next_ += size;
    return state;
  }
  void give_back(trace::Storage* state, int order) {
    std::lock_guard lock(mutex_);
    free_[order].push_back(state);
  }
  std::mutex& mutex() { return mutex_; }

 private:
  // 1 TiB (more fails under ThreadSanitizer), or what a limit of virtual memory or a simulator leaves.
  void reserve() {
    void* p = MAP_FAILED;
    for (range_ = size_t{1} << 40; p == MAP_FAILED && range_ >= kLeast; range_ /= p == MAP_FAILED ? 2 : 1)
      p = mmap(nullptr, range_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(p != MAP_FAILED, "lazyt: cannot reserve addresses: ", std::strerror(errno),
                "; raise the limit of virtual memory (ulimit -v)");
    base_ = static_cast<char*>(p);
  }
  std::mutex mutex_;
  static constexpr size_t kLeast = size_t{1} << 34;
  char* base_ = nullptr;
  size_t range_ = 0, next_ = 0;
  std::array<std::vector<trace::Storage*>, kOrders> free_;
};

StatePool& pool() {
  static auto* p = new StatePool;  // tensors may die after static destructors ran
  return *p;
}

[[gnu::noinline]] trace::Storage* take_shared_state(size_t bytes, int order) {
  TORCH_CHECK_WITH(OutOfMemoryError, order < kOrders, "lazyt: a storage of ", bytes, " bytes is larger than the device's addresses");
  return pool().take(order);
}

trace::Storage* take_state(size_t bytes, uint32_t device) {
  const int order = order_of(bytes), i = order - kMinOrder;
  trace::Storage* state = C10_LIKELY(i < kKeptOrders) ? thread_state().states[i].take() : nullptr;
  if (C10_UNLIKELY(!state)) state = take_shared_state(bytes, order);
  state->next = nullptr;
  state->size_bytes = bytes;
  state->device = static_cast<uint8_t>(device);
  return state;
}

// PyTorch's own objects, but for where their memory comes from.
template <class Impl, KeptList<FreeMemory, &FreeMemory::next> ThreadState::* kept>
class Pooled : public Impl {
 public:
  using Impl::Impl;
  static void* operator new(size_t size) {
    void* p = (thread_state().*kept).take();
    return C10_LIKELY(p != nullptr) ? p : ::operator new(size);
  }
  static void operator delete(void* p) {
    ThreadState* thread = current_thread_state;
    if (C10_UNLIKELY(!thread || !(thread->*kept).keep(static_cast<FreeMemory*>(p)))) ::operator delete(p);
  }
};
using StorageImpl = Pooled<c10::StorageImpl, &ThreadState::storage_impls>;
class TensorImpl final : public Pooled<c10::TensorImpl, &ThreadState::tensor_impls> {
 public:
  using Pooled::Pooled;
  // Of a new tensor. How many elements it has where it is row-major, with elements (a number that 64 bits hold), no stride below 0 and a
  // rank without a channels-last format, which a new one is until told otherwise; else 0.
  static int64_t row_major_numel(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
    int64_t numel = 1;
    if (sizes.size() == 4 || sizes.size() == 5) return 0;
    for (size_t i = sizes.size(); i-- > 0;)
      if ((sizes[i] == 1 ? strides[i] < 0 : strides[i] != numel) || __builtin_mul_overflow(numel, sizes[i], &numel)) return 0;
    return numel;
  }
  // As set_sizes_and_strides, without its checks and without finding out what is known. numel: row_major_numel
  void set_geometry(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t numel) {
    if (C10_UNLIKELY(numel == 0)) {
      const bool as_made = sizes.size() == 1 && sizes[0] == 0 && strides[0] == 1;
      if (!as_made) set_sizes_and_strides(sizes, strides);
      return;
    }
    sizes_and_strides_.resize(sizes.size());
    std::copy(sizes.begin(), sizes.end(), sizes_and_strides_.sizes_data());
    std::copy(strides.begin(), strides.end(), sizes_and_strides_.strides_data());
    numel_ = numel;
  }
};

// REQUIRES: the recorders' mutex.
C10_ALWAYS_INLINE c10::DataPtr new_data(size_t bytes, uint32_t device) {
  static base::Counter& created = base::counter("CreateLtcTensor");
  created.add_locked();
  // PyTorch checks a device that is made of its parts.
  static const auto devices = []<size_t... i>(std::index_sequence<i...>) {
    return std::array<c10::Device, trace::kMaxDevices>{frontend::device(i)...};
  }(std::make_index_sequence<trace::kMaxDevices>());
  trace::Storage* state = take_state(bytes, device);
  return {state->address, state, &delete_state, devices[device]};
}

// What a tensor of the device made now can be dispatched to: as PyTorch finds for each.
c10::DispatchKeySet keys_now() {
  static const c10::DispatchKeySet keys = [] {
    const c10::InferenceMode off(false);
    return c10::TensorImpl(c10::DispatchKey::PrivateUse1, caffe2::TypeMeta::Make<float>(), device(0)).key_set();
  }();
  return C10_LIKELY(!thread_state().autograd.get_inference_mode()) ? keys : keys - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
}

// Gives back what a thread kept when it ends.
struct ThreadEnd {
  ~ThreadEnd() {
    ThreadState* thread = std::exchange(current_thread_state, nullptr);
    if (!thread) return;
    for (const Lane& lane : thread->lanes)
      if (lane.own) trace::Session::get(lane.own->device).give_back(*lane.own);
    for (int i = 0; i < kKeptOrders; i++)
      while (trace::Storage* s = thread->states[i].take()) pool().give_back(s, kMinOrder + i);
    while (void* p = thread->storage_impls.take()) ::operator delete(p);
    while (void* p = thread->tensor_impls.take()) ::operator delete(p);
    delete thread;
  }
};

// What torch.accelerator asks of the device's memory comes from the plugin.
class Allocator final : public c10::DeviceAllocator {
 public:
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    check(loaded(0)->trim());
    for (trace::Session* s : trace::Session::all())
      if (s->index > 0) check(check(s->device())->trim());
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}  // memory lives as long as work that uses it
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex d) override {
    const lazyt_memory_stats_t now = check(loaded(d)->memory_stats());
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = static_cast<int64_t>(now.bytes_in_use);
    stats.allocated_bytes[0].peak = static_cast<int64_t>(now.peak_bytes_in_use);
    stats.reserved_bytes[0].current = stats.reserved_bytes[0].peak = static_cast<int64_t>(now.bytes_reserved);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override { no_reset("accumulated"); }
  void resetPeakStats(c10::DeviceIndex) override { no_reset("peak"); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex d) override {
    const base::Ref<loader::Device> device = loaded(d);
    TORCH_CHECK_NOT_IMPLEMENTED(device->info.total_bytes > 0, "lazyt: the backend does not say how much memory it has");
    const uint64_t total = device->info.total_bytes, used = check(device->memory_stats()).bytes_in_use;
    return {total - std::min(total, used), total};
  }

  c10::DataPtr allocate(size_t n) override {
    std::lock_guard lock(trace::recording_lock);
    return new_data(n, thread_state().device);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "lazyt: raw copies of device memory are not possible; copy tensors");
  }

 private:
  static base::Ref<loader::Device> loaded(c10::DeviceIndex index) {
    trace::Session& session = trace::Session::get(check_device(frontend::device(index)));
    session.drop_dead();
    return check(session.device());
  }
  static void no_reset(const char* which) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "lazyt: ", which, " memory statistics cannot be reset: they are the plugin's, since its start");
  }
};

}  // namespace

__thread ThreadState* current_thread_state = nullptr;

ThreadState* make_thread_state() {
  thread_local ThreadEnd end;
  // After the end, from the destructor of another thread_local: kept to the end of the process.
  current_thread_state = new ThreadState;
  // Backward then records on the thread that calls it: cheaper, and errors know the user's line.
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  return current_thread_state;
}

void delete_state(void* context) {
  auto* state = static_cast<trace::Storage*>(context);
  base::Ref<exec::Data> last;  // freed after the lock
  static base::Counter& destroyed = base::counter("DestroyLtcTensor");
  {
    std::lock_guard lock(trace::recording_lock);
    if (C10_LIKELY(!state->data))
      trace::Recorder::forget(*state);
    else
      last = trace::Recorder::let_go(*state);
    destroyed.add_locked();
  }
  const int order = order_of(state->size_bytes), i = order - kMinOrder;
  ThreadState* thread = current_thread_state;
  if (C10_UNLIKELY(!thread || i >= kKeptOrders || !thread->states[i].keep(state))) pool().give_back(state, order);
}

void free_locks_in_forks() {
  const auto lock = [] {
    trace::recording_lock.lock();
    pool().mutex().lock();
  };
  const auto unlock = [] {
    pool().mutex().unlock();
    trace::recording_lock.unlock();
  };
  const int failed = ::pthread_atfork(lock, unlock, unlock);
  TORCH_CHECK(failed == 0, "lazyt: pthread_atfork: ", std::strerror(failed));
}

c10::Allocator* allocator() {
  static Allocator* a = new Allocator;
  return a;
}

trace::Storage& state_of(const c10::StorageImpl& s) {
  const c10::DataPtr& data = s.data_ptr();
  TORCH_CHECK(data.get_deleter() == &delete_state,
              "lazyt: this storage was not made by the lazyt device; make it with device='lazyt'");
  return *static_cast<trace::Storage*>(data.get_context());
}

trace::Storage& state_of(const at::Tensor& t) {
  TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == at::kStrided && t.has_storage(), "lazyt: tensors of layout ", t.layout(),
                              " cannot live on the lazyt device; keep them on the CPU or call .to_dense() first");
  return state_of(*t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

void note_replaced(const at::Tensor& t) {
  trace::Storage* state = state_if_ours(t);
  if (!state) return;
  std::lock_guard lock(trace::recording_lock);
  trace::Recorder::replaced(*state);
}

int64_t checked_numel(c10::IntArrayRef sizes) {
  uint64_t count;
  const bool overflows = c10::safe_multiplies_u64(sizes, &count) || count > std::numeric_limits<int64_t>::max();
  TORCH_CHECK(!overflows, "numel: integer multiplication overflow");
  return static_cast<int64_t>(count);
}

at::Tensor make_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype, uint32_t device,
                       trace::Storage** out_state) {
  std::lock_guard lock(trace::recording_lock);
  return make_result(sizes, strides, dtype, device, out_state);
}

at::Tensor make_result(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype, uint32_t device,
                       trace::Storage** out_state) {
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype);
  const int64_t numel = TensorImpl::row_major_numel(sizes, strides);
  size_t bytes;
  if (C10_UNLIKELY(numel == 0 || __builtin_mul_overflow(static_cast<size_t>(numel), type.itemsize(), &bytes))) {
    // What there is to refuse is refused here: a storage that was made and dies wants the mutex.
    bytes = at::detail::computeStorageNbytes(sizes, strides, type.itemsize());
    checked_numel(sizes);
  }
  c10::DataPtr data = new_data(bytes, device);
  if (out_state) *out_state = static_cast<trace::Storage*>(data.get_context());
  static c10::Allocator* const of_device = allocator();
  c10::intrusive_ptr<c10::StorageImpl> storage = c10::make_intrusive<StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), of_device, /*resizable=*/true);
  auto impl = c10::make_intrusive<TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), keys_now(), type);
  impl->set_geometry(sizes, strides, numel);
  return at::Tensor(std::move(impl));
}

at::Tensor make_view(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset) {
  auto impl = c10::make_intrusive<TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), self.dtype());
  impl->set_storage_offset(offset);
  impl->set_geometry(sizes, strides, TensorImpl::row_major_numel(sizes, strides));
  return at::Tensor(std::move(impl));
}

void check(const base::Status& status, const trace::Storage& state, const base::Ref<exec::Data>& data) {
  if (C10_LIKELY(status.ok())) return;
  session_of(state).tell(*data);
  raise(status);
}

base::Ref<exec::Data> data_of(const at::Tensor& t) {
  trace::Storage& state = state_of(t);
  return check(session_of(state).materialize(state));
}

void upload(trace::Storage& state, base::Meta meta, const void* bytes, uint64_t size, loader::Keep keep) {
  if (meta.dims.size() > base::kMaxRank && meta.is_dense()) meta = base::Meta::contiguous(meta.dtype, {meta.numel()});
  auto buffer = check(session_of(state).upload(bytes, size, std::move(keep)));
  auto data = base::make_ref<exec::Data>(std::move(meta), size, std::move(buffer));
  std::lock_guard lock(trace::recording_lock);
  std::swap(data, state.data);  // the old one is freed after the lock
  auto fresh = state.data;
  trace::Recorder::set_data(state, std::move(fresh));
}

void resize_storage(c10::StorageImpl& storage, size_t size) {
  trace::Storage& old = state_of(storage);
  if (old.size_bytes == size) return;
  base::Ref<exec::Data> data = check(session_of(old).materialize(old));
  c10::DataPtr fresh = [&] {
    std::lock_guard lock(trace::recording_lock);
    return new_data(size, old.device);
  }();
  if (data && size > 0) {
    auto bytes = std::make_shared<std::vector<uint8_t>>(size, 0);
    check(data->read(0, bytes->data(), std::min<uint64_t>(size, data->size_bytes), bytes), old, data);
    upload(*static_cast<trace::Storage*>(fresh.get_context()),
           base::Meta::contiguous(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(size)}), bytes->data(), size, bytes);
  }
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(size);
}

c10::Storage download_storage(const c10::StorageImpl& storage) {
  trace::Storage& state = state_of(storage);
  base::Ref<exec::Data> data = check(session_of(state).materialize(state));
  c10::Storage host(c10::Storage::use_byte_size_t(), storage.nbytes(), c10::GetCPUAllocator(), /*resizable=*/true);
  if (storage.nbytes() == 0) return host;
  std::memset(host.mutable_data(), 0, storage.nbytes());
  if (data)
    check(data->read(0, host.mutable_data(), std::min<uint64_t>(storage.nbytes(), data->size_bytes), std::make_shared<c10::Storage>(host)),
          state, data);
  return host;
}

at::Tensor download(const at::Tensor& t) {
  base::Ref<exec::Data> data = data_of(t);
  const auto options = at::TensorOptions().dtype(t.scalar_type()).device(at::kCPU);
  const trace::Storage& state = state_of(t);
  // The span of bytes that t covers, read into a CPU storage of its own.
  base::Meta meta = meta_of(t);
  const uint64_t span = meta.span_bytes(), start = t.storage_offset() * t.itemsize();
  at::Tensor bytes = at::empty_strided({static_cast<int64_t>(span / t.itemsize())}, {1}, options);
  if (span == 0) {
    if (data) check(data->wait(), state, data);  // what made it may have failed
  } else {
    TORCH_CHECK(start + span <= state.size_bytes, "lazyt: the tensor reaches outside its storage");
    if (data)
      check(data->read(start, bytes.mutable_data_ptr(), span, std::make_shared<at::Tensor>(bytes)), state, data);
    else
      std::memset(bytes.mutable_data_ptr(), 0, span);
  }
  auto out = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(bytes.storage()), bytes.key_set(), bytes.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  out._set_conj(t.is_conj());
  out._set_neg(t.is_neg());
  return out;
}

}  // namespace lazyt::frontend
