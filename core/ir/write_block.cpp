// Graph -> block. Tables are filled one by one, then laid out behind the header.
#include <bit>
#include <cstring>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/hash.h"
#include "ir/program.h"
#include "ir/registry.h"

namespace lazyt::ir {

namespace {

constexpr uint64_t kDataAlign = 64;

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph) {}

  std::vector<uint64_t> write() {
    write_values();
    nodes_.reserve(graph_.nodes.size());
    args_.reserve(4 * graph_.nodes.size());
    for (const Node& node : graph_.nodes) write_node(node);
    for (const Input& in : graph_.inputs)
      inputs_.push_back({in.value, in.may_donate ? LAZYT_INPUT_MAY_DONATE : 0});
    for (const Output& out : graph_.outputs) outputs_.push_back({out.value, out.donor});
    for (const Constant& constant : graph_.constants) write_constant(constant);
    // Strings of notes come last, so that the others lie where they would without notes.
    for (size_t n = 0; n < graph_.nodes.size(); n++)
      if (graph_.nodes[n].source) nodes_[n].note = note(*graph_.nodes[n].source);
    return lay_out();
  }

 private:
  // s: of the graph, which stays.
  lazyt_text_t text(std::string_view s) {
    auto [it, added] = texts_.try_emplace(s, static_cast<uint32_t>(strings_.size()));
    if (added) strings_.insert(strings_.end(), s.begin(), s.end());
    return {s.empty() ? 0 : it->second, static_cast<uint32_t>(s.size())};
  }

  uint32_t ints(std::span<const int64_t> list) {
    auto start = static_cast<uint32_t>(ints_.size());
    ints_.insert(ints_.end(), list.begin(), list.end());
    return start;
  }

  uint32_t double_bits(std::span<const double> list) {
    auto start = static_cast<uint32_t>(ints_.size());
    for (double d : list) ints_.push_back(std::bit_cast<int64_t>(d));
    return start;
  }

  void write_values() {
    values_.reserve(graph_.values.size());
    ints_.reserve(4 * graph_.values.size());
    for (const Value& v : graph_.values) {
      lazyt_value_t r{};
      r.dtype = v.meta.dtype;
      if (v.kind == ValueKind::kHostScalar) r.flags |= LAZYT_VALUE_HOST_SCALAR;
      if (v.weak) r.flags |= LAZYT_VALUE_WEAK;
      if (v.may_overwrite) r.flags |= LAZYT_VALUE_MAY_OVERWRITE;
      r.rank = static_cast<uint32_t>(v.meta.dims.size());
      r.dims = ints(v.meta.dims);
      r.strides = base::are_contiguous_strides(v.meta.strides, v.meta.dims) ? kNone : ints(v.meta.strides);
      r.producer = v.producer;
      values_.push_back(r);
    }
  }

  lazyt_arg_t arg(const Arg& a) {
    lazyt_arg_t r{a.kind, 0, 0};
    switch (a.kind) {
      case LAZYT_ARG_NONE:
        break;
      case LAZYT_ARG_VALUE:
        r.payload = a.value;
        break;
      case LAZYT_ARG_DOUBLE:
        r.payload = std::bit_cast<uint64_t>(a.d);
        break;
      case LAZYT_ARG_STRING:
        r.count = static_cast<uint32_t>(a.string.size());
        r.payload = text(a.string).start;
        break;
      case LAZYT_ARG_COMPLEX:
        r.payload = double_bits(a.doubles);
        break;
      case LAZYT_ARG_DOUBLES:
        r.count = static_cast<uint32_t>(a.doubles.size());
        r.payload = double_bits(a.doubles);
        break;
      case LAZYT_ARG_INTS:
      case LAZYT_ARG_BOOLS:
        r.count = static_cast<uint32_t>(a.ints.size());
        r.payload = ints(a.ints);
        break;
      case LAZYT_ARG_LIST: {
        r.count = static_cast<uint32_t>(a.list.size());
        r.payload = args_.size();
        size_t start = args_.size();
        args_.resize(start + a.list.size());
        for (size_t i = 0; i < a.list.size(); i++) args_[start + i] = arg(a.list[i]);
        break;
      }
      default:
        r.payload = static_cast<uint64_t>(a.i);
    }
    return r;
  }

