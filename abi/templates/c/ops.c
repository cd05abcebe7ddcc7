/* ops.c - the operators: for each, which nodes are taken, and how they are computed. */
#include <math.h>
#include <string.h>

#include "plugin.h"

/* --- reading a node ----------------------------------------------------------------------- */

typedef struct tensor {
  float *data; /* f32; of other dtypes, the bytes */
  const int64_t *dims;
  uint32_t rank;
  int64_t count;
} tensor;

static const lazyt_arg_t *arg(const lazyt_program_t *p, const lazyt_node_t *node, uint32_t i) {
  return lazyt_arg(p, node->args + i);
}

static tensor value_of(const acme_call *c, uint64_t index) {
  const lazyt_program_t *p = c->executable->program;
  const lazyt_value_t *v = lazyt_value(p, index);
  char *at = c->memory + c->executable->places[index];
  if (v->flags & LAZYT_VALUE_HOST_SCALAR) at = (char *)&((acme_scalar *)at)->as_float;
  return (tensor){(float *)at, lazyt_ints(p, v->dims), v->rank, lazyt_value_numel(p, v)};
}
static tensor in(const acme_call *c, uint32_t i) { return value_of(c, arg(c->executable->program, c->node, i)->payload); }
static tensor out(const acme_call *c, uint32_t i) { return value_of(c, c->node->results + i); }

/* Element k of the list of tensors that argument i is. */
static tensor item(const acme_call *c, uint32_t i, uint32_t k) {
  const lazyt_program_t *p = c->executable->program;
  return value_of(c, lazyt_arg(p, arg(p, c->node, i)->payload + k)->payload);
}

/* [region number] */
/* A number: written into the program, or a host scalar, whose bytes come with each execute (PRG-6). */
static double number(const acme_call *c, uint32_t i) {
  const lazyt_arg_t *a = arg(c->executable->program, c->node, i);
  if (a->kind == LAZYT_ARG_VALUE) return ((acme_scalar *)(c->memory + c->executable->places[a->payload]))->as_double;
  if (a->kind != LAZYT_ARG_DOUBLE) return (double)(int64_t)a->payload;
  double bits;
  memcpy(&bits, &a->payload, sizeof bits);
  return bits;
}
/* [end] */

/* --- which nodes are taken ---------------------------------------------------------------- */

static int is(const lazyt_program_t *p, uint64_t value, lazyt_dtype_t dtype) {
  const lazyt_value_t *v = lazyt_value(p, value);
  return v->dtype == dtype || ((v->flags & LAZYT_VALUE_HOST_SCALAR) && acme_reads_scalar(v->dtype));
}

static const char *refused(lazyt_reason_t *out_reason, lazyt_reason_t reason, const char *why) {
  *out_reason = reason;
  return why;
}

/* [region refuse] */
/* All tensors are f32, except argument `i64` (-1: none). A host scalar of another dtype is converted (PRG-4). */
static const char *dtypes(const lazyt_program_t *p, const lazyt_node_t *n, int i64, lazyt_reason_t *out_reason) {
  for (uint32_t i = 0; i < n->arg_count; i++) {
    const lazyt_arg_t *a = arg(p, n, i), *elements = a->kind == LAZYT_ARG_LIST ? lazyt_arg(p, a->payload) : a;
    for (uint32_t k = 0; k < (a->kind == LAZYT_ARG_LIST ? a->count : 1); k++, elements++)
      if (elements->kind == LAZYT_ARG_VALUE &&
          !is(p, elements->payload, (int)i == i64 ? LAZYT_DTYPE_INT64 : LAZYT_DTYPE_FLOAT32))
        return refused(out_reason, LAZYT_REASON_DTYPE, "acme computes float32");
  }
  for (uint32_t i = 0; i < n->result_count; i++)
    if (!is(p, n->results + i, LAZYT_DTYPE_FLOAT32)) return refused(out_reason, LAZYT_REASON_DTYPE, "acme computes float32");
  return NULL;
}
/* [end] */

static const char *float32(const lazyt_program_t *p, const lazyt_node_t *n, lazyt_reason_t *out_reason) {
  return dtypes(p, n, -1, out_reason);
}

