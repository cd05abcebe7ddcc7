// Streams: a thread each, which takes one piece of work after the other. Events. Copies.
#include <chrono>
#include <cstring>
#include <thread>

#include "fake.h"

namespace fake {
namespace {

void sleep_us(uint64_t us) {
  if (us) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

// Work of a lost context is dropped, but counts as done: whoever waits for it gets the context's error.
void serve(CUstream stream) {
  State& s = state();
  Lock lock(s.mutex);
  while (true) {
    s.changed.wait(lock, [&] { return stream->closing || !stream->items.empty(); });
    if (stream->items.empty()) break;
    CUstream_st::Item item = std::move(stream->items.front());
    stream->items.pop_front();
    stream->busy = true;
    if (item.work && stream->context->lost == CUDA_SUCCESS) {
      const uint64_t delay = s.config.delay_us;
      lock.unlock();
      sleep_us(delay);
      const CUresult result = item.work();
      item.work = nullptr;
      lock.lock();
      if (result != CUDA_SUCCESS && stream->context->lost == CUDA_SUCCESS) stream->context->lost = result;
    }
    if (item.done) item.done->done = true, item.done->at = std::chrono::steady_clock::now();
    stream->busy = false;
    s.changed.notify_all();
  }
  delete stream;
}

CUstream make_stream(CUctx_st* context) {
  auto* stream = new CUstream_st;
  stream->context = context;
  std::thread(serve, stream).detach();
  return stream;
}

bool is_idle(CUstream stream) { return stream->items.empty() && !stream->busy; }

CUresult copy_async(CUstream stream, const Copy& copy, const char* name) {
  if (const CUresult bad = check_stream(stream, name)) return bad;
  if (!copy.bytes) return CUDA_SUCCESS;
  ++state().counts.copies;
  if (stream->capture) {
    CUgraphNode node = make_node(CU_GRAPH_NODE_TYPE_MEMCPY);
    node->copy = copy;
    stream->capture->nodes.push_back(node);
    return CUDA_SUCCESS;
  }
  enqueue(stream, [copy] { return run_copy(copy); });
  return CUDA_SUCCESS;
}

}  // namespace

CUresult run_copy(const Copy& copy) {
  {
    const Lock lock(state().mutex);
    if (count_down(state().config.lose_device)) return CUDA_ERROR_ECC_UNCORRECTABLE;
  }
  std::memcpy(copy.to, copy.from, copy.bytes);
  return CUDA_SUCCESS;
}

void enqueue(CUstream stream, std::function<CUresult()> work, std::shared_ptr<Completion> done) {
  stream->items.push_back({std::move(work), std::move(done)});
  state().changed.notify_all();
}

CUresult check_stream(CUstream& stream, const char* function) {
  CUresult result;
  CUctx_st* context = current(result);
  if (!context) return result;
  if (!stream || stream == CU_STREAM_LEGACY) {
    if (!context->legacy) context->legacy = make_stream(context);
    stream = context->legacy;
    return CUDA_SUCCESS;
  }
  require_handle(stream, function);
  return stream->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace fake

using namespace fake;

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* out, unsigned int flags) {
  const Lock lock(state().mutex);
  CUresult result;
  CUctx_st* context = current(result);
  if (!context) return result;
  if (flags != CU_STREAM_NON_BLOCKING) misuse("cuStreamCreate", "streams that order with the default one are not known here");
  *out = make_stream(context);
  add_handle(*out);
  context->handles.insert(*out);
  return CUDA_SUCCESS;
}

// What was submitted still runs.
CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
  const Lock lock(state().mutex);
  require_handle(stream, "cuStreamDestroy");
  drop_handle(stream);
  stream->context->handles.erase(stream);
  stream->closing = true;
  state().changed.notify_all();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  Lock lock(state().mutex);
  if (const CUresult bad = check_stream(stream, "cuStreamSynchronize")) return bad;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  state().changed.wait(lock, [&] { return is_idle(stream); });
  return stream->context->lost;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int) {
  const Lock lock(state().mutex);
  if (const CUresult bad = check_stream(stream, "cuStreamWaitEvent")) return bad;
  require_handle(event, "cuStreamWaitEvent");
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!event->last || event->last->done) return CUDA_SUCCESS;
  enqueue(stream, [last = event->last] {
    Lock lock(state().mutex);
    state().changed.wait(lock, [&] { return last->done; });
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventCreate(CUevent* out, unsigned int) {
  const Lock lock(state().mutex);
  CUresult result;
  CUctx_st* context = current(result);
  if (!context) return result;
  *out = new CUevent_st{context, nullptr};
  add_handle(*out);
  context->handles.insert(*out);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
  const Lock lock(state().mutex);
  require_handle(event, "cuEventDestroy");
  drop_handle(event);
  event->context->handles.erase(event);
  delete event;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  const Lock lock(state().mutex);
  require_handle(event, "cuEventRecord");
  if (const CUresult bad = check_stream(stream, "cuEventRecord")) return bad;
  if (stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  event->last = std::make_shared<Completion>();
  enqueue(stream, nullptr, event->last);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventQuery(CUevent event) {
  const Lock lock(state().mutex);
  require_handle(event, "cuEventQuery");
  if (event->context->lost != CUDA_SUCCESS) return event->context->lost;
  return !event->last || event->last->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  Lock lock(state().mutex);
  require_handle(event, "cuEventSynchronize");
  const auto last = event->last;
  state().changed.wait(lock, [&] { return !last || last->done; });
  return event->context->lost;
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  const Lock lock(state().mutex);
  if (const CUresult bad = check_stream(stream, "cuLaunchHostFunc")) return bad;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  enqueue(stream, [function, data] {
    function(data);
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

// By the name of CUDA 12.0, which later headers replace.
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
  const Lock lock(state().mutex);
  for (const CUevent e : {from, to}) {
    require_handle(e, "cuEventElapsedTime");
    if (!e->last) return CUDA_ERROR_INVALID_HANDLE;
    if (!e->last->done) return CUDA_ERROR_NOT_READY;
  }
  *ms = std::chrono::duration<float, std::milli>(to->last->at - from->last->at).count();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  const Lock lock(state().mutex);
  require_device_bytes(to, bytes, "cuMemcpyHtoDAsync");
  require_host_bytes(from, bytes, "cuMemcpyHtoDAsync");
  return copy_async(stream, {reinterpret_cast<void*>(to), from, bytes}, "cuMemcpyHtoDAsync");
}

// To pageable memory the real one returns when the bytes are there.
CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  Lock lock(state().mutex);
  require_device_bytes(from, bytes, "cuMemcpyDtoHAsync");
  require_host_bytes(to, bytes, "cuMemcpyDtoHAsync");
  if (const CUresult bad = copy_async(stream, {to, reinterpret_cast<const void*>(from), bytes}, "cuMemcpyDtoHAsync")) return bad;
  lock.unlock();
  CUmemorytype type{};
  if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(to)) == CUDA_SUCCESS)
    return CUDA_SUCCESS;
  return cuStreamSynchronize(stream);
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  const Lock lock(state().mutex);
  require_device_bytes(from, bytes, "cuMemcpyDtoDAsync");
  require_device_bytes(to, bytes, "cuMemcpyDtoDAsync");
  if (from < to + bytes && to < from + bytes && from != to) misuse("cuMemcpyDtoDAsync", "source and destination overlap");
  return copy_async(stream, {reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes}, "cuMemcpyDtoDAsync");
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream) {
  const Lock lock(state().mutex);
  require_device_bytes(from, bytes, "cuMemcpyPeerAsync");
  require_device_bytes(to, bytes, "cuMemcpyPeerAsync");
  return copy_async(stream, {reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes}, "cuMemcpyPeerAsync");
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  const Lock lock(state().mutex);
  require_device_bytes(to, bytes, "cuMemsetD8Async");
  if (const CUresult bad = check_stream(stream, "cuMemsetD8Async")) return bad;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  enqueue(stream, [=] {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

}  // extern "C"
