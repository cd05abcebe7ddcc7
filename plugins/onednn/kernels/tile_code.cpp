#include "tile_code.h"

#include <algorithm>

#include "prefetch.h"

namespace lazyt::onednn::tile {
namespace {

using vm::Type;

// The forms of an operation on two operands, by which of them the machine holds.
struct Binary {
  Op held_first, held_second;
};

std::optional<Binary> binary(vm::Op op, bool boolean) {
  switch (op) {
    case vm::Op::kAdd:
      return Binary{Op::kAdd, Op::kAdd};
    case vm::Op::kSub:
      return Binary{Op::kSub, Op::kSubFrom};
    case vm::Op::kMul:
      return Binary{Op::kMul, Op::kMul};
    case vm::Op::kDiv:
    case vm::Op::kDivTrunc:  // cut behind
      return Binary{Op::kDiv, Op::kDivInto};
    case vm::Op::kMax:
      return Binary{Op::kMax, Op::kMax};
    case vm::Op::kMin:
      return Binary{Op::kMin, Op::kMin};
    case vm::Op::kCopysign:
      return Binary{Op::kCopysign, Op::kCopysignOf};
    case vm::Op::kEq:
      return Binary{Op::kEq, Op::kEq};
    case vm::Op::kNe:
      return Binary{Op::kNe, Op::kNe};
    case vm::Op::kLt:
      return Binary{Op::kLt, Op::kGt};
    case vm::Op::kLe:
      return Binary{Op::kLe, Op::kGe};
    case vm::Op::kGt:
      return Binary{Op::kGt, Op::kLt};
    case vm::Op::kGe:
      return Binary{Op::kGe, Op::kLe};
    case vm::Op::kAnd:
      return boolean ? Binary{Op::kMul, Op::kMul} : Binary{Op::kBitAnd, Op::kBitAnd};
    case vm::Op::kOr:
      return boolean ? Binary{Op::kMax, Op::kMax} : Binary{Op::kBitOr, Op::kBitOr};
    case vm::Op::kXor:
      return boolean ? Binary{Op::kNe, Op::kNe} : Binary{Op::kBitXor, Op::kBitXor};
    default:
      return std::nullopt;
  }
}

std::optional<Op> unary(vm::Op op, bool boolean) {
  switch (op) {
    case vm::Op::kNeg:
      return Op::kNeg;
    case vm::Op::kAbs:
      return Op::kAbs;
    case vm::Op::kSign:
      return Op::kSign;
    case vm::Op::kSqrt:
      return Op::kSqrt;
    case vm::Op::kRsqrt:
      return Op::kRsqrt;
    case vm::Op::kReciprocal:
      return Op::kReciprocal;
    case vm::Op::kExp:
      return Op::kExp;
    case vm::Op::kExp2:
      return Op::kExp2;
    case vm::Op::kExpm1:
      return Op::kExpm1;
    case vm::Op::kLog:
      return Op::kLog;
    case vm::Op::kLog2:
      return Op::kLog2;
    case vm::Op::kLog10:
      return Op::kLog10;
    case vm::Op::kLog1p:
      return Op::kLog1p;
    case vm::Op::kTanh:
      return Op::kTanh;
    case vm::Op::kSigmoid:
      return Op::kSigmoid;
    case vm::Op::kErf:
      return Op::kErf;
    case vm::Op::kFloor:
      return Op::kFloor;
    case vm::Op::kCeil:
      return Op::kCeil;
    case vm::Op::kRound:
      return Op::kRound;
    case vm::Op::kTrunc:
      return Op::kTrunc;
    case vm::Op::kIsNan:
      return Op::kIsNan;
    case vm::Op::kNot:
      return boolean ? Op::kNot : Op::kBitNot;
    default:
      return std::nullopt;
  }
}

class Compiler {
 public:
  Compiler(const Source& s, Type scalar)
      : s_(s),
        scalar_(scalar),
        machine_(machine(scalar)),
        uses_(s.registers.size(), 0),
        last_(s.registers.size(), 0),
        where_(s.registers.size(), kNone) {}

