// Reading and writing at places that tensors name. Places are checked before anything is written; what several
// places write to one element happens in the order of the places, whatever the threads.
#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "bytes.h"
#include "elements.h"
#include "prefetch.h"
#include "rows.h"
#include "lazyt/toolkit/indexing.hpp"

namespace lazyt::onednn {
namespace {

using namespace toolkit::indexing;

[[noreturn]] void throw_bad_index(Message message, int64_t index, int64_t dim, int64_t size) {
  const BadIndex text = bad_index(message, dim, size);
  throw plugin::Error(LAZYT_CODE_OUT_OF_RANGE, text.before + (text.shown ? std::to_string(index) : "") + text.after);
}

// f(i, offset) for every place i of one index: how far its element lies from the first of the tensor that it is in.
template <class F>
void for_each_place(const Frame& frame, const Places& places, const Index& index, F f) {
  const int64_t n = places.count();
  const int64_t* in = frame.at<int64_t>(index.tensor);
  std::atomic<int64_t> first_bad{n};
  const bool dense = index.tensor.layout.is_dense(), wraps = places.negative == Negative::kWraps;
  parallel(frame, n, n * 4, [&](int64_t begin, int64_t end) {
    Odometer<1> at(places.dims, {&index.tensor.strides()}, begin);
    // Copies, which what f writes cannot change: bytes may lie over anything.
    const F own = f;
    const bool in_order = dense, negative_too = wraps;
    const int64_t *all = in, size = index.size, stride = index.stride;
    for (int64_t i = begin; i < end; ++i) {
      int64_t place = all[in_order ? i : at.offsets[0]];
      if (!in_order) at.next();
      if (negative_too && place < 0) place += size;
      if (static_cast<uint64_t>(place) >= static_cast<uint64_t>(size)) {
        int64_t seen = first_bad.load();
        while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
        }
        return;
      }
      own(i, place * stride);
    }
  });
  if (const int64_t bad = first_bad.load(); bad < n)
    throw_bad_index(places.message, in[Odometer<1>(places.dims, {&index.tensor.strides()}, bad).offsets[0]], index.dim, index.size);
}
// offsets[i]: where the places lead, from the first element of the tensor that they are in.
void find(const Frame& frame, const Places& places, const Tensor& offsets) {
  int64_t* out = frame.at<int64_t>(offsets);
  for (size_t k = 0; k < places.indices.size(); ++k)
    for_each_place(frame, places, places.indices[k], [&](int64_t i, int64_t offset) { out[i] = (k ? out[i] : 0) + offset; });
}
// How an indexed tensor A and a tensor B beside it are walked: outer loops, then places, then a run of n elements.
struct Walk {
  Dims outer;                    // before, and after but its innermost run
  std::array<Dims, 2> strides;   // of A and B
  int64_t n = 1, step_a = 1, step_b = 1;
  Dims place_dims, place_strides;  // of B
  int64_t outer_count() const { return toolkit::count_of(outer); }
};

Walk walk_of(const Indexed& x, const Layout& beside) {
  Walk out;
  const size_t before = x.before.size(), places = x.places.dims.size();
  const Dims sb(beside.strides.begin(), beside.strides.begin() + static_cast<std::ptrdiff_t>(before));
  const Dims sp(beside.strides.begin() + static_cast<std::ptrdiff_t>(before),
                beside.strides.begin() + static_cast<std::ptrdiff_t>(before + places));
  const Dims sa(beside.strides.begin() + static_cast<std::ptrdiff_t>(before + places), beside.strides.end());
  auto loops = [](const Dims& dims, const Dims& a, const Dims& c) {
    std::vector<size_t> order(dims.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const std::array<Dims, 2> both = {a, c};
    return toolkit::collapse(dims, both, order);
  };
  const auto first = loops(x.before, x.before_strides, sb), last = loops(x.after, x.after_strides, sa);
  const auto named = loops(x.places.dims, sp, sp);
  out.place_dims = named.dims;
  out.place_strides = named.strides[0];
  out.outer = first.dims;
  out.outer.insert(out.outer.end(), last.dims.begin(), last.dims.end() - 1);
  for (size_t k = 0; k < 2; ++k) {
    out.strides[k] = first.strides[k];
    out.strides[k].insert(out.strides[k].end(), last.strides[k].begin(), last.strides[k].end() - 1);
  }
  out.n = last.dims.back();
  out.step_a = last.strides[0].back();
  out.step_b = last.strides[1].back();
  return out;
}

// f(offset in A, offset in B, n) for each run, the places in order. Split between the threads by what does not
// depend on the places: outer loops, or the run.
template <class F>
void for_writes(const Frame& frame, const Walk& walk, const int64_t* offsets, F f) {
  const int64_t places = toolkit::count_of(walk.place_dims), outer = walk.outer_count();
  const bool evenly = walk.place_dims.size() == 1;  // as most are, where an odometer would take longer than an element
  const int64_t step = evenly ? walk.place_strides[0] : 0;
  auto part = [&](int64_t begin, int64_t end, int64_t first, int64_t last) {
    if (places == 0 || first == last) return;
    Odometer<2> at(walk.outer, {&walk.strides[0], &walk.strides[1]}, begin);
    for (int64_t i = begin; i < end; ++i, at.next()) {
      const int64_t a = at.offsets[0] + first * walk.step_a, b = at.offsets[1] + first * walk.step_b;
      if (evenly) {
        for (int64_t p = 0; p < places; ++p) f(a + offsets[p], b + p * step, last - first);
        continue;
      }
      Odometer<1> place(walk.place_dims, {&walk.place_strides});
      for (int64_t p = 0; p < places; ++p, place.next()) f(a + offsets[p], b + place.offsets[0], last - first);
    }
  };
  const int64_t work = outer * places * walk.n;
  if (outer > 1)
    parallel(frame, outer, work, [&](int64_t begin, int64_t end) { part(begin, end, 0, walk.n); });
  else if (outer == 1)
    parallel(frame, walk.n, work, [&](int64_t begin, int64_t end) { part(0, 1, begin, end); });
}
// f(..., n, which place): the same where no order is needed, split by outer loops and places.
template <class F>
void for_reads(const Frame& frame, const Walk& walk, const int64_t* offsets, F f) {
  const int64_t places = toolkit::count_of(walk.place_dims), outer = walk.outer_count();
  parallel(frame, outer * places, outer * places * walk.n, [&](int64_t begin, int64_t end) {
    Odometer<2> at(walk.outer, {&walk.strides[0], &walk.strides[1]}, begin / places);
    int64_t p = begin % places;
    Odometer<1> place(walk.place_dims, {&walk.place_strides}, p);
    for (int64_t i = begin; i < end; ++i) {
      f(at.offsets[0] + offsets[p], at.offsets[1] + place.offsets[0], walk.n, p);
      place.next();
      if (++p == places) p = 0, at.next();
    }
  });
}

std::vector<StorageId> index_storages(const Places& places) {
  std::vector<StorageId> out;
  for (const Index& i : places.indices) out.push_back(i.tensor.storage);
  return out;
}

// out[..., place, ...] = self[...]
void add_read(Builder& b, const char* name, const Tensor& self, const Indexed& indexed, const Tensor& out) {
  const Walk walk = walk_of(indexed, out.layout);
  // Single elements by one index: no list of places is made.
  const bool singles = walk.n == 1 && walk.outer_count() == 1 && walk.place_dims.size() == 1 && indexed.places.indices.size() == 1;
  const Tensor offsets_at = b.scratch(LAZYT_DTYPE_INT64, {singles ? 0 : indexed.places.count()});
  auto reads = index_storages(indexed.places);
  reads.push_back(self.storage);
  with_bytes(self.element(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add(name, reads, {out.storage, offsets_at.storage}, [=, places = indexed.places](const Frame& frame) {
      const T* x = frame.at<T>(self);
      T* y = frame.at<T>(out);
      if (singles) {
        const int64_t step = walk.place_strides[0];
        return for_each_place(frame, places, places.indices[0], [=](int64_t i, int64_t offset) { y[i * step] = x[offset]; });
      }
      find(frame, places, offsets_at);
      const int64_t* offsets = frame.at<int64_t>(offsets_at);
      if (walk.n == 1 && walk.place_dims.size() == 1 && walk.outer_count() > 1) {  // columns: a row at a time
        const int64_t outer = walk.outer_count(), n = walk.place_dims[0], step = walk.place_strides[0];
        parallel(frame, outer, outer * n, [&](int64_t begin, int64_t end) {
          Odometer<2> at(walk.outer, {&walk.strides[0], &walk.strides[1]}, begin);
          for (int64_t i = begin; i < end; ++i, at.next())
            for (int64_t p = 0; p < n; ++p) y[at.offsets[1] + p * step] = x[at.offsets[0] + offsets[p]];
        });
        return;
      }
      if (walk.n > 1 && walk.step_a == 1 && walk.step_b == 1) {
        const auto bytes = static_cast<size_t>(walk.n) * sizeof(T);
        // Rows lie anywhere, so no CPU asks for them ahead: a few of them fill what is waited for at once.
        const int64_t ahead = bytes <= 2048 ? std::max<int64_t>(1, 2048 / static_cast<int64_t>(bytes)) : 0, last = places.count() - 1;
        return for_reads(frame, walk, offsets, [&](int64_t from, int64_t to, int64_t, int64_t p) {
          if (ahead) prefetch_row(x + from - offsets[p] + offsets[std::min(p + ahead, last)], bytes);
          copy_row(y + to, x + from, bytes);
        });
      }
      for_reads(frame, walk, offsets, [&](int64_t from, int64_t to, int64_t n, int64_t) {
        if (n == 1)
          y[to] = x[from];
        else
          for (int64_t i = 0; i < n; ++i) y[to + i * walk.step_b] = x[from + i * walk.step_a];
      });
    });
  });
}

// out[..., place, ...] = source[...], in the order of the places. REQUIRES: out holds self.
void add_write(Builder& b, const char* name, const Tensor& out, const Indexed& indexed, const Tensor& source) {
  const Walk walk = walk_of(indexed, source.layout);
  const Tensor offsets_at = b.scratch(LAZYT_DTYPE_INT64, {indexed.places.count()});
  auto reads = index_storages(indexed.places);
  reads.push_back(source.storage);
  reads.push_back(out.storage);
  with_bytes(out.element(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add(name, reads, {out.storage, offsets_at.storage}, [=, places = indexed.places](const Frame& frame) {
      find(frame, places, offsets_at);
      const T* x = frame.at<T>(source);
      T* y = frame.at<T>(out);
      for_writes(frame, walk, frame.at<int64_t>(offsets_at), [&](int64_t to, int64_t from, int64_t n) {
        if (n == 1)
          y[to] = x[from];
        else if (walk.step_a == 1 && walk.step_b == 1)
          copy_row(y + to, x + from, static_cast<size_t>(n) * sizeof(T));
        else if (walk.step_a == 1 && walk.step_b == 0)
          std::fill_n(y + to, n, x[from]);
        else
          for (int64_t i = 0; i < n; ++i) y[to + i * walk.step_a] = x[from + i * walk.step_b];
      });
    });
  });
}

template <class T>
T plus(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else
    return narrow<T>(static_cast<Compute<T>>(widen(a) + widen(b)));
}
template <class T>
T times(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a && b;
  else
    return narrow<T>(static_cast<Compute<T>>(widen(a) * widen(b)));
}

// out[..., place, ...] += alpha * source[...]. REQUIRES: out holds self.
void add_accumulate(Builder& b, const char* name, const Tensor& out, const Indexed& indexed, const Tensor& source, Number alpha) {
  const Walk walk = walk_of(indexed, source.layout);
  const Tensor offsets_at = b.scratch(LAZYT_DTYPE_INT64, {indexed.places.count()});
  auto reads = index_storages(indexed.places);
  reads.push_back(source.storage);
  reads.push_back(out.storage);
  with_real(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add(name, reads, {out.storage, offsets_at.storage}, [=, places = indexed.places](const Frame& frame) {
      find(frame, places, offsets_at);
      const T* x = frame.at<T>(source);
      T* y = frame.at<T>(out);
      using C = Compute<T>;
      const C scale = kIsFloat<T> ? static_cast<C>(frame.as_double(alpha)) : static_cast<C>(frame.as_int(alpha));
      const bool scaled = scale != C(1);
      for_writes(frame, walk, frame.at<int64_t>(offsets_at), [&](int64_t to, int64_t from, int64_t n) {
        T* __restrict o = y + to;
        const T* __restrict s = x + from;
        if (kIsFloat<T> && !scaled && walk.step_a == 1 && walk.step_b == 1) {
          if constexpr (kIsFloat<T>) rows().of<T>().add(o, s, n);
        } else if (!scaled && walk.step_a == 1 && walk.step_b == 1) {
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) o[i] = plus(o[i], s[i]);
        } else {
          for (int64_t i = 0; i < n; ++i) {
            T& element = o[i * walk.step_a];
            const T value = s[i * walk.step_b];
            element = plus(element, scaled ? times(value, narrow<T>(scale)) : value);
          }
        }
      });
    });
  });
}

