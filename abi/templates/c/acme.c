/* acme.c - a lazyt backend: who it is, and its operators. Rules such as (BUF-5) stand in lazyt's headers. */
#include <math.h>
#include <string.h>

#include "lazyt/interpreter.h"

/* --- which nodes are taken ---------------------------------------------------------------- */

/* [region refuse] */
static const char *float32_but(lazyt_question_t *q, int i64) {
  return lazyt_is_float32(q, i64) ? NULL : lazyt_refuse(q, LAZYT_REASON_DTYPE, "computes float32");
}
static const char *float32(lazyt_question_t *q) { return float32_but(q, -1); }

/* Softmax over the last dim; `dim` is the argument that names it. */
static const char *last_dim(lazyt_question_t *q, uint32_t dim) {
  if (lazyt_integer(q, dim) != lazyt_rank(q, 0) - 1)
    return lazyt_refuse(q, LAZYT_REASON_ARGUMENT, "takes the last dim only");
  return float32(q);
}
/* [end] */
static const char *softmax_args(lazyt_question_t *q) { return last_dim(q, 1); }
static const char *softmax_backward_args(lazyt_question_t *q) { return last_dim(q, 2); }

enum { MEAN = 1, SUM = 2 }; /* PyTorch's Reduction */

static const char *reduction_args(lazyt_question_t *q, uint32_t i) {
  if (lazyt_integer(q, i) == MEAN || lazyt_integer(q, i) == SUM) return NULL;
  return lazyt_refuse(q, LAZYT_REASON_ARGUMENT, "takes the reductions mean and sum");
}

/* mse_loss(input, target, reduction); of the backward, behind a gradient. */
static const char *mse_args(lazyt_question_t *q) {
  const uint32_t first = q->node->arg_count - 3;
  if (!lazyt_same_dims(q, first, first + 1))
    return lazyt_refuse(q, LAZYT_REASON_ARGUMENT, "takes input and target of one shape");
  const char *why = reduction_args(q, first + 2);
  return why ? why : float32(q);
}

/* nll_loss(input, target, weight, reduction, ignore_index); of the backward, behind a gradient. */
static const char *nll_args(lazyt_question_t *q) {
  const uint32_t first = q->node->arg_count == 5 ? 0 : 1;
  if (lazyt_rank(q, first) != 2) return lazyt_refuse(q, LAZYT_REASON_RANK, "takes [batch, classes]");
  if (lazyt_node_arg(q->program, q->node, first + 2)->kind != LAZYT_ARG_NONE)
    return lazyt_refuse(q, LAZYT_REASON_ARGUMENT, "takes no class weights");
  const char *why = reduction_args(q, first + 3);
  return why ? why : float32_but(q, (int)first + 1);
}

static const char *foreach_args(lazyt_question_t *q) {
  const lazyt_program_t *p = q->program;
  const lazyt_arg_t *first = lazyt_node_arg(p, q->node, 0), *second = lazyt_node_arg(p, q->node, 1);
  for (uint32_t k = 0; second->kind == LAZYT_ARG_LIST && k < q->node->result_count; k++) {
    const lazyt_value_t *a = lazyt_value(p, lazyt_arg(p, first->payload + k)->payload);
    const lazyt_value_t *b = lazyt_value(p, lazyt_arg(p, second->payload + k)->payload);
    if (a->rank != b->rank || lazyt_value_numel(p, a) != lazyt_value_numel(p, b))
      return lazyt_refuse(q, LAZYT_REASON_ARGUMENT, "takes lists of equal shapes");
  }
  return float32(q);
}

/* --- element by element ------------------------------------------------------------------- */

typedef float (*function)(float x, float y, float k);

