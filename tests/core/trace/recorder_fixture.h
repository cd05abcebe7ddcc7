// A recorder whose calls are written by hand; nothing is executed.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "trace/recorder.h"

namespace lazyt::trace {

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() {
    for (Op* op : {&add, &mul}) {
      op->args = {{"self", ArgType::kTensor}, {"other", ArgType::kTensor}};
      op->recorded = &base::counter("test::op");
    }
    add_in_place.args = {{"self", ArgType::kTensor, true}, {"other", ArgType::kTensor}};
    add_in_place.recorded = add.recorded;
    add.name = "aten::add", mul.name = "aten::mul", add_in_place.name = "aten::add_";
  }

  static base::Ref<exec::Data> data(int64_t n) {
    return base::make_ref<exec::Data>(base::Meta::contiguous(LAZYT_DTYPE_FLOAT32, {n}), 4 * n,
                                      base::Ref<loader::Buffer>());
  }
  Storage input(int64_t n = 4) {
    Storage s;
    s.size_bytes = 4 * n;
    s.data = data(n);
    return s;
  }

  // Records a call over whole one-dim storages; true if it was replayed.
  bool record(Op& op, std::vector<Storage*> operands, Storage* result, double number = 0,
              bool with_number = false) {
    return *record_on(recorder, op, operands, result, number, with_number);
  }
  // Nothing if an operand is pending in another trace.
  std::optional<bool> record_on(Recorder& recorder, Op& op, std::vector<Storage*> operands, Storage* result,
                                double number = 0, bool with_number = false) {
    Call call;
    call.clear(&op);
    call.nodes = nodes;
    for (size_t i = 0; i < operands.size(); i++) {
      if (op.args[i].written) call.writes.push_back(static_cast<uint32_t>(call.operands.size()));
      int64_t n = static_cast<int64_t>(operands[i]->size_bytes / 4);
      call.operands.push_back(operands[i]);
      call.signature.append({tagged(kTensor, 1, LAZYT_DTYPE_FLOAT32), 0, static_cast<uint64_t>(n), 1});
    }
    if (with_number) {
      lazyt_scalar_t s{};
      std::memcpy(s.bytes, &number, 8);
      call.signature.push_back(tagged(kHostScalar, LAZYT_DTYPE_FLOAT64, 1));
      call.scalars.push_back(s);
      call.scalar_types.push_back({LAZYT_DTYPE_FLOAT64, true});
    }
    std::lock_guard lock(recorder.mutex());
    bool replayed = (in_steps && take_in_steps(recorder, call)) || recorder.replay(call) != nullptr;
    if (!replayed) {
      Words metas;
      put_meta(metas, base::Meta::contiguous(LAZYT_DTYPE_FLOAT32,
                                             {static_cast<int64_t>(operands[0]->size_bytes / 4)}));
      if (!recorder.append(call, metas, result ? 1 : 0, nullptr)) return std::nullopt;
    }
    if (result) {
      result->size_bytes = operands[0]->size_bytes;
      recorder.bind(*result, recorder.first_result());
    }
    return replayed;
  }
  // As a caller does that compares a call as it reads it. False: it is not what is expected.
  static bool take_in_steps(Recorder& recorder, Call& call) {
    const Token* token = recorder.next_token();
    if (!token || token->op != call.op) return false;
    const uint64_t *role = token->role_words(), *const end = token->meta_words();
    for (Storage* s : call.operands)
      if (!recorder.meet(*s, &role, end)) return recorder.unmeet(), false;
    if (role != end || !std::equal(call.signature.begin(), call.signature.end(), token->words(), token->role_words())) return recorder.unmeet(), false;
    recorder.take(call, *token);
    return true;
  }
  Launch flush() { return flush(recorder); }
  static Launch flush(Recorder& recorder) {
    std::lock_guard lock(recorder.mutex());
    return recorder.flush(FlushReason::kMarkStep);
  }

  Op add, mul, add_in_place;
  bool in_steps = true;  // what is expected is taken so
  uint64_t nodes = 0;  // of autograd's graph, before the next call
  Recorder recorder;
};

}  // namespace lazyt::trace
