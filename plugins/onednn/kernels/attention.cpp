// Scaled dot product attention, forward and backward: tiles of scores that stay in the cache, softmax online (Dao et
// al., FlashAttention, 2022). f16 and bf16 are computed as f32; the forward products of bf16 by the CPU's tiles, if it has them.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "amx.h"
#include "elements.h"
#include "prefetch.h"
#include "products.h"
#include "rows.h"

namespace lazyt::onednn {
namespace {

constexpr int64_t kQueries = 32, kKeys = 256;  // of a tile
constexpr int64_t kRowsOfTile = 8;             // whose ends are looked at together, of a causal tile
constexpr int64_t kFewQueries = 8;             // below it keys and values are read as they lie: packing them would read them twice

// Where the arguments of a variant are; 0 = none.
struct Signature {
  uint64_t query, mask, dropout, causal, scale, gqa;
};
constexpr Signature kPlain = {0, 3, 4, 5, 6, 7}, kFlash = {0, 5, 3, 4, 6, 0}, kFlashBackward = {1, 8, 6, 7, 9, 0};

Refusal accept_attention(const ProgramView& program, const lazyt_node_t& node, const Signature& at) {
  const auto args = program.args(node);
  const lazyt_value_t &q = operand(program, node, at.query), &k = operand(program, node, at.query + 1), &v = operand(program, node, at.query + 2);
  if (!is_floating(q.dtype)) return refuse_dtype(q.dtype);
  if (k.dtype != q.dtype || v.dtype != q.dtype) return refuse_argument("query, key and value of several dtypes");
  if (args[at.dropout].kind != LAZYT_ARG_DOUBLE || Builder::double_of(args[at.dropout]) != 0) return refuse_argument("dropout");
  if (!is_constant(program, args[at.causal])) return refuse_argument("is_causal that changes from run to run");
  const auto dq = program.dims(q), dk = program.dims(k), dv = program.dims(v);
  if (q.rank < 2 || k.rank != q.rank || v.rank != q.rank) return {LAZYT_REASON_RANK, "query, key and value of several ranks"};
  for (size_t d = 0; d + 2 < dq.size(); ++d) {
    if (dk[d] != dv[d]) return refuse_argument("key and value of several batch dims");
    const bool heads = d + 3 == dq.size() && q.rank >= 3;
    if (dk[d] != dq[d] && !(heads && dk[d] > 0 && dq[d] % dk[d] == 0 && (at.gqa ? args[at.gqa].payload != 0 : true)))
      return refuse_argument("query and key of several batch dims");
  }
  if (toolkit::count_of(dq) == 0 || toolkit::count_of(dk) == 0 || toolkit::count_of(dv) == 0) return refuse_argument("an empty operand");
  if (has(program, node, at.mask)) {
    const lazyt_value_t& mask = operand(program, node, at.mask);
    if (mask.dtype != LAZYT_DTYPE_BOOL && !is_floating(mask.dtype)) return refuse_dtype(mask.dtype);
    if (mask.rank > q.rank) return {LAZYT_REASON_RANK, "a mask of a higher rank"};
  }
  return accepted();
}
Refusal accept_plain(const ProgramView& program, const lazyt_node_t& node) { return accept_attention(program, node, kPlain); }
Refusal accept_flash(const ProgramView& program, const lazyt_node_t& node) { return accept_attention(program, node, kFlash); }
Refusal accept_flash_backward(const ProgramView& program, const lazyt_node_t& node) {
  return accept_attention(program, node, kFlashBackward);
}

// With a last dim of stride 1.
Tensor as_operand(Builder& b, const lazyt_arg_t& arg, lazyt_dtype_t dtype) {
  const Tensor t = tensor_at(b, arg);
  if (t.dtype == dtype && (t.strides().back() == 1 || t.dims().back() == 1)) return t;
  return dense_as(b, t, dtype);
}

// What forward and backward share.
struct Problem {
  Tensor q, k, v;
  std::shared_ptr<const Tensor> mask;  // null: none
  bool causal = false, default_scale = true;
  Number scale;
  Dims heads;           // the batch dims of the query
  int64_t ratio = 1;    // query heads for each key head (the last of `heads`)
  int64_t l, s, e, ev;  // queries, keys, their size, the values' size

  // `dtype`: of query, key and value.
  Problem(Builder& b, const lazyt_node_t& node, const Signature& at, lazyt_dtype_t dtype) {
    const auto args = b.program.args(node);
    q = as_operand(b, args[at.query], dtype);
    k = as_operand(b, args[at.query + 1], dtype);
    v = as_operand(b, args[at.query + 2], dtype);
    heads.assign(q.dims().begin(), q.dims().end() - 2);
    const size_t rank = q.dims().size();
    l = q.dims()[rank - 2], e = q.dims()[rank - 1], s = k.dims()[rank - 2], ev = v.dims()[rank - 1];
    if (rank >= 3) ratio = q.dims()[rank - 3] / k.dims()[rank - 3];
    causal = b.bool_of(args[at.causal]);
    default_scale = b.is_none(args[at.scale]);
    if (!default_scale) scale = b.number_of(args[at.scale]);
    if (b.is_none(args[at.mask])) return;
    Tensor given = tensor_at(b, args[at.mask]);
    if (given.dtype != LAZYT_DTYPE_BOOL) given = as_dtype(b, given, compute_dtype(dtype));
    Layout layout{given.layout.offset, heads, Dims(rank, 0)};
    layout.dims.push_back(l), layout.dims.push_back(s);
    const size_t added = rank - given.dims().size();
    for (size_t d = 0; d < given.dims().size(); ++d)
      if (given.dims()[d] != 1) layout.strides[added + d] = given.strides()[d];
    given.layout = layout;
    mask = std::make_shared<const Tensor>(given);
  }