  std::optional<Code> run() {
    out_.type = scalar_;
    for (size_t k = 0; k < s_.code.size(); ++k)
      for (uint16_t r : {s_.code[k].a, s_.code[k].b, s_.code[k].c})
        if (r != kNone) uses_[r]++, last_[r] = k;
    for (uint16_t r = 0; r < s_.registers.size(); ++r)
      if (!has_form(r)) return std::nullopt;
    for (uint16_t r = 0; r < s_.registers.size(); ++r) {
      const Source::Register& reg = s_.registers[r];
      if (!reg.made_outside) continue;
      const uint16_t memory = operand({false, r, reg.running, false, form_of(reg)});
      if (is_integer(reg.type)) {
        where_[r] = memory;
      } else if (reg.type == scalar_) {
        where_[r] = memory;
      } else if (uses_[r]) {
        add(Op::kLoadU8, memory);
        spill(r);
        held_ = r;
      }
    }
    for (size_t k = 0; k < s_.code.size(); ++k) {
      if (!instruction(s_.code[k])) return std::nullopt;
      finish(k);
    }
    while (keep_one()) {
    }
    fetch_late();
    code_.push_back({Op::kEnd, kAnyForm, 0, 0});
    out_.code.reserve(code_.size());
    for (const Formed& i : code_) {
      const Function f = forms_of(i.op)[i.kinds ? i.kinds : i.form];
      if (!f) return std::nullopt;
      if (i.op == Op::kStream) out_.streams.push_back({out_.code.size(), forms_of(Op::kStore)[i.form]});
      out_.code.push_back({f, i.a, i.b});
    }
    out_.operands.shrink_to_fit();
    return std::move(out_);
  }

 private:
  struct Formed {
    Op op;
    Form form;
    uint16_t a, b;
    int kinds = 0;  // of an instruction of two operands
  };

