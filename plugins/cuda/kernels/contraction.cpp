#include "contraction.h"

#include <algorithm>

namespace lazyt::cuda {
namespace {

// A block computes BM x BN sums, a thread TM x TN of them, over BK products at a time that lie in shared
// memory; the next are on their way meanwhile. SPLITS blocks may share the products of a sum: the last of them adds the
// parts in their order.
constexpr std::string_view kTiled = R"(
  constexpr int kThreads = (BM / TM) * (BN / TN), kAcross = BN / TN, kDown = BM / TM;
  constexpr int kLeft = BM * BK / kThreads, kRight = BN * BK / kThreads;
  constexpr int kRows = LEFT_ALONG_K ? kLeft : 1, kColumns = RIGHT_ALONG_K ? kRight : 1;
  __shared__ C ls[BK][BM + 1];
  __shared__ C rs[BK][BN + 1];
  const long long size_m = SIZE_M, size_n = SIZE_N, size_k = SIZE_K;
  const long long tiles_m = (size_m + BM - 1) / BM, tiles_n = (size_n + BN - 1) / BN;
  const int tid = threadIdx.x, across = tid % kAcross, down = tid / kAcross;
  for (long long tile = block; tile < tiles_m * tiles_n * BATCH * SPLITS; tile += blocks) {
    const long long n0 = tile % tiles_n * BN, m0 = tile / tiles_n % tiles_m * BM;
    const long long part = tile / tiles_n / tiles_m % SPLITS, z = tile / tiles_n / tiles_m / SPLITS;
    const long long first = SPLITS == 1 ? 0 : (size_k + BK - 1) / BK * part / SPLITS * BK;
    const long long last = SPLITS == 1 ? size_k : part == SPLITS - 1 ? size_k : (size_k + BK - 1) / BK * (part + 1) / SPLITS * BK;
    Left left[kRows];
    Right right[kColumns];
    bool has_row[kRows], has_column[kColumns];
    for (int r = 0; r < kRows; ++r) {
      const long long m = m0 + (LEFT_ALONG_K ? (tid + r * kThreads) / BK : tid % BM);
      has_row[r] = m < size_m;
      if (has_row[r]) left[r].begin(a, z, m);
    }
    for (int r = 0; r < kColumns; ++r) {
      const long long n = n0 + (RIGHT_ALONG_K ? (tid + r * kThreads) / BK : tid % BN);
      has_column[r] = n < size_n;
      if (has_column[r]) right[r].begin(a, z, n);
    }
    C next_left[kLeft], next_right[kRight];
    auto fetch = [&](long long k0) {
#pragma unroll
      for (int r = 0; r < kLeft; ++r) {
        const int row = LEFT_ALONG_K ? r : 0;
        const long long k = k0 + (LEFT_ALONG_K ? (tid + r * kThreads) % BK : (tid + r * kThreads) / BM);
        next_left[r] = has_row[row] && k < last ? left[row].at(k) : (C)0;
      }
#pragma unroll
      for (int r = 0; r < kRight; ++r) {
        const int column = RIGHT_ALONG_K ? r : 0;
        const long long k = k0 + (RIGHT_ALONG_K ? (tid + r * kThreads) % BK : (tid + r * kThreads) / BN);
        next_right[r] = has_column[column] && k < last ? right[column].at(k) : (C)0;
      }
    };
    A sums[TM][TN] = {};
    fetch(first);
    for (long long k0 = first; k0 < last; k0 += BK) {
#pragma unroll
      for (int r = 0; r < kLeft; ++r) {
        const int e = tid + r * kThreads;
        if (LEFT_ALONG_K) ls[e % BK][e / BK] = next_left[r]; else ls[e / BM][e % BM] = next_left[r];
      }
#pragma unroll
      for (int r = 0; r < kRight; ++r) {
        const int e = tid + r * kThreads;
        if (RIGHT_ALONG_K) rs[e % BK][e / BK] = next_right[r]; else rs[e / BN][e % BN] = next_right[r];
      }
      __syncthreads();
      if (k0 + BK < last) fetch(k0 + BK);
#pragma unroll
      for (int k = 0; k < BK; ++k) {
        A x[TM], y[TN];
#pragma unroll
        for (int i = 0; i < TM; ++i) x[i] = ls[k][down + i * kDown];
#pragma unroll
        for (int j = 0; j < TN; ++j) y[j] = rs[k][across + j * kAcross];
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) sums[i][j] = MULTIPLY_ADD(x[i], y[j], sums[i][j]);
      }
      __syncthreads();
    }
    // f(m, n, sum) of the thread's sums.
    auto each = [&](auto f) {
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
          const long long m = m0 + down + i * kDown, n = n0 + across + j * kAcross;
          if (m < size_m && n < size_n) f(m, n, sums[i][j]);
        }
    };
    if (SPLITS > 1) {
      A* const parts = (A*)a.w[WORDS - 2] + z * size_m * size_n;
      each([&](long long m, long long n, A& sum) { parts[(part * BATCH * size_m + m) * size_n + n] = sum; });
      if (!lazyt_is_last((unsigned*)a.w[WORDS - 1] + (z * tiles_m * tiles_n + tile % (tiles_m * tiles_n)), SPLITS)) continue;
      each([&](long long m, long long n, A& sum) {
        sum = 0;
        for (int p = 0; p < SPLITS; ++p) sum += parts[(p * BATCH * size_m + m) * size_n + n];
      });
    }
    each([&](long long m, long long n, A& sum) { Store::put(a, z, m, n, sum); });
  }
}
)";