  void write_node(const Node& node) {
    lazyt_node_t r{};
    r.name = text(node.name);
    r.overload = text(node.overload);
    if (const OpInfo* op = find_op(node.name, node.overload)) r.op = op->number, r.op_version = op->version, random_ |= op->random;
    r.args = static_cast<uint32_t>(args_.size());
    r.arg_count = static_cast<uint32_t>(node.args.size());
    args_.resize(r.args + node.args.size());
    for (size_t i = 0; i < node.args.size(); i++) {
      lazyt_arg_t one = arg(node.args[i]);  // may grow the table
      args_[r.args + i] = one;
    }
    r.results = node.result_count ? node.first_result : 0;
    r.result_count = node.result_count;
    r.note = kNone;
    nodes_.push_back(r);
  }

  void write_constant(const Constant& constant) {
    lazyt_constant_t r{};
    r.value = constant.value;
    data_.resize(round_up(data_.size(), kDataAlign));
    r.offset = data_.size();
    r.size = constant.bytes.size();
    base::hash128(constant.bytes.data(), constant.bytes.size()).write_canonical(r.hash);
    data_.insert(data_.end(), constant.bytes.begin(), constant.bytes.end());
    constants_.push_back(r);
  }

  uint32_t note(const SourceLine& line) {
    lazyt_note_t r{note_text(line.file), note_text(line.module), line.line, 0};
    auto key = std::tuple(r.file.start, r.file.size, r.module.start, r.module.size, r.line);
    auto [it, added] = note_ids_.try_emplace(key, static_cast<uint32_t>(notes_.size()));
    if (added) notes_.push_back(r);
    return it->second;
  }

  // Not shared with the strings of nodes: those must be all before the first of these.
  lazyt_text_t note_text(const std::string& s) {
    if (!in_notes_) texts_.clear(), in_notes_ = true;
    return text(s);
  }

  template <class T>
  void place(lazyt_table_t& table, const std::vector<T>& records, uint64_t align = 8) {
    size_ = round_up(size_, align);
    table = {size_, records.size(), sizeof(T)};
    size_ += records.size() * sizeof(T);
  }

  template <class T>
  void fill(std::vector<uint64_t>& words, const lazyt_table_t& table, const std::vector<T>& records) {
    if (!records.empty())
      std::memcpy(reinterpret_cast<char*>(words.data()) + table.offset, records.data(),
                  records.size() * sizeof(T));
  }

  std::vector<uint64_t> lay_out() {
    lazyt_program_t h{};
    h.magic = LAZYT_PROGRAM_MAGIC;
    h.format = LAZYT_PROGRAM_FORMAT;
    h.header_size = size_ = sizeof(h);
    if (random_) h.flags |= LAZYT_PROGRAM_HAS_RANDOM;
    place(h.values, values_);
    place(h.nodes, nodes_);
    place(h.args, args_);
    place(h.ints, ints_);
    place(h.strings, strings_);
    place(h.inputs, inputs_);
    place(h.outputs, outputs_);
    place(h.constants, constants_);
    place(h.notes, notes_);
    place(h.symbols, std::vector<lazyt_symbol_t>());
    place(h.exprs, std::vector<lazyt_expr_t>());
    place(h.data, data_, kDataAlign);
    h.total_size = round_up(size_, 8);

    std::vector<uint64_t> words(h.total_size / 8);
    std::memcpy(words.data(), &h, sizeof(h));
    fill(words, h.values, values_);
    fill(words, h.nodes, nodes_);
    fill(words, h.args, args_);
    fill(words, h.ints, ints_);
    fill(words, h.strings, strings_);
    fill(words, h.inputs, inputs_);
    fill(words, h.outputs, outputs_);
    fill(words, h.constants, constants_);
    fill(words, h.notes, notes_);
    fill(words, h.data, data_);
    return words;
  }

  const Graph& graph_;
  std::vector<lazyt_value_t> values_;
  std::vector<lazyt_node_t> nodes_;
  std::vector<lazyt_arg_t> args_;
  std::vector<int64_t> ints_;
  std::vector<char> strings_;
  std::vector<lazyt_input_t> inputs_;
  std::vector<lazyt_output_t> outputs_;
  std::vector<lazyt_constant_t> constants_;
  std::vector<lazyt_note_t> notes_;
  std::vector<uint8_t> data_;
  std::unordered_map<std::string_view, uint32_t> texts_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>, uint32_t> note_ids_;
  uint64_t size_ = 0;
  bool in_notes_ = false;
  bool random_ = false;
};

}  // namespace

std::vector<uint64_t> write_block(const Graph& graph) { return Writer(graph).write(); }

}  // namespace lazyt::ir
