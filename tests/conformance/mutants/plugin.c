/* plugin.c - a small correct plugin, and, with -DMUTANT=n, the same with one planted defect.
 *
 * It computes f32 add, mul, relu, permute and mm on the host's memory, on one thread of its own, so that
 * its events are not ready at once. mutants.py says which rule each mutant breaks. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "lazyt/lazyt.h"

#ifndef MUTANT
#define MUTANT 0
#endif
#define IS(n) (MUTANT == (n))

static const lazyt_host_status_t* status_table;
static const lazyt_host_services_t* services;

static lazyt_status_t* error(lazyt_code_t code, const char* message) {
  return status_table->create(code, lazyt_string(message, strlen(message)));
}
static lazyt_status_t* no_memory(void) {
  return error(LAZYT_CODE_RESOURCE_EXHAUSTED, "host memory is exhausted");
}

static void* zalloc(uint64_t size) {
  void* p = services->alloc(size, 16);
  if (p) memset(p, 0, size);
  return p;
}

/* --- events ------------------------------------------------------------------------------- */

struct callback {
  lazyt_event_callback_t call;
  void* user_data;
  struct callback* next;
};

struct lazyt_event_s {
  atomic_uint references;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int is_ready;
  unsigned asked;
  lazyt_status_t* status;
  struct callback* callbacks;
};

static lazyt_event_t* event_new(void) {
  lazyt_event_t* e = zalloc(sizeof *e);
  if (!e) return NULL;
  atomic_init(&e->references, 1);
  pthread_mutex_init(&e->mutex, NULL);
  pthread_cond_init(&e->changed, NULL);
  return e;
}

static void event_retain(lazyt_event_t* e) { atomic_fetch_add(&e->references, 1); }

static void event_release(lazyt_event_t* e) {
  if (!e || atomic_fetch_sub(&e->references, 1) != 1) return;
#if !IS(16)
  status_table->release(e->status);
#endif
  pthread_mutex_destroy(&e->mutex);
  pthread_cond_destroy(&e->changed);
  services->free(e);
}

static void event_complete(lazyt_event_t* e, lazyt_status_t* status) {
  pthread_mutex_lock(&e->mutex);
  e->status = status;
  e->is_ready = 1;
  struct callback* list = e->callbacks;
  e->callbacks = NULL;
  pthread_cond_broadcast(&e->changed);
  pthread_mutex_unlock(&e->mutex);
  while (list) {
    struct callback* next = list->next;
    list->call(list->user_data, status);
#if IS(1)
    list->call(list->user_data, status);
#endif
    services->free(list);
    list = next;
  }
}

static lazyt_status_t* event_ready(lazyt_event_t* e, uint32_t* out_ready) {
  pthread_mutex_lock(&e->mutex);
  *out_ready = (uint32_t)e->is_ready;
#if IS(19)
  if (++e->asked == 20) *out_ready = 0;
#endif
  pthread_mutex_unlock(&e->mutex);
  return NULL;
}

static lazyt_status_t* event_wait(lazyt_event_t* e, uint64_t timeout_ns) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  const uint64_t ns = (uint64_t)until.tv_nsec + timeout_ns % UINT64_C(1000000000);
  until.tv_sec += (time_t)(timeout_ns / UINT64_C(1000000000) + ns / UINT64_C(1000000000));
  until.tv_nsec = (long)(ns % UINT64_C(1000000000));
  const int forever = timeout_ns > UINT64_C(31536000000000000) || IS(2);
  int late = 0;
  pthread_mutex_lock(&e->mutex);
  while (!e->is_ready && !late) {
    if (forever)
      pthread_cond_wait(&e->changed, &e->mutex);
    else
      late = pthread_cond_timedwait(&e->changed, &e->mutex, &until) != 0;
  }
  const int ready = e->is_ready;
  pthread_mutex_unlock(&e->mutex);
  if (!ready) return error(LAZYT_CODE_DEADLINE_EXCEEDED, "the event is not ready yet");
  return e->status ? status_table->retain(e->status) : NULL;
}

