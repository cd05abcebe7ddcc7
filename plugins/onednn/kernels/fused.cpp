#include "fused.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>

#include "fused_step.h"
#include "lazyt/toolkit/walk.hpp"
#include "streams.h"

namespace lazyt::onednn {

using vm::kBlock;
using vm::Type;

namespace {
constexpr size_t kMaxOutside = 64;  // registers of the register machine that lie in memory before its code runs, or after

// The instruction that rounds to halves of the dtype.
tile::Source::Kind rounding_to(lazyt_dtype_t half) {
  return half == LAZYT_DTYPE_FLOAT16 ? tile::Source::Kind::kRoundF16 : tile::Source::Kind::kRoundBf16;
}
}  // namespace

Reg FusedKernel::load(const Tensor& t) {
  for (const Load& l : loads_)
    if (l.tensor.storage == t.storage && l.tensor.dtype == t.dtype &&
        l.tensor.layout.offset == t.layout.offset && l.tensor.layout.dims == t.layout.dims &&
        l.tensor.layout.strides == t.layout.strides)
      return l.reg;
  const Reg r = add_register(vm::type_of(t.dtype), Source::kLoad, static_cast<uint32_t>(loads_.size()));
  loads_.push_back({t, r});
  return r;
}

Reg FusedKernel::number(const Number& n, Type type) {
  for (const NumberSource& s : numbers_)
    if (registers_[s.reg].type == type && s.number.constant == n.constant &&
        s.number.integral == n.integral && s.number.i == n.i && std::memcmp(&s.number.d, &n.d, 8) == 0 &&
        s.number.input == n.input)
      return s.reg;
  const Reg r = add_register(type, Source::kNumber, static_cast<uint32_t>(numbers_.size()));
  numbers_.push_back({n, r});
  return r;
}

namespace {
bool is_constant(const Number& n, double value) {
  return n.constant && (n.integral ? static_cast<double>(n.i) : n.d) == value;
}
}  // namespace

std::optional<double> FusedKernel::constant_of(Reg r) const {
  if (r == kNoReg || registers_[r].source != Source::kNumber) return std::nullopt;
  const Number& n = numbers_[registers_[r].source_index].number;
  return n.constant ? std::optional(n.integral ? static_cast<double>(n.i) : n.d) : std::nullopt;
}

bool FusedKernel::is_number(Reg r, double value) const { return constant_of(r) == value; }

Reg FusedKernel::index_of(vm::Op op, Reg a, Reg b) {
  if ((op != vm::Op::kMul && op != vm::Op::kAdd) || b == kNoReg) return kNoReg;
  if (registers_[b].source == Source::kIndex) std::swap(a, b);
  if (registers_[a].source != Source::kIndex || registers_[b].source != Source::kNumber) return kNoReg;
  const Number& n = numbers_[registers_[b].source_index].number;
  const Index from = indices_[registers_[a].source_index];
  const bool is_float = registers_[a].type == Type::kF64;
  if (!is_constant(from.first, 0) || (is_float && !std::signbit(from.first.d)) || (op == vm::Op::kMul && !is_constant(from.step, 1))) return kNoReg;
  if (!is_float && is_constant(n, op == vm::Op::kMul)) return a;
  Index& out = new_index(registers_[a].type, from.dim);
  out.first = op == vm::Op::kMul ? from.first : n;
  out.step = op == vm::Op::kMul ? n : from.step;
  return out.reg;
}

// The index itself: first is what changes nothing when it is added, of f64 -0.
FusedKernel::Index& FusedKernel::new_index(Type type, size_t dim) {
  const Reg r = add_register(type, Source::kIndex, static_cast<uint32_t>(indices_.size()));
  auto number = [&](int64_t i, double d) { return Number{true, type == Type::kI64, d, i, 0, type == Type::kI64 ? LAZYT_DTYPE_INT64 : LAZYT_DTYPE_FLOAT64}; };
  return indices_.emplace_back(Index{dim, r, number(0, -0.0), number(1, 1)});
}

Reg FusedKernel::op(vm::Op op, Reg a, Reg b, Reg c) {
  if (const Reg index = index_of(op, a, b); index != kNoReg) return index;
  const Type operand = registers_[op == vm::Op::kWhere ? b : a].type;
  const vm::Function f = vm::table().functions[static_cast<int>(op)][static_cast<int>(operand)];
  if (!f) {
    throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED,
                        "onednn: instruction " + std::to_string(static_cast<int>(op)) +
                            " has no form for register type " + std::to_string(static_cast<int>(operand)));
  }
  const bool boolean =
      (op >= vm::Op::kEq && op <= vm::Op::kGe) || op == vm::Op::kIsNan || op == vm::Op::kIsInf;
  const Reg out = add_register(boolean ? Type::kBool : operand);
  code_.push_back({f, nullptr, out, a, b, c, tile::Source::Kind::kOp, op});
  return out;
}

Reg FusedKernel::cast(Reg a, Type to) {
  const Type from = registers_[a].type;
  if (from == to) return a;
  if (registers_[a].source == Source::kIndex && to == Type::kF64) {
    const Index& i = indices_[registers_[a].source_index];
    if (is_constant(i.first, 0) && is_constant(i.step, 1)) return new_index(to, i.dim).reg;
  }
  const Reg out = add_register(to);
  code_.push_back({nullptr, vm::table().casts[static_cast<int>(from)][static_cast<int>(to)], out, a, kNoReg,
                   kNoReg, tile::Source::Kind::kCast, vm::Op::kMove});
  return out;
}