  // That it reads, and what comes besides.
  std::vector<StorageId> reads(std::vector<StorageId> more = {}) const {
    for (const Tensor* t : {&q, &k, &v, mask.get()})
      if (t) more.push_back(t->storage);
    return more;
  }

  int64_t head_count() const { return toolkit::count_of(heads); }
  double factor(const Frame& frame) const {
    return default_scale ? 1 / std::sqrt(static_cast<double>(e)) : frame.as_double(scale);
  }
  // Of a query head, in a tensor with the batch dims of the query, or (`of_keys`) of the key.
  int64_t offset(const Tensor& t, int64_t head, bool of_keys) const {
    int64_t out = 0;
    for (size_t d = heads.size(); d-- > 0;) {
      const int64_t at = head % heads[d];
      head /= heads[d];
      out += (of_keys && d + 1 == heads.size() ? at / ratio : at) * t.strides()[d];
    }
    return out;
  }
  static int64_t row(const Tensor& t) { return t.strides()[t.dims().size() - 2]; }
  // Keys from j0 on, of n, that the first query of a tile sees; each one behind it sees one more.
  int64_t seen_by(int64_t query, int64_t j0, int64_t n) const { return causal ? std::min(n, query + 1 - j0) : n; }
  // Keys that some query of a tile sees.
  int64_t keys_of(int64_t last_query) const { return causal ? std::min(s, last_query) : s; }

  template <class C>
  void put_mask(const Frame& frame, C* out, int64_t out_row, int64_t head, int64_t i0, int64_t rows, int64_t j0, int64_t n) const {
    constexpr C kOut = -std::numeric_limits<C>::infinity();
    if (mask) {
      const size_t rank = mask->dims().size();
      const int64_t sl = mask->strides()[rank - 2], ss = mask->strides()[rank - 1];
      const int64_t base = offset(*mask, head, false) + i0 * sl + j0 * ss;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < n; ++j) {
          C& x = out[i * out_row + j];
          if (mask->dtype == LAZYT_DTYPE_BOOL)
            x = frame.at<bool>(*mask)[base + i * sl + j * ss] ? x : kOut;
          else
            x += frame.at<C>(*mask)[base + i * sl + j * ss];
        }
    }
    if (causal)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = std::max<int64_t>(i0 + i + 1 - j0, 0); j < n; ++j) out[i * out_row + j] = kOut;
  }
};

// Rows of a tile or panel that is read next, where they do not lie one behind the other: no CPU foresees those of one head among others.
template <class C>
void prefetch_rows(const C* rows, int64_t row, int64_t count, int64_t columns) {
  if (row == columns) return;
  for (int64_t i = 0; i < count; ++i) prefetch_row(rows + i * row, static_cast<size_t>(columns) * sizeof(C));
}

