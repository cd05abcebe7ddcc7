// Reading and writing at places that tensors name.
//
// A read is one kernel. A write finds the place of each source (its key), sorts the sources by place (stable, so that those
// of one place stay in order) and has one thread take all that one element gets: nothing depends on which thread is first,
// and no atomics are needed. Places that are named by many are added up in pieces first, so that no thread takes more than
// about twice the square root of all. An index out of range is a fault; nothing is read or written for it.
#include "lazyt/toolkit/indexing.hpp"

#include "sort.h"
#include "text.h"

namespace lazyt::cuda {
namespace {

using namespace toolkit::indexing;
using toolkit::count_of;
using toolkit::row_major;

constexpr uint32_t kThreads = 256;

std::vector<StorageId> storages(const Places& places, std::initializer_list<StorageId> more) {
  std::vector<StorageId> out(more);
  for (const Index& index : places.indices) out.push_back(index.tensor.storage);
  return out;
}

// Statements that look the indices up and add to `name`; found becomes false where one is out of range. Their words (faults,
// then site and address of each index) are appended.
std::string lookups(Builder& b, const Places& places, const std::string& name, const Dims& strides, std::vector<Word>& words) {
  const size_t faults = words.size();
  words.push_back({});
  std::string text;
  for (size_t k = 0; k < places.indices.size(); ++k) {
    const Index& index = places.indices[k];
    const BadIndex bad = bad_index(places.message, index.dim, index.size);
    const auto fault = b.fault({LAZYT_CODE_OUT_OF_RANGE, bad.before, bad.after, bad.shown, {}});
    words[faults] = fault[0];
    const std::string site = std::to_string(words.size());
    words.push_back(fault[1]);
    words.push_back(Word::address(index.tensor));
    const std::string wraps = places.negative == Negative::kWraps ? "true" : "false";
    text += "{ const long long p = lazyt_find(((const long long*)a.w[" + std::to_string(words.size() - 1) + "])[at" + std::to_string(k) + "], " +
            std::to_string(index.size) + "ll, " + wraps + ", a.w[" + std::to_string(faults) + "], a.w[" + site +
            "]); if (p < 0) found = false; else " + name + " += (I)p * (I)" + std::to_string(strides[k]) + "; } ";
  }
  return text;
}

Dims joined(const Dims& a, const Dims& b, const Dims& c) {
  Dims out = a;
  out.insert(out.end(), b.begin(), b.end());
  out.insert(out.end(), c.begin(), c.end());
  return out;
}
Dims zeros(size_t n) { return Dims(n, 0); }

void add_read(Builder& b, const char* name, const Tensor& self, const Indexed& indexed, const Tensor& out) {
  const Places& places = indexed.places;
  const size_t before = indexed.before.size(), after = indexed.after.size();
  const Dims dims = indexed.dims_beside();
  Strides names = {{"from", joined(indexed.before_strides, zeros(places.dims.size()), indexed.after_strides)}, {"to", out.strides()}};
  int64_t most = 0;
  Dims strides;
  for (size_t k = 0; k < places.indices.size(); ++k) {
    const Index& index = places.indices[k];
    names.emplace_back("at" + std::to_string(k), joined(zeros(before), index.tensor.strides(), zeros(after)));
    most = std::max(most, span_of(index.tensor.layout));
    strides.push_back(index.stride);
  }
  std::vector<Word> words = {Word::address(self), Word::address(out)};
  const std::string lookup = lookups(b, places, "from", strides, words);
  b.add_kernel(specialise(name, each_text(R"(
LAZYT_KERNEL(KERNEL, WORDS, 256) {
  const T* x = (const T*)a.w[0];
  T* y = (T*)a.w[1];
  LAZYT_EACH(i, COUNT) {
    OFFSETS
    bool found = true;
    LOOKUPS
    y[to] = found ? x[from] : (T)0;
  }
}
)"),
                          {{"T", bits_type(self.element())},
                           {"I", index_type({out.count(), span_of(out.layout), span_of(self.layout), most})},
                           {"COUNT", std::to_string(out.count())},
                           {"OFFSETS", offsets("i", dims, names)},
                           {"LOOKUPS", lookup},
                           {"WORDS", std::to_string(words.size())}}),
               out.count(), kThreads, words, storages(places, {self.storage}), {out.storage});
}

// ---- writes

// Where sources go: source p to keys[p], -1 = nowhere. Several of one key are in the order of `order` once sorted.
struct Keys {
  Tensor keys, order;
  bool sorted = false;
  int64_t count() const { return keys.count(); }
};

// How keys and sources lie: an element of the result is (outer, key), an element of the source (outer, p).
struct Spread {
  Dims outer, out_strides, source_strides;
  Dims key_dims, key_strides;      // of the result
  Dims place_dims, place_strides;  // of the source
};

struct Combine {
  Reduce reduce = Reduce::kNone;  // none: the last of a place is what counts
  bool include_self = true;       // what the result holds already takes part
  Number alpha{true, true, 1, 1, 0, LAZYT_DTYPE_INT64};
};

lazyt_dtype_t key_dtype(int64_t most) { return most < INT32_MAX ? LAZYT_DTYPE_INT32 : LAZYT_DTYPE_INT64; }

Keys sort(Builder& b, const Tensor& keys) {
  if (keys.count() <= 1) return {keys, keys, false};
  const Tensor sorted = b.scratch(keys.dtype, keys.dims()), order = b.scratch(LAZYT_DTYPE_INT64, keys.dims());
  add_sort(b, keys, sorted, order, {Sorting::kFirst, 0, keys.count(), false});
  return {sorted, order, true};
}

// keys[p] = the place that the indices name, counted in row-major order of the sizes that they index.
Tensor find_keys(Builder& b, const Places& places, const Dims& sizes) {
  const Tensor keys = b.scratch(key_dtype(count_of(sizes)), {places.count()});
  Strides names;
  int64_t most = std::max(keys.count(), count_of(sizes));
  for (size_t k = 0; k < places.indices.size(); ++k) {
    names.emplace_back("at" + std::to_string(k), places.indices[k].tensor.strides());
    most = std::max(most, span_of(places.indices[k].tensor.layout));
  }
  std::vector<Word> words = {Word::address(keys)};
  const std::string lookup = lookups(b, places, "key", row_major(sizes), words);
  b.add_kernel(specialise("keys", each_text(R"(
LAZYT_KERNEL(KERNEL, WORDS, 256) {
  LAZYT_EACH(i, COUNT) {
    OFFSETS
    I key = 0;
    bool found = true;
    LOOKUPS
    ((K*)a.w[0])[i] = found ? (K)key : (K)-1;
  }
}
)"),
                          {{"K", memory_type(keys.dtype)},
                           {"I", index_type({most})},
                           {"COUNT", std::to_string(keys.count())},
                           {"OFFSETS", offsets("i", places.dims, names)},
                           {"LOOKUPS", lookup},
                           {"WORDS", std::to_string(words.size())}}),
               keys.count(), kThreads, words, storages(places, {}), {keys.storage});
  return keys;
}

// From how many sorted sources on they are cut into pieces, and of how many a piece is.
int64_t piece_of(int64_t count) {
  if (count <= 256) return count;
  int64_t piece = 64;
  while (piece * piece < count && piece < 4096) piece *= 2;
  return piece;
}

// Takes what is sorted from t on, of one key, before `end`.
constexpr std::string_view kRun = R"(
    do {
      [[maybe_unused]] const I p = SORTED ? (I)((const O*)a.w[3])[t] : t;
      FROM
      C v = (C)lazyt_load(x, source0 + from);
      if (SCALED) v = lazyt_mul(v, ALPHA);
      total = n == 0 ? v : COMBINE;
      ++n;
    } while (SORTED && ++t < end && keys[t] == key);
)";

// heads[piece, outer]: what the piece begins with, if that is of the key that the one before ends with.
constexpr std::string_view kHeads = R"(
LAZYT_KERNEL(KERNEL, 5, 256) {
  const K* keys = (const K*)a.w[2];
  const S* x = (const S*)a.w[1];
  LAZYT_EACH(i, HEADS) {
    I t = i / OUTER * PIECE;
    const K key = keys[t];
    if (key < 0 || t == 0 || keys[t - 1] != key) continue;
    SPLIT
    const I end = t + PIECE < PLACES ? t + PIECE : PLACES;
    C total = (C)0;
    long long n = 0;
    RUN
    lazyt_store((B*)a.w[0], i, total);
  }
}
)";

