/* program.h - the program: one read-only, position-independent block of bytes.
 *
 * The same bytes are what a plugin is handed, what a `.lzp` file holds, and what the cache
 * hashes. A block is 8-byte aligned in memory, little-endian, and holds no pointers: tables lie
 * at offsets from its first byte, and name each other by index. Each table has a stride, so
 * that records can grow; read them through the accessors below.
 *
 *   header | values | nodes | args | ints | strings | inputs | outputs | constants | notes |
 *   symbols | exprs | data
 *
 * A VALUE is a tensor (or a host scalar): dtype, dims, strides. It is an input, a constant, or
 * a result of exactly one node. A NODE applies an operator to args in the order of
 * its schema, all of them, defaults filled in. An ARG is 16 bytes with a tag: a value, a list of
 * values, a number, a list of numbers, a string, nothing. Nodes stand in execution order: a node
 * uses only values of nodes before it.
 *
 * Rules
 *  PRG-1  Pure: no operator writes an operand, none returns an alias that a reader could tell
 *         from a copy.
 *  PRG-2  Strides of an input or an output say how its bytes lie in its buffer. Strides of other
 *         values are a hint; the plugin may lay them out as it likes.
 *  PRG-3  aten::as_strided and as_strided_scatter index their operand in row-major order of its
 *         dims, whatever its strides.
 *  PRG-4  Broadcasting between operands is implicit; dtype promotion is explicit (cast nodes).
 *         A host scalar keeps its own dtype and is converted by the node that reads it.
 *  PRG-5  dims are not negative, axis arguments are not negative.
 *  PRG-6  A host scalar is a rank-0 input whose bytes travel in execute; it has no buffer.
 *         With LAZYT_VALUE_WEAK it does not take part in dtype promotion (a Python number).
 *  PRG-7  Random operators take (seed, offset) as host scalars of dtype INT64; element i is
 *         given by Philox 4x32-10, key = seed, counter = (offset + i / 4, 0), lane i % 4, where
 *         seed and counter are 64-bit, low word first.
 *         Draws of dtype f64 and i64 take two lanes an element (i / 2, lanes 2 * (i % 2) and the
 *         next, low word first). ops.toml says how each operator uses the words.
 *  PRG-8  An output may name a donor input: if execute marks that input as donated, the output's
 *         buffer is the input's buffer.
 *  PRG-9  An operator computes what PyTorch's operator of that name and overload computes, within the
 *         error that its arithmetic in the dtypes of the program brings.
 *  PRG-10 Operands fit their operator, and results have the dims that it gives for them: the host hands on
 *         nothing else of the opset's operators. What indices a tensor holds is known at execute only.
 *
 * SPDX-License-Identifier: BSL-1.0 */
#ifndef LAZYT_PROGRAM_H_
#define LAZYT_PROGRAM_H_

#include "lazyt/dtype.h"

#define LAZYT_PROGRAM_MAGIC UINT32_C(0x31505a4c) /* "LZP1" */
#define LAZYT_PROGRAM_FORMAT 1u
#define LAZYT_NONE UINT32_MAX /* no index */

typedef struct lazyt_table_t {
  uint64_t offset; /* bytes from the block's start, a multiple of 8 */
  uint64_t count;  /* records */
  uint64_t stride; /* bytes per record */
} lazyt_table_t;

typedef uint64_t lazyt_program_flags_t;
#define LAZYT_PROGRAM_HAS_SYMBOLS ((lazyt_program_flags_t)1u) /* some dim is an expression */
#define LAZYT_PROGRAM_HAS_RANDOM ((lazyt_program_flags_t)2u)

typedef struct lazyt_program_t {
  uint32_t magic;
  uint32_t format;
  uint64_t total_size; /* of the block, bytes */
  uint64_t header_size;
  lazyt_program_flags_t flags;
  lazyt_table_t values;    /* lazyt_value_t */
  lazyt_table_t nodes;     /* lazyt_node_t */
  lazyt_table_t args;      /* lazyt_arg_t: of nodes, and the elements of lists */
  lazyt_table_t ints;      /* int64_t: dims, strides, integer and (as bits) double lists */
  lazyt_table_t strings;   /* bytes */
  lazyt_table_t inputs;    /* lazyt_input_t, in the order of execute's inputs */
  lazyt_table_t outputs;   /* lazyt_output_t, in the order of execute's outputs */
  lazyt_table_t constants; /* lazyt_constant_t */
  lazyt_table_t notes;     /* lazyt_note_t */
  lazyt_table_t symbols;   /* lazyt_symbol_t */
  lazyt_table_t exprs;     /* lazyt_expr_t */
  lazyt_table_t data;      /* bytes of constants; starts at a multiple of 64 */
} lazyt_program_t;