int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Matrices as gemm reads them: panel by panel. `stride`: elements of a panel.
template <class C>
struct Panels {
  const C* data;
  int64_t stride;
};
template <class C>
int64_t panel_elements(int64_t rows, int64_t columns) {
  return rows * padded(columns, kPanel<C>);
}
template <class C>
void pack(C* out, const C* in, int64_t in_row, int64_t rows, int64_t columns) {
  for (int64_t j = 0; j < columns; j += kPanel<C>) {
    const int64_t width = std::min(kPanel<C>, columns - j);
    for (int64_t i = 0; i < rows; ++i, out += kPanel<C>) std::fill(std::copy_n(in + i * in_row + j, width, out), out + kPanel<C>, C(0));
  }
}
// Of in's transpose.
template <class C>
void pack_turned(C* out, const C* in, int64_t in_row, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i += kPanel<C>, out += columns * kPanel<C>) {
    const int64_t width = std::min(kPanel<C>, rows - i);
    if (i + width < rows) prefetch_rows(in + (i + width) * in_row, in_row, std::min(kPanel<C>, rows - i - width), columns);
    if (width < kPanel<C>) std::fill(out, out + columns * kPanel<C>, C(0));
    transpose(out, kPanel<C>, in + i * in_row, in_row, width, columns);
  }
}
// out[m x n] (+)= alpha * a[m x k] * b[k x n]
template <class C>
void multiply(int64_t m, int64_t n, int64_t k, C alpha, const C* a, int64_t lda, const Panels<C>& b, C* out, int64_t ldo, bool accumulate) {
  const TileGemm<C> gemm = products().tile<C>().gemm;
  for (int64_t j = 0; j < n; j += kPanel<C>)
    gemm(m, std::min(kPanel<C>, n - j), k, alpha, a, lda, b.data + j / kPanel<C> * b.stride, out + j, ldo, accumulate);
}
// The same with alpha 1, where of row i of a all behind the first `seen + i` elements is 0: what a query of a causal tile does not see.
template <class C>
void multiply_seen(int64_t m, int64_t n, int64_t k, int64_t seen, const C* a, int64_t lda, const Panels<C>& b, C* out, int64_t ldo, bool accumulate) {
  const TileGemm<C> gemm = products().tile<C>().gemm;
  const int64_t step = seen < k ? kRowsOfTile : m;
  for (int64_t j = 0; j < n; j += kPanel<C>)
    for (int64_t i = 0; i < m; i += step) {
      const int64_t rows = std::min(step, m - i);
      gemm(rows, std::min(kPanel<C>, n - j), std::min(k, seen + i + rows - 1), C(1), a + i * lda, lda, b.data + j / kPanel<C> * b.stride, out + i * ldo + j, ldo, accumulate);
    }
}
// out[m x n] += a'[m x k] * b[k x n], k <= kQueries; a as above.
template <class C>
void add_outer(int64_t m, int64_t n, int64_t k, int64_t seen, const C* a, int64_t lda, const C* b, int64_t ldb, C* out, int64_t ldo) {
  alignas(64) C panel[kQueries * kPanel<C>];
  const TileGemm<C> gemm = products().tile<C>().gemm_turned;
  const int64_t all = std::min(m, seen);  // that all of a's k rows see
  for (int64_t j = 0; j < n; j += kPanel<C>) {
    const int64_t width = std::min(kPanel<C>, n - j);
    pack(panel, b + j, ldb, k, width);
    if (all > 0) gemm(all, width, k, C(1), a, lda, panel, out + j, ldo, true);
    for (int64_t i = all; i < m; i += kRowsOfTile) {
      const int64_t first = i + 1 - seen;  // row of a that sees i
      gemm(std::min(kRowsOfTile, m - i), width, k - first, C(1), a + first * lda + i, lda, panel + first * kPanel<C>, out + i * ldo + j, ldo, true);
    }
  }
}

// A matrix of one key head in panels, so many elements behind the beginning of a thread's scratch: keys to multiply queries with (e x s),
// values that are multiplied by weights (s x ev), and for the gradients values to multiply theirs with (ev x s) and keys multiplied by
// theirs (s x e). Packed when a thread comes to the head, they stay in its second-level cache.
template <class C>
struct Packed {
  int64_t begin, stride, end;

  Packed(int64_t at, int64_t rows, int64_t columns) : begin(at), stride(rows * kPanel<C>), end(at + panel_elements<C>(rows, columns)) {}

  // From a row on, or from a column that begins a panel.
  Panels<C> from_row(const C* scratch, int64_t row) const { return {scratch + begin + row * kPanel<C>, stride}; }
  Panels<C> from_column(const C* scratch, int64_t column) const { return {scratch + begin + column / kPanel<C> * stride, stride}; }
};

template <class F>
void with_compute(lazyt_dtype_t dtype, F&& f) {
  if (dtype == LAZYT_DTYPE_FLOAT64)
    f(Tag<double>{});
  else
    f(Tag<float>{});
}

// ---- forward

// The most that a head of the tiles' forward may be wide: what a thread computes with lies on its stack.
constexpr int64_t kWidest = 256;

// out[p][j] = elements 2p and 2p + 1 of row j; zeros past the end of `width`, which may be odd, and of the rows.
void pair_columns(uint32_t* out, int64_t pairs, int64_t columns, const BFloat16* in, int64_t in_row, int64_t rows, int64_t width) {
  constexpr int64_t kBlock = 16;
  alignas(64) uint32_t words[kBlock * kWidest / 2];
  for (int64_t j0 = 0; j0 < columns; j0 += kBlock) {
    std::fill(words, words + kBlock * pairs, 0);
    for (int64_t j = j0; j < std::min(rows, j0 + kBlock); ++j)
      std::memcpy(words + (j - j0) * pairs, in + j * in_row, static_cast<size_t>(width) * sizeof *in);  // little-endian: the first is the lower half
    transpose(out + j0, columns, words, pairs, kBlock, pairs);
  }
}
// out[p][j] = elements j of rows 2p and 2p + 1; zeros past the ends.
void pair_rows(uint32_t* out, int64_t pairs, int64_t columns, const BFloat16* in, int64_t in_row, int64_t rows, int64_t width) {
  for (int64_t p = 0; p < pairs; ++p, out += columns) {
    const BFloat16 *low = in + 2 * p * in_row, *high = low + in_row;
    std::fill(out, out + columns, 0);
    if (2 * p + 1 < rows)
      for (int64_t j = 0; j < width; ++j) out[j] = low[j].bits | static_cast<uint32_t>(high[j].bits) << 16;
    else if (2 * p < rows)
      for (int64_t j = 0; j < width; ++j) out[j] = low[j].bits;
  }
}

bool has_tiles_for(const Tensor& query, const Tensor& value) {
  return query.dtype == LAZYT_DTYPE_BFLOAT16 && std::max(query.dims().back(), value.dims().back()) <= kWidest && Tiles::available();
}

