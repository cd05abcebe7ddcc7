/* buffer.c - bytes on the heap, and events that are ready when they are made. */
#include <string.h>

#include "plugin.h"

/* --- events ------------------------------------------------------------------------------- */

struct lazyt_event_s {
  atomic_uint references;
  lazyt_status_t *status; /* NULL = OK */
};

static lazyt_event_t ready_ok; /* shared by all work that went well; never freed */

static void event_retain(lazyt_event_t *event) {
  if (event != &ready_ok) atomic_fetch_add(&event->references, 1);
}

static void event_release(lazyt_event_t *event) {
  if (!event || event == &ready_ok || atomic_fetch_sub(&event->references, 1) != 1) return;
  null_status->release(event->status);
  null_services->free(event);
}

lazyt_event_t *null_ready_event(lazyt_status_t *status) {
  if (!status) return &ready_ok;
  lazyt_event_t *event = null_services->alloc(sizeof *event, sizeof(void *));
  if (!event) return NULL;
  atomic_init(&event->references, 1);
  event->status = status;
  return event;
}

lazyt_status_t *null_finish(lazyt_status_t *status, lazyt_event_t **out_event) {
  if (!out_event) return status;
  lazyt_event_t *event = null_ready_event(status);
  if (!event) return status; /* no memory for an event that carries the error: report it here */
  *out_event = event;
  return NULL;
}

lazyt_status_t *null_first_error(lazyt_events_t waits) {
  for (uint64_t i = 0; i < waits.count; i++)
    if (waits.events[i]->status) return null_status->retain(waits.events[i]->status);
  return NULL;
}

static lazyt_status_t *event_ready(lazyt_event_t *event, uint32_t *out_ready) {
  (void)event;
  *out_ready = 1;
  return NULL;
}

static lazyt_status_t *event_wait(lazyt_event_t *event, uint64_t timeout_ns) {
  (void)timeout_ns;
  return event->status ? null_status->retain(event->status) : NULL;
}

static lazyt_status_t *event_on_ready(lazyt_event_t *event, lazyt_event_callback_t callback, void *user_data) {
  callback(user_data, event->status);
  return NULL;
}

const lazyt_plugin_event_t null_event_table = {
    .struct_size = sizeof(lazyt_plugin_event_t),
    .ready = event_ready,
    .wait = event_wait,
    .on_ready = event_on_ready,
    .retain = event_retain,
    .release = event_release,
};

/* --- buffers ------------------------------------------------------------------------------ */

static void count_bytes(lazyt_device_t *device, uint64_t size) {
  uint64_t now = atomic_fetch_add(&device->bytes, size) + size;
  uint64_t peak = atomic_load(&device->peak);
  while (now > peak && !atomic_compare_exchange_weak(&device->peak, &peak, now)) {
  }
}

static lazyt_status_t *buffer_new(lazyt_device_t *device, uint64_t size, uint64_t alignment, lazyt_buffer_t **out) {
  /* The bytes lie behind the buffer, in one block. */
  if (alignment < NULL_ALIGNMENT) alignment = NULL_ALIGNMENT;
  lazyt_buffer_t *buffer = size <= UINT64_MAX - alignment ? null_services->alloc(alignment + size, alignment) : NULL;
  if (!buffer) return null_out_of_memory("buffer.alloc");
  buffer->device = device;
  buffer->size = size;
  buffer->data = (unsigned char *)buffer + alignment;
  count_bytes(device, size);
  *out = buffer;
  return NULL;
}

static lazyt_status_t *buffer_alloc(lazyt_device_t *device, const lazyt_buffer_desc_t *desc, lazyt_buffer_t **out_buffer) {
  if (desc->memory_space != 0) return null_error(LAZYT_CODE_INVALID_ARGUMENT, "null has memory space 0 only");
  lazyt_status_t *status = buffer_new(device, desc->size_bytes, desc->alignment, out_buffer);
  /* Nothing is computed: zeros make what is read back the same in every run. */
  if (!status) memset((*out_buffer)->data, 0, desc->size_bytes);
  return status;
}

static lazyt_status_t *buffer_from_host(lazyt_device_t *device, const lazyt_host_bytes_t *bytes,
                                        lazyt_buffer_t **out_buffer) {
  lazyt_status_t *status = buffer_new(device, bytes->size_bytes, 0, out_buffer);
  if (status) return status;
  if (bytes->size_bytes) memcpy((*out_buffer)->data, bytes->data, bytes->size_bytes);
  if (bytes->done) bytes->done(bytes->done_user_data); /* every sharing mode is a copy here */
  return NULL;
}

static lazyt_status_t *check_range(const lazyt_buffer_t *buffer, uint64_t offset, uint64_t size) {
  if (offset <= buffer->size && size <= buffer->size - offset) return NULL;
  return null_error(LAZYT_CODE_OUT_OF_RANGE, "offset and size leave the buffer");
}

static lazyt_status_t *buffer_to_host(lazyt_buffer_t *buffer, uint64_t offset, void *dst, uint64_t size,
                                      lazyt_events_t waits, lazyt_event_t **out_event) {
  lazyt_status_t *status = check_range(buffer, offset, size);
  if (status) return status;
  status = null_first_error(waits);
  if (!status && size) memcpy(dst, buffer->data + offset, size);
  return null_finish(status, out_event);
}

static lazyt_status_t *buffer_copy(lazyt_buffer_t *src, uint64_t src_offset, lazyt_buffer_t *dst, uint64_t dst_offset,
                                   uint64_t size, lazyt_events_t waits, lazyt_event_t **out_event) {
  lazyt_status_t *status = check_range(src, src_offset, size);
  if (!status) status = check_range(dst, dst_offset, size);
  if (status) return status;
  status = null_first_error(waits);
  if (!status && size) memmove(dst->data + dst_offset, src->data + src_offset, size);
  return null_finish(status, out_event);
}

static lazyt_status_t *buffer_size(lazyt_buffer_t *buffer, uint64_t *out_bytes) {
  *out_bytes = buffer->size;
  return NULL;
}

static lazyt_status_t *buffer_host_pointer(lazyt_buffer_t *buffer, void **out_pointer) {
  *out_pointer = buffer->data;
  return NULL;
}

static void buffer_release(lazyt_buffer_t *buffer) {
  if (!buffer) return;
  atomic_fetch_sub(&buffer->device->bytes, buffer->size);
  null_services->free(buffer);
}

const lazyt_plugin_buffer_t null_buffer_table = {
    .struct_size = sizeof(lazyt_plugin_buffer_t),
    .alloc = buffer_alloc,
    .from_host = buffer_from_host,
    .to_host = buffer_to_host,
    .copy = buffer_copy,
    .size = buffer_size,
    .host_pointer = buffer_host_pointer,
    .release = buffer_release,
};
