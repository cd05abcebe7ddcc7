// Reads and writes through random geometries, against direct indexing of the storage.
#include "trace/views.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "ir/verifier.h"

namespace lazyt::trace {
namespace {

using base::Dims;
using base::Meta;
using Values = std::vector<float>;  // row-major

Values gather(const Values& from, const Dims& dims, const Dims& strides, int64_t offset) {
  Values out(static_cast<size_t>(base::numel(dims)));
  for (size_t i = 0; i < out.size(); i++) {
    int64_t rest = static_cast<int64_t>(i), at = offset;
    for (size_t d = dims.size(); d-- > 0;) {
      at += rest % dims[d] * strides[d];
      rest /= dims[d];
    }
    out[i] = from[static_cast<size_t>(at)];
  }
  return out;
}

Values scatter(Values into, const Values& values, const Dims& dims, const Dims& strides, int64_t offset) {
  for (size_t i = 0; i < values.size(); i++) {
    int64_t rest = static_cast<int64_t>(i), at = offset;
    for (size_t d = dims.size(); d-- > 0;) {
      at += rest % dims[d] * strides[d];
      rest /= dims[d];
    }
    into[static_cast<size_t>(at)] = values[i];
  }
  return into;
}

// Runs the few operators that views lower to.
Values evaluate(const ir::Graph& g, ir::ValueId wanted, std::map<ir::ValueId, Values> values) {
  for (const ir::Node& n : g.nodes) {
    const Values& x = values.at(n.args[0].value);
    const Dims in = g.values[n.args[0].value].meta.dims;
    const Dims rows = base::contiguous_strides(in);
    Values out;
    if (n.name == "aten::reshape") {
      out = x;
    } else if (n.name == "aten::permute") {
      Dims dims, strides;
      for (int64_t d : n.args[1].ints) dims.push_back(in[d]), strides.push_back(rows[d]);
      out = gather(x, dims, strides, 0);
    } else if (n.name == "aten::slice") {
      Dims dims = in;
      dims[n.args[1].i] = n.args[3].i - n.args[2].i;
      out = gather(x, dims, rows, n.args[2].i * rows[n.args[1].i]);
    } else if (n.name == "aten::expand") {
      Dims strides = rows;
      for (size_t d = 0; d < in.size(); d++)
        if (in[d] != n.args[1].ints[d]) strides[d] = 0;
      out = gather(x, n.args[1].ints, strides, 0);
    } else if (n.name == "aten::as_strided") {
      out = gather(x, n.args[1].ints, n.args[2].ints, n.args[3].i);
    } else if (n.name == "aten::slice_scatter") {
      Dims dims = in;
      dims[n.args[2].i] = n.args[4].i - n.args[3].i;
      out = scatter(x, values.at(n.args[1].value), dims, rows, n.args[3].i * rows[n.args[2].i]);
    } else if (n.name == "aten::as_strided_scatter") {
      out = scatter(x, values.at(n.args[1].value), n.args[2].ints, n.args[3].ints, n.args[4].i);
    } else {
      ADD_FAILURE() << "views do not lower to " << n.name;
    }
    EXPECT_EQ(static_cast<int64_t>(out.size()), g.values[n.first_result].meta.numel()) << n.name;
    values[n.first_result] = std::move(out);
  }
  return values.at(wanted);
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int64_t upto(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n)(engine_); }

  Meta natural() {
    Dims dims;
    for (int64_t r = upto(4); r-- > 0;) dims.push_back(1 + upto(4));
    Meta m = Meta::contiguous(LAZYT_DTYPE_FLOAT32, dims);
    Dims order(dims.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), engine_);
    Meta p{LAZYT_DTYPE_FLOAT32, {}, {}};  // dense, in some order of memory
    for (int64_t d : order) p.dims.push_back(m.dims[d]), p.strides.push_back(m.strides[d]);
    return p;
  }

  // A chain of the views a program makes.
  Geometry view(Geometry g, bool expand) {
    for (int64_t steps = upto(4); steps-- > 0;) {
      auto rank = static_cast<int64_t>(g.meta.dims.size());
      Dims &dims = g.meta.dims, &strides = g.meta.strides;
      switch (upto(expand ? 5 : 4)) {
        case 0:  // slice
          if (rank) {
            int64_t d = upto(rank - 1), start = upto(dims[d] - 1), step = 1 + upto(1);
            g.offset += start * strides[d];
            dims[d] = 1 + upto((dims[d] - start - 1) / step);
            strides[d] *= step;
          }
          break;
        case 1:  // select
          if (rank) {
            int64_t d = upto(rank - 1);
            g.offset += upto(dims[d] - 1) * strides[d];
            dims.erase(dims.begin() + d);
            strides.erase(strides.begin() + d);
          }
          break;
        case 2:  // transpose
          if (rank > 1) {
            int64_t a = upto(rank - 1), b = upto(rank - 1);
            std::swap(dims[a], dims[b]);
            std::swap(strides[a], strides[b]);
          }
          break;
        case 3:  // unsqueeze
          {
            int64_t d = upto(rank);
            dims.insert(dims.begin() + d, 1);
            strides.insert(strides.begin() + d, 7);  // the stride of one element means nothing
          }
          break;
        case 4:  // diagonal
          if (rank == 2) {
            dims = {std::min(dims[0], dims[1])};
            strides = {strides[0] + strides[1]};
          }
          break;
        case 5:  // expand
          for (int64_t d = 0; d < rank; d++)
            if (dims[d] == 1) {
              dims[d] = 3;
              strides[d] = 0;
              break;
            }
          break;
      }
    }
    return g;
  }

