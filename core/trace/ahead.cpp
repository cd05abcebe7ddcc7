#include "trace/ahead.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/counters.h"
#include "ir/registry.h"
#include "ir/shapes.h"
#include "trace/early.h"

namespace lazyt::trace {
namespace {

// A step may be several programs, each of which grows.
constexpr size_t kRecent = 16, kLine = 9, kGuesses = 4;
constexpr uint64_t kMostSize = uint64_t{1} << 48;  // numbers below it can be added up

bool sizes_grow_with_operands(const Op& op) {
  static const auto& names = *new std::unordered_set<std::string_view>{
      "aten::_fused_rms_norm",
      "aten::_log_softmax",
      "aten::_scaled_dot_product_flash_attention_for_cpu",
      "aten::_softmax",
      "aten::_to_copy",
      "aten::addmm",
      "aten::addmv",
      "aten::all",
      "aten::amax",
      "aten::amin",
      "aten::any",
      "aten::arange",
      "aten::argmax",
      "aten::argmin",
      "aten::baddbmm",
      "aten::bitwise_not",
      "aten::bmm",
      "aten::cat",
      "aten::clone",
      "aten::copy",
      "aten::cumprod",
      "aten::cumsum",
      "aten::embedding",
      "aten::fill",
      "aten::flip",
      "aten::full",
      "aten::gather",
      "aten::index",
      "aten::index_put",
      "aten::index_select",
      "aten::linalg_vector_norm",
      "aten::linear",
      "aten::logical_not",
      "aten::masked_fill",
      "aten::max",
      "aten::mean",
      "aten::min",
      "aten::mm",
      "aten::native_layer_norm",
      "aten::ones",
      "aten::prod",
      "aten::scatter",
      "aten::slice_scatter",
      "aten::sort",
      "aten::stack",
      "aten::std",
      "aten::sum",
      "aten::topk",
      "aten::tril",
      "aten::triu",
      "aten::var",
      "aten::where",
      "aten::zeros",
  };
  if (op.lowering == Lowering::kCopy || op.lowering == Lowering::kFill || op.lowering == Lowering::kZero)
    return true;
  if (names.contains(op.functional_name)) return true;
  const ir::OpInfo* info = ir::find_op(op.functional_name, op.functional_overload);
  return info && info->promote != ir::Promote::kNone && info->promote != ir::Promote::kInto && info->axis_args == 0;  // pointwise
}

// Three words in a row, at the same place of three tapes, and what is written behind them.
class Row {
 public:
  Row(const uint64_t* a, const uint64_t* b, const uint64_t* c, uint64_t* next)
      : a_(a), b_(b), c_(c), next_(next) {}

  uint64_t word() const { return c_[at_]; }
  const uint64_t* words() const { return c_ + at_; }
  bool at_end(const uint64_t* end) const { return c_ + at_ >= end; }
  bool changed() const { return changed_; }

  // n words that may not change.
  bool same(size_t n = 1) {
    const bool equal =
        std::memcmp(a_ + at_, c_ + at_, n * 8) == 0 && std::memcmp(b_ + at_, c_ + at_, n * 8) == 0;
    at_ += n;
    return equal;
  }
  // n sizes (offsets, strides) that may grow or shrink, to no less than least.
  bool go_on(size_t n, uint64_t least = 0) {
    for (; n > 0; n--, at_++) {
      const uint64_t step = c_[at_] - b_[at_];
      if (b_[at_] - a_[at_] != step) return false;
      if (step == 0) continue;
      changed_ = true;
      next_[at_] = c_[at_] + step;
      for (uint64_t size : {a_[at_], b_[at_], c_[at_], next_[at_]})
        if (size < least || size > kMostSize) return false;
    }
    return true;
  }
  bool meta_goes_on() {  // as put_meta writes
    const size_t rank = word() >> 8;
    return same() && go_on(rank, 1) && go_on(rank);
  }