  static bool is_half(Form form) { return form == kBf16 || form == kF16; }
  static bool is_integer(Type t) { return t == Type::kI8 || t == Type::kU8 || t == Type::kI32; }
  Form form_of(const Source::Register& r) const {
    return r.type == scalar_      ? r.half
           : r.type == Type::kI8  ? kI8
           : r.type == Type::kU8  ? kU8
           : r.type == Type::kI32 ? kI32
                                  : r.half;
  }
  // Numbers of one type, bool; beside f32 integers that come from memory as floats, and floats that go there
  // as integers.
  bool has_form(uint16_t r) const {
    const Source::Register& reg = s_.registers[r];
    if (reg.type == scalar_ || reg.type == Type::kBool) return true;
    if (scalar_ != Type::kF32 || !is_integer(reg.type) || reg.made_outside != reg.running ||
        (!reg.made_outside && uses_[r]))
      return false;
    return std::all_of(s_.code.begin(), s_.code.end(), [&](const Source::Instruction& i) {
      const bool reads = i.a == r || i.b == r || i.c == r, makes = i.out == r;
      const Type other = s_.registers[reads ? i.out : i.a].type;
      return (!reads && !makes) || (i.kind == Source::Kind::kCast && other == Type::kF32);
    });
  }
  uint16_t operand(Code::Operand o) {
    out_.operands.push_back(o);
    return static_cast<uint16_t>(out_.operands.size() - 1);
  }
  void add(Op op, uint16_t a = 0, uint16_t b = 0) {
    int form = kAnyForm;
    if (op == Op::kFma || op == Op::kFmaAdd || op == Op::kSelect || op == Op::kWherePositive || op == Op::kLerp) {
      for (uint16_t o : {a, b}) {
        touch(o);
        if (is_half(out_.operands[o].half) && prefetch_mask) touched_[o] = 0;  // asks itself
      }
      code_.push_back({op, kAnyForm, a, b, kind(a) + kKinds * kind(b)});
      return;
    }
    if (op < Op::kSquare && a < out_.operands.size()) {
      const bool asks = touch(a) && is_short();
      form = is_number(a) ? kNumber : out_.operands[a].half != kAnyForm ? out_.operands[a].half : asks ? kRunning : kAnyForm;
      const bool asks_itself = form == kRunning || (is_half(static_cast<Form>(form)) && prefetch_mask);
      if (asks_itself && forms_of(op)[form]) touched_[a] = 0;
    }
    code_.push_back({op, static_cast<Form>(forms_of(op)[form] ? form : kAnyForm), a, b});
  }
  Kind kind(uint16_t o) const {
    const Form half = out_.operands[o].half;
    return is_number(o) ? kKindNumber : half == kBf16 ? kKindBf16 : half == kF16 ? kKindF16 : kKindAny;
  }
  const Function (&forms_of(Op op) const)[kKinds * kKinds] { return machine_.functions[static_cast<int>(op)]; }
  // Whether a tile of the operand comes from memory with the instruction that is added now.
  bool touch(uint16_t a) {
    touched_.resize(out_.operands.size(), SIZE_MAX);
    const bool first = touched_[a] == SIZE_MAX;
    if (first) touched_[a] = code_.size();
    return first && out_.operands[a].running;
  }
  // Whether code would wait for memory: longer code has enough to do while the CPU fetches. AMD's CPUs want no line ahead, but each
  // asked for before it is loaded: 20 to 40 % less time from memory, 40 % more within the first-level cache.
  bool is_short() const { return prefetch_mask ? s_.code.size() <= 3 : s_.from_memory && s_.code.size() <= 8; }
  // What is read late is asked for with the first instruction: else its lines come one tile after the other, as late as their reader.
  // Halves are all: of a tile's four lines no CPU foresees enough (lerp of bf16 from memory 3,360 us -> 1,520 on a Zen 5).
  void fetch_late() {
    const size_t early = scalar_ == Type::kF32 && std::any_of(code_.begin(), code_.end(), [](auto& i) { return is_math(i.op); }) ? 0 : 3;
    if (!s_.from_memory) return;
    std::vector<Formed> fetches;
    for (uint16_t o = 0; o < touched_.size(); ++o) {
      const Code::Operand& operand = out_.operands[o];
      if (operand.scratch || !operand.running || operand.written || touched_[o] == SIZE_MAX || touched_[o] < (is_half(operand.half) && !prefetch_mask ? 0 : early))
        continue;
      const bool is_byte = s_.registers[operand.index].type == Type::kBool;
      fetches.push_back({Op::kFetch, is_byte ? kU8 : operand.half, o, 0});
    }
    code_.insert(code_.begin(), fetches.begin(), fetches.end());
  }
  // Memory that is read several times is kept in a bank from its first reader to its last, where the bank is free: where that saves
  // the most. False if it saves nothing anywhere.
  bool keep_one() {
    struct Kept {
      size_t saved = 0, first = 0, last = 0;
      Form bank = kAnyForm;
    } best;
    for (const Form bank : {kBank, kBank2}) {
      const std::vector<bool> taken = taken_by(bank);
      for (size_t first = 0; first < code_.size(); ++first) {
        const Formed& i = code_[first];
        if (taken[first] || !reads_memory(i) || !forms_of(i.op)[keep(bank)] || (is_half(i) && i.op != Op::kLoad)) continue;
        size_t saved = 0;
        for (size_t k = first + 1; k < code_.size() && !taken[k]; ++k) {
          if (!reads_memory(code_[k]) || code_[k].a != i.a) continue;
          if (++saved > best.saved) best = {saved, first, k, bank};
        }
      }
    }
    if (!best.saved) return false;
    Formed& first = code_[best.first];
    for (size_t k = best.first + 1; k <= best.last; ++k)
      if (reads_memory(code_[k]) && code_[k].a == first.a) code_[k].form = best.bank;
    if (is_half(first)) {
      code_.insert(code_.begin() + static_cast<ptrdiff_t>(best.first) + 1, {Op::kStore, best.bank, 0, 0});
    } else {
      first.form = keep(best.bank);
    }
    return true;
  }
  static Form keep(Form bank) { return bank == kBank ? kKeep : kKeep2; }
  static bool is_half(const Formed& i) { return i.form == kBf16 || i.form == kF16; }
  // Whether the instruction reads memory, and could as well read a bank.
  static bool reads_memory(const Formed& i) { return (i.op == Op::kLoad || is_binary(i.op)) && (i.form == kAnyForm || is_half(i)); }
  static bool is_binary(Op op) { return (op >= Op::kAdd && op <= Op::kBitXor) || (op >= Op::kEq && op <= Op::kGe); }
  static bool is_math(Op op) { return op >= kFirstMath && op <= kLastMath; }
  // By instruction, whether the bank holds something else then.
  std::vector<bool> taken_by(Form bank) const {
    std::vector<bool> taken(code_.size());
    bool read = false;
    for (size_t k = code_.size(); k-- > 0;) {
      const Formed& i = code_[k];
      const bool writes = i.form == keep(bank) || (i.op == Op::kStore && i.form == bank);
      read |= i.form == bank && !writes;
      taken[k] = read || writes || (bank == kBank2 && is_math(i.op));
      read &= !writes;
    }
    return taken;
  }
  // Whether some instruction reads r beside another operand.
  bool one_of_two(uint16_t r) const {
    return std::any_of(s_.code.begin(), s_.code.end(), [r](const Source::Instruction& i) {
      if (i.c == kNone) return false;
      return i.b == r || (i.a == r && i.kind != Source::Kind::kLerp) || (i.c == r && i.kind != Source::Kind::kWherePositive);
    });
  }
  bool is_number(uint16_t o) const { return !out_.operands[o].scratch && !out_.operands[o].running; }
  // The running value, register r, which instruction k made, also in a bank, if one is free and r is no operand of two.
  bool bank(uint16_t r, size_t k) {
    if (one_of_two(r)) return false;
    for (const Form bank : {kBank2, kBank}) {
      bool& taken = bank_taken_[bank == kBank2];
      if (taken || !forms_of(Op::kStore)[bank] || (bank == kBank2 && has_math(k + 1, last_[r]))) continue;
      taken = true;
      where_[r] = operand({true, 0, false, true, bank});
      add(Op::kStore, where_[r]);
      return true;
    }
    return false;
  }
  bool has_math(size_t first, size_t last) const {
    return std::any_of(s_.code.begin() + static_cast<ptrdiff_t>(first), s_.code.begin() + static_cast<ptrdiff_t>(last), [](auto& i) {
      if (i.kind != Source::Kind::kOp) return i.kind == Source::Kind::kGeluOfHalf;
      const auto op = unary(i.op, false);
      return op && is_math(*op);
    });
  }
  // The running value, register r, also in a scratch tile.
  void spill(uint16_t r) {
    uint16_t tile;
    if (free_.empty()) {
      tile = out_.scratch_tiles++;
    } else {
      tile = free_.back();
      free_.pop_back();
    }
    where_[r] = operand({true, tile, false, true});
    add(Op::kStore, where_[r]);
  }
  void hold(uint16_t r) {
    if (held_ == r) return;
    add(Op::kLoad, where_[r]);
    held_ = r;
  }
  bool in_memory(uint16_t r) const { return where_[r] != kNone; }