// bf16 by the CPU's tiles: weights are rounded to bf16 before they meet the values, sums are f32.
void add_forward_by_tiles(Builder& b, const lazyt_node_t& node, const Signature& at, bool keeps_sums) {
  const Problem p(b, node, at, LAZYT_DTYPE_BFLOAT16);
  const Tensor out = begin_result(b, node.results, LAZYT_DTYPE_BFLOAT16, tensor_at(b, b.program.args(node)[at.query]));
  const Tensor sums = keeps_sums ? begin_result(b, node.results + 1, LAZYT_DTYPE_FLOAT32) : b.scratch(LAZYT_DTYPE_FLOAT32, {0});
  const int64_t heads = p.head_count(), key_heads = heads / p.ratio;
  const int64_t s = padded(p.s, Tiles::kDepth), e = padded(p.e, Tiles::kDepth), ev = padded(p.ev, Tiles::kColumns);
  const Tensor k_pairs = b.scratch(LAZYT_DTYPE_INT32, {key_heads, e / 2, s}), v_pairs = b.scratch(LAZYT_DTYPE_INT32, {key_heads, s / 2, ev});
  b.add("attention", p.reads(), {out.storage, sums.storage, k_pairs.storage, v_pairs.storage},
        [=](const Frame& frame) {
          const TileKernels<float>& tile = products().tile<float>();
          uint32_t *ks = frame.at<uint32_t>(k_pairs), *vs = frame.at<uint32_t>(v_pairs);
          BFloat16* y = frame.at<BFloat16>(out);
          float* lse = frame.at<float>(sums);
          const float alpha = static_cast<float>(p.factor(frame));
          parallel(frame, key_heads, key_heads * s * (e + ev), [&](int64_t begin, int64_t end) {
            for (int64_t h = begin; h < end; ++h) {
              pair_columns(ks + h * e / 2 * s, e / 2, s, frame.at<BFloat16>(p.k) + p.offset(p.k, h * p.ratio, true), Problem::row(p.k), p.s, p.e);
              pair_rows(vs + h * s / 2 * ev, s / 2, ev, frame.at<BFloat16>(p.v) + p.offset(p.v, h * p.ratio, true), Problem::row(p.v), p.s, p.ev);
            }
          });
          const int64_t tiles = (p.l + kQueries - 1) / kQueries;
          parallel(frame, heads * tiles, heads * p.l * p.s * p.e, [&](int64_t begin, int64_t end) {
            const Tiles cpu;
            alignas(64) float x[kQueries * kKeys], o[kQueries * kWidest];
            alignas(64) BFloat16 weights[kQueries * kKeys], queries[kQueries * kWidest];
            std::fill(weights, weights + kQueries * kKeys, BFloat16(0));
            std::fill(queries, queries + kQueries * kWidest, BFloat16(0));
            for (int64_t t = begin; t < end; ++t) {
              const int64_t head = t / tiles, i0 = t % tiles * kQueries, count = std::min(kQueries, p.l - i0);
              const BFloat16* q = frame.at<BFloat16>(p.q) + p.offset(p.q, head, false) + i0 * Problem::row(p.q);
              for (int64_t i = 0; i < count; ++i) std::copy(q + i * Problem::row(p.q), q + i * Problem::row(p.q) + p.e, queries + i * e);
              const uint32_t *k = ks + head / p.ratio * e / 2 * s, *v = vs + head / p.ratio * s / 2 * ev;
              float top[kQueries], sum[kQueries];
              std::fill(top, top + kQueries, -std::numeric_limits<float>::infinity());
              std::fill(sum, sum + kQueries, 0.0f);
              const int64_t keys = p.keys_of(i0 + count);
              for (int64_t j0 = 0; j0 < keys; j0 += kKeys) {
                const int64_t n = std::min(kKeys, keys - j0), wide = padded(n, Tiles::kDepth);
                cpu.gemm(kQueries, wide, e, queries, e, k + j0, s, x, kKeys, false);
                for (int64_t i = 0; i < count; ++i) tile.scale(x + i * kKeys, n, alpha);
                p.put_mask(frame, x, kKeys, head, i0, count, j0, n);
                for (int64_t i = 0; i < count; ++i) {
                  float* row = x + i * kKeys;
                  const float shrinks = tile.online_softmax(row, n, top + i, sum + i);
                  std::fill(row + n, row + wide, 0.0f);
                  rows().bf16.store(weights + i * kKeys, row, wide);
                  if (j0 && shrinks != 1) tile.scale(o + i * ev, p.ev, shrinks);
                }
                cpu.gemm(kQueries, ev, wide, weights, kKeys, v + j0 / 2 * ev, ev, o, ev, j0 > 0);
              }
              for (int64_t i = 0; i < count; ++i) {
                tile.scale(o + i * ev, p.ev, sum[i] == 0 ? 0.0f : 1 / sum[i]);  // all keys masked: zeros
                rows().bf16.store(y + p.offset(out, head, false) + (i0 + i) * Problem::row(out), o + i * ev, p.ev);
                if (keeps_sums) lse[head * p.l + i0 + i] = top[i] + std::log(sum[i]);
              }
            }
          });
        });
  finish_result(b, node.results, out);
  if (keeps_sums) finish_result(b, node.results + 1, sums);
}