 private:
  const uint64_t *a_, *b_, *c_;
  uint64_t* next_;  // a copy of c's
  size_t at_ = 0;
  bool changed_ = false;
};

// Of integers only sizes go on: others count dims, say, of which there may be no more.
bool entry_goes_on(Row& row, bool ints_are_sizes, bool is_end) {
  const uint64_t* w = row.words();
  if (tag_of(*w) == kInt && is_end) return row.same() && row.go_on(1);
  if (tag_of(*w) == kTensor)
    return row.same() && row.go_on(1) && row.go_on(low_of(*w), 1) && row.go_on(low_of(*w));
  if (tag_of(*w) == kInts && ints_are_sizes) return row.same() && row.go_on(low_of(*w), 1);
  return row.same(entry_words(w));
}

bool role_goes_on(Row& row) {
  const uint64_t role = row.word();
  if (!row.same()) return false;
  if (role & kNewInput) return row.meta_goes_on() && row.go_on(1);
  return !(role & kUninitialised) || row.go_on(1);
}

// How many of a range's first arguments say where it begins and ends, if it counts by ones: then its size is their difference.
size_t ends_of_range(const Token& t) {
  if (t.op->functional_name != "aten::arange") return 0;
  if (t.op->functional_overload.empty()) return 1;
  if (t.op->functional_overload == "start") return 2;
  const uint64_t* step = t.words();
  for (int entry = 0; entry < 2; entry++) step += entry_words(step);
  return tag_of(*step) == kInt && step[1] == 1 ? 2 : 0;
}

bool token_goes_on(Row& row, const Token& t) {
  const std::string_view name = t.op->functional_name;
  const bool ints_are_sizes = name == "aten::full" || name == "aten::ones" || name == "aten::zeros";
  const size_t ends = ends_of_range(t);
  for (size_t entry = 0; !row.at_end(t.role_words()); entry++)
    if (!entry_goes_on(row, ints_are_sizes, entry < ends)) return false;
  while (!row.at_end(t.meta_words()))
    if (!role_goes_on(row)) return false;
  while (!row.at_end(t.words() + t.word_count()))
    if (!row.meta_goes_on()) return false;
  return !row.changed() || sizes_grow_with_operands(*t.op);
}

bool alike(const Placed& a, const Placed& b) {
  if (a.first_result != b.first_result) return false;
  return a.token == b.token || (static_cast<const TokenHeader&>(*a.token) == *b.token && a.token->parts == b.token->parts && a.token->moved == b.token->moved);
}

bool alike(const Tape& a, const Tape& b) {
  auto same_scalar = [](const ScalarType& x, const ScalarType& y) {
    return x.dtype == y.dtype && x.weak == y.weak;
  };
  auto both_alike = [](const Placed& x, const Placed& y) { return alike(x, y); };
  return a.flags == b.flags && a.default_float == b.default_float && a.slots.size() == b.slots.size() && a.inputs == b.inputs &&
         std::ranges::equal(a.tokens, b.tokens, both_alike) && std::ranges::equal(a.scalars, b.scalars, same_scalar);
}

// What goes on behind three tokens that are alike: the last of them if they are equal. Null: they do not go on.
base::Ref<const Token> following(const base::Ref<const Token>& a, const base::Ref<const Token>& b, const base::Ref<const Token>& c) {
  if (a == c && b == c) return c;
  base::Ref<Token> next = Token::make(*c, c->parts, c->moved, c->source);
  std::copy_n(c->words(), c->word_count(), next->words());
  Row row(a->words(), b->words(), c->words(), next->words());
  if (!token_goes_on(row, *c)) return nullptr;
  return row.changed() ? base::Ref<const Token>(next) : c;
}

bool dims_go_on(const base::Dims& a, const base::Dims& b, const base::Dims& c, base::Dims& next, uint64_t least) {
  const auto words = [](const base::Dims& dims) { return reinterpret_cast<const uint64_t*>(dims.data()); };
  return a.size() == c.size() && b.size() == c.size() &&
         Row(words(a), words(b), words(c), reinterpret_cast<uint64_t*>(next.data())).go_on(c.size(), least);
}

// The same of slots.
SlotRef following(const SlotRef& a, const SlotRef& b, const SlotRef& c) {
  if (a == c && b == c) return c;
  if (a->meta.dtype != c->meta.dtype || b->meta.dtype != c->meta.dtype) return nullptr;
  Slot next = *c;
  if (!dims_go_on(a->meta.dims, b->meta.dims, c->meta.dims, next.meta.dims, 1) || !dims_go_on(a->meta.strides, b->meta.strides, c->meta.strides, next.meta.strides, 0)) return nullptr;
  if (!Row(&a->bytes, &b->bytes, &c->bytes, &next.bytes).go_on(1) || next.meta.span_bytes() > next.bytes) return nullptr;
  return next == *c ? c : std::make_shared<const Slot>(std::move(next));
}

// next: behind c, in which they do.
bool operands_lie_in_their_storages(const Tape& next, const Tape& c) {
  bool inside = true;
  for (const Placed& placed : next.tokens) {
    const uint64_t* role = placed.token->role_words();
    for_each_tensor(placed.token->words(), placed.token->signature, [&](const uint64_t* w) {
      const uint32_t slot = low_of(*role);
      role += role_words(role);
      if (!placed.guessed && next.slots[slot] == c.slots[slot]) return;
      const base::Meta view = meta_of_tensor(w);
      const uint64_t begin = w[1] == kMoved ? 0 : w[1] * lazyt_dtype_size(view.dtype);
      inside = inside && begin + view.span_bytes() <= next.slots[slot]->bytes;
    });
  }
  return inside;
}

}  // namespace

base::Ref<Tape> following(const Tape& a, const Tape& b, const Tape& c) {
  if (!alike(a, b) || !alike(b, c)) return nullptr;
  auto next = base::make_ref<Tape>();
  next->guessed = true;
  next->tokens.reserve(c.tokens.size());
  bool changed = false;
  for (size_t i = 0; i < c.tokens.size(); i++) {
    base::Ref<const Token> token = following(a.tokens[i].token, b.tokens[i].token, c.tokens[i].token);
    if (!token) return nullptr;
    const bool guessed = !(token == c.tokens[i].token);
    changed |= guessed;
    next->add(std::move(token), c.tokens[i].first_result, guessed);
  }
  if (!changed) return nullptr;
  next->slots.reserve(c.slots.size());
  for (size_t i = 0; i < c.slots.size(); i++) {
    next->slots.push_back(following(a.slots[i], b.slots[i], c.slots[i]));
    if (!next->slots.back()) return nullptr;
  }
  if (!operands_lie_in_their_storages(*next, c)) return nullptr;
  next->inputs = c.inputs;
  next->scalars = c.scalars;
  next->default_float = c.default_float;
  next->flags = c.flags;
  return next;
}

bool same_program(const Tape& a, const Tape& b) {
  const auto same_slot = [](const SlotRef& x, const SlotRef& y) { return x == y || *x == *y; };
  return &a == &b || (alike(a, b) && a.begins_as(b, a.tokens.size()) && std::ranges::equal(a.slots, b.slots, same_slot));
}

const Growth* Draft::growth() {
  std::call_once(once_, [this] {
    for (size_t b = 1; b < line_.size() && !growth_; b++)
      for (size_t a = b + 1; a < line_.size() && !growth_; a++)
        if (auto next = following(*line_[a], *line_[b], *line_[0])) growth_ = Growth{line_[b], line_[0], std::move(next)};
    line_.clear();
    if (!growth_) return;
    Tape& next = *growth_->next;
    next.output_of_slot.assign(next.slots.size(), ir::kNone);
    next_variant_ = next.variant = base::make_ref<Variant>();
    for (uint32_t slot : variant_->outputs) next.add_output(slot);
  });
  return growth_ ? &*growth_ : nullptr;
}

Prepared* Draft::prepared() {
  if (!growth()) return nullptr;
  std::call_once(prepared_once_, [this] {
    const auto start = std::chrono::steady_clock::now();
    try {
      // Sizes that fit each other so far need not go on to: an index that grows along a dim that does not, say.
      if (auto prepared = prepare(*growth_->next, variant_->outputs); prepared.ok() && ir::verify_shapes(prepared.value().graph).ok())
        prepared_ = std::move(prepared).value();
    } catch (const std::exception&) {  // no memory, say
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    base::record_time("PrepareAheadTime", spent.count());
  });
  return prepared_ ? &*prepared_ : nullptr;
}

std::shared_ptr<Draft> Ahead::begin(base::Ref<Tape> tape, base::Ref<Variant> variant) {
  if (!recent_.empty() && recent_.front() == tape) return nullptr;
  std::vector<base::Ref<Tape>> line{tape};
  for (const auto& t : recent_)
    if (t->tokens.size() == tape->tokens.size() && line.size() < kLine) line.push_back(t);
  recent_.push_front(std::move(tape));
  if (recent_.size() > kRecent) recent_.pop_back();
  if (line.size() < 3) return nullptr;
  return std::make_shared<Draft>(std::move(line), std::move(variant));
}

void Ahead::begin(Draft& draft, Compile compile) {
  try {
    Prepared* prepared = draft.prepared();
    if (!prepared) return;
    auto begun = compile.begin(std::move(*prepared));
    if (!begun.ok() || compile.lost()) return;
    begun_.push_back({{draft.growth()->next, draft.variant()}, std::move(begun).value(), std::move(compile.lost)});
    begun_count_ = begun_.size();
  } catch (const std::exception&) {
  }
}

bool Ahead::go_on(const std::function<bool()>& others_wait) {
  while (!begun_.empty()) {
    // A call that hangs is given up, and the next executor must not find what this thread is at.
    Begun b = std::move(begun_.front());
    begun_.pop_front();
    begun_count_ = begun_.size();
    bool interrupted = false;
    try {
      base::Status status;
      while (status.ok() && !b.compilation.done() && !interrupted) {
        status = b.compilation.advance();
        if (b.lost()) return false;  // another thread may be the executor's by now
        interrupted = !b.compilation.done() && others_wait();
      }
      if (!status.ok()) continue;
      if (interrupted) {
        begun_.push_front(std::move(b));
        begun_count_ = begun_.size();
        return true;
      }
      Compiled compiled = std::move(b.compilation).result();
      if (!compiled.refusals.empty()) continue;
      Variant& v = *b.guess.variant;
      v.plan = std::move(compiled.plan);
      v.rewrites = std::move(compiled.rewrites);
      v.set_gates(gates_of(*b.guess.tape, *v.plan));
      b.guess.cached = compiled.cached;
      guesses_.push_front(std::move(b.guess));
      if (guesses_.size() > kGuesses) guesses_.pop_back();
    } catch (const std::exception&) {
    }
  }
  return false;
}

void Ahead::clear() {
  recent_.clear(), begun_.clear(), guesses_.clear();
  begun_count_ = 0;
}

template <class Is>
std::optional<Ahead::Guess> Ahead::take_if(Is&& is) {
  const auto g = std::ranges::find_if(guesses_, is);
  if (g == guesses_.end()) return std::nullopt;
  Guess found = std::move(*g);
  guesses_.erase(g);
  return found;
}

std::optional<Ahead::Guess> Ahead::take(const Variant& variant) {
  return take_if([&](const Guess& g) { return g.variant.get() == &variant; });
}

std::optional<Ahead::Guess> Ahead::take(const Tape& tape, const Variant& variant) {
  const auto wanted = [&](const Guess& g) {
    return g.variant.get() == &variant || (std::ranges::equal(g.variant->outputs, variant.outputs) && same_program(*g.tape, tape));
  };
  if (std::ranges::any_of(begun_, wanted, &Begun::guess)) go_on();
  return take_if(wanted);
}

}  // namespace lazyt::trace
