/* custom_kernel.h - extension "lazyt.custom_kernel/1": a user's kernel for a user's operator.
 *
 * A program may hold operators outside the opset, by name ("mylib::op"). A plugin that offers this table
 * (plugin.get_extension) takes kernels for them, and from then on nodes of that name.
 *
 *   add -> the operator's nodes are taken -> compile, execute -> remove (or shutdown)
 *
 * Contract
 *  - add comes before the programs that use the kernel are queried; a host that adds one later asks again, and what
 *    was refused as unknown may then be taken (an exception to CAP-1).
 *  - A kernel is called with dense, row-major tensors, on any thread, possibly several calls at once. It writes every
 *    element of every result, changes no argument, and keeps no pointer.
 *  - A kernel function must not throw, nor use the device; it returns LAZYT_CODE_OK or the code of an error, which
 *    poisons the outputs of the program.
 *  - Executables compiled before remove keep the kernel: its code stays loaded until they are released.
 *
 * A draft: it may change with the draft number. SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_EXT_CUSTOM_KERNEL_H_
#define LAZYT_EXT_CUSTOM_KERNEL_H_

#include "lazyt/program.h"
#include "lazyt/status.h"

#define LAZYT_CUSTOM_KERNEL_ID "lazyt.custom_kernel/1"

typedef struct lazyt_kernel_tensor_t {
  void *data; /* borrowed; row-major, dense. Of an argument: not to be written */
  const int64_t *dims; /* borrowed */
  uint32_t rank;
  lazyt_dtype_t dtype;
} lazyt_kernel_tensor_t;

/* An argument, in the order of the operator's schema. */
typedef struct lazyt_kernel_arg_t {
  lazyt_arg_kind_t kind; /* says which of the others hold: VALUE tensor, INT BOOL DTYPE integer, DOUBLE number, */
  uint32_t count;        /* INTS BOOLS ints, DOUBLES numbers, STRING text (all of `count`), NONE nothing */
  lazyt_kernel_tensor_t tensor;
  int64_t integer;
  double number;
  const int64_t *ints;   /* borrowed */
  const double *numbers; /* borrowed */
  const char *text;      /* borrowed; UTF-8, not terminated */
} lazyt_kernel_arg_t;

typedef struct lazyt_kernel_call_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  const lazyt_kernel_arg_t *args; /* borrowed */
  uint64_t arg_count;
  uint64_t arg_stride; /* C-3 */
  const lazyt_kernel_tensor_t *results; /* borrowed; shapes and dtypes are those that the operator's fake kernel told */
  uint64_t result_count;
  uint64_t result_stride; /* C-3 */
  uint32_t threads; /* that the kernel may use */
  uint32_t reserved;
} lazyt_kernel_call_t;

static inline const lazyt_kernel_arg_t *lazyt_kernel_arg(const lazyt_kernel_call_t *call, uint64_t i) {
  return (const lazyt_kernel_arg_t *)((const char *)call->args + i * call->arg_stride);
}
static inline const lazyt_kernel_tensor_t *lazyt_kernel_result(const lazyt_kernel_call_t *call, uint64_t i) {
  return (const lazyt_kernel_tensor_t *)((const char *)call->results + i * call->result_stride);
}

typedef lazyt_code_t (*lazyt_kernel_function_t)(void *user_data, const lazyt_kernel_call_t *call);

typedef int32_t lazyt_kernel_kind_t;
#define LAZYT_KERNEL_FUNCTION ((lazyt_kernel_kind_t)1) /* `function`, on memory that the CPU reaches */
#define LAZYT_KERNEL_CUDA_C ((lazyt_kernel_kind_t)2)   /* `source`, in which `entry` is a __device__ function */

typedef struct lazyt_kernel_desc_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  lazyt_string_t name; /* borrowed; "mylib::op", or "mylib::op.overload" */
  lazyt_kernel_kind_t kind;
  uint32_t reserved;
  lazyt_kernel_function_t function; /* kept until the kernel is removed and what uses it is released */
  void *user_data;                  /* the same */
  /* CUDA C without #include, compiled for the shapes of each node by itself. Every thread of the grid calls entry, with the
   * arguments in the schema's order (a tensor: the address of its elements; a number: double; an integer or bool: long
   * long; None: 0), then the addresses of the results. Sizes are macros: ARG0_DIM1, ARG0_SIZE, OUT0_DIM0, OUT0_SIZE. */
  lazyt_string_t source;            /* borrowed */
  lazyt_string_t entry;             /* borrowed */
  uint32_t grid[3];                 /* blocks; 0 0 0 = as many as give each element of result 0 a thread */
  uint32_t block[3];                /* threads of a block; 0 0 0 = 256 1 1 */
} lazyt_kernel_desc_t;

/* Implemented by the plugin. */
typedef struct lazyt_custom_kernel_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  /* Replaces a kernel of the same name. UNIMPLEMENTED for a kind that the plugin does not take;
   * INVALID_ARGUMENT for a name of the opset, or without the parts of its kind. [any] */
  lazyt_status_t *(*add)(const lazyt_kernel_desc_t *kernel);
  /* NOT_FOUND if there is none of that name. [any] */
  lazyt_status_t *(*remove)(lazyt_string_t name);
} lazyt_custom_kernel_t;

#endif /* LAZYT_EXT_CUSTOM_KERNEL_H_ */
