#include "packed_gemm.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "products.h"
#include "team.h"

namespace lazyt::onednn {
namespace {

// A block of the left operand stays in the second-level cache, a panel of the right one in the first.
constexpr int64_t kRows = 24 * kStrip, kDepth = 256, kBlockColumns = 1024;
// Up to so many rows the right operand is read where it lies, if its rows are contiguous: each of its elements is met once or twice.
constexpr int64_t kFewRows = 2 * kStrip;
constexpr int64_t kWays = 8;      // lines that the first-level cache holds however many bytes they lie apart
constexpr int64_t kTogether = 4;  // panels that are packed at once: their rows are longer

int64_t rounded(int64_t n, int64_t size) { return pieces(n, size) * size; }
// The size of pieces, about as large as each other and none above `most`, that n is cut into.
int64_t piece(int64_t n, int64_t most) { return pieces(n, std::max<int64_t>(1, pieces(n, most))); }

// Rows of the next strip of so many: what would leave one or two, whose sums wait for each other, shares its rows with them.
int64_t next_strip(int64_t left) { return left <= kStrip ? left : left <= kStrip + 2 ? (left + 1) / 2 : kStrip; }

struct Shape {
  int64_t depth, columns;  // of a block of the right operand
  int64_t left, right;     // elements of the packed blocks