// out[place] += source[place's number], rows of halves, each rounded once: what goes to one row is added up where it is in the
// first-level cache. REQUIRES: out and source are dense; out holds self.
void add_rows_to(Builder& b, const Tensor& out, const Places& places, const Tensor& source) {
  const int64_t rows_out = out.dims()[0], n = out.count() / rows_out, count = places.count();
  const Tensor offsets_at = b.scratch(LAZYT_DTYPE_INT64, {count}), next_at = b.scratch(LAZYT_DTYPE_INT64, {count}),
               first_at = b.scratch(LAZYT_DTYPE_INT64, {rows_out});
  auto reads = index_storages(places);
  reads.push_back(source.storage);
  reads.push_back(out.storage);
  with_floating(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("index_add rows", reads, {out.storage, offsets_at.storage, next_at.storage, first_at.storage}, [=](const Frame& frame) {
      find(frame, places, offsets_at);
      const int64_t* offsets = frame.at<int64_t>(offsets_at);
      int64_t *next = frame.at<int64_t>(next_at), *first = frame.at<int64_t>(first_at);
      std::fill_n(first, rows_out, int64_t{-1});
      for (int64_t p = count; p-- > 0;) next[p] = std::exchange(first[offsets[p] / n], p);  // a row's places in their order
      const T* from = frame.at<T>(source);
      T* to = frame.at<T>(out);
      const RowKernels<T>& kernels = rows().of<T>();
      parallel(frame, rows_out, count * n, [&](int64_t begin, int64_t end) {
        constexpr int64_t kRun = 1024;
        alignas(64) C sums[kRun];
        for (int64_t r = begin; r < end; ++r) {
          if (first[r] < 0) continue;
          for (int64_t j = 0; j < n; j += kRun) {
            const int64_t some = std::min(kRun, n - j);
            kernels.load(sums, to + r * n + j, some);
            for (int64_t p = first[r]; p >= 0; p = next[p]) kernels.add_scaled(sums, from + p * n + j, some, C(1));
            kernels.store(to + r * n + j, sums, some);
          }
        }
      });
    });
  });
}