constexpr std::string_view kCombine = R"(
LAZYT_KERNEL(KERNEL, 6, 256) {
  const K* keys = (const K*)a.w[2];
  T* y = (T*)a.w[0];
  const S* x = (const S*)a.w[1];
  LAZYT_EACH(i, COUNT) {
    I t = i / OUTER;
    const K key = keys[t];
    if (key < 0 || (SORTED && t > 0 && keys[t - 1] == key)) continue;
    SPLIT
    TO
    I end = PIECE < PLACES ? (t / PIECE + 1) * PIECE : PLACES;
    if (end > PLACES) end = PLACES;
    C total = INCLUDE ? lazyt_load(y, out0 + to) : (C)0;
    long long n = INCLUDE;
    RUN
    if (PIECE < PLACES)
      for (; end < PLACES && keys[end] == key; end += PIECE) {
        const C v = lazyt_load((const B*)a.w[5], end / PIECE * OUTER + i % OUTER);
        total = COMBINE;
        if (MEAN)
          for (t = end; t < end + PIECE && t < PLACES && keys[t] == key; ++t) ++n;
      }
    if (MEAN) total = lazyt_mean(total, n);
    lazyt_store(y, out0 + to, total);
  }
}
)";

// out[outer, key] combined with what the source has for it. REQUIRES: out holds what takes part, or is to stay.
void add_apply(Builder& b, const char* name, const Tensor& out, const Tensor& source, const Keys& keys, const Spread& s,
               const Combine& how) {
  const int64_t outer = count_of(s.outer), count = outer * keys.count();
  if (count == 0) return;
  // Neighbouring threads share a place and differ in where they are in `outer`, the rows of an embedding for one.
  const Strides split = {{"out0", s.out_strides}, {"source0", s.source_strides}};
  const bool moves = how.reduce == Reduce::kNone;
  const bool floats = is_floating(out.dtype);
  auto flag = [](bool set) { return std::string(set ? "true" : "false"); };
  auto is = [&](Reduce r) { return flag(how.reduce == r); };
  const bool scaled = !how.alpha.constant || (how.alpha.integral ? how.alpha.i != 1 : how.alpha.d != 1);
  std::string combine = "lazyt_add(total, v)";
  if (how.reduce == Reduce::kProd) combine = "lazyt_mul(total, v)";
  if (how.reduce == Reduce::kMax) combine = "lazyt_max(total, v)";
  if (how.reduce == Reduce::kMin) combine = "lazyt_min(total, v)";
  const int64_t piece = moves || !keys.sorted ? keys.count() : piece_of(keys.count()), heads = outer * ((keys.count() + piece - 1) / piece);
  const lazyt_dtype_t between = toolkit::compute_dtype(out.dtype);  // not of what is only moved: it may be complex
  Defines defines = {
      {"T", moves ? bits_type(out.element()) : memory_type(out.dtype)},
      {"S", moves ? bits_type(out.element()) : memory_type(source.dtype)},
      {"C", moves ? bits_type(out.element()) : register_type(out.dtype)},
      {"K", memory_type(keys.keys.dtype)},
      {"O", memory_type(keys.order.dtype)},
      {"I", index_type({count, span_of(out.layout), span_of(source.layout)})},
      {"COUNT", std::to_string(count)},
      {"OUTER", std::to_string(outer)},
      {"PLACES", std::to_string(keys.count())},
      {"SORTED", flag(keys.sorted)},
      {"SPLIT", offsets("i % " + std::to_string(outer), s.outer, split)},
      {"TO", offsets("key", s.key_dims, {{"to", s.key_strides}})},
      {"FROM", offsets("p", s.place_dims, {{"from", s.place_strides}})},
      {"INCLUDE", flag(how.include_self)},
      {"SCALED", flag(scaled)},
      {"ALPHA", floats ? "(C)lazyt_f64(a.w[4])" : "(C)(long long)a.w[4]"},
      {"COMBINE", combine},
      {"MEAN", is(Reduce::kMean)},
      {"B", moves ? bits_type(out.element()) : memory_type(between)},
      {"PIECE", std::to_string(piece)},
      {"HEADS", std::to_string(heads)},
  };
  constexpr std::string_view kMove = R"(
LAZYT_KERNEL(KERNEL, 5, 256) {
  const K* keys = (const K*)a.w[2];
  LAZYT_EACH(i, COUNT) {
    const I t = i / OUTER;
    const K key = keys[t];
    if (key < 0 || (SORTED && t + 1 < PLACES && keys[t + 1] == key)) continue;
    [[maybe_unused]] const I p = SORTED ? (I)((const O*)a.w[3])[t] : t;
    SPLIT
    TO
    FROM
    ((T*)a.w[0])[out0 + to] = ((const T*)a.w[1])[source0 + from];
  }
}
)";
  constexpr std::string_view kMean = R"(
