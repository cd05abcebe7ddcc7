/* The reference plugin of the suite, with what CHANGE adds if the headers have it. Compiled with the headers before and
 * after the change: nothing here asks which ones but by what they define, as a vendor's source would. */
#define lazyt_plugin_entry_v1 reference_entry
#undef LAZYT_EXPORT
#include "../../conformance/mutants/plugin.c"
#undef lazyt_plugin_entry_v1

static lazyt_plugin_t own;
static lazyt_plugin_device_t own_device;
static lazyt_plugin_buffer_t own_buffer;
static lazyt_plugin_capability_t own_capability;
static lazyt_plugin_executable_t own_executable;

static void say(const char *text) { services->log(LAZYT_LOG_INFO, lazyt_string(text, strlen(text))); }

static lazyt_status_t *trimmed(lazyt_device_t *device) {
  (void)device;
  say("trim");
  return NULL;
}

#if AFTER && defined CHANGE_slot
static lazyt_status_t *prefetch(lazyt_buffer_t *buffer) {
  (void)buffer;
  say("prefetch");
  return NULL;
}
#endif
#if AFTER && defined CHANGE_deprecation
static lazyt_status_t *trim_to(lazyt_device_t *device, uint64_t bytes) {
  (void)device, (void)bytes;
  say("trim_to");
  return NULL;
}
#endif
#if AFTER && defined CHANGE_field
static lazyt_status_t *execute_by_priority(lazyt_executable_t *x, const lazyt_execute_args_t *args, lazyt_event_t **out) {
  /* A host of minor 0 wrote a shorter struct: nothing behind its end is read (C-1). */
  say(!LAZYT_HAS_FIELD(args, lazyt_execute_args_t, priority) ? "no priority" : args->priority == 7 ? "priority 7" : "nonsense");
  return execute(x, args, out);
}
#endif
#if AFTER && defined CHANGE_enum
static lazyt_status_t *query_power(lazyt_device_t *device, const lazyt_program_t *p, lazyt_answer_t *answers, uint64_t count,
                                   uint64_t stride) {
  lazyt_status_t *status = query(device, p, answers, count, stride);
  for (uint64_t i = 0; !status && i < count; i++) {
    lazyt_answer_t *a = (lazyt_answer_t *)(void *)((char *)answers + i * stride);
    const lazyt_string_t name = lazyt_text(p, lazyt_node(p, i)->name);
    if (name.size != 10 || memcmp(name.data, "aten::relu", 10) != 0) continue;
    a->kind = LAZYT_ANSWER_REFUSE;
    a->reason = LAZYT_REASON_POWER;
    a->detail = lazyt_string("aten::relu: on battery", 22);
  }
  return status;
}
#endif
#if AFTER && defined CHANGE_extension
static uint32_t answer(uint32_t question) { return question + 1; }
static const lazyt_drill_t drill = {.struct_size = sizeof drill, .answer = answer};
static const void *get_extension(lazyt_string_t id) {
  const lazyt_string_t known = LAZYT_STR(LAZYT_EXTENSION_DRILL);
  return id.size == known.size && memcmp(id.data, known.data, id.size) == 0 ? &drill : NULL; /* LIB-7 */
}
#endif

__attribute__((visibility("default"))) lazyt_status_t *lazyt_plugin_entry_v1(const lazyt_host_t *host,
                                                                             const lazyt_plugin_t **out_plugin) {
  const lazyt_plugin_t *plugin = NULL;
  lazyt_status_t *status = reference_entry(host, &plugin);
  if (status) return status;
  own = *plugin, own_device = *plugin->device, own_buffer = *plugin->buffer;
  own_capability = *plugin->capability, own_executable = *plugin->executable;
  own.device = &own_device, own.buffer = &own_buffer, own.capability = &own_capability, own.executable = &own_executable;
  own_device.trim = trimmed; /* stays, for hosts that know nothing else */
#if AFTER && defined CHANGE_slot
  own_buffer.prefetch = prefetch;
#elif AFTER && defined CHANGE_deprecation
  own_device.trim_to = trim_to;
#elif AFTER && defined CHANGE_field
  own_executable.execute = execute_by_priority;
#elif AFTER && defined CHANGE_enum
  own_capability.query = query_power;
#elif AFTER && defined CHANGE_extension
  own.get_extension = get_extension;
#endif
  *out_plugin = &own;
  return NULL;
}
