#include "walk.h"

#include <algorithm>

namespace lazyt::cuda {

std::string literal(int64_t n) { return n < 0 ? "(" + std::to_string(n) + "LL)" : std::to_string(n) + "LL"; }

std::string offset_text(const Dims& dims, const Dims& strides, const std::string& index) {
  if (toolkit::count_of(dims) == 0) return "0LL";
  std::vector<size_t> order(dims.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  const toolkit::Loops loops = toolkit::collapse(dims, std::vector<Dims>{strides}, order);
  std::string text;
  int64_t inner = 1;
  for (size_t d = loops.dims.size(); d-- > 0;) {
    const int64_t stride = loops.strides[0][d];
    if (stride != 0 && loops.dims[d] > 1) {
      std::string term = "(" + index + ")";
      if (inner > 1) term = "(" + term + " / " + literal(inner) + ")";
      if (d > 0) term = "(" + term + " % " + literal(loops.dims[d]) + ")";
      if (stride != 1) term += " * " + literal(stride);
      text = text.empty() ? term : term + " + " + text;
    }
    inner *= loops.dims[d];
  }
  return text.empty() ? "0LL" : "(" + text + ")";
}

Walk walk_of(const std::vector<Layout>& layouts, const std::vector<bool>& reduced, bool in_order) {
  const Dims& dims = layouts[0].dims;
  std::vector<size_t> kept, inner;
  for (size_t d : toolkit::memory_order(dims, layouts[0].strides)) (reduced[d] ? inner : kept).push_back(d);
  if (in_order) std::sort(inner.begin(), inner.end());
  auto pick = [](const Dims& from, const std::vector<size_t>& which) {
    Dims out;
    for (size_t d : which) out.push_back(from[d]);
    return out;
  };
  auto nearest = [&](const std::vector<size_t>& which) {
    int64_t least = INT64_MAX;
    for (size_t d : which)
      if (dims[d] > 1 && layouts[0].strides[d] != 0) least = std::min(least, std::abs(layouts[0].strides[d]));
    return least;
  };
  Walk walk;
  walk.lines = toolkit::count_of(pick(dims, kept));
  walk.n = toolkit::count_of(pick(dims, inner));
  walk.columns = nearest(kept) < nearest(inner);
  walk.defines = {{"LINES", literal(walk.lines)}, {"N", literal(walk.n)}};
  for (size_t k = 0; k < layouts.size(); ++k) {
    const std::string number = std::to_string(k);
    walk.defines.emplace_back("LINE" + number + "(l)",
                              offset_text(pick(dims, kept), pick(layouts[k].strides, kept), "l"));
    walk.defines.emplace_back("AT" + number + "(i)",
                              offset_text(pick(dims, inner), pick(layouts[k].strides, inner), "i"));
  }
  return walk;
}

Walk walk_along(const std::vector<Layout>& layouts, size_t axis) {
  std::vector<bool> reduced(layouts[0].rank(), false);
  if (!reduced.empty()) reduced[axis] = true;
  return walk_of(layouts, reduced, true);
}

Layout beside(const Layout& result, const Dims& dims, const std::vector<bool>& reduced) {
  const bool keeps = result.rank() == dims.size();
  Layout out{result.offset, dims, Dims(dims.size(), 0)};
  for (size_t d = 0, at = 0; d < dims.size(); ++d) {
    if (!reduced[d]) out.strides[d] = result.strides[keeps ? d : at];
    if (keeps || !reduced[d]) ++at;
  }
  return out;
}

Defines Team::defines() const {
  return {{"THREADS", std::to_string(threads)},
          {"TEAM", std::to_string(team)},
          {"COLUMNS", columns ? "true" : "false"}};
}

// Enough threads to keep a GPU of some 130 multiprocessors busy.
constexpr int64_t kManyThreads = 1 << 18;

Team team_for(const Walk& walk) {
  if (walk.columns) {
    // 32 lines side by side fill a memory transaction.
    uint32_t team = 1;
    while (team < 32 && team * 4 <= walk.n && walk.lines * team < kManyThreads) team *= 2;
    return {std::max<uint32_t>(team * 32, 128), team, true};
  }
  if (walk.n <= 1024) {
    uint32_t team = 32;
    while (team > 1 && team / 2 >= walk.n) team /= 2;
    // Few lines: more threads for each of them (256 lines of 1024, a layer norm's gradient on an H200: 24 us by teams of 32).
    while (team >= 32 && team < 256 && team * 8 <= walk.n && walk.lines * team * 2 <= kManyThreads) team *= 2;
    return {256, team, false};
  }
  const uint32_t threads = walk.n > 16384 ? 1024 : walk.n > 4096 ? 512 : 256;
  return {threads, threads, false};
}

Team scanning_team_for(const Walk& walk) {
  if (walk.n <= 16 || (walk.columns && walk.lines >= 256)) return {128, 1, walk.columns};
  if (walk.n <= 256) return {256, 32, false};
  return {256, 256, false};
}

void add_lines(Builder& b, std::string_view base, std::string_view text, const Walk& walk, const Team& team,
               Defines more, std::vector<Word> words, const std::vector<StorageId>& reads,
               const std::vector<StorageId>& writes, const std::vector<StorageId>& reads_in_place) {
  Defines defines = walk.defines;
  for (const auto& [name, value] : team.defines()) defines.emplace_back(name, value);
  defines.insert(defines.end(), more.begin(), more.end());
  std::string whole(kTeamText);
  whole += text;
  constexpr int64_t kMostBlocks = INT32_MAX;
  const auto blocks =
      static_cast<uint32_t>(std::min((walk.lines + team.lines() - 1) / team.lines(), kMostBlocks));
  b.add_kernel(specialise(base, whole, defines), {blocks, 1, 1}, {team.threads, 1, 1}, 0, std::move(words),
               reads, writes, reads_in_place);
}

Defines types_of(lazyt_dtype_t dtype) { return {{"T", memory_type(dtype)}, {"C", register_type(dtype)}}; }

// Names in here must not be ones that kernels define: no single capitals.
const std::string_view kTeamText = R"(
#ifndef LAZYT_TEAM_TEXT
#define LAZYT_TEAM_TEXT
#define LAZYT_INFINITY __int_as_float(0x7f800000)
template <class Value> __device__ __forceinline__ Value lazyt_across(Value v, int k) { return __shfl_xor_sync(0xffffffffu, v, k); }
// A value and where it was.
template <class Value> struct lazyt_place { Value value; long long at; };
template <class Value> __device__ __forceinline__ lazyt_place<Value> lazyt_across(lazyt_place<Value> p, int k) {
  return {lazyt_across(p.value, k), lazyt_across(p.at, k)};
}
struct lazyt_plus { template <class Value> __device__ Value operator()(Value x, Value y) const { return x + y; } };
// The larger; NaN before all. Of a NaN and a NaN the first.
template <class Value> __device__ __forceinline__ bool lazyt_larger(Value x, Value y) { return y == y && (x > y || x != x); }
template <class Value> __device__ __forceinline__ bool lazyt_smaller(Value x, Value y) { return y == y && (x < y || x != x); }
struct lazyt_greatest { template <class Value> __device__ Value operator()(Value x, Value y) const { return lazyt_larger(y, x) ? y : x; } };
struct lazyt_least { template <class Value> __device__ Value operator()(Value x, Value y) const { return lazyt_smaller(y, x) ? y : x; } };
// team_ threads that share a line: neighbours, or, with columns_, THREADS / team_ apart. Every thread of the block calls.
template <int team_, bool columns_, int threads_> struct lazyt_team {
  static constexpr int kLines = threads_ / team_;
  static __device__ __forceinline__ int lane() { return columns_ ? threadIdx.x / kLines : threadIdx.x % team_; }
  static __device__ __forceinline__ int line() { return columns_ ? threadIdx.x % kLines : threadIdx.x / team_; }
  // op over the team's values, the same in each thread.
  template <class Value, class Fn> static __device__ __forceinline__ Value all(Value v, Fn op) {
    if constexpr (team_ == 1) {
      return v;
    } else if constexpr (columns_) {
      __shared__ Value room[threads_];
      room[threadIdx.x] = v;
      for (int k = team_ / 2; k > 0; k /= 2) {
        __syncthreads();
        if (lane() < k) room[threadIdx.x] = op(room[threadIdx.x], room[threadIdx.x + k * kLines]);
      }
      __syncthreads();
      v = room[line()];
      __syncthreads();
      return v;
    } else {
      for (int k = (team_ < 32 ? team_ : 32) / 2; k > 0; k /= 2) v = op(v, lazyt_across(v, k));
      if constexpr (team_ > 32) {
        __shared__ Value room[threads_ / 32];
        if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
        __syncthreads();
        const int first = line() * (team_ / 32);
        v = room[first];
        for (int k = 1; k < team_ / 32; ++k) v = op(v, room[first + k]);
        __syncthreads();
      }
      return v;
    }
  }
  // op over the values of this thread and those before it in the team; total: of all. Not with columns_.
  template <class Value, class Fn> static __device__ __forceinline__ Value scan(Value v, Fn op, Value* total) {
    if constexpr (team_ > 1) {
      __shared__ Value room[threads_];
      room[threadIdx.x] = v;
      for (int k = 1; k < team_; k *= 2) {
        __syncthreads();
        const bool takes = lane() >= k;
        const Value before = room[takes ? threadIdx.x - k : threadIdx.x];
        __syncthreads();
        if (takes) room[threadIdx.x] = v = op(before, v);
      }
      __syncthreads();
      *total = room[line() * team_ + team_ - 1];
      __syncthreads();
    } else {
      *total = v;
    }
    return v;
  }
};
#endif
)";

}  // namespace lazyt::cuda