Reg FusedKernel::operand_of_gelu(Reg r) const {
  auto maker = [&](Reg of, vm::Op op) {
    const auto i = std::find_if(code_.begin(), code_.end(), [of](const Instruction& c) { return c.out == of; });
    return i != code_.end() && i->kind == tile::Source::Kind::kOp && i->op == op ? &*i : nullptr;
  };
  const Instruction* product = maker(r, vm::Op::kMul);
  const Instruction* sum = product ? maker(product->b, vm::Op::kAdd) : nullptr;
  const Instruction* erf = sum && is_number(sum->b, 1) ? maker(sum->a, vm::Op::kErf) : nullptr;
  const Instruction* scaled = erf ? maker(erf->a, vm::Op::kMul) : nullptr;
  const Instruction* half = scaled && is_number(scaled->b, std::numbers::sqrt2 / 2) ? maker(product->a, vm::Op::kMul) : nullptr;
  return half && is_number(half->b, 0.5) && half->a == scaled->a ? half->a : kNoReg;
}

Reg FusedKernel::round_to(Reg a, lazyt_dtype_t dtype) {
  if (!is_half(dtype)) return a;
  if (const Reg x = operand_of_gelu(a); x != kNoReg) {
    a = add_register(Type::kF32);
    code_.push_back({nullptr, vm::table().gelu_of_half, a, x, kNoReg, kNoReg, tile::Source::Kind::kGeluOfHalf, vm::Op::kMove});
  }
  const Reg out = add_register(Type::kF32);
  code_.push_back({nullptr, dtype == LAZYT_DTYPE_FLOAT16 ? vm::table().round_f16 : vm::table().round_bf16,
                   out, a, kNoReg, kNoReg, rounding_to(dtype), vm::Op::kMove});
  return out;
}

Reg FusedKernel::index(size_t dim) {
  for (const Index& i : indices_)
    if (i.dim == dim && registers_[i.reg].type == Type::kI64 && is_constant(i.first, 0) && is_constant(i.step, 1)) return i.reg;
  return new_index(Type::kI64, dim).reg;
}

Reg FusedKernel::uniform(const Number& seed, const Number& offset) {
  const Reg r = add_register(Type::kF32, Source::kUniform, static_cast<uint32_t>(randoms_.size()));
  randoms_.push_back({seed, offset, r});
  return r;
}

void FusedKernel::store(Reg r, const Tensor& t) {
  const Register& reg = registers_[r];
  // A conversion from halves alone is code too: the register machine has it.
  if (reg.source == Source::kLoad && is_half(loads_[reg.source_index].tensor.dtype) && !is_half(t.dtype)) r = op(vm::Op::kMove, r);
  stores_.push_back({t, r});
}

std::optional<FusedKernel> FusedKernel::as_bits() const {
  const int64_t count = toolkit::count_of(dims_);
  if (loads_.empty() || code_.empty() || !numbers_.empty() || !indices_.empty() || !randoms_.empty() || !reductions_.empty() || count % 2)
    return std::nullopt;
  const lazyt_dtype_t dtype = loads_[0].tensor.dtype;
  auto fits = [&](const Tensor& t) {
    return t.dtype == dtype && t.layout.dims == dims_ && t.layout.strides == toolkit::row_major(dims_) && t.layout.offset % 2 == 0;
  };
  if (!is_half(dtype) || !std::all_of(loads_.begin(), loads_.end(), [&](auto& l) { return fits(l.tensor); }) ||
      !std::all_of(stores_.begin(), stores_.end(), [&](auto& s) { return fits(s.tensor); }))
    return std::nullopt;
  auto pairs = [&](const Tensor& t) { return Tensor{t.storage, LAZYT_DTYPE_INT32, {t.layout.offset / 2, {count / 2}, {1}}}; };
  FusedKernel out({count / 2}, {});
  auto mask = [&](uint32_t bits) { return out.number({true, true, 0, static_cast<int32_t>(bits), 0, LAZYT_DTYPE_INT32}, Type::kI32); };
  std::vector<Reg> to(registers_.size(), kNoReg);
  for (const Load& l : loads_) to[l.reg] = out.load(pairs(l.tensor));
  for (const Instruction& i : code_) {
    const Reg a = to[i.a];
    const bool moves = i.kind == rounding_to(dtype) || (i.kind == tile::Source::Kind::kOp && i.op == vm::Op::kMove);
    if (moves) {
      to[i.out] = a;
    } else if (i.kind != tile::Source::Kind::kOp) {
      return std::nullopt;
    } else if (i.op == vm::Op::kNeg) {
      to[i.out] = out.op(vm::Op::kXor, a, mask(0x80008000));
    } else if (i.op == vm::Op::kAbs) {
      to[i.out] = out.op(vm::Op::kAnd, a, mask(0x7fff7fff));
    } else if (i.op == vm::Op::kCopysign) {
      const Reg size = out.op(vm::Op::kAnd, a, mask(0x7fff7fff)), sign = out.op(vm::Op::kAnd, to[i.b], mask(0x80008000));
      to[i.out] = out.op(vm::Op::kOr, size, sign);
    } else {
      return std::nullopt;
    }
  }
  for (const Store& s : stores_) out.store(to[s.reg], pairs(s.tensor));
  return out;
}

