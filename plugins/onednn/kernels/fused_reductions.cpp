// How a FusedStep reduces rows and columns.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "fused.h"
#include "fused_step.h"
#include "team.h"

namespace lazyt::onednn {

using vm::kBlock;

namespace {

// So many columns are reduced at once.
constexpr int64_t kColumns = 4096;
// Of columns as they lie: rows of fewer elements fill no vector; so many elements of short rows are taken together.
constexpr int64_t kNarrow = 16, kTogether = 128;

}  // namespace

void FusedStep::finish(const Reduction& r, Total total, std::byte* out) const {
  double d = r.f.floating ? total.d : static_cast<double>(total.i);
  const bool plain_int = !r.f.floating && r.divisor == 1 && !r.root;
  if (r.divisor != 1) d /= r.divisor;
  if (r.root) d = std::sqrt(d);
  switch (r.dtype) {
    case LAZYT_DTYPE_FLOAT32:
      *reinterpret_cast<float*>(out) = static_cast<float>(d);
      break;
    case LAZYT_DTYPE_FLOAT64:
      *reinterpret_cast<double*>(out) = d;
      break;
    case LAZYT_DTYPE_FLOAT16:
    case LAZYT_DTYPE_BFLOAT16: {
      const float f = static_cast<float>(d);
      storer(r.dtype)(out, &f, 1);
      break;
    }
    default: {
      const int64_t i = plain_int ? total.i : static_cast<int64_t>(d);
      switch (lazyt_dtype_size(r.dtype)) {
        case 1:
          *reinterpret_cast<int8_t*>(out) =
              r.dtype == LAZYT_DTYPE_BOOL ? i != 0 : static_cast<int8_t>(i);
          break;
        case 2:
          *reinterpret_cast<int16_t*>(out) = static_cast<int16_t>(i);
          break;
        case 4:
          *reinterpret_cast<int32_t*>(out) = static_cast<int32_t>(i);
          break;
        default:
          *reinterpret_cast<int64_t*>(out) = i;
      }
    }
  }
}

int64_t FusedStep::place(const Reduction& r, size_t first, size_t last, int64_t k) const {
  int64_t offset = 0;
  for (size_t d = last; d-- > first;) {
    offset += (k % loops_[d]) * r.strides[d];
    k /= loops_[d];
  }
  return offset;
}

int64_t FusedStep::product(size_t first, size_t last) const {
  int64_t n = 1;
  for (size_t d = first; d < last; ++d) n *= loops_[d];
  return n;
}

void FusedStep::run_reductions(const Frame& frame, std::atomic<bool>& by_zero) const {
  const int64_t outer = product(0, first_), length = product(first_, last_),
                inner = product(last_, loops_.size());
  if (outer == 0 || inner == 0) return;
  if (inner == 1) {
    rows(frame, by_zero, outer, length);
  } else if (columns_) {
    columns_as_they_lie(frame, outer, length, inner);
  } else {
    columns(frame, by_zero, outer, length, inner);
  }
}

void FusedStep::row(const Frame& frame, Block& b, int64_t at, int64_t n, Total* totals) const {
  for (int64_t done = 0; done < n; done += reduced_at_once_) {
    const int count = static_cast<int>(std::min(reduced_at_once_, n - done));
    block(frame, b, at + done, count);
    for (size_t k = 0; k < reductions_.size(); ++k)
      reductions_[k].f.row(totals[k], b.slot[reductions_[k].slot], count);
  }
}

void FusedStep::rows(const Frame& frame, std::atomic<bool>& by_zero, int64_t outer, int64_t length) const {
  const size_t count = reductions_.size();
  const int threads = threads_for(frame, outer * length);
  const int64_t pieces = (length + kPiece - 1) / kPiece;
  if (pieces > 1) {  // few long rows: their pieces are shared out
    auto* totals = reinterpret_cast<Total*>(frame.storages[partials_]);
    for_each(threads, outer * pieces, [&](int64_t p) {
      Block b(by_zero);
      begin(frame, b, kBlock);
      Total* mine = totals + p * static_cast<int64_t>(count);
      for (size_t k = 0; k < count; ++k) mine[k] = reductions_[k].f.start;
      const int64_t from = p % pieces * kPiece;
      row(frame, b, p / pieces * length + from, std::min(kPiece, length - from), mine);
    });
    for (int64_t o = 0; o < outer; ++o) {
      for (size_t k = 0; k < count; ++k) {
        Total total = reductions_[k].f.start;
        for (int64_t p = 0; p < pieces; ++p)
          reductions_[k].f.combine(
              &total, totals + (o * pieces + p) * static_cast<int64_t>(count) + static_cast<int64_t>(k), 1);
        put(frame, reductions_[k], place(reductions_[k], 0, first_, o), total);
      }
    }
    return;
  }
  // Short rows share a block, and where nothing is brought in for them longer ones, too: what is done between two rows keeps the
  // CPU from asking for the next.
  constexpr int64_t kRows = 32;
  const int64_t room = reduced_at_once_ > kBlock ? std::min(kPiece, kRows * length) : kBlock;
  const int64_t share = (outer + threads - 1) / threads;
  const int64_t together = length > 0 && length <= room && !own_rows_ ? std::min(room / length, share) : 1;
  const int64_t groups = (outer + together - 1) / together;
  auto part = [&](int64_t first, int64_t last) {
    Block b(by_zero);
    begin(frame, b, kBlock);
    Total totals[std::max<int64_t>(kRows, FusedKernel::kMaxReductions)];
    for (int64_t g = first; g < last; ++g) {
      const int64_t o = g * together, rows_here = std::min(together, outer - o);
      if (together > 1) {
        block(frame, b, o * length, static_cast<int>(rows_here * length));
        for (size_t k = 0; k < count; ++k) {
          const Reduction& r = reductions_[k];
          for (int64_t i = 0; i < rows_here; i += kRows) {
            const int64_t n = std::min(kRows, rows_here - i);
            std::fill(totals, totals + n, r.f.start);
            r.f.rows(totals, static_cast<std::byte*>(b.slot[r.slot]) + i * length * r.element, static_cast<int>(n), static_cast<int>(length));
            if (first_ == 1) put(frame, r, (o + i) * r.strides[0], r.strides[0], totals, n);
            else for (int64_t j = 0; j < n; ++j) put(frame, r, place(r, 0, first_, o + i + j), totals[j]);
          }
        }
        continue;
      }
      for (size_t k = 0; k < count; ++k) totals[k] = reductions_[k].f.start;
      row(frame, b, o * length, length, totals);
      for (size_t k = 0; k < count; ++k)
        put(frame, reductions_[k], place(reductions_[k], 0, first_, o), totals[k]);
    }
  };
  in_parts(threads, groups, part);
}

void FusedStep::columns(const Frame& frame, std::atomic<bool>& by_zero, int64_t outer, int64_t length, int64_t inner) const {
  const size_t count = reductions_.size();
  // Where all are sums of f32, as many columns as their sums in f32 have room for; a row is walked by blocks.
  const bool in_f32 = count <= kColumns / kBlock && std::all_of(reductions_.begin(), reductions_.end(), [](auto& r) { return r.in_f32; });
  const int64_t at_once = in_f32 ? kColumns / kBlock / static_cast<int64_t>(count) * kBlock : kBlock;
  const int64_t strips = (inner + at_once - 1) / at_once;
  // Narrow rows share a block, each of whose elements has a total of its own, to be joined at the end.
  const int64_t together = std::clamp<int64_t>(length / 16, 1, std::max<int64_t>(1, kBlock / inner));
  const Portions portions(length, inner);
  const int threads = threads_for(frame, outer * length * inner);
  in_parts(threads, outer * portions.count * strips, [&](int64_t from_piece, int64_t to_piece) {
    Block b(by_zero);
    begin(frame, b, kBlock);
    alignas(64) float sums[kColumns];
    alignas(64) Total shared[FusedKernel::kMaxReductions * kBlock];
    for (int64_t w = from_piece; w < to_piece; ++w) {
      const int64_t strip = w % strips, p = w / strips % portions.count, o = w / strips / portions.count;
      const int64_t column = strip * at_once, first = p * portions.rows;
      const int64_t rows = std::min(length, first + portions.rows) - first;
      const int64_t start = (o * length + first) * inner + column, n = std::min(at_once, inner - column);
      const int lanes = static_cast<int>(together * n);
      auto totals = [&](size_t k) { return together > 1 ? shared + k * kBlock : partial(frame, portions, inner, o, p, k) + column; };
      auto sums_of = [&](size_t k) { return sums + static_cast<int64_t>(k) * at_once; };
      auto flush = [&] {
        for (size_t k = 0; k < count && in_f32; ++k) {
          reductions_[k].f.columns(totals(k), sums_of(k), lanes);
          std::fill_n(sums_of(k), lanes, 0.0f);
        }
      };
      for (size_t k = 0; k < count; ++k) {
        std::fill_n(totals(k), lanes, reductions_[k].f.start);
        if (in_f32) std::fill_n(sums_of(k), lanes, 0.0f);
      }
      // By blocks along memory; rows of a strip among others have their own.
      int64_t left = rows * n, r = 0, c = 0;
      while (left > 0) {
        const auto m = static_cast<int>(std::min<int64_t>(kBlock, strips == 1 ? left : n - c));
        block(frame, b, start + r * together * inner + c, m);
        left -= m;
        for (int done = 0; done < m;) {
          const auto part = static_cast<int>(std::min<int64_t>(m - done, lanes - c));
          for (size_t k = 0; k < count; ++k) {
            const Reduction& red = reductions_[k];
            const std::byte* in = static_cast<std::byte*>(b.slot[red.slot]) + int64_t{done} * red.element;
            if (in_f32) {
              vm::table().add_columns(sums_of(k) + c, in, part);
            } else {
              red.f.columns(totals(k) + c, in, part);
            }
          }
          done += part, c += part;
          if (c < lanes) continue;
          c = 0;
          if (++r % vm::kRowsInF32 == 0) flush();
        }
      }
      flush();
      for (size_t k = 0; k < count && together > 1; ++k) {
        Total* joined = partial(frame, portions, inner, o, p, k);
        std::fill_n(joined, inner, reductions_[k].f.start);
        for (int64_t j = 0; j < together; ++j) reductions_[k].f.combine(joined, totals(k) + j * inner, inner);
      }
    }
  });
  put_portions(frame, portions, outer, inner);
}

void FusedStep::columns_as_they_lie(const Frame& frame, int64_t outer, int64_t length, int64_t inner) const {
  const Load& load = loads_[0];
  const Reduction& red = reductions_[0];
  const int64_t row = load.linear ? inner : load.strides[first_], image = load.linear ? length * inner : first_ ? load.strides[0] : 0;
  auto at = [&](int64_t o, int64_t r, int64_t column) { return frame.at<std::byte>(load.place) + (o * image + r * row + column) * load.size; };
  const int64_t strips = (inner + kColumns - 1) / kColumns;
  const int threads = threads_for(frame, outer * length * inner);
  const bool one_loop = last_ + 1 == loops_.size();
  if (length <= vm::kMostInF32 && inner >= kNarrow && one_loop) {
    in_parts(threads, outer * strips, [&](int64_t from_piece, int64_t to_piece) {
      alignas(64) float found[kColumns];
      for (int64_t w = from_piece; w < to_piece; ++w) {
        const int64_t o = w / strips, column = w % strips * kColumns, n = std::min(kColumns, inner - column);
        columns_(found, at(o, 0, column), row, length, static_cast<int>(n));
        put(frame, red, place(red, 0, first_, o) + column * red.strides[last_], red.strides[last_], found, n);
      }
    });
    return;
  }
  // Narrow rows are taken some together, which are joined at the end.
  const int64_t together = load.linear ? std::clamp<int64_t>(length / 16, 1, std::max<int64_t>(1, kTogether / inner)) : 1;
  const Portions portions(length, inner);
  in_parts(threads, outer * portions.count * strips, [&](int64_t from_piece, int64_t to_piece) {
    alignas(64) float found[kColumns];
    alignas(64) Total shared[kTogether];
    for (int64_t w = from_piece; w < to_piece; ++w) {
      const int64_t strip = w % strips, p = w / strips % portions.count, o = w / strips / portions.count;
      const int64_t column = strip * kColumns, first = p * portions.rows, n = std::min(kColumns, inner - column);
      const int64_t rows = std::min(length, first + portions.rows) - first, whole = rows / together;
      Total* joined = partial(frame, portions, inner, o, p, 0) + column;
      Total* totals = together > 1 ? shared : joined;
      auto join = [&](int64_t r, int64_t count, int64_t lanes) {
        columns_(found, at(o, first + r * together, column), together * row, count, static_cast<int>(lanes));
        red.f.columns(totals, found, static_cast<int>(lanes));
      };
      std::fill_n(totals, together * n, red.f.start);
      for (int64_t r = 0; r < whole; r += vm::kMostInF32) join(r, std::min(vm::kMostInF32, whole - r), together * n);
      if (const int64_t rest = rows % together) join(whole, 1, rest * n);
      if (together == 1) continue;
      std::fill_n(joined, n, red.f.start);
      for (int64_t j = 0; j < together; ++j) red.f.combine(joined, shared + j * n, static_cast<int>(n));
    }
  });
  put_portions(frame, portions, outer, inner);
}

Total* FusedStep::partial(const Frame& frame, const Portions& portions, int64_t inner, int64_t o, int64_t p, size_t k) const {
  return reinterpret_cast<Total*>(frame.storages[partials_]) + ((o * portions.count + p) * static_cast<int64_t>(reductions_.size()) + static_cast<int64_t>(k)) * inner;
}

void FusedStep::put_portions(const Frame& frame, const Portions& portions, int64_t outer, int64_t inner) const {
  const bool one_loop = last_ + 1 == loops_.size();
  for (int64_t o = 0; o < outer; ++o) {
    for (size_t k = 0; k < reductions_.size(); ++k) {
      const Reduction& r = reductions_[k];
      const int64_t start = place(r, 0, first_, o);
      Total* totals = partial(frame, portions, inner, o, 0, k);
      for (int64_t p = 1; p < portions.count; ++p) r.f.combine(totals, partial(frame, portions, inner, o, p, k), static_cast<int>(inner));
      if (one_loop) put(frame, r, start, r.strides[last_], totals, inner);
      else for (int64_t c = 0; c < inner; ++c) put(frame, r, start + place(r, last_, loops_.size(), c), totals[c]);
    }
  }
}

void FusedStep::put(const Frame& frame, const Reduction& r, int64_t offset, Total total) const {
  finish(r, total, frame.at<std::byte>(r.place) + offset * static_cast<int64_t>(lazyt_dtype_size(r.dtype)));
}

template <class T>
void FusedStep::put(const Frame& frame, const Reduction& r, int64_t offset, int64_t stride, const T* totals, int64_t n) const {
  constexpr bool in_f32 = std::is_same_v<T, float>;
  auto total = [](T t) {
    if constexpr (in_f32) return Total{.d = t};
    else return t;
  };
  if (r.dtype == LAZYT_DTYPE_FLOAT32 && r.f.floating && !r.root) {
    float* out = frame.at<float>(r.place) + offset;
    if (in_f32 && r.divisor == 1 && stride == 1) std::memcpy(out, totals, static_cast<size_t>(n) * sizeof(float));
    else for (int64_t i = 0; i < n; ++i) out[i * stride] = static_cast<float>(total(totals[i]).d / r.divisor);
  } else if (r.dtype == LAZYT_DTYPE_INT64 && !r.f.floating && r.divisor == 1 && !r.root) {
    int64_t* out = frame.at<int64_t>(r.place) + offset;
    for (int64_t i = 0; i < n; ++i) out[i * stride] = total(totals[i]).i;
  } else if (is_half(r.dtype) && stride == 1 && r.f.floating && !r.root) {
    float wide[kBlock];
    for (int64_t i = 0, some; i < n; i += some) {
      some = std::min<int64_t>(kBlock, n - i);
      for (int64_t j = 0; j < some; ++j) wide[j] = static_cast<float>(total(totals[i + j]).d / r.divisor);
      storer(r.dtype)(frame.at<std::byte>(r.place) + (offset + i) * 2, wide, static_cast<int>(some));
    }
  } else {
    for (int64_t i = 0; i < n; ++i) put(frame, r, offset + i * stride, total(totals[i]));
  }
}

}  // namespace lazyt::onednn