#ifndef LAZYT_MEAN_TEXT
#define LAZYT_MEAN_TEXT
__device__ __forceinline__ float lazyt_mean(float total, long long n) { return total / (float)n; }
__device__ __forceinline__ double lazyt_mean(double total, long long n) { return total / (double)n; }
// Of integers: rounded down.
template <class Value> __device__ __forceinline__ Value lazyt_mean(Value total, long long n) {
  const long long all = (long long)total;
  return n <= 1 ? total : (Value)(all / n - (all % n < 0));
}
#endif
)";
  const Word alpha = floats ? Word::f64(how.alpha) : Word::i64(how.alpha);
  std::vector<Word> words = {Word::address(out), Word::address(source), Word::address(keys.keys), Word::address(keys.order), alpha};
  std::vector<StorageId> reads = {source.storage, keys.keys.storage, keys.order.storage};
  if (moves) {
    reads.push_back(out.storage);
    b.add_kernel(specialise(name, each_text(kMove), defines), count, kThreads, words, reads, {out.storage});
    return;
  }
  std::string run(kRun);
  std::erase(run, '\n');
  defines.emplace_back("RUN", run);
  Tensor parts = out;
  if (piece < keys.count()) {
    parts = b.scratch(between, {heads});
    std::vector<Word> head_words = words;
    head_words[0] = Word::address(parts);
    b.add_kernel(specialise("heads", each_text(kHeads), defines), heads, kThreads, head_words, reads, {parts.storage});
  }
  words.push_back(Word::address(parts));
  reads.insert(reads.end(), {out.storage, parts.storage});
  b.add_kernel(specialise(name, each_text(std::string(kMean) + std::string(kCombine)), defines), count, kThreads, words, reads, {out.storage});
}

