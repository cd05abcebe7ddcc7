// Losses: negative log likelihood over classes, alone or with the log softmax that it reads; pointwise losses are the
// toolkit's.
#include "lazyt/toolkit/losses.hpp"

#include "../codegen/kernel.h"
#include "softmax.h"
#include "text.h"

namespace lazyt::cuda {
namespace {

using namespace toolkit::losses;
constexpr int64_t kThreads = 256;
// Blocks of a sum; the last of them adds what all have, one part a thread.
constexpr int64_t kMostBlocks = 256;
constexpr int64_t kMostBlocksOfLines = 1024;

std::array<Word, 2> bad_target(Builder& b) { return b.fault({LAZYT_CODE_OUT_OF_RANGE, "Target ", " is out of bounds."}); }

// Of target i: t, whether it counts, and its weight.
constexpr std::string_view kTarget = R"(
#define TARGET(i) \
  const long long t = ((const long long*)a.w[1])[i]; \
  const bool counts = t != IGNORED && lazyt_find(t, CLASSES, false, a.w[3], a.w[4]) >= 0; \
  const C scale = !counts ? (C)0 : WEIGHTED ? lazyt_load((const T*)a.w[2], t) : (C)1
)";

Defines defines_of(const Tensor& self, const Classes& classes, bool weighted, int64_t ignored) {
  return {{"T", memory_type(self.dtype)},
          {"C", register_type(self.dtype)},
          {"I", index_type({classes.count() * classes.c})},
          {"COUNT", std::to_string(classes.count())},
          {"CLASSES", std::to_string(classes.c)},
          {"SPATIAL", std::to_string(std::max<int64_t>(classes.spatial, 1))},
          {"WEIGHTED", weighted ? "true" : "false"},
          {"IGNORED", "(" + std::to_string(ignored) + "ll)"}};
}

std::string rounding(lazyt_dtype_t dtype) {
  return dtype == LAZYT_DTYPE_FLOAT16 ? "lazyt_round_f16(x)" : dtype == LAZYT_DTYPE_BFLOAT16 ? "lazyt_round_bf16(x)" : "(x)";
}

// Both in one kernel over lines of classes. Each operator's result is rounded as if it were stored.
void lower_with_softmax(Builder& b, const lazyt_node_t& node, Epilogue& e) {
  const auto args = b.program.args(node);
  const uint32_t y = b.value_of(args[0]);
  const Tensor x = tensor_at(b, b.program.args(b.program.nodes()[e.before[0]])[0]);
  const Tensor target = dense_as(b, tensor_at(b, args[1]), LAZYT_DTYPE_INT64);
  const bool weighted = !b.is_none(args[2]);
  const Tensor weight = weighted ? b.dense(tensor_at(b, args[2])) : x;
  const int64_t reduction = b.int_of(args[3]);
  const Classes classes = classes_of(x.dims());
  const size_t axis = x.dims().size() > 1 ? 1 : 0;
  std::vector<bool> reduced(x.dims().size(), false);
  reduced[axis] = true;

  const Tensor out = b.make_dense(node.results), total = b.make_dense(node.results + 1);
  std::optional<Tensor> kept;
  if (e.keeps) kept = b.make(y, b.result_strides(y, x.strides()));
  if (e.has_gradient && !e.keeps) e.lines = b.scratch(compute_dtype(x.dtype), {2, classes.count()});
  const Layout of_targets = beside(Layout::dense(target.dims()), x.dims(), reduced);
  const Walk walk = walk_along({x.layout, kept ? kept->layout : x.layout, of_targets}, axis);
  const Team team = team_for(walk);
  const int64_t blocks = std::clamp<int64_t>((walk.lines + team.lines() - 1) / team.lines(), 1, kMostBlocksOfLines);
  const Tensor parts = b.scratch(LAZYT_DTYPE_FLOAT64, {2, blocks});

  Defines defines = defines_of(x, classes, weighted, b.int_of(args[4]));
  for (const auto& more : {walk.defines, team.defines()}) defines.insert(defines.end(), more.begin(), more.end());
  auto flag = [](bool set) { return std::string(set ? "true" : "false"); };
  const Defines own = {{"LOG", "true"},
                       {"ROUND(x)", rounding(x.dtype)},
                       {"KEEPS_RESULT", flag(kept.has_value())},
                       {"KEEPS_LINES", flag(e.lines.has_value())},
                       {"REDUCES", flag(reduction != kNone)},
                       {"MEAN", flag(reduction == kMean)},
                       {"BLOCKS", std::to_string(blocks)}};
  defines.insert(defines.end(), own.begin(), own.end());
  const auto fault = bad_target(b);
  std::vector<Word> words = {Word::address(x), Word::address(target), Word::address(weight), fault[0], fault[1]};
  for (const Tensor& t : {out, total, kept.value_or(x), e.lines.value_or(x), parts, b.counters(1)})
    words.push_back(Word::address(t));
  std::vector<StorageId> writes = {out.storage, total.storage, parts.storage};
  for (const auto& t : {kept, e.lines})
    if (t) writes.push_back(t->storage);
  std::string text = each_text(kTeamText);
  text += kTarget;
  text += kLineText;
  text += "LAZYT_KERNEL(KERNEL, 11, THREADS) {\ndouble losses = 0, weights = 0;\n";
  text += kExponentsText;
  text += R"(
    const C log_sum = log(sum);
    if (KEEPS_RESULT)
      EACH lazyt_store((T*)a.w[7], LINE1(l) + AT1(i), (KEEPS ? kept[KEEPS ? k : 0] : lazyt_load(x, AT0(i))) - top - log_sum);
    if (n && lane == 0) {
      const long long line = LINE2(l);
      TARGET(line);
      const C loss = counts ? -ROUND(lazyt_load(x, AT0(t)) - top - log_sum) * scale : (C)0;
      if (KEEPS_LINES) {
        ((C*)a.w[8])[line] = top;
        ((C*)a.w[8])[COUNT + line] = log_sum;
      }
      if (!REDUCES) lazyt_store((T*)a.w[5], line, loss);
      losses += (double)loss;
      weights += (double)scale;
    }
  }
  if (REDUCES) {
    losses = lazyt_block_total<lazyt_sum, double, THREADS>(losses);
    weights = lazyt_block_total<lazyt_sum, double, THREADS>(weights);
    if (BLOCKS > 1) {
      double* parts = (double*)a.w[9];
      if (threadIdx.x == 0) {
        parts[blockIdx.x] = losses;
        parts[BLOCKS + blockIdx.x] = weights;
      }
      if (!lazyt_is_last((unsigned*)a.w[10], BLOCKS)) return;
      losses = weights = 0;
      for (int p = threadIdx.x; p < BLOCKS; p += THREADS) {
        losses += parts[p];
        weights += parts[BLOCKS + p];
      }
      losses = lazyt_block_total<lazyt_sum, double, THREADS>(losses);
      weights = lazyt_block_total<lazyt_sum, double, THREADS>(weights);
    }
    if (threadIdx.x == 0) lazyt_store((T*)a.w[5], 0, (C)(MEAN ? losses / weights : losses));
  }
  if (threadIdx.x == 0 && (REDUCES || blockIdx.x == 0)) lazyt_store((T*)a.w[6], 0, REDUCES ? (C)weights : (C)0);
}
#undef TARGET
)";
  text += kLineTextEnd;
  b.add_kernel(specialise("softmax_loss", text, defines), {static_cast<uint32_t>(blocks), 1, 1}, {team.threads, 1, 1}, 0,
               words, {x.storage, target.storage, weight.storage}, writes);
}

