#include "frontend/storage.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <array>
#include <bit>
#include <mutex>

#include "base/counters.h"
#include "frontend/dtype.h"
#include "frontend/errors.h"

namespace lazyt::frontend {
namespace {

// Hands out addresses that nobody can read: one range, cut into powers of two, reused last-in first-out.
class AddressSpace {
 public:
  void* take(size_t bytes) {
    int order = order_of(bytes);
    std::lock_guard lock(mutex_);
    auto& free = free_[order];
    if (!free.empty()) {
      void* address = free.back();
      free.pop_back();
      return address;
    }
    if (!base_) reserve();
    size_t size = size_t{1} << order;
    TORCH_CHECK_WITH(OutOfMemoryError, next_ + size <= kRange, "lazyt: out of addresses for ", bytes,
                     " bytes; free some tensors of the device");
    void* address = base_ + next_;
    next_ += size;
    return address;
  }
  void give_back(void* address, size_t bytes) {
    std::lock_guard lock(mutex_);
    free_[order_of(bytes)].push_back(address);
  }

 private:
  static constexpr size_t kRange = size_t{1} << 40;  // 1 TiB; more fails under ThreadSanitizer
  static int order_of(size_t bytes) { return std::max(9, static_cast<int>(std::bit_width(std::max<size_t>(bytes, 1) - 1))); }
  void reserve() {
    void* p = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(p != MAP_FAILED, "lazyt: cannot reserve addresses: ", std::strerror(errno),
                "; raise the limit of virtual memory (ulimit -v)");
    base_ = static_cast<char*>(p);
  }
  std::mutex mutex_;
  char* base_ = nullptr;
  size_t next_ = 0;
  std::array<std::vector<void*>, 64> free_;
};

AddressSpace& addresses() {
  static AddressSpace* space = new AddressSpace;  // tensors may die after static destructors ran
  return *space;
}

void delete_state(void* context) {
  auto* state = static_cast<trace::Storage*>(context);
  base::Ref<exec::Data> last;  // freed after the lock
  {
    trace::Recorder& recorder = trace::Session::get().recorder;
    std::lock_guard lock(recorder.mutex());
    last = state->data;
    recorder.forget(*state);
  }
  addresses().give_back(state->address, state->size_bytes);
  static base::Counter& destroyed = base::counter("DestroyLtcTensor");
  destroyed.add();
  delete state;
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    auto* state = new trace::Storage;
    state->size_bytes = n;
    state->address = addresses().take(n);
    static base::Counter& created = base::counter("CreateLtcTensor");
    created.add();
    return {state->address, state, &delete_state, device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "lazyt: raw copies of device memory are not possible; copy tensors");
  }
};

}  // namespace

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

at::Tensor make_tensor(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype, trace::Storage** out_state) {
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype);
  int64_t last = 0;
  bool empty = false;
  for (size_t i = 0; i < sizes.size(); i++) {
    empty |= sizes[i] == 0;
    last += (sizes[i] - 1) * strides[i];
  }
  const size_t bytes = empty ? 0 : static_cast<size_t>(last + 1) * type.itemsize();
  c10::DataPtr data = allocator()->allocate(bytes);
  if (out_state) *out_state = static_cast<trace::Storage*>(data.get_context());
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data),
                                                       allocator(), /*resizable=*/true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (sizes.size() != 1 || sizes[0] != 0) impl->set_sizes_and_strides(sizes, strides);
  return tensor;
}

base::Ref<exec::Data> data_of(const at::Tensor& t) { return check(trace::Session::get().materialize(state_of(t))); }

void upload(trace::Storage& state, base::Meta meta, const void* bytes, uint64_t size) {
  trace::Session& session = trace::Session::get();
  auto device = check(session.device());
  auto buffer = check(loader::Buffer::from_host(device, bytes, size));
  auto data = base::make_ref<exec::Data>(std::move(meta), size, std::move(buffer));
  std::lock_guard lock(session.recorder.mutex());
  std::swap(data, state.data);  // the old one is freed after the lock
  auto fresh = state.data;
  session.recorder.set_data(state, std::move(fresh));
}

void resize_storage(c10::StorageImpl& storage, size_t size) {
  trace::Storage& old = state_of(storage);
  if (old.size_bytes == size) return;
  base::Ref<exec::Data> data = check(trace::Session::get().materialize(old));
  c10::DataPtr fresh = allocator()->allocate(size);
  if (data && size > 0) {
    std::vector<uint8_t> bytes(size, 0);
    check(data->read(0, bytes.data(), std::min<uint64_t>(size, data->size_bytes)));
    upload(*static_cast<trace::Storage*>(fresh.get_context()),
           base::Meta::contiguous(LAZYT_DTYPE_UINT8, {static_cast<int64_t>(size)}), bytes.data(), size);
  }
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(size);
}

at::Tensor download(const at::Tensor& t) {
  base::Ref<exec::Data> data = data_of(t);
  const auto options = at::TensorOptions().dtype(t.scalar_type()).device(at::kCPU);
  const trace::Storage& state = state_of(t);
  // The span of bytes that t covers, read into a CPU storage of its own.
  base::Meta meta = meta_of(t);
  const uint64_t span = meta.span_bytes(), start = t.storage_offset() * t.itemsize();
  at::Tensor bytes = at::empty_strided({static_cast<int64_t>(span / t.itemsize())}, {1}, options);
  if (span > 0) {
    TORCH_CHECK(start + span <= state.size_bytes, "lazyt: the tensor reaches outside its storage");
    if (data)
      check(data->read(start, bytes.mutable_data_ptr(), span));
    else
      std::memset(bytes.mutable_data_ptr(), 0, span);
  }
  auto out = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(bytes.storage()), bytes.key_set(), bytes.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  return out;
}

}  // namespace lazyt::frontend
