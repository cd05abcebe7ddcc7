#include "stream.h"

namespace lazyt::cuda {

using plugin::Event;
using plugin::from_c;
using plugin::guard;
using plugin::host;

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Worker::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_one();
}

bool Worker::is_current() const {
  const std::lock_guard lock(mutex_);
  return thread_.get_id() == std::this_thread::get_id();
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

const lazyt_plugin_event_t& Work::table() {
  static const lazyt_plugin_event_t table = {
      .struct_size = sizeof(lazyt_plugin_event_t),
      .next = nullptr,
      .ready = [](lazyt_event_t* event, uint32_t* out_ready) -> lazyt_status_t* {
        *out_ready = from(event)->event().ready() ? 1 : 0;
        return nullptr;
      },
      .wait = [](lazyt_event_t* event, uint64_t timeout_ns) -> lazyt_status_t* {
        return guard([&] { return from(event)->event().wait(timeout_ns); });
      },
      .on_ready = [](lazyt_event_t* event, lazyt_event_callback_t callback, void* user_data) -> lazyt_status_t* {
        return guard([&] { from(event)->event().on_ready(callback, user_data); });
      },
      .retain = [](lazyt_event_t* event) { from(event)->retain(); },
      .release = [](lazyt_event_t* event) {
        if (event) from(event)->release();
      },
  };
  return table;
}

Waits::Waits(const Context& context, CUstream stream, lazyt_events_t events) {
  pending_.reserve(events.count);
  for (uint64_t i = 0; i < events.count; ++i) {
    Work& work = from_c(events.events[i]);
    if (!work.event().ready()) {
      work.retain();
      pending_.push_back(&work);
    } else if (!error_ && work.event().status()) {
      error_ = host().status->retain(work.event().status());
    }
  }
  if (error_) return;
  try {
    for (Work* work : pending_) work->mark()->order(context, stream);
  } catch (...) {
    error_ = plugin::current_exception_status();
  }
}

Waits::~Waits() {
  host().status->release(error_);
  for (Work* work : pending_) work->release();
}

lazyt_status_t* Waits::error() {
  for (Work* work : pending_) {
    lazyt_status_t* status = work->event().wait(LAZYT_WAIT_FOREVER);
    if (!error_)
      error_ = status;
    else
      host().status->release(status);
    work->release();
  }
  pending_.clear();
  return error_ ? host().status->retain(error_) : nullptr;
}

Stream::Stream(ContextRef context) : context_(std::move(context)) {
  const Current current(*context_);
  context_->check(cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

Stream::~Stream() {
  CUcontext before = nullptr;
  if (cu().cuCtxPushCurrent(context_->handle()) != CUDA_SUCCESS) return;
  cu().cuStreamSynchronize(stream_);
  cu().cuStreamDestroy(stream_);
  cu().cuCtxPopCurrent(&before);
}

Work* Stream::finish(std::shared_ptr<Waits> waits, std::function<void()> after, std::function<void()> ended) {
  Work* work = nullptr;
  try {
    work = Work::make_pending(mark());
    work->retain();
    worker_.post([work, context = context_, waits = std::move(waits), after = std::move(after), ended]() mutable {
      lazyt_status_t* status = guard([&]() -> lazyt_status_t* {
        // The errors before: what they broke is told by them.
        if (lazyt_status_t* earlier = waits ? waits->error() : nullptr) return earlier;
        const Current current(*context);
        work->mark()->wait();
        if (after) after();
        return nullptr;
      });
      if (ended) ended();
      waits = nullptr;
      work->event().complete(status);
      work->release();
    });
    return work;
  } catch (...) {
    // What was submitted goes on: `ended` may only run behind it.
    cu().cuStreamSynchronize(stream_);
    if (ended) ended();
    if (work) work->release(), work->release();
    throw;
  }
}

}  // namespace lazyt::cuda