/* A run of bytes in the strings table. */
typedef struct lazyt_text_t {
  uint32_t start;
  uint32_t size;
} lazyt_text_t;

typedef uint32_t lazyt_value_flags_t;
#define LAZYT_VALUE_HOST_SCALAR ((lazyt_value_flags_t)1u) /* PRG-6 */
#define LAZYT_VALUE_WEAK ((lazyt_value_flags_t)2u)        /* PRG-6 */
#define LAZYT_VALUE_MAY_OVERWRITE ((lazyt_value_flags_t)4u) /* dead after its last reader in the program */

/* dims[i] and strides[i] are in the ints table. A dim below 0 is an expression: exprs[-1 - dim]. */
typedef struct lazyt_value_t {
  lazyt_dtype_t dtype;
  lazyt_value_flags_t flags;
  uint32_t rank;
  uint32_t dims;     /* first of rank ints */
  uint32_t strides;  /* first of rank ints; LAZYT_NONE = row-major, dense */
  uint32_t producer; /* node, or LAZYT_NONE for inputs and constants */
} lazyt_value_t;

typedef struct lazyt_node_t {
  lazyt_text_t name;     /* "aten::add" */
  lazyt_text_t overload; /* "Tensor"; empty for none */
  uint32_t op;           /* number in opset (ops.h), 0 = not in the opset */
  uint32_t op_version;
  uint32_t args; /* first arg */
  uint32_t arg_count;
  uint32_t results; /* first result value; results are consecutive */
  uint32_t result_count;
  uint32_t note; /* or LAZYT_NONE */
  uint32_t reserved;
} lazyt_node_t;

typedef uint32_t lazyt_arg_kind_t;
#define LAZYT_ARG_NONE ((lazyt_arg_kind_t)0)
#define LAZYT_ARG_VALUE ((lazyt_arg_kind_t)1)  /* payload: value */
#define LAZYT_ARG_INT ((lazyt_arg_kind_t)2)    /* payload: the int64 */
#define LAZYT_ARG_DOUBLE ((lazyt_arg_kind_t)3) /* payload: the double's bits */
#define LAZYT_ARG_BOOL ((lazyt_arg_kind_t)4)   /* payload: 0 or 1 */
#define LAZYT_ARG_COMPLEX ((lazyt_arg_kind_t)5) /* payload: first of two ints holding double bits */
#define LAZYT_ARG_STRING ((lazyt_arg_kind_t)6) /* count: bytes, payload: start in strings */
#define LAZYT_ARG_DTYPE ((lazyt_arg_kind_t)7)  /* payload: lazyt_dtype_t */
#define LAZYT_ARG_LIST ((lazyt_arg_kind_t)8)   /* count args from payload: values, scalars or nones */
#define LAZYT_ARG_INTS ((lazyt_arg_kind_t)9)   /* count ints from payload */
#define LAZYT_ARG_DOUBLES ((lazyt_arg_kind_t)10) /* the same, as double bits */
#define LAZYT_ARG_BOOLS ((lazyt_arg_kind_t)11) /* the same, 0 or 1 */
/* Named by PyTorch's numbers of c10::MemoryFormat: 0 contiguous, 1 preserve, 2 channels_last, 3 channels_last_3d. */
#define LAZYT_ARG_MEMORY_FORMAT ((lazyt_arg_kind_t)12)
#define LAZYT_ARG_LAYOUT ((lazyt_arg_kind_t)13) /* payload: 0 = strided; no other crosses */
#define LAZYT_ARG_DEVICE ((lazyt_arg_kind_t)14) /* the executing device; payload 0 */

/* Where a schema wants a number, VALUE names a host scalar. */
typedef struct lazyt_arg_t {
  lazyt_arg_kind_t kind;
  uint32_t count;
  uint64_t payload;
} lazyt_arg_t;

typedef uint32_t lazyt_input_flags_t;
#define LAZYT_INPUT_MAY_DONATE ((lazyt_input_flags_t)1u) /* execute may mark it as donated */

