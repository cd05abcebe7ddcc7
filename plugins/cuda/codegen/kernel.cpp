#include "kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>


namespace lazyt::cuda {
namespace {

std::string register_name(Type t) {
  constexpr const char* names[] = {"bool", "unsigned char", "signed char", "short", "int", "long long", "float", "double"};
  return names[static_cast<int>(t)];
}

// In the order of toolkit::Op; the device function of an instruction is lazyt_<name> (prelude.cuh).
constexpr const char* kNames[] = {
    "add",  "sub",  "mul",   "div",       "div_trunc", "div_floor", "fmod", "remainder", "max",     "min",   "fmax",    "fmin",
    "pow",  "atan2", "hypot", "copysign", "and",       "or",        "xor",  "shl",       "shr",     "eq",    "ne",      "lt",
    "le",   "gt",   "ge",    "move",      "abs",       "neg",       "sign", "floor",     "ceil",    "round", "trunc",   "sqrt",
    "rsqrt", "reciprocal", "exp", "exp2", "expm1",     "log",       "log2", "log10",     "log1p",   "sin",   "cos",     "tan",
    "asin", "acos", "atan",  "sinh",      "cosh",      "tanh",      "asinh", "acosh",    "atanh",   "sigmoid", "erf",   "erfc",
    "erfinv", "lgamma", "digamma", "not", "isnan",     "isinf",     "where", "fma"};
static_assert(std::size(kNames) == static_cast<size_t>(Op::kCount));

bool between(Op op, Op first, Op last) { return op >= first && op <= last; }

// What registers of a type can do.
bool has_form(Op op, Type t) {
  const bool is_bool = t == Type::kBool, is_float = toolkit::is_float(t);
  if (between(op, Op::kEq, Op::kGe) || op == Op::kWhere || op == Op::kMove || op == Op::kSign) return true;
  if (op == Op::kAdd || op == Op::kMul || op == Op::kMax || op == Op::kMin) return true;
  if (between(op, Op::kAnd, Op::kXor) || op == Op::kNot) return !is_float;
  if (op == Op::kShl || op == Op::kShr) return !is_float && !is_bool;
  if (op == Op::kDiv || between(op, Op::kAtan2, Op::kCopysign)) return is_float;
  if (between(op, Op::kFloor, Op::kDigamma) || op == Op::kIsNan || op == Op::kIsInf) return is_float;
  return !is_bool;
}

std::string reg(Reg r) { return "r" + std::to_string(r); }

bool same(const Tensor& a, const Tensor& b) {
  return a.storage == b.storage && a.dtype == b.dtype && a.layout.offset == b.layout.offset && a.layout.dims == b.layout.dims &&
         a.layout.strides == b.layout.strides;
}
bool same(const Number& a, const Number& b) {
  return a.constant == b.constant && a.integral == b.integral && a.i == b.i && a.input == b.input &&
         std::bit_cast<uint64_t>(a.d) == std::bit_cast<uint64_t>(b.d);
}

}  // namespace

Reg FusedKernel::load(const Tensor& t) {
  for (const Load& l : loads_)
    if (same(l.tensor, t)) return l.reg;
  const Reg r = add_register(toolkit::type_of(t.dtype), Often::kEach);
  loads_.push_back({t, r});
  return r;
}

Reg FusedKernel::look_up(const Lookup& lookup) {
  const Reg r = add_register(toolkit::type_of(lookup.from.dtype), Often::kEach);
  lookups_.push_back({lookup, r});
  return r;
}

Reg FusedKernel::number(const Number& n, Type type) {
  for (const Parameter& p : numbers_)
    if (types_[p.reg] == type && same(p.number, n)) return p.reg;
  const Reg r = add_register(type, Often::kOnce);
  numbers_.push_back({n, r});
  return r;
}

Reg FusedKernel::constant(double d, Type type) {
  char text[64];
  std::snprintf(text, sizeof text, "lazyt_cast<%s>(lazyt_f64(0x%016llxull))", register_name(type).c_str(),
                static_cast<unsigned long long>(std::bit_cast<uint64_t>(d)));
  for (const Line& c : constants_)
    if (c.text == text) return c.reg;
  const Reg r = add_register(type, Often::kOnce);
  constants_.push_back({r, text});
  return r;
}

Reg FusedKernel::op(Op op, Reg a, Reg b, Reg c) {
  const Type operand = types_[op == Op::kWhere ? b : a];
  const std::string name = kNames[static_cast<int>(op)];
  if (!has_form(op, operand))
    throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "cuda: " + name + " has no form for " + register_name(operand));
  const bool boolean = between(op, Op::kEq, Op::kGe) || op == Op::kIsNan || op == Op::kIsInf;
  if (op == Op::kMove) return a;
  // Of zeros of both signs the second counts, in PyTorch's relu and clamps what is no bound.
  if ((op == Op::kMax || op == Op::kMin) && often_[b] == Often::kOnce) std::swap(a, b);
  std::string text = "lazyt_" + name + "(" + reg(a);
  for (Reg r : {b, c})
    if (r != kNoReg) text += ", " + reg(r);
  return add_line(boolean ? Type::kBool : operand, text + ")", {a, b, c});
}

