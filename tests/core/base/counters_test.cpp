#include "base/counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/hash.h"
#include "base/ref.h"

namespace lazyt::base {
namespace {

TEST(Counter, IsTheSameObjectForTheSameName) {
  EXPECT_EQ(&counter("Test.same"), &counter(std::string("Test.") + "same"));
  EXPECT_NE(&counter("Test.same"), &counter("Test.other"));
}

TEST(Counter, CountsFromManyThreads) {
  reset_counters();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([] {
      for (int k = 0; k < 1000; k++) counter("Test.threads").add();
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(counter("Test.threads").value(), 4000);
}

TEST(Counter, IsListedSortedWhileItIsNotZero) {
  reset_counters();
  counter("Test.b").add(2);
  counter("Test.a").add(1);
  counter("Test.zero");
  auto all = counters();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](auto& c) { return c.first == "Test.zero"; }), 0);
  EXPECT_EQ(
      std::count_if(all.begin(), all.end(), [](auto& c) { return c.first == "Test.b" && c.second == 2; }), 1);
}

TEST(Metric, KeepsTheLastSamplesAndTheWholeTotal) {
  reset_counters();
  for (int i = 0; i < 1500; i++) record_time("Test.time", 1.0);
  record_time("Test.time", 2.0);
  MetricData m = metric("Test.time");
  EXPECT_EQ(m.count, 1501);
  EXPECT_DOUBLE_EQ(m.total_seconds, 1502.0);
  EXPECT_EQ(m.samples.size(), 1024u);
  EXPECT_EQ(m.samples.back(), 2.0);
  reset_counters();
  EXPECT_EQ(metric("Test.time").count, 0);
}

struct Tracked : RefCounted {
  explicit Tracked(int& live) : live(live) { live++; }
  ~Tracked() override { live--; }
  int& live;
};

TEST(Ref, FreesWithTheLastHolder) {
  int live = 0;
  auto a = make_ref<Tracked>(live);
  EXPECT_TRUE(a->unique());
  Ref<Tracked> b = a;
  EXPECT_FALSE(a->unique());
  a = nullptr;
  EXPECT_EQ(live, 1);
  EXPECT_TRUE(b->unique());
  Ref<Tracked> c = std::move(b);
  EXPECT_FALSE(b);
  c = c.get() ? c : nullptr;
  EXPECT_EQ(live, 1);
  c = nullptr;
  EXPECT_EQ(live, 0);
}

TEST(Hash, DependsOnBytesAndSeed) {
  EXPECT_EQ(hash128("abc", 3), hash128("abc", 3));
  EXPECT_FALSE(hash128("abc", 3) == hash128("abd", 3));
  EXPECT_FALSE(hash128("abc", 3, 1) == hash128("abc", 3, 2));
  // XXH3-128 of nothing, as its specification has it.
  EXPECT_EQ(hash128("", 0).to_string(), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, IsWrittenInCanonicalOrder) {
  uint8_t bytes[16];
  Hash128{0x1112131415161718, 0x0102030405060708}.write_canonical(bytes);
  EXPECT_EQ(bytes[0], 0x01);
  EXPECT_EQ(bytes[7], 0x08);
  EXPECT_EQ(bytes[8], 0x11);
  EXPECT_EQ(bytes[15], 0x18);
}

}  // namespace
}  // namespace lazyt::base
