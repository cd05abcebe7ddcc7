#include "sort.h"

#include <algorithm>

namespace lazyt::cuda {
namespace {

// Elements that a block sorts in shared memory: twice its most threads.
constexpr int64_t kTile = 2048;

// Whether element (p, i) comes before (q, j). Places from N on are padding.
constexpr std::string_view kBefore = R"(
#define BEFORE(p, i, q, j) \
  (((i) >= N || (j) >= N) ? (i) < (j) \
   : (DESCENDING ? lazyt_larger(p, q) : lazyt_larger(q, p)) ? true : (DESCENDING ? lazyt_larger(q, p) : lazyt_larger(p, q)) ? false : (i) < (j))
)";

// Sorts tiles of SIZE of the M elements of a line, ROWS tiles a block, by a bitonic network. DIRECT: a line is a tile, and what
// is asked goes to the results; else the first KEEP keys of each tile and their places go to memory, OUT of a line. AGAIN: the
// elements are what an earlier pass kept.
constexpr std::string_view kTiles = R"(
LAZYT_KERNEL(KERNEL, 4, THREADS) {
  __shared__ C keys[ROWS * SIZE];
  __shared__ I places[ROWS * SIZE];
  for (long long base = blockIdx.x * (long long)ROWS; base < LINES * TILES; base += gridDim.x * (long long)ROWS) {
    for (int s = threadIdx.x; s < ROWS * SIZE; s += THREADS) {
      const long long tile = base + s / SIZE, l = tile / TILES, i = tile % TILES * SIZE + s % SIZE;
      const bool is_there = l < LINES && i < M;
      places[s] = !AGAIN ? (I)i : is_there ? ((const I*)a.w[3])[l * M + i] : (I)N;
      keys[s] = !is_there ? (C)0 : AGAIN ? lazyt_load((const T*)a.w[0], l * M + i) : lazyt_load((const T*)a.w[0] + LINE0(l), AT0(i));
    }
    for (int size = 2; size <= SIZE; size *= 2)
      for (int stride = size / 2; stride > 0; stride /= 2) {
        __syncthreads();
        for (int t = threadIdx.x; t < ROWS * SIZE / 2; t += THREADS) {
          const int p = 2 * t - (t & (stride - 1)), q = p + stride;
          const bool up = (p & size & (SIZE - 1)) == 0;
          if (BEFORE(keys[q], places[q], keys[p], places[p]) == up) {
            const C key = keys[p];
            keys[p] = keys[q], keys[q] = key;
            const I place = places[p];
            places[p] = places[q], places[q] = place;
          }
        }
      }
    __syncthreads();
    for (int s = threadIdx.x; s < ROWS * SIZE; s += THREADS) {
      const long long tile = base + s / SIZE, l = tile / TILES;
      const int p = s % SIZE;
      if (l >= LINES) continue;
      if (!DIRECT) {
        const long long i = tile % TILES * KEEP + p;
        if (p >= KEEP || i >= OUT) continue;
        lazyt_store((T*)a.w[1], l * OUT + i, keys[s]);
        ((I*)a.w[2])[l * OUT + i] = places[s];
        continue;
      }
      TAKE(l, p, keys[s], places[s], keys[s - p + N - 1], keys[p ? s - 1 : s])
    }
    __syncthreads();
  }
}
)";

// What is written of element p of a sorted line: last is the line's last element, before the one before p.
constexpr std::string_view kTake = R"(
#define TAKE(l, p, key, place, last, before) \
  { \
    bool taken = FIRST ? (p) < K : (p) == K; \
    if (MEDIAN && (last) != (last)) taken = (key) != (key) && ((p) == 0 || (before) == (before)); \
    if (taken && (p) < N) { \
      lazyt_store((T*)a.w[1] + LINE1(l), AT1(p), key); \
      ((long long*)a.w[2] + LINE2(l))[AT2(p)] = place; \
    } \
  }
)";

// Merges pairs of sorted runs of WIDTH: every element finds its rank in the other run.
constexpr std::string_view kMerge = R"(
LAZYT_KERNEL(KERNEL, 5, 256) {
  const T* keys = (const T*)a.w[0];
  const I* places = (const I*)a.w[1];
  const long long width = (long long)a.w[4];
  for (long long e = blockIdx.x * 256LL + threadIdx.x; e < LINES * N; e += gridDim.x * 256LL) {
    const long long i = e % N, line = e - i, first = i / (2 * width) * (2 * width), middle = first + width < N ? first + width : N;
    const long long end = first + 2 * width < N ? first + 2 * width : N;
    const bool left = i < middle;
    const C key = lazyt_load(keys, e);
    const I place = places[e];
    long long low = left ? middle : first, high = left ? end : middle;
    const long long from = low;
    while (low < high) {
      const long long at = (low + high) / 2;
      const C other = lazyt_load(keys, line + at);
      if (BEFORE(other, places[line + at], key, place)) low = at + 1; else high = at;
    }
    const long long to = line + first + (i - (left ? first : middle)) + (low - from);
    lazyt_store((T*)a.w[2], to, key);
    ((I*)a.w[3])[to] = place;
  }
}
)";

constexpr std::string_view kPick = R"(
LAZYT_KERNEL(KERNEL, 5, 256) {
  const T* keys = (const T*)a.w[3];
  const I* places = (const I*)a.w[4];
  for (long long e = blockIdx.x * 256LL + threadIdx.x; e < LINES * TAKEN; e += gridDim.x * 256LL) {
    const long long l = e / TAKEN, p = e % TAKEN;
    TAKE(l, p, lazyt_load(keys, l * N + p), places[l * N + p], lazyt_load(keys, l * N + N - 1), lazyt_load(keys, l * N + (p ? p - 1 : 0)))
  }
}
)";