// The sums are taken in double, in an order that the sizes alone decide.
void lower_nll_forward(Builder& b, const lazyt_node_t& node) {
  if (Epilogue* const e = b.epilogue()) return lower_with_softmax(b, node, *e);
  const auto args = b.program.args(node);
  const Tensor self = b.dense(tensor_at(b, args[0])), target = dense_as(b, tensor_at(b, args[1]), LAZYT_DTYPE_INT64);
  const bool weighted = !b.is_none(args[2]);
  const Tensor weight = weighted ? b.dense(tensor_at(b, args[2])) : self;
  const int64_t reduction = b.int_of(args[3]);
  const Classes classes = classes_of(self.dims());
  const Tensor out = b.make_dense(node.results), total = b.make_dense(node.results + 1);
  const auto fault = bad_target(b);
  Defines defines = defines_of(self, classes, weighted, b.int_of(args[4]));
  std::vector<Word> words = {Word::address(self), Word::address(target), Word::address(weight), fault[0], fault[1]};
  std::string text = each_text(kTarget);
  if (reduction == kNone) {
    b.fill(total, {true, true, 0, 0, 0, LAZYT_DTYPE_INT64});
    if (classes.count() == 0) return;
    words.push_back(Word::address(out));
    text += R"(
LAZYT_KERNEL(KERNEL, 6, 256) {
  LAZYT_EACH(i, COUNT) {
    TARGET(i);
    const C loss = counts ? -lazyt_load((const T*)a.w[0], (i / SPATIAL * CLASSES + t) * SPATIAL + i % SPATIAL) * scale : (C)0;
    lazyt_store((T*)a.w[5], i, loss);
  }
}
#undef TARGET
)";
    b.add_kernel(specialise("nll_loss", text, defines), classes.count(), kThreads, words,
                 {self.storage, target.storage, weight.storage}, {out.storage});
    return;
  }
  const int64_t blocks = std::clamp<int64_t>(classes.count() / (4 * kThreads), 1, kMostBlocks);
  const Tensor parts = b.scratch(LAZYT_DTYPE_FLOAT64, {2, blocks});
  for (const Tensor& t : {parts, b.counters(1), out, total}) words.push_back(Word::address(t));
  defines.emplace_back("BLOCKS", std::to_string(blocks));
  defines.emplace_back("MEAN", reduction == kMean ? "true" : "false");
  text += R"(
