// lazyt/torch.h: what C++ programs call. Python has the same in binding.cpp.
#include <lazyt/torch.h>

#include <pthread.h>

#include <mutex>

#include "base/counters.h"
#include "frontend/errors.h"
#include "frontend/registration.h"
#include "frontend/storage.h"
#include "frontend/thread_state.h"
#include "trace/session.h"

namespace lazyt {

void initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::register_privateuse1_backend("lazyt");
    frontend::initialize();
    trace::Session::shut_down_at_exit();
    ::pthread_atfork(nullptr, nullptr, [] { trace::Session::mark_forked(); });
  });
}

c10::Device device(int index) { return frontend::device(frontend::check_device({frontend::kDeviceType, static_cast<c10::DeviceIndex>(index)})); }

int device_count() { return static_cast<int>(frontend::device_count()); }

void mark_step(bool wait) {
  base::counter("MarkStep").add();
  frontend::flush(trace::FlushReason::kMarkStep);
  if (wait) wait_device_ops();
}

void wait_device_ops() { frontend::wait(); }

std::vector<std::pair<std::string, int64_t>> counters() { return base::counters(); }

}  // namespace lazyt