void add_embedding_backward(Builder& b, const Tensor& grad, const Tensor& index, const Tensor& out, int64_t padding, bool by_frequency) {
  const int64_t places = index.count();
  const int64_t words = out.dims()[0], n = out.dims()[1];
  const Tensor counts = b.scratch(LAZYT_DTYPE_INT64, {by_frequency ? words : 0});
  with_floating(grad.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add("embedding_backward", {grad.storage, index.storage}, {out.storage, counts.storage}, [=](const Frame& frame) {
      const T* g = frame.at<T>(grad);
      const int64_t* at = frame.at<int64_t>(index);
      C* y = frame.at<C>(out);
      int64_t* seen = frame.at<int64_t>(counts);
      for (int64_t p = 0; p < places; ++p)
        if (at[p] != padding && (at[p] < 0 || at[p] >= words)) throw_bad_index(Message::kSelf, at[p], 0, words);
      if (by_frequency) {
        std::fill(seen, seen + words, int64_t{0});
        for (int64_t p = 0; p < places; ++p)
          if (at[p] != padding) ++seen[at[p]];
      }
      parallel(frame, words, words * n, [&](int64_t begin, int64_t end) { std::fill(y + begin * n, y + end * n, C(0)); });
      parallel(frame, n, places * n, [&](int64_t begin, int64_t end) {
        for (int64_t p = 0; p < places; ++p) {
          if (at[p] == padding) continue;
          const C scale = by_frequency ? C(1) / static_cast<C>(seen[at[p]]) : C(1);
          rows().of<T>().add_scaled(y + at[p] * n + begin, g + p * n + begin, end - begin, scale);
        }
      });
    });
  });
}