  // The running value becomes `held`; the other two come from memory. False if one is not there.
  bool ternary(Op op, uint16_t held, uint16_t a, uint16_t b) {
    hold(held);
    if (!in_memory(a) || !in_memory(b)) return false;
    add(op, where_[a], where_[b]);
    return true;
  }

  bool instruction(const Source::Instruction& i) {
    if (i.kind == Source::Kind::kRoundBf16 || i.kind == Source::Kind::kRoundF16) {
      const bool to_bf16 = i.kind == Source::Kind::kRoundBf16;
      const Source::Register& out = s_.registers[i.out];
      hold(i.a);
      const bool store_rounds = out.kept && out.half == (to_bf16 ? kBf16 : kF16) && uses_[i.out] == 0;
      if (!store_rounds) add(to_bf16 ? Op::kRoundBf16 : Op::kRoundF16);
      return true;
    }
    if (i.kind == Source::Kind::kWherePositive) return ternary(Op::kWherePositive, i.c, i.a, i.b);
    if (i.kind == Source::Kind::kLerp) return ternary(Op::kLerp, i.a, i.b, i.c);
    if (i.kind == Source::Kind::kGeluOfHalf) {
      hold(i.a);
      add(Op::kGeluOfHalf);
      return true;
    }
    const bool boolean = s_.registers[i.a].type == Type::kBool;
    if (i.kind == Source::Kind::kCast) {
      hold(i.a);
      if (!boolean && s_.registers[i.out].type == Type::kBool) add(Op::kToBool);
      return true;  // a bool is 0 or 1 as f32 already
    }
    if (i.op == vm::Op::kMove) {
      hold(i.a);
      return true;
    }
    if (i.op == vm::Op::kWhere) return ternary(Op::kSelect, i.a, i.b, i.c);
    if (i.op == vm::Op::kFma) {
      if (held_ == i.c && in_memory(i.a) && in_memory(i.b)) {
        add(Op::kFmaAdd, where_[i.a], where_[i.b]);
      } else if (held_ == i.b && in_memory(i.a) && in_memory(i.c)) {
        add(Op::kFma, where_[i.a], where_[i.c]);
      } else {
        if (!in_memory(i.b) || !in_memory(i.c)) return false;
        hold(i.a);
        add(Op::kFma, where_[i.b], where_[i.c]);
      }
      return true;
    }
    if (i.b != kNone) {
      const auto forms = binary(i.op, boolean);
      if (!forms) return false;
      if (i.a == i.b && i.op == vm::Op::kMul) {
        hold(i.a);
        add(Op::kSquare);
        return true;
      }
      if (held_ == i.b && held_ != i.a && in_memory(i.a)) {
        add(forms->held_second, where_[i.a]);
      } else {
        if (!in_memory(i.b)) return false;
        hold(i.a);
        add(forms->held_first, where_[i.b]);
      }
      if (i.op == vm::Op::kDivTrunc) add(Op::kTrunc);
      return true;
    }
    const auto op = unary(i.op, boolean);
    if (!op) return false;
    hold(i.a);
    add(*op);
    return true;
  }

