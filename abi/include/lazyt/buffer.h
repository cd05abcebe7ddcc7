/* buffer.h - bytes on a device.
 *
 * A buffer is a flat run of bytes. It has no dtype and no shape: those are the program's.
 * The host allocates every buffer, outputs included; the plugin may place its memory lazily.
 *
 * Rules
 *  BUF-1  size_bytes 0 is valid everywhere; such a buffer has no bytes to read.
 *  BUF-2  Contents after alloc are undefined.
 *  BUF-3  The host never releases a buffer that unfinished work reads or writes; the plugin
 *         need not check.
 *  BUF-4  from_host with COPY has read all bytes when it returns; the caller may change them.
 *  BUF-5  Offsets and sizes that leave the buffer are OUT_OF_RANGE, and nothing is moved.
 *  BUF-6  A wait list's events may carry errors: the operation's own event then gets that error
 *         and no bytes are moved.
 *  BUF-7  A NULL out_event asks for a synchronous operation.
 *  BUF-8  done is called once if from_host succeeds, after the last use of the bytes, and not at all
 *         if it fails.
 *  BUF-9  No operation, execute included, writes a byte outside the range that it was asked to write.
 *  BUF-10 size answers the bytes that the buffer was made with.
 *  BUF-11 host_pointer and to_host show the same bytes.
 *  BUF-12 desc.alignment and desc.memory_space are kept; what the device does not have is
 *         INVALID_ARGUMENT.
 *  BUF-13 The caller's bytes are written only with ALIAS_MUTABLE. The host neither copies into a buffer
 *         made with another mode than COPY or ALIAS_MUTABLE nor donates it.
 *  BUF-14 A buffer lives until it is released, whatever became of the events and executables that
 *         made its bytes.
 *  BUF-15 A tensor that import_dlpack took is given back through its deleter, once, when the buffer
 *         that stands over it is released and unused; one that it refused stays the caller's.
 *  BUF-16 A tensor of export_dlpack keeps its bytes alive, also when the buffer is released; its
 *         deleter may be called on any thread, once.
 *
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_BUFFER_H_
#define LAZYT_BUFFER_H_

#include "lazyt/device.h"
#include "lazyt/event.h"

typedef struct lazyt_buffer_s lazyt_buffer_t;

/* How from_host may use the caller's bytes. */
typedef int32_t lazyt_sharing_t;
#define LAZYT_SHARING_COPY ((lazyt_sharing_t)0)     /* read during the call only */
#define LAZYT_SHARING_UNTIL_DONE ((lazyt_sharing_t)1) /* unchanged until done is called */
#define LAZYT_SHARING_ALIAS ((lazyt_sharing_t)2)    /* may be used in place, read-only, until done */
#define LAZYT_SHARING_ALIAS_MUTABLE ((lazyt_sharing_t)3) /* the same, and may be written */

/* Called once when the host's bytes are no longer needed. [any] */
typedef void (*lazyt_host_bytes_done_t)(void *user_data);

typedef struct lazyt_buffer_desc_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  uint64_t size_bytes;
  uint64_t alignment;    /* 0 = the device's own */
  uint32_t memory_space; /* 0 = the device's default; others are the plugin's, from output_meta */
  uint32_t reserved;
} lazyt_buffer_desc_t;

typedef struct lazyt_host_bytes_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  const void *data;
  uint64_t size_bytes;
  lazyt_sharing_t sharing;
  uint32_t reserved;
  lazyt_host_bytes_done_t done; /* NULL allowed with COPY */
  void *done_user_data;
} lazyt_host_bytes_t;

/* A list of events to wait for, borrowed. */
typedef struct lazyt_events_t {
  lazyt_event_t *const *events;
  uint64_t count;
} lazyt_events_t;

struct DLManagedTensorVersioned; /* dlpack.h 1.x */

/* Implemented by the plugin. */
typedef struct lazyt_plugin_buffer_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  /* RESOURCE_EXHAUSTED when memory is short. [any] */
  lazyt_status_t *(*alloc)(lazyt_device_t *device, const lazyt_buffer_desc_t *desc, lazyt_buffer_t **out_buffer);
  /* A buffer that holds the host's bytes. A plugin may treat any sharing mode as COPY, and then
   * calls done before it returns. [any] */
  lazyt_status_t *(*from_host)(lazyt_device_t *device, const lazyt_host_bytes_t *bytes, lazyt_buffer_t **out_buffer);
  /* Copies size bytes from offset to dst; out_event (given) may be NULL (BUF-7). Converts from
   * an opaque layout to the strides of the program that wrote the buffer. [any] */
  lazyt_status_t *(*to_host)(lazyt_buffer_t *buffer, uint64_t offset, void *dst, uint64_t size,
                             lazyt_events_t waits, lazyt_event_t **out_event);
  /* Copies between buffers of one plugin, of one or two devices. [any] */
  lazyt_status_t *(*copy)(lazyt_buffer_t *src, uint64_t src_offset, lazyt_buffer_t *dst, uint64_t dst_offset,
                          uint64_t size, lazyt_events_t waits, lazyt_event_t **out_event);
  lazyt_status_t *(*size)(lazyt_buffer_t *buffer, uint64_t *out_bytes); /* [any] */
  /* The CPU address of the bytes, borrowed until release or the next execute that writes the
   * buffer; only on devices with LAZYT_DEVICE_HOST_VISIBLE, else NULL slot or UNIMPLEMENTED. [any] */
  lazyt_status_t *(*host_pointer)(lazyt_buffer_t *buffer, void **out_pointer);
  /* Optional. A buffer over a foreign tensor's memory; takes over `tensor` (given) on success.
   * wait: work that still writes it, may be NULL. [any] */
  lazyt_status_t *(*import_dlpack)(lazyt_device_t *device, struct DLManagedTensorVersioned *tensor,
                                   lazyt_event_t *wait, lazyt_buffer_t **out_buffer);
  /* Optional. The buffer as a one-dimensional uint8 tensor (given) that keeps the memory alive. [any] */
  lazyt_status_t *(*export_dlpack)(lazyt_buffer_t *buffer, struct DLManagedTensorVersioned **out_tensor);
  void (*release)(lazyt_buffer_t *buffer); /* [any] NULL allowed */
} lazyt_plugin_buffer_t;

#endif /* LAZYT_BUFFER_H_ */