std::optional<FusedKernel> FusedKernel::as_few() const {
  constexpr int64_t kColumns = 16, kRows = 12;  // elements of a total: of rows each is brought in by itself
  constexpr size_t kMostOutside = 48, kMostCode = 96;
  if (reductions_.empty() || !randoms_.empty()) return std::nullopt;
  int64_t few = 1;
  Dims kept = dims_;
  for (size_t d = 0; d < dims_.size(); ++d)
    if (reduced_[d]) few *= dims_[d], kept[d] = 1;
  const auto n = static_cast<size_t>(few);
  if (few < 1 || few > kColumns || std::any_of(indices_.begin(), indices_.end(), [&](auto& i) { return reduced_[i.dim] && dims_[i.dim] > 1; })) return std::nullopt;
  const bool of_rows = std::any_of(loads_.begin(), loads_.end(), [&](auto& l) {
    const Dims strides = toolkit::broadcast_strides(l.tensor, dims_);
    for (size_t d = 0; d < dims_.size(); ++d)
      if (reduced_[d] && dims_[d] > 1 && strides[d] == 1) return true;
    return false;
  });
  if ((of_rows && few > kRows) || code_.size() * n > kMostCode ||
      (loads_.size() + stores_.size() + reductions_.size()) * n + numbers_.size() + indices_.size() > kMostOutside)
    return std::nullopt;

  FusedKernel out(kept, {});
  // The k-th element along the reduced dims.
  auto part = [&](Tensor t, size_t k) {
    Dims &dims = t.layout.dims, &strides = t.layout.strides;
    const size_t missing = dims_.size() - dims.size();
    for (size_t d = dims_.size(); d-- > 0;) {
      if (!reduced_[d]) continue;
      const auto at = static_cast<int64_t>(k) % dims_[d];
      k /= static_cast<size_t>(dims_[d]);
      if (d < missing || dims[d - missing] == 1) continue;
      t.layout.offset += at * strides[d - missing];
      dims[d - missing] = 1;
    }
    return t;
  };
  struct Joined {
    vm::Op op;
    Type type;
  };
  auto joined_by = [&](const Reduction& r) {
    const Type type = registers_[r.reg].type;
    switch (r.kind) {
      case ReduceKind::kSum: return Joined{vm::Op::kAdd, type};
      case ReduceKind::kSquares: return Joined{vm::Op::kAdd, Type::kF64};  // no overflow that a root would undo
      case ReduceKind::kProd: return Joined{vm::Op::kMul, type};
      case ReduceKind::kMax: return Joined{vm::Op::kMax, type};
      case ReduceKind::kMin: return Joined{vm::Op::kMin, type};
      case ReduceKind::kAny: return Joined{vm::Op::kOr, Type::kBool};
      default: return Joined{vm::Op::kAnd, Type::kBool};
    }
  };
  for (const Reduction& r : reductions_)
    if (const Joined j = joined_by(r); !vm::table().functions[static_cast<int>(j.op)][static_cast<int>(j.type)]) return std::nullopt;

  std::vector<Reg> to(registers_.size(), kNoReg), totals(reductions_.size(), kNoReg);
  for (const NumberSource& s : numbers_) to[s.reg] = out.number(s.number, registers_[s.reg].type);
  for (const Index& i : indices_) {
    Index& made = out.new_index(registers_[i.reg].type, i.dim);
    made.first = i.first, made.step = i.step, to[i.reg] = made.reg;
  }
  for (size_t k = 0; k < n; ++k) {
    std::vector<bool> changed(registers_.size(), k == 0);  // against the element before
    for (const Load& l : loads_) {
      const Reg r = out.load(part(l.tensor, k));
      changed[l.reg] = r != to[l.reg], to[l.reg] = r;
    }
    for (const Instruction& i : code_) {
      const auto moved = [&](Reg r) { return r != kNoReg && changed[r]; };
      changed[i.out] = k == 0 || moved(i.a) || moved(i.b) || moved(i.c);
      if (!changed[i.out]) continue;
      Instruction copy = i;
      copy.out = out.add_register(registers_[i.out].type);
      for (Reg* r : {&copy.a, &copy.b, &copy.c})
        if (*r != kNoReg) *r = to[*r];
      out.code_.push_back(copy);
      to[i.out] = copy.out;
    }
    for (const Store& s : stores_) out.store(to[s.reg], part(s.tensor, k));
    for (size_t j = 0; j < reductions_.size(); ++j) {
      const Joined by = joined_by(reductions_[j]);
      Reg x = out.cast(to[reductions_[j].reg], by.type);
      if (reductions_[j].kind == ReduceKind::kSquares) x = out.op(vm::Op::kMul, x, x);
      // A sum begins with 0, which is no -0.
      if (k == 0 && by.op == vm::Op::kAdd && vm::is_float(by.type)) x = out.op(by.op, x, out.constant(0, by.type));
      totals[j] = k == 0 ? x : out.op(by.op, totals[j], x);
    }
  }
  for (size_t j = 0; j < reductions_.size(); ++j) {
    const Reduction& r = reductions_[j];
    Tensor t = r.tensor;
    t.layout.dims = kept;
    Reg x = totals[j];
    if (r.divisor != 1) x = out.op(vm::Op::kDiv, x, out.constant(r.divisor, out.type(x)));
    if (r.root) x = out.op(vm::Op::kSqrt, x);
    out.store(out.round_to(out.cast(x, vm::type_of(t.dtype)), t.dtype), t);
  }
  return out;
}

void FusedKernel::round_where_stored() {
  std::vector<bool> read(registers_.size(), false);  // but by stores that round
  for (const Instruction& i : code_)
    for (Reg r : {i.a, i.b, i.c})
      if (r != kNoReg) read[r] = true;
  for (const Reduction& r : reductions_) read[r.reg] = true;
  for (const Store& s : stores_)
    if (!is_half(s.tensor.dtype)) read[s.reg] = true;
  for (Store& s : stores_) {
    if (!is_half(s.tensor.dtype)) continue;
    const auto rounding = std::find_if(code_.begin(), code_.end(), [&](const Instruction& i) { return i.out == s.reg && i.kind == rounding_to(s.tensor.dtype); });
    if (rounding == code_.end()) continue;
    const Source of = registers_[rounding->a].source;
    if (of == Source::kNumber || (of == Source::kNone && !read[s.reg])) s.reg = rounding->a;
  }
}

