/* base.h - versions, strings, chains: what every other header needs.
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_BASE_H_
#define LAZYT_BASE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define LAZYT_EXTERN_C extern "C"
#else
#define LAZYT_EXTERN_C extern
#endif

#if defined(_WIN32)
#define LAZYT_EXPORT LAZYT_EXTERN_C __declspec(dllexport)
#else
#define LAZYT_EXPORT LAZYT_EXTERN_C __attribute__((visibility("default")))
#endif

/* The version of these headers. The major is in the entry symbol's name; minors only append.
 *
 * While LAZYT_ABI_DRAFT is not 0 the interface is 0.x: host and plugin must be built from
 * headers of the same draft, and the loader refuses any other pair by name (reason code
 * `abi-draft`). From the first frozen release on it is 0, and a plugin built for 1.x
 * loads in every host 1.y. */
#define LAZYT_ABI_MAJOR 1
#define LAZYT_ABI_MINOR 0
#define LAZYT_ABI_DRAFT 1

/* A UTF-8 string that need not be terminated (C-4). data may be NULL when size is 0. */
typedef struct lazyt_string_t {
  const char *data;
  uint64_t size;
} lazyt_string_t;

/* One link of an extension chain (C-1). A reader skips links whose type it does not know,
 * unless LAZYT_CHAIN_REQUIRED is set: then it fails with UNIMPLEMENTED and names the type. */
typedef uint32_t lazyt_chain_flags_t;
#define LAZYT_CHAIN_REQUIRED ((lazyt_chain_flags_t)1u)

typedef struct lazyt_chained_t {
  uint64_t struct_size;
  const struct lazyt_chained_t *next;
  lazyt_string_t type; /* static; "lazyt.<name>/<rev>" or reverse DNS of a vendor */
  lazyt_chain_flags_t flags;
  uint32_t reserved;
} lazyt_chained_t;

/* Whether a field lies within the struct_size that its writer gave (C-1). */
#define LAZYT_HAS_FIELD(pointer, type, field) \
  ((pointer)->struct_size >= offsetof(type, field) + sizeof(((type *)0)->field))

/* A string literal as lazyt_string_t, for C. */
#define LAZYT_STR(literal) {(literal), sizeof(literal) - 1}

static inline lazyt_string_t lazyt_string(const char *data, uint64_t size) {
  lazyt_string_t s;
  s.data = data;
  s.size = size;
  return s;
}

#endif /* LAZYT_BASE_H_ */