typedef struct lazyt_input_t {
  uint32_t value;
  lazyt_input_flags_t flags;
} lazyt_input_t;

typedef struct lazyt_output_t {
  uint32_t value;
  uint32_t donor; /* input index (PRG-8), or LAZYT_NONE */
} lazyt_output_t;

/* Bytes of a constant: in the block's data table, or in a file beside it. */
typedef struct lazyt_constant_t {
  uint32_t value;
  uint32_t reserved;
  lazyt_text_t file; /* empty = in the data table */
  uint64_t offset;   /* from the first byte of the data table, or of the file */
  uint64_t size;
  uint8_t hash[16]; /* XXH3-128 of the bytes, canonical order */
} lazyt_constant_t;

/* Where a node came from. */
typedef struct lazyt_note_t {
  lazyt_text_t file;
  lazyt_text_t module;
  uint32_t line;
  uint32_t reserved;
} lazyt_note_t;

typedef struct lazyt_symbol_t {
  lazyt_text_t name;
  int64_t min;
  int64_t max;
} lazyt_symbol_t;

typedef uint32_t lazyt_expr_kind_t;
#define LAZYT_EXPR_SYMBOL ((lazyt_expr_kind_t)1) /* a: symbol */
#define LAZYT_EXPR_CONST ((lazyt_expr_kind_t)2)  /* a: the number */
#define LAZYT_EXPR_ADD ((lazyt_expr_kind_t)3)    /* a, b: exprs before this one */
#define LAZYT_EXPR_MUL ((lazyt_expr_kind_t)4)
#define LAZYT_EXPR_FLOORDIV ((lazyt_expr_kind_t)5)
#define LAZYT_EXPR_MOD ((lazyt_expr_kind_t)6)
#define LAZYT_EXPR_MAX ((lazyt_expr_kind_t)7)
#define LAZYT_EXPR_MIN ((lazyt_expr_kind_t)8)

typedef struct lazyt_expr_t {
  lazyt_expr_kind_t kind;
  uint32_t reserved;
  int64_t a;
  int64_t b;
} lazyt_expr_t;

/* Accessors. They check nothing: the host verifies a block before it hands it over. */
static inline const void *lazyt_record(const lazyt_program_t *p, const lazyt_table_t *t, uint64_t i) {
  return (const char *)p + t->offset + i * t->stride;
}
static inline const lazyt_value_t *lazyt_value(const lazyt_program_t *p, uint64_t i) {
  return (const lazyt_value_t *)lazyt_record(p, &p->values, i);
}
static inline const lazyt_node_t *lazyt_node(const lazyt_program_t *p, uint64_t i) {
  return (const lazyt_node_t *)lazyt_record(p, &p->nodes, i);
}
static inline const lazyt_arg_t *lazyt_arg(const lazyt_program_t *p, uint64_t i) {
  return (const lazyt_arg_t *)lazyt_record(p, &p->args, i);
}
static inline const int64_t *lazyt_ints(const lazyt_program_t *p, uint64_t i) {
  return (const int64_t *)lazyt_record(p, &p->ints, i);
}
static inline const lazyt_input_t *lazyt_input(const lazyt_program_t *p, uint64_t i) {
  return (const lazyt_input_t *)lazyt_record(p, &p->inputs, i);
}
static inline const lazyt_output_t *lazyt_output(const lazyt_program_t *p, uint64_t i) {
  return (const lazyt_output_t *)lazyt_record(p, &p->outputs, i);
}
static inline const lazyt_constant_t *lazyt_constant(const lazyt_program_t *p, uint64_t i) {
  return (const lazyt_constant_t *)lazyt_record(p, &p->constants, i);
}
static inline const lazyt_note_t *lazyt_note(const lazyt_program_t *p, uint64_t i) {
  return (const lazyt_note_t *)lazyt_record(p, &p->notes, i);
}
static inline lazyt_string_t lazyt_text(const lazyt_program_t *p, lazyt_text_t t) {
  return lazyt_string((const char *)p + p->strings.offset + t.start, t.size);
}
/* Elements of a value without symbolic dims. */
static inline int64_t lazyt_value_numel(const lazyt_program_t *p, const lazyt_value_t *v) {
  const int64_t *dims = lazyt_ints(p, v->dims);
  int64_t n = 1;
  for (uint32_t i = 0; i < v->rank; i++) n *= dims[i];
  return n;
}

#endif /* LAZYT_PROGRAM_H_ */