/* o[i] = f(a[i], b[i], k), where a and b are repeated to the dims of o (PRG-4). */
static lazyt_status_t *zip(lazyt_tensor_t o, lazyt_tensor_t a, lazyt_tensor_t b, function f, float k) {
  int64_t sa[LAZYT_MAX_RANK], sb[LAZYT_MAX_RANK];
  lazyt_broadcast(a, o, sa);
  lazyt_broadcast(b, o, sb);
  const int plain = a.count == o.count && b.count == o.count;
  for (int64_t i = 0; i < o.count; i++)
    o.data[i] = f(a.data[plain ? i : lazyt_offset(o.dims, sa, o.rank, i)],
                  b.data[plain ? i : lazyt_offset(o.dims, sb, o.rank, i)], k);
  return NULL;
}

static float plus(float x, float y, float alpha) { return x + alpha * y; }
static float times(float x, float y, float k) { return (void)k, x * y; }
static float scale(float x, float y, float factor) { return (void)y, x * factor; }
static float positive(float x, float y, float k) { return (void)y, (void)k, x < 0 ? 0 : x; } /* NaN stays */
static float above(float grad, float x, float threshold) { return x <= threshold ? 0 : grad; }
static float apart(float x, float y, float step) { return step * (x - y); }
static float scale_or_zero(float x, float y, float beta) { return (void)y, beta == 0 ? 0 : beta * x; }

static lazyt_status_t *add(const lazyt_call_t *c) {
  return zip(lazyt_out(c, 0), lazyt_in(c, 0), lazyt_in(c, 1), plus, (float)lazyt_number(c, 2));
}
static lazyt_status_t *mul(const lazyt_call_t *c) { return zip(lazyt_out(c, 0), lazyt_in(c, 0), lazyt_in(c, 1), times, 0); }
static lazyt_status_t *relu(const lazyt_call_t *c) {
  return zip(lazyt_out(c, 0), lazyt_in(c, 0), lazyt_in(c, 0), positive, 0);
}
static lazyt_status_t *threshold_backward(const lazyt_call_t *c) {
  return zip(lazyt_out(c, 0), lazyt_in(c, 0), lazyt_in(c, 1), above, (float)lazyt_number(c, 2));
}
static lazyt_status_t *foreach_add(const lazyt_call_t *c) { /* the step of SGD */
  for (uint32_t k = 0; k < c->node->result_count; k++)
    zip(lazyt_out(c, k), lazyt_item(c, 0, k), lazyt_item(c, 1, k), plus, (float)lazyt_number(c, 2));
  return NULL;
}
static lazyt_status_t *foreach_mul(const lazyt_call_t *c) { /* momentum */
  for (uint32_t k = 0; k < c->node->result_count; k++)
    zip(lazyt_out(c, k), lazyt_item(c, 0, k), lazyt_item(c, 0, k), scale, (float)lazyt_number(c, 1));
  return NULL;
}

/* --- moving elements ---------------------------------------------------------------------- */

static lazyt_status_t *permute(const lazyt_call_t *c) {
  const lazyt_tensor_t t = lazyt_in(c, 0), o = lazyt_out(c, 0);
  const int64_t *order = lazyt_ints(c->program, lazyt_node_arg(c->program, c->node, 1)->payload);
  int64_t dense[LAZYT_MAX_RANK], strides[LAZYT_MAX_RANK];
  lazyt_dense(t.dims, t.rank, dense);
  for (uint32_t i = 0; i < t.rank; i++) strides[i] = dense[order[i]];
  for (int64_t i = 0; i < o.count; i++) o.data[i] = t.data[lazyt_offset(o.dims, strides, o.rank, i)];
  return NULL;
}

static lazyt_status_t *same_elements(const lazyt_call_t *c) { /* reshape, clone */
  const lazyt_tensor_t t = lazyt_in(c, 0);
  memcpy(lazyt_out(c, 0).data, t.data, (size_t)t.count * sizeof(float));
  return NULL;
}

static lazyt_status_t *full(const lazyt_call_t *c) {
  const lazyt_tensor_t o = lazyt_out(c, 0);
  for (int64_t i = 0; i < o.count; i++) o.data[i] = (float)lazyt_number(c, 1);
  return NULL;
}