// ---- gather and scatter: index[i][j][k] replaces one of i, j, k

// The dims of the index are walked with the last one innermost: the index, a tensor beside it, and the tensor that it
// leads into, whose own stride along `dim` is `stride`.
struct Grid {
  Dims outer;
  std::array<Dims, 3> strides;  // index, beside, indexed
  int64_t n = 1, step_index = 0, step_beside = 0, step_into = 0;
  int64_t dim = 0, size = 1, stride = 1;
  bool along_last = true;
  bool is_dense = false;  // the index, so that its lines lie one behind the other
};
Grid grid_of(const Tensor& index, const Tensor& beside, const Tensor& into, int64_t dim) {
  Grid g;
  g.dim = dim;
  const size_t rank = index.dims().size();
  if (rank == 0) {
    if (!into.dims().empty()) g.size = into.dims()[0], g.stride = into.strides()[0];
    return g;
  }
  const auto d = static_cast<size_t>(dim);
  const bool scalar = into.dims().empty();
  if (!scalar) g.size = into.dims()[d], g.stride = into.strides()[d];
  auto stride_of = [](const Tensor& t, size_t i) { return t.dims().empty() ? 0 : t.strides()[i]; };
  for (size_t i = 0; i < rank; ++i) {
    const int64_t own = i == d ? 0 : stride_of(into, i);
    if (i + 1 == rank) {
      g.n = index.dims()[i];
      g.step_index = index.strides()[i];
      g.step_beside = stride_of(beside, i);
      g.step_into = own;
    } else {
      g.outer.push_back(index.dims()[i]);
      g.strides[0].push_back(index.strides()[i]);
      g.strides[1].push_back(stride_of(beside, i));
      g.strides[2].push_back(own);
    }
  }
  g.along_last = d + 1 == rank;
  g.is_dense = index.layout.is_dense();
  return g;
}
// Whether one of n places is not in [0, size).
LAZYT_CLONES bool any_outside(const int64_t* in, int64_t n, int64_t size) {
  uint64_t signs = 0;
  const auto last = static_cast<uint64_t>(size - 1);
#pragma omp simd reduction(| : signs)
  for (int64_t j = 0; j < n; ++j) signs |= static_cast<uint64_t>(in[j]) | (last - static_cast<uint64_t>(in[j]));
  return static_cast<int64_t>(signs) < 0;
}
// f(offset beside, offset into) for each place. Threads share the outer loops where a run of the last dim stays
// apart from others (or `reads`), and else each takes a part of the last dim. A line with a place outside is left out, and
// throws in the end.
template <class F>
void for_grid(const Frame& frame, const Grid& g, const int64_t* index, bool reads, F f) {
  const int64_t outer = toolkit::count_of(g.outer), work = outer * g.n * 4;
  const bool dense = g.step_index == 1 && g.step_beside == 1;
  std::atomic<bool> bad{false};
  std::atomic<int64_t> which{0};
  auto outside = [&](const int64_t* in, int64_t n) {
    if (g.step_index == 1 && !any_outside(in, n, g.size)) return false;
    for (int64_t j = 0; j < n; ++j) {
      const int64_t place = in[j * g.step_index];
      if (place >= 0 && place < g.size) continue;
      which = place, bad = true;
      return true;
    }
    return false;
  };
  // Copies, which what f writes cannot change: bytes may lie over anything.
  auto part = [&](int64_t begin, int64_t end, int64_t first, int64_t last) {
    if (first == last) return;
    const F own = f;
    const int64_t si = g.step_index, sb = g.step_beside, st = g.step_into, sd = g.stride;
    Odometer<3> at(g.outer, {&g.strides[0], &g.strides[1], &g.strides[2]}, begin);
    constexpr int64_t kTogether = 1024;  // places of short lines that are looked at together
    const int64_t group = g.is_dense && last - first == g.n ? std::max<int64_t>(1, kTogether / g.n) : 1;
    int64_t inside = begin;  // lines before it have no place outside
    for (int64_t i = begin; i < end; ++i, at.next()) {
      const int64_t beside = at.offsets[1], into = at.offsets[2];
      const int64_t* in = index + at.offsets[0];
      if (i >= inside) {
        const int64_t lines = std::min(group, end - i);
        if (lines > 1 && !any_outside(in, lines * g.n, g.size))
          inside = i + lines;
        else if (outside(in + first * si, last - first))
          continue;
      }
      if (dense && st == 0 && sd == 1)
        for (int64_t j = first; j < last; ++j) own(beside + j, into + in[j]);
      else if (dense)
        for (int64_t j = first; j < last; ++j) own(beside + j, into + j * st + in[j] * sd);
      else
        for (int64_t j = first; j < last; ++j) own(beside + j * sb, into + j * st + in[j * si] * sd);
    }
  };
  if (outer == 0) return;
  if (reads || g.along_last)
    parallel(frame, outer, work, [&](int64_t begin, int64_t end) { part(begin, end, 0, g.n); });
  else
    parallel(frame, g.n, work, [&](int64_t begin, int64_t end) { part(0, outer, begin, end); });
  if (bad) throw_bad_index(Message::kBounds, which, g.dim, g.size);
}