  Shape(int64_t n, int64_t k)
      : depth(piece(k, kDepth)),
        columns(std::min(kBlockColumns, rounded(n, products().strip.columns))),
        left(rounded(kRows * depth + kStripSlack, 16)),
        right(rounded(columns * depth, 16)) {}
};

// `some` columns to panels, depth * columns elements each, one after the other; what the last lacks is zeros.
void pack_panels(const Matrix& b, const float* from, int64_t depth, int64_t some, float* to) {
  const int64_t columns = products().strip.columns;
  const auto panel = [&](int64_t j) { return to + j * depth; };
  if (const int64_t last = some / columns * columns; last < some) std::fill_n(panel(last), depth * columns, 0.0f);
  if (b.column_stride != 1) {
    for (int64_t j = 0; j < some; j += columns) transpose(panel(j), columns, from + j * b.column_stride, b.column_stride, std::min(columns, some - j), depth);
    return;
  }
  for (int64_t p = 0; p < depth; ++p) {
    const float* row = from + p * b.row_stride;
    for (int64_t j = 0; j < some; j += columns) {
      float* x = panel(j) + p * columns;
      if (columns == 16 && j + 16 <= some)
        std::memcpy(x, row + j, 16 * sizeof(float));
      else
        std::copy_n(row + j, std::min(columns, some - j), x);
    }
  }
}

void pack_strips(const Matrix& a, const float* from, int64_t some, int64_t depth, float* to) {
  const auto each_strip = [some](auto&& f) {
    for (int64_t i = 0, count; i < some; i += count) f(i, count = next_strip(some - i));
  };
  if (a.column_stride == 1) {
    each_strip([&](int64_t i, int64_t count) { products().strip.pack(to + i * depth, from + i * a.row_stride, a.row_stride, static_cast<int>(count), depth); });
    return;
  }
  for (int64_t p = 0; p < depth; p += kWays)
    each_strip([&](int64_t i, int64_t count) {
      products().strip.pack_turned(to + i * depth + p * count, from + i + p * a.column_stride, a.column_stride, static_cast<int>(count), std::min(kWays, depth - p));
    });
}

// f(a block's first column and row, width and depth, where it lies among packed ones) for each block of a right operand.
template <class F>
void each_block(const Shape& shape, int64_t n, int64_t k, F&& f) {
  for (int64_t n0 = 0; n0 < n; n0 += shape.columns) {
    const int64_t width = std::min(shape.columns, n - n0);
    for (int64_t k0 = 0; k0 < k; k0 += shape.depth) f(n0, k0, width, std::min(shape.depth, k - k0), n0 * k + k0 * rounded(width, products().strip.columns));
  }
}

// One product of the batch, by a team. packed: null, or all of b as pack_right() writes it. scratch: the right block, then each thread's left one.
void multiply(const Gemm& g, int64_t batch, const float* packed, const Team& team, float* scratch) {
  const auto at = [batch](const Matrix& m, int64_t row, int64_t column) {
    return static_cast<const float*>(m.data) + batch * m.batch_stride + row * m.row_stride + column * m.column_stride;
  };
  const Strip& strip = products().strip;
  const Shape shape(g.n, g.k);
  float* const c = static_cast<float*>(g.c) + batch * g.m * g.n;
  float* const left = scratch + shape.right + team.rank * shape.left;
  const auto alpha = static_cast<float>(g.alpha), beta = static_cast<float>(g.beta);
  const bool begun = g.beta != 0, as_it_lies = !packed && g.m <= kFewRows && g.b.column_stride == 1;
  // Blocks of rows for every thread, or, of few rows, pieces of the columns.
  const int64_t height = rounded(piece(g.m, std::min(kRows, std::max<int64_t>(kStrip, rounded(pieces(g.m, team.size), kStrip)))), kStrip);
  const int64_t blocks = pieces(g.m, height), shares = blocks < team.size ? pieces(team.size, blocks) : 1;
  each_block(shape, g.n, g.k, [&](int64_t n0, int64_t k0, int64_t width, int64_t depth, int64_t place) {
    const int64_t panels = pieces(width, strip.columns);
    const float* const right = packed ? packed + place : scratch;
    const auto is_packed = [&](int64_t j) { return !as_it_lies || (j + 1) * strip.columns > width; };
    if (!packed) {
      const int64_t together = as_it_lies ? 1 : kTogether;
      for (int64_t j = team.rank * together; j < panels; j += team.size * together) {
        const int64_t column = j * strip.columns;
        if (is_packed(j)) pack_panels(g.b, at(g.b, k0, n0 + column), depth, std::min<int64_t>(together * strip.columns, width - column), scratch + column * depth);
      }
      team.wait();
    }
    for (int64_t t = team.rank; t < blocks * shares; t += team.size) {
      const int64_t i0 = t / shares * height, some = std::min(height, g.m - i0), share = t % shares;
      const int64_t first = panels * share / shares, last = panels * (share + 1) / shares;
      if (first == last) continue;
      pack_strips(g.a, at(g.a, i0, k0), some, depth, left);
      if (begun && k0 == 0)
        begin_block(g, beta, at(g.addend, i0, n0 + first * strip.columns), c + i0 * g.n + n0 + first * strip.columns, some,
                    std::min(width, last * strip.columns) - first * strip.columns);
      const bool accumulate = begun || k0 > 0;
      for (int64_t j = first; j < last; ++j) {
        const int64_t column = j * strip.columns, some_columns = std::min<int64_t>(strip.columns, width - column);
        const float* b = is_packed(j) ? right + column * depth : at(g.b, k0, n0 + column);
        const int64_t b_step = is_packed(j) ? strip.columns : g.b.row_stride;
        for (int64_t i = 0, count; i < some; i += count) {
          count = next_strip(some - i);
          float* out = c + (i0 + i) * g.n + n0 + column;
          if (some_columns == strip.columns) {
            strip.multiply(static_cast<int>(count), depth, alpha, left + i * depth, b, b_step, out, g.n, accumulate);
            continue;
          }
          alignas(64) float edge[kStrip * 2 * 64 / sizeof(float)];
          strip.multiply(static_cast<int>(count), depth, alpha, left + i * depth, b, b_step, edge, strip.columns, false);
          for (int64_t r = 0; r < count; ++r)
            for (int64_t q = 0; q < some_columns; ++q)
              out[r * g.n + q] = edge[r * strip.columns + q] + (accumulate ? out[r * g.n + q] : 0.0f);
        }
      }
    }
    if (!packed) team.wait();  // for what the next packs over
  });
}

}  // namespace

bool has_packed_gemm() {
#ifdef __x86_64__
  return vm::table().name != std::string_view("avx512");
#else
  return false;
#endif
}

size_t packed_scratch(int64_t batch, int64_t n, int64_t k, int threads) {
  const Shape shape(n, k);
  const int64_t alone = std::min<int64_t>(batch, threads) * (shape.right + shape.left), together = shape.right + threads * shape.left;
  return static_cast<size_t>(std::max(alone, together)) * sizeof(float);
}

int64_t packed_right_size(int64_t n, int64_t k) { return rounded(n, products().strip.columns) * k; }

void pack_right(const Matrix& b, int64_t n, int64_t k, float* to) {
  each_block(Shape(n, k), n, k, [&](int64_t n0, int64_t k0, int64_t width, int64_t depth, int64_t place) {
    pack_panels(b, static_cast<const float*>(b.data) + k0 * b.row_stride + n0 * b.column_stride, depth, width, to + place);
  });
}

void unpack_right(const float* from, int64_t n, int64_t k, int64_t row_stride, int64_t column_stride, float* to) {
  const int64_t columns = products().strip.columns;
  each_block(Shape(n, k), n, k, [&](int64_t n0, int64_t k0, int64_t width, int64_t depth, int64_t place) {
    for (int64_t j = 0; j < width; j += columns) {
      const float* panel = from + place + j * depth;
      const int64_t some = std::min(columns, width - j);
      for (int64_t p = 0; p < depth; ++p)
        for (int64_t q = 0; q < some; ++q) to[(k0 + p) * row_stride + (n0 + j + q) * column_stride] = panel[p * columns + q];
    }
  });
}

void packed_gemm(const Gemm& g, const float* right, int threads, std::byte* scratch) {
  // Small products one thread each, else all threads at one.
  const bool together = g.batch < threads;
  const Shape shape(g.n, g.k);
  with_team(threads, [&](const Team& all) {
    const Team team = together ? all : Team{0, 1};
    float* own = reinterpret_cast<float*>(scratch) + (together ? 0 : all.rank * (shape.right + shape.left));
    for (int64_t batch = together ? 0 : all.rank; batch < g.batch; batch += together ? 1 : all.size) multiply(g, batch, right, team, own);
  });
}

}  // namespace lazyt::onednn