void FusedKernel::drop_unread() {
  std::vector<bool> read(registers_.size(), false);
  for (const Store& s : stores_) read[s.reg] = true;
  for (const Reduction& r : reductions_) read[r.reg] = true;
  for (auto* code : {&code_, &once_}) {
    std::vector<Instruction> kept;
    for (size_t k = code->size(); k-- > 0;) {
      const Instruction& i = (*code)[k];
      if (!read[i.out]) {
        registers_[i.out] = {Type::kBool};  // nobody's
        continue;
      }
      for (Reg r : {i.a, i.b, i.c})
        if (r != kNoReg) read[r] = true;
      kept.push_back(i);
    }
    code->assign(kept.rbegin(), kept.rend());
  }
  auto drop = [&](auto& sources) {
    for (const auto& s : sources)
      if (!read[s.reg]) registers_[s.reg] = {Type::kBool};  // nobody's
    std::erase_if(sources, [&](const auto& s) { return !read[s.reg]; });
    for (size_t k = 0; k < sources.size(); ++k)
      registers_[sources[k].reg].source_index = static_cast<uint32_t>(k);
  };
  drop(loads_);
  drop(indices_);
}

void FusedKernel::reduce(Reg r, ReduceKind kind, const Tensor& t, double divisor, bool root) {
  reductions_.push_back({t, r, kind, divisor, root});
}

Dims FusedKernel::widest(const Dims& dims) const {
  for (const Load& l : loads_)
    if (l.tensor.layout.dims == dims) return l.tensor.layout.strides;
  return {};
}

void FusedKernel::compute_numbers_once() {
  auto is_known = [&](Reg r) { return r == kNoReg || registers_[r].source == Source::kNumber || registers_[r].source == Source::kOnce; };
  const size_t others = loads_.size() + numbers_.size() + indices_.size() + randoms_.size() + stores_.size();
  for (const Instruction& i : code_) {
    if (!is_known(i.a) || !is_known(i.b) || !is_known(i.c)) continue;
    if (others + once_.size() >= kMaxOutside) break;  // each has a slot to the end
    registers_[i.out].source = Source::kOnce;
    once_.push_back(i);
  }
  std::erase_if(code_, [&](const Instruction& i) { return registers_[i.out].source == Source::kOnce; });
}

std::optional<FusedKernel::Choice> FusedKernel::as_choice() const {
  auto is_choice = [&](const Instruction& i) { return i.kind == tile::Source::Kind::kOp && i.op == vm::Op::kWhere && registers_[i.a].source == Source::kOnce; };
  const auto first = std::find_if(code_.begin(), code_.end(), is_choice);
  if (first == code_.end() || !randoms_.empty() || once_.size() + numbers_.size() > 64) return std::nullopt;
  Choice choice{{}, first->a};
  for (bool value : {true, false}) {
    FusedKernel& k = choice.kernels.emplace_back(*this);
    for (Instruction& i : k.code_) {
      if (!is_choice(i) || i.a != choice.condition) continue;
      const Reg taken = value ? i.b : i.c;
      i = {vm::table().functions[static_cast<int>(vm::Op::kMove)][static_cast<int>(registers_[taken].type)], nullptr, i.out, taken, kNoReg, kNoReg, i.kind, vm::Op::kMove};
    }
    k.drop_unread();
  }
  return choice;
}

