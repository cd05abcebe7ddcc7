// Views: reads and writes of a storage's bytes through a geometry, as functional operators.
//
// A storage's value in a program is a tensor of its natural geometry. A read through another geometry
// becomes the simplest chain of permute, slice, reshape and expand that says it (as_strided where
// nothing simpler does); a write through it becomes the same chain undone, with slice_scatter where the
// chain sliced.
#pragma once

#include "base/shape.h"
#include "ir/graph.h"

namespace lazyt::trace {

struct Geometry {
  base::Meta meta;     // dtype, dims, strides
  int64_t offset = 0;  // elements of meta.dtype
};

using SourceRef = std::shared_ptr<const ir::SourceLine>;

// natural: how the bytes of the storage lie; base has its dtype and dims. The tensor of view's dtype and
// dims; base itself when the geometries agree.
ir::ValueId read_view(ir::Graph& graph, ir::ValueId base, const base::Meta& natural, const Geometry& view,
                      const SourceRef& source);

// base with value written through view: a tensor of natural's dtype and dims. value has view's.
// REQUIRES: no two elements of view share an address.
ir::ValueId write_view(ir::Graph& graph, ir::ValueId base, const base::Meta& natural, const Geometry& view,
                       ir::ValueId value, const SourceRef& source);

// The same at a place that only a launch knows: `start` is a host scalar, elements of view's dtype from the beginning.
// REQUIRES: natural is dense and all that the storage has.
ir::ValueId read_at(ir::Graph& graph, ir::ValueId base, const base::Meta& natural, const base::Meta& view,
                    ir::ValueId start, const SourceRef& source);
ir::ValueId write_at(ir::Graph& graph, ir::ValueId base, const base::Meta& natural, const base::Meta& view,
                     ir::ValueId start, ir::ValueId value, const SourceRef& source);

}  // namespace lazyt::trace
