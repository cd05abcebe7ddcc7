/* dtype.h - element types. The enumeration is whole from the start; a plugin claims what it can.
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_DTYPE_H_
#define LAZYT_DTYPE_H_

#include "lazyt/base.h"

typedef int32_t lazyt_dtype_t;
#define LAZYT_DTYPE_INVALID ((lazyt_dtype_t)0)
#define LAZYT_DTYPE_BOOL ((lazyt_dtype_t)1) /* one byte, 0 or 1 */
#define LAZYT_DTYPE_UINT8 ((lazyt_dtype_t)2)
#define LAZYT_DTYPE_INT8 ((lazyt_dtype_t)3)
#define LAZYT_DTYPE_UINT16 ((lazyt_dtype_t)4)
#define LAZYT_DTYPE_INT16 ((lazyt_dtype_t)5)
#define LAZYT_DTYPE_UINT32 ((lazyt_dtype_t)6)
#define LAZYT_DTYPE_INT32 ((lazyt_dtype_t)7)
#define LAZYT_DTYPE_UINT64 ((lazyt_dtype_t)8)
#define LAZYT_DTYPE_INT64 ((lazyt_dtype_t)9)
#define LAZYT_DTYPE_FLOAT16 ((lazyt_dtype_t)10)
#define LAZYT_DTYPE_BFLOAT16 ((lazyt_dtype_t)11)
#define LAZYT_DTYPE_FLOAT32 ((lazyt_dtype_t)12)
#define LAZYT_DTYPE_FLOAT64 ((lazyt_dtype_t)13)
#define LAZYT_DTYPE_COMPLEX32 ((lazyt_dtype_t)14) /* two float16 */
#define LAZYT_DTYPE_COMPLEX64 ((lazyt_dtype_t)15)
#define LAZYT_DTYPE_COMPLEX128 ((lazyt_dtype_t)16)
#define LAZYT_DTYPE_FLOAT8_E4M3FN ((lazyt_dtype_t)17)
#define LAZYT_DTYPE_FLOAT8_E5M2 ((lazyt_dtype_t)18)
#define LAZYT_DTYPE_FLOAT8_E4M3FNUZ ((lazyt_dtype_t)19)
#define LAZYT_DTYPE_FLOAT8_E5M2FNUZ ((lazyt_dtype_t)20)
#define LAZYT_DTYPE_FLOAT8_E8M0FNU ((lazyt_dtype_t)21)
#define LAZYT_DTYPE_FLOAT4_E2M1FN_X2 ((lazyt_dtype_t)22) /* two values a byte */
#define LAZYT_DTYPE_INT4_X2 ((lazyt_dtype_t)23)          /* two values a byte, low nibble first */
#define LAZYT_DTYPE_UINT4_X2 ((lazyt_dtype_t)24)
#define LAZYT_DTYPE_COUNT 25

/* Bytes of one element (of one pair for the _X2 types); 0 for a value this header does not know. */
static inline uint64_t lazyt_dtype_size(lazyt_dtype_t dtype) {
  static const uint8_t sizes[LAZYT_DTYPE_COUNT] = {0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4,
                                                   8, 4, 8, 16, 1, 1, 1, 1, 1, 1, 1, 1};
  return dtype > 0 && dtype < LAZYT_DTYPE_COUNT ? sizes[dtype] : 0;
}

#endif /* LAZYT_DTYPE_H_ */