// For sums of few rows or columns: a team of threads for each.
constexpr std::string_view kEach = R"(
  using Team = lazyt_team<TEAM, COLUMNS, THREADS>;
  const int lane = Team::lane();
  const long long size_m = SIZE_M, size_n = SIZE_N, size_k = SIZE_K, count = BATCH * size_m * size_n;
  for (long long base = block * (long long)Team::kLines; base < count; base += blocks * (long long)Team::kLines) {
    const long long e = base + Team::line();
    // Neighbours in a block are neighbours along m or n, as is best for the operand that is a matrix.
    const long long m = N_LAST ? e / size_n % size_m : e % size_m, n = N_LAST ? e % size_n : e / size_m % size_n;
    const long long z = e / size_n / size_m;
    A sum = 0;
    if (e < count) {
      Left left;
      Right right;
      left.begin(a, z, m);
      right.begin(a, z, n);
      for (long long k = lane; k < size_k; k += TEAM) sum = MULTIPLY_ADD((A)left.at(k), (A)right.at(k), sum);
    }
    sum = Team::all(sum, lazyt_plus());
    if (e < count && lane == 0) Store::put(a, z, m, n, sum);
  }
}
)";

std::string sum_type(lazyt_dtype_t dtype) {
  switch (dtype) {
    case LAZYT_DTYPE_INT8:
    case LAZYT_DTYPE_INT16:
    case LAZYT_DTYPE_UINT8:
    case LAZYT_DTYPE_INT32:
      return "unsigned";  // wraps
    case LAZYT_DTYPE_INT64:
      return "unsigned long long";
    default:
      return register_type(dtype);
  }
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Tile {
  int64_t bm, bn, bk, tm, tn;
  int64_t blocks(const Contraction& c) const { return ceil_div(c.m, bm) * ceil_div(c.n, bn) * c.batch; }
};
constexpr Tile kLarge{128, 128, 8, 8, 8}, kMiddle{64, 64, 16, 4, 4}, kSmall{32, 32, 16, 2, 2};
constexpr int64_t kMultiprocessors = 132;  // that shall have work

}  // namespace