Spread spread_of(const Indexed& x, const Tensor& source) {
  const size_t before = x.before.size(), places = x.places.dims.size();
  const auto at = source.strides().begin();
  const auto first = at + static_cast<std::ptrdiff_t>(before), second = first + static_cast<std::ptrdiff_t>(places);
  Spread s;
  s.outer = joined(x.before, x.after, {});
  s.out_strides = joined(x.before_strides, x.after_strides, {});
  s.source_strides = joined(Dims(at, first), Dims(second, source.strides().end()), {});
  for (const Index& index : x.places.indices) {
    s.key_dims.push_back(index.size);
    s.key_strides.push_back(index.stride);
  }
  s.place_dims = x.places.dims;
  s.place_strides = Dims(first, second);
  return s;
}

bool is_one_value(const Tensor& t) {
  return std::all_of(t.strides().begin(), t.strides().end(), [](int64_t s) { return s == 0; });
}

// The keys of a grid of indices: offsets in `out`, of which the index replaces the coordinate along dim.
struct Grid {
  int64_t size = 1, stride = 1;
  Dims strides;  // of the indexed tensor for each dim of the index, 0 along dim
};
Grid grid_of(const Tensor& index, const Tensor& into, int64_t dim) {
  Grid g;
  const size_t rank = index.dims().size();
  if (!into.dims().empty()) {
    const size_t d = rank == 0 ? 0 : static_cast<size_t>(dim);
    g.size = into.dims()[d], g.stride = into.strides()[d];
  }
  for (size_t i = 0; i < rank; ++i) g.strides.push_back(i == static_cast<size_t>(dim) || into.dims().empty() ? 0 : into.strides()[i]);
  return g;
}
Dims strides_beside(const Tensor& t, size_t rank) { return t.dims().size() == rank ? t.strides() : zeros(rank); }

// ---- the kernels of toolkit/indexing.hpp

struct Kernels {
  static constexpr bool kSumsInMemory = false;

