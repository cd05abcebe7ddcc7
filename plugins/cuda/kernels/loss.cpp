// Losses: negative log likelihood over classes; pointwise losses are the toolkit's.
#include "lazyt/toolkit/losses.hpp"

#include "../codegen/kernel.h"
#include "text.h"

namespace lazyt::cuda {
namespace {

using namespace toolkit::losses;
constexpr int64_t kThreads = 256;
// Blocks of a sum; the last of them adds what all have, one part a thread.
constexpr int64_t kMostBlocks = 256;

std::array<Word, 2> bad_target(Builder& b) { return b.fault({LAZYT_CODE_OUT_OF_RANGE, "Target ", " is out of bounds."}); }

// Of target i: t, loss and weight; TARGET runs the statements after it for those that count.
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

// The sums are taken in double, in an order that the sizes alone decide.
void lower_nll_forward(Builder& b, const lazyt_node_t& node) {
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