void add_contraction(Builder& b, Contraction c) {
  if (c.batch * c.m * c.n == 0) return;
  const lazyt_dtype_t sums = sum_type(c.dtype) == "unsigned" ? LAZYT_DTYPE_INT32 : compute_dtype(c.dtype);
  Defines defines = types_of(c.dtype);
  defines.emplace_back("A", sum_type(c.dtype));
  // NVRTC is told to keep products and sums apart.
  defines.emplace_back("MULTIPLY_ADD(x, y, z)",
                       is_floating(c.dtype) ? "lazyt_fma(x, y, z)" : "((x) * (y) + (z))");
  auto flag = [](bool set) { return std::string(set ? "true" : "false"); };
  const Defines shape = {
      {"BATCH", literal(c.batch)}, {"SIZE_M", c.text_m}, {"SIZE_N", c.text_n}, {"SIZE_K", c.text_k}};
  defines.insert(defines.end(), shape.begin(), shape.end());
  defines.insert(defines.end(), c.defines.begin(), c.defines.end());
  // Several may be one launch: see KernelStep::body.
  auto add = [&](std::string_view text, uint32_t blocks, uint32_t threads, std::vector<Word> words, const std::vector<StorageId>& writes) {
    std::string body = "{\n  struct Args { const unsigned long long* w; };\n  const Args a{w};\n" + c.common + c.left + c.right + c.store;
    body += text;
    defines.emplace_back("WORDS", std::to_string(words.size()));
    auto step = std::make_unique<KernelStep>();
    step->before = kTeamText;
    step->body = enclosed(body, defines);
    step->source = specialise(c.name, step->before + "LAZYT_KERNEL(KERNEL, " + std::to_string(words.size()) + ", " +
                                        std::to_string(threads) + ") {\nconst unsigned long long* w = a.w;\n" +
                                        "const unsigned block = blockIdx.x, blocks = gridDim.x;\n" + step->body + "}\n", {});
    step->grid = {blocks, 1, 1};
    step->block = {threads, 1, 1};
    step->words = std::move(words);
    b.add_kernel(std::move(step), c.reads, writes, c.reads_in_place);
  };
  std::vector<Word> words = c.words;

  if (c.m <= 4 || c.n <= 4) {
    const bool n_last = c.m <= 4;
    // Along which of its dims the matrix of the two lies side by side.
    const bool along_k = n_last ? c.right_along_k : c.left_along_k;
    Walk walk;
    walk.lines = c.batch * c.m * c.n, walk.n = c.k, walk.columns = !along_k;
    const Team team = team_for(walk);
    for (const auto& define : team.defines()) defines.push_back(define);
    defines.emplace_back("N_LAST", flag(n_last));
    const auto blocks =
        static_cast<uint32_t>(std::min<int64_t>(ceil_div(walk.lines, team.lines()), INT32_MAX));
    return add(kEach, blocks, team.threads, std::move(words), c.writes);
  }

  Tile tile = kLarge;
  if (c.dtype == LAZYT_DTYPE_FLOAT64 || c.dtype == LAZYT_DTYPE_INT64 || tile.blocks(c) < kMultiprocessors)
    tile = kMiddle;
  if (tile.blocks(c) < kMultiprocessors / 2) tile = kSmall;
  int64_t splits = 1;
  if (tile.blocks(c) < kMultiprocessors)
    splits = std::clamp<int64_t>(std::min(2 * kMultiprocessors / tile.blocks(c), c.k / 256), 1, 64);
  const Defines tiled = {{"BM", std::to_string(tile.bm)},        {"BN", std::to_string(tile.bn)},
                         {"BK", std::to_string(tile.bk)},        {"TM", std::to_string(tile.tm)},
                         {"TN", std::to_string(tile.tn)},        {"SPLITS", std::to_string(splits)},
                         {"LEFT_ALONG_K", flag(c.left_along_k)}, {"RIGHT_ALONG_K", flag(c.right_along_k)}};
  defines.insert(defines.end(), tiled.begin(), tiled.end());
  std::vector<StorageId> writes = c.writes;
  if (splits > 1) {
    const Tensor parts = b.scratch(sums, {splits, c.batch, c.m, c.n});
    words.push_back(Word::address(parts));
    words.push_back(Word::address(b.counters(tile.blocks(c))));
    writes.push_back(parts.storage);
    // Parts are written before the operands of what follows are read.
    for (StorageId s : c.reads_in_place) c.reads.push_back(s);
    c.reads_in_place.clear();
  }
  const auto blocks = static_cast<uint32_t>(std::min<int64_t>(tile.blocks(c) * splits, INT32_MAX));
  add(kTiled, blocks, static_cast<uint32_t>(tile.bm / tile.tm * (tile.bn / tile.tn)), std::move(words), writes);
}

}  // namespace lazyt::cuda
