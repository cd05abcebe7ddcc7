// Devices, memory, streams, events and execution of the CUDA plugin on the fake driver, and what becomes of failures.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "fixture.h"
#include "lazyt/dlpack.hpp"

namespace lazyt::cuda {
namespace {

using namespace std::chrono_literals;

class Runtime : public CudaTest {
 protected:
  lazyt_memory_stats_t stats() const {
    lazyt_memory_stats_t out{.struct_size = sizeof out};
    EXPECT_EQ(text_of(kDeviceTable.memory_stats(device_, &out)), "");
    return out;
  }
};

TEST_F(Runtime, MoreBytesThanTheStagingMemoryComeBack) {
  const Floats values = numbers(12'000'000);
  EXPECT_EQ(download(upload(values), values.size()), values);
}

TEST_F(Runtime, ManyUploadsBehindASlowDeviceKeepTheirBytes) {
  configure("delay_us=200");
  std::vector<BufferPtr> buffers;
  for (int i = 0; i < 50; ++i) buffers.push_back(upload(Floats(1000, static_cast<float>(i))));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(download(buffers[static_cast<size_t>(i)], 1000), Floats(1000, static_cast<float>(i)));
}

TEST_F(Runtime, ABufferReleasedBeforeItsUploadIsDoneIsNotHandedOutAgain) {
  configure("delay_us=20000");
  upload(Floats(1000, 1));
  BufferPtr other = alloc(1000);
  Floats out(1000);
  configure("delay_us=0");
  BufferPtr twos = upload(Floats(1000, 2));
  lazyt_event_t* event = nullptr;
  ASSERT_EQ(text_of(kBufferTable.copy(twos.get(), 0, other.get(), 0, 4000, {}, &event)), "");
  ASSERT_EQ(wait(EventPtr(event)), "");
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(download(other, 1000), Floats(1000, 2));
}

TEST_F(Runtime, StepsRunInOrder) {
  auto exe = chain(3000, 5);
  const Floats x = numbers(3000);
  BufferPtr in = upload(x), out = alloc(3000);
  EventPtr done = run(*exe, in, 1.5, out);
  EXPECT_EQ(download(out, 3000, {done.get()}), expected(x, 1.5, 5));
  EXPECT_EQ(wait(done), "");
}

TEST_F(Runtime, ExecuteReturnsBeforeTheWorkIsDone) {
  auto exe = chain(100, 2);
  const Floats x = numbers(100);
  BufferPtr in = upload(x), out = alloc(100);
  configure("delay_us=50000");
  EventPtr done = run(*exe, in, 2, out);
  Floats read_back(100);
  EventPtr read_done = read(out, read_back, {done.get()});
  EXPECT_FALSE(ready(done));
  EXPECT_FALSE(ready(read_done));
  EXPECT_EQ(wait(read_done), "");
  EXPECT_TRUE(ready(done));
  EXPECT_EQ(read_back, expected(x, 2, 2));
}

TEST_F(Runtime, AnExecutableIsReleasedBeforeItsWorkIsDone) {
  auto exe = chain(100, 2);
  const Floats x = numbers(100);
  BufferPtr in = upload(x), out = alloc(100);
  configure("delay_us=20000");
  EventPtr done = run(*exe, in, 3, out);
  exe.reset();
  EXPECT_EQ(wait(done), "");
  EXPECT_EQ(download(out, 100), expected(x, 3, 2));
}

TEST_F(Runtime, CallbacksMayCallThePlugin) {
  auto exe = chain(100, 1);
  const Floats x = numbers(100);
  BufferPtr in = upload(x), out = alloc(100);
  struct Seen {
    BufferPtr& out;
    Floats values = Floats(100);
    EventPtr next;
    std::atomic<bool> called{false};
  } seen{out};
  EventPtr done = run(*exe, in, 2, out);
  auto callback = [](void* self, lazyt_status_t*) {
    auto& s = *static_cast<Seen*>(self);
    s.next = read(s.out, s.values);
    s.called = true;
  };
  ASSERT_EQ(text_of(Work::table().on_ready(done.get(), callback, &seen)), "");
  while (!seen.called) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(wait(seen.next), "");
  EXPECT_EQ(seen.values, expected(x, 2, 1));
}

TEST_F(Runtime, FreedMemoryIsHandedOutAgainAndTrimGivesItBack) {
  const auto before = counted("allocations");
  for (int i = 0; i < 10; ++i) alloc(5000);
  EXPECT_EQ(counted("allocations"), before + 1);
  EXPECT_EQ(stats().bytes_in_use, 0u);
  EXPECT_GE(stats().bytes_reserved, 20000u);
  EXPECT_EQ(text_of(kDeviceTable.trim(device_)), "");
  EXPECT_EQ(stats().bytes_reserved, 0u);
}

TEST_F(Runtime, MemoryThatOthersKeepUnusedIsGivenBackBeforeItRunsOut) {
  { BufferPtr small = alloc(100); }
  configure("fail_alloc=1");
  EXPECT_NE(alloc(100000), nullptr);
}

TEST_F(Runtime, NoMemoryIsResourceExhausted) {
  configure("memory=100000000");
  BufferPtr most = alloc(20'000'000);
  lazyt_buffer_desc_t desc{.struct_size = sizeof desc, .size_bytes = 40'000'000};
  lazyt_buffer_t* out = nullptr;
  const std::string said = text_of(kBufferTable.alloc(device_, &desc, &out));
  EXPECT_NE(said.find("RESOURCE_EXHAUSTED"), std::string::npos) << said;
  EXPECT_NE(said.find("40000000 bytes"), std::string::npos) << said;
  most = nullptr;
  EXPECT_NE(alloc(10'000'000), nullptr);
}

TEST_F(Runtime, AnExecuteWithoutMemoryHasRunNothing) {
  auto exe = chain(1000, 3);
  const Floats x = numbers(1000);
  BufferPtr in = upload(x), out = upload(Floats(1000, 7));
  configure("memory=9000");
  EventPtr done = run(*exe, in, 2, out);
  EXPECT_NE(wait(done).find("RESOURCE_EXHAUSTED"), std::string::npos);
  configure("memory=1073741824");
  EXPECT_EQ(download(out, 1000), Floats(1000, 7));
  EventPtr again = run(*exe, in, 2, out);
  EXPECT_EQ(download(out, 1000, {again.get()}), expected(x, 2, 3));
}

TEST_F(Runtime, ALaunchThatFailsNamesItsNodeAndPoisonsWhatWaits) {
  auto exe = chain(100, 3);
  BufferPtr in = upload(numbers(100)), out = alloc(100), other = alloc(100);
  configure("fail_launch=2");
  EventPtr failed = run(*exe, in, 2, out);
  const std::string said = wait(failed);
  EXPECT_NE(said.find("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"), std::string::npos) << said;
  EXPECT_NE(said.find("test::scale, node 1"), std::string::npos) << said;
  EventPtr next = run(*exe, out, 2, other, {failed.get()});
  EXPECT_EQ(wait(next), said);
  Floats untouched(100, -1);
  EXPECT_EQ(wait(read(other, untouched, {next.get()})), said);
  EXPECT_EQ(untouched, Floats(100, -1));
  // The device is well.
  EXPECT_EQ(wait(run(*exe, in, 2, out)), "");
}

TEST_F(Runtime, AKernelThatFaultsLosesTheDevice) {
  auto exe = chain(100, 1);
  BufferPtr in = upload(numbers(100)), first = alloc(100), second = alloc(100), third = alloc(100);
  EventPtr well = run(*exe, in, 2, first);
  EXPECT_EQ(wait(well), "");
  configure("fault_kernel=1,delay_us=5000");
  EventPtr faulted = run(*exe, in, 2, second), behind = run(*exe, second, 2, third, {faulted.get()});
  const std::string said = wait(faulted);
  EXPECT_NE(said.find("UNAVAILABLE"), std::string::npos) << said;
  EXPECT_NE(said.find("device 0 is lost"), std::string::npos) << said;
  EXPECT_NE(said.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << said;
  EXPECT_NE(said.find("end this process"), std::string::npos) << said;
  EXPECT_NE(wait(behind).find("is lost"), std::string::npos);
  // What was done before stays done; everything after says so.
  EXPECT_EQ(wait(well), "");
  EXPECT_NE(wait(run(*exe, in, 2, second)).find("device 0 is lost"), std::string::npos);
  lazyt_host_bytes_t bytes{.struct_size = sizeof bytes, .data = said.data(), .size_bytes = 8};
  lazyt_buffer_t* out = nullptr;
  EXPECT_NE(text_of(kBufferTable.from_host(device_, &bytes, &out)).find("device 0 is lost"), std::string::npos);
  Floats values(100);
  EXPECT_NE(wait(read(first, values)).find("device 0 is lost"), std::string::npos);
}

TEST_F(Runtime, WaitingForEachStepNamesTheOneThatFaulted) {
  if (!std::getenv("LAZYT_CUDA_SYNC")) GTEST_SKIP() << "a run of its own: LAZYT_CUDA_SYNC=1";
  auto exe = chain(100, 4);
  BufferPtr in = upload(numbers(100)), out = alloc(100);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(wait(run(*exe, in, 2, out)), "");
  EXPECT_EQ(counted("graph_launches"), 0u);
  configure("fault_kernel=3");
  const std::string said = wait(run(*exe, in, 2, out));
  EXPECT_NE(said.find("device 0 is lost"), std::string::npos) << said;
  EXPECT_NE(said.find("test::scale, node 2"), std::string::npos) << said;
}

TEST_F(Runtime, AnAllocationOnALostDeviceIsNoLackOfMemory) {
  auto exe = chain(100, 1);
  BufferPtr in = upload(numbers(100)), out = alloc(100);
  configure("fault_kernel=1");
  EventPtr faulted = run(*exe, in, 2, out);
  // No mark: the fault was there before the launch had ended.
  const MarkRef mark = Work::from(faulted.get())->mark();
  while (mark && cu().cuEventQuery(mark->event()) == CUDA_ERROR_NOT_READY) std::this_thread::sleep_for(1ms);
  lazyt_buffer_desc_t desc{.struct_size = sizeof desc, .size_bytes = 777777};
  lazyt_buffer_t* none = nullptr;
  const std::string said = text_of(kBufferTable.alloc(device_, &desc, &none));
  EXPECT_NE(said.find("device 0 is lost"), std::string::npos) << said;
}

TEST_F(Runtime, ADeviceLostDuringADownloadIsToldByItsEvent) {
  BufferPtr buffer = upload(numbers(100));
  EXPECT_EQ(download(buffer, 100), numbers(100));
  configure("lose_device=1,delay_us=2000");
  Floats out(100, -1);
  const std::string said = wait(read(buffer, out));
  EXPECT_NE(said.find("CUDA_ERROR_ECC_UNCORRECTABLE"), std::string::npos) << said;
  EXPECT_EQ(out, Floats(100, -1));
}

TEST_F(Runtime, BuffersAreCheckedBeforeAnythingRuns) {
  auto exe = chain(100, 1);
  BufferPtr in = upload(numbers(100)), small = alloc(10);
  EXPECT_NE(wait(run(*exe, in, 2, small)).find("output 0 needs 400 bytes, its buffer has 40"), std::string::npos);
  EXPECT_NE(wait(run(*exe, in, 2, nullptr)).find("output 0 has no buffer"), std::string::npos);
}

TEST_F(Runtime, OverlappingCopiesMoveTheOldBytes) {
  BufferPtr buffer = upload({1, 2, 3, 4, 5, 6});
  ASSERT_EQ(text_of(kBufferTable.copy(buffer.get(), 0, buffer.get(), 8, 16, {}, nullptr)), "");
  EXPECT_EQ(download(buffer, 6), (Floats{1, 2, 1, 2, 3, 4}));
}

TEST_F(Runtime, ExportedBytesOutliveBufferAndDevice) {
  lazyt_device_t* other = open(1);
  BufferPtr buffer = upload(other, numbers(100));
  DLManagedTensorVersioned* tensor = nullptr;
  ASSERT_EQ(text_of(kBufferTable.export_dlpack(buffer.get(), &tensor)), "");
  EXPECT_EQ(tensor->dl_tensor.device.device_type, 2);
  EXPECT_EQ(tensor->dl_tensor.device.device_id, 1);
  buffer = nullptr;
  kDeviceTable.close(other);
  EXPECT_EQ(static_cast<float*>(tensor->dl_tensor.data)[7], numbers(100)[7]);
  tensor->deleter(tensor);
}

TEST_F(Runtime, ImportedBytesAreShared) {
  BufferPtr buffer = upload(numbers(100));
  DLManagedTensorVersioned* tensor = nullptr;
  ASSERT_EQ(text_of(kBufferTable.export_dlpack(buffer.get(), &tensor)), "");
  lazyt_buffer_t* imported = nullptr;
  ASSERT_EQ(text_of(kBufferTable.import_dlpack(device_, tensor, nullptr, &imported)), "");
  BufferPtr view(imported);
  BufferPtr ones = upload(Floats(100, 1));
  ASSERT_EQ(text_of(kBufferTable.copy(ones.get(), 0, view.get(), 0, 400, {}, nullptr)), "");
  EXPECT_EQ(download(buffer, 100), Floats(100, 1));
  tensor->dl_tensor.device.device_id = 1;
  EXPECT_NE(text_of(kBufferTable.import_dlpack(device_, tensor, nullptr, &imported)).find("another GPU"), std::string::npos);
  tensor->dl_tensor.device.device_id = 0;
}

// What PyTorch does on its default stream, by which DLPack orders.
TEST_F(Runtime, ImportedBytesAreReadBehindWhatTheirProducerStillDoes) {
  BufferPtr buffer = upload(Floats(100, 1));
  DLManagedTensorVersioned* tensor = nullptr;
  ASSERT_EQ(text_of(kBufferTable.export_dlpack(buffer.get(), &tensor)), "");
  const auto address = reinterpret_cast<CUdeviceptr>(tensor->dl_tensor.data);
  configure("delay_us=20000");
  {
    const Current current(*device().context);
    for (unsigned char byte : {1, 2, 3}) ASSERT_EQ(cu().cuMemsetD8Async(address, byte, 400, CU_STREAM_LEGACY), CUDA_SUCCESS);
  }
  lazyt_buffer_t* imported = nullptr;
  ASSERT_EQ(text_of(kBufferTable.import_dlpack(device_, tensor, nullptr, &imported)), "");
  float last;
  std::memset(&last, 3, sizeof last);
  EXPECT_EQ(download(BufferPtr(imported), 100), Floats(100, last));
}

TEST_F(Runtime, ExportedBytesAreHandedOutAgainBehindWhatTheirConsumerStillDoes) {
  BufferPtr buffer = upload(Floats(1000, 1)), there = upload(Floats(1000, 0));
  download(there, 1);  // its upload is done
  DLManagedTensorVersioned *tensor = nullptr, *other = nullptr;
  ASSERT_EQ(text_of(kBufferTable.export_dlpack(buffer.get(), &tensor)), "");
  ASSERT_EQ(text_of(kBufferTable.export_dlpack(there.get(), &other)), "");
  buffer = nullptr;
  const auto from = reinterpret_cast<CUdeviceptr>(tensor->dl_tensor.data), to = reinterpret_cast<CUdeviceptr>(other->dl_tensor.data);
  configure("delay_us=20000");
  {
    const Current current(*device().context);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(cu().cuMemcpyDtoDAsync(to, from, 4000, CU_STREAM_LEGACY), CUDA_SUCCESS);
  }
  tensor->deleter(tensor);
  BufferPtr twos = upload(Floats(1000, 2));
  {
    const Current current(*device().context);
    ASSERT_EQ(cu().cuStreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
  }
  configure("delay_us=0");
  EXPECT_EQ(download(there, 1000), Floats(1000, 1));
  other->deleter(other);
}

TEST_F(Runtime, TwoDevicesExchangeBytesInOrder) {
  lazyt_device_t* second = open(1);
  {
    auto exe = chain(100, 2);
    const Floats x = numbers(100);
    BufferPtr in = upload(x), out = alloc(100), there = alloc(second, 400);
    configure("delay_us=10000");
    EventPtr computed = run(*exe, in, 2, out);
    lazyt_event_t* computed_raw = computed.get();
    lazyt_event_t* copied = nullptr;
    ASSERT_EQ(text_of(kBufferTable.copy(out.get(), 0, there.get(), 0, 400, {&computed_raw, 1}, &copied)), "");
    EventPtr copy(copied);
    EXPECT_FALSE(ready(copy));
    EXPECT_EQ(download(there, 100, {copied}), expected(x, 2, 2));
  }
  kDeviceTable.close(second);
}

TEST_F(Runtime, ALostDeviceLeavesTheOtherWellButPoisonsWhatCameFromIt) {
  lazyt_device_t* second = open(1);
  {
    auto exe = chain(100, 1);
    BufferPtr in = upload(numbers(100)), out = alloc(100), there = alloc(second, 400);
    configure("fault_kernel=1,delay_us=5000");
    EventPtr faulted = run(*exe, in, 2, out);
    lazyt_event_t* faulted_raw = faulted.get();
    lazyt_event_t* copied = nullptr;
    ASSERT_EQ(text_of(kBufferTable.copy(out.get(), 0, there.get(), 0, 400, {&faulted_raw, 1}, &copied)), "");
    EXPECT_NE(wait(EventPtr(copied)).find("device 0 is lost"), std::string::npos);
    configure("delay_us=0");
    EXPECT_EQ(download(upload(second, numbers(50)), 50), numbers(50));
  }
  kDeviceTable.close(second);
}

TEST_F(Runtime, ABufferOfAnotherDeviceIsRefused) {
  lazyt_device_t* second = open(1);
  {
    auto exe = chain(100, 1);
    BufferPtr in = upload(numbers(100)), there = alloc(second, 400);
    EXPECT_NE(wait(run(*exe, in, 2, there)).find("output 0 is on device 1, the executable on device 0"), std::string::npos);
  }
  kDeviceTable.close(second);
}

}  // namespace
}  // namespace lazyt::cuda
