// Sorting along one axis: by value, then place (stable); NaN counts as the largest.
#pragma once

#include "walk.h"

namespace lazyt::cuda {

struct Sorting {
  enum Kind {
    kFirst,
    kNth,
    kMedian
  } kind;  // the first k of the sorted line, element k of it, the same or the first NaN
  size_t axis;
  int64_t k;
  bool descending;
};

// Lowers a node whose operand 0 is sorted and whose results are values and places.
void add_sort(Builder& b, const lazyt_node_t& node, const Sorting& sorting);
// values: dense, of in's dtype; places: dense, int64.
void add_sort(Builder& b, const Tensor& in, const Tensor& values, const Tensor& places, const Sorting& sorting);

}  // namespace lazyt::cuda