void add_gather(Builder& b, const Tensor& self, const Tensor& index, const Tensor& out, int64_t dim) {
  const Grid grid = grid_of(index, out, self, dim);
  with_bytes(self.element(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add("gather", {self.storage, index.storage}, {out.storage}, [=](const Frame& frame) {
      const int64_t* at = frame.at<int64_t>(index);
      const T* x = frame.at<T>(self);
      T* y = frame.at<T>(out);
      for_grid(frame, grid, at, true, [=](int64_t to, int64_t from) { y[to] = x[from]; });
    });
  });
}

// Of scatter_reduce: what an element starts from that is not to take part itself.
template <class T>
T identity(Reduce reduce) {
  using C = Compute<T>;
  using L = std::numeric_limits<C>;
  switch (reduce) {
    case Reduce::kProd: return narrow<T>(C(1));
    case Reduce::kMax: return narrow<T>(kIsFloat<T> ? -L::infinity() : L::lowest());
    case Reduce::kMin: return narrow<T>(kIsFloat<T> ? L::infinity() : L::max());
    default: return narrow<T>(C(0));
  }
}

void add_scatter(Builder& b, const char* name, const Tensor& out, const Tensor& index, const Tensor& source, int64_t dim,
                 Reduce reduce, bool include_self) {
  const Grid grid = grid_of(index, source, out, dim);
  std::vector<StorageId> reads = {index.storage, source.storage, out.storage};
  if (reduce == Reduce::kNone) {
    with_bytes(out.element(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      b.add(name, reads, {out.storage}, [=](const Frame& frame) {
        const int64_t* at = frame.at<int64_t>(index);
        const T* x = frame.at<T>(source);
        T* y = frame.at<T>(out);
          for_grid(frame, grid, at, false, [=](int64_t from, int64_t to) { y[to] = x[from]; });
      });
    });
    return;
  }
  // Counts lie as `out` does, which is dense.
  const Tensor counts = b.scratch(LAZYT_DTYPE_INT64, {reduce == Reduce::kMean ? out.count() : 0});
  with_real(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    b.add(name, reads, {out.storage, counts.storage}, [=](const Frame& frame) {
      const int64_t* at = frame.at<int64_t>(index);
      const T* x = frame.at<T>(source);
      T* y = frame.at<T>(out);
      int64_t* seen = frame.at<int64_t>(counts);
      if (!include_self) for_grid(frame, grid, at, false, [&](int64_t, int64_t to) { y[to] = identity<T>(reduce); });
      if (reduce == Reduce::kMean) {
        std::fill(seen, seen + out.count(), int64_t{include_self});
        for_grid(frame, grid, at, false, [&](int64_t, int64_t to) { ++seen[to]; });
      }
      auto join = [&](auto f) { for_grid(frame, grid, at, false, [=](int64_t from, int64_t to) { y[to] = f(y[to], x[from]); }); };
      switch (reduce) {
        case Reduce::kProd: join([](T a, T b) { return times(a, b); }); break;
        case Reduce::kMax: join([](T a, T b) { return beats<true>(widen(b), widen(a)) ? b : a; }); break;
        case Reduce::kMin: join([](T a, T b) { return beats<false>(widen(b), widen(a)) ? b : a; }); break;
        default: join([](T a, T b) { return plus(a, b); });
      }
      if (reduce != Reduce::kMean) return;
      for (int64_t i = 0; i < out.count(); ++i) {
        if constexpr (kIsFloat<T>) {
          y[i] = narrow<T>(widen(y[i]) / static_cast<C>(std::max<int64_t>(seen[i], 1)));
        } else {  // rounded down
          if (seen[i] <= 1) continue;
          const auto total = static_cast<int64_t>(y[i]);
          y[i] = static_cast<T>(total / seen[i] - (total % seen[i] < 0));
        }
      }
    });
  });
}