  // Whether instruction i can take r as the running value and needs it nowhere else.
  static bool takes(const Source::Instruction& i, uint16_t r) {
    const int times = (i.a == r) + (i.b == r) + (i.c == r);
    if (i.kind == Source::Kind::kOp && i.op == vm::Op::kMul && i.a == r && i.b == r) return true;
    if (times != 1) return false;
    if (i.kind == Source::Kind::kWherePositive) return i.c == r;
    if (i.kind == Source::Kind::kLerp) return i.a == r;
    return i.a == r || (i.kind == Source::Kind::kOp && i.op != vm::Op::kWhere);
  }

  // The instruction's result is the running value; it goes to memory unless the next instruction alone takes
  // it.
  void finish(size_t k) {
    const Source::Instruction& i = s_.code[k];
    held_ = i.out;
    const Source::Register& reg = s_.registers[i.out];
    const bool next_only = last_[i.out] == k + 1 && takes(s_.code[k + 1], i.out);
    const bool read_later = uses_[i.out] && !next_only;
    if (reg.kept) {
      const uint16_t memory = operand({false, i.out, true, true, form_of(reg)});
      const bool streamed = reg.streamed && reg.type != Type::kBool && forms_of(Op::kStream)[form_of(reg)];
      add(reg.type == Type::kBool ? Op::kStoreU8 : streamed ? Op::kStream : Op::kStore, memory);
      if (reg.type == scalar_ && reg.half == kAnyForm && !streamed) where_[i.out] = memory;
    }
    if (read_later && !bank(i.out, k) && !in_memory(i.out)) spill(i.out);
    // Tiles of registers whose last reader this was.
    for (uint16_t r : {i.a, i.b, i.c}) {
      if (r == kNone || last_[r] != k || !in_memory(r)) continue;
      const Code::Operand& o = out_.operands[where_[r]];
      if (o.half == kBank || o.half == kBank2)
        bank_taken_[o.half == kBank2] = false, where_[r] = kNone;
      else if (o.scratch)
        free_.push_back(o.index), where_[r] = kNone;
    }
  }

