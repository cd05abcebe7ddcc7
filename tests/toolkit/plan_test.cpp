// A backend over plan.hpp whose steps are text: "s5 = neg s0", storages by number, * for one read in place.
#include "lazyt/toolkit/plan.hpp"

#include "lazyt/toolkit/moves.hpp"
#include "lazyt/toolkit/operators.hpp"
#include "program_text.h"

namespace lazyt::toolkit {
namespace {

class TextBuilder;

// A kernel that remembers its instructions.
class TextKernel {
 public:
  static constexpr size_t kMaxReductions = 4;
  TextKernel(const Dims& dims, std::vector<bool> reduced) : dims_(dims), reduced_(std::move(reduced)) {}

  Type type(Reg r) const { return types_[r]; }
  Reg load(const Tensor& t) {
    loads_.push_back(t);
    return add("load s" + std::to_string(t.storage), type_of(t.dtype));
  }
  Reg number(const Number&, Type t) { return add("number", t); }
  Reg constant(double d, Type t) { return add(std::to_string(d), t); }
  Reg op(Op, Reg a, Reg = kNoReg, Reg = kNoReg) { return add("op", types_[a]); }
  Reg cast(Reg a, Type t) { return t == types_[a] ? a : add("cast", t); }
  Reg round_to(Reg a, lazyt_dtype_t) { return a; }
  Reg index(size_t) { return add("index", Type::kI64); }
  Reg uniform(const Number&, const Number&) { return add("uniform", Type::kF32); }
  void store(Reg, const Tensor& t) { stores_.push_back(t); }
  void reduce(Reg, ReduceKind, const Tensor& t, double = 1, bool = false) { stores_.push_back(t), reduces_ = true; }
  Dims widest(const Dims&) const { return {}; }
  bool empty() const { return stores_.empty(); }
  void build(TextBuilder& b, const std::vector<StorageId>& may_alias_inputs);

 private:
  Reg add(std::string text, Type t) {
    code_.push_back(std::move(text));
    types_.push_back(t);
    return static_cast<Reg>(types_.size() - 1);
  }
  Dims dims_;
  std::vector<bool> reduced_;
  std::vector<std::string> code_;
  std::vector<Type> types_;
  std::vector<Tensor> loads_, stores_;
  bool reduces_ = false;
};

class TextBuilder final : public Builder {
 public:
  TextBuilder(Plan& plan, const plugin::ProgramView& program) : Builder(plan, program, "text", 64) {
    add_common<TextKernel>(operators_);
    add_moves(operators_);
    operators_.add(LAZYT_OP_MM, {Role::kOpaque, accept_floats, [](TextBuilder& b, const lazyt_node_t& node) {
                                   std::vector<StorageId> reads;
                                   for (const lazyt_arg_t& a : b.program.args(node)) reads.push_back(b.dense(value_of(a)).storage);
                                   b.add("mm", reads, {b.make_dense(node.results).storage});
                                 }});
  }
  void add(std::string text, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
           const std::vector<StorageId>& in_place = {}, bool moves = false) {
    std::string line;
    for (StorageId s : writes) line += "s" + std::to_string(s) + " ";
    line += "= " + text;
    for (StorageId s : reads) line += " s" + std::to_string(s);
    for (StorageId s : in_place) line += " s" + std::to_string(s) + "*";
    steps.push_back(line);
    note_step({reads, writes, in_place, moves});
  }
  void copy(const Tensor& src, const Tensor& dst) override {
    if (may_lie_on(src, dst, {}))
      add("copy", {}, {dst.storage}, {src.storage}, true);
    else
      add("copy", {src.storage}, {dst.storage});
  }
  void fill(const Tensor& dst, Number) override { add("fill", {}, {dst.storage}); }
  using Builder::may_lie_on;

  std::vector<std::string> steps;
  bool merge_all = false;
  bool reuse = false;

