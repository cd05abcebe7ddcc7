// Scaled dot product attention, forward and backward: tiles of scores that stay in shared memory, softmax
// online (Dao et al., FlashAttention, 2022). f16 and bf16 are computed as f32. No sum crosses blocks: the
// order of all is fixed.
#include <cmath>
#include <optional>

#include "../codegen/kernel.h"
#include "attention.h"
#include "dnn.h"

namespace lazyt::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint64_t kShared = 48 * 1024;

// Where the arguments of a variant are; 0 = none.
struct Signature {
  uint64_t query, mask, dropout, causal, scale, gqa;
};
constexpr Signature kPlain = {0, 3, 4, 5, 6, 7}, kFlash = {0, 5, 3, 4, 6, 0},
                    kFlashBackward = {1, 8, 6, 7, 9, 0};

// ROWS queries (of the keys' gradients: keys) against COLUMNS of the others at a time. A team of threads has some rows, each
// thread some columns of all of them, so that what it reads from shared memory serves several products.
struct Tile {
  int64_t rows = 0, columns = 0;
  int64_t team() const { return kThreads / std::min<int64_t>(rows, 16); }
};
// Elements of a row in shared memory: whole packs of 16 bytes, and an odd number of them, so that packs of neighbouring rows
// lie in different banks.
int64_t padded(int64_t size, uint64_t element) {
  const int64_t pack = 16 / static_cast<int64_t>(element);
  return ((size + pack - 1) / pack | 1) * pack;
}
std::optional<Tile> tile_for(int64_t e, int64_t ev, uint64_t element, bool backward) {
  const int64_t row = padded(e, element), row_v = padded(ev, element);
  for (Tile t : {Tile{64, 32}, Tile{32, 32}, Tile{32, 16}, Tile{16, 16}, Tile{16, 8}, Tile{8, 8}, Tile{8, 4},
                 Tile{4, 4}, Tile{4, 2}, Tile{4, 1}}) {
    const int64_t scores = t.rows * padded(t.columns, element);
    const int64_t elements = backward ? (t.rows + t.columns) * (row + row_v) + 2 * scores
                                      : (t.rows + t.columns) * row + t.columns * row_v + scores;
    if (static_cast<uint64_t>(elements) * element <= kShared) return t;
  }
  return std::nullopt;
}

Refusal accept_attention(const ProgramView& program, const lazyt_node_t& node, const Signature& at,
                         bool backward) {
  const auto args = program.args(node);
  const lazyt_value_t &q = operand(program, node, at.query), &k = operand(program, node, at.query + 1),
                      &v = operand(program, node, at.query + 2);
  if (!is_floating(q.dtype)) return refuse_dtype(q.dtype);
  if (k.dtype != q.dtype || v.dtype != q.dtype)
    return refuse_argument("query, key and value of several dtypes");
  if (args[at.dropout].kind != LAZYT_ARG_DOUBLE || Builder::double_of(args[at.dropout]) != 0)
    return refuse_argument("dropout");
  if (!is_constant(program, args[at.causal]))
    return refuse_argument("is_causal that changes from run to run");
  const auto dq = program.dims(q), dk = program.dims(k), dv = program.dims(v);
  if (q.rank < 2 || k.rank != q.rank || v.rank != q.rank)
    return {LAZYT_REASON_RANK, "query, key and value of several ranks"};
  for (size_t d = 0; d + 2 < dq.size(); ++d) {
    if (dk[d] != dv[d]) return refuse_argument("key and value of several batch dims");
    const bool heads = d + 3 == dq.size() && q.rank >= 3;
    if (dk[d] != dq[d] &&
        !(heads && dk[d] > 0 && dq[d] % dk[d] == 0 && (at.gqa ? args[at.gqa].payload != 0 : true)))
      return refuse_argument("query and key of several batch dims");
  }
  if (toolkit::count_of(dq) == 0 || toolkit::count_of(dk) == 0 || toolkit::count_of(dv) == 0)
    return refuse_argument("an empty operand");
  if (!tile_for(dq.back(), dv.back(), lazyt_dtype_size(compute_dtype(q.dtype)), backward))
    return refuse_argument("heads too wide for shared memory");
  if (has(program, node, at.mask)) {
    const lazyt_value_t& mask = operand(program, node, at.mask);
    if (mask.dtype != LAZYT_DTYPE_BOOL && !is_floating(mask.dtype)) return refuse_dtype(mask.dtype);
    if (mask.rank > q.rank) return {LAZYT_REASON_RANK, "a mask of a higher rank"};
  }
  return accepted();
}
Refusal accept_plain(const ProgramView& program, const lazyt_node_t& node) {
  return accept_attention(program, node, kPlain, false);
}
Refusal accept_flash(const ProgramView& program, const lazyt_node_t& node) {
  return accept_attention(program, node, kFlash, false);
}
Refusal accept_flash_backward(const ProgramView& program, const lazyt_node_t& node) {
  return accept_attention(program, node, kFlashBackward, true);
}