/* --- matrices and sums -------------------------------------------------------------------- */

static void zero(lazyt_tensor_t t) { memset(t.data, 0, (size_t)t.count * sizeof(float)); }

static void multiply(lazyt_tensor_t a, lazyt_tensor_t b, lazyt_tensor_t o, float alpha) { /* o += alpha * a @ b */
  const int64_t inner = a.dims[1], columns = o.dims[1];
  for (int64_t i = 0; i < o.dims[0]; i++)
    for (int64_t k = 0; k < inner; k++) {
      const float x = alpha * a.data[i * inner + k];
      for (int64_t j = 0; j < columns; j++) o.data[i * columns + j] += x * b.data[k * columns + j];
    }
}

static lazyt_status_t *mm(const lazyt_call_t *c) {
  zero(lazyt_out(c, 0));
  multiply(lazyt_in(c, 0), lazyt_in(c, 1), lazyt_out(c, 0), 1);
  return NULL;
}

static lazyt_status_t *addmm(const lazyt_call_t *c) { /* beta * bias + alpha * a @ b */
  zip(lazyt_out(c, 0), lazyt_in(c, 0), lazyt_in(c, 0), scale_or_zero, (float)lazyt_number(c, 3));
  multiply(lazyt_in(c, 1), lazyt_in(c, 2), lazyt_out(c, 0), (float)lazyt_number(c, 4));
  return NULL;
}

static lazyt_status_t *sum(const lazyt_call_t *c) {
  const lazyt_tensor_t t = lazyt_in(c, 0), o = lazyt_out(c, 0);
  const lazyt_arg_t *over = lazyt_node_arg(c->program, c->node, 1);
  const int all = over->kind != LAZYT_ARG_INTS || over->count == 0;
  int64_t kept[LAZYT_MAX_RANK] = {0}, strides[LAZYT_MAX_RANK]; /* of the result, read with the dims of t */
  for (uint32_t i = 0; i < t.rank; i++) kept[i] = all ? 1 : t.dims[i];
  for (uint32_t i = 0; !all && i < over->count; i++) kept[*lazyt_ints(c->program, over->payload + i)] = 1;
  lazyt_dense(kept, t.rank, strides);
  for (uint32_t i = 0; i < t.rank; i++) strides[i] = kept[i] == 1 ? 0 : strides[i];
  zero(o);
  for (int64_t i = 0; i < t.count; i++) o.data[lazyt_offset(t.dims, strides, t.rank, i)] += t.data[i];
  return NULL;
}

/* --- losses ------------------------------------------------------------------------------- */

static lazyt_status_t *mse_loss(const lazyt_call_t *c) {
  const lazyt_tensor_t a = lazyt_in(c, 0), b = lazyt_in(c, 1);
  float total = 0;
  for (int64_t i = 0; i < a.count; i++) total += (a.data[i] - b.data[i]) * (a.data[i] - b.data[i]);
  lazyt_out(c, 0).data[0] = lazyt_number(c, 2) == MEAN ? total / (float)a.count : total;
  return NULL;
}

static lazyt_status_t *mse_loss_backward(const lazyt_call_t *c) {
  const lazyt_tensor_t grad = lazyt_in(c, 0), a = lazyt_in(c, 1);
  const float step = 2 * grad.data[0] / (lazyt_number(c, 3) == MEAN ? (float)a.count : 1);
  return zip(lazyt_out(c, 0), a, lazyt_in(c, 2), apart, step);
}

static int64_t row_length(lazyt_tensor_t t) { return t.rank ? t.dims[t.rank - 1] : 1; }