// ---- masks

// REQUIRES: out holds self; mask and source are dense.
void add_masked_scatter(Builder& b, const Tensor& mask, const Tensor& source, const Tensor& out) {
  with_bytes(out.element(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add("masked_scatter", {mask.storage, source.storage, out.storage}, {out.storage}, [=](const Frame& frame) {
      const bool* m = frame.at<bool>(mask);
      const T* x = frame.at<T>(source);
      T* y = frame.at<T>(out);
      const int64_t count = out.count();
      if (std::count(m, m + count, true) > source.count())
        throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, "masked_scatter: expected the number of elements of source to be at least the number of ones in mask");
      for (int64_t i = 0; i < count; ++i) {  // without a branch: masks are not foreseen
        const T* from = m[i] ? x : y + i;
        y[i] = *from;
        x += m[i];
      }
    });
  });
}

// ---- searching

// Searches that go on side by side, because each waits for memory at every step; all halve the same number of elements.
constexpr int64_t kSearches = 8;

template <class T, class At>
void search(int64_t* out, const T* values, int64_t some, int64_t n, bool right, At at) {
  int64_t low[kSearches] = {};
  Compute<T> wanted[kSearches] = {};
  for (int64_t k = 0; k < some; ++k) wanted[k] = widen(values[k]);
  auto halve = [&](int64_t half, auto is_right) {
    for (int64_t k = 0; k < kSearches; ++k) {
      const auto x = at(low[k] + half - 1);
      low[k] += (is_right ? !(x > wanted[k]) : !(x >= wanted[k])) ? half : 0;
    }
  };
  auto all = [&](auto is_right) {
    int64_t left = n;
    for (; left > 1; left -= left / 2) halve(left / 2, is_right);
    if (left == 1) halve(1, is_right);
  };
  if (right)
    all(std::true_type{});
  else
    all(std::false_type{});
  std::copy(low, low + some, out);
}