static lazyt_status_t* event_on_ready(lazyt_event_t* e, lazyt_event_callback_t call, void* user_data) {
  pthread_mutex_lock(&e->mutex);
  if (!e->is_ready) {
    struct callback* c = services->alloc(sizeof *c, 16);
    if (c) {
      *c = (struct callback){call, user_data, e->callbacks};
      e->callbacks = c;
    }
    pthread_mutex_unlock(&e->mutex);
    return c ? NULL : no_memory();
  }
  pthread_mutex_unlock(&e->mutex);
#if !IS(7)
  call(user_data, e->status);
#endif
  return NULL;
}

/* Waits; the first error (given), or NULL. */
static lazyt_status_t* take_waits(lazyt_events_t waits) {
  lazyt_status_t* first = NULL;
  for (uint64_t i = 0; i < waits.count; i++) {
    lazyt_status_t* status = event_wait(waits.events[i], LAZYT_WAIT_FOREVER);
    if (first)
      status_table->release(status);
    else
      first = status;
  }
  return first;
}

/* --- devices and buffers ------------------------------------------------------------------ */

struct job {
  lazyt_executable_t* executable;
  lazyt_buffer_t **inputs, **outputs;
  lazyt_event_t** waits;
  uint64_t wait_count;
  lazyt_event_t* done;
  struct job* next;
};

struct lazyt_device_s {
  atomic_uint_least64_t bytes, peak;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct job *first, **last;
  int stop;
};

struct lazyt_buffer_s {
  lazyt_device_t* device;
  uint64_t size;
  unsigned char* data;
  int owned;
  lazyt_host_bytes_done_t done;
  void* done_user_data;
};

static lazyt_status_t* device_count(uint32_t* out) { return *out = 1, NULL; }

static lazyt_status_t* check_index(uint32_t index) {
  return index == 0 ? NULL : error(LAZYT_CODE_INVALID_ARGUMENT, "there is one device, number 0");
}

static lazyt_status_t* device_describe(uint32_t index, lazyt_device_info_t* out) {
  static const lazyt_string_t name = LAZYT_STR("reference device"), vendor = LAZYT_STR("lazyt");
  lazyt_status_t* status = check_index(index);
#if IS(8)
  /* "OK" as an error object: the host sees a failure without a cause. */
  if (status) {
    status_table->release(status);
    status = error(LAZYT_CODE_OK, "fine");
  }
#endif
  if (status) return status;
  out->name = name;
  out->vendor = vendor;
  out->flags = LAZYT_DEVICE_HOST_VISIBLE | (IS(20) ? LAZYT_DEVICE_SYNCHRONOUS : 0);
  out->alignment = 64;
  return NULL;
}

static void* work(void* device);

static lazyt_status_t* device_open(uint32_t index, lazyt_device_t** out) {
  lazyt_status_t* status = check_index(index);
  if (status) return status;
  lazyt_device_t* d = zalloc(sizeof *d);
  if (!d) return no_memory();
  pthread_mutex_init(&d->mutex, NULL);
  pthread_cond_init(&d->changed, NULL);
  d->last = &d->first;
  if (pthread_create(&d->thread, NULL, work, d) != 0) {
    services->free(d);
    return no_memory();
  }
  *out = d;
  return NULL;
}

static void device_close(lazyt_device_t* d) {
  if (!d) return;
  pthread_mutex_lock(&d->mutex);
  d->stop = 1;
  pthread_cond_broadcast(&d->changed);
  pthread_mutex_unlock(&d->mutex);
  pthread_join(d->thread, NULL);
  pthread_mutex_destroy(&d->mutex);
  pthread_cond_destroy(&d->changed);
  services->free(d);
}

static lazyt_status_t* device_stats(lazyt_device_t* d, lazyt_memory_stats_t* out) {
  out->bytes_in_use = out->bytes_reserved = atomic_load(&d->bytes);
  out->peak_bytes_in_use = atomic_load(&d->peak);
  out->derived_bytes = 0;
  return NULL;
}

