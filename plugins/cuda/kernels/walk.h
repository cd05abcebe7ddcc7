// What kernels along dims share: geometry as text for their sources, and teams of threads that share a line.
//
// A WALK is a number of lines (one for each element of the kept dims), each over the N elements of the
// reduced dims. Its defines are LINES, N and, for operand k, LINEk(l) and ATk(i): element i of line l lies at
// LINEk(l) + ATk(i). Sizes and strides are baked in, so that divisions become multiplications; operands may
// lie in any way, broadcast ones too.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../ops.h"
#include "lazyt/toolkit/operands.hpp"

namespace lazyt::cuda {

using toolkit::accepted;
using toolkit::all_tensors;
using toolkit::compute_dtype;
using toolkit::dense_as;
using toolkit::has;
using toolkit::int_at;
using toolkit::is_constant;
using toolkit::is_floating;
using toolkit::is_real;
using toolkit::operand;
using toolkit::reshaped;
using toolkit::result;
using toolkit::tensor_at;

using Defines = std::vector<std::pair<std::string, std::string>>;

// "12LL"
std::string literal(int64_t n);
// The offset of element `index` (an expression) of `dims` in row-major order: "((i) / 12LL * 40LL + (i) %
// 12LL)".
std::string offset_text(const Dims& dims, const Dims& strides, const std::string& index);

struct Walk {
  int64_t lines = 1, n = 1;
  bool columns = false;  // neighbouring lines lie closer than neighbouring elements of one
  Defines defines;
};

// layouts: of the operands, all of the same dims. reduced: which dims make a line; their elements are counted
// in row-major order if asked, else as operand 0 lies.
Walk walk_of(const std::vector<Layout>& layouts, const std::vector<bool>& reduced, bool in_order);
// Along one axis, in its order; rank 0 is one line of one element.
Walk walk_along(const std::vector<Layout>& layouts, size_t axis);

// A reduction's result (with or without its reduced dims) as seen from the operand: stride 0 along the
// reduced dims.
Layout beside(const Layout& result, const Dims& dims, const std::vector<bool>& reduced);

// How the threads of a block share lines: `team` of them have one together. Defines THREADS, TEAM, COLUMNS.
struct Team {
  uint32_t threads = 256, team = 32;
  bool columns = false;
  Defines defines() const;
  int64_t lines() const { return threads / team; }
};
Team team_for(const Walk& walk);
// One that runs through its lines in order: a single thread where lines lie side by side.
Team scanning_team_for(const Walk& walk);

// Adds the kernel `text` (after kTeamText) over the walk's lines, which steps by gridDim.x * (THREADS / TEAM)
// lines.
void add_lines(Builder& b, std::string_view base, std::string_view text, const Walk& walk, const Team& team,
               Defines more, std::vector<Word> words, const std::vector<StorageId>& reads,
               const std::vector<StorageId>& writes, const std::vector<StorageId>& reads_in_place = {});

// The types of elements: T in memory, C in registers.
Defines types_of(lazyt_dtype_t dtype);

// lazyt_team and what goes with it; may stand before any kernel's text.
extern const std::string_view kTeamText;

}  // namespace lazyt::cuda