void add_search(Builder& b, const Tensor& sequence, const Tensor& values, const Tensor* sorter, bool right, const Tensor& out) {
  const bool shared = sequence.dims().size() <= 1;  // one sequence for all values
  const int64_t n = sequence.dims().empty() ? 1 : sequence.dims().back();
  const int64_t each = shared ? std::max<int64_t>(values.count(), 1) : values.dims().back();
  const bool sorted_by = sorter != nullptr;
  const Tensor order = sorted_by ? *sorter : sequence;
  with_real(sequence.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    b.add("searchsorted", {sequence.storage, values.storage, order.storage}, {out.storage}, [=](const Frame& frame) {
      const T *s = frame.at<T>(sequence), *v = frame.at<T>(values);
      const int64_t* o = sorted_by ? frame.at<int64_t>(order) : nullptr;
      int64_t* y = frame.at<int64_t>(out);
      const int64_t count = values.count();
      parallel(frame, count, count * 32, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin, some; i < end; i += some) {
          const int64_t base = i / each * n;
          some = std::min({kSearches, end - i, each - i % each});
          if (o)
            search<T>(y + i, v + i, some, n, right, [=](int64_t j) { return widen(s[base + o[base + j]]); });
          else
            search<T>(y + i, v + i, some, n, right, [=](int64_t j) { return widen(s[base + j]); });
        }
      });
    });
  });
}