Reg FusedKernel::cast(Reg a, Type to) {
  return types_[a] == to ? a : add_line(to, "lazyt_cast<" + register_name(to) + ">(" + reg(a) + ")", {a});
}

Reg FusedKernel::round_to(Reg a, lazyt_dtype_t dtype) {
  if (dtype == LAZYT_DTYPE_FLOAT16) return add_line(Type::kF32, "lazyt_round_f16(" + reg(a) + ")", {a});
  if (dtype == LAZYT_DTYPE_BFLOAT16) return add_line(Type::kF32, "lazyt_round_bf16(" + reg(a) + ")", {a});
  return a;
}

Reg FusedKernel::index(size_t dim) {
  for (const Index& i : indices_)
    if (i.dim == dim) return i.reg;
  const Reg r = add_register(Type::kI64, Often::kEach);
  indices_.push_back({dim, r});
  return r;
}

Reg FusedKernel::uniform(const Number& seed, const Number& offset) {
  const Reg r = add_register(Type::kF32, Often::kEach);
  randoms_.push_back({seed, offset, r});
  return r;
}

Reg FusedKernel::total(Reg of, ReduceKind kind) {
  const bool logical = kind == ReduceKind::kAny || kind == ReduceKind::kAll;
  const Reg r = add_register(toolkit::is_float(types_[of]) && !logical ? Type::kF64 : Type::kI64, Often::kKept);
  reductions_.push_back({of, r, kind});
  return r;
}

Reg FusedKernel::load_kept(const Tensor& t) {
  for (const Load& l : kept_loads_)
    if (same(l.tensor, t)) return l.reg;
  const Reg r = add_register(toolkit::type_of(t.dtype), Often::kKept);
  kept_loads_.push_back({t, r});
  return r;
}

void FusedKernel::reduce(Reg of, ReduceKind kind, const Tensor& t, double divisor, bool root) {
  Reg r = total(of, kind);
  if (divisor != 1) r = op(Op::kDiv, cast(r, Type::kF64), constant(divisor, Type::kF64));
  if (root) r = op(Op::kSqrt, cast(r, Type::kF64));
  store_kept(cast(r, toolkit::type_of(t.dtype)), t);
}

Dims FusedKernel::widest(const Dims& dims) const {
  for (const Load& l : loads_)
    if (l.tensor.layout.dims == dims) return l.tensor.layout.strides;
  return {};
}

// The text of one kernel, with the parameters that it names.
class KernelText {
 public:
  // order: strides in whose order the elements are walked; null: as the results lie.
  explicit KernelText(const FusedKernel& k, const Dims* order = nullptr) : k_(k) {
    std::vector<Dims> strides;
    for (const auto& l : k.loads_) strides.push_back(toolkit::broadcast_strides(l.tensor, k.dims_));
    for (const auto& s : k.stores_) strides.push_back(s.tensor.layout.strides);
    for (const auto& l : k.kept_loads_) strides.push_back(l.tensor.layout.strides);
    for (const auto& s : k.kept_stores_) strides.push_back(s.tensor.layout.strides);
    const Dims rows = toolkit::row_major(k.dims_);
    for (const auto& i : k.indices_) {
      Dims s(k.dims_.size(), 0);
      s[i.dim] = 1;
      strides.push_back(s);
    }
    for (const auto& [lookup, reg] : k.lookups_) {
      strides.push_back(toolkit::broadcast_strides(lookup.from, k.dims_));
      Tensor at = lookup.at.value_or(lookup.from);
      if (!lookup.at) at.layout.strides = lookup.along;
      strides.push_back(toolkit::broadcast_strides(at, k.dims_));
    }
    if (!k.randoms_.empty()) strides.push_back(rows);
    // As the widest operand that covers everything lies: the first result, else the first load.
    Dims like = rows;
    const int64_t count = toolkit::count_of(k.dims_);
    if (order) {
      like = *order;
    } else if (!k.stores_.empty()) {
      like = k.stores_[0].tensor.layout.strides;
    } else {
      for (size_t i = 0; i < k.loads_.size(); ++i)
        if (k.loads_[i].tensor.count() == count) {
          like = strides[i];
          break;
        }
    }
    walk_ = toolkit::plan_walk(k.dims_, k.reductions_.empty() ? std::vector<bool>{} : k.reduced_, std::move(strides), like);
  }

  std::string element_at(std::vector<Word>& words, std::vector<StorageId>& reads, std::vector<StorageId>& writes,
                         std::vector<StorageId>& in_place) {
    words_ = std::move(words);
    std::string out = head() + counters("i", 0, walk_.loops.dims.size()) + element();
    words = std::move(words_);
    accesses(nullptr, reads, writes, in_place);
    return out;
  }

