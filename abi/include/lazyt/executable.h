/* executable.h - a compiled program, and running it.
 *
 *   compile -> executable -> execute, execute, ... -> release
 *
 * Rules
 *  EXE-1  compile reads the block during the call only; it copies what it keeps.
 *  EXE-2  execute returns without waiting for the work; its event becomes ready when all outputs
 *         are written, or with the error that prevented it (the error poisons every output).
 *  EXE-3  execute may be called again before earlier work of the executable is done.
 *  EXE-4  An input that is not donated keeps its bytes.
 *  EXE-5  A donated input's buffer is the buffer of the output that names it as donor; the plugin
 *         may use its bytes as scratch before, and writes the output there.
 *  EXE-6  An execute that fails with RESOURCE_EXHAUSTED has consumed nothing: donated inputs keep
 *         their bytes.
 *  EXE-7  (stable_id, content_version) names an input's bytes: the same pair, the same bytes.
 *         Derived forms (prepacked weights) are keyed by the pair, never by a pointer. 0 = no key.
 *  EXE-8  Outputs that are not donated do not share bytes with inputs or with each other.
 *  EXE-9  Executables and their device may be used from any thread, one execute at a time for
 *         each device.
 *  EXE-10 Another number of inputs or outputs than the program's, or an output's buffer smaller than
 *         output_meta says, is INVALID_ARGUMENT, from execute or from its event.
 *  EXE-11 A wait that carries an error: execute's event gets that error.
 *  EXE-12 An executable remembers nothing: outputs depend on the inputs alone, bit by bit with
 *         LAZYT_COMPILE_DETERMINISTIC.
 *  EXE-13 An executable may be released before its work is done; the work goes on.
 *  EXE-14 output_meta covers the output's dims and strides, unless opaque; an index that is not below
 *         the program's outputs is INVALID_ARGUMENT.
 *  EXE-15 load takes what serialize wrote on a device of the same identity, and gives the same results;
 *         other bytes are an error.
 *  EXE-16 The host gives execute buffers of the executable's device, and inputs whose buffers cover the
 *         dims and strides of their values.
 *
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_EXECUTABLE_H_
#define LAZYT_EXECUTABLE_H_

#include "lazyt/buffer.h"
#include "lazyt/program.h"

typedef struct lazyt_executable_s lazyt_executable_t;

/* Freedom in numerics; part of the cache key. All off: IEEE, the order PyTorch documents. */
typedef uint64_t lazyt_compile_flags_t;
#define LAZYT_COMPILE_REASSOCIATE ((lazyt_compile_flags_t)1u)
#define LAZYT_COMPILE_TF32 ((lazyt_compile_flags_t)2u)
#define LAZYT_COMPILE_FLUSH_DENORMALS ((lazyt_compile_flags_t)4u)
#define LAZYT_COMPILE_DETERMINISTIC ((lazyt_compile_flags_t)8u) /* same inputs, same bits, every run */

typedef struct lazyt_compile_args_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  const lazyt_program_t *program; /* borrowed (EXE-1) */
  lazyt_compile_flags_t flags;
} lazyt_compile_args_t;

/* How the host must allocate an output. */
typedef struct lazyt_output_meta_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  uint64_t size_bytes;
  uint64_t alignment;    /* 0 = the device's own */
  uint32_t memory_space; /* 0 = default */
  uint32_t opaque;       /* 1: private layout; to_host, copy and export convert */
} lazyt_output_meta_t;

/* 16 bytes of a host scalar, little-endian, in its value's dtype. */
typedef struct lazyt_scalar_t {
  uint8_t bytes[16];
} lazyt_scalar_t;

typedef uint64_t lazyt_execute_input_flags_t;
#define LAZYT_EXECUTE_DONATED ((lazyt_execute_input_flags_t)1u) /* EXE-5 */

typedef struct lazyt_execute_input_t {
  lazyt_buffer_t *buffer; /* NULL for a host scalar */
  lazyt_scalar_t scalar;
  uint64_t stable_id; /* EXE-7 */
  uint64_t content_version;
  lazyt_execute_input_flags_t flags;
} lazyt_execute_input_t;

typedef struct lazyt_execute_args_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  const lazyt_execute_input_t *inputs; /* borrowed; the buffers are kept until the event is ready */
  uint64_t input_count;
  uint64_t input_stride; /* C-3 */
  lazyt_buffer_t *const *outputs; /* borrowed; the buffers are kept until the event is ready */
  uint64_t output_count;
  lazyt_events_t waits;
} lazyt_execute_args_t;

typedef uint64_t lazyt_executable_flags_t;
/* No run leaves anything of its inputs for later ones, as packed weights or launches recorded for addresses are. Parts of
 * a program that are alike, as layers are, then share the executable; without this each gets its own. */
#define LAZYT_EXECUTABLE_KEEPS_NOTHING ((lazyt_executable_flags_t)1u)

typedef struct lazyt_executable_memory_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  uint64_t code_bytes;    /* held by the executable itself, constants included */
  uint64_t scratch_bytes; /* needed on top of inputs and outputs while it runs; 0 = not known */
  lazyt_executable_flags_t flags; /* the same whenever it is asked */
} lazyt_executable_memory_t;

/* Receives serialized bytes, in order; a non-NULL status stops the writer, which returns it. */
typedef lazyt_status_t *(*lazyt_write_t)(void *user_data, const void *data, uint64_t size);

/* Implemented by the plugin. */
typedef struct lazyt_plugin_executable_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  lazyt_status_t *(*compile)(lazyt_device_t *device, const lazyt_compile_args_t *args,
                             lazyt_executable_t **out_executable); /* [any] */
  lazyt_status_t *(*output_meta)(lazyt_executable_t *executable, uint64_t index,
                                 lazyt_output_meta_t *out_meta); /* [any] */
  lazyt_status_t *(*memory)(lazyt_executable_t *executable, lazyt_executable_memory_t *out_memory); /* [any] */
  /* out_event: given, never NULL on success. [device] */
  lazyt_status_t *(*execute)(lazyt_executable_t *executable, const lazyt_execute_args_t *args,
                             lazyt_event_t **out_event);
  /* Optional: NULL or UNIMPLEMENTED = compiled programs are not stored. [any] */
  lazyt_status_t *(*serialize)(lazyt_executable_t *executable, lazyt_write_t write, void *user_data);
  lazyt_status_t *(*load)(lazyt_device_t *device, const void *data, uint64_t size,
                          lazyt_executable_t **out_executable);
  /* Optional. What serialized bytes depend on: plugin build, libraries, architecture. Kept until
   * the device is closed. [any] */
  lazyt_status_t *(*identity)(lazyt_device_t *device, lazyt_string_t *out_identity);
  void (*release)(lazyt_executable_t *executable); /* [any] NULL allowed */
} lazyt_plugin_executable_t;

#endif /* LAZYT_EXECUTABLE_H_ */