static lazyt_status_t *log_softmax(const lazyt_call_t *c) {
  const lazyt_tensor_t t = lazyt_in(c, 0), o = lazyt_out(c, 0);
  const int64_t n = row_length(t);
  for (int64_t row = 0; row < t.count; row += n) {
    float most = t.data[row], total = 0;
    for (int64_t i = 1; i < n; i++) most = fmaxf(most, t.data[row + i]);
    for (int64_t i = 0; i < n; i++) total += expf(t.data[row + i] - most);
    for (int64_t i = 0; i < n; i++) o.data[row + i] = t.data[row + i] - most - logf(total);
  }
  return NULL;
}

static lazyt_status_t *log_softmax_backward(const lazyt_call_t *c) {
  const lazyt_tensor_t grad = lazyt_in(c, 0), t = lazyt_in(c, 1), o = lazyt_out(c, 0);
  const int64_t n = row_length(t);
  for (int64_t row = 0; row < t.count; row += n) {
    float total = 0;
    for (int64_t i = 0; i < n; i++) total += grad.data[row + i];
    for (int64_t i = 0; i < n; i++) o.data[row + i] = grad.data[row + i] - expf(t.data[row + i]) * total;
  }
  return NULL;
}

/* The class of each row, checked: a bad one poisons the outputs (EXE-2), never the process. */
static lazyt_status_t *check_target(const int64_t *target, lazyt_tensor_t t, int64_t ignored) {
  for (int64_t i = 0; i < t.dims[0]; i++)
    if (target[i] != ignored && (target[i] < 0 || target[i] >= t.dims[1]))
      return lazyt_error(LAZYT_CODE_OUT_OF_RANGE, "nll_loss: a target is not below the number of classes");
  return NULL;
}

static lazyt_status_t *nll_loss(const lazyt_call_t *c) {
  const lazyt_tensor_t t = lazyt_in(c, 0);
  const int64_t *target = (const int64_t *)lazyt_in(c, 1).data, ignored = (int64_t)lazyt_number(c, 4);
  float loss = 0, weight = 0;
  lazyt_status_t *status = check_target(target, t, ignored);
  for (int64_t i = 0; !status && i < t.dims[0]; i++) {
    if (target[i] == ignored) continue;
    loss -= t.data[i * t.dims[1] + target[i]];
    weight += 1;
  }
  lazyt_out(c, 0).data[0] = lazyt_number(c, 3) == MEAN ? loss / weight : loss;
  lazyt_out(c, 1).data[0] = weight;
  return status;
}

static lazyt_status_t *nll_loss_backward(const lazyt_call_t *c) {
  const lazyt_tensor_t grad = lazyt_in(c, 0), t = lazyt_in(c, 1), o = lazyt_out(c, 0);
  const int64_t *target = (const int64_t *)lazyt_in(c, 2).data, ignored = (int64_t)lazyt_number(c, 5);
  const float step = lazyt_number(c, 4) == MEAN ? grad.data[0] / lazyt_in(c, 6).data[0] : grad.data[0];
  lazyt_status_t *status = check_target(target, t, ignored);
  zero(o);
  for (int64_t i = 0; !status && i < t.dims[0]; i++)
    if (target[i] != ignored) o.data[i * t.dims[1] + target[i]] = -step;
  return status;
}

/* --- the plugin --------------------------------------------------------------------------- */

/* [region table] */
static const lazyt_operator_t operators[] = {
    {"aten::_foreach_add", "List", foreach_args, foreach_add},
    {"aten::_foreach_mul", "Scalar", foreach_args, foreach_mul},
    {"aten::_log_softmax", "", softmax_args, log_softmax},
    {"aten::_log_softmax_backward_data", "", softmax_backward_args, log_softmax_backward},
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

/* [region plugin] */
static const lazyt_interpreter_t acme = {
    .name = "acme",
    .version = "0.1.0",
    .description = "acme: runs programs on the CPU",
    .vendor = "acme",
    .device = "acme on the CPU",
    .score = -1, /* below 0: taken only by those who name it; raise it when acme is fast */
    .operators = operators,
    .operator_count = sizeof operators / sizeof operators[0],
};
LAZYT_INTERPRETER(acme)
/* [end] */