static lazyt_status_t* buffer_new(lazyt_device_t* d, uint64_t size, uint64_t alignment, void* shared,
                                  lazyt_buffer_t** out) {
  lazyt_buffer_t* b = zalloc(sizeof *b);
  if (!b) return no_memory();
  b->device = d;
  b->size = size;
  b->owned = !shared;
  b->data = shared ? shared : services->alloc(size, alignment > 64 ? alignment : 64);
  if (!b->data) {
    services->free(b);
    return no_memory();
  }
  const uint64_t now = atomic_fetch_add(&d->bytes, size) + size;
  uint64_t peak = atomic_load(&d->peak);
  while (now > peak && !atomic_compare_exchange_weak(&d->peak, &peak, now)) {
  }
  *out = b;
  return NULL;
}

static lazyt_status_t* buffer_alloc(lazyt_device_t* d, const lazyt_buffer_desc_t* desc,
                                    lazyt_buffer_t** out) {
  if (desc->memory_space != 0) return error(LAZYT_CODE_INVALID_ARGUMENT, "there is memory space 0 only");
  return buffer_new(d, desc->size_bytes, desc->alignment, NULL, out);
}

static lazyt_status_t* buffer_from_host(lazyt_device_t* d, const lazyt_host_bytes_t* bytes,
                                        lazyt_buffer_t** out) {
  const int share = bytes->size_bytes && (bytes->sharing >= LAZYT_SHARING_ALIAS ||
                                          (IS(3) && bytes->sharing == LAZYT_SHARING_COPY));
  lazyt_status_t* status =
      buffer_new(d, bytes->size_bytes, 0, share ? (void*)(uintptr_t)bytes->data : NULL, out);
  if (status) return status;
  if (share && bytes->sharing >= LAZYT_SHARING_ALIAS) {
    (*out)->done = bytes->done;
    (*out)->done_user_data = bytes->done_user_data;
#if IS(17)
    if (bytes->done) bytes->done(bytes->done_user_data);
#endif
    return NULL;
  }
  if (!share && bytes->size_bytes) memcpy((*out)->data, bytes->data, bytes->size_bytes);
  if (bytes->done) bytes->done(bytes->done_user_data);
  return NULL;
}

static lazyt_status_t* check_range(const lazyt_buffer_t* b, uint64_t offset, uint64_t size) {
  if (offset <= b->size && size <= b->size - offset) return NULL;
  return error(LAZYT_CODE_OUT_OF_RANGE, "offset and size leave the buffer");
}

static lazyt_status_t* finish(lazyt_status_t* status, lazyt_event_t** out_event) {
  if (!out_event) return status;
  lazyt_event_t* e = event_new();
  if (!e) return status ? status : no_memory();
  event_complete(e, status);
  *out_event = e;
  return NULL;
}

static lazyt_status_t* buffer_to_host(lazyt_buffer_t* b, uint64_t offset, void* dst, uint64_t size,
                                      lazyt_events_t waits, lazyt_event_t** out_event) {
  lazyt_status_t* status = check_range(b, offset, size);
#if IS(9)
  if (status) {
    status_table->release(status);
    return NULL;
  }
#endif
  if (status) return status;
  status = take_waits(waits);
#if IS(15)
  status_table->release(status);
  status = NULL;
#endif
  if (!status && size) memcpy(dst, b->data + offset, size);
  return finish(status, out_event);
}

static lazyt_status_t* buffer_copy(lazyt_buffer_t* src, uint64_t src_offset, lazyt_buffer_t* dst,
                                   uint64_t dst_offset, uint64_t size, lazyt_events_t waits,
                                   lazyt_event_t** out_event) {
  lazyt_status_t* status = check_range(src, src_offset, size);
  if (!status) status = check_range(dst, dst_offset, size);
  if (status) return status;
  status = take_waits(waits);
  if (!status && size) memmove(dst->data + dst_offset, src->data + src_offset, size);
  return finish(status, out_event);
}

