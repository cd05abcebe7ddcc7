// f32 matrix products by a CPU's tiles of bf16 (amx.h), as exact as multiply-adds in f32 and faster than these can be.
//
// An f32 is the sum of three bf16: x rounded to bf16, what is left rounded, and what is left then, which is a bf16. Of
// the nine products of the parts of two numbers the six largest are added up in f32; the other three are less than
// 2^-26 of the product, where a rounding in f32 is 2^-24 (Henry, Tang, Heinecke, Leveraging the bfloat16 Artificial
// Intelligence Datatype For Higher-Precision Computations, 2019).
#pragma once

#include <cstddef>

#include "gemm.h"

namespace lazyt::onednn {

// Whether split_gemm() is the faster way on this CPU, by what both take here; packed: oneDNN would find b packed.
bool prefers_split(int64_t m, int64_t n, int64_t k, bool packed);

// Bytes that it works in, aligned to 64.
size_t split_scratch(int64_t batch, int64_t m, int64_t n, int64_t k, int threads);

// The product of f32 matrices, one stride of a and of b being 1; the addend's may be any. threads: at most as many as
// the scratch is for. Results do not depend on their number. False: elements that parts cannot stand for, as tiles take
// no denormals (an infinity, a NaN, a product that would overflow, or matrices whose largest products are below
// 2^-90); then c holds nothing of use. Of what is added up, products below 2^-126 count as 0.
// REQUIRES: Tiles::available(), m, n, k > 0
bool split_gemm(const Gemm& g, int threads, std::byte* scratch);

}  // namespace lazyt::onednn