  static void read(Builder& b, const char* name, const Tensor& self, const Indexed& indexed, const Tensor& out) {
    if (out.count() > 0) return add_read(b, name, self, indexed, out);
    if (indexed.places.count() == 0) return;
    Dims sizes;  // nothing is read, but the indices are looked at
    for (const Index& index : indexed.places.indices) sizes.push_back(index.size);
    find_keys(b, indexed.places, sizes);
  }

  static void put(Builder& b, const char* name, const Tensor& self, const Tensor& out, const Indexed& indexed, const Tensor& source,
                  const Combine& how) {
    b.copy(self, out);
    if (indexed.places.count() == 0) return;
    const Spread s = spread_of(indexed, source);
    const Tensor keys = find_keys(b, indexed.places, s.key_dims);
    const bool unordered = how.reduce == Reduce::kNone && is_one_value(source);
    add_apply(b, name, out, source, unordered ? Keys{keys, keys, false} : sort(b, keys), s, how);
  }
  static void write(Builder& b, const char* name, const Tensor& self, const Tensor& out, const Indexed& indexed, const Tensor& source) {
    put(b, name, self, out, indexed, source, {});
  }
  static void accumulate(Builder& b, const char* name, const Tensor& self, const Tensor& out, const Indexed& indexed,
                         const Tensor& source, const Number& alpha) {
    put(b, name, self, out, indexed, source, {Reduce::kSum, true, alpha});
  }

  static void gather(Builder& b, const Tensor& self, const Tensor& index, const Tensor& out, int64_t dim) {
    const Grid g = grid_of(index, self, dim);
    const BadIndex bad = bad_index(Message::kBounds, dim, g.size);
    const auto fault = b.fault({LAZYT_CODE_OUT_OF_RANGE, bad.before, bad.after, bad.shown, {}});
    b.add_kernel(specialise("gather", each_text(R"(
LAZYT_KERNEL(KERNEL, 5, 256) {
  LAZYT_EACH(i, COUNT) {
    OFFSETS
    const long long p = lazyt_find(((const long long*)a.w[1])[at], SIZE, false, a.w[3], a.w[4]);
    ((T*)a.w[2])[to] = p < 0 ? (T)0 : ((const T*)a.w[0])[from + (I)p * (I)STRIDE];
  }
}
)"),
                            {{"T", bits_type(self.element())},
                             {"I", index_type({out.count(), span_of(self.layout), span_of(index.layout)})},
                             {"COUNT", std::to_string(out.count())},
                             {"OFFSETS", offsets("i", index.dims(), {{"from", g.strides}, {"at", index.strides()}, {"to", out.strides()}})},
                             {"SIZE", std::to_string(g.size) + "ll"},
                             {"STRIDE", std::to_string(g.stride)}}),
                 out.count(), kThreads, {Word::address(self), Word::address(index), Word::address(out), fault[0], fault[1]},
                 {self.storage, index.storage}, {out.storage});
  }

  static void scatter(Builder& b, const char* name, const Tensor& self, const Tensor& out, const Tensor& index, const Tensor& source,
                      int64_t dim, Reduce reduce, bool include_self) {
    b.copy(self, out);
    if (index.count() == 0) return;
    const Grid g = grid_of(index, out, dim);
    const BadIndex bad = bad_index(Message::kBounds, dim, g.size);
    const auto fault = b.fault({LAZYT_CODE_OUT_OF_RANGE, bad.before, bad.after, bad.shown, {}});
    const Tensor keys = b.scratch(key_dtype(out.count()), {index.count()});
    b.add_kernel(specialise("keys", each_text(R"(
LAZYT_KERNEL(KERNEL, 4, 256) {
  LAZYT_EACH(i, COUNT) {
    OFFSETS
    const long long p = lazyt_find(((const long long*)a.w[0])[at], SIZE, false, a.w[2], a.w[3]);
    ((K*)a.w[1])[i] = p < 0 ? (K)-1 : (K)(to + (I)p * (I)STRIDE);
  }
}
)"),
                            {{"K", memory_type(keys.dtype)},
                             {"I", index_type({out.count(), index.count(), span_of(index.layout)})},
                             {"COUNT", std::to_string(index.count())},
                             {"OFFSETS", offsets("i", index.dims(), {{"at", index.strides()}, {"to", g.strides}})},
                             {"SIZE", std::to_string(g.size) + "ll"},
                             {"STRIDE", std::to_string(g.stride)}}),
                 index.count(), kThreads, {Word::address(index), Word::address(keys), fault[0], fault[1]}, {index.storage}, {keys.storage});
    const Spread s{{}, {}, {}, {std::max<int64_t>(out.count(), 1)}, {1}, index.dims(), strides_beside(source, index.dims().size())};
    const bool unordered = reduce == Reduce::kNone && is_one_value(source);
    add_apply(b, name, out, source, unordered ? Keys{keys, keys, false} : sort(b, keys), s, {reduce, include_self});
  }