// What forward and backward share.
struct Problem {
  Tensor q, k, v;
  std::optional<Tensor> mask;
  bool causal = false;
  Number scale;
  Dims heads;           // the batch dims of the query
  int64_t ratio = 1;    // query heads for each key head (the last of `heads`)
  int64_t l, s, e, ev;  // queries, keys, their size, the values' size
  Tile tile;

  Problem(Builder& b, const lazyt_node_t& node, const Signature& at, bool backward) {
    const auto args = b.program.args(node);
    q = tensor_at(b, args[at.query]);
    k = tensor_at(b, args[at.query + 1]);
    v = tensor_at(b, args[at.query + 2]);
    heads.assign(q.dims().begin(), q.dims().end() - 2);
    const size_t rank = q.dims().size();
    l = q.dims()[rank - 2], e = q.dims()[rank - 1], s = k.dims()[rank - 2], ev = v.dims()[rank - 1];
    if (rank >= 3) ratio = q.dims()[rank - 3] / k.dims()[rank - 3];
    causal = b.bool_of(args[at.causal]);
    scale.d = 1 / std::sqrt(static_cast<double>(e));
    if (!b.is_none(args[at.scale])) scale = b.number_of(args[at.scale]);
    if (!b.is_none(args[at.mask])) {
      mask = tensor_at(b, args[at.mask]);
      Layout layout{mask->layout.offset, q.dims(), Dims(rank, 0)};
      layout.dims.back() = s;
      const size_t added = rank - mask->dims().size();
      for (size_t d = 0; d < mask->dims().size(); ++d)
        if (mask->dims()[d] != 1) layout.strides[added + d] = mask->strides()[d];
      mask->layout = layout;
    }
    tile = *tile_for(e, ev, lazyt_dtype_size(compute_dtype(q.dtype)), backward);
  }

  // Nothing if there is a mask: where it leaves a query no key, the library's answer is no number, ours is 0.
  std::optional<Attention> for_library() const {
    return mask ? std::nullopt : std::optional<Attention>({q, k, v, causal, scale});
  }
  int64_t head_count() const { return toolkit::count_of(heads); }

