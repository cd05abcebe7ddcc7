// A product of matrices, and the library that may compute it.
#pragma once

#include "lazyt/toolkit/products.hpp"
#include "walk.h"

namespace lazyt::cuda {

using toolkit::is_number;
using toolkit::kZero;
using toolkit::Product;
using toolkit::size;
using toolkit::stride;
using toolkit::stride_or;

// Adds the steps that compute the product by cuBLASLt; false, and none added, where it was not found or does
// not take it. epilogue: may be null; of it what the library takes is computed with the product, and said so
// there. REQUIRES: no dim is 0
bool add_library_product(Builder& b, const Product& p, Epilogue* epilogue);

}  // namespace lazyt::cuda
