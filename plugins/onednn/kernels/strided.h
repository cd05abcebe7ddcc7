// Copies between two strided layouts of one dtype.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../compile.h"

namespace lazyt::onednn {

// dst = src. REQUIRES: the same dims; elements of 1, 2, 4 or 8 bytes (toolkit::is_movable).
void lower_strided_copy(Builder& b, const Tensor& src, const Tensor& dst);

// Copies rows of `bytes` bytes each; one row lies so many bytes behind the one before. They do not overlap. streams: past the caches
// (streams.h), if they are long enough.
void copy_rows(std::byte* dst, int64_t dst_row, const std::byte* src, int64_t src_row, int64_t rows, int64_t bytes, bool streams = false);

}  // namespace lazyt::onednn