LAZYT_KERNEL(KERNEL, 9, 256) {
  double* parts = (double*)a.w[5];
  double sum = 0, weights = 0;
  LAZYT_EACH(i, COUNT) {
    TARGET(i);
    if (counts) sum += (double)(-lazyt_load((const T*)a.w[0], (i / SPATIAL * CLASSES + t) * SPATIAL + i % SPATIAL) * scale);
    weights += (double)scale;
  }
  sum = lazyt_block_total<lazyt_sum, double, 256>(sum);
  weights = lazyt_block_total<lazyt_sum, double, 256>(weights);
  if (BLOCKS > 1) {
    if (threadIdx.x == 0) {
      parts[blockIdx.x] = sum;
      parts[BLOCKS + blockIdx.x] = weights;
    }
    if (!lazyt_is_last((unsigned*)a.w[6], BLOCKS)) return;
    sum = lazyt_block_total<lazyt_sum, double, 256>(threadIdx.x < BLOCKS ? parts[threadIdx.x] : 0.0);
    weights = lazyt_block_total<lazyt_sum, double, 256>(threadIdx.x < BLOCKS ? parts[BLOCKS + threadIdx.x] : 0.0);
  }
  if (threadIdx.x == 0) {
    lazyt_store((T*)a.w[7], 0, (C)(MEAN ? sum / weights : sum));
    lazyt_store((T*)a.w[8], 0, (C)weights);
  }
}
#undef TARGET
)";
  b.add_kernel(specialise("nll_loss", text, defines), {static_cast<uint32_t>(blocks), 1, 1},
               {static_cast<uint32_t>(kThreads), 1, 1}, 0, words,
               {self.storage, target.storage, weight.storage}, {parts.storage, out.storage, total.storage});
}

void lower_nll_backward(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor grad = b.dense(tensor_at(b, args[0])), target = dense_as(b, tensor_at(b, args[2]), LAZYT_DTYPE_INT64);
  const bool weighted = !b.is_none(args[3]);
  const Tensor weight = weighted ? b.dense(tensor_at(b, args[3])) : grad;
  const int64_t reduction = b.int_of(args[4]);
  const Tensor total = b.dense(tensor_at(b, args[6])), out = b.make_dense(node.results);
  const Classes classes = classes_of(out.dims());
  const auto fault = bad_target(b);
  Defines defines = defines_of(out, classes, weighted, b.int_of(args[5]));
  defines.emplace_back("MEAN", reduction == kMean ? "true" : "false");
  defines.emplace_back("NONE", reduction == kNone ? "true" : "false");
  if (out.count() == 0) return;
  b.add_kernel(specialise("nll_loss_backward", each_text(std::string(kTarget) + R"(
LAZYT_KERNEL(KERNEL, 7, 256) {
  const C divisor = MEAN ? lazyt_load((const T*)a.w[5], 0) : (C)1;
  LAZYT_EACH(e, COUNT * CLASSES) {
    const I i = e / (SPATIAL * CLASSES) * SPATIAL + e % SPATIAL, k = e / SPATIAL % CLASSES;
    TARGET(i);
    const C g = counts && k == t ? -scale * lazyt_load((const T*)a.w[0], NONE ? i : 0) / divisor : (C)0;
    lazyt_store((T*)a.w[6], e, g);
  }
}
#undef TARGET
)"),
                          defines),
               out.count(), kThreads,
               {Word::address(grad), Word::address(target), Word::address(weight), fault[0], fault[1], Word::address(total), Word::address(out)},
               {grad.storage, target.storage, weight.storage, total.storage}, {out.storage});
}

}  // namespace

