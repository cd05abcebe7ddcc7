// Random tensors from the ABI's Philox stream (PRG-7); lazyt::dropout is a pointwise instruction.
#include "text.h"

namespace lazyt::cuda {
namespace {

using toolkit::accept_known;

// f32 takes one word an element, f64 and i64 two: a thread makes the elements of one call of Philox, 4 or 2.
// EMIT(k, one, two) writes element i + k, whose words are 32 bits wide, or 64.
constexpr std::string_view kDraw = R"(
LAZYT_KERNEL(KERNEL, WORDS, 256) {
  typedef long long I;
  const long long count = (long long)a.w[1];
  LAZYT_EACH(q, (count + EACH_CALL - 1) / EACH_CALL) {
    const lazyt_words x = lazyt_philox(a.w[2], a.w[3] + (unsigned long long)q);
    const long long i = q * EACH_CALL;
#if EACH_CALL == 4
    const unsigned u[4] = {x.w[0], x.w[1], x.w[2], x.w[3]};
#else
    const unsigned long long u[2] = {x.w[0] | (unsigned long long)x.w[1] << 32, x.w[2] | (unsigned long long)x.w[3] << 32};
#endif
    BODY
  }
}
)";
// Of results that depend on their own words alone.
constexpr const char* kEachElement =
    "for (int k = 0; k < EACH_CALL; ++k) if (i + k < count) lazyt_store((T*)a.w[0], i + k, ELEMENT);";
// words: what `body` reads from a.w[4] on.
void add_draw(Builder& b, const char* name, const Tensor& out, const Number& seed, const Number& offset, bool wide, Defines defines,
              std::vector<Word> words, const std::vector<StorageId>& reads) {
  const int64_t each = wide ? 2 : 4;
  std::vector<Word> all = {Word::address(out), Word::integer(out.count()), Word::i64(seed), Word::i64(offset)};
  all.insert(all.end(), words.begin(), words.end());
  defines.insert(defines.begin(), {{"T", memory_type(out.dtype)},
                                   {"EACH_CALL", std::to_string(each)},
                                   {"WORDS", std::to_string(all.size())}});
  if (out.count() == 0) return;
  b.add_kernel(specialise(name, each_text(kDraw), defines), (out.count() + each - 1) / each, 256, all, reads, {out.storage});
}

bool is_f64(const Tensor& t) { return t.dtype == LAZYT_DTYPE_FLOAT64; }

// Two roundings: NVRTC is asked for no fused multiply-add.
void uniform(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor out = b.make_dense(node.results);
  const std::string c = register_type(out.dtype), low = "(" + c + ")lazyt_f64(a.w[4])", high = "(" + c + ")lazyt_f64(a.w[5])";
  add_draw(b, "uniform", out, b.number_of(args[4]), b.number_of(args[5]), is_f64(out), {{"ELEMENT", "lazyt_unit(u[k]) * (" + high + " - " + low + ") + " + low}, {"BODY", kEachElement}},
           {Word::f64(b.number_of(args[2])), Word::f64(b.number_of(args[3]))}, {});
}

void normal(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor out = b.make_dense(node.results);
  constexpr const char* kBody =
      "const T mean = (T)lazyt_f64(a.w[4]), deviation = (T)lazyt_f64(a.w[5]);"
      "for (int k = 0; k < EACH_CALL; k += 2) {"
      "  T even, odd;"
      "  lazyt_normal_pair(u[k], u[k + 1], even, odd);"
      "  if (i + k < count) ((T*)a.w[0])[i + k] = even * deviation + mean;"
      "  if (i + k + 1 < count) ((T*)a.w[0])[i + k + 1] = odd * deviation + mean;"
      "}";
  add_draw(b, "normal", out, b.number_of(args[4]), b.number_of(args[5]), is_f64(out), {{"BODY", kBody}},
           {Word::f64(b.number_of(args[2])), Word::f64(b.number_of(args[3]))}, {});
}

void bernoulli(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor p = b.dense(Builder::value_of(args[0]));
  const Tensor out = b.make_dense(node.results);
  add_draw(b, "bernoulli", out, b.number_of(args[1]), b.number_of(args[2]), false,
           {{"ELEMENT", "lazyt_unit(u[k]) < lazyt_load((const T*)a.w[4], i + k) ? (T)1 : (T)0"}, {"BODY", kEachElement}}, {Word::address(p)},
           {p.storage});
}

void randint(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor out = b.make_dense(node.results);
  const bool wide = out.dtype == LAZYT_DTYPE_INT64 || out.dtype == LAZYT_DTYPE_FLOAT64;
  const std::string cast = "lazyt_cast<" + register_type(out.dtype) + ">";
  add_draw(b, "randint", out, b.number_of(args[4]), b.number_of(args[5]), wide,
           {{"RANGE", "(a.w[5] - a.w[4])"},
            {"ELEMENT", cast + "((long long)(a.w[4] + (RANGE ? (unsigned long long)u[k] % RANGE : (unsigned long long)u[k])))"},
            {"BODY", kEachElement}},
           {Word::i64(b.number_of(args[2])), Word::i64(b.number_of(args[3]))}, {});
}

Refusal accept_float_result(const ProgramView& program, const lazyt_node_t& node) {
  if (Refusal r = accept_known(program, node); r.reason != LAZYT_REASON_NONE) return r;
  const lazyt_dtype_t d = program.values()[node.results].dtype;
  return d == LAZYT_DTYPE_FLOAT32 || d == LAZYT_DTYPE_FLOAT64 ? Refusal{} : refuse_dtype(d);
}
Refusal accept_randint(const ProgramView& program, const lazyt_node_t& node) {
  if (Refusal r = accept_known(program, node); r.reason != LAZYT_REASON_NONE) return r;
  const lazyt_dtype_t d = program.values()[node.results].dtype;
  return d == LAZYT_DTYPE_FLOAT16 || d == LAZYT_DTYPE_BFLOAT16 ? refuse_dtype(d) : Refusal{};
}

}  // namespace

void register_random(Operators& all) {
  using enum toolkit::Role;
  all.add(LAZYT_OP_LAZYT_UNIFORM, {kOpaque, accept_float_result, uniform});
  all.add(LAZYT_OP_LAZYT_NORMAL, {kOpaque, accept_float_result, normal});
  all.add(LAZYT_OP_LAZYT_BERNOULLI, {kOpaque, accept_float_result, bernoulli});
  all.add(LAZYT_OP_LAZYT_RANDINT, {kOpaque, accept_randint, randint});
}

}  // namespace lazyt::cuda