static int64_t integer(const lazyt_program_t *p, const lazyt_node_t *n, uint32_t i) {
  return arg(p, n, i)->kind == LAZYT_ARG_INT ? (int64_t)arg(p, n, i)->payload : -1;
}
static int64_t rank_of(const lazyt_program_t *p, const lazyt_node_t *n, uint32_t i) {
  return lazyt_value(p, arg(p, n, i)->payload)->rank;
}

/* Softmax over the last dim; `dim` is the argument that names it. */
static const char *last_dim(const lazyt_program_t *p, const lazyt_node_t *n, uint32_t dim, lazyt_reason_t *out_reason) {
  if (integer(p, n, dim) != rank_of(p, n, 0) - 1)
    return refused(out_reason, LAZYT_REASON_ARGUMENT, "acme takes the last dim only");
  return float32(p, n, out_reason);
}
static const char *log_softmax_args(const lazyt_program_t *p, const lazyt_node_t *n, lazyt_reason_t *out_reason) {
  return last_dim(p, n, 1, out_reason);
}
static const char *log_softmax_backward_args(const lazyt_program_t *p, const lazyt_node_t *n, lazyt_reason_t *out_reason) {
  return last_dim(p, n, 2, out_reason);
}

enum { NONE = 0, MEAN = 1, SUM = 2 }; /* PyTorch's Reduction */

static const char *reduction_args(const lazyt_program_t *p, const lazyt_node_t *n, uint32_t reduction,
                                  lazyt_reason_t *out_reason) {
  if (integer(p, n, reduction) != MEAN && integer(p, n, reduction) != SUM)
    return refused(out_reason, LAZYT_REASON_ARGUMENT, "acme takes the reductions mean and sum");
  return NULL;
}
static const char *mse_args(const lazyt_program_t *p, const lazyt_node_t *n, lazyt_reason_t *out_reason) {
  const uint32_t first = n->arg_count - 3; /* input, target, reduction; of the backward, behind a gradient */
  const char *why = reduction_args(p, n, n->arg_count - 1, out_reason);
  if (!why) why = float32(p, n, out_reason);
  if (why) return why;
  const lazyt_value_t *a = lazyt_value(p, arg(p, n, first)->payload), *b = lazyt_value(p, arg(p, n, first + 1)->payload);
  if (a->rank != b->rank || memcmp(lazyt_ints(p, a->dims), lazyt_ints(p, b->dims), a->rank * sizeof(int64_t)) != 0)
    return refused(out_reason, LAZYT_REASON_ARGUMENT, "acme takes input and target of one shape");
  return NULL;
}
/* nll_loss(input, target, weight, reduction, ignore_index); of the backward, behind a gradient. */
static const char *nll_args(const lazyt_program_t *p, const lazyt_node_t *n, lazyt_reason_t *out_reason) {
  const uint32_t first = n->arg_count == 5 ? 0 : 1;
  if (rank_of(p, n, first) != 2) return refused(out_reason, LAZYT_REASON_RANK, "acme takes [batch, classes]");
  if (arg(p, n, first + 2)->kind != LAZYT_ARG_NONE)
    return refused(out_reason, LAZYT_REASON_ARGUMENT, "acme takes no class weights");
  const char *why = reduction_args(p, n, first + 3, out_reason);
  return why ? why : dtypes(p, n, (int)first + 1, out_reason);
}
static const char *foreach_args(const lazyt_program_t *p, const lazyt_node_t *n, lazyt_reason_t *out_reason) {
  for (uint32_t k = 0; arg(p, n, 1)->kind == LAZYT_ARG_LIST && k < n->result_count; k++) {
    const lazyt_value_t *a = lazyt_value(p, lazyt_arg(p, arg(p, n, 0)->payload + k)->payload);
    const lazyt_value_t *b = lazyt_value(p, lazyt_arg(p, arg(p, n, 1)->payload + k)->payload);
    if (a->rank != b->rank || lazyt_value_numel(p, a) != lazyt_value_numel(p, b))
      return refused(out_reason, LAZYT_REASON_ARGUMENT, "acme takes lists of equal shapes");
  }
  return float32(p, n, out_reason);
}

/* --- moving elements ---------------------------------------------------------------------- */