// The gradient of both, element by element: a line's gradient has one element that is not 0, which is its sum as well.
void lower_gradient_with_softmax(Builder& b, const lazyt_node_t& node, const Epilogue& e) {
  const lazyt_node_t& loss = b.program.nodes()[e.before.back()];
  const auto args = b.program.args(loss);
  // log softmax itself, or what it was taken of.
  const Tensor* const lines = e.forward && e.forward->lines ? &*e.forward->lines : nullptr;
  const lazyt_arg_t& saved = b.program.args(node)[1];
  const Tensor in = tensor_at(b, lines ? b.program.args(b.program.nodes()[e.forward->before[0]])[0] : saved);
  const Tensor target = dense_as(b, tensor_at(b, args[2]), LAZYT_DTYPE_INT64);
  const bool weighted = !b.is_none(args[3]);
  const Tensor weight = weighted ? b.dense(tensor_at(b, args[3])) : in;
  const Tensor total = b.dense(tensor_at(b, args[6]));
  const bool is_number = e.before.size() > 1;  // the gradient of the loss
  const Tensor grad = is_number ? in : b.dense(tensor_at(b, args[0]));
  const int64_t reduction = b.int_of(args[4]);
  const Tensor out = b.make(node.results, b.result_strides(node.results, in.strides()));
  const Classes classes = classes_of(out.dims());
  const size_t axis = out.dims().size() > 1 ? 1 : 0;
  std::vector<bool> reduced(out.dims().size(), false);
  reduced[axis] = true;

  // As the result lies.
  const auto order = toolkit::memory_order(out.dims(), out.strides());
  auto ordered = [&](const Dims& of) {
    Dims to;
    for (size_t d : order) to.push_back(of[d]);
    return to;
  };
  Dims along(out.dims().size(), 0);
  along[axis] = 1;
  const Layout of_targets = beside(Layout::dense(target.dims()), out.dims(), reduced);
  const Strides names = {{"to", ordered(out.strides())},
                         {"from", ordered(in.strides())},
                         {"line", ordered(of_targets.strides)},
                         {"k", ordered(along)}};
  auto flag = [](bool set) { return std::string(set ? "true" : "false"); };
  Defines defines = defines_of(out, classes, weighted, b.int_of(args[5]));
  for (auto& [name, value] : defines)
    if (name == "I") value = index_type({out.count(), span_of(in.layout), span_of(out.layout)});
  const Defines own = {{"ROUND(x)", rounding(out.dtype)},
                       {"MEAN", flag(reduction == kMean)},
                       {"NONE", flag(reduction == kNone)},
                       {"LINES", flag(lines)},
                       {"NUMBER", flag(is_number)},
                       {"OFFSETS", offsets("e", ordered(out.dims()), names)}};
  defines.insert(defines.end(), own.begin(), own.end());
  const auto fault = bad_target(b);
  const Word grad_word =
      is_number ? Word::f64(b.number_of(b.program.args(b.program.nodes()[e.before[0]])[1])) : Word::address(grad);
  std::vector<StorageId> reads = {target.storage, total.storage}, reads_in_place;
  if (weighted) reads.push_back(weight.storage);
  if (!is_number) reads.push_back(grad.storage);
  if (lines) reads.push_back(lines->storage);
  const bool lies_alike = out.layout.offset == in.layout.offset && toolkit::same_strides(out.dims(), out.strides(), in.strides());
  (lies_alike ? reads_in_place : reads).push_back(in.storage);
  b.add_kernel(specialise("softmax_loss_backward", each_text(std::string(kTarget) + R"(
LAZYT_KERNEL(KERNEL, 9, 256) {
  const C divisor = MEAN ? lazyt_load((const T*)a.w[5], 0) : (C)1;
  LAZYT_EACH(e, COUNT * CLASSES) {
    OFFSETS
    TARGET(line);
    const C seed = NUMBER ? ROUND((C)lazyt_f64(a.w[0])) : lazyt_load((const T*)a.w[0], NONE ? line : 0);
    const C g = counts ? ROUND(-scale * seed / divisor) : (C)0;
    C y = lazyt_load((const T*)a.w[6], from);
    if (LINES) y = ROUND(y - ((const C*)a.w[7])[line] - ((const C*)a.w[7])[COUNT + line]);
    lazyt_store((T*)a.w[8], to, (k == t ? g : (C)0) - exp(y) * g);
  }
}
#undef TARGET
)"),
                          defines),
               out.count(), kThreads,
               {grad_word, Word::address(target), Word::address(weight), fault[0], fault[1], Word::address(total),
                Word::address(in), lines ? Word::address(*lines) : Word::integer(0), Word::address(out)},
               reads, {out.storage}, reads_in_place);
}

void register_loss(Operators& all) {
  using toolkit::Role;
  auto opaque = [&](lazyt_op_t op, toolkit::Accept accept, Operator::Lower lower) { all.add(op, {Role::kOpaque, accept, lower}); };
  opaque(LAZYT_OP_NLL_LOSS_FORWARD, accept_nll_forward, lower_nll_forward);
  opaque(LAZYT_OP_NLL_LOSS2D_FORWARD, accept_nll_forward, lower_nll_forward);
  opaque(LAZYT_OP_NLL_LOSS_BACKWARD, accept_nll_backward, lower_nll_backward);
  opaque(LAZYT_OP_NLL_LOSS2D_BACKWARD, accept_nll_backward, lower_nll_backward);
  toolkit::add_losses<FusedKernel>(all);
}

}  // namespace lazyt::cuda