  // NAME_HEAD(h) of query head h, NAME_ROW and NAME_COLUMN strides.
  void describe(Defines& out, const std::string& name, const Tensor& t, bool of_keys) const {
    Dims dims = heads, strides(t.strides().begin(), t.strides().end() - 2);
    if (of_keys && ratio > 1) dims.back() /= ratio, dims.push_back(ratio), strides.push_back(0);
    out.emplace_back(name + "_HEAD(h)", offset_text(dims, strides, "h"));
    out.emplace_back(name + "_ROW", literal(t.strides()[t.strides().size() - 2]));
    out.emplace_back(name + "_COLUMN", literal(t.strides().back()));
    const int64_t pack = 16 / static_cast<int64_t>(lazyt_dtype_size(compute_dtype(q.dtype)));
    const bool in_packs = t.strides().back() == 1 && t.dims().back() % pack == 0 &&
                          std::all_of(t.strides().begin(), t.strides().end() - 1, [&](int64_t s) { return s % pack == 0; });
    out.emplace_back(name + "_PACKS", in_packs ? "true" : "false");
  }
  Defines defines() const {
    const uint64_t element = lazyt_dtype_size(compute_dtype(q.dtype));
    Defines out = {{"T", memory_type(q.dtype)},
                   {"C", register_type(q.dtype)},
                   {"ROWS", std::to_string(tile.rows)},
                   {"COLUMNS", std::to_string(tile.columns)},
                   {"TEAM", std::to_string(tile.team())},
                   {"THREADS", std::to_string(kThreads)},
                   {"WIDTH", std::to_string(padded(e, element))},
                   {"WIDTH_V", std::to_string(padded(ev, element))},
                   {"WIDTH_P", std::to_string(padded(tile.columns, element))},
                   {"HEADS", literal(head_count())},
                   {"RATIO", literal(ratio)},
                   {"L", literal(l)},
                   {"S", literal(s)},
                   {"E", std::to_string(e)},
                   {"EV", std::to_string(ev)},
                   {"CAUSAL", causal ? "true" : "false"},
                   {"MASKED", mask ? (mask->dtype == LAZYT_DTYPE_BOOL ? "1" : "2") : "0"},
                   {"MT", memory_type(mask ? mask->dtype : q.dtype)}};
    describe(out, "Q", q, false);
    describe(out, "K", k, true);
    describe(out, "V", v, true);
    describe(out, "M", mask ? *mask : q, false);
    return out;
  }
  Word mask_word() const { return mask ? Word::address(*mask) : Word::integer(0); }
  std::vector<StorageId> reads() const {
    std::vector<StorageId> out = {q.storage, k.storage, v.storage};
    if (mask) out.push_back(mask->storage);
    return out;
  }
  uint32_t blocks(int64_t count, int64_t rows) const {
    return static_cast<uint32_t>(std::min<int64_t>(count * ((rows + tile.rows - 1) / tile.rows), INT32_MAX));
  }
};

// Words: q, k, v, mask, scale. score: of query i and key j of head h, from the product of their rows.
//
// A thread's rows are row(r), its columns column(c) of a tile; of what a row adds up it has the packs lane, lane + TEAM, ...
constexpr std::string_view kCommon = R"(
#define LAZYT_OUT (-LAZYT_INFINITY)
#define DEFINE_SCORE \
  const C scale = (C)lazyt_f64(a.w[4]); \
  auto score_of = [&](long long h, long long i, long long j, C dot) -> C { \
    C score = dot * scale; \
    if (MASKED == 1 && !lazyt_load((const MT*)a.w[3], M_HEAD(h) + i * M_ROW + j * M_COLUMN)) score = LAZYT_OUT; \
    if (MASKED == 2) score += (C)lazyt_load((const MT*)a.w[3], M_HEAD(h) + i * M_ROW + j * M_COLUMN); \
    if (CAUSAL && j > i) score = LAZYT_OUT; \
    return score; \
  };
#define DEFINE_TILE \
  constexpr int kPack = 16 / (int)sizeof(C), kGroups = THREADS / TEAM, kRows = ROWS / kGroups, kColumns = (COLUMNS + TEAM - 1) / TEAM; \
  constexpr int kPacks = (E + kPack - 1) / kPack, kPacksV = (EV + kPack - 1) / kPack; \
  constexpr int kPer = (kPacks + TEAM - 1) / TEAM, kPerV = (kPacksV + TEAM - 1) / TEAM; \
  const int lane = threadIdx.x % TEAM, group = threadIdx.x / TEAM; \
  auto row = [&](int r) { return group + r * kGroups; }; \
  auto column = [&](int c) { return lane + c * TEAM; };