/* out[i] = t[...], where reading t by `strides` over the dims of out gives its elements in their new order. */
static void gather(tensor o, tensor t, const int64_t *strides) {
  for (int64_t i = 0; i < o.count; i++) o.data[i] = t.data[acme_offset(o.dims, strides, o.rank, i)];
}

static lazyt_status_t *permute(const acme_call *c) {
  const tensor t = in(c, 0);
  const int64_t *order = lazyt_ints(c->executable->program, arg(c->executable->program, c->node, 1)->payload);
  int64_t dense[ACME_MAX_RANK], strides[ACME_MAX_RANK];
  acme_dense(t.dims, t.rank, dense);
  for (uint32_t i = 0; i < t.rank; i++) strides[i] = dense[order[i]];
  gather(out(c, 0), t, strides);
  return NULL;
}

static lazyt_status_t *same_elements(const acme_call *c) { /* reshape, clone */
  const tensor t = in(c, 0);
  memcpy(out(c, 0).data, t.data, (size_t)t.count * sizeof(float));
  return NULL;
}

static lazyt_status_t *full(const acme_call *c) {
  const tensor o = out(c, 0);
  for (int64_t i = 0; i < o.count; i++) o.data[i] = (float)number(c, 1);
  return NULL;
}

/* --- element by element ------------------------------------------------------------------- */

/* Strides that read t as if it had the dims of o: 0 where it is repeated (PRG-4). */
static void broadcast(tensor t, tensor o, int64_t *out_strides) {
  int64_t dense[ACME_MAX_RANK];
  acme_dense(t.dims, t.rank, dense);
  for (uint32_t i = 0; i < o.rank; i++) {
    const int64_t d = (int64_t)i - (int64_t)(o.rank - t.rank);
    out_strides[i] = d < 0 || t.dims[d] == 1 ? 0 : dense[d];
  }
}

static lazyt_status_t *add_or_mul(const acme_call *c, int mul) {
  const tensor a = in(c, 0), b = in(c, 1), o = out(c, 0);
  const float alpha = mul ? 1 : (float)number(c, 2);
  int64_t sa[ACME_MAX_RANK], sb[ACME_MAX_RANK];
  broadcast(a, o, sa);
  broadcast(b, o, sb);
  const int plain = a.count == o.count && b.count == o.count;
  for (int64_t i = 0; i < o.count; i++) {
    const float x = a.data[plain ? i : acme_offset(o.dims, sa, o.rank, i)];
    const float y = b.data[plain ? i : acme_offset(o.dims, sb, o.rank, i)];
    o.data[i] = mul ? x * y : x + alpha * y;
  }
  return NULL;
}
static lazyt_status_t *add(const acme_call *c) { return add_or_mul(c, 0); }
static lazyt_status_t *mul(const acme_call *c) { return add_or_mul(c, 1); }

static lazyt_status_t *relu(const acme_call *c) {
  const tensor t = in(c, 0), o = out(c, 0);
  for (int64_t i = 0; i < o.count; i++) o.data[i] = t.data[i] < 0 ? 0 : t.data[i]; /* NaN stays */
  return NULL;
}

static lazyt_status_t *threshold_backward(const acme_call *c) {
  const tensor grad = in(c, 0), t = in(c, 1), o = out(c, 0);
  const float threshold = (float)number(c, 2);
  for (int64_t i = 0; i < o.count; i++) o.data[i] = t.data[i] <= threshold ? 0 : grad.data[i];
  return NULL;
}

static lazyt_status_t *foreach_add(const acme_call *c) { /* the step of SGD */
  const float alpha = (float)number(c, 2);
  for (uint32_t k = 0; k < c->node->result_count; k++) {
    const tensor a = item(c, 0, k), b = item(c, 1, k), o = out(c, k);
    for (int64_t i = 0; i < o.count; i++) o.data[i] = a.data[i] + alpha * b.data[i];
  }
  return NULL;
}

static lazyt_status_t *foreach_mul(const acme_call *c) { /* momentum */
  const float factor = (float)number(c, 1);
  for (uint32_t k = 0; k < c->node->result_count; k++) {
    const tensor a = item(c, 0, k), o = out(c, k);
    for (int64_t i = 0; i < o.count; i++) o.data[i] = a.data[i] * factor;
  }
  return NULL;
}

