// Memory: every allocation has pages of its own and one behind it that nobody may touch. Freed, all of them are such.
#include <sys/mman.h>

#include <cstring>

#include "fake.h"

namespace fake {
namespace {

constexpr uint64_t kPage = 4096;

std::map<uint64_t, Allocation>& allocations() {
  static auto& all = *new std::map<uint64_t, Allocation>;
  return all;
}

uint64_t pages_of(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// What contains the address, alive or freed; null for other memory of the process.
const std::pair<const uint64_t, Allocation>* find(uint64_t address) {
  auto it = allocations().upper_bound(address);
  if (it == allocations().begin()) return nullptr;
  --it;
  return address < it->first + pages_of(it->second.bytes) + kPage ? &*it : nullptr;
}

void* map_pages(uint64_t bytes) {
  const uint64_t pages = pages_of(bytes);
  void* at = mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  mprotect(static_cast<char*>(at) + pages, kPage, PROT_NONE);
  // What nobody wrote is no zero. Large blocks would cost more time than it is worth.
  std::memset(at, 0xa5, std::min<uint64_t>(bytes, 1 << 20));
  return at;
}

CUresult allocate(CUctx_st* context, CUmemoryPool pool, uint64_t bytes, CUdeviceptr* out) {
  State& s = state();
  ++s.counts.allocations;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (count_down(s.config.fail_alloc) || context->allocated + bytes > s.config.memory) return CUDA_ERROR_OUT_OF_MEMORY;
  void* at = map_pages(bytes);
  if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
  context->allocated += bytes;
  if (pool) pool->used += bytes;
  *out = reinterpret_cast<CUdeviceptr>(at);
  allocations()[*out] = {bytes, context->device, pool, true};
  return CUDA_SUCCESS;
}

void unmap(uint64_t address, Allocation& a) {
  a.mapped = false;
  void* at = reinterpret_cast<void*>(address);
  madvise(at, pages_of(a.bytes), MADV_DONTNEED);
  mprotect(at, pages_of(a.bytes), PROT_NONE);
}

Allocation& require_allocation(uint64_t address, const char* function) {
  auto it = allocations().find(address);
  if (it == allocations().end() || !it->second.mapped) misuse(function, "what is freed is no live allocation");
  return it->second;
}

}  // namespace

void require_device_bytes(CUdeviceptr address, uint64_t bytes, const char* function) {
  const auto* found = find(address);
  if (!found || !found->second.mapped || found->second.device < 0) misuse(function, "an address that is not in live device memory");
  if (address + bytes > found->first + found->second.bytes) misuse(function, "bytes behind the end of an allocation");
}

void require_host_bytes(const void* address, uint64_t bytes, const char* function) {
  const auto* found = find(reinterpret_cast<uint64_t>(address));
  if (!found) return;
  if (!found->second.mapped || found->second.device >= 0) misuse(function, "a host address in device memory, or freed");
  if (reinterpret_cast<uint64_t>(address) + bytes > found->first + found->second.bytes)
    misuse(function, "bytes behind the end of pinned memory");
}

}  // namespace fake

using namespace fake;

extern "C" {

CUresult CUDAAPI cuMemGetInfo(size_t* free, size_t* total) {
  const Lock lock(state().mutex);
  CUresult result;
  CUctx_st* context = current(result);
  if (!context) return result;
  *total = state().config.memory;
  *free = *total - context->allocated;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* out, size_t bytes) {
  const Lock lock(state().mutex);
  CUresult result;
  CUctx_st* context = current(result);
  return context ? allocate(context, nullptr, bytes, out) : result;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
  CUctx_st* context = nullptr;
  CUresult result;
  {
    const Lock lock(state().mutex);
    context = current(result);
    if (!context) return result;
  }
  const Lock lock(state().mutex);
  Allocation& a = require_allocation(address, "cuMemFree");
  if (a.pool) misuse("cuMemFree", "memory of a pool");
  context->allocated -= a.bytes;
  unmap(address, a);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  const Lock lock(state().mutex);
  CUresult result;
  CUctx_st* context = current(result);
  if (!context) return result;
  require_handle(pool, "cuMemAllocFromPoolAsync");
  if (const CUresult bad = check_stream(stream, "cuMemAllocFromPoolAsync")) return bad;
  return allocate(context, pool, bytes, out);
}

// Work that was submitted before still runs; the bytes go when the stream comes to it.
CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  const Lock lock(state().mutex);
  CUresult result;
  CUctx_st* context = current(result);
  if (!context) return result;
  if (const CUresult bad = check_stream(stream, "cuMemFreeAsync")) return bad;
  Allocation& a = require_allocation(address, "cuMemFreeAsync");
  if (!a.pool) misuse("cuMemFreeAsync", "memory that is of no pool");
  context->allocated -= a.bytes;
  a.pool->used -= a.bytes;
  enqueue(stream, [address] {
    const Lock lock(state().mutex);
    unmap(address, allocations().at(address));
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  const Lock lock(state().mutex);
  if (!state().config.pools) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* context = state().contexts.at(static_cast<size_t>(properties->location.id)).get();
  *out = new CUmemPoolHandle_st{context, 0};
  add_handle(*out);
  context->handles.insert(*out);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
  const Lock lock(state().mutex);
  require_handle(pool, "cuMemPoolDestroy");
  if (pool->used && pool->context->lost == CUDA_SUCCESS) misuse("cuMemPoolDestroy", std::to_string(pool->used) + " bytes are left");
  drop_handle(pool);
  pool->context->handles.erase(pool);
  delete pool;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  const Lock lock(state().mutex);
  require_handle(pool, "cuMemPoolTrimTo");
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void*) {
  const Lock lock(state().mutex);
  require_handle(pool, "cuMemPoolSetAttribute");
  return which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemHostAlloc(void** out, size_t bytes, unsigned int) {
  const Lock lock(state().mutex);
  CUresult result;
  if (!current(result)) return result;
  *out = map_pages(bytes);
  if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
  allocations()[reinterpret_cast<uint64_t>(*out)] = {bytes, -1, nullptr, true};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFreeHost(void* address) {
  const Lock lock(state().mutex);
  CUresult result;
  if (!current(result)) return result;
  const auto at = reinterpret_cast<uint64_t>(address);
  unmap(at, require_allocation(at, "cuMemFreeHost"));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void* out, CUpointer_attribute which, CUdeviceptr address) {
  const Lock lock(state().mutex);
  const auto* found = find(address);
  if (!found || !found->second.mapped) return CUDA_ERROR_INVALID_VALUE;
  if (which != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) misuse("cuPointerGetAttribute", "knows no attribute " + std::to_string(which));
  const CUmemorytype type = found->second.device < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  std::memcpy(out, &type, sizeof(unsigned int));
  return CUDA_SUCCESS;
}

}  // extern "C"