void add_forward(Builder& b, const lazyt_node_t& node, const Signature& at, bool keeps_sums) {
  const Tensor query = tensor_at(b, b.program.args(node)[at.query]), value = tensor_at(b, b.program.args(node)[at.query + 2]);
  if (has_tiles_for(query, value)) return add_forward_by_tiles(b, node, at, keeps_sums);
  const Problem p(b, node, at, compute_dtype(query.dtype));
  const Tensor out = begin_result(b, node.results, p.q.dtype, query);
  const Tensor sums = keeps_sums ? begin_result(b, node.results + 1, p.q.dtype) : b.scratch(p.q.dtype, {0});
  const int64_t heads = p.head_count();
  with_compute(p.q.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const bool few = p.l < kFewQueries;
    const Packed<C> keys(0, few ? 0 : p.e, p.s), values(keys.end, few ? 0 : p.s, p.ev);
    const PerThread packed = per_thread(b, static_cast<uint64_t>(values.end) * sizeof(C));
    b.add("attention", p.reads(), {out.storage, sums.storage, packed.tensor.storage},
          [=, sums = Place(sums)](const Frame& frame) {
            const TileKernels<C>& tile = products().tile<C>();
            C *y = frame.at<C>(out), *lse = frame.at<C>(sums);
            const C alpha = static_cast<C>(p.factor(frame));
            const int64_t tiles = (p.l + kQueries - 1) / kQueries;
            parallel(frame, packed, heads * tiles, heads * p.l * p.s * p.e, [&](std::byte* own, int64_t begin, int64_t end) {
              C* const scratch = reinterpret_cast<C*>(own);
              alignas(64) C x[kQueries * kKeys];
              int64_t packed_head = -1;
              for (int64_t t = begin; t < end; ++t) {
                const int64_t head = t / tiles, i0 = t % tiles * kQueries, count = std::min(kQueries, p.l - i0);
                const C* q = frame.at<C>(p.q) + p.offset(p.q, head, false) + i0 * Problem::row(p.q);
                const C *k = frame.at<C>(p.k) + p.offset(p.k, head, true), *v = frame.at<C>(p.v) + p.offset(p.v, head, true);
                if (!few && packed_head != head / p.ratio) {
                  packed_head = head / p.ratio;
                  pack_turned(scratch + keys.begin, k, Problem::row(p.k), p.s, p.e);
                  pack(scratch + values.begin, v, Problem::row(p.v), p.s, p.ev);
                }
                const int64_t o_row = Problem::row(out);
                C* o = y + p.offset(out, head, false) + i0 * o_row;
                if (const int64_t next = i0 + kQueries; next < p.l) prefetch_rows(q + kQueries * Problem::row(p.q), Problem::row(p.q), std::min(kQueries, p.l - next), p.e);
                C top[kQueries], sum[kQueries];
                std::fill(top, top + kQueries, -std::numeric_limits<C>::infinity());
                std::fill(sum, sum + kQueries, C(0));
                if (few)
                  for (int64_t i = 0; i < count; ++i) std::fill(o + i * o_row, o + i * o_row + p.ev, C(0));
                const int64_t seen = p.keys_of(i0 + count);
                for (int64_t j0 = 0; j0 < seen; j0 += kKeys) {
                  const int64_t n = std::min(kKeys, seen - j0);
                  if (few)
                    for (int64_t i = 0; i < count; ++i) {
                      rows().of<C>().dots(k + j0 * Problem::row(p.k), Problem::row(p.k), q + i * Problem::row(p.q), n, p.e, x + i * kKeys);
                      tile.scale(x + i * kKeys, n, alpha);
                    }
                  else
                    multiply(count, n, p.e, alpha, q, Problem::row(p.q), keys.from_column(scratch, j0), x, kKeys, false);
                  p.put_mask(frame, x, kKeys, head, i0, count, j0, n);
                  for (int64_t i = 0; i < count; ++i) {
                    const C shrinks = tile.online_softmax(x + i * kKeys, n, top + i, sum + i);
                    if (j0 && shrinks != C(1)) tile.scale(o + i * o_row, p.ev, shrinks);
                  }
                  if (few)
                    for (int64_t j = 0; j < n; ++j)
                      for (int64_t i = 0; i < count; ++i)
                        rows().of<C>().add_scaled(o + i * o_row, v + (j0 + j) * Problem::row(p.v), p.ev, x[i * kKeys + j]);
                  else
                    multiply_seen(count, p.ev, n, p.seen_by(i0, j0, n), x, kKeys, values.from_row(scratch, j0), o, o_row, j0 > 0);
                }
                for (int64_t i = 0; i < count; ++i) {
                  tile.scale(o + i * o_row, p.ev, sum[i] == C(0) ? C(0) : C(1) / sum[i]);  // all keys masked: zeros
                  if (keeps_sums) lse[head * p.l + i0 + i] = top[i] + std::log(sum[i]);
                }
              }
            });
          });
  });
  finish_result(b, node.results, out);
  if (keeps_sums) finish_result(b, node.results + 1, sums);
}
void lower_plain(Builder& b, const lazyt_node_t& node) { add_forward(b, node, kPlain, false); }
void lower_flash(Builder& b, const lazyt_node_t& node) { add_forward(b, node, kFlash, true); }