/* --- matrices and sums -------------------------------------------------------------------- */

static void multiply(tensor a, tensor b, tensor o, float alpha) { /* o += alpha * a @ b */
  const int64_t inner = a.dims[1], columns = o.dims[1];
  for (int64_t i = 0; i < o.dims[0]; i++)
    for (int64_t k = 0; k < inner; k++) {
      const float x = alpha * a.data[i * inner + k];
      for (int64_t j = 0; j < columns; j++) o.data[i * columns + j] += x * b.data[k * columns + j];
    }
}

static lazyt_status_t *mm(const acme_call *c) {
  const tensor o = out(c, 0);
  memset(o.data, 0, (size_t)o.count * sizeof(float));
  multiply(in(c, 0), in(c, 1), o, 1);
  return NULL;
}

static lazyt_status_t *addmm(const acme_call *c) { /* beta * bias + alpha * a @ b */
  const tensor bias = in(c, 0), o = out(c, 0);
  const float beta = (float)number(c, 3);
  int64_t strides[ACME_MAX_RANK];
  broadcast(bias, o, strides);
  for (int64_t i = 0; i < o.count; i++)
    o.data[i] = beta == 0 ? 0 : beta * bias.data[acme_offset(o.dims, strides, o.rank, i)];
  multiply(in(c, 1), in(c, 2), o, (float)number(c, 4));
  return NULL;
}

static lazyt_status_t *sum(const acme_call *c) {
  const tensor t = in(c, 0), o = out(c, 0);
  const lazyt_arg_t *over = arg(c->executable->program, c->node, 1);
  int64_t kept[ACME_MAX_RANK] = {0}, strides[ACME_MAX_RANK]; /* of the result, read with the dims of t */
  for (uint32_t i = 0; i < t.rank; i++) kept[i] = t.dims[i];
  for (uint32_t i = 0; i < t.rank && (over->kind != LAZYT_ARG_INTS || over->count == 0); i++) kept[i] = 1;
  for (uint32_t i = 0; over->kind == LAZYT_ARG_INTS && i < over->count; i++)
    kept[*lazyt_ints(c->executable->program, over->payload + i)] = 1;
  acme_dense(kept, t.rank, strides);
  for (uint32_t i = 0; i < t.rank; i++) strides[i] = kept[i] == 1 ? 0 : strides[i];
  memset(o.data, 0, (size_t)o.count * sizeof(float));
  for (int64_t i = 0; i < t.count; i++) o.data[acme_offset(t.dims, strides, t.rank, i)] += t.data[i];
  return NULL;
}

/* --- losses ------------------------------------------------------------------------------- */

static lazyt_status_t *log_softmax(const acme_call *c) {
  const tensor t = in(c, 0), o = out(c, 0);
  const int64_t n = t.rank ? t.dims[t.rank - 1] : 1;
  for (int64_t row = 0; row < t.count; row += n) {
    float most = t.data[row], total = 0;
    for (int64_t i = 1; i < n; i++) most = fmaxf(most, t.data[row + i]);
    for (int64_t i = 0; i < n; i++) total += expf(t.data[row + i] - most);
    for (int64_t i = 0; i < n; i++) o.data[row + i] = t.data[row + i] - most - logf(total);
  }
  return NULL;
}

static lazyt_status_t *log_softmax_backward(const acme_call *c) {
  const tensor grad = in(c, 0), t = in(c, 1), o = out(c, 0);
  const int64_t n = t.rank ? t.dims[t.rank - 1] : 1;
  for (int64_t row = 0; row < t.count; row += n) {
    float total = 0;
    for (int64_t i = 0; i < n; i++) total += grad.data[row + i];
    for (int64_t i = 0; i < n; i++) o.data[row + i] = grad.data[row + i] - expf(t.data[row + i]) * total;
  }
  return NULL;
}

/* The class of each row, checked: a bad one poisons the outputs (EXE-2), never the process. */
static lazyt_status_t *check_target(const int64_t *target, int64_t rows, int64_t classes, int64_t ignored) {
  for (int64_t i = 0; i < rows; i++)
    if (target[i] != ignored && (target[i] < 0 || target[i] >= classes))
      return acme_error(LAZYT_CODE_OUT_OF_RANGE, "acme: nll_loss: a target is not below the number of classes");
  return NULL;
}