  void build(Builder& b) {
    if (k_.reductions_.empty()) {
      pointwise(b);
    } else if (walk_.inner() == 1) {
      rows(b);
    } else {
      columns(b);
    }
  }

 private:
  static constexpr uint32_t kThreads = 256;
  // Blocks that keep a large GPU busy: about four for each of its multiprocessors.
  static constexpr int64_t kBusy = 512;

  const Dims& strides_of_load(size_t i) const { return walk_.loops.strides[i]; }
  const Dims& strides_of_store(size_t i) const { return walk_.loops.strides[k_.loads_.size() + i]; }
  const Dims& strides_of_kept_load(size_t i) const { return walk_.loops.strides[k_.loads_.size() + k_.stores_.size() + i]; }
  const Dims& strides_of_kept_store(size_t i) const {
    return walk_.loops.strides[k_.loads_.size() + k_.stores_.size() + k_.kept_loads_.size() + i];
  }
  const Dims& strides_of_index(size_t i) const {
    return walk_.loops.strides[k_.loads_.size() + k_.stores_.size() + k_.kept_loads_.size() + k_.kept_stores_.size() + i];
  }
  // Of the elements in their row, and of what names it.
  const Dims& strides_of_lookup(size_t i, bool names) const {
    return walk_.loops.strides[k_.loads_.size() + k_.stores_.size() + k_.kept_loads_.size() + k_.kept_stores_.size() + k_.indices_.size() +
                               2 * i + names];
  }
  const Dims& strides_of_random() const { return walk_.loops.strides.back(); }