// Rows of zeros behind the last, and zeros behind a row's end up to a whole pack.
#define LOAD_TILE(to, size, packs, word, NAME, first, count, limit) \
  if (NAME##_PACKS && a.w[word] % alignof(lazyt_pack<T, kPack>) == 0) { \
    for (int x = threadIdx.x; x < (count) * (packs); x += THREADS) { \
      const int at = x / (packs), from = x % (packs) * kPack; \
      lazyt_pack<T, kPack> seen = {}; \
      if ((first) + at < (limit)) seen = lazyt_pack_at<kPack>((T*)a.w[word] + NAME##_HEAD(h) + ((first) + at) * NAME##_ROW + from); \
      lazyt_pack<C, kPack> wide; \
      for (int v = 0; v < kPack; ++v) wide.v[v] = lazyt_widen(seen.v[v]); \
      lazyt_pack_at<kPack>(&to[at][from]) = wide; \
    } \
  } else { \
    for (int x = threadIdx.x; x < (count) * (packs) * kPack; x += THREADS) { \
      const int at = x / ((packs) * kPack), from = x % ((packs) * kPack); \
      to[at][from] = from < (size) && (first) + at < (limit) ? \
        lazyt_load((const T*)a.w[word], NAME##_HEAD(h) + ((first) + at) * NAME##_ROW + from * NAME##_COLUMN) : (C)0; \
    } \
  }
#ifndef LAZYT_ATTENTION_TEXT
#define LAZYT_ATTENTION_TEXT
// dots[r][c] += the product of a thread's rows and columns, element by element.
template <int packs_, int groups_, int team_, int rows_, int columns_, int of_, int width_, class Value>
__device__ __forceinline__ void lazyt_dots(Value (&dots)[rows_][columns_], const Value (*left)[width_], const Value (*right)[width_], int group, int lane) {
  constexpr int kPack = 16 / (int)sizeof(Value);
#pragma unroll 4
  for (int x = 0; x < packs_ * kPack; x += kPack) {
    lazyt_pack<Value, kPack> l[rows_], m[columns_];
#pragma unroll
    for (int r = 0; r < rows_; ++r) l[r] = lazyt_pack_at<kPack>((Value*)&left[group + r * groups_][x]);
#pragma unroll
    for (int c = 0; c < columns_; ++c) m[c] = lazyt_pack_at<kPack>((Value*)&right[lane + c * team_ < of_ ? lane + c * team_ : of_ - 1][x]);
#pragma unroll
    for (int v = 0; v < kPack; ++v)
#pragma unroll
      for (int r = 0; r < rows_; ++r)
#pragma unroll
        for (int c = 0; c < columns_; ++c) dots[r][c] = lazyt_fma(l[r].v[v], m[c].v[v], dots[r][c]);
  }
}
// sums += weights, a row of them for each of a thread's rows, times `of_` rows of which it has some packs.
template <int packs_, int groups_, int team_, int of_, int rows_, int per_, int weights_, int width_, class Value>
__device__ __forceinline__ void lazyt_add_rows(lazyt_pack<Value, 16 / (int)sizeof(Value)> (&sums)[rows_][per_], const Value (*weights)[weights_],
                                               const Value (*right)[width_], int group, int lane) {
  constexpr int kPack = 16 / (int)sizeof(Value), kAtOnce = of_ % kPack == 0 ? kPack : 1;
#pragma unroll 2
  for (int j = 0; j < of_; j += kAtOnce) {
    lazyt_pack<Value, kAtOnce> w[rows_];
#pragma unroll
    for (int r = 0; r < rows_; ++r) w[r] = lazyt_pack_at<kAtOnce>((Value*)&weights[group + r * groups_][j]);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
      for (int c = 0; c < per_; ++c)
        if (packs_ % team_ == 0 || lane + c * team_ < packs_) {
          const auto m = lazyt_pack_at<kPack>((Value*)&right[j + k][(lane + c * team_) * kPack]);
#pragma unroll
          for (int r = 0; r < rows_; ++r)
#pragma unroll
            for (int v = 0; v < kPack; ++v) sums[r][c].v[v] = lazyt_fma(w[r].v[k], m.v[v], sums[r][c].v[v]);
        }
  }
}
#endif
#define STORE_ROW(NAME, word, size, per, sums, factor, at_row) \
  for (int c = 0; c < (per); ++c) \
    for (int v = 0; v < kPack; ++v) { \
      const int x = (lane + c * TEAM) * kPack + v; \
      if (x < (size)) lazyt_store((T*)a.w[word], NAME##_HEAD(h) + (at_row) * NAME##_ROW + x * NAME##_COLUMN, (sums)[c].v[v] * (factor)); \
    }
)";

constexpr std::string_view kForward = R"(
LAZYT_KERNEL(KERNEL, 7, THREADS) {
  __shared__ __align__(16) C qs[ROWS][WIDTH];
  __shared__ __align__(16) C ks[COLUMNS][WIDTH];
  __shared__ __align__(16) C vs[COLUMNS][WIDTH_V];
  __shared__ __align__(16) C ps[ROWS][WIDTH_P];
  DEFINE_SCORE
  DEFINE_TILE
  const long long tiles = (L + ROWS - 1) / ROWS;
  for (long long tile = blockIdx.x; tile < HEADS * tiles; tile += gridDim.x) {
    const long long h = tile / tiles, i0 = tile % tiles * ROWS;
    LOAD_TILE(qs, E, kPacks, 0, Q, i0, ROWS, L)
    lazyt_pack<C, kPack> sums[kRows][kPerV] = {};
    C top[kRows], sum[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) top[r] = -LAZYT_INFINITY;
    const long long keys = CAUSAL && i0 + ROWS < S ? i0 + ROWS : S;
    for (long long j0 = 0; j0 < keys; j0 += COLUMNS) {
      __syncthreads();
      LOAD_TILE(ks, E, kPacks, 1, K, j0, COLUMNS, S)
      LOAD_TILE(vs, EV, kPacksV, 2, V, j0, COLUMNS, S)
      __syncthreads();
      C scores[kRows][kColumns] = {};
      lazyt_dots<kPacks, kGroups, TEAM, kRows, kColumns, COLUMNS>(scores, qs, ks, group, lane);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const long long i = i0 + row(r);
        C best = top[r];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const C score = i < L && column(c) < COLUMNS && j0 + column(c) < S ? score_of(h, i, j0 + column(c), scores[r][c]) : LAZYT_OUT;
          scores[r][c] = score;
          best = score > best || score != score ? score : best;
        }
#pragma unroll
        for (int k = TEAM / 2; k > 0; k /= 2) {
          const C other = lazyt_across(best, k);
          best = other > best || other != other ? other : best;
        }
        // All masked so far: no number to subtract.
        const bool none = best == LAZYT_OUT;
        const C shrink = none ? (C)1 : exp(top[r] - best);
        top[r] = best;
        C part = 0;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const C p = none ? (C)0 : exp(scores[r][c] - best);
          if (column(c) < COLUMNS) ps[row(r)][column(c)] = p;
          part += p;
        }
#pragma unroll
        for (int k = TEAM / 2; k > 0; k /= 2) part += lazyt_across(part, k);
        sum[r] = sum[r] * shrink + part;
#pragma unroll
        for (int c = 0; c < kPerV; ++c)
#pragma unroll
          for (int v = 0; v < kPack; ++v) sums[r][c].v[v] *= shrink;
      }
      __syncwarp();
      lazyt_add_rows<kPacksV, kGroups, TEAM, COLUMNS>(sums, ps, vs, group, lane);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const long long i = i0 + row(r);
      const C factor = sum[r] == 0 ? (C)0 : (C)1 / sum[r];  // all keys masked: zeros
      if (i >= L) continue;
      STORE_ROW(O, 5, EV, kPerV, sums[r], factor, i)
      if (KEEPS && lane == 0) lazyt_store((LT*)a.w[6], h * L + i, top[r] + log(sum[r]));
    }
    __syncthreads();
  }
}
)";

