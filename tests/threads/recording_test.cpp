// Threads that record at once, from recorded calls to values read back, on a plugin that computes: results are
// exact, whoever frees a tensor and whoever needs one that is still pending elsewhere.
//
// LAZYT_THREAD_STEPS: steps of each thread, 1,000 unless set. Runs under the address and thread sanitizers too.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/counters.h"
#include "trace/session.h"

namespace lazyt::trace {
namespace {

constexpr int kThreads = 4, kElements = 32;
using Values = std::vector<float>;

// A tensor's part of a storage: freed by whoever drops it last.
using Tensor = std::shared_ptr<Storage>;
Tensor make_tensor() {
  return Tensor(new Storage, [](Storage* s) {
    {
      std::lock_guard lock(Recorder::mutex());
      Recorder::forget(*s);
    }
    delete s;
  });
}

// Drops tensors in a thread of its own, as a garbage collector may.
class Collector {
 public:
  Collector() : thread_([this] { run(); }) {}
  ~Collector() {
    take(nullptr);
    thread_.join();
  }
  void take(Tensor t) {
    std::lock_guard lock(mutex_);
    dropped_.push_back(std::move(t));
    changed_.notify_one();
  }

 private:
  void run() {
    for (bool goes_on = true; goes_on;) {
      std::deque<Tensor> mine;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !dropped_.empty(); });
        mine.swap(dropped_);
      }
      for (const Tensor& t : mine) goes_on = goes_on && t;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Tensor> dropped_;
  std::thread thread_;  // last: it uses the others
};

class RecordingThreads : public ::testing::Test {
 protected:
  RecordingThreads() {
    for (Op* op : {&mul_, &relu_}) op->recorded = &base::counter("test::op");
    mul_.name = mul_.functional_name = "aten::mul", mul_.functional_overload = "Tensor";
    mul_.args = {{"self", ArgType::kTensor}, {"other", ArgType::kTensor}};
    relu_.name = relu_.functional_name = "aten::relu";
    relu_.args = {{"self", ArgType::kTensor}};
  }

  Tensor upload(Values values) {
    auto keep = std::make_shared<Values>(std::move(values));
    const uint64_t size = keep->size() * sizeof(float);
    auto buffer = session_.upload(keep->data(), size, keep);
    EXPECT_TRUE(buffer.ok()) << buffer.status().to_string();
    Tensor t = make_tensor();
    t->size_bytes = size;
    t->data = base::make_ref<exec::Data>(base::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {kElements}), size,
                                         std::move(buffer).value());
    return t;
  }

  Tensor call(Recorder& recorder, const Op& op, const std::vector<Tensor>& operands) {
    Call call;
    call.clear(&op);
    for (const Tensor& t : operands) {
      call.operands.push_back(t.get());
      call.signature.append({tagged(kTensor, 1, LAZYT_DTYPE_FLOAT32), 0, kElements, 1});
    }
    Words metas;
    put_meta(metas, base::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {kElements}));
    Tensor result = make_tensor();
    while (true) {
      Recorder* other = nullptr;
      {
        std::lock_guard lock(Recorder::mutex());
        if (recorder.replay(call) || recorder.append(call, metas, 1, nullptr)) {
          result->size_bytes = kElements * sizeof(float);
          recorder.bind(*result, recorder.first_result());
          return result;
        }
        other = recorder.blocked_by();
      }
      if (!other) {
        ADD_FAILURE() << "nothing stands in the way of a call that was not recorded";
        return result;
      }
      EXPECT_TRUE(session_.flush(*other, FlushReason::kOtherThread).ok());
    }
  }

  Values read(const Tensor& t) {
    auto data = session_.materialize(*t);
    EXPECT_TRUE(data.ok()) << data.status().to_string();
    auto values = std::make_shared<Values>(kElements);
    base::Status status = data.value()->read(0, values->data(), t->size_bytes, values);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return *values;
  }

  Session& session_ = Session::get();
  Op mul_, relu_;
};

Values filled(float even, float odd) {
  Values values(kElements);
  for (int i = 0; i < kElements; i++) values[i] = i % 2 ? odd : even;
  return values;
}

TEST_F(RecordingThreads, FourTimesAThousandStepsGiveExactResults) {
  const char* asked = std::getenv("LAZYT_THREAD_STEPS");
  const int steps = asked ? std::atoi(asked) : 1000;
  const Tensor signs = upload(filled(1, -1)), twice = upload(filled(2, 2)), half = upload(filled(0.5f, 0.5f));
  Tensor published = upload(filled(1, 1));
  std::mutex publishing;
  Collector collector;
  const auto begin = std::chrono::steady_clock::now();

  auto work = [&](int number) {
    Recorder& recorder = session_.take_recorder();
    Values expected(kElements);
    for (int i = 0; i < kElements; i++) expected[i] = static_cast<float>(number + 1 + i);
    Tensor state = upload(expected);
    for (int step = 0; step < steps; step++) {
      Tensor ones;
      {
        std::lock_guard lock(publishing);
        ones = published;  // maybe pending in another thread's trace
      }
      Tensor scaled = call(recorder, mul_, {state, step % 2 ? half : twice});
      Tensor next = call(recorder, mul_, {call(recorder, mul_, {scaled, signs}), ones});
      Tensor positive = call(recorder, relu_, {next});  // dropped: nobody reads it
      for (int i = 0; i < kElements; i++) expected[i] *= (step % 2 ? 0.5f : 2.f) * (i % 2 ? -1.f : 1.f);
      collector.take(std::move(scaled));
      collector.take(std::move(positive));
      collector.take(std::exchange(state, next));
      if (step % 16 == number) {
        Tensor fresh = call(recorder, mul_, {signs, signs});
        std::lock_guard lock(publishing);
        collector.take(std::exchange(published, fresh));
      }
      ASSERT_TRUE(session_.flush(recorder, FlushReason::kMarkStep).ok());
      if (step % 97 == 0 || step + 1 == steps) {
        ASSERT_EQ(read(state), expected) << "thread " << number << ", step " << step;
      }
    }
    session_.give_back(recorder);
  };
  std::vector<std::thread> threads;
  for (int n = 0; n < kThreads; n++) threads.emplace_back(work, n);
  for (std::thread& t : threads) t.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  fmt::print("{} threads x {} steps in {:.2f} s, {} programs\n", kThreads, steps, seconds.count(),
             base::counter("UncachedCompile").value());
  published.reset();
  Session::shut_down_all();
}

}  // namespace
}  // namespace lazyt::trace
