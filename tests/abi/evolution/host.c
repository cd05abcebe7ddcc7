/* A host in little, compiled with the headers before and after a change: opens the plugin argv[1], uses what its headers
 * know of the change by the rules, then runs a program, whose block is the file argv[2]. Prints what happened. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lazyt/lazyt.h"

struct lazyt_status_s {
  lazyt_code_t code;
  char message[256];
};

static lazyt_status_t *create(lazyt_code_t code, lazyt_string_t message) {
  lazyt_status_t *s = calloc(1, sizeof *s);
  s->code = code;
  snprintf(s->message, sizeof s->message, "%.*s", (int)message.size, message.data);
  return s;
}
static void annotate(lazyt_status_t *s, lazyt_string_t where, lazyt_string_t detail) { (void)s, (void)where, (void)detail; }
static lazyt_code_t code(const lazyt_status_t *s) { return s ? s->code : LAZYT_CODE_OK; }
static lazyt_string_t message(const lazyt_status_t *s) { return lazyt_string(s->message, strlen(s->message)); }
static uint64_t note_count(const lazyt_status_t *s) { return (void)s, 0; }
static lazyt_status_t *retain(lazyt_status_t *s) { return s; }
static void release(lazyt_status_t *s) { (void)s; } /* the process is short */
static const lazyt_host_status_t status_table = {.struct_size = sizeof status_table, .create = create, .annotate = annotate,
    .code = code, .message = message, .note_count = note_count, .retain = retain, .release = release};

static void log_line(lazyt_log_level_t level, lazyt_string_t text) { (void)level, printf("said: %.*s\n", (int)text.size, text.data); }
static void *alloc(uint64_t size, uint64_t alignment) {
  alignment = alignment < 16 ? 16 : alignment;
  return aligned_alloc(alignment, (size + alignment) / alignment * alignment);
}
static uint32_t thread_count(void) { return 1; }
static void parallel_for(uint64_t count, lazyt_parallel_body_t body, void *data) {
  for (uint64_t i = 0; i < count; i++) body(data, i);
}
static uint64_t begin(lazyt_string_t name) { return (void)name, 0; }
static void end(uint64_t token) { (void)token; }
static void counted(lazyt_string_t name, int64_t delta) { (void)name, (void)delta; }
static uint32_t cancelled(void) { return 0; }
static lazyt_status_t *option(lazyt_string_t plugin, lazyt_string_t name, lazyt_string_t *out) {
  (void)plugin, (void)name;
  *out = lazyt_string(NULL, 0);
  return NULL;
}
static const lazyt_host_services_t services_table = {.struct_size = sizeof services_table, .log = log_line, .alloc = alloc,
    .free = free, .thread_count = thread_count, .parallel_for = parallel_for, .trace_begin = begin, .trace_end = end,
    .count = counted, .cancelled = cancelled, .option = option};
static const void *host_extension(lazyt_string_t id) { return (void)id, NULL; }
static const lazyt_host_t host = {.struct_size = sizeof host, .abi_major = LAZYT_ABI_MAJOR, .abi_minor = LAZYT_ABI_MINOR,
    .abi_draft = LAZYT_ABI_DRAFT, .version = LAZYT_STR("drill"), .status = &status_table, .services = &services_table,
    .get_extension = host_extension};

static void must(const char *what, lazyt_status_t *status) {
  if (!status) return;
  printf("%s failed: %s\n", what, status->message);
  exit(1);
}

static void *read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) exit(2);
  fseek(f, 0, SEEK_END);
  const long size = ftell(f);
  rewind(f);
  void *block = alloc((uint64_t)size, 64);
  if (fread(block, 1, (size_t)size, f) != (size_t)size) exit(2);
  fclose(f);
  return block;
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  lazyt_plugin_entry_v1_t entry;
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
  *(void **)&entry = dlsym(library, LAZYT_PLUGIN_ENTRY_NAME);
  const lazyt_plugin_t *p = NULL;
  must("entry", entry(&host, &p));
  must("init", p->init());
  lazyt_device_t *device = NULL;
  must("open", p->device->open(0, &device));
  const float values[4] = {-1, 2, -3, 4};
  lazyt_host_bytes_t bytes = {.struct_size = sizeof bytes, .data = values, .size_bytes = sizeof values};
  lazyt_buffer_t *in = NULL, *out = NULL;
  must("from_host", p->buffer->from_host(device, &bytes, &in));
  lazyt_buffer_desc_t desc = {.struct_size = sizeof desc, .size_bytes = sizeof values};
  must("alloc", p->buffer->alloc(device, &desc, &out));

#if AFTER && defined CHANGE_slot
  /* The table of a plugin of minor 0 ends before the slot (C-1). */
  if (LAZYT_HAS_FIELD(p->buffer, lazyt_plugin_buffer_t, prefetch) && p->buffer->prefetch) must("prefetch", p->buffer->prefetch(in));
  else puts("no prefetch");
#endif
#if AFTER && defined CHANGE_deprecation
  if (LAZYT_HAS_FIELD(p->device, lazyt_plugin_device_t, trim_to) && p->device->trim_to) must("trim_to", p->device->trim_to(device, 0));
  else
#endif
    if (p->device->trim) must("trim", p->device->trim(device));
#if AFTER && defined CHANGE_extension
  const lazyt_drill_t *drill = p->get_extension ? p->get_extension(lazyt_string(LAZYT_EXTENSION_DRILL, 13)) : NULL;
  if (drill) printf("drill: %u\n", drill->answer(41));
  else puts("no drill");
#endif

  const lazyt_program_t *program = read_file(argv[2]);
  lazyt_answer_t answers[8];
  memset(answers, 0, sizeof answers);
  for (int i = 0; i < 8; i++) answers[i].struct_size = sizeof answers[i];
  must("query", p->capability->query(device, program, answers, program->nodes.count, sizeof answers[0]));
  if (answers[0].kind != LAZYT_ANSWER_TAKE) {
    switch (answers[0].reason) {
#if AFTER && defined CHANGE_enum
      case LAZYT_REASON_POWER: puts("refused for want of power"); return 0;
#endif
      default: /* C-10: of a later minor; what matters is that it is refused, and the detail says why */
        printf("refused for reason %d: %.*s\n", answers[0].reason, (int)answers[0].detail.size, answers[0].detail.data);
        return 0;
    }
  }
  lazyt_compile_args_t compile = {.struct_size = sizeof compile, .program = program};
  lazyt_executable_t *executable = NULL;
  must("compile", p->executable->compile(device, &compile, &executable));
  lazyt_execute_input_t input = {.buffer = in};
  lazyt_execute_args_t args = {.struct_size = sizeof args, .inputs = &input, .input_count = 1, .input_stride = sizeof input,
                               .outputs = &out, .output_count = 1};
#if AFTER && defined CHANGE_field
  args.priority = 7;
#endif
  lazyt_event_t *event = NULL;
  must("execute", p->executable->execute(executable, &args, &event));
  must("wait", p->event->wait(event, LAZYT_WAIT_FOREVER));
  float back[4] = {0};
  must("to_host", p->buffer->to_host(out, 0, back, sizeof back, (lazyt_events_t){NULL, 0}, NULL));
  printf("ran: %g %g %g %g\n", back[0], back[1], back[2], back[3]);
  p->event->release(event);
  p->executable->release(executable);
  p->buffer->release(in);
  p->buffer->release(out);
  p->device->close(device);
  p->shutdown();
  return dlclose(library);
}