// Words: q, k, v, mask, scale, grad of out, log of sums, delta, gradients. P = exp(scores - lse), dS = P (dO
// V' - delta), delta = the total of dO O in each row, which the queries' kernel, the first, leaves to the keys'.
constexpr std::string_view kQueries = R"(
LAZYT_KERNEL(KERNEL, 10, THREADS) {
  __shared__ __align__(16) C qs[ROWS][WIDTH];
  __shared__ __align__(16) C gs[ROWS][WIDTH_V];
  __shared__ __align__(16) C ks[COLUMNS][WIDTH];
  __shared__ __align__(16) C vs[COLUMNS][WIDTH_V];
  __shared__ __align__(16) C ds[ROWS][WIDTH_P];
  DEFINE_SCORE
  DEFINE_TILE
  const long long tiles = (L + ROWS - 1) / ROWS;
  for (long long tile = blockIdx.x; tile < HEADS * tiles; tile += gridDim.x) {
    const long long h = tile / tiles, i0 = tile % tiles * ROWS;
    LOAD_TILE(qs, E, kPacks, 0, Q, i0, ROWS, L)
    LOAD_TILE(gs, EV, kPacksV, 5, G, i0, ROWS, L)
    __syncthreads();
    C lse[kRows], delta[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const long long i = i0 + row(r);
      lse[r] = i < L ? ((const C*)a.w[6])[h * L + i] : LAZYT_OUT;
      if (i < L)
        for (int x = lane; x < EV; x += TEAM) delta[r] = lazyt_fma(gs[row(r)][x], lazyt_load((const T*)a.w[9], R_HEAD(h) + i * R_ROW + x * R_COLUMN), delta[r]);
#pragma unroll
      for (int k = TEAM / 2; k > 0; k /= 2) delta[r] += lazyt_across(delta[r], k);
      if (i < L && lane == 0) ((C*)a.w[7])[h * L + i] = delta[r];
    }
    lazyt_pack<C, kPack> sums[kRows][kPer] = {};
    const long long keys = CAUSAL && i0 + ROWS < S ? i0 + ROWS : S;
    for (long long j0 = 0; j0 < keys; j0 += COLUMNS) {
      __syncthreads();
      LOAD_TILE(ks, E, kPacks, 1, K, j0, COLUMNS, S)
      LOAD_TILE(vs, EV, kPacksV, 2, V, j0, COLUMNS, S)
      __syncthreads();
      C dots[kRows][kColumns] = {}, grads[kRows][kColumns] = {};
      lazyt_dots<kPacks, kGroups, TEAM, kRows, kColumns, COLUMNS>(dots, qs, ks, group, lane);
      lazyt_dots<kPacksV, kGroups, TEAM, kRows, kColumns, COLUMNS>(grads, gs, vs, group, lane);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (column(c) >= COLUMNS) continue;
          // A row whose keys are all masked has no weights.
          const bool real = j0 + column(c) < S && lse[r] != LAZYT_OUT;
          ds[row(r)][column(c)] = real ? exp(score_of(h, i0 + row(r), j0 + column(c), dots[r][c]) - lse[r]) * (grads[r][c] - delta[r]) * scale : (C)0;
        }
      __syncwarp();
      lazyt_add_rows<kPacks, kGroups, TEAM, COLUMNS>(sums, ds, ks, group, lane);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (i0 + row(r) < L) { STORE_ROW(O, 8, E, kPer, sums[r], (C)1, i0 + row(r)) }
    __syncthreads();
  }
}
)";
constexpr std::string_view kKeys = R"(
LAZYT_KERNEL(KERNEL, 10, THREADS) {
  __shared__ __align__(16) C ks[ROWS][WIDTH];
  __shared__ __align__(16) C vs[ROWS][WIDTH_V];
  __shared__ __align__(16) C qs[COLUMNS][WIDTH];
  __shared__ __align__(16) C gs[COLUMNS][WIDTH_V];
  __shared__ __align__(16) C ps[ROWS][WIDTH_P];
  __shared__ __align__(16) C ds[ROWS][WIDTH_P];
  DEFINE_SCORE
  DEFINE_TILE
  const long long tiles = (S + ROWS - 1) / ROWS;
  for (long long tile = blockIdx.x; tile < HEADS / RATIO * tiles; tile += gridDim.x) {
    const long long j0 = tile % tiles * ROWS;
    lazyt_pack<C, kPack> sums[kRows][kPer] = {}, sums_v[kRows][kPerV] = {};
    {
      const long long h = tile / tiles * RATIO;  // the macros read it
      LOAD_TILE(ks, E, kPacks, 1, K, j0, ROWS, S)
      LOAD_TILE(vs, EV, kPacksV, 2, V, j0, ROWS, S)
    }
    for (long long h = tile / tiles * RATIO; h < (tile / tiles + 1) * RATIO; ++h)
      for (long long i0 = CAUSAL ? j0 / COLUMNS * COLUMNS : 0; i0 < L; i0 += COLUMNS) {
        __syncthreads();
        LOAD_TILE(qs, E, kPacks, 0, Q, i0, COLUMNS, L)
        LOAD_TILE(gs, EV, kPacksV, 5, G, i0, COLUMNS, L)
        __syncthreads();
        C dots[kRows][kColumns] = {}, grads[kRows][kColumns] = {};
        lazyt_dots<kPacks, kGroups, TEAM, kRows, kColumns, COLUMNS>(dots, ks, qs, group, lane);
        lazyt_dots<kPacksV, kGroups, TEAM, kRows, kColumns, COLUMNS>(grads, vs, gs, group, lane);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (column(c) >= COLUMNS) continue;
          const long long i = i0 + column(c);
          const C lse = i < L ? ((const C*)a.w[6])[h * L + i] : LAZYT_OUT;
          const C delta = i < L ? ((const C*)a.w[7])[h * L + i] : (C)0;
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const bool real = j0 + row(r) < S && lse != LAZYT_OUT;
            const C p = real ? exp(score_of(h, i, j0 + row(r), dots[r][c]) - lse) : (C)0;
            ps[row(r)][column(c)] = p;
            ds[row(r)][column(c)] = real ? p * (grads[r][c] - delta) * scale : (C)0;
          }
        }
        __syncwarp();
        lazyt_add_rows<kPacks, kGroups, TEAM, COLUMNS>(sums, ds, qs, group, lane);
        lazyt_add_rows<kPacksV, kGroups, TEAM, COLUMNS>(sums_v, ps, gs, group, lane);
      }
    const long long h = tile / tiles * RATIO;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (j0 + row(r) < S) {
        STORE_ROW(GK, 8, E, kPer, sums[r], (C)1, j0 + row(r))
        STORE_ROW(GV, 9, EV, kPerV, sums_v[r], (C)1, j0 + row(r))
      }
    __syncthreads();
  }
}
)";