// ---- backward: P = exp(scores - lse), dV = P' dO, dP = dO V', dS = P (dP - rowsum(dO O)), dQ = dS K, dK = dS' Q

// bf16 by the CPU's tiles: P and dS are rounded to bf16 before they are multiplied, sums are f32.
void lower_backward_by_tiles(Builder& b, const lazyt_node_t& node) {
  constexpr lazyt_dtype_t kBf16 = LAZYT_DTYPE_BFLOAT16;
  const auto args = b.program.args(node);
  const Problem p(b, node, kFlashBackward, kBf16);
  const Tensor grad = as_operand(b, args[0], kBf16), out = as_operand(b, args[4], kBf16);
  const Tensor sums = dense_as(b, tensor_at(b, args[5]), LAZYT_DTYPE_FLOAT32);
  const Tensor gq = begin_result(b, node.results, kBf16, tensor_at(b, args[1])), gk = begin_result(b, node.results + 1, kBf16, tensor_at(b, args[2])),
               gv = begin_result(b, node.results + 2, kBf16, tensor_at(b, args[3]));
  const int64_t key_heads = p.head_count() / p.ratio;
  const int64_t s = padded(p.s, Tiles::kDepth), e = padded(p.e, Tiles::kDepth), ev = padded(p.ev, Tiles::kDepth);
  const Tensor k_pairs = b.scratch(LAZYT_DTYPE_INT32, {key_heads, e / 2, s}), v_pairs = b.scratch(LAZYT_DTYPE_INT32, {key_heads, ev / 2, s});
  const Tensor k_rows = b.scratch(LAZYT_DTYPE_INT32, {key_heads, s / 2, e});
  const Tensor dks = b.scratch(LAZYT_DTYPE_FLOAT32, {key_heads, s, e}), dvs = b.scratch(LAZYT_DTYPE_FLOAT32, {key_heads, s, ev});
  b.add("attention_backward", p.reads({grad.storage, out.storage, sums.storage}),
        {gq.storage, gk.storage, gv.storage, k_pairs.storage, v_pairs.storage, k_rows.storage, dks.storage, dvs.storage}, [=](const Frame& frame) {
          const TileKernels<float>& tile = products().tile<float>();
          const RowKernels<BFloat16>& halves = rows().bf16;
          const float alpha = static_cast<float>(p.factor(frame));
          const int64_t q_row = Problem::row(p.q), k_row = Problem::row(p.k), g_row = Problem::row(grad), o_row = Problem::row(out);
          parallel(frame, key_heads, p.head_count() * p.l * p.s * p.e, [&](int64_t begin, int64_t end) {
            const Tiles cpu;
            alignas(64) float x[kQueries * kKeys], d[kQueries * kKeys], turned[kKeys * kQueries], dq[kQueries * kWidest], wide_g[kWidest], wide_o[kWidest];
            alignas(64) BFloat16 weights[kKeys * kQueries], queries[kQueries * kWidest], grads[kQueries * kWidest];
            alignas(64) uint32_t q_pairs[kQueries / 2 * kWidest], g_pairs[kQueries / 2 * kWidest];
            // Rows and columns past the ends are 0, so that they add nothing.
            auto to_halves = [&](const float* from, int64_t row, int64_t columns) {
              for (int64_t i = 0; i < row; ++i) halves.store(weights + i * columns, from + i * columns, columns);
            };
            for (int64_t kh = begin; kh < end; ++kh) {
              const BFloat16 *k = frame.at<BFloat16>(p.k) + p.offset(p.k, kh * p.ratio, true), *v = frame.at<BFloat16>(p.v) + p.offset(p.v, kh * p.ratio, true);
              uint32_t *ks = frame.at<uint32_t>(k_pairs) + kh * e / 2 * s, *vs = frame.at<uint32_t>(v_pairs) + kh * ev / 2 * s;
              uint32_t* kr = frame.at<uint32_t>(k_rows) + kh * s / 2 * e;
              pair_columns(ks, e / 2, s, k, k_row, p.s, p.e);
              pair_columns(vs, ev / 2, s, v, Problem::row(p.v), p.s, p.ev);
              pair_rows(kr, s / 2, e, k, k_row, p.s, p.e);
              float *dk = frame.at<float>(dks) + kh * s * e, *dv = frame.at<float>(dvs) + kh * s * ev;
              std::fill(dk, dk + s * e, 0.0f);
              std::fill(dv, dv + s * ev, 0.0f);
              for (int64_t head = kh * p.ratio; head < (kh + 1) * p.ratio; ++head) {
                const float* lse = frame.at<float>(sums) + head * p.l;
                for (int64_t i0 = 0; i0 < p.l; i0 += kQueries) {
                  const int64_t count = std::min(kQueries, p.l - i0), seen = p.keys_of(i0 + count);
                  const BFloat16* q = frame.at<BFloat16>(p.q) + p.offset(p.q, head, false) + i0 * q_row;
                  const BFloat16 *g = frame.at<BFloat16>(grad) + p.offset(grad, head, false) + i0 * g_row, *o = frame.at<BFloat16>(out) + p.offset(out, head, false) + i0 * o_row;
                  std::fill(queries, queries + kQueries * e, BFloat16(0));
                  std::fill(grads, grads + kQueries * ev, BFloat16(0));
                  float delta[kQueries];
                  for (int64_t i = 0; i < count; ++i) {
                    std::copy_n(q + i * q_row, p.e, queries + i * e);
                    std::copy_n(g + i * g_row, p.ev, grads + i * ev);
                    halves.load(wide_g, g + i * g_row, p.ev);
                    halves.load(wide_o, o + i * o_row, p.ev);
                    delta[i] = tile.dot(wide_g, wide_o, p.ev);
                  }
                  pair_rows(q_pairs, kQueries / 2, e, q, q_row, count, p.e);
                  pair_rows(g_pairs, kQueries / 2, ev, g, g_row, count, p.ev);
                  for (int64_t j0 = 0; j0 < seen; j0 += kKeys) {
                    const int64_t n = std::min(kKeys, seen - j0), wide = padded(n, Tiles::kDepth);
                    cpu.gemm(kQueries, wide, e, queries, e, ks + j0, s, x, wide, false);
                    cpu.gemm(kQueries, wide, ev, grads, ev, vs + j0, s, d, wide, false);
                    for (int64_t i = 0; i < count; ++i) tile.scale(x + i * wide, n, alpha);
                    p.put_mask(frame, x, wide, head, i0, count, j0, n);
                    for (int64_t i = 0; i < kQueries; ++i) {
                      float *xi = x + i * wide, *di = d + i * wide;
                      const bool is_seen = i < count && lse[i0 + i] != -std::numeric_limits<float>::infinity();
                      if (is_seen) {
                        tile.exp_minus(xi, n, lse[i0 + i]);
                        tile.softmax_grad(di, xi, n, delta[i], alpha);
                      }
                      const int64_t from = is_seen ? n : 0;
                      std::fill(xi + from, xi + wide, 0.0f);
                      std::fill(di + from, di + wide, 0.0f);
                    }
                    transpose(turned, kQueries, x, wide, kQueries, wide);
                    to_halves(turned, wide, kQueries);
                    cpu.gemm(wide, ev, kQueries, weights, kQueries, g_pairs, ev, dv + j0 * ev, ev, true);
                    to_halves(d, kQueries, wide);
                    cpu.gemm(kQueries, e, wide, weights, wide, kr + j0 / 2 * e, e, dq, e, j0 > 0);
                    transpose(turned, kQueries, d, wide, kQueries, wide);
                    to_halves(turned, wide, kQueries);
                    cpu.gemm(wide, e, kQueries, weights, kQueries, q_pairs, e, dk + j0 * e, e, true);
                  }
                  BFloat16* to = frame.at<BFloat16>(gq) + p.offset(gq, head, false) + i0 * Problem::row(gq);
                  for (int64_t i = 0; i < count; ++i) halves.store(to + i * Problem::row(gq), dq + i * e, p.e);
                }
              }
              BFloat16 *to_k = frame.at<BFloat16>(gk) + p.offset(gk, kh * p.ratio, true), *to_v = frame.at<BFloat16>(gv) + p.offset(gv, kh * p.ratio, true);
              for (int64_t j = 0; j < p.s; ++j) {
                halves.store(to_k + j * Problem::row(gk), dk + j * e, p.e);
                halves.store(to_v + j * Problem::row(gv), dv + j * ev, p.ev);
              }
            }
          });
        });
}

