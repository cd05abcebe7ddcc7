/* status.h - the one shape of an error.
 *
 * A status is made by the host's table and lives in the host, so that it outlives the plugin
 * that reported it. NULL is OK. A status carries a code, a message for people, and a chain of
 * (where, detail) notes added on its way up.
 *
 * Rules
 *  STA-1  A function that fails returns a status whose code is not OK and writes no out_ value.
 *  STA-2  A message says what failed, where, and what to do; it is not empty.
 *  STA-3  An operation that is not offered answers UNIMPLEMENTED; that is normal, never fatal.
 *  STA-4  Each reference to a status is released once, by whoever it was given to.
 *  STA-5  Memory that cannot be had is RESOURCE_EXHAUSTED, wherever it is missing, and what was begun
 *         is undone.
 *
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_STATUS_H_
#define LAZYT_STATUS_H_

#include "lazyt/base.h"

/* Numbered as gRPC, Abseil, PJRT and IREE number them. */
typedef int32_t lazyt_code_t;
#define LAZYT_CODE_OK ((lazyt_code_t)0)
#define LAZYT_CODE_CANCELLED ((lazyt_code_t)1)
#define LAZYT_CODE_UNKNOWN ((lazyt_code_t)2)
#define LAZYT_CODE_INVALID_ARGUMENT ((lazyt_code_t)3)   /* wrong whatever the state */
#define LAZYT_CODE_DEADLINE_EXCEEDED ((lazyt_code_t)4)  /* still running, or lost */
#define LAZYT_CODE_NOT_FOUND ((lazyt_code_t)5)
#define LAZYT_CODE_ALREADY_EXISTS ((lazyt_code_t)6)
#define LAZYT_CODE_PERMISSION_DENIED ((lazyt_code_t)7)
#define LAZYT_CODE_RESOURCE_EXHAUSTED ((lazyt_code_t)8) /* out of memory; nothing was consumed */
#define LAZYT_CODE_FAILED_PRECONDITION ((lazyt_code_t)9)
#define LAZYT_CODE_ABORTED ((lazyt_code_t)10)
#define LAZYT_CODE_OUT_OF_RANGE ((lazyt_code_t)11)
#define LAZYT_CODE_UNIMPLEMENTED ((lazyt_code_t)12)
#define LAZYT_CODE_INTERNAL ((lazyt_code_t)13)    /* a bug in whoever reports it */
#define LAZYT_CODE_UNAVAILABLE ((lazyt_code_t)14) /* no device, or the device is lost */
#define LAZYT_CODE_DATA_LOSS ((lazyt_code_t)15)   /* damaged bytes */
#define LAZYT_CODE_UNAUTHENTICATED ((lazyt_code_t)16)

typedef struct lazyt_status_s lazyt_status_t;

/* Implemented by the host; static while the host lives. All [any]; none of them fails. */
typedef struct lazyt_host_status_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  /* Returns a status, given to the caller. With no memory left it returns a shared
   * RESOURCE_EXHAUSTED status, so the result is never NULL. */
  lazyt_status_t *(*create)(lazyt_code_t code, lazyt_string_t message);
  /* Adds a note: where (function, file, operator) and what was going on there. */
  void (*annotate)(lazyt_status_t *status, lazyt_string_t where, lazyt_string_t detail);
  lazyt_code_t (*code)(const lazyt_status_t *status);
  /* Borrowed until status is released. */
  lazyt_string_t (*message)(const lazyt_status_t *status);
  uint64_t (*note_count)(const lazyt_status_t *status);
  void (*note)(const lazyt_status_t *status, uint64_t index, lazyt_string_t *out_where,
               lazyt_string_t *out_detail);
  /* Another reference to the same status, given to the caller. */
  lazyt_status_t *(*retain)(lazyt_status_t *status);
  /* NULL is allowed. */
  void (*release)(lazyt_status_t *status);
} lazyt_host_status_t;

#endif /* LAZYT_STATUS_H_ */