  static void embedding_backward(Builder& b, const Tensor& grad, const Tensor& index, const Tensor& out, int64_t padding, bool by_frequency) {
    b.fill(out, {true, true, 0, 0, 0, LAZYT_DTYPE_INT64});
    if (index.count() == 0) return;
    const int64_t words = out.dims()[0], n = out.dims()[1];
    const Tensor keys = b.scratch(key_dtype(words), {index.count()});
    const BadIndex bad = bad_index(Message::kSelf, 0, words);
    const auto fault = b.fault({LAZYT_CODE_OUT_OF_RANGE, bad.before, bad.after, bad.shown, {}});
    b.add_kernel(specialise("keys", each_text(R"(
LAZYT_KERNEL(KERNEL, 4, 256) {
  LAZYT_EACH(i, COUNT) {
    const long long at = ((const long long*)a.w[0])[i];
    ((K*)a.w[1])[i] = at == PADDING ? (K)-1 : (K)lazyt_find(at, SIZE, false, a.w[2], a.w[3]);
  }
}
)"),
                            {{"K", memory_type(keys.dtype)},
                             {"I", index_type({index.count()})},
                             {"COUNT", std::to_string(index.count())},
                             {"PADDING", "(" + std::to_string(padding) + "ll)"},
                             {"SIZE", std::to_string(words) + "ll"}}),
                 index.count(), kThreads, {Word::address(index), Word::address(keys), fault[0], fault[1]}, {index.storage}, {keys.storage});
    const Spread s{{n}, {1}, {1}, {words}, {n}, {index.count()}, {n}};
    add_apply(b, "embedding_backward", out, grad, sort(b, keys), s, {by_frequency ? Reduce::kMean : Reduce::kSum, false});
  }