void lower_flash_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  if (has_tiles_for(tensor_at(b, args[1]), tensor_at(b, args[3]))) return lower_backward_by_tiles(b, node);
  const lazyt_dtype_t dtype = compute_dtype(tensor_at(b, args[1]).dtype);
  const Problem p(b, node, kFlashBackward, dtype);
  const Tensor grad = as_operand(b, args[0], dtype), out = as_operand(b, args[4], dtype);
  const Tensor sums = dense_as(b, tensor_at(b, args[5]), dtype);
  const Tensor gq = begin_result(b, node.results, dtype, tensor_at(b, args[1])), gk = begin_result(b, node.results + 1, dtype, tensor_at(b, args[2])),
               gv = begin_result(b, node.results + 2, dtype, tensor_at(b, args[3]));
  const int64_t key_heads = p.head_count() / p.ratio;
  with_compute(dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const Packed<C> keys(0, p.e, p.s), values(keys.end, p.ev, p.s), key_rows(values.end, p.s, p.e);
    const PerThread packed = per_thread(b, static_cast<uint64_t>(key_rows.end) * sizeof(C));
    b.add("attention_backward",
          p.reads({grad.storage, out.storage, sums.storage}),
          {gq.storage, gk.storage, gv.storage, packed.tensor.storage}, [=](const Frame& frame) {
            const TileKernels<C>& tile = products().tile<C>();
            const C alpha = static_cast<C>(p.factor(frame));
            // A key head with all its query heads is one thread's: nothing is added up across threads.
            parallel(frame, packed, key_heads, p.head_count() * p.l * p.s * p.e, [&](std::byte* own, int64_t begin, int64_t end) {
              C* const scratch = reinterpret_cast<C*>(own);
              alignas(64) C x[kQueries * kKeys], d[kQueries * kKeys];
              for (int64_t kh = begin; kh < end; ++kh) {
                const int64_t g_row = Problem::row(grad), o_row = Problem::row(out), dq_row = Problem::row(gq), dk_row = Problem::row(gk), dv_row = Problem::row(gv);
                C *dk = frame.at<C>(gk) + p.offset(gk, kh * p.ratio, true), *dv = frame.at<C>(gv) + p.offset(gv, kh * p.ratio, true);
                const C *k = frame.at<C>(p.k) + p.offset(p.k, kh * p.ratio, true), *v = frame.at<C>(p.v) + p.offset(p.v, kh * p.ratio, true);
                pack_turned(scratch + keys.begin, k, Problem::row(p.k), p.s, p.e);
                pack_turned(scratch + values.begin, v, Problem::row(p.v), p.s, p.ev);
                pack(scratch + key_rows.begin, k, Problem::row(p.k), p.s, p.e);
                for (int64_t j = 0; j < p.s; ++j) {
                  std::fill(dk + j * dk_row, dk + j * dk_row + p.e, C(0));
                  std::fill(dv + j * dv_row, dv + j * dv_row + p.ev, C(0));
                }
                for (int64_t head = kh * p.ratio; head < (kh + 1) * p.ratio; ++head) {
                  const C* lse = frame.at<C>(sums) + head * p.l;
                  for (int64_t i0 = 0; i0 < p.l; i0 += kQueries) {
                    const int64_t count = std::min(kQueries, p.l - i0), keys_seen = p.keys_of(i0 + count);
                    const C* q = frame.at<C>(p.q) + p.offset(p.q, head, false) + i0 * Problem::row(p.q);
                    const C *g = frame.at<C>(grad) + p.offset(grad, head, false) + i0 * g_row, *o = frame.at<C>(out) + p.offset(out, head, false) + i0 * o_row;
                    C* dq = frame.at<C>(gq) + p.offset(gq, head, false) + i0 * dq_row;
                    if (const int64_t next = i0 + kQueries; next < p.l) {
                      const int64_t rows = std::min(kQueries, p.l - next);
                      prefetch_rows(q + kQueries * Problem::row(p.q), Problem::row(p.q), rows, p.e);
                      prefetch_rows(g + kQueries * g_row, g_row, rows, p.ev);
                      prefetch_rows(o + kQueries * o_row, o_row, rows, p.ev);
                    }
                    C delta[kQueries];
                    for (int64_t i = 0; i < count; ++i) delta[i] = tile.dot(g + i * g_row, o + i * o_row, p.ev);
                    for (int64_t j0 = 0; j0 < keys_seen; j0 += kKeys) {
                      const int64_t n = std::min(kKeys, keys_seen - j0), seen = p.seen_by(i0, j0, n);
                      multiply(count, n, p.e, alpha, q, Problem::row(p.q), keys.from_column(scratch, j0), x, kKeys, false);
                      p.put_mask(frame, x, kKeys, head, i0, count, j0, n);
                      for (int64_t i = 0; i < count; ++i) {
                        // A row whose keys are all masked has no weights.
                        if (lse[i0 + i] == -std::numeric_limits<C>::infinity())
                          std::fill(x + i * kKeys, x + i * kKeys + n, C(0));
                        else
                          tile.exp_minus(x + i * kKeys, n, lse[i0 + i]);
                      }
                      add_outer(n, p.ev, count, seen, x, kKeys, g, g_row, dv + j0 * dv_row, dv_row);
                      multiply(count, n, p.ev, C(1), g, g_row, values.from_column(scratch, j0), d, kKeys, false);
                      for (int64_t i = 0; i < count; ++i) tile.softmax_grad(d + i * kKeys, x + i * kKeys, n, delta[i], alpha);
                      multiply_seen(count, p.e, n, seen, d, kKeys, key_rows.from_row(scratch, j0), dq, dq_row, j0 > 0);
                      add_outer(n, p.e, count, seen, d, kKeys, q, Problem::row(p.q), dk + j0 * dk_row, dk_row);
                    }
                  }
                }
              }
            });
          });
  });
  finish_result(b, node.results, gq);
  finish_result(b, node.results + 1, gk);
  finish_result(b, node.results + 2, gv);
}

}  // namespace

void register_attention(Operators& all) {
  using toolkit::Role;
  all.add(LAZYT_OP_SCALED_DOT_PRODUCT_ATTENTION, {Role::kOpaque, accept_plain, lower_plain});
  all.add(LAZYT_OP_SCALED_DOT_PRODUCT_FLASH_ATTENTION_FOR_CPU, {Role::kOpaque, accept_flash, lower_flash});
  all.add(LAZYT_OP_SCALED_DOT_PRODUCT_FLASH_ATTENTION_FOR_CPU_BACKWARD, {Role::kOpaque, accept_flash_backward, lower_flash_backward});
}

}  // namespace lazyt::onednn