  const Source& s_;
  const Type scalar_;  // of registers that are no bools
  const Machine& machine_;
  Code out_;
  std::vector<Formed> code_;  // out_'s
  std::vector<uint32_t> uses_;
  std::vector<size_t> last_;
  std::vector<uint16_t> where_;  // operand that holds a register
  std::vector<uint16_t> free_;   // scratch tiles
  std::vector<size_t> touched_;  // by operand: the instruction that reads or writes it first
  bool bank_taken_[2] = {};      // the first, the second
  uint16_t held_ = kNone;        // register that the machine holds
};

// Instructions that several others make: a choice by x > 0, an interpolation.
class Joined {
 public:
  explicit Joined(Source source) : s_(std::move(source)), uses_(s_.registers.size(), 0), maker_(s_.registers.size(), SIZE_MAX) {
    for (size_t k = 0; k < s_.code.size(); ++k) {
      maker_[s_.code[k].out] = k;
      for (uint16_t r : {s_.code[k].a, s_.code[k].b, s_.code[k].c})
        if (r != kNone) uses_[r]++;
    }
    for (Source::Instruction& i : s_.code)
      if (is(&i, vm::Op::kWhere) && !as_lerp(i)) as_where_positive(i);
    std::vector<bool> read(s_.registers.size(), false);
    std::vector<Source::Instruction> kept;
    for (size_t k = s_.code.size(); k-- > 0;) {
      const Source::Instruction& i = s_.code[k];
      if (uses_[i.out] && !s_.registers[i.out].kept && !read[i.out]) continue;  // read by what was joined alone
      for (uint16_t r : {i.a, i.b, i.c})
        if (r != kNone) read[r] = true;
      kept.push_back(i);
    }
    s_.code.assign(kept.rbegin(), kept.rend());
  }
  Source source() && { return std::move(s_); }

 private:
  static bool is(const Source::Instruction* i, vm::Op op) { return i && i->kind == Source::Kind::kOp && i->op == op; }
  const Source::Instruction* maker(uint16_t r, vm::Op op) const {
    const Source::Instruction* i = r == kNone || maker_[r] == SIZE_MAX ? nullptr : &s_.code[maker_[r]];
    return is(i, op) ? i : nullptr;
  }
  bool is_number(uint16_t r, double value) const { return s_.registers[r].number == value; }
  bool only_here(uint16_t r) const { return uses_[r] == 1 && !s_.registers[r].kept; }

  void as_where_positive(Source::Instruction& i) {
    const auto* condition = maker(i.a, vm::Op::kGt);
    if (!condition || !only_here(i.a) || !is_number(condition->b, 0) || s_.registers[condition->a].type != s_.registers[i.out].type) return;
    i.kind = Source::Kind::kWherePositive, i.a = condition->a;
  }
  // where(|w| < 0.5, w * (b - a) + a, (w - 1) * (b - a) + b): the toolkit's lerp.
  bool as_lerp(Source::Instruction& i) {
    const auto *near = maker(i.b, vm::Op::kFma), *far = maker(i.c, vm::Op::kFma), *condition = maker(i.a, vm::Op::kLt);
    const auto* size = condition && is_number(condition->b, 0.5) ? maker(condition->a, vm::Op::kAbs) : nullptr;
    const auto *rest = far ? maker(far->a, vm::Op::kSub) : nullptr, *way = near ? maker(near->b, vm::Op::kSub) : nullptr;
    if (!size || !rest || !way || !is_number(rest->b, 1) || !only_here(i.b) || !only_here(i.c)) return false;
    if (near->a != size->a || rest->a != size->a || far->b != near->b || way->b != near->c || way->a != far->c) return false;
    i = {Source::Kind::kLerp, i.op, i.out, near->a, near->c, far->c};
    return true;
  }

  Source s_;
  std::vector<uint32_t> uses_;
  std::vector<size_t> maker_;
};

}  // namespace

std::optional<Code> compile(const Source& given) {
  const Source source = Joined(given).source();
  auto has = [&](Type type) {
    return std::any_of(source.registers.begin(), source.registers.end(),
                       [type](auto& r) { return r.type == type; });
  };
  for (Type scalar : {Type::kF64, Type::kF32})
    if (has(scalar)) return Compiler(source, scalar).run();
  // Bytes alone are faster as bytes, and bytes that only become integers by the vector machine.
  if (std::none_of(source.code.begin(), source.code.end(),
                   [](auto& i) { return i.kind == Source::Kind::kOp; }))
    return std::nullopt;
  for (Type scalar : {Type::kI64, Type::kI32})
    if (has(scalar)) return Compiler(source, scalar).run();
  return std::nullopt;
}

}  // namespace lazyt::onednn::tile