 private:
  std::mt19937 engine_;
};

// The storage's elements in order of memory, and the value of natural geometry over them.
struct Case {
  Meta natural;
  Values storage, value;
};
Case make_case(Random& random) {
  Case c{random.natural(), {}, {}};
  c.storage.resize(static_cast<size_t>(c.natural.numel()));
  std::iota(c.storage.begin(), c.storage.end(), 0.0f);
  c.value = gather(c.storage, c.natural.dims, c.natural.strides, 0);
  return c;
}

TEST(Views, AReadShowsWhatTheGeometryShows) {
  for (unsigned seed = 0; seed < 20000; seed++) {
    Random random(seed);
    Case c = make_case(random);
    Geometry view = random.view({c.natural, 0}, true);
    ir::Graph g;
    ir::ValueId base = g.add_input(c.natural);
    ir::ValueId out = read_view(g, base, c.natural, view, nullptr);
    ASSERT_EQ(g.values[out].meta.dims, view.meta.dims) << "seed " << seed;
    ASSERT_EQ(evaluate(g, out, {{base, c.value}}), gather(c.storage, view.meta.dims, view.meta.strides, view.offset))
        << "seed " << seed << " " << base::to_string(c.natural) << " as " << base::to_string(view.meta) << " + " << view.offset;
    g.outputs.push_back({out});
    ASSERT_TRUE(ir::verify(g).ok()) << "seed " << seed << ": " << ir::verify(g).to_string();
  }
}

TEST(Views, AWriteChangesWhatTheGeometryShowsAndNothingElse) {
  for (unsigned seed = 0; seed < 20000; seed++) {
    Random random(seed);
    Case c = make_case(random);
    Geometry view = random.view({c.natural, 0}, false);
    ir::Graph g;
    ir::ValueId base = g.add_input(c.natural);
    ir::ValueId value = g.add_input(Meta::contiguous(LAZYT_DTYPE_FLOAT32, view.meta.dims));
    Values written(static_cast<size_t>(view.meta.numel()));
    std::iota(written.begin(), written.end(), 1000.0f);
    ir::ValueId out = write_view(g, base, c.natural, view, value, nullptr);
    ASSERT_EQ(g.values[out].meta.dims, c.natural.dims) << "seed " << seed;
    Values storage = scatter(c.storage, written, view.meta.dims, view.meta.strides, view.offset);
    ASSERT_EQ(evaluate(g, out, {{base, c.value}, {value, written}}), gather(storage, c.natural.dims, c.natural.strides, 0))
        << "seed " << seed << " " << base::to_string(c.natural) << " as " << base::to_string(view.meta) << " + " << view.offset;
  }
}

TEST(Views, ATransposeIsOnePermute) {
  ir::Graph g;
  Meta natural = Meta::contiguous(LAZYT_DTYPE_FLOAT32, {3, 4});
  read_view(g, g.add_input(natural), natural, {{LAZYT_DTYPE_FLOAT32, {4, 3}, {1, 4}}, 0}, nullptr);
  ASSERT_EQ(g.nodes.size(), 1u);
  EXPECT_EQ(g.nodes[0].name, "aten::permute");
}

TEST(Views, RowsOfAMatrixAreOneSlice) {
  ir::Graph g;
  Meta natural = Meta::contiguous(LAZYT_DTYPE_FLOAT32, {5, 4});
  read_view(g, g.add_input(natural), natural, {{LAZYT_DTYPE_FLOAT32, {2, 4}, {4, 1}}, 4}, nullptr);
  ASSERT_EQ(g.nodes.size(), 1u);
  EXPECT_EQ(g.nodes[0].name, "aten::slice");
}

TEST(Views, APartOfALineIsOneSlice) {
  ir::Graph g;
  Meta natural{LAZYT_DTYPE_FLOAT32, {1, 12}, {12, 1}};
  read_view(g, g.add_input(natural), natural, {{LAZYT_DTYPE_FLOAT32, {1, 4}, {12, 1}}, 4}, nullptr);
  ASSERT_EQ(g.nodes.size(), 1u);
  EXPECT_EQ(g.nodes[0].name, "aten::slice");
}

TEST(Views, APartOfImagesThatLieByChannelsIsOneSlice) {
  ir::Graph g;
  Meta natural{LAZYT_DTYPE_FLOAT32, {2, 6, 3, 3}, {54, 1, 18, 6}};
  read_view(g, g.add_input(natural), natural, {{LAZYT_DTYPE_FLOAT32, {2, 2, 3, 3}, {54, 1, 18, 6}}, 2}, nullptr);
  ASSERT_EQ(g.nodes.size(), 1u);
  EXPECT_EQ(g.nodes[0].name, "aten::slice");
}

TEST(Views, AnotherDtypeReadsTheSameBytes) {
  ir::Graph g;
  Meta natural = Meta::contiguous(LAZYT_DTYPE_FLOAT32, {2, 3});
  ir::ValueId out = read_view(g, g.add_input(natural), natural, {{LAZYT_DTYPE_INT32, {2, 3}, {3, 1}}, 0}, nullptr);
  EXPECT_EQ(g.values[out].meta, Meta::contiguous(LAZYT_DTYPE_INT32, {2, 3}));
}

}  // namespace
}  // namespace lazyt::trace
