// Text of kernels of an element a thread: offsets of operands with dims and strides baked in, loops over elements, what is said of bad indices.
#pragma once

#include "walk.h"

namespace lazyt::cuda {

// Names of offsets, each with its stride along every dim.
using Strides = std::vector<std::pair<std::string, Dims>>;

// Statements on one line that declare each name as an I: where element `index` (an expression), counted in row-major order
// of dims, lies. A name whose strides are all 0 but one of 1 is the coordinate along that dim.
std::string offsets(const std::string& index, const Dims& dims, const Strides& operands);

// The type of indices: "int" where counts and offsets leave room for a step of the grid, else "long long".
std::string index_type(std::initializer_list<int64_t> most);
// The largest distance of two elements.
int64_t span_of(const Layout& layout);

// The type of elements that are only moved. REQUIRES: toolkit::is_movable
std::string bits_type(uint64_t bytes);

// Before a kernel's text: LAZYT_EACH(i, n) loops over what falls to this thread of 0 .. n - 1; lazyt_find answers with the
// place that an index names among `size`, or with -1 and a fault.
extern const std::string_view kEachText;

// kEachText + text.
std::string each_text(std::string_view text);

}  // namespace lazyt::cuda
