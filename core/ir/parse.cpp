#include <algorithm>
#include <bit>
#include <charconv>
#include <map>

#include <fmt/format.h>

#include "ir/text.h"

namespace lazyt::ir {

namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
}

// The first thing that is wrong ends the parse; thrown and caught in this file only.
struct Wrong {
  size_t at;
  std::string what;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph parse() {
    want("program");
    want("(");
    for (bool first = true; !take(")"); first = false) {
      if (!first) want(",");
      input();
    }
    want("{");
    while (take("const")) constant();
    while (!take("return")) node();
    if (!take("}")) {
      do output();
      while (take(","));
      want("}");
    }
    skip_space();
    if (at_ != text_.size()) fail("nothing behind the program");
    return finish();
  }

  base::Status error(const Wrong& wrong) const {
    size_t line = 1, column = 1;
    for (char c : text_.substr(0, wrong.at)) c == '\n' ? (line++, column = 1) : column++;
    return base::invalid_argument(fmt::format("text: line {}, column {}: {}", line, column, wrong.what));
  }

 private:
  [[noreturn]] void fail(std::string_view expected) {
    skip_space();
    throw Wrong{at_, fmt::format("expected {}", expected)};
  }

  void skip_space() {
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
        at_++;
      else
        return;
    }
  }

  // Takes the token if it comes next; a token of letters must end where the word ends.
  bool take(std::string_view token) {
    size_t start = at_;
    skip_space();
    if (take_here(token)) return true;
    at_ = start;  // a comment that was passed over may be a source
    return false;
  }
  bool take_here(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    size_t end = at_ + token.size();
    if (is_word(token.back()) && token.back() != ':' && end < text_.size() && is_word(text_[end]))
      return false;
    at_ = end;
    return true;
  }
  void want(std::string_view token) {
    if (!take(token)) fail(fmt::format("'{}'", token));
  }

  std::string_view word(std::string_view what) {
    skip_space();
    size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) at_++;
    if (at_ == start) fail(what);
    return text_.substr(start, at_ - start);
  }

  template <class T>
  T integer(int base = 10) {
    skip_space();
    T value{};
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value, base);
    if (error != std::errc()) fail("an integer in range");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  ValueId value() {
    want("%");
    return integer<ValueId>();
  }

  std::string quoted() {
    want("\"");
    std::string out;
    for (; at_ < text_.size() && text_[at_] != '"'; at_++) {
      if (text_[at_] != '\\') {
        out += text_[at_];
        continue;
      }
      if (++at_ >= text_.size()) break;
      if (text_[at_] == 'x') {
        at_++;
        out += static_cast<char>(byte());
        at_--;
      } else {
        out += text_[at_];
      }
    }
    if (at_ >= text_.size()) fail("'\"'");
    at_++;
    return out;
  }

  uint8_t byte() {
    uint8_t b = 0;
    const char* start = text_.data() + at_;
    if (at_ + 2 > text_.size() || std::from_chars(start, start + 2, b, 16).ptr != start + 2)
      fail("two hex digits");
    at_ += 2;
    return b;
  }

  DType dtype() {
    size_t start = at_;
    DType d = base::dtype_from_name(word("a dtype"));
    if (d == LAZYT_DTYPE_INVALID) at_ = start, fail("a dtype");
    return d;
  }

  template <class T, class F>
  std::vector<T> list(std::string_view close, F&& one) {
    std::vector<T> out;
    while (!take(close)) {
      if (!out.empty()) want(",");
      out.push_back(one());
    }
    return out;
  }
  std::vector<int64_t> int_list(std::string_view close) {
    return list<int64_t>(close, [&] { return integer<int64_t>(); });
  }

  Meta meta() {
    Meta m;
    m.dtype = dtype();
    want("[");
    m.dims = int_list("]");
    int64_t elements = 1;
    for (int64_t d : m.dims)
      if (d > 0 && __builtin_mul_overflow(elements, d, &elements)) fail("fewer than 2^63 elements");
    m.strides = take("{") ? int_list("}") : base::contiguous_strides(m.dims);
    return m;
  }

  // Defines %id. Ids may come in any order; finish() wants them all.
  void define(ValueId id, Value v) {
    if (!values_.emplace(id, std::move(v)).second) fail(fmt::format("%{} once only", id));
  }

  void input() {
    ValueId id = value();
    want(":");
    Value v;
    v.kind = take("host") ? ValueKind::kHostScalar : ValueKind::kInput;
    if (v.kind == ValueKind::kHostScalar) {
      v.weak = take("weak");
      skip_space();
      v.meta = Meta::contiguous(dtype(), {});
    } else {
      v.meta = meta();
    }
    bool donate = take("donate");
    v.may_overwrite = take("overwrite");
    input_index_[id] = static_cast<uint32_t>(g_.inputs.size());
    g_.inputs.push_back({id, donate});
    define(id, std::move(v));
  }

  void constant() {
    ValueId id = value();
    want(":");
    Value v;
    v.kind = ValueKind::kConstant;
    v.meta = meta();
    v.may_overwrite = take("overwrite");
    want("=");
    want("hex");
    want("(");
    std::vector<uint8_t> bytes;
    while (!take(")")) bytes.push_back(byte());
    g_.constants.push_back({id, std::move(bytes)});
    define(id, std::move(v));
  }

  double real() {
    skip_space();
    if (take_here("nan")) {
      if (text_.substr(at_, 3) != "(0x") return std::bit_cast<double>(uint64_t{0x7ff8000000000000});
      at_ += 3;
      auto bits = integer<uint64_t>(16);
      want(")");
      return std::bit_cast<double>(bits);
    }
    double d = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), d);
    if (error != std::errc()) fail("a number");
    at_ = static_cast<size_t>(end - text_.data());
    return d;
  }

  // 12 is an integer; 12.0, 1e3, inf and nan are doubles.
  Arg number() {
    skip_space();
    size_t digits = at_ + (at_ < text_.size() && text_[at_] == '-');
    size_t end = text_.find_first_not_of("0123456789", digits);
    if (end == std::string_view::npos) end = text_.size();
    bool integral = end > digits && (end == text_.size() || (text_[end] != '.' && text_[end] != 'e'));
    return integral ? Arg::of_int(integer<int64_t>()) : Arg::of_double(real());
  }

  Arg in_parentheses(lazyt_arg_kind_t kind) {
    want("(");
    int64_t i = kind == LAZYT_ARG_DTYPE ? dtype() : integer<int64_t>();
    want(")");
    return Arg::of_int(i, kind);
  }

  int64_t boolean() {
    if (take("true")) return 1;
    if (!take("false")) fail("true or false");
    return 0;
  }

  Arg simple_arg() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '%') return Arg::of_value(value());
    if (take("none")) return Arg::none();
    if (take("true")) return Arg::of_bool(true);
    if (take("false")) return Arg::of_bool(false);
    if (take("complex")) {
      want("(");
      double re = real();
      want(",");
      double im = real();
      want(")");
      return Arg::of_complex({re, im});
    }
    return number();
  }

  Arg arg() {
    skip_space();
    if (take("[")) return Arg::of_list(list<Arg>("]", [&] { return simple_arg(); }));
    if (at_ < text_.size() && text_[at_] == '"') return Arg::of_string(quoted());
    if (take("ints")) return want("["), Arg::of_ints(int_list("]"));
    if (take("doubles")) return want("["), Arg::of_doubles(list<double>("]", [&] { return real(); }));
    if (take("bools"))
      return want("["), Arg::of_ints(list<int64_t>("]", [&] { return boolean(); }), LAZYT_ARG_BOOLS);
    if (take("dtype")) return in_parentheses(LAZYT_ARG_DTYPE);
    if (take("memory_format")) return in_parentheses(LAZYT_ARG_MEMORY_FORMAT);
    if (take("layout")) return in_parentheses(LAZYT_ARG_LAYOUT);
    if (take("device")) return in_parentheses(LAZYT_ARG_DEVICE);
    return simple_arg();
  }

  void node() {
    Node n;
    std::vector<ValueId> results;
    skip_space();
    if (at_ < text_.size() && text_[at_] == '%') {
      do results.push_back(value());
      while (take(","));
      want("=");
      for (size_t i = 1; i < results.size(); i++)
        if (results[i] != results[0] + i) fail("results with consecutive numbers, before this '='");
      n.first_result = results[0];
    }
    n.result_count = static_cast<uint32_t>(results.size());
    n.name = word("an operator");
    if (take_here(".")) n.overload = word("an overload");
    want("(");
    n.args = list<Arg>(")", [&] { return arg(); });
    auto id = static_cast<NodeId>(g_.nodes.size());
    for (size_t i = 0; i < results.size(); i++) {
      want(i ? "," : ":");
      Value v{.meta = meta(), .producer = id};
      v.may_overwrite = take_on_line("overwrite");
      define(results[i], std::move(v));
    }
    n.source = source();
    g_.nodes.push_back(std::move(n));
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) at_++;
  }
  // Without reading on over the line's end, behind which a comment is no source.
  bool take_on_line(std::string_view token) {
    skip_blanks();
    return take_here(token);
  }

  // A comment of another form stays a comment.
  std::shared_ptr<const SourceLine> source() {
    skip_blanks();
    size_t start = at_;
    if (at_ >= text_.size() || text_[at_] != '#') return nullptr;
    at_++;
    SourceLine s;
    skip_blanks();
    try {
      s.file = path();
      if (at_ >= text_.size() || text_[at_] != ':') throw Wrong{};
      at_++;
      s.line = integer<uint32_t>();
      skip_blanks();
      if (take_here("in")) {
        skip_blanks();
        s.module = path();
      }
      skip_blanks();
      if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') throw Wrong{};
    } catch (const Wrong&) {
      at_ = start;
      return nullptr;
    }
    return std::make_shared<SourceLine>(std::move(s));
  }

  std::string path() {
    if (at_ < text_.size() && text_[at_] == '"') return quoted();
    size_t start = at_;
    while (at_ < text_.size() &&
           ((is_word(text_[at_]) && text_[at_] != ':') || std::string_view("./+-").find(text_[at_]) < 4))
      at_++;
    if (at_ == start) fail("a file");
    return std::string(text_.substr(start, at_ - start));
  }

  void output() {
    Output out{value()};
    if (take("<-")) {
      auto it = input_index_.find(value());
      if (it == input_index_.end()) fail("an input as donor, before this");
      out.donor = it->second;
    }
    g_.outputs.push_back(out);
  }

  Graph finish() {
    for (auto& [id, v] : values_) {
      if (id != g_.values.size()) fail(fmt::format("a definition of %{}", g_.values.size()));
      g_.values.push_back(std::move(v));
    }
    return std::move(g_);
  }

  std::string_view text_;
  size_t at_ = 0;
  Graph g_;
  std::map<ValueId, Value> values_;
  std::map<ValueId, uint32_t> input_index_;
};

}  // namespace

base::Result<Graph> parse(std::string_view text) {
  Parser parser(text);
  try {
    return parser.parse();
  } catch (const Wrong& wrong) {
    return parser.error(wrong);
  }
}

}  // namespace lazyt::ir