std::string text_of(std::initializer_list<std::string_view> parts) {
  std::string text(kTeamText);
  text += kCommon;
  for (std::string_view part : parts) text += part;
  return text + "#undef LAZYT_OUT\n#undef DEFINE_SCORE\n#undef DEFINE_TILE\n#undef LOAD_TILE\n#undef STORE_ROW\n";
}

// A result whose dims lie in the order in which those of `like` do: heads that are a part of a token stay one.
Tensor make_like(Builder& b, uint32_t v, const Tensor& like, bool is_part = false) {
  const Dims dims = b.dims(v);
  Dims strides(dims.size());
  int64_t step = 1;
  const auto order = toolkit::memory_order(dims, like.strides());
  for (size_t k = order.size(); k-- > 0; step *= dims[order[k]]) strides[order[k]] = step;
  return is_part ? b.make_part(v, strides) : b.make(v, b.result_strides(v, strides));
}

// ---- forward

void add_forward(Builder& b, const lazyt_node_t& node, const Signature& at, bool keeps_sums) {
  const Problem p(b, node, at, false);
  const Tensor out = make_like(b, node.results, p.q);
  std::optional<Tensor> sums;
  if (keeps_sums) sums = b.make_dense(node.results + 1);
  if (const auto known = p.for_library(); known && add_library_attention(b, *known, AttentionResults{out, sums})) return;
  Defines defines = p.defines();
  p.describe(defines, "O", out, false);
  defines.emplace_back("KEEPS", keeps_sums ? "true" : "false");
  defines.emplace_back("LT", memory_type(keeps_sums ? sums->dtype : compute_dtype(p.q.dtype)));
  std::vector<StorageId> writes = {out.storage};
  if (sums) writes.push_back(sums->storage);
  b.add_kernel(specialise("attention", text_of({kForward}), defines), {p.blocks(p.head_count(), p.l), 1, 1},
               {kThreads, 1, 1}, 0,
               {Word::address(p.q), Word::address(p.k), Word::address(p.v), p.mask_word(), Word::f64(p.scale),
                Word::address(out), sums ? Word::address(*sums) : Word::integer(0)},
               p.reads(), writes);
}
void lower_plain(Builder& b, const lazyt_node_t& node) { add_forward(b, node, kPlain, false); }
void lower_flash(Builder& b, const lazyt_node_t& node) { add_forward(b, node, kFlash, true); }