void FusedKernel::build(Builder& b, const std::vector<StorageId>& may_alias_inputs) {
  round_where_stored();
  drop_unread();
  if (auto few = as_few()) return few->build(b, may_alias_inputs);
  compute_numbers_once();
  if (auto bits = as_bits()) return bits->build(b, may_alias_inputs);
  // What changes nothing (integers rounded) is copied.
  auto load_of = [&](const Store& s) {
    return std::find_if(loads_.begin(), loads_.end(), [&](const Load& l) {
      return l.reg == s.reg && l.tensor.dtype == s.tensor.dtype && l.tensor.dims() == s.tensor.dims();
    });
  };
  if (code_.empty() && reductions_.empty() && (stores_.size() == 1 || may_alias_inputs.empty()) &&
      std::all_of(stores_.begin(), stores_.end(), [&](auto& s) { return load_of(s) != loads_.end(); })) {
    for (const Store& s : stores_) b.copy(load_of(s)->tensor, s.tensor);
    return;
  }
  auto choice = as_choice();
  if (!choice) {
    Made made = make(b, may_alias_inputs);
    return b.add(std::move(made.step), made.reads, made.writes, made.in_place);
  }
  auto step = std::make_unique<ChoiceStep>();
  std::vector<uint16_t> slot(registers_.size(), 0);
  for (const NumberSource& n : numbers_) step->numbers.push_back({n.number, registers_[n.reg].type, slot[n.reg] = step->slots++});
  for (const Instruction& i : once_) {
    slot[i.out] = step->slots++;
    auto slot_of = [&](Reg r) { return r == kNoReg ? uint16_t{0} : slot[r]; };
    step->code.push_back({i.function, i.convert, slot[i.out], slot_of(i.a), slot_of(i.b), slot_of(i.c)});
  }
  step->condition = slot[choice->condition];
  Made yes = choice->kernels[0].make(b, may_alias_inputs), no = choice->kernels[1].make(b, may_alias_inputs);
  auto join = [](std::vector<StorageId> a, const std::vector<StorageId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  // What one reads in place the other may read at any time, or not at all.
  std::vector<StorageId> reads = join(yes.reads, no.reads), in_place;
  for (const auto& [some, other] : {std::pair(&yes.in_place, &no), std::pair(&no.in_place, &yes)})
    for (StorageId s : *some) (std::count(other->reads.begin(), other->reads.end(), s) ? reads : in_place).push_back(s);
  step->if_true = std::move(yes.step), step->if_false = std::move(no.step);
  b.add(std::move(step), reads, join(yes.writes, no.writes), in_place);
}

FusedKernel::Made FusedKernel::make(Builder& b, const std::vector<StorageId>& may_alias_inputs) {
  auto step = std::make_unique<FusedStep>();
  const size_t rank = dims_.size();
  step->count_ = toolkit::count_of(dims_);

  // Loops: of every operand, every result, and what the indices and the reduced dims need.
  std::vector<Dims> strides;
  for (const Load& l : loads_) strides.push_back(toolkit::broadcast_strides(l.tensor, dims_));
  for (const Store& s : stores_) strides.push_back(s.tensor.layout.strides);
  for (const Reduction& r : reductions_) strides.push_back(r.tensor.layout.strides);
  for (const Index& i : indices_) {
    Dims s(rank, 0);
    s[i.dim] = 1;
    strides.push_back(s);
  }
  Dims walk = toolkit::row_major(dims_);
  if (randoms_.empty()) {
    // As the widest operand that covers everything lies: the first result, else the first load.
    if (!stores_.empty()) {
      walk = stores_[0].tensor.layout.strides;
    } else {
      for (const Load& l : loads_)
        if (toolkit::count_of(l.tensor.dims()) == step->count_) {
          walk = toolkit::broadcast_strides(l.tensor, dims_);
          break;
        }
    }
  }
  const toolkit::Walk planned = toolkit::plan_walk(dims_, reductions_.empty() ? std::vector<bool>{} : reduced_, strides, walk);
  const toolkit::Loops& loops = planned.loops;
  if (loops.dims.size() > 16)
    throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "onednn: a kernel of more than 16 loops");
  step->loops_ = loops.dims;
  step->first_ = planned.first;
  step->last_ = planned.last;

  const size_t registers = registers_.size();
  constexpr size_t kForever = SIZE_MAX;
  std::vector<size_t> last(registers, 0), made(registers, 0);
  for (size_t i = 0; i < code_.size(); ++i) {
    made[code_[i].out] = i;
    for (Reg r : {code_[i].a, code_[i].b, code_[i].c})
      if (r != kNoReg) last[r] = i;
  }
  for (const Store& s : stores_) last[s.reg] = kForever;
  for (const Reduction& r : reductions_) last[r.reg] = kForever;
  size_t loads_end = 0;  // no instruction behind reads a load
  for (const Load& l : loads_) loads_end = std::max(loads_end, last[l.reg]);
  // Rows long enough for blocks of their own: then a broadcast row is read where it lies.
  step->by_rows_ = reductions_.empty() && randoms_.empty() && loops.dims.size() > 1 && loops.dims.back() >= kBlock / 2;

  auto linear = [&](const Dims& s) {
    int64_t expect = 1;
    for (size_t i = loops.dims.size(); i-- > 0;) {
      if (loops.dims[i] != 1 && s[i] != expect) return false;
      expect *= loops.dims[i];
    }
    return true;
  };
  auto is_single = [](const Dims& s) { return std::all_of(s.begin(), s.end(), [](int64_t d) { return d == 0; }); };
  auto outside_users = [&](Reg r) {
    return std::count_if(stores_.begin(), stores_.end(), [r](auto& s) { return s.reg == r; }) +
           std::count_if(reductions_.begin(), reductions_.end(), [r](auto& s) { return s.reg == r; });
  };
  auto one_a_row = [&](size_t load) {
    const Dims& s = loops.strides[load];
    return step->by_rows_ && !is_single(s) && s.back() == 0 && !outside_users(loads_[load].reg);
  };
  // A store may let its register be the memory, if no load can be seen through it, or one that is not read any more.
  std::vector<bool> direct(stores_.size(), false), over_load(stores_.size(), false);
  std::vector<bool> stored(registers, false);
  // Registers that the register machine reads or writes as halves in memory: nothing else looks at their slots.
  std::vector<tile::Form> half(registers, tile::kAnyForm);
  auto form_of = [](lazyt_dtype_t d) { return d == LAZYT_DTYPE_BFLOAT16 ? tile::kBf16 : d == LAZYT_DTYPE_FLOAT16 ? tile::kF16 : tile::kAnyForm; };
  for (size_t k = 0; k < stores_.size(); ++k) {
    const Store& s = stores_[k];
    const bool aliased = std::find(may_alias_inputs.begin(), may_alias_inputs.end(), s.tensor.storage) != may_alias_inputs.end();
    const bool is_made = registers_[s.reg].source == Source::kNone || (registers_[s.reg].source == Source::kIndex && code_.empty() && loads_.empty());
    if (!is_made || stored[s.reg] || !linear(loops.strides[loads_.size() + k])) continue;
    if (aliased && made[s.reg] < loads_end) continue;
    if (is_half(s.tensor.dtype)) {
      if (outside_users(s.reg) > 1) continue;
      half[s.reg] = form_of(s.tensor.dtype);
    } else {
      direct[k] = true;
    }
    stored[s.reg] = true;
    over_load[k] = aliased && !loads_.empty();
  }
  for (size_t k = 0; k < loads_.size(); ++k) {
    const Dims& s = loops.strides[k];
    const bool along_row = step->by_rows_ && !is_single(s) && s.back() == 1;
    if (is_half(loads_[k].tensor.dtype) && !is_single(s) && (linear(s) || along_row) && !outside_users(loads_[k].reg))
      half[loads_[k].reg] = form_of(loads_[k].tensor.dtype);
  }

  uint64_t bytes = 0;  // that go to memory or come from there
  for (size_t k = 0; k < loads_.size(); ++k) bytes += is_single(loops.strides[k]) ? 0 : loads_[k].tensor.element();
  for (const Store& s : stores_) bytes += s.tensor.element();
  bytes *= static_cast<uint64_t>(toolkit::count_of(dims_));
  std::vector<bool> streamed(registers, false);
  step->streams_ = past_caches(bytes);
  for (size_t k = 0; k < stores_.size(); ++k)
    if (step->streams_ && stored[stores_[k].reg] && outside_users(stores_[k].reg) == 1) streamed[stores_[k].reg] = true;

  // The register machine, where it has all of it.
  tile::Source source;
  size_t outside_slots = 0;
  for (const Instruction& i : code_) source.code.push_back({i.kind, i.op, i.out, i.a, i.b, i.c});
  for (size_t r = 0; r < registers; ++r) {
    const bool outside = registers_[r].source != Source::kNone;
    bool running = outside && registers_[r].source != Source::kNumber && registers_[r].source != Source::kOnce;
    if (registers_[r].source == Source::kLoad)
      running = !is_single(loops.strides[registers_[r].source_index]) && !one_a_row(registers_[r].source_index);
    const bool kept = !outside && last[r] == kForever;
    outside_slots += outside || kept;
    source.registers.push_back({registers_[r].type, outside, running, kept, half[r], streamed[r], constant_of(static_cast<Reg>(r))});
  }
  source.from_memory = bytes > uint64_t{256} << 10;
  std::optional<tile::Code> tiles;
  if (!code_.empty() && outside_slots <= kMaxOutside) tiles = tile::compile(source);
  if (tiles && tiles->operands.size() > 256) tiles.reset();
  for (size_t k = 0; k < stores_.size(); ++k)  // a function's result may be an operand, a conversion's not
    if (!tiles && over_load[k] && !code_[made[stores_[k].reg]].function) direct[k] = stored[stores_[k].reg] = false;

  // Slots: sources keep theirs; results of instructions share by last use.
  std::vector<uint16_t> slot(registers, UINT16_MAX);
  uint16_t slots = 0;
  for (size_t r = 0; r < registers; ++r)
    if (registers_[r].source != Source::kNone || stored[r] || (tiles && last[r] == kForever)) slot[r] = slots++;
  std::vector<uint16_t> spare;
  for (size_t i = 0; i < code_.size() && !tiles; ++i) {
    Instruction& ins = code_[i];
    if (slot[ins.out] == UINT16_MAX) {
      // Not an operand's slot: loops over one array into itself at another width would overlap.
      if (spare.empty()) {
        slot[ins.out] = slots++;
      } else {
        slot[ins.out] = spare.back();
        spare.pop_back();
      }
    }
    for (Reg r : {ins.a, ins.b, ins.c}) {
      if (r == kNoReg || last[r] != i || registers_[r].source != Source::kNone || stored[r]) continue;
      if (std::find(spare.begin(), spare.end(), slot[r]) == spare.end()) spare.push_back(slot[r]);
    }
  }
  if (slots > FusedStep::kMaxSlots)
    throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "onednn: a kernel of more than 128 registers");
  step->slots_ = slots;
  // Programs keep hundreds of these: no slack.
  step->loads_.reserve(loads_.size());
  step->stores_.reserve(stores_.size());
  step->reductions_.reserve(reductions_.size());
  step->numbers_.reserve(numbers_.size());
  auto slot_of = [&](Reg r) { return r == kNoReg ? uint16_t{0} : slot[r]; };
  auto divisor_of = [&](const Instruction& i) {
    const bool divides = i.function && (i.op == vm::Op::kDivTrunc || i.op == vm::Op::kDivFloor || i.op == vm::Op::kFmod || i.op == vm::Op::kRemainder);
    if (!divides || vm::is_float(registers_[i.b].type) || constant_of(i.b).value_or(0) != 0) return uint8_t{0};
    return static_cast<uint8_t>(vm::size_of(registers_[i.b].type));
  };
  step->instructions_ = code_.size();
  if (!tiles) step->code_.reserve(code_.size());
  for (size_t k = 0; k < code_.size() && !tiles; ++k) {
    const Instruction& i = code_[k];
    step->code_.push_back({i.function, i.convert, slot_of(i.out), slot_of(i.a), slot_of(i.b), slot_of(i.c), divisor_of(i)});
  }

  std::vector<StorageId> reads, writes, in_place;
  for (size_t k = 0; k < loads_.size(); ++k) {
    const Tensor& t = loads_[k].tensor;
    FusedStep::Load l{Place(t),
                      loops.strides[k],
                      is_half(t.dtype) ? loader(t.dtype) : nullptr,
                      static_cast<int>(t.element()),
                      slot[loads_[k].reg],
                      false,
                      false,
                      false};
    l.single = is_single(l.strides);
    l.linear = !l.single && linear(l.strides);
    l.direct = l.linear && !l.convert;
    l.in_row = step->by_rows_ && !l.single && !l.linear && !l.convert && l.strides.back() == 1;
    // In place: every result has the load's very geometry.
    bool same = reductions_.empty();
    for (size_t j = 0; same && j < stores_.size(); ++j)
      same = stores_[j].tensor.layout.offset == t.layout.offset &&
             loops.strides[loads_.size() + j] == l.strides && stores_[j].tensor.element() == t.element();
    (same ? in_place : reads).push_back(t.storage);
    step->loads_.push_back(std::move(l));
  }
  for (size_t k = 0; k < stores_.size(); ++k) {
    const Tensor& t = stores_[k].tensor;
    const Dims& own = loops.strides[loads_.size() + k];
    step->stores_.push_back({Place(t), own, is_half(t.dtype) ? storer(t.dtype) : nullptr, static_cast<int>(t.element()),
                             slot[stores_[k].reg], linear(own), direct[k]});
    writes.push_back(t.storage);
  }
  if (tiles) {
    step->tiled_ = true;
    step->numbers_by_tile_ = std::none_of(reductions_.begin(), reductions_.end(), [&](auto& r) { return registers_[r.reg].source != Source::kNone; }) &&
                             std::none_of(stores_.begin(), stores_.end(), [&](auto& s) { return registers_[s.reg].source != Source::kNone; });
    step->tile_ = std::move(*tiles);
    step->tile_operands_.reserve(step->tile_.operands.size());
    for (size_t k = 0; k < loads_.size(); ++k) {
      FusedStep::Load& l = step->loads_[k];
      l.one_a_row = one_a_row(k);
      if (half[loads_[k].reg] == tile::kAnyForm) continue;
      l.convert = nullptr;
      l.direct = l.linear;
      l.in_row = !l.linear;
    }
    for (size_t k = 0; k < stores_.size(); ++k)
      if (half[stores_[k].reg] != tile::kAnyForm) step->stores_[k].direct = true;
    for (const tile::Code::Operand& o : step->tile_.operands) {
      const bool scratch = o.scratch;
      const Reg r = o.index;
      FusedStep::TileOperand operand;
      if (!scratch) operand.slot = slot[r];
      const bool is_half = !scratch && (o.half == tile::kBf16 || o.half == tile::kF16);
      if (!scratch) operand.size = static_cast<uint8_t>(is_half ? 2 : vm::size_of(registers_[r].type));
      if (!scratch && registers_[r].source == Source::kLoad) {
        const FusedStep::Load& l = step->loads_[registers_[r].source_index];
        operand.in_row = l.in_row;
        operand.direct = l.direct || l.in_row;
      }
      if (!scratch && registers_[r].source == Source::kNone) operand.direct = stored[r];
      step->tile_operands_.push_back(operand);
    }
    // Nothing goes through registers in memory: blocks may be as long as the counters allow.
    const bool all_direct =
        reductions_.empty() && indices_.empty() && randoms_.empty() &&
        std::all_of(step->loads_.begin(), step->loads_.end(),
                    [](auto& l) { return l.single || l.direct || l.in_row || l.one_a_row; }) &&
        std::all_of(step->stores_.begin(), step->stores_.end(), [](auto& s) { return s.direct; });
    if (all_direct) step->block_ = 4 * FusedStep::kLongBlock;
    // What is brought into registers of 4 bytes or less: as many elements as a slot holds.
    if (!all_direct && reductions_.empty() && indices_.empty() && randoms_.empty() &&
        std::all_of(registers_.begin(), registers_.end(), [](auto& r) { return vm::size_of(r.type) <= 4; }) &&
        std::all_of(step->loads_.begin(), step->loads_.end(), [](auto& l) { return l.linear || !l.convert; }) &&
        std::all_of(step->stores_.begin(), step->stores_.end(), [](auto& s) { return !s.convert; }))
      step->block_ = 2 * kBlock;
    // Rows that repeat need no blocks of their own where they begin with a block.
    auto repeats = [](auto& l) {
      return l.single || l.linear || (l.in_row && FusedStep::repeats_row(l.strides));
    };
    if (all_direct && step->by_rows_ && std::has_single_bit(static_cast<uint64_t>(loops.dims.back())) && FusedStep::kLongBlock % loops.dims.back() == 0 &&
        std::all_of(step->loads_.begin(), step->loads_.end(), repeats)) {
      step->period_ = loops.dims.back();
      step->by_rows_ = false;
    }
  }
  step->fills_ = code_.empty() && reductions_.empty() && !stores_.empty() &&
                 std::all_of(step->loads_.begin(), step->loads_.end(), [](auto& l) { return l.single; }) &&
                 std::all_of(stores_.begin(), stores_.end(),
                             [&](auto& s) { return registers_[s.reg].source == Source::kNumber || registers_[s.reg].source == Source::kOnce || registers_[s.reg].source == Source::kLoad; }) &&
                 std::all_of(step->stores_.begin(), step->stores_.end(), [](auto& s) { return s.linear; });
  // One instruction on integers, from memory to memory.
  if (!step->tiled_ && once_.empty() && reductions_.empty() && code_.size() == 1 && code_[0].function && stores_.size() == 1 && direct[0] &&
      !vm::is_float(registers_[code_[0].a].type) &&
      std::all_of(registers_.begin(), registers_.end(), [](auto& r) { return r.source == Source::kNone || r.source == Source::kLoad; }) &&
      std::all_of(step->loads_.begin(), step->loads_.end(), [](auto& l) { return l.direct; }))
    step->block_ = FusedStep::kLongBlock;
  // Operators of bits keep nothing aside: as many elements as a slot holds.
  if (!step->tiled_ && once_.empty() && reductions_.empty() && indices_.empty() && randoms_.empty() && !code_.empty() &&
      std::all_of(code_.begin(), code_.end(), [](auto& i) { return i.function && (i.op == vm::Op::kAnd || i.op == vm::Op::kOr || i.op == vm::Op::kXor); }) &&
      std::all_of(registers_.begin(), registers_.end(), [](auto& r) { return vm::size_of(r.type) <= 4; }) &&
      std::none_of(step->loads_.begin(), step->loads_.end(), [](auto& l) { return l.convert; }) &&
      std::none_of(step->stores_.begin(), step->stores_.end(), [](auto& s) { return s.convert; }))
    step->block_ = std::max<int64_t>(step->block_, 2 * kBlock);
  // Rows that repeat are brought in once where all blocks begin where a row does, if possible at whole vectors.
  for (FusedStep::Load& l : step->loads_) {
    const int64_t row = loops.dims.empty() ? 0 : loops.dims.back(), aligned = std::lcm(row, int64_t{16});
    l.repeats = step->count_ > 0 && loops.dims.size() > 1 && row < kBlock && !l.single && !l.linear && !l.in_row && !l.one_a_row &&
                FusedStep::repeats_row(l.strides);
    if (l.repeats && reductions_.empty() && randoms_.empty()) step->block_ -= step->block_ % (aligned <= step->block_ ? aligned : row);
  }
  for (const NumberSource& n : numbers_)
    step->numbers_.push_back({n.number, registers_[n.reg].type, slot[n.reg]});
  for (const Instruction& i : once_)
    step->once_.push_back({i.function, i.convert, slot_of(i.out), slot_of(i.a), slot_of(i.b), slot_of(i.c), divisor_of(i)});
  const size_t first_index = loads_.size() + stores_.size() + reductions_.size();
  for (size_t k = 0; k < indices_.size(); ++k)
    step->indices_.push_back(
        {loops.strides[first_index + k], slot[indices_[k].reg], indices_[k].first, indices_[k].step, registers_[indices_[k].reg].type == Type::kF64});
  for (const Random& r : randoms_) step->randoms_.push_back({r.seed, r.offset, slot[r.reg]});
  for (size_t k = 0; k < reductions_.size(); ++k) {
    const Reduction& r = reductions_[k];
    const Type type = registers_[r.reg].type;
    const bool is_sum = r.kind == ReduceKind::kSum && type == Type::kF32;
    step->reductions_.push_back({Place(r.tensor), loops.strides[loads_.size() + stores_.size() + k],
                                 vm::table().totals[static_cast<int>(type)][static_cast<int>(r.kind)], r.divisor, r.tensor.dtype,
                                 static_cast<int>(vm::size_of(type)), slot[r.reg], r.root,
                                 is_sum});
    writes.push_back(r.tensor.storage);
  }
  // Nothing but the total of one load, whose rows or columns lie in memory, perhaps apart: a slice's.
  const bool one_total = code_.empty() && step->reductions_.size() == 1 && stores_.empty() && step->loads_.size() == 1;
  const bool of_rows = step->last_ == loops.dims.size();
  const bool one_loop = step->last_ - step->first_ == 1;
  if (one_total && of_rows && one_loop && !step->loads_[0].linear && !step->loads_[0].single && step->loads_[0].strides.back() == 1 &&
      loops.dims.back() >= FusedStep::kOwnRow)
    step->loads_[0].in_row = step->own_rows_ = true;
  // Sums and extremes of halves, and nothing else: where they lie, but for sums of short rows.
  const bool in_lanes = one_total && of_rows && loops.dims.back() < FusedStep::kOwnRow / 2 &&
                        (reductions_[0].kind == ReduceKind::kSum || reductions_[0].kind == ReduceKind::kSquares);
  if (one_total && of_rows && !in_lanes && (step->loads_[0].linear || step->own_rows_) && step->loads_[0].convert) {
    FusedStep::Load& l = step->loads_[0];
    const auto& totals = loads_[0].tensor.dtype == LAZYT_DTYPE_BFLOAT16 ? vm::table().totals_bf16 : vm::table().totals_f16;
    if (const auto& f = totals[static_cast<int>(reductions_[0].kind)]; f.row) {
      step->reductions_[0].f = f;
      step->reductions_[0].element = l.size;
      l.convert = nullptr, l.direct = l.linear;
    } else {
      l.in_row = step->own_rows_ = false;
    }
  }
  // The same of columns.
  const auto kept = loops.dims.begin() + static_cast<ptrdiff_t>(step->last_);
  const bool has_columns = std::any_of(kept, loops.dims.end(), [](int64_t d) { return d > 1; });
  const bool lies_apart = one_loop && step->first_ <= 1 && step->last_ + 1 == loops.dims.size();
  if (one_total && has_columns && (step->loads_[0].linear || (lies_apart && !step->loads_[0].single && step->loads_[0].strides.back() == 1)) &&
      registers_[reductions_[0].reg].type == Type::kF32 && loads_[0].reg == reductions_[0].reg) {
    FusedStep::Load& l = step->loads_[0];
    const vm::Table& t = vm::table();
    const auto& columns = !l.convert ? t.columns_f32 : loads_[0].tensor.dtype == LAZYT_DTYPE_BFLOAT16 ? t.columns_bf16 : t.columns_f16;
    step->columns_ = columns[static_cast<int>(reductions_[0].kind)];
    if (step->columns_) l.convert = nullptr, l.direct = l.linear;
  }
  // What lies in memory, and nothing else.
  if (one_total && of_rows && (step->loads_[0].direct || step->own_rows_)) step->reduced_at_once_ = kPiece;
  if (!reductions_.empty()) {
    // Totals of pieces (rows) or of portions and columns.
    int64_t outer = 1, length = 1, inner = 1;
    for (size_t i = 0; i < loops.dims.size(); ++i)
      (i < step->first_ ? outer : i < step->last_ ? length : inner) *= loops.dims[i];
    int64_t totals;
    if (inner == 1) {
      totals = length > kPiece ? outer * ((length + kPiece - 1) / kPiece) : 0;
    } else if (inner == 0) {
      totals = 0;
    } else {
      totals = outer * FusedStep::Portions(length, inner).count * inner;
    }
    step->partials_ = b.scratch(LAZYT_DTYPE_INT64, {totals * static_cast<int64_t>(reductions_.size())}).storage;
    writes.push_back(step->partials_);
  }
  return {std::move(step), std::move(reads), std::move(writes), std::move(in_place)};
}

}  // namespace lazyt::onednn