  // The mask is counted in runs of kRun elements, one thread each.
  static void masked_scatter(Builder& b, const Tensor& self, const Tensor& mask, const Tensor& source, const Tensor& out) {
    constexpr int64_t kRun = 32;
    const int64_t count = out.count(), runs = (count + kRun - 1) / kRun;
    if (count == 0) return;
    const Tensor starts = b.scratch(LAZYT_DTYPE_INT64, {runs});
    const auto fault = b.fault({LAZYT_CODE_INVALID_ARGUMENT,
                                "masked_scatter: expected the number of elements of source to be at least the number of ones in mask", "",
                                false, {}});
    const Defines defines = {{"T", bits_type(out.element())},
                             {"I", index_type({count, span_of(mask.layout), span_of(self.layout)})},
                             {"COUNT", std::to_string(count)},
                             {"RUNS", std::to_string(runs)},
                             {"RUN", std::to_string(kRun)},
                             {"SOURCE", std::to_string(source.count()) + "ll"},
                             {"OFFSETS", offsets("i", out.dims(), {{"masked", mask.strides()}, {"own", self.strides()}})}};
    b.add_kernel(specialise("mask_count", each_text(R"(
LAZYT_KERNEL(KERNEL, 2, 256) {
  LAZYT_EACH(r, RUNS) {
    long long n = 0;
    for (I i = r * RUN; i < (r + 1) * RUN && i < COUNT; ++i) {
      OFFSETS
      n += ((const unsigned char*)a.w[0])[masked] != 0;
    }
    ((long long*)a.w[1])[r] = n;
  }
}
)"),
                            defines),
                 runs, kThreads, {Word::address(mask), Word::address(starts)}, {mask.storage}, {starts.storage});
    b.add_kernel(specialise("mask_scan", each_text(R"(
LAZYT_KERNEL(KERNEL, 3, 1024) {
  __shared__ long long room[1024];
  long long* counts = (long long*)a.w[0];
  long long before = 0;
  for (long long r = 0; r < RUNS; r += 1024) {
    const long long own = r + threadIdx.x < RUNS ? counts[r + threadIdx.x] : 0;
    room[threadIdx.x] = own;
    __syncthreads();
    for (int k = 1; k < 1024; k *= 2) {
      const long long left = threadIdx.x >= k ? room[threadIdx.x - k] : 0;
      __syncthreads();
      room[threadIdx.x] += left;
      __syncthreads();
    }
    if (r + threadIdx.x < RUNS) counts[r + threadIdx.x] = before + room[threadIdx.x] - own;
    before += room[1023];
    __syncthreads();
  }
  if (threadIdx.x == 0 && before > SOURCE) lazyt_fault(a.w[1], a.w[2], before);
}
)"),
                            {{"RUNS", std::to_string(runs)}, {"SOURCE", std::to_string(source.count()) + "ll"}}),
                 {1, 1, 1}, {1024, 1, 1}, 0, {Word::address(starts), fault[0], fault[1]}, {starts.storage}, {starts.storage});
    b.add_kernel(specialise("masked_scatter", each_text(R"(
LAZYT_KERNEL(KERNEL, 5, 256) {
  LAZYT_EACH(r, RUNS) {
    long long next = ((const long long*)a.w[3])[r];
    for (I i = r * RUN; i < (r + 1) * RUN && i < COUNT; ++i) {
      OFFSETS
      T v = ((const T*)a.w[0])[own];
      if (((const unsigned char*)a.w[1])[masked]) {
        if (next < SOURCE) v = ((const T*)a.w[2])[next];
        ++next;
      }
      ((T*)a.w[4])[i] = v;
    }
  }
}
)"),
                            defines),
                 runs, kThreads,
                 {Word::address(self), Word::address(mask), Word::address(source), Word::address(starts), Word::address(out)},
                 {self.storage, mask.storage, source.storage, starts.storage}, {out.storage});
  }

  static void search(Builder& b, const Tensor& sequence, const Tensor& values, const Tensor* sorter, bool right, const Tensor& out) {
    const bool shared = sequence.dims().size() <= 1;  // one sequence for all values
    const int64_t n = sequence.dims().empty() ? 1 : sequence.dims().back(), count = values.count();
    const int64_t each = shared ? std::max<int64_t>(count, 1) : values.dims().back();
    if (count == 0) return;
    const Tensor order = sorter ? *sorter : sequence;
    const auto fault = b.fault({LAZYT_CODE_OUT_OF_RANGE, "searchsorted: sorter index ", " is out of range"});
    b.add_kernel(specialise("searchsorted", each_text(R"(
LAZYT_KERNEL(KERNEL, 6, 256) {
  const T* sequence = (const T*)a.w[0];
  LAZYT_EACH(i, COUNT) {
    const I base = i / EACH_HAS * N;
    const C value = lazyt_load((const T*)a.w[1], i);
    I low = 0, high = N;
    while (low < high) {
      const I middle = low + (high - low) / 2;
      long long at = middle;
      if (SORTER) {
        at = lazyt_find(((const long long*)a.w[2])[base + middle], N, false, a.w[4], a.w[5]);
        if (at < 0) at = middle;
      }
      const C x = lazyt_load(sequence, base + at);
      if (RIGHT ? !(x > value) : !(x >= value)) low = middle + 1; else high = middle;
    }
    ((long long*)a.w[3])[i] = low;
  }
}
)"),
                            {{"T", memory_type(sequence.dtype)},
                             {"C", register_type(sequence.dtype)},
                             {"I", index_type({count, sequence.count()})},
                             {"COUNT", std::to_string(count)},
                             {"EACH_HAS", std::to_string(each)},
                             {"N", std::to_string(n)},
                             {"SORTER", sorter ? "true" : "false"},
                             {"RIGHT", right ? "true" : "false"}}),
                 count, kThreads,
                 {Word::address(sequence), Word::address(values), Word::address(order), Word::address(out), fault[0], fault[1]},
                 {sequence.storage, values.storage, order.storage}, {out.storage});
  }
};

}  // namespace

void register_index(Operators& all) { toolkit::add_indexing<Kernels>(all); }

}  // namespace lazyt::cuda