static lazyt_status_t *nll_loss(const acme_call *c) {
  const tensor t = in(c, 0);
  const int64_t *target = (const int64_t *)in(c, 1).data, ignored = (int64_t)number(c, 4);
  lazyt_status_t *status = check_target(target, t.dims[0], t.dims[1], ignored);
  if (status) return status;
  float loss = 0, weight = 0;
  for (int64_t i = 0; i < t.dims[0]; i++) {
    if (target[i] == ignored) continue;
    loss -= t.data[i * t.dims[1] + target[i]];
    weight += 1;
  }
  out(c, 0).data[0] = number(c, 3) == MEAN ? loss / weight : loss;
  out(c, 1).data[0] = weight;
  return NULL;
}

static lazyt_status_t *nll_loss_backward(const acme_call *c) {
  const tensor grad = in(c, 0), t = in(c, 1), o = out(c, 0);
  const int64_t *target = (const int64_t *)in(c, 2).data, ignored = (int64_t)number(c, 5);
  lazyt_status_t *status = check_target(target, t.dims[0], t.dims[1], ignored);
  if (status) return status;
  const float step = number(c, 4) == MEAN ? grad.data[0] / in(c, 6).data[0] : grad.data[0];
  memset(o.data, 0, (size_t)o.count * sizeof(float));
  for (int64_t i = 0; i < t.dims[0]; i++)
    if (target[i] != ignored) o.data[i * t.dims[1] + target[i]] = -step;
  return NULL;
}

static lazyt_status_t *mse_loss(const acme_call *c) {
  const tensor a = in(c, 0), b = in(c, 1);
  float total = 0;
  for (int64_t i = 0; i < a.count; i++) total += (a.data[i] - b.data[i]) * (a.data[i] - b.data[i]);
  out(c, 0).data[0] = number(c, 2) == MEAN ? total / (float)a.count : total;
  return NULL;
}

static lazyt_status_t *mse_loss_backward(const acme_call *c) {
  const tensor grad = in(c, 0), a = in(c, 1), b = in(c, 2), o = out(c, 0);
  const float step = 2 * grad.data[0] / (number(c, 3) == MEAN ? (float)a.count : 1);
  for (int64_t i = 0; i < o.count; i++) o.data[i] = step * (a.data[i] - b.data[i]);
  return NULL;
}

/* --- the table ---------------------------------------------------------------------------- */

/* [region table] */
static const acme_op ops[] = {
    {"aten::_foreach_add", "List", foreach_args, foreach_add},
    {"aten::_foreach_mul", "Scalar", foreach_args, foreach_mul},
    {"aten::_log_softmax", "", log_softmax_args, log_softmax},
    {"aten::_log_softmax_backward_data", "", log_softmax_backward_args, log_softmax_backward},
    {"aten::add", "Tensor", float32, add},
    {"aten::addmm", "", float32, addmm},
    {"aten::clone", "", float32, same_elements},
    {"aten::full", "", float32, full},
    {"aten::mm", "", float32, mm},
    {"aten::mse_loss", "", mse_args, mse_loss},
    {"aten::mse_loss_backward", "", mse_args, mse_loss_backward},
    {"aten::mul", "Tensor", float32, mul},
    {"aten::nll_loss_backward", "", nll_args, nll_loss_backward},
    {"aten::nll_loss_forward", "", nll_args, nll_loss},
    {"aten::permute", "", float32, permute},
    {"aten::relu", "", float32, relu},
    {"aten::reshape", "", float32, same_elements},
    {"aten::sum", "dim_IntList", float32, sum},
    {"aten::threshold_backward", "", float32, threshold_backward},
};
/* [end] */

static int equal(lazyt_string_t s, const char *text) {
  return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

const acme_op *acme_find(const lazyt_program_t *p, const lazyt_node_t *node) {
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
    if (equal(lazyt_text(p, node->name), ops[i].name) && equal(lazyt_text(p, node->overload), ops[i].overload))
      return &ops[i];
  return NULL;
}