// ---- backward: dV = P' dO, dQ = dS K, dK = dS' Q

void lower_flash_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Problem p(b, node, kFlashBackward, true);
  const lazyt_dtype_t compute = compute_dtype(p.q.dtype);
  Tensor grad = tensor_at(b, args[0]);
  if (grad.dtype != p.q.dtype) grad = dense_as(b, grad, p.q.dtype);
  const Tensor out = tensor_at(b, args[4]), sums = dense_as(b, tensor_at(b, args[5]), compute);
  // cuDNN is asked for what it is known to have: gradients without gaps.
  const bool is_own = !p.for_library() || !has_dnn() || p.q.dtype == LAZYT_DTYPE_FLOAT32 || p.q.dtype == LAZYT_DTYPE_FLOAT64;
  const Tensor gq = make_like(b, node.results, p.q, is_own), gk = make_like(b, node.results + 1, p.k, is_own),
               gv = make_like(b, node.results + 2, p.v, is_own);
  if (const auto known = p.for_library(); known && add_library_attention(b, *known, AttentionGradients{grad, out, sums, gq, gk, gv})) return;
  const Tensor delta = b.scratch(compute, Dims(p.q.dims().begin(), p.q.dims().end() - 1));
  Defines defines = p.defines();
  p.describe(defines, "G", grad, false);
  std::vector<Word> words = {Word::address(p.q),  Word::address(p.k),  Word::address(p.v),
                             p.mask_word(),       Word::f64(p.scale),  Word::address(grad),
                             Word::address(sums), Word::address(delta)};
  std::vector<StorageId> reads = p.reads();
  for (const Tensor& t : {grad, sums}) reads.push_back(t.storage);
  Defines of_queries = defines, of_keys = defines;
  p.describe(of_queries, "O", gq, false);
  p.describe(of_queries, "R", out, false);
  p.describe(of_keys, "GK", gk, true);
  p.describe(of_keys, "GV", gv, true);
  std::vector<Word> query_words = words, key_words = words;
  query_words.push_back(Word::address(gq)), query_words.push_back(Word::address(out));
  std::vector<StorageId> query_reads = reads;
  query_reads.push_back(out.storage), reads.push_back(delta.storage);
  key_words.push_back(Word::address(gk)), key_words.push_back(Word::address(gv));
  b.add_kernel(specialise("attention_queries", text_of({kQueries}), of_queries),
               {p.blocks(p.head_count(), p.l), 1, 1}, {kThreads, 1, 1}, 0, std::move(query_words), query_reads,
               {gq.storage, delta.storage});
  b.add_kernel(specialise("attention_keys", text_of({kKeys}), of_keys),
               {p.blocks(p.head_count() / p.ratio, p.s), 1, 1}, {kThreads, 1, 1}, 0, std::move(key_words),
               reads, {gk.storage, gv.storage});
}

}  // namespace

void register_attention(Operators& all) {
  using toolkit::Role;
  all.add(LAZYT_OP_SCALED_DOT_PRODUCT_ATTENTION, {Role::kOpaque, accept_plain, lower_plain});
  all.add(LAZYT_OP_SCALED_DOT_PRODUCT_FLASH_ATTENTION_FOR_CPU, {Role::kOpaque, accept_flash, lower_flash});
  all.add(LAZYT_OP_SCALED_DOT_PRODUCT_FLASH_ATTENTION_FOR_CPU_BACKWARD,
          {Role::kOpaque, accept_flash_backward, lower_flash_backward});
}

}  // namespace lazyt::cuda
