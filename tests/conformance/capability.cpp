// Answers to programs: the same each time, with reasons, and kept by compile.
#include "loader/handles.h"
#include "suite.h"

namespace lazyt::conformance {
namespace {

class Capability : public Case {
 protected:
  struct Answer {
    lazyt_answer_kind_t kind;
    lazyt_reason_t reason;
    lazyt_condition_t condition;
    uint32_t group;
    std::string detail;
    bool operator==(const Answer&) const = default;
  };

  bool query(const char* rule, const base::Ref<ir::Program>& program, std::vector<Answer>& out) {
    std::vector<lazyt_answer_t> raw(program->block()->nodes.count);
    for (lazyt_answer_t& a : raw) a.struct_size = sizeof a;
    if (!ok(rule, "capability.query",
            plugin().capability->query(device(), program->block(), raw.data(), raw.size(),
                                       sizeof(lazyt_answer_t))))
      return false;
    out.clear();
    for (const lazyt_answer_t& a : raw)
      out.push_back({a.kind, a.reason, a.condition, a.group, loader::to_string(a.detail)});
    return true;
  }
  static std::string show_answers(const std::vector<Answer>& answers) {
    std::string out;
    for (const Answer& a : answers)
      out += fmt::format("(kind {}, reason {}, group {}) ", a.kind, a.reason, a.group);
    return out;
  }
};

constexpr const char* kMixed =
    "program(%0: f32[4,4], %1: i64[4], %2: bf16[4]) {\n"
    " %3 = aten::add.Tensor(%0, %0, 1) : f32[4,4]\n"
    " %4 = conformance::no_such_operator(%3) : f32[4,4]\n"
    " %5 = aten::mm(%4, %3) : f32[4,4]\n"
    " %6 = aten::add.Tensor(%1, %1, 1) : i64[4]\n"
    " %7 = aten::mul.Tensor(%2, %2) : bf16[4]\n"
    " return %5, %6, %7\n}\n";
constexpr const char* kAdd =
    "program(%0: f32[4]) {\n %1 = aten::add.Tensor(%0, %0, 1) : f32[4]\n return %1\n}\n";

LAZYT_CASE(Capability, AnswersAreTheSameEachTime, "CAP-1") {
  base::Ref<ir::Program> mixed = parse(kMixed), add = parse(kAdd);
  MUST(mixed && add);
  std::vector<Answer> first, again, other;
  MUST(query("CAP-1", mixed, first));
  for (int i = 0; i < 6; i++) {
    if (i % 2) MUST(query("CAP-1", add, other));
    MUST(query("CAP-1", mixed, again));
    MUST(keeps("CAP-1", again == first, fmt::format("query number {} of one program", i + 2),
               show_answers(first), show_answers(again)));
  }
}

LAZYT_CASE(Capability, AnswersDoNotDependOnTheHandle, "CAP-1") {
  base::Ref<ir::Program> mixed = parse(kMixed);
  MUST(mixed);
  std::vector<Answer> first, second;
  MUST(query("CAP-1", mixed, first));
  DevicePtr other = open(0);
  MUST(other);
  std::vector<lazyt_answer_t> raw(first.size());
  for (lazyt_answer_t& a : raw) a.struct_size = sizeof a;
  MUST(ok("CAP-1", "query on a second handle",
          plugin().capability->query(other.get(), mixed->block(), raw.data(), raw.size(),
                                     sizeof(lazyt_answer_t))));
  for (size_t i = 0; i < raw.size(); i++)
    keeps("CAP-1", raw[i].kind == first[i].kind,
          fmt::format("query of node {} on two handles of device 0", i),
          fmt::format("kind {}", first[i].kind), fmt::format("kind {}", raw[i].kind));
}

LAZYT_CASE(Capability, TakenNodesCompile, "CAP-2") {
  // Each node that is taken, in a program of its own.
  const char* const programs[] = {
      kAdd,
      "program(%0: f32[4,4]) {\n %1 = aten::mm(%0, %0) : f32[4,4]\n return %1\n}\n",
      "program(%0: i64[4]) {\n %1 = aten::add.Tensor(%0, %0, 1) : i64[4]\n return %1\n}\n",
      "program(%0: bf16[4]) {\n %1 = aten::mul.Tensor(%0, %0) : bf16[4]\n return %1\n}\n",
      "program(%0: f64[2,3]) {\n %1 = aten::permute(%0, ints[1,0]) : f64[3,2]\n return %1\n}\n",
      "program(%0: b1[4]) {\n %1 = aten::logical_not(%0) : b1[4]\n return %1\n}\n",
      "program(%0: f32[0,3]) {\n %1 = aten::add.Tensor(%0, %0, 1) : f32[0,3]\n return %1\n}\n",
  };
  int taken = 0;
  for (const char* text : programs) {
    base::Ref<ir::Program> program = parse(text);
    MUST(program);
    std::vector<Answer> answers;
    MUST(query("CAP-2", program, answers));
    if (answers[0].kind != LAZYT_ANSWER_TAKE) continue;
    taken++;
    lazyt_compile_args_t args{sizeof args, nullptr, program->block(), 0};
    lazyt_executable_t* handle = nullptr;
    lazyt_status_t* status = plugin().executable->compile(device(), &args, &handle);
    ExecutablePtr executable(status ? nullptr : handle);
    ok("CAP-2", fmt::format("compile of a program whose one node is taken:\n{}", text), status);
  }
  if (taken == 0) unsupported("takes none of the nodes tried");
}

LAZYT_CASE(Capability, AProgramWithoutNodesCompiles, "CAP-2") {
  Compiled copy = compile("program(%0: f32[4]) {\n return %0\n}\n");
  MUST(copy);
  BufferPtr input = upload(floats({1, 2, 3, 4}));
  MUST(input);
  std::vector<Bytes> out = run("CAP-2", copy, {in(input)});
  MUST(out.size() == 1);
  same_bytes("CAP-2", "ran a program that returns its input", floats({1, 2, 3, 4}), out[0]);
}

LAZYT_CASE(Capability, DepthIsData, "CAP-2") {
  const int depth = options().full ? 20000 : 2000;
  std::string text = "program(%0: f32[2]) {\n";
  for (int i = 0; i < depth; i++)
    text += fmt::format(" %{} = aten::add.Tensor(%{}, %0, 1) : f32[2]\n", i + 1, i);
  text += fmt::format(" return %{}\n}}\n", depth);
  Compiled chain = compile(text);
  MUST(chain);
  BufferPtr input = upload(floats({1, 2}));
  MUST(input);
  std::vector<Bytes> out = run("CAP-2", chain, {in(input)});
  MUST(out.size() == 1);
  const float n = static_cast<float>(depth + 1);
  same_bytes("CAP-2", fmt::format("ran a chain of {} additions", depth), floats({n, 2 * n}), out[0]);
}

LAZYT_CASE(Capability, RefusalsHaveReasons, "CAP-3", "C-10") {
  base::Ref<ir::Program> mixed = parse(kMixed);
  MUST(mixed);
  std::vector<Answer> answers;
  MUST(query("CAP-3", mixed, answers));
  for (size_t i = 0; i < answers.size(); i++) {
    const Answer& a = answers[i];
    const std::string did = fmt::format("query, answer {}", i);
    keeps("C-10", a.kind >= LAZYT_ANSWER_REFUSE && a.kind <= LAZYT_ANSWER_ONLY_IF, did,
          "a kind of this header", fmt::format("{}", a.kind));
    if (a.kind == LAZYT_ANSWER_ONLY_IF)
      keeps("C-10", a.condition != LAZYT_CONDITION_NONE, did + ", taken only if", "a condition", "none");
    if (a.kind != LAZYT_ANSWER_REFUSE) continue;
    keeps("CAP-3", a.reason != LAZYT_REASON_NONE, did + ", a refusal", "a reason code", "0");
    keeps("CAP-3", !a.detail.empty(), did + ", a refusal", "a detail that names the operator or the dtype",
          "none");
  }
}

LAZYT_CASE(Capability, UnknownOperatorsAreRefused, "CAP-5", "CAP-2") {
  base::Ref<ir::Program> program =
      parse("program(%0: f32[4]) {\n %1 = conformance::no_such_operator(%0) : f32[4]\n return %1\n}\n");
  MUST(program);
  std::vector<Answer> answers;
  MUST(query("CAP-5", program, answers));
  if (answers[0].kind == LAZYT_ANSWER_REFUSE) {
    keeps("CAP-5", answers[0].reason == LAZYT_REASON_UNKNOWN_OPERATOR,
          "query of conformance::no_such_operator", "UNKNOWN_OPERATOR (1)",
          fmt::format("reason {}", answers[0].reason));
    return;
  }
  lazyt_compile_args_t args{sizeof args, nullptr, program->block(), 0};
  lazyt_executable_t* handle = nullptr;
  lazyt_status_t* status = plugin().executable->compile(device(), &args, &handle);
  ExecutablePtr executable(status ? nullptr : handle);
  ok("CAP-2", "compile of conformance::no_such_operator, which was taken", status);
}

LAZYT_CASE(Capability, AnswersLieStrideApart, "C-3", "CAP-1") {
  base::Ref<ir::Program> mixed = parse(kMixed);
  MUST(mixed);
  std::vector<Answer> expected;
  MUST(query("C-3", mixed, expected));
  // As a host of a later minor, whose answers are longer, hands them over.
  const uint64_t stride = sizeof(lazyt_answer_t) + 40;
  std::vector<uint64_t> room(stride / 8 * expected.size(), UINT64_C(0x5A5A5A5A5A5A5A5A));
  auto at = [&](size_t i) {
    return reinterpret_cast<lazyt_answer_t*>(reinterpret_cast<char*>(room.data()) + i * stride);
  };
  for (size_t i = 0; i < expected.size(); i++) {
    std::memset(static_cast<void*>(at(i)), 0, sizeof(lazyt_answer_t));
    at(i)->struct_size = stride;
  }
  MUST(ok("C-3", "query with a longer stride",
          plugin().capability->query(device(), mixed->block(), at(0), expected.size(), stride)));
  for (size_t i = 0; i < expected.size(); i++) {
    const auto* behind = reinterpret_cast<const uint64_t*>(at(i) + 1);
    bool same = true;
    for (int k = 0; k < 5; k++) same &= behind[k] == UINT64_C(0x5A5A5A5A5A5A5A5A);
    if (!keeps("C-3", same, fmt::format("query with stride {}, answer {}", stride, i),
               "no byte behind the known fields written", "some are"))
      return;
    if (at(i)->kind == expected[i].kind) continue;
    // Does it read the stride wrongly, or answer differently each time?
    const lazyt_answer_kind_t kind = at(i)->kind;
    MUST(ok("C-3", "query again",
            plugin().capability->query(device(), mixed->block(), at(0), expected.size(), stride)));
    keeps(at(i)->kind == kind ? "C-3" : "CAP-1", false,
          fmt::format("query with stride {}, answer {}", stride, i), fmt::format("kind {}", expected[i].kind),
          fmt::format("kind {}, then {}", kind, at(i)->kind));
    return;
  }
}

}  // namespace
}  // namespace lazyt::conformance