static lazyt_status_t* buffer_size(lazyt_buffer_t* b, uint64_t* out) { return *out = b->size, NULL; }
static lazyt_status_t* buffer_host_pointer(lazyt_buffer_t* b, void** out) { return *out = b->data, NULL; }

static void buffer_release(lazyt_buffer_t* b) {
  if (!b) return;
  atomic_fetch_sub(&b->device->bytes, b->size);
  if (b->owned) services->free(b->data);
  if (b->done) b->done(b->done_user_data);
  services->free(b);
}

/* --- what it takes ------------------------------------------------------------------------ */

enum { ADD = 1, MUL, RELU, MM, PERMUTE };

static int is_name(lazyt_string_t s, const char* name) {
  return s.size == strlen(name) && memcmp(s.data, name, s.size) == 0;
}

static int kind_of(const lazyt_program_t* p, const lazyt_node_t* node) {
  static const struct {
    const char *name, *overload;
    int kind;
  } known[] = {{"aten::add", "Tensor", ADD},
               {"aten::mul", "Tensor", MUL},
               {"aten::relu", "", RELU},
               {"aten::mm", "", MM},
               {"aten::permute", "", PERMUTE}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (is_name(lazyt_text(p, node->name), known[i].name) &&
        is_name(lazyt_text(p, node->overload), known[i].overload))
      return known[i].kind;
  return 0;
}

static int plain(const lazyt_program_t* p, uint64_t value) {
  const lazyt_value_t* v = lazyt_value(p, value);
  return v->dtype == LAZYT_DTYPE_FLOAT32 && v->rank <= 4 && !(v->flags & LAZYT_VALUE_HOST_SCALAR);
}

static lazyt_reason_t refusal(const lazyt_program_t* p, const lazyt_node_t* node) {
  const int kind = kind_of(p, node);
  if (!kind) return LAZYT_REASON_UNKNOWN_OPERATOR;
  const uint32_t operands = kind == RELU || kind == PERMUTE ? 1 : 2;
  for (uint32_t i = 0; i < operands; i++) {
    const lazyt_arg_t* arg = lazyt_arg(p, node->args + i);
    if (arg->kind != LAZYT_ARG_VALUE || !plain(p, arg->payload)) return LAZYT_REASON_DTYPE;
  }
  if (!plain(p, node->results)) return LAZYT_REASON_DTYPE;
  if (kind == ADD) {
    const lazyt_arg_t* alpha = lazyt_arg(p, node->args + 2);
    if (alpha->kind != LAZYT_ARG_INT || alpha->payload != 1) return LAZYT_REASON_ARGUMENT;
  }
  return LAZYT_REASON_NONE;
}

static lazyt_status_t* query(lazyt_device_t* d, const lazyt_program_t* p, lazyt_answer_t* answers,
                             uint64_t count, uint64_t stride) {
  static const lazyt_string_t detail = LAZYT_STR("f32 add, mul, relu, permute and mm are taken");
  static atomic_uint calls;
  const unsigned call = atomic_fetch_add(&calls, 1);
  (void)d;
  (void)call;
  for (uint64_t i = 0; i < count; i++) {
    lazyt_answer_t* a = (lazyt_answer_t*)((char*)answers + i * (IS(18) ? sizeof(lazyt_answer_t) : stride));
    a->reason = refusal(p, lazyt_node(p, i));
    a->kind = a->reason == LAZYT_REASON_NONE ? LAZYT_ANSWER_TAKE : LAZYT_ANSWER_REFUSE;
#if IS(6)
    /* Takes what it cannot compute, now and then; only in programs of several nodes. */
    if (count > 1 && call % 2 && kind_of(p, lazyt_node(p, i)) == MUL) a->kind = LAZYT_ANSWER_TAKE;
#endif
    if (a->kind == LAZYT_ANSWER_REFUSE) a->detail = detail;
  }
  return NULL;
}

/* --- executables -------------------------------------------------------------------------- */

struct lazyt_executable_s {
  atomic_uint references;
  lazyt_device_t* device;
  lazyt_program_t* program; /* a copy of the block */
  unsigned runs;
};

/* A value while it is computed: elements `strides` apart. */
struct tensor {
  float* data;
  int64_t strides[4];
};

static void row_major(const lazyt_program_t* p, const lazyt_value_t* v, int64_t* strides) {
  int64_t step = 1;
  for (uint32_t i = v->rank; i-- > 0;) {
    strides[i] = step;
    step *= lazyt_ints(p, v->dims)[i] > 1 ? lazyt_ints(p, v->dims)[i] : 1;
  }
}

static void given_strides(const lazyt_program_t* p, const lazyt_value_t* v, int64_t* strides) {
  if (v->strides == LAZYT_NONE)
    row_major(p, v, strides);
  else
    memcpy(strides, lazyt_ints(p, v->strides), v->rank * sizeof *strides);
}

static uint64_t span_bytes(const lazyt_program_t* p, const lazyt_value_t* v) {
  int64_t strides[4] = {0}, last = 0;
  given_strides(p, v, strides);
  for (uint32_t i = 0; i < v->rank; i++) {
    const int64_t dim = lazyt_ints(p, v->dims)[i];
    if (dim == 0) return 0;
    last += (dim - 1) * strides[i];
  }
  return (uint64_t)(last + 1) * 4;
}

static void release_executable(lazyt_executable_t* x) {
  if (!x || atomic_fetch_sub(&x->references, 1) != 1) return;
#if !IS(12)
  services->free(x->program);
#endif
  services->free(x);
}

static lazyt_status_t* compile(lazyt_device_t* d, const lazyt_compile_args_t* args,
                               lazyt_executable_t** out) {
  const lazyt_program_t* p = args->program;
  for (uint64_t i = 0; i < p->nodes.count; i++)
    if (refusal(p, lazyt_node(p, i)))
      return error(LAZYT_CODE_UNIMPLEMENTED, "a node of the program was refused");
  for (uint64_t i = 0; i < p->values.count; i++)
    if (!plain(p, i)) return error(LAZYT_CODE_UNIMPLEMENTED, "f32 tensors of rank 4 or less are taken");
  lazyt_executable_t* x = zalloc(sizeof *x);
  if (!x) return no_memory();
  atomic_init(&x->references, 1);
  x->device = d;
#if IS(12)
  x->program = (lazyt_program_t*)(uintptr_t)p;
#else
  x->program = services->alloc(p->total_size, 16);
  if (!x->program) {
    services->free(x);
    return no_memory();
  }
  memcpy(x->program, p, p->total_size);
#endif
  *out = x;
  return NULL;
}

static lazyt_status_t* output_meta(lazyt_executable_t* x, uint64_t index, lazyt_output_meta_t* out) {
  if (index >= x->program->outputs.count) return error(LAZYT_CODE_INVALID_ARGUMENT, "no such output");
  out->size_bytes = span_bytes(x->program, lazyt_value(x->program, lazyt_output(x->program, index)->value));
  out->alignment = 0;
  out->memory_space = 0;
  out->opaque = 0;
  return NULL;
}

static lazyt_status_t* memory(lazyt_executable_t* x, lazyt_executable_memory_t* out) {
  out->code_bytes = sizeof *x + x->program->total_size;
  out->scratch_bytes = 0;
  return NULL;
}

/* out[i] = f(a[i], b[i]) with broadcasting; strides of a dim of 1 become 0. */
static void aligned(const lazyt_program_t* p, const lazyt_value_t* v, const struct tensor* t, uint32_t rank,
                    int64_t* strides) {
  for (uint32_t i = 0; i < 4; i++) strides[i] = 0;
  for (uint32_t i = 0; i < v->rank; i++)
    strides[rank - v->rank + i] = lazyt_ints(p, v->dims)[i] == 1 ? 0 : t->strides[i];
}

static void run_node(const lazyt_program_t* p, const lazyt_node_t* node, struct tensor* values) {
  const int kind = kind_of(p, node);
  const uint64_t ai = lazyt_arg(p, node->args)->payload;
  const uint64_t bi = kind == RELU || kind == PERMUTE ? ai : lazyt_arg(p, node->args + 1)->payload;
  const lazyt_value_t *av = lazyt_value(p, ai), *bv = lazyt_value(p, bi), *ov = lazyt_value(p, node->results);
  struct tensor *a = &values[ai], *b = &values[bi], *o = &values[node->results];
  const int64_t* od = lazyt_ints(p, ov->dims);
  int64_t dims[4] = {1, 1, 1, 1}, as[4], bs[4], os[4];
  memcpy(dims, od, ov->rank * sizeof *dims);
  aligned(p, ov, o, ov->rank, os);
  if (kind == MM) {
    const int64_t inner = lazyt_ints(p, av->dims)[1];
    for (int64_t i = 0; i < dims[0]; i++)
      for (int64_t j = 0; j < dims[1]; j++) {
        float sum = 0;
        for (int64_t k = 0; k < inner; k++)
          sum +=
              a->data[i * a->strides[0] + k * a->strides[1]] * b->data[k * b->strides[0] + j * b->strides[1]];
        o->data[i * os[0] + j * os[1]] = sum;
      }
    return;
  }
  if (kind == PERMUTE) {
    const int64_t* axes = lazyt_ints(p, lazyt_arg(p, node->args + 1)->payload);
    for (uint32_t i = 0; i < 4; i++) as[i] = i < ov->rank ? a->strides[axes[i]] : 0;
    memcpy(bs, as, sizeof bs);
  } else {
    aligned(p, av, a, ov->rank, as);
    aligned(p, bv, b, ov->rank, bs);
  }
  for (int64_t i = 0; i < dims[0]; i++)
    for (int64_t j = 0; j < dims[1]; j++)
      for (int64_t k = 0; k < dims[2]; k++)
        for (int64_t l = 0; l < dims[3]; l++) {
          const float x = a->data[i * as[0] + j * as[1] + k * as[2] + l * as[3]];
          const float y = b->data[i * bs[0] + j * bs[1] + k * bs[2] + l * bs[3]];
          float* z = &o->data[i * os[0] + j * os[1] + k * os[2] + l * os[3]];
          *z = kind == ADD ? x + y : kind == MUL ? x * y : kind == RELU ? (x > 0 || x != x ? x : 0) : x;
        }
}

static lazyt_status_t* run(const struct job* job) {
  lazyt_executable_t* x = job->executable;
  const lazyt_program_t* p = x->program;
  for (uint64_t i = 0; i < p->outputs.count; i++)
    if (job->outputs[i]->size < span_bytes(p, lazyt_value(p, lazyt_output(p, i)->value)))
      return error(LAZYT_CODE_INVALID_ARGUMENT, "an output's buffer is smaller than its output_meta says");
  uint64_t scratch = 64;
  for (uint64_t i = 0; i < p->values.count; i++)
    scratch += 4 * (uint64_t)lazyt_value_numel(p, lazyt_value(p, i)) + 16;
  struct tensor* values = zalloc(p->values.count * sizeof *values + 16);
  char* memory = values ? services->alloc(scratch, 16) : NULL;
  if (!memory) {
#if IS(5)
    if (p->outputs.count && lazyt_output(p, 0)->donor != LAZYT_NONE)
      memset(job->outputs[0]->data, 0, job->outputs[0]->size);
#endif
    services->free(values);
    return no_memory();
  }
  char* at = memory;
  for (uint64_t i = 0; i < p->values.count; i++) {
    row_major(p, lazyt_value(p, i), values[i].strides);
    values[i].data = (float*)(void*)at;
    at += (4 * (uint64_t)lazyt_value_numel(p, lazyt_value(p, i)) + 15) / 16 * 16;
  }
  for (uint64_t i = 0; i < p->inputs.count; i++) {
    const uint32_t value = lazyt_input(p, i)->value;
    values[value].data = (float*)(void*)job->inputs[i]->data;
    given_strides(p, lazyt_value(p, value), values[value].strides);
  }
  for (uint64_t i = 0; i < p->constants.count; i++) {
    const lazyt_constant_t* c = lazyt_constant(p, i);
    values[c->value].data = (float*)(void*)((char*)(uintptr_t)p + p->data.offset + c->offset);
    given_strides(p, lazyt_value(p, c->value), values[c->value].strides);
  }
  for (uint64_t i = 0; i < p->nodes.count; i++) run_node(p, lazyt_node(p, i), values);
  for (uint64_t i = 0; i < p->outputs.count; i++) {
    const uint32_t value = lazyt_output(p, i)->value;
    const lazyt_value_t* v = lazyt_value(p, value);
    int64_t dims[4] = {1, 1, 1, 1}, from[4] = {0}, to[4] = {0};
    memcpy(dims, lazyt_ints(p, v->dims), v->rank * sizeof *dims);
    memcpy(from, values[value].strides, v->rank * sizeof *from);
#if IS(14)
    row_major(p, v, to);
#else
    given_strides(p, v, to);
#endif
    float* data = (float*)(void*)job->outputs[i]->data;
    for (int64_t a = 0; a < dims[0]; a++)
      for (int64_t b = 0; b < dims[1]; b++)
        for (int64_t c = 0; c < dims[2]; c++)
          for (int64_t d = 0; d < dims[3]; d++)
            data[a * to[0] + b * to[1] + c * to[2] + d * to[3]] =
                values[value].data[a * from[0] + b * from[1] + c * from[2] + d * from[3]];
#if IS(4)
    if (job->outputs[i]->size) job->outputs[i]->data[job->outputs[i]->size] = 0;
#endif
#if IS(11)
    /* The tenth run is another. */
    if (x->runs == 9 && p->nodes.count && kind_of(p, lazyt_node(p, 0)) == MM && job->outputs[i]->size)
      data[0] += 1;
#endif
  }
#if IS(13)
  /* Uses an input as scratch although it was not donated: its last byte changes. */
  if (p->nodes.count == 4 && job->inputs[0]->size) job->inputs[0]->data[job->inputs[0]->size - 1] ^= 1;
#endif
  x->runs++;
  services->free(memory);
  services->free(values);
  return NULL;
}

static void free_job(struct job* job) {
  for (uint64_t i = 0; i < job->wait_count; i++) event_release(job->waits[i]);
  release_executable(job->executable);
  services->free(job);
}

static void* work(void* pointer) {
  lazyt_device_t* d = pointer;
  while (1) {
    pthread_mutex_lock(&d->mutex);
    while (!d->first && !d->stop) pthread_cond_wait(&d->changed, &d->mutex);
    struct job* job = d->first;
    if (job && !(d->first = job->next)) d->last = &d->first;
    pthread_mutex_unlock(&d->mutex);
    if (!job) return NULL;
    lazyt_status_t* status = take_waits((lazyt_events_t){job->waits, job->wait_count});
    if (!status) status = run(job);
    lazyt_event_t* done = job->done;
    free_job(job);
    event_complete(done, status);
    event_release(done);
  }
}

static lazyt_status_t* execute(lazyt_executable_t* x, const lazyt_execute_args_t* args,
                               lazyt_event_t** out_event) {
  const lazyt_program_t* p = x->program;
  if (args->input_count != p->inputs.count || args->output_count != p->outputs.count)
    return error(LAZYT_CODE_INVALID_ARGUMENT, "the program has another number of inputs or outputs");
  const uint64_t pointers = args->input_count + args->output_count + args->waits.count;
  struct job* job = zalloc(sizeof *job + pointers * sizeof(void*));
  lazyt_event_t* done = job ? event_new() : NULL;
  if (!done) {
    services->free(job);
    return no_memory();
  }
  job->inputs = (lazyt_buffer_t**)(void*)(job + 1);
  job->outputs = job->inputs + args->input_count;
  job->waits = (lazyt_event_t**)(void*)(job->outputs + args->output_count);
  for (uint64_t i = 0; i < args->input_count; i++)
    job->inputs[i] =
        ((const lazyt_execute_input_t*)(const void*)((const char*)args->inputs + i * args->input_stride))
            ->buffer;
  for (uint64_t i = 0; i < args->output_count; i++) job->outputs[i] = args->outputs[i];
  job->wait_count = args->waits.count;
  for (uint64_t i = 0; i < args->waits.count; i++) {
    job->waits[i] = args->waits.events[i];
    event_retain(job->waits[i]);
  }
  job->executable = x;
  atomic_fetch_add(&x->references, 1);
  job->done = done;
  event_retain(done);
  lazyt_device_t* d = x->device;
  pthread_mutex_lock(&d->mutex);
  *d->last = job;
  d->last = &job->next;
  pthread_cond_signal(&d->changed);
  pthread_mutex_unlock(&d->mutex);
  *out_event = done;
  return NULL;
}

/* --- the plugin --------------------------------------------------------------------------- */

static uint64_t handshake(uint64_t seed, lazyt_handshake_t* out) {
  lazyt_handshake_fill(out);
  return seed ^ LAZYT_HANDSHAKE_MASK;
}
static lazyt_status_t* init(void) { return NULL; }
static void shutdown(void) {}

static lazyt_status_t* info(lazyt_plugin_info_t* out) {
  static const lazyt_string_t name = LAZYT_STR("reference"), version = LAZYT_STR("1"),
                              vendor = LAZYT_STR("lazyt"),
                              description = LAZYT_STR("a few operators on the host, for tests of the suite");
  out->name = name;
  out->version = version;
  out->description = description;
  out->vendor = vendor;
  out->score = -200;
  return NULL;
}

static const lazyt_plugin_device_t device_table = {.struct_size = sizeof device_table,
                                                   .count = device_count,
                                                   .describe = device_describe,
                                                   .open = device_open,
                                                   .close = device_close,
                                                   .memory_stats = device_stats};
static const lazyt_plugin_buffer_t buffer_table = {.struct_size = sizeof buffer_table,
                                                   .alloc = buffer_alloc,
                                                   .from_host = buffer_from_host,
                                                   .to_host = buffer_to_host,
                                                   .copy = buffer_copy,
                                                   .size = buffer_size,
                                                   .host_pointer = buffer_host_pointer,
                                                   .release = buffer_release};
static const lazyt_plugin_event_t event_table = {.struct_size = sizeof event_table,
                                                 .ready = event_ready,
                                                 .wait = event_wait,
                                                 .on_ready = event_on_ready,
                                                 .retain = event_retain,
                                                 .release = event_release};
static const lazyt_plugin_capability_t capability_table = {.struct_size = sizeof capability_table,
                                                           .query = query};
static const lazyt_plugin_executable_t executable_table = {.struct_size = sizeof executable_table,
                                                           .compile = compile,
                                                           .output_meta = output_meta,
                                                           .memory = memory,
                                                           .execute = execute,
                                                           .release = release_executable};

static const lazyt_plugin_t table = {.struct_size = sizeof table,
                                     .abi_major = LAZYT_ABI_MAJOR,
                                     .abi_minor = LAZYT_ABI_MINOR,
                                     .abi_draft = LAZYT_ABI_DRAFT,
                                     .handshake = handshake,
                                     .init = init,
                                     .shutdown = shutdown,
                                     .info = info,
                                     .device = &device_table,
                                     .buffer = &buffer_table,
                                     .event = &event_table,
                                     .capability = &capability_table,
                                     .executable = &executable_table};

lazyt_status_t* lazyt_plugin_entry_v1(const lazyt_host_t* host, const lazyt_plugin_t** out_plugin) {
  status_table = host->status;
  services = host->services;
  *out_plugin = &table;
  return NULL;
}

#if IS(10)
LAZYT_EXPORT int reference_debug_level(void);
int reference_debug_level(void) { return 0; }
#endif
