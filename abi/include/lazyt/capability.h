/* capability.h - which nodes of a program a plugin takes, and why not the others.
 *
 * The host hands over a whole program and asks for one answer per node. It cuts the program by
 * the answers, so that what is compiled later consists of taken nodes only.
 *
 * Rules
 *  CAP-1  The same program on the same device gets the same answers.
 *  CAP-2  A program made of taken nodes alone compiles, memory permitting.
 *  CAP-3  A refusal carries a reason code, and a detail that names the operator or the dtype.
 *  CAP-4  Nodes that answer the same group number other than 0 stay in one program.
 *  CAP-5  An operator that the plugin does not know is a refused node, not a failed query.
 *
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_CAPABILITY_H_
#define LAZYT_CAPABILITY_H_

#include "lazyt/device.h"
#include "lazyt/program.h"

typedef int32_t lazyt_answer_kind_t;
#define LAZYT_ANSWER_REFUSE ((lazyt_answer_kind_t)0)
#define LAZYT_ANSWER_TAKE ((lazyt_answer_kind_t)1)
#define LAZYT_ANSWER_ONLY_IF ((lazyt_answer_kind_t)2) /* taken if `condition` holds for the node's program */

typedef int32_t lazyt_reason_t;
#define LAZYT_REASON_NONE ((lazyt_reason_t)0)
#define LAZYT_REASON_UNKNOWN_OPERATOR ((lazyt_reason_t)1)
#define LAZYT_REASON_DTYPE ((lazyt_reason_t)2)
#define LAZYT_REASON_RANK ((lazyt_reason_t)3)
#define LAZYT_REASON_ARGUMENT ((lazyt_reason_t)4) /* a value of an attribute */
#define LAZYT_REASON_LAYOUT ((lazyt_reason_t)5)
#define LAZYT_REASON_SIZE ((lazyt_reason_t)6)
#define LAZYT_REASON_SYMBOLIC_DIM ((lazyt_reason_t)7)
#define LAZYT_REASON_DISABLED ((lazyt_reason_t)8) /* by an option */
#define LAZYT_REASON_COST ((lazyt_reason_t)9)     /* the host is faster */

typedef int32_t lazyt_condition_t;
#define LAZYT_CONDITION_NONE ((lazyt_condition_t)0)
#define LAZYT_CONDITION_CONSTANT_ARGS ((lazyt_condition_t)1) /* attributes hold values, not host scalars */
#define LAZYT_CONDITION_STATIC_DIMS ((lazyt_condition_t)2)

typedef struct lazyt_answer_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  lazyt_answer_kind_t kind;
  lazyt_reason_t reason;
  lazyt_condition_t condition;
  uint32_t group;        /* 0 = none (CAP-4) */
  uint64_t cost_ns;      /* estimate, 0 = not known */
  lazyt_string_t detail; /* static, or kept until the next query of the device */
} lazyt_answer_t;

/* Implemented by the plugin. */
typedef struct lazyt_plugin_capability_t {
  uint64_t struct_size;
  const lazyt_chained_t *next;
  /* Fills answers[i], i < the program's node count, stride bytes apart (C-3); the host zeroed
   * them and set each struct_size. [device] */
  lazyt_status_t *(*query)(lazyt_device_t *device, const lazyt_program_t *program, lazyt_answer_t *answers,
                           uint64_t count, uint64_t stride);
} lazyt_plugin_capability_t;

#endif /* LAZYT_CAPABILITY_H_ */
