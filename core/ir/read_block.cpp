// Block -> graph. Trusts the block: the verifier has been there.
#include <bit>

#include "ir/program.h"

namespace lazyt::ir {

namespace {

class Reader {
 public:
  explicit Reader(const lazyt_program_t& block) : block_(block), p_(&block) {}

  Graph read() {
    read_values();
    read_notes();
    graph_.nodes.reserve(block_.nodes.count);
    for (uint64_t i = 0; i < block_.nodes.count; i++) read_node(*lazyt_node(p_, i));
    for (uint64_t i = 0; i < block_.inputs.count; i++) {
      const lazyt_input_t* r = lazyt_input(p_, i);
      graph_.inputs.push_back({r->value, (r->flags & LAZYT_INPUT_MAY_DONATE) != 0});
      Value& v = graph_.values[r->value];
      v.kind = v.kind == ValueKind::kHostScalar ? ValueKind::kHostScalar : ValueKind::kInput;
    }
    for (uint64_t i = 0; i < block_.outputs.count; i++) {
      const lazyt_output_t* r = lazyt_output(p_, i);
      graph_.outputs.push_back({r->value, r->donor});
    }
    for (uint64_t i = 0; i < block_.constants.count; i++) {
      const lazyt_constant_t* r = lazyt_constant(p_, i);
      const uint8_t* data = reinterpret_cast<const uint8_t*>(p_) + block_.data.offset + r->offset;
      graph_.constants.push_back({r->value, {data, data + r->size}});
      graph_.values[r->value].kind = ValueKind::kConstant;
    }
    return std::move(graph_);
  }

 private:
  std::string text(lazyt_text_t t) const {
    lazyt_string_t s = lazyt_text(p_, t);
    return {s.data, s.size};
  }

  std::vector<int64_t> ints(uint64_t start, uint64_t count) const {
    std::vector<int64_t> out(count);
    for (uint64_t i = 0; i < count; i++) out[i] = *lazyt_ints(p_, start + i);
    return out;
  }

  std::vector<double> doubles(uint64_t start, uint64_t count) const {
    std::vector<double> out(count);
    for (uint64_t i = 0; i < count; i++) out[i] = std::bit_cast<double>(*lazyt_ints(p_, start + i));
    return out;
  }

  void read_values() {
    graph_.values.reserve(block_.values.count);
    for (uint64_t i = 0; i < block_.values.count; i++) {
      const lazyt_value_t* r = lazyt_value(p_, i);
      Value v;
      v.meta.dtype = r->dtype;
      v.meta.dims = ints(r->dims, r->rank);
      v.meta.strides =
          r->strides == kNone ? base::contiguous_strides(v.meta.dims) : ints(r->strides, r->rank);
      v.kind = (r->flags & LAZYT_VALUE_HOST_SCALAR) ? ValueKind::kHostScalar : ValueKind::kResult;
      v.weak = (r->flags & LAZYT_VALUE_WEAK) != 0;
      v.may_overwrite = (r->flags & LAZYT_VALUE_MAY_OVERWRITE) != 0;
      v.producer = r->producer;
      graph_.values.push_back(std::move(v));
    }
  }

  void read_notes() {
    for (uint64_t i = 0; i < block_.notes.count; i++) {
      const lazyt_note_t* r = lazyt_note(p_, i);
      notes_.push_back(std::make_shared<SourceLine>(SourceLine{text(r->file), text(r->module), r->line}));
    }
  }

  Arg arg(const lazyt_arg_t& r) const {
    Arg a;
    a.kind = r.kind;
    switch (r.kind) {
      case LAZYT_ARG_NONE:
        break;
      case LAZYT_ARG_VALUE:
        a.value = static_cast<ValueId>(r.payload);
        break;
      case LAZYT_ARG_DOUBLE:
        a.d = std::bit_cast<double>(r.payload);
        break;
      case LAZYT_ARG_STRING:
        a.string = text({static_cast<uint32_t>(r.payload), r.count});
        break;
      case LAZYT_ARG_COMPLEX:
        a.doubles = doubles(r.payload, 2);
        break;
      case LAZYT_ARG_DOUBLES:
        a.doubles = doubles(r.payload, r.count);
        break;
      case LAZYT_ARG_INTS:
      case LAZYT_ARG_BOOLS:
        a.ints = ints(r.payload, r.count);
        break;
      case LAZYT_ARG_LIST:
        a.list.reserve(r.count);
        for (uint32_t i = 0; i < r.count; i++) a.list.push_back(arg(*lazyt_arg(p_, r.payload + i)));
        break;
      default:
        a.i = static_cast<int64_t>(r.payload);
    }
    return a;
  }

  void read_node(const lazyt_node_t& r) {
    Node node;
    node.name = text(r.name);
    node.overload = text(r.overload);
    node.args.reserve(r.arg_count);
    for (uint32_t i = 0; i < r.arg_count; i++) node.args.push_back(arg(*lazyt_arg(p_, r.args + i)));
    node.first_result = r.results;
    node.result_count = r.result_count;
    if (r.note != kNone) node.source = notes_[r.note];
    graph_.nodes.push_back(std::move(node));
  }

  const lazyt_program_t& block_;
  const lazyt_program_t* p_;
  Graph graph_;
  std::vector<std::shared_ptr<const SourceLine>> notes_;
};

}  // namespace

Graph read_block(const lazyt_program_t& block) { return Reader(block).read(); }

}  // namespace lazyt::ir