 private:
  bool reuses_operands() const override { return reuse; }
  Role role_of(const lazyt_node_t& node) override { return operators_.role_of(program, node); }
  void lower_node(const lazyt_node_t& node) override { operators_.find(program, node)->lower(*this, node); }
  void lower_group(const Unit& unit) override { toolkit::lower_group<TextKernel>(*this, unit); }
  void copy_beside(const Tensor& from, const Tensor& to) override { add("beside", {from.storage}, {to.storage}); }
  std::vector<uint32_t> merge(const std::vector<Access>& accesses) override {
    return merge_all ? std::vector<uint32_t>(accesses.size(), 0) : Builder::merge(accesses);
  }
  Operators<TextBuilder> operators_{"text", nullptr};
};

void TextKernel::build(TextBuilder& b, const std::vector<StorageId>&) {
  std::vector<StorageId> reads, in_place, writes;
  for (const Tensor& t : stores_) writes.push_back(t.storage);
  for (const Tensor& t : loads_) {
    const bool same = !reduces_ && t.dims() == stores_[0].dims() && t.strides() == stores_[0].strides();
    (same ? in_place : reads).push_back(t.storage);
  }
  for (auto* list : {&reads, &in_place}) {  // in which order a rule loads its operands is the compiler's
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  b.add(reduces_ ? "reduce" : "kernel", reads, writes, in_place);
}

struct Built {
  explicit Built(std::string_view body, bool merge_all = false, bool reuse = false) : text(body), program(text.view()) {
    TextBuilder builder(plan, program);
    builder.merge_all = merge_all;
    builder.reuse = reuse;
    builder.run();
    steps = builder.steps;
  }
  ProgramText text;
  plugin::ProgramView program;
  Plan plan;
  std::vector<std::string> steps;
};

using Steps = std::vector<std::string>;

TEST(Plan, AGroupIsOneStepThatStoresWhatOthersRead) {
  EXPECT_EQ(Built("program(%0: f32[8]) {\n  %1 = aten::neg(%0) : f32[8]\n  %2 = aten::exp(%1) : f32[8]\n  return %2\n}\n").steps,
            (Steps{"s1 = kernel s0*"}));
}

TEST(Plan, AViewIsNoStep) {
  const Built built("program(%0: f32[2,4]) {\n  %1 = aten::t(%0) : f32[4,2]\n  %2 = aten::mm(%0, %1) : f32[2,2]\n  return %2\n}\n");
  EXPECT_EQ(built.steps, (Steps{"s2 = copy s0", "s1 = mm s0 s2"}));
}

TEST(Plan, WhatAnOutputShowsUnderOtherDimsIsMadeThere) {
  const std::string body = "program(%0: f32[4,4]) {\n  %1 = aten::mm(%0, %0) : f32[4,4]\n  %2 = aten::reshape(%1, ints[2,8]) : f32[2,8]\n"
                           "  %3 = aten::reshape(%2, ints[16]) : f32[16]\n";
  EXPECT_EQ(Built(body + "  return %3\n}\n").steps, (Steps{"s1 = mm s0 s0"}));
  EXPECT_EQ(Built(body + "  %4 = aten::mm(%1, %0) : f32[4,4]\n  return %3, %4\n}\n").steps, (Steps{"s1 = mm s0 s0", "s2 = mm s1 s0"}));
  // One place for two outputs: the other is a copy.
  EXPECT_EQ(Built(body + "  return %1, %3\n}\n").steps, (Steps{"s1 = mm s0 s0", "s2 = copy s1*"}));
}

TEST(Plan, WhatAnOutputShowsInPartOrInAnotherOrderIsCopied) {
  const std::string body = "program(%0: f32[4,4]) {\n  %1 = aten::mm(%0, %0) : f32[4,4]\n";
  EXPECT_EQ(Built(body + "  %2 = aten::t(%1) : f32[4,4]\n  return %2\n}\n").steps, (Steps{"s2 = mm s0 s0", "s1 = copy s2"}));
  EXPECT_EQ(Built(body + "  %2 = aten::select.int(%1, 0, 0) : f32[4]\n  return %2\n}\n").steps, (Steps{"s2 = mm s0 s0", "s1 = copy s2*"}));
  // A value that lies by columns is made so, and its elements in a row are no bytes of it.
  const Built turned("program(%0: f32[4,4]{1,4}) {\n  %1 = aten::neg(%0) : f32[4,4]{1,4}\n  %2 = aten::reshape(%1, ints[1,4,4]) : f32[1,4,4]\n  return %2\n}\n");
  ASSERT_EQ(turned.steps.size(), 2u);
  EXPECT_EQ(turned.steps.back(), "s1 = copy s2*");
}

TEST(Plan, AReductionOfAnotherWalkIsAStepOfItsOwn) {
  const Built built("program(%0: f32[2,4]) {\n  %1 = aten::sum.dim_IntList(%0, ints[0], false, none) : f32[4]\n"
                    "  %2 = aten::sum.dim_IntList(%0, ints[1], false, none) : f32[2]\n  return %1, %2\n}\n");
  EXPECT_EQ(built.steps, (Steps{"s1 = reduce s0", "s2 = reduce s0"}));
}

TEST(Plan, ValuesWhoseLivesDoNotMeetShareBytes) {
  const Built built("program(%0: f32[16,16]) {\n  %1 = aten::mm(%0, %0) : f32[16,16]\n  %2 = aten::mm(%1, %0) : f32[16,16]\n"
                    "  %3 = aten::mm(%2, %0) : f32[16,16]\n  %4 = aten::mm(%3, %0) : f32[16,16]\n  return %4\n}\n");
  EXPECT_EQ(built.plan.arena_bytes, 2u * 16 * 16 * 4);
}

// mm, neg, mm, neg, mm: without reuse, two values live at each step; a neg in place needs one.
std::string chain(const std::string& between) {
  return "program(%0: f32[16,16]) {\n  %1 = aten::mm(%0, %0) : f32[16,16]\n  %2 = aten::neg(%1) : f32[16,16]\n" + between +
         "  return %3\n}\n";
}

TEST(Plan, AResultTakesTheBytesOfAnOperandThatDiesThere) {
  const std::string body = chain("  %3 = aten::mm(%2, %0) : f32[16,16]\n");
  EXPECT_EQ(Built(body).plan.arena_bytes, 2u * 16 * 16 * 4);
  EXPECT_EQ(Built(body, false, true).plan.arena_bytes, 1u * 16 * 16 * 4);
}

TEST(Plan, AnOperandThatIsReadLaterKeepsItsBytes) {
  const std::string body = chain("  %3 = aten::mm(%2, %1) : f32[16,16]\n");
  EXPECT_EQ(Built(body, false, true).plan.arena_bytes, 2u * 16 * 16 * 4);
}

TEST(Plan, AnOperandThatAStepRunningBesideReadsKeepsItsBytes) {
  const std::string body =
      "program(%0: f32[16,16]) {\n  %1 = aten::mm(%0, %0) : f32[16,16]\n  %2 = aten::neg(%1) : f32[16,16]\n"
      "  %3 = aten::mm(%1, %0) : f32[16,16]\n  %4 = aten::mm(%2, %3) : f32[16,16]\n  return %4\n}\n";
  EXPECT_EQ(Built(body, true, true).plan.arena_bytes, 3u * 16 * 16 * 4);
}

// A row is written, and what reads `read` comes later.
std::string written(const std::string& read) {
  return "program(%0: f32[16,16], %1: f32[1,16]) {\n  %2 = aten::mm(%0, %0) : f32[16,16]\n"
         "  %3 = aten::slice_scatter(%2, %1, 0, 3, 4, 1) : f32[16,16]\n  %4 = aten::slice_scatter(%3, %1, 0, 4, 5, 1) : f32[16,16]\n"
         "  %5 = aten::mm(%4, " + read + ") : f32[16,16]\n  return %5\n}\n";
}

TEST(Plan, AWriteToAPartOfWhatDiesThereCopiesNoMore) {
  const Built built(written("%0"));
  EXPECT_EQ(built.plan.arena_bytes, 1u * 16 * 16 * 4);
  EXPECT_EQ(built.steps[1], "s4 = copy s3*");
  EXPECT_EQ(built.plan.storages[4].offset, built.plan.storages[3].offset);
}

TEST(Plan, AWriteToAPartOfWhatIsReadLaterCopiesAll) {
  const Built built(written("%2"));
  EXPECT_EQ(built.plan.arena_bytes, 2u * 16 * 16 * 4);
  EXPECT_NE(built.plan.storages[4].offset, built.plan.storages[3].offset);
  EXPECT_EQ(built.plan.storages[5].offset, built.plan.storages[4].offset);
}

TEST(Plan, AWriteToAPartOfADonorIsMadeOnIt) {
  const Built built("program(%0: f32[16,16] donate, %1: f32[1,16]) {\n  %2 = aten::slice_scatter(%0, %1, 0, 3, 4, 1) : f32[16,16]\n  return %2 <- %0\n}\n");
  EXPECT_EQ(built.steps, (Steps{"s2 = copy s0*", "s2 = copy s1"}));
  EXPECT_EQ(built.plan.storages[2].kind, Plan::Piece::kOutput);
}

TEST(Plan, AnOutputLiesOnItsDonorWhenOnlyItsOwnStepReadsThat) {
  const Built built("program(%0: f32[8] donate) {\n  %1 = aten::neg(%0) : f32[8]\n  return %1 <- %0\n}\n");
  EXPECT_EQ(built.steps, (Steps{"s1 = kernel s0*"}));
  EXPECT_EQ(built.plan.storages[1].kind, Plan::Piece::kOutput);
  EXPECT_EQ(built.plan.outputs[0].donor, 0u);
}

constexpr std::string_view kReadLater =
    "program(%0: f32[2,2] donate) {\n  %1 = aten::neg(%0) : f32[2,2]\n  %2 = aten::mm(%1, %1) : f32[2,2]\n"
    "  %3 = aten::mm(%2, %0) : f32[2,2]\n  return %1 <- %0, %3\n}\n";

TEST(Plan, AnOutputIsComputedBesideWhenALaterStepReadsTheDonor) {
  const Built built(kReadLater);
  EXPECT_EQ(built.steps.back(), "s4 = beside s1");
  EXPECT_EQ(built.plan.storages[1].kind, Plan::Piece::kBeside);
  EXPECT_EQ(built.plan.step_nodes.size(), built.steps.size());
}

// Two updates in place: each is safe alone, and when they run together as well, for neither reads the other's donor.
TEST(Plan, StepsThatRunTogetherMayWriteTheirOwnDonors) {
  const Built built("program(%0: f32[8] donate, %1: f32[4] donate) {\n  %2 = aten::neg(%0) : f32[8]\n  %3 = aten::neg(%1) : f32[4]\n"
                    "  return %2 <- %0, %3 <- %1\n}\n", true);
  EXPECT_EQ(built.steps.size(), 2u);
}

TEST(Plan, StepsThatRunTogetherMayNotWriteWhatTheOtherReads) {
  constexpr std::string_view kProgram =
      "program(%0: f32[2,2] donate) {\n  %1 = aten::mm(%0, %0) : f32[2,2]\n  %2 = aten::neg(%0) : f32[2,2]\n  return %2 <- %0, %1\n}\n";
  EXPECT_EQ(Built(kProgram, false).steps.size(), 2u);
  EXPECT_EQ(Built(kProgram, true).steps.back(), "s3 = beside s1");
}

TEST(Plan, AnInputThatIsAnOutputIsCopied) {
  EXPECT_EQ(Built("program(%0: f32[8]) {\n  return %0\n}\n").steps, (Steps{"s1 = copy s0*"}));
}

TEST(Plan, AHostScalarThatIsAnOutputIsFilledIn) {
  EXPECT_EQ(Built("program(%0: host f64) {\n  return %0\n}\n").steps, (Steps{"s1 = fill"}));
}

TEST(Plan, ARefusalNamesThePluginAndTheOperator) {
  try {
    Built("program(%0: c64[8]) {\n  %1 = aten::neg(%0) : c64[8]\n  return %1\n}\n");
    FAIL() << "a complex program was built";
  } catch (const plugin::Error& e) {
    EXPECT_EQ(e.message(), "text: aten::neg: dtype " + std::to_string(LAZYT_DTYPE_COMPLEX64) + " is not taken");
  }
}

lazyt_scalar_t scalar_of(uint16_t bits) {
  lazyt_scalar_t s{};
  std::memcpy(s.bytes, &bits, sizeof bits);
  return s;
}

TEST(WithScalar, ReadsEveryHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = (bits >> 10) & 31, sign = bits >> 15 ? -1 : 1;
    const double mantissa = bits & 0x3ff;
    const float got = with_scalar(scalar_of(static_cast<uint16_t>(bits)), LAZYT_DTYPE_FLOAT16, [](auto v) { return static_cast<float>(v); });
    if (exponent == 31) {
      EXPECT_TRUE(mantissa ? got != got : got == sign * std::numeric_limits<float>::infinity()) << bits;
    } else {
      const double want = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
      EXPECT_EQ(got, static_cast<float>(sign * want)) << bits;
    }
  }
}

TEST(WithScalar, ReadsBFloat16AsTheUpperHalfOfAFloat) {
  EXPECT_EQ(with_scalar(scalar_of(0xc049), LAZYT_DTYPE_BFLOAT16, [](auto v) { return static_cast<float>(v); }), -3.140625f);
}

// ---- what is computed again (recompute.hpp)

Steps steps_of(const std::string& body) { return Built("program(%0: f32[4,4], %1: f32[4,4]) {\n" + body + "}\n").steps; }

TEST(Recompute, WhatCostsAnInstructionFromAStoredValueIsNotStored) {
  // 1 + exp(x) beside exp(x), as a gradient reads them: one of them is stored.
  EXPECT_EQ(steps_of("  %2 = aten::exp(%1) : f32[4,4]\n  %3 = aten::add.Tensor(%2, 1, 1) : f32[4,4]\n  %4 = aten::sin(%3) : f32[4,4]\n"
                     "  %5 = aten::mm(%4, %0) : f32[4,4]\n"
                     "  %6 = aten::mul.Tensor(%5, %3) : f32[4,4]\n  %7 = aten::mul.Tensor(%6, %2) : f32[4,4]\n  return %7\n"),
            (Steps{"s3 s4 = kernel s1*", "s5 = mm s4 s0", "s2 = kernel s3* s5*"}));
}

TEST(Recompute, WhatIsReadOnlyFarBehindIsMadeThereAlone) {
  EXPECT_EQ(steps_of("  %2 = aten::exp(%1) : f32[4,4]\n  %3 = aten::mul.Tensor(%2, 0.5) : f32[4,4]\n  %4 = aten::mm(%2, %0) : f32[4,4]\n"
                     "  %5 = aten::mul.Tensor(%4, %3) : f32[4,4]\n  return %5\n"),
            (Steps{"s3 = kernel s1*", "s4 = mm s3 s0", "s2 = kernel s3* s4*"}));
}

TEST(Recompute, FromAnInput) {
  EXPECT_EQ(steps_of("  %2 = aten::mul.Tensor(%1, 0.5) : f32[4,4]\n  %3 = aten::exp(%2) : f32[4,4]\n  %4 = aten::mm(%3, %0) : f32[4,4]\n"
                     "  %5 = aten::mul.Tensor(%4, %2) : f32[4,4]\n  return %5\n"),
            (Steps{"s3 = kernel s1*", "s4 = mm s3 s0", "s2 = kernel s1* s4*"}));
}

TEST(Recompute, WhatCostsMoreIsStored) {
  EXPECT_EQ(steps_of("  %2 = aten::exp(%1) : f32[4,4]\n  %3 = aten::sin(%2) : f32[4,4]\n  %4 = aten::mm(%3, %0) : f32[4,4]\n"
                     "  %5 = aten::mul.Tensor(%4, %2) : f32[4,4]\n  return %5\n"),
            (Steps{"s3 s4 = kernel s1*", "s5 = mm s4 s0", "s2 = kernel s3* s5*"}));
}

TEST(Recompute, MoreBytesThanTheValueHasAreReadOnlyWhereTheyAreAnyway) {
  const std::string before = "  %2 = aten::exp(%1) : f32[4,4]\n  %3 = aten::gt.Scalar(%2, 1) : b1[4,4]\n  %4 = aten::mm(%2, %0) : f32[4,4]\n"
                             "  %5 = aten::mul.Tensor(%4, %3) : f32[4,4]\n";
  EXPECT_EQ(steps_of(before + "  return %5\n"), (Steps{"s3 s4 = kernel s1*", "s5 = mm s3 s0", "s2 = kernel s4* s5*"}));
  EXPECT_EQ(steps_of(before + "  %6 = aten::mul.Tensor(%5, %2) : f32[4,4]\n  return %6\n"),
            (Steps{"s3 = kernel s1*", "s4 = mm s3 s0", "s2 = kernel s3* s4*"}));
}

TEST(Recompute, WhatAKernelOfItsOwnReadsTooIsStored) {
  EXPECT_EQ(steps_of("  %2 = aten::mul.Tensor(%1, 0.5) : f32[4,4]\n  %3 = aten::mm(%2, %0) : f32[4,4]\n"
                     "  %4 = aten::mul.Tensor(%3, %2) : f32[4,4]\n  return %4\n"),
            (Steps{"s3 = kernel s1*", "s4 = mm s3 s0", "s2 = kernel s3* s4*"}));
}

TEST(Recompute, AnInputWhoseBytesAnOutputTakesIsNotReadLater) {
  EXPECT_EQ(Built("program(%0: f32[4,4], %1: f32[4,4] donate) {\n"
                  "  %2 = aten::mul.Tensor(%1, 0.5) : f32[4,4]\n  %3 = aten::exp(%2) : f32[4,4]\n  %4 = aten::mm(%3, %0) : f32[4,4]\n"
                  "  %5 = aten::mul.Tensor(%4, %2) : f32[4,4]\n  return %5 <- %1\n}\n")
                .steps,
            (Steps{"s3 s4 = kernel s1*", "s5 = mm s4 s0", "s2 = kernel s3* s5*"}));
}

}  // namespace
}  // namespace lazyt::toolkit
