// f32 matrix products and convolutions by a CPU's tiles of bf16 (amx.h), as exact as multiply-adds in f32 and faster
// than these can be.
//
// An f32 is the sum of three bf16: x rounded to bf16, what is left rounded, and what is left then, which is a bf16. Of
// the nine products of the parts of two numbers the six largest are added up in f32; the other three are less than
// 2^-26 of the product, where a rounding in f32 is 2^-24 (Henry, Tang, Heinecke, Leveraging the bfloat16 Artificial
// Intelligence Datatype For Higher-Precision Computations, 2019). Where parts cannot stand for the elements, as tiles
// take no denormals (an infinity, a NaN, sums that may overflow, operands whose largest products are below 2^-90),
// multiply-adds compute the whole product. Else, of what is added up, products below 2^-126 count as 0.
//
// REQUIRES, of all functions but prefers_: Tiles::available(); no size is 0; threads: at most as many as the scratch is
// for. Results do not depend on their number.
#pragma once

#include <cstddef>

#include "gemm.h"

namespace lazyt::onednn {

// Whether amx_gemm() is faster on this CPU than oneDNN, by what both take here; packed: oneDNN would find b packed.
bool prefers_amx(int64_t m, int64_t n, int64_t k, bool packed);

// Bytes that a product works in, aligned to 64.
size_t amx_scratch(int64_t batch, int64_t m, int64_t n, int64_t k, int threads);

// Of f32; one stride of a and of b is 1, the addend's may be any.
void amx_gemm(const Gemm& g, int threads, std::byte* scratch);

// ---- Convolutions, as products of patches

// An operand of a product: `lines` (rows of the left one, columns of the right one) of `depth` elements that are summed
// over. One of the strides is 1. Runs of `run` elements of depth are run_stride apart; a run is a multiple of 32, or all.
struct Lines {
  const float* data;
  int64_t lines, depth;
  int64_t line_stride, depth_stride;
  int64_t run, run_stride;
};

// What a window sees from each pixel of images that lie channels-last: [images * pixels][taps * channels], where `sources`
// says for (pixel, tap) of an image which pixel that is, -1: none, zeros. channels: a multiple of 32.
struct Patches {
  const float* data;
  const int32_t* sources;
  int64_t images, pixels, taps, channels;
  int64_t image_size;  // elements from one image to the next

  int64_t rows() const { return images * pixels; }
  int64_t columns() const { return taps * channels; }
};

// Whether the products below are faster than oneDNN's convolution: of so many rows and columns of patches, with `others` lines.
bool prefers_amx_patches(int64_t rows, int64_t columns, int64_t others);

// c[a.rows() x b.lines] = a b + bias, which may be null. Scratch: amx_scratch(1, a.rows(), b.lines, b.depth).
// REQUIRES: b.depth is a.columns()
void amx_gemm(const Patches& a, const Lines& b, const float* bias, float* c, int threads, std::byte* scratch);
// c[a.lines x b.columns()] = a b, summed over the rows of b. Scratch: amx_scratch(1, a.lines, b.columns(), a.depth).
// REQUIRES: a.depth is b.rows()
void amx_gemm(const Lines& a, const Patches& b, float* c, int threads, std::byte* scratch);

}  // namespace lazyt::onednn
