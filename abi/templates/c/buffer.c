/* buffer.c - bytes on the device, and events. All work is done when its call returns, so events are born ready. */
#include "plugin.h"

#include <string.h>

/* --- events ------------------------------------------------------------------------------- */

struct lazyt_event_s {
  atomic_uint references;
  lazyt_status_t *outcome; /* NULL = OK */
};

static lazyt_event_t went_well; /* shared by all work that went well, never freed */

static void retain(lazyt_event_t *event) {
  if (event != &went_well) atomic_fetch_add(&event->references, 1);
}

static void release_event(lazyt_event_t *event) {
  if (!event || event == &went_well || atomic_fetch_sub(&event->references, 1) != 1) return;
  acme_status->release(event->outcome);
  acme_host->free(event);
}

lazyt_status_t *acme_done(lazyt_status_t *outcome, lazyt_event_t **out_event) {
  if (!out_event) return outcome;
  lazyt_event_t *event = &went_well;
  if (outcome) {
    event = acme_host->alloc(sizeof *event, sizeof(void *));
    if (!event) return outcome; /* no memory for an event that carries the error: it comes at once */
    atomic_init(&event->references, 1);
    event->outcome = outcome;
  }
  *out_event = event;
  return NULL;
}

lazyt_status_t *acme_first_error(lazyt_events_t waits) {
  for (uint64_t i = 0; i < waits.count; i++)
    if (waits.events[i]->outcome) return acme_status->retain(waits.events[i]->outcome);
  return NULL;
}

static lazyt_status_t *ready(lazyt_event_t *event, uint32_t *out_ready) {
  (void)event;
  *out_ready = 1;
  return NULL;
}

static lazyt_status_t *wait(lazyt_event_t *event, uint64_t timeout_ns) {
  (void)timeout_ns;
  return event->outcome ? acme_status->retain(event->outcome) : NULL;
}

static lazyt_status_t *on_ready(lazyt_event_t *event, lazyt_event_callback_t callback, void *user_data) {
  callback(user_data, event->outcome);
  return NULL;
}

const lazyt_plugin_event_t acme_event_table = {
    .struct_size = sizeof(lazyt_plugin_event_t),
    .ready = ready,
    .wait = wait,
    .on_ready = on_ready,
    .retain = retain,
    .release = release_event,
};

/* --- buffers ------------------------------------------------------------------------------ */

static lazyt_status_t *make(lazyt_device_t *device, uint64_t size, uint64_t alignment, lazyt_buffer_t **out_buffer) {
  lazyt_buffer_t *buffer = acme_host->alloc(sizeof *buffer, sizeof(void *));
  char *data = acme_host->alloc(size, alignment > ACME_ALIGNMENT ? alignment : ACME_ALIGNMENT);
  if (!buffer || !data) {
    acme_host->free(buffer);
    acme_host->free(data);
    return acme_out_of_memory("buffer");
  }
  buffer->device = device;
  buffer->size = size;
  buffer->data = data;
  acme_count(device, (int64_t)size);
  *out_buffer = buffer;
  return NULL;
}

static lazyt_status_t *alloc(lazyt_device_t *device, const lazyt_buffer_desc_t *desc, lazyt_buffer_t **out_buffer) {
  if (desc->memory_space != 0) return acme_error(LAZYT_CODE_INVALID_ARGUMENT, "acme has memory space 0 only");
  return make(device, desc->size_bytes, desc->alignment, out_buffer);
}

static lazyt_status_t *from_host(lazyt_device_t *device, const lazyt_host_bytes_t *bytes, lazyt_buffer_t **out_buffer) {
  lazyt_status_t *status = make(device, bytes->size_bytes, 0, out_buffer);
  if (status) return status;
  if (bytes->size_bytes) memcpy((*out_buffer)->data, bytes->data, bytes->size_bytes);
  if (bytes->done) bytes->done(bytes->done_user_data); /* every sharing mode is a copy here (BUF-8) */
  return NULL;
}

static lazyt_status_t *check_range(const lazyt_buffer_t *buffer, uint64_t offset, uint64_t size) {
  if (offset <= buffer->size && size <= buffer->size - offset) return NULL;
  return acme_error(LAZYT_CODE_OUT_OF_RANGE, "acme: offset and size leave the buffer"); /* BUF-5 */
}

static lazyt_status_t *to_host(lazyt_buffer_t *buffer, uint64_t offset, void *dst, uint64_t size, lazyt_events_t waits,
                               lazyt_event_t **out_event) {
  lazyt_status_t *status = check_range(buffer, offset, size);
  if (status) return status;
  status = acme_first_error(waits); /* BUF-6 */
  if (!status && size) memcpy(dst, buffer->data + offset, size);
  return acme_done(status, out_event);
}

static lazyt_status_t *copy(lazyt_buffer_t *src, uint64_t src_offset, lazyt_buffer_t *dst, uint64_t dst_offset,
                            uint64_t size, lazyt_events_t waits, lazyt_event_t **out_event) {
  lazyt_status_t *status = check_range(src, src_offset, size);
  if (!status) status = check_range(dst, dst_offset, size);
  if (status) return status;
  status = acme_first_error(waits);
  if (!status && size) memmove(dst->data + dst_offset, src->data + src_offset, size);
  return acme_done(status, out_event);
}

static lazyt_status_t *size_of(lazyt_buffer_t *buffer, uint64_t *out_bytes) {
  *out_bytes = buffer->size;
  return NULL;
}

static lazyt_status_t *host_pointer(lazyt_buffer_t *buffer, void **out_pointer) {
  *out_pointer = buffer->data;
  return NULL;
}

static void release(lazyt_buffer_t *buffer) {
  if (!buffer) return;
  acme_count(buffer->device, -(int64_t)buffer->size);
  acme_host->free(buffer->data);
  acme_host->free(buffer);
}

const lazyt_plugin_buffer_t acme_buffer_table = {
    .struct_size = sizeof(lazyt_plugin_buffer_t),
    .alloc = alloc,
    .from_host = from_host,
    .to_host = to_host,
    .copy = copy,
    .size = size_of,
    .host_pointer = host_pointer,
    .release = release,
};