  static bool single(const Dims& strides) {
    return std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 0; });
  }
  bool linear(const Dims& strides) const {
    int64_t expect = 1;
    for (size_t i = walk_.loops.dims.size(); i-- > 0;) {
      if (walk_.loops.dims[i] != 1 && strides[i] != expect) return false;
      expect *= walk_.loops.dims[i];
    }
    return true;
  }

  std::string word(Word w) {
    words_.push_back(std::move(w));
    return last_word();
  }
  std::string pointer(const Tensor& t, bool is_const) {
    return "((" + std::string(is_const ? "const " : "") + memory_type(t.dtype) + "*)" + word(Word::address(t)) + ")";
  }
  std::string declare(Reg r, const std::string& text) const {
    return "const " + register_name(k_.type(r)) + " " + reg(r) + " = " + text + ";\n";
  }
  std::string number_text(const Number& n, Type t) {
    // As a bool, every number but 0 is true, 0.1 too.
    if (toolkit::is_float(t) || t == Type::kBool) return "lazyt_cast<" + register_name(t) + ">(lazyt_f64(" + word(Word::f64(n)) + "))";
    return "lazyt_cast<" + register_name(t) + ">((long long)" + word(Word::i64(n)) + ")";
  }

  // What no element changes: numbers, constants, seeds, operands of one element.
  std::string head() {
    std::string out;
    for (const auto& c : k_.constants_) out += declare(c.reg, c.text);
    for (const auto& p : k_.numbers_) out += declare(p.reg, number_text(p.number, k_.type(p.reg)));
    for (const auto& l : k_.lines_[0]) out += declare(l.reg, l.text);
    for (size_t i = 0; i < k_.randoms_.size(); ++i) {
      const std::string n = std::to_string(i);
      out += "const unsigned long long seed" + n + " = " + word(Word::i64(k_.randoms_[i].seed)) + ", offset" + n + " = " +
             word(Word::i64(k_.randoms_[i].offset)) + ";\n";
    }
    for (size_t i = 0; i < k_.loads_.size(); ++i)
      if (single(strides_of_load(i)))
        out += declare(k_.loads_[i].reg, "lazyt_load(" + pointer(k_.loads_[i].tensor, true) + ", 0)");
    return out;
  }
  // Where loops' counters x0, x1, ... put an element: "x0 * 12 + x2". As long long.
  std::string place(const Dims& strides, size_t from = 0, size_t to = SIZE_MAX) const {
    std::string out;
    for (size_t d = from; d < std::min(to, strides.size()); ++d) {
      if (strides[d] == 0 || walk_.loops.dims[d] == 1) continue;
      if (!out.empty()) out += " + ";
      out += "x" + std::to_string(d);
      if (strides[d] != 1) out += " * " + std::to_string(strides[d]) + "ll";
    }
    return out.empty() ? "0" : out;
  }
  // The counters of loops [from, to) out of one that counts them all.
  std::string counters(const std::string& of, size_t from, size_t to) const {
    std::string out;
    std::string rest = of;
    for (size_t d = to; d-- > from;) {
      const std::string x = "x" + std::to_string(d), n = std::to_string(walk_.loops.dims[d]);
      if (walk_.loops.dims[d] == 1) {
        out += "const long long " + x + " = 0;\n";
      } else if (d == from) {
        out += "const long long " + x + " = " + rest + ";\n";
      } else {
        out += "const long long " + x + " = " + rest + " % " + n + ";\n";
        out += "const auto y" + std::to_string(d) + " = " + rest + " / " + n + ";\n";
        rest = "y" + std::to_string(d);
      }
    }
    return out;
  }
  // Declares the row of lookup i, and whether there is such a row: "row2", "found2".
  std::string row(size_t i) {
    const Lookup& l = k_.lookups_[i].lookup;
    const std::string n = std::to_string(i), at = place(strides_of_lookup(i, true));
    const std::string named = l.at ? "((const long long*)" + word(Word::address(*l.at)) + ")[" + at + "]"
                                   : "(long long)" + word(Word::i64(l.first)) + " + " + std::to_string(l.step) + "ll * (" + at + ")";
    std::string out = "const long long row" + n + " = " + named + ";\nconst bool found" + n + " = row" + n + " >= 0 && row" + n + " < " +
                      std::to_string(l.size) + "ll;\n";
    const std::string faults = word(l.fault[0]), site = word(l.fault[1]);
    return out + "if (!found" + n + ") lazyt_fault(" + faults + ", " + site + ", row" + n + ");\n";
  }
  std::string in_row(size_t i) const {
    return "row" + std::to_string(i) + " * " + std::to_string(k_.lookups_[i].lookup.stride) + "ll + " + place(strides_of_lookup(i, false));
  }
  // What one element computes, from its loads to its stores. Declares a register for each.
  std::string element() {
    std::string out;
    for (size_t i = 0; i < k_.loads_.size(); ++i)
      if (!single(strides_of_load(i)))
        out += declare(k_.loads_[i].reg, "lazyt_load(" + pointer(k_.loads_[i].tensor, true) + ", " + place(strides_of_load(i)) + ")");
    for (size_t i = 0; i < k_.lookups_.size(); ++i) {
      const auto& l = k_.lookups_[i];
      out += row(i);
      out += declare(l.reg, "found" + std::to_string(i) + " ? lazyt_load(" + pointer(l.lookup.from, true) + ", " + in_row(i) + ") : (" +
                                register_name(k_.type(l.reg)) + ")0");
    }
    for (size_t i = 0; i < k_.indices_.size(); ++i) out += declare(k_.indices_[i].reg, place(strides_of_index(i)));
    if (!k_.randoms_.empty()) out += uniforms(place(strides_of_random()));
    for (const auto& l : k_.lines_[1]) out += declare(l.reg, l.text);
    for (size_t i = 0; i < k_.stores_.size(); ++i)
      out += "lazyt_store(" + pointer(k_.stores_[i].tensor, false) + ", " + place(strides_of_store(i)) + ", " + reg(k_.stores_[i].reg) + ");\n";
    return out;
  }
  std::string uniforms(const std::string& at) const {
    std::string out;
    for (size_t i = 0; i < k_.randoms_.size(); ++i) {
      const std::string n = std::to_string(i);
      out += declare(k_.randoms_[i].reg, "lazyt_uniform(seed" + n + ", offset" + n + ", (unsigned long long)(" + at + "))");
    }
    return out;
  }

  // body: over `w`. batches: and over `block` and `blocks`, so that it may join others in one launch.
  void add(Builder& b, const char* base, std::string body, std::array<uint32_t, 3> grid, const std::vector<StorageId>& reads,
           const std::vector<StorageId>& writes, const std::vector<StorageId>& in_place, bool batches = false) {
    auto step = std::make_unique<KernelStep>();
    step->source = specialise(base, "LAZYT_KERNEL(KERNEL, " + std::to_string(words_.size()) + ", " + std::to_string(kThreads) +
                                        ") {\nconst unsigned long long* w = a.w;\n" +
                                        "const unsigned block = blockIdx.x, blocks = gridDim.x;\n" + body + "}\n", {});
    step->grid = grid;
    step->block = {kThreads, 1, 1};
    step->words = words_;
    if (batches) step->body = std::move(body);
    b.add_kernel(std::move(step), reads, writes, in_place);
  }
  // The storages that the kernel reads and writes. An operand of the very geometry of all results is read in
  // place. b: null of a kernel without totals.
  void accesses(const Builder* b, std::vector<StorageId>& reads, std::vector<StorageId>& writes,
                std::vector<StorageId>& in_place) const {
    for (size_t i = 0; i < k_.loads_.size(); ++i) {
      const Tensor& t = k_.loads_[i].tensor;
      // One element is in place where it is all that there is.
      bool same = k_.reductions_.empty() && (!single(strides_of_load(i)) || toolkit::count_of(k_.dims_) == 1);
      for (size_t j = 0; same && j < k_.stores_.size(); ++j) {
        const Tensor& s = k_.stores_[j].tensor;
        same = s.layout.offset == t.layout.offset && strides_of_store(j) == strides_of_load(i) && s.element() == t.element();
      }
      (same ? in_place : reads).push_back(t.storage);
    }
    for (const auto& [lookup, reg] : k_.lookups_) {
      reads.push_back(lookup.from.storage);
      if (lookup.at) reads.push_back(lookup.at->storage);
    }
    for (size_t i = 0; i < k_.kept_loads_.size(); ++i) {
      const Tensor& t = k_.kept_loads_[i].tensor;
      // What the elements write is of another size, so on no bytes of this one.
      bool same = b && std::none_of(k_.stores_.begin(), k_.stores_.end(), [&](const auto& s) {
                    return b->bytes_of(s.tensor.storage) == b->bytes_of(t.storage);
                  });
      for (size_t j = 0; same && j < k_.kept_stores_.size(); ++j) {
        const Tensor& s = k_.kept_stores_[j].tensor;
        same = s.layout.offset == t.layout.offset && strides_of_kept_store(j) == strides_of_kept_load(i) && s.element() == t.element();
      }
      (same ? in_place : reads).push_back(t.storage);
    }
    for (const auto& s : k_.stores_) writes.push_back(s.tensor.storage);
    for (const auto& s : k_.kept_stores_) writes.push_back(s.tensor.storage);
  }

  // The widest pack in which all operands can be brought in: 16 bytes of the largest element. They lie side by side along
  // the innermost loop, or are one for all of it, and packs of other rows are aligned as those of the first.
  int64_t widest_pack(bool all_linear, uint64_t largest) const {
    for (int64_t pack = static_cast<int64_t>(16 / std::min<uint64_t>(largest, 16)); pack > 1; pack /= 2) {
      auto fits = [&](const Dims& strides, bool stored) {
        if (strides.back() == 0 && !stored) return true;  // one for the whole pack
        if (strides.back() != 1) return false;
        return std::all_of(strides.begin(), strides.end() - 1, [&](int64_t s) { return s % pack == 0; });
      };
      bool good = all_linear || walk_.loops.dims.back() % pack == 0;
      for (size_t j = 0; good && !all_linear && j < k_.loads_.size(); ++j) good = fits(strides_of_load(j), false);
      for (size_t j = 0; good && !all_linear && j < k_.stores_.size(); ++j) good = fits(strides_of_store(j), true);
      // A pack lies in one row.
      for (size_t j = 0; good && j < k_.lookups_.size(); ++j)
        good = strides_of_lookup(j, true).back() == 0 && strides_of_lookup(j, false).back() == 1 && fits(strides_of_lookup(j, false), false) &&
               k_.lookups_[j].lookup.stride % pack == 0;
      if (good) return pack;
    }
    return 1;
  }

  // A copy, bit by bit.
  bool only_moves() const {
    return k_.loads_.size() == 1 && k_.stores_.size() == 1 && k_.stores_[0].reg == k_.loads_[0].reg && k_.stores_[0].tensor.dtype == k_.loads_[0].tensor.dtype;
  }

  void pointwise(Builder& b) {
    const int64_t count = walk_.count(0, walk_.loops.dims.size());
    if (count == 0) return;
    std::vector<StorageId> reads, writes, in_place;
    accesses(&b, reads, writes, in_place);
    bool all_linear = k_.indices_.empty() && k_.lookups_.empty();
    uint64_t largest = 1;
    for (size_t j = 0; j < k_.loads_.size(); ++j) {
      if (single(strides_of_load(j))) continue;
      all_linear = all_linear && linear(strides_of_load(j));
      largest = std::max(largest, k_.loads_[j].tensor.element());
    }
    for (size_t j = 0; j < k_.stores_.size(); ++j) {
      all_linear = all_linear && linear(strides_of_store(j));
      largest = std::max(largest, k_.stores_[j].tensor.element());
    }
    for (const auto& [lookup, reg] : k_.lookups_) largest = std::max(largest, lookup.from.element());
    const bool linear_random = !k_.randoms_.empty() && linear(strides_of_random());
    all_linear = all_linear && (k_.randoms_.empty() || linear_random);
    // Few elements are spread over more threads.
    const int64_t pack = count < kThreads * kBusy ? 1 : widest_pack(all_linear, largest);

    const std::string i = count < (int64_t{1} << 30) ? "int" : "long long", v = std::to_string(pack);
    std::string body = head();
    body += "const " + i + " n = " + (all_linear ? "(" + i + ")" + word(Word::integer(count)) : std::to_string(count)) + ";\n";
    std::string aligned, load, compute, store, from, to;
    auto at = [&](const Dims& strides) { return all_linear ? std::string("i") : place(strides); };
    for (size_t j = 0; j < k_.loads_.size(); ++j) {
      const auto& l = k_.loads_[j];
      if (single(strides_of_load(j))) continue;
      const std::string p = pointer(l.tensor, true), name = "p" + std::to_string(j);
      if (pack > 1 && strides_of_load(j).back() == 0) {  // one for the whole pack
        load += declare(l.reg, "lazyt_load(" + p + ", " + at(strides_of_load(j)) + ")");
        continue;
      }
      aligned += " | " + (from = last_word());
      load += "const auto " + name + " = lazyt_take<" + v + ">(" + p + " + " + at(strides_of_load(j)) + ", n - i, whole);\n";
      compute += declare(l.reg, "lazyt_load(" + name + ".v, j)");
    }
    for (size_t j = 0; j < k_.lookups_.size(); ++j) {
      const auto& l = k_.lookups_[j];
      const std::string n = std::to_string(j), type = memory_type(l.lookup.from.dtype);
      load += row(j);
      const std::string p = pointer(l.lookup.from, true);
      aligned += " | " + last_word();
      load += "lazyt_pack<" + type + ", " + v + "> in" + n + " = {};\nif (found" + n + ") in" + n + " = lazyt_take<" + v + ">(" + p + " + " +
              in_row(j) + ", n - i, whole);\n";
      compute += declare(l.reg, "lazyt_load(in" + n + ".v, j)");
    }
    for (size_t j = 0; j < k_.indices_.size(); ++j)
      compute += declare(k_.indices_[j].reg, place(strides_of_index(j)) + " + j * " + std::to_string(strides_of_index(j).back()) + "ll");
    for (size_t j = 0; j < k_.randoms_.size() && linear_random && pack % 4 == 0; ++j) {
      const std::string n = std::to_string(j);
      load += "float u" + n + "[" + v + "];\n#pragma unroll\nfor (int j = 0; j < " + v + "; j += 4) lazyt_uniform4(*(float(*)[4])(u" + n +
              " + j), seed" + n + ", offset" + n + ", i + j);\n";
      compute += declare(k_.randoms_[j].reg, "u" + n + "[j]");
    }
    if (!k_.randoms_.empty() && !(linear_random && pack % 4 == 0))
      compute += uniforms(linear_random ? "i + j" : place(strides_of_random()) + " + j * " + std::to_string(strides_of_random().back()) + "ll");
    for (const auto& l : k_.lines_[1]) compute += declare(l.reg, l.text);
    for (size_t j = 0; j < k_.stores_.size(); ++j) {
      const auto& s = k_.stores_[j];
      const std::string p = pointer(s.tensor, false), name = "q" + std::to_string(j);
      aligned += " | " + (to = last_word());
      load += "lazyt_pack<" + memory_type(s.tensor.dtype) + ", " + v + "> " + name + ";\n";
      compute += "lazyt_store(" + name + ".v, j, " + reg(s.reg) + ");\n";
      store += "lazyt_put(" + p + " + " + at(strides_of_store(j)) + ", " + name + ", n - i, whole);\n";
    }
    if (only_moves() && !in_place.empty() && !from.empty()) body += "if (" + from + " == " + to + ") return;\n";  // there already
    body += "const bool aligned = ((0" + aligned + ") & 15) == 0;\n";
    body += "for (" + i + " i = ((" + i + ")block * " + std::to_string(kThreads) + " + (int)threadIdx.x) * " + v + "; i < n; i += (" +
            i + ")blocks * " + std::to_string(kThreads * pack) + ") {\n" +
            (all_linear ? "" : counters("i", 0, walk_.loops.dims.size())) + "const bool whole = aligned && n - i >= " + v + ";\n" + load +
            "#pragma unroll\nfor (int j = 0; j < " + v + "; ++j) {\n" + compute + "}\n" + store + "}\n";
    add(b, "pointwise", body, blocks_for(count, pack), reads, writes, in_place, true);
  }
  std::string last_word() const { return "w[" + std::to_string(words_.size() - 1) + "]"; }
  static std::array<uint32_t, 3> blocks_for(int64_t count, int64_t pack) {
    const int64_t each = kThreads * pack;
    return {static_cast<uint32_t>(std::min<int64_t>((count + each - 1) / each, int64_t{1} << 22)), 1, 1};
  }

  // ---- reductions

  std::string total_type(size_t i) const { return register_name(k_.type(k_.reductions_[i].reg)); }
  std::string kind(size_t i) const { return std::to_string(static_cast<int>(k_.reductions_[i].kind)); }
  std::string total(size_t i) const { return "t" + std::to_string(i); }
  std::string starts(bool again = false) const {
    std::string out;
    for (size_t i = 0; i < k_.reductions_.size(); ++i)
      out += (again ? "" : total_type(i) + " ") + total(i) + " = lazyt_start<" + kind(i) + ", " + total_type(i) + ">();\n";
    return out;
  }
  // Whether a few neighbours are added in f32 before their sum goes to the total: GPUs have few f64 units.
  bool sums_f32(size_t i) const { return k_.reductions_[i].kind == ReduceKind::kSum && k_.type(k_.reductions_[i].of) == Type::kF32; }
  std::string joins() const {
    std::string out;
    for (size_t i = 0; i < k_.reductions_.size(); ++i)
      out += sums_f32(i) ? "s" + std::to_string(i) + " += " + reg(k_.reductions_[i].of) + ";\n"
                         : total(i) + " = lazyt_join<" + kind(i) + ">(" + total(i) + ", " + reg(k_.reductions_[i].of) + ");\n";
    return out;
  }
  // What totals t0, t1, ... become.
  std::string finishes() {
    std::string out;
    for (size_t i = 0; i < k_.kept_loads_.size(); ++i)
      out += declare(k_.kept_loads_[i].reg, "lazyt_load(" + pointer(k_.kept_loads_[i].tensor, true) + ", " + place(strides_of_kept_load(i)) + ")");
    for (size_t i = 0; i < k_.reductions_.size(); ++i) out += declare(k_.reductions_[i].reg, total(i));
    for (const auto& l : k_.lines_[2]) out += declare(l.reg, l.text);
    for (size_t i = 0; i < k_.kept_stores_.size(); ++i)
      out += "lazyt_store(" + pointer(k_.kept_stores_[i].tensor, false) + ", " + place(strides_of_kept_store(i)) + ", " + reg(k_.kept_stores_[i].reg) + ");\n";
    return out;
  }

  struct Cut {
    int64_t parts = 1, length;  // of the reduced loops
  };
  // blocks: there are without cutting. least: elements of a part that are worth a block.
  static Cut cut(int64_t length, int64_t blocks, int64_t least) {
    Cut c{1, std::max<int64_t>(length, 1)};
    if (blocks >= kBusy || length < 2 * least) return c;
    c.parts = std::min({(length + least - 1) / least, (kBusy + blocks - 1) / blocks, int64_t{4096}});
    c.length = (length + c.parts - 1) / c.parts;
    c.parts = (length + c.length - 1) / c.length;
    return c;
  }

  std::string counters_behind(const std::string& of) const { return counters(of, walk_.last, walk_.loops.dims.size()); }

  // How the threads of a block share the elements of their totals.
  struct Share {
    std::string first, step;  // of a thread's elements
    std::string has, kept;    // whether the thread has a kept element, and its index
    std::string totals;       // brings a kept element's totals to the thread whose `first` is 0
  };
  // body: over `at` of `blocks` for each part, to what a thread has added.
  void add_reduction(Builder& b, const char* base, std::string body, const Share& share, int64_t blocks, Cut c) {
    const std::string count = std::to_string(blocks), finish = "if (" + share.first + " == 0 && " + share.has + ") {\n";
    body = (c.parts == 1 ? "const unsigned part = 0, at = block;\n" : "const unsigned part = block / " + count + "u, at = block % " + count + "u;\n") + body +
           share.totals;
    std::vector<StorageId> reads, writes, in_place;
    accesses(&b, reads, writes, in_place);
    if (c.parts > 1) {
      // Totals of parts go to memory, as [reduction][part][kept]; the last block of all parts combines them in their order.
      const int64_t kept_count = walk_.outer() * walk_.inner();
      const Tensor memory = b.scratch(LAZYT_DTYPE_INT64, {static_cast<int64_t>(k_.reductions_.size()) * c.parts * kept_count});
      writes.push_back(memory.storage);
      const std::string base_word = word(Word::address(memory));
      auto place_of = [&](size_t i, const char* part) {
        return "((" + total_type(i) + "*)" + base_word + ")[(" + std::to_string(static_cast<int64_t>(i) * c.parts) + "ll + " + part + ") * " +
               std::to_string(kept_count) + "ll + " + share.kept + "]";
      };
      body += finish;
      for (size_t i = 0; i < k_.reductions_.size(); ++i) body += place_of(i, "part") + " = " + total(i) + ";\n";
      body += "}\nif (!lazyt_is_last((unsigned*)" + word(Word::address(b.counters(blocks))) + " + at, " + std::to_string(c.parts) + "u)) return;\n" + starts(true) +
              "if (" + share.has + ")\nfor (int s = " + share.first + "; s < " + std::to_string(c.parts) + "; s += " + share.step + ") {\n";
      for (size_t i = 0; i < k_.reductions_.size(); ++i)
        body += total(i) + " = lazyt_combine<" + kind(i) + ">(" + total(i) + ", " + place_of(i, "s") + ");\n";
      body += "}\n" + share.totals;
    }
    body += finish + finishes() + "}\n";
    add(b, base, body, {static_cast<uint32_t>(blocks * c.parts), 1, 1}, reads, writes, in_place, true);
  }
  // The reduced loops from the thread's first element to the end of its part.
  std::string reduced_loop(const Cut& c, const std::string& first, int64_t step) {
    const std::string length = std::to_string(std::max<int64_t>(walk_.length(), 0));
    std::string out = "const long long begin = part * " + std::to_string(c.length) + "ll, end = begin + " + std::to_string(c.length) +
                      "ll < " + length + "ll ? begin + " + std::to_string(c.length) + "ll : " + length + "ll;\n";
    const std::string i = walk_.length() < (int64_t{1} << 30) ? "int" : "long long", across = std::to_string(step);
    std::string before, after;
    for (size_t r = 0; r < k_.reductions_.size(); ++r) {
      if (!sums_f32(r)) continue;
      before += "float s" + std::to_string(r) + " = 0;\n";
      after += total(r) + " += s" + std::to_string(r) + ";\n";
    }
    const std::string each = counters("l", walk_.first, walk_.last) + element() + joins();
    if (before.empty())
      return out + "#pragma unroll 4\nfor (" + i + " l = begin + " + first + "; l < end; l += " + across + ") {\n" + each + "}\n";
    return out + "for (" + i + " l4 = begin + " + first + "; l4 < end; l4 += 4 * " + across + ") {\n" + before +
           "#pragma unroll\nfor (int j = 0; j < 4; ++j) {\nconst " + i + " l = l4 + j * " + across + ";\nif (l >= end) break;\n" + each +
           "}\n" + after + "}\n";
  }

  // Threads of a row are neighbours.
  void rows(Builder& b) {
    const int64_t outer = walk_.outer(), length = walk_.length();
    if (outer == 0) return;
    int64_t across = 1;
    while (across < 32 && across * 4 < length) across *= 2;
    if (length >= 1024) across = kThreads;
    const int64_t each = kThreads / across, blocks = (outer + each - 1) / each;
    const Cut c = across == kThreads ? cut(length, blocks, 4096) : Cut{1, std::max<int64_t>(length, 1)};
    std::string body = head() + "const int tx = threadIdx.x % " + std::to_string(across) + ";\nconst long long k = at * " +
                       std::to_string(each) + "ll + threadIdx.x / " + std::to_string(across) + ";\n" +
                       counters("k", 0, walk_.first) + counters_behind("0ll") + starts() + "if (k < " + std::to_string(outer) + ") {\n" +
                       reduced_loop(c, "tx", across) + "}\n";
    std::string totals;
    if (across > 1)
      for (size_t i = 0; i < k_.reductions_.size(); ++i)
        totals += total(i) + " = " +
                  (across == kThreads ? "lazyt_block_total<" + kind(i) + ", " + total_type(i) + ", " + std::to_string(across)
                                      : "lazyt_lanes_total<" + kind(i) + ", " + std::to_string(across)) +
                  ">(" + total(i) + ");\n";
    add_reduction(b, "rows", std::move(body), {"tx", std::to_string(across), "k < " + std::to_string(outer), "k", std::move(totals)}, blocks, c);
  }

  // Threads side by side take columns side by side, and several rows of threads each a share of the column.
  void columns(Builder& b) {
    const int64_t outer = walk_.outer(), length = walk_.length(), inner = walk_.inner();
    if (outer == 0 || inner == 0) return;
    int64_t wide = 1;
    while (wide < 32 && wide < inner) wide *= 2;
    // A short column is one thread's.
    while (wide < kThreads && kThreads / wide > std::max<int64_t>(1, length / 4)) wide *= 2;
    const int64_t high = kThreads / wide, tiles = (inner + wide - 1) / wide, blocks = outer * tiles;
    const Cut c = cut(length, blocks, 8 * high);
    const std::string w = std::to_string(wide);
    std::string body = head() + "const int tx = threadIdx.x % " + w + ", ty = threadIdx.x / " + w + ";\nconst long long o = at / " +
                       std::to_string(tiles) + ", q = at % " + std::to_string(tiles) + " * " + w + "ll + tx;\n" +
                       counters("o", 0, walk_.first) + counters_behind("q") + starts() + "if (q < " + std::to_string(inner) + ") {\n" +
                       reduced_loop(c, "ty", high) + "}\n";
    std::string totals;
    if (high > 1)
      for (size_t i = 0; i < k_.reductions_.size(); ++i)
        totals += total(i) + " = lazyt_down_total<" + kind(i) + ", " + w + ", " + std::to_string(kThreads) + ">(" + total(i) + ");\n";
    add_reduction(b, "columns", std::move(body),
                  {"ty", std::to_string(high), "q < " + std::to_string(inner), "o * " + std::to_string(inner) + "ll + q", std::move(totals)}, blocks, c);
  }

  const FusedKernel& k_;
  toolkit::Walk walk_;
  std::vector<Word> words_;
};

void FusedKernel::build(Builder& b, const std::vector<StorageId>&) { KernelText(*this).build(b); }

std::string FusedKernel::type_name(Type type) { return register_name(type); }
std::string FusedKernel::element(const Dims& strides, std::vector<Word>& words, std::vector<StorageId>& reads,
                                 std::vector<StorageId>& writes, std::vector<StorageId>& reads_in_place) const {
  return KernelText(*this, &strides).element_at(words, reads, writes, reads_in_place);
}

}  // namespace lazyt::cuda