struct Kernels {
  static constexpr bool kSumsInMemory = true;

  static void read(Builder& b, const char* name, const Tensor& self, const Indexed& indexed, const Tensor& out) {
    add_read(b, name, self, indexed, out);
  }
  static void write(Builder& b, const char* name, const Tensor& self, const Tensor& out, const Indexed& indexed, const Tensor& source) {
    b.copy(self, out);
    add_write(b, name, out, indexed, source);
  }
  static void accumulate(Builder& b, const char* name, const Tensor& self, const Tensor& out, const Indexed& indexed,
                         const Tensor& source, const Number& alpha) {
    b.copy(self, out);
    add_accumulate(b, name, out, indexed, source, alpha);
  }
  static void add_rows(Builder& b, const Tensor& self, const Tensor& out, const Places& places, const Tensor& source) {
    b.copy(self, out);
    add_rows_to(b, out, places, source);
  }
  static void gather(Builder& b, const Tensor& self, const Tensor& index, const Tensor& out, int64_t dim) {
    add_gather(b, self, index, out, dim);
  }
  static void scatter(Builder& b, const char* name, const Tensor& self, const Tensor& out, const Tensor& index,
                      const Tensor& source, int64_t dim, Reduce reduce, bool include_self) {
    if (const lazyt_dtype_t dtype = compute_dtype(out.dtype); reduce != Reduce::kNone && dtype != out.dtype) {  // rounded once
      const Tensor wide = b.scratch(dtype, out.dims());
      b.copy(self, wide);
      add_scatter(b, name, wide, index, dense_as(b, source, dtype), dim, reduce, include_self);
      return b.copy(wide, out);
    }
    b.copy(self, out);
    add_scatter(b, name, out, index, source, dim, reduce, include_self);
  }
  static void embedding_backward(Builder& b, const Tensor& grad, const Tensor& index, const Tensor& out, int64_t padding,
                                 bool by_frequency) {
    add_embedding_backward(b, grad, index, out, padding, by_frequency);
  }
  static void masked_scatter(Builder& b, const Tensor& self, const Tensor& mask, const Tensor& source, const Tensor& out) {
    b.copy(self, out);
    add_masked_scatter(b, b.dense(mask), source, out);
  }
  static void search(Builder& b, const Tensor& sequence, const Tensor& values, const Tensor* sorter, bool right, const Tensor& out) {
    add_search(b, sequence, values, sorter, right, out);
  }
};

}  // namespace

void register_index(Operators& all) { toolkit::add_indexing<Kernels>(all); }

}  // namespace lazyt::onednn