std::string text_of(std::initializer_list<std::string_view> parts,
                    std::initializer_list<std::string_view> macros) {
  std::string text(kTeamText);
  for (std::string_view part : parts) text += part;
  for (std::string_view macro : macros) text += "#undef " + std::string(macro) + "\n";
  return text;
}

}  // namespace

void add_sort(Builder& b, const lazyt_node_t& node, const Sorting& sorting) {
  const Tensor in = tensor_at(b, b.program.args(node)[0]);
  const Tensor values = b.make_dense(node.results), places = b.make_dense(node.results + 1);
  add_sort(b, in, values, places, sorting);
}

void add_sort(Builder& b, const Tensor& in, const Tensor& values, const Tensor& places, const Sorting& sorting) {
  const bool first = sorting.kind == Sorting::kFirst;
  std::vector<bool> reduced(in.dims().size(), false);
  if (!reduced.empty()) reduced[sorting.axis] = true;
  auto seen = [&](const Tensor& t) {
    Layout out = first ? t.layout : beside(t.layout, in.dims(), reduced);
    out.dims = in.dims();  // only strides count
    return out;
  };
  const Walk walk = walk_of({in.layout, seen(values), seen(places)}, reduced, true);
  if (values.count() == 0) return;
  const int64_t n = walk.n;
  const bool small = n < INT32_MAX;
  const lazyt_dtype_t index = small ? LAZYT_DTYPE_INT32 : LAZYT_DTYPE_INT64;
  Defines defines = walk.defines;
  for (const auto& define : types_of(in.dtype)) defines.push_back(define);
  auto flag = [](bool set) { return set ? "true" : "false"; };
  const Defines more = {{"I", small ? "int" : "long long"},
                        {"K", literal(sorting.k)},
                        {"DESCENDING", flag(sorting.descending)},
                        {"FIRST", flag(first)},
                        {"MEDIAN", flag(sorting.kind == Sorting::kMedian)}};
  defines.insert(defines.end(), more.begin(), more.end());
  const std::string tile_text = text_of({kBefore, kTake, kTiles}, {"BEFORE", "TAKE"});
  // Of lines of m elements, those of `from`, or what was kept of them and their places.
  auto sort_tiles = [&](const Tensor& from, const Tensor* from_places, int64_t m, int64_t keep, const Tensor& keys, const Tensor& at) {
    int64_t size = 2;
    while (size < m && size < kTile) size *= 2;
    const int64_t tiles = (m + size - 1) / size, rows = std::max<int64_t>(256 / size, 1), threads = std::clamp<int64_t>(rows * size / 2, 32, 1024);
    Defines tiled = defines;
    const Defines shape = {{"SIZE", std::to_string(size)},
                           {"ROWS", std::to_string(rows)},
                           {"THREADS", std::to_string(threads)},
                           {"TILES", literal(tiles)},
                           {"DIRECT", flag(tiles == 1)},
                           {"AGAIN", flag(from_places != nullptr)},
                           {"M", literal(m)},
                           {"KEEP", literal(keep)},
                           {"OUT", literal(std::min(tiles * keep, m))}};
    tiled.insert(tiled.end(), shape.begin(), shape.end());
    const auto blocks = static_cast<uint32_t>(std::min<int64_t>((walk.lines * tiles + rows - 1) / rows, INT32_MAX));
    std::vector<StorageId> reads = {from.storage};
    if (from_places) reads.push_back(from_places->storage);
    b.add_kernel(specialise("sort", tile_text, tiled), {blocks, 1, 1}, {static_cast<uint32_t>(threads), 1, 1}, 0,
                 {Word::address(from), Word::address(keys), Word::address(at), Word::address(from_places ? *from_places : from)}, reads,
                 {keys.storage, at.storage});
  };
  if (n <= kTile) return sort_tiles(in, nullptr, n, n, values, places);

  if (first && 2 * sorting.k <= kTile) {  // the first of all are among the first of each tile
    Tensor from = in, from_places;
    int64_t m = n;
    for (bool again = false; m > kTile; again = true) {
      const int64_t kept = std::min((m + kTile - 1) / kTile * sorting.k, m);
      const Tensor keys = b.scratch(in.dtype, {walk.lines * kept}), at = b.scratch(index, {walk.lines * kept});
      sort_tiles(from, again ? &from_places : nullptr, m, sorting.k, keys, at);
      from = keys, from_places = at, m = kept;
    }
    return sort_tiles(from, &from_places, m, m, values, places);
  }

  const Dims all{walk.lines * n};
  Tensor keys = b.scratch(in.dtype, all), at = b.scratch(index, all);
  sort_tiles(in, nullptr, n, kTile, keys, at);
  for (int64_t width = kTile; width < n; width *= 2) {
    const Tensor next_keys = b.scratch(in.dtype, all), next_at = b.scratch(index, all);
    b.add_kernel(specialise("merge", text_of({kBefore, kMerge}, {"BEFORE"}), defines), walk.lines * n, 256,
                 {Word::address(keys), Word::address(at), Word::address(next_keys), Word::address(next_at),
                  Word::integer(width)},
                 {keys.storage, at.storage}, {next_keys.storage, next_at.storage});
    keys = next_keys, at = next_at;
  }
  const int64_t taken = first ? sorting.k : n;
  Defines picked = defines;
  picked.emplace_back("TAKEN", literal(taken));
  b.add_kernel(specialise("pick", text_of({kTake, kPick}, {"TAKE"}), picked), walk.lines * taken, 256,
               {Word::address(in), Word::address(values), Word::address(places), Word::address(keys),
                Word::address(at)},
               {keys.storage, at.storage}, {values.storage, places.storage});
}

}  // namespace lazyt::cuda
