// f32 matrix products where the CPU has no AVX-512: there oneDNN (3.2) reaches 0.5 to 0.77 of what multiply-adds can do on a Zen 3, adds up in an
// order that depends on the number of threads, and has no bf16. Blocks of both operands are packed to strips and panels, which one
// kernel reads from beginning to end (Goto, van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008).
#pragma once

#include <cstddef>

#include "gemm.h"

namespace lazyt::onednn {

// Whether packed_gemm() is this CPU's way.
bool has_packed_gemm();

// Bytes that a product with so many threads, or fewer, works in, aligned to 64.
size_t packed_scratch(int64_t batch, int64_t n, int64_t k, int threads);

// Of f32; one stride of a and of b is 1, the addend's may be any. Results do not depend on the number of threads.
// right: null, or g.b, of a batch of one, as pack_right() wrote it, which is read instead and changes no bit.
void packed_gemm(const Gemm& g, const float* right, int threads, std::byte* scratch);

// A right operand [k, n] as products of any number of rows read it, and back. Floats; aligned to 64.
int64_t packed_right_size(int64_t n, int64_t k);
void pack_right(const Matrix& b, int64_t n, int64_t k, float* to);
void unpack_right(const float* from, int64_t n, int64_t k, int64_t row_stride, int64_t column_stride, float* to);

}  // namespace lazyt::onednn
