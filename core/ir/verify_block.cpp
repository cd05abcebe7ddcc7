// Bytes: everything that must hold before a block may be read at all. What they mean is checked on
// the graph that they give (verifier.cpp). Every count is bounded by the bytes that hold it, so that
// reading allocates no more than a small multiple of the block.
#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "base/hash.h"
#include "ir/program.h"
#include "ir/registry.h"
#include "ir/verifier.h"

namespace lazyt::ir {

namespace {

constexpr uint32_t kMaxText = 4096;

#define LAZYT_CHECK(condition, ...) \
  if (!(condition)) return base::data_loss("program: " + fmt::format(__VA_ARGS__))

class BlockVerifier {
 public:
  explicit BlockVerifier(std::span<const uint8_t> bytes)
      : bytes_(bytes), p_(reinterpret_cast<const lazyt_program_t*>(bytes.data())) {}

  base::Status run() {
    LAZYT_RETURN_IF_ERROR(check_header());
    LAZYT_RETURN_IF_ERROR(check_values());
    LAZYT_RETURN_IF_ERROR(check_args());
    LAZYT_RETURN_IF_ERROR(check_nodes());
    LAZYT_RETURN_IF_ERROR(check_signature());
    LAZYT_RETURN_IF_ERROR(check_constants());
    return check_notes();
  }

 private:
  base::Status check_header() {
    LAZYT_CHECK(std::endian::native == std::endian::little, "blocks are little-endian, this machine is not");
    LAZYT_CHECK(reinterpret_cast<uintptr_t>(bytes_.data()) % 8 == 0, "the block is not 8-byte aligned");
    LAZYT_CHECK(bytes_.size() >= sizeof(lazyt_program_t), "{} bytes hold no header", bytes_.size());
    LAZYT_CHECK(p_->magic == LAZYT_PROGRAM_MAGIC, "not a program (magic {:#x})", p_->magic);
    LAZYT_CHECK(p_->format == LAZYT_PROGRAM_FORMAT, "format {}, this host reads {}", p_->format,
                LAZYT_PROGRAM_FORMAT);
    LAZYT_CHECK(p_->total_size == bytes_.size(), "total_size {}, but {} bytes", p_->total_size,
                bytes_.size());
    LAZYT_CHECK(p_->header_size >= sizeof(lazyt_program_t) && p_->header_size <= p_->total_size &&
                    p_->header_size % 8 == 0,
                "header_size {}", p_->header_size);
    LAZYT_CHECK((p_->flags & ~LAZYT_PROGRAM_HAS_RANDOM) == 0, "flags {:#x} are not known to this host",
                p_->flags);
    struct {
      const char* name;
      const lazyt_table_t& table;
      uint64_t size;
    } tables[] = {{"values", p_->values, sizeof(lazyt_value_t)},
                  {"nodes", p_->nodes, sizeof(lazyt_node_t)},
                  {"args", p_->args, sizeof(lazyt_arg_t)},
                  {"ints", p_->ints, sizeof(int64_t)},
                  {"strings", p_->strings, 1},
                  {"inputs", p_->inputs, sizeof(lazyt_input_t)},
                  {"outputs", p_->outputs, sizeof(lazyt_output_t)},
                  {"constants", p_->constants, sizeof(lazyt_constant_t)},
                  {"notes", p_->notes, sizeof(lazyt_note_t)},
                  {"symbols", p_->symbols, sizeof(lazyt_symbol_t)},
                  {"exprs", p_->exprs, sizeof(lazyt_expr_t)},
                  {"data", p_->data, 1}};
    uint64_t end = p_->header_size;
    for (const auto& [name, t, size] : tables) {
      LAZYT_CHECK(size == 1 ? t.stride == 1 : t.stride >= size && t.stride % 8 == 0, "{}: stride {}", name,
                  t.stride);
      LAZYT_CHECK(&t != &p_->ints || t.stride == 8, "ints: stride {}, but runs of them are arrays", t.stride);
      uint64_t bytes, last;
      LAZYT_CHECK(t.offset % (&t == &p_->data ? 64 : 8) == 0 && t.offset >= p_->header_size &&
                      !__builtin_mul_overflow(t.count, t.stride, &bytes) &&
                      !__builtin_add_overflow(t.offset, bytes, &last) && last <= p_->total_size,
                  "{}: {} records of {} bytes at {} do not lie in {} bytes", name, t.count, t.stride,
                  t.offset, p_->total_size);
      LAZYT_CHECK(&t == &p_->data || t.count < LAZYT_NONE, "{}: {} records", name, t.count);
      end = std::max(end, last);
    }
    LAZYT_CHECK(p_->total_size - end < 8, "{} bytes behind the last table", p_->total_size - end);
    LAZYT_CHECK(p_->symbols.count == 0 && p_->exprs.count == 0, "symbolic dims are not read by this host");
    return {};
  }

  bool in_strings(lazyt_text_t t) const {
    return t.size <= kMaxText && uint64_t{t.start} + t.size <= p_->strings.count;
  }
  bool in_ints(uint64_t start, uint64_t count) const {
    return start <= p_->ints.count && count <= p_->ints.count - start;
  }

  base::Status check_values() {
    for (uint64_t i = 0; i < p_->values.count; i++) {
      const lazyt_value_t* v = lazyt_value(p_, i);
      LAZYT_CHECK(v->rank <= base::kMaxRank, "value {}: rank {}", i, v->rank);
      LAZYT_CHECK(in_ints(v->dims, v->rank), "value {}: dims outside the ints", i);
      LAZYT_CHECK(v->strides == kNone || in_ints(v->strides, v->rank), "value {}: strides outside the ints",
                  i);
      LAZYT_CHECK(v->flags <= 7, "value {}: flags {:#x}", i, v->flags);
      // Before anything multiplies them; the exact rules come with the graph.
      for (uint32_t d = 0; d < v->rank; d++)
        LAZYT_CHECK(*lazyt_ints(p_, v->dims + d) >= 0, "value {}: dim {} is negative (PRG-5)", i, d);
      int64_t n = 1;
      for (uint32_t d = 0; d < v->rank; d++)
        LAZYT_CHECK(!__builtin_mul_overflow(n, std::max<int64_t>(*lazyt_ints(p_, v->dims + d), 1), &n),
                    "value {}: more elements than 2^63", i);
    }
    return {};
  }

  base::Status check_args() {
    uint64_t list_total = 0, int_total = 0, text_total = 0;
    for (uint64_t i = 0; i < p_->args.count; i++) {
      const lazyt_arg_t* a = lazyt_arg(p_, i);
      LAZYT_CHECK(a->kind <= LAZYT_ARG_DEVICE, "arg {}: kind {}", i, a->kind);
      switch (a->kind) {
        case LAZYT_ARG_VALUE:
          LAZYT_CHECK(a->payload < p_->values.count, "arg {}: no value {}", i, a->payload);
          break;
        case LAZYT_ARG_COMPLEX:
          LAZYT_CHECK(in_ints(a->payload, 2), "arg {}: outside the ints", i);
          break;
        case LAZYT_ARG_STRING:
          LAZYT_CHECK(a->payload <= p_->strings.count && a->count <= p_->strings.count - a->payload,
                      "arg {}: outside the strings", i);
          text_total += a->count;
          break;
        case LAZYT_ARG_INTS:
        case LAZYT_ARG_BOOLS:
        case LAZYT_ARG_DOUBLES:
          LAZYT_CHECK(in_ints(a->payload, a->count), "arg {}: outside the ints", i);
          int_total += a->count;
          break;
        case LAZYT_ARG_LIST: {
          LAZYT_CHECK(a->payload <= p_->args.count && a->count <= p_->args.count - a->payload,
                      "arg {}: list outside the args", i);
          list_total += a->count;
          LAZYT_CHECK(list_total <= p_->args.count, "arg {}: lists share elements", i);
          for (uint64_t e = 0; e < a->count; e++)  // also what keeps reading from recursing
            LAZYT_CHECK(lazyt_arg(p_, a->payload + e)->kind != LAZYT_ARG_LIST, "arg {}: list of lists", i);
          break;
        }
        default:
          break;
      }
      // Ranges may be shared, but not so often that a small block becomes a large graph.
      LAZYT_CHECK(int_total <= 64 * p_->ints.count && text_total <= 64 * p_->strings.count,
                  "arg {}: lists share more than 64 times what there is", i);
    }
    return {};
  }

  base::Status check_nodes() {
    uint64_t arg_total = 0;
    bool random = false;
    std::vector<bool> produced(p_->values.count);
    for (uint64_t i = 0; i < p_->nodes.count; i++) {
      const lazyt_node_t* n = lazyt_node(p_, i);
      LAZYT_CHECK(in_strings(n->name) && in_strings(n->overload), "node {}: name outside the strings", i);
      lazyt_string_t name = lazyt_text(p_, n->name), overload = lazyt_text(p_, n->overload);
      const OpInfo* op = find_op({name.data, name.size}, {overload.data, overload.size});
      random |= op && op->random;
      LAZYT_CHECK(n->op == (op ? op->number : 0), "node {}: operator number {} is not that of its name", i,
                  n->op);
      LAZYT_CHECK(n->op_version == (op ? op->version : 0), "node {}: this host does not have version {}", i,
                  n->op_version);
      LAZYT_CHECK(n->args <= p_->args.count && n->arg_count <= p_->args.count - n->args,
                  "node {}: args outside the table", i);
      arg_total += n->arg_count;
      LAZYT_CHECK(arg_total <= p_->args.count, "node {}: nodes share args", i);
      LAZYT_CHECK(n->results <= p_->values.count && n->result_count <= p_->values.count - n->results,
                  "node {}: results outside the values", i);
      for (uint64_t r = n->results; r < uint64_t{n->results} + n->result_count; r++) {
        LAZYT_CHECK(!produced[r], "value {}: produced twice", r);
        LAZYT_CHECK(lazyt_value(p_, r)->producer == i, "value {}: its producer is not node {}", r, i);
        produced[r] = true;
      }
      LAZYT_CHECK(n->note == kNone || n->note < p_->notes.count, "node {}: no note {}", i, n->note);
    }
    for (uint64_t v = 0; v < p_->values.count; v++)
      LAZYT_CHECK(produced[v] || lazyt_value(p_, v)->producer == kNone, "value {}: its producer lacks it", v);
    LAZYT_CHECK(random == ((p_->flags & LAZYT_PROGRAM_HAS_RANDOM) != 0), "the flag HAS_RANDOM is wrong");
    return {};
  }

  base::Status check_signature() {
    std::vector<bool> seen(p_->values.count);
    auto claim = [&](uint32_t v) {
      if (v >= p_->values.count || seen[v] || lazyt_value(p_, v)->producer != kNone) return false;
      return static_cast<bool>(seen[v] = true);
    };
    for (uint64_t i = 0; i < p_->inputs.count; i++) {
      const lazyt_input_t* in = lazyt_input(p_, i);
      LAZYT_CHECK(claim(in->value), "input {}: value {} does not exist, or is something else too", i,
                  in->value);
      LAZYT_CHECK(in->flags <= 1, "input {}: flags {:#x}", i, in->flags);
    }
    for (uint64_t i = 0; i < p_->constants.count; i++) {
      uint32_t v = lazyt_constant(p_, i)->value;
      LAZYT_CHECK(claim(v), "constant {}: value {} does not exist, or is something else too", i, v);
      LAZYT_CHECK(!(lazyt_value(p_, v)->flags & LAZYT_VALUE_HOST_SCALAR), "constant {}: is a host scalar", i);
    }
    for (uint64_t v = 0; v < p_->values.count; v++) {
      LAZYT_CHECK(seen[v] || lazyt_value(p_, v)->producer != kNone, "value {}: no input, constant or result",
                  v);
      LAZYT_CHECK(seen[v] || !(lazyt_value(p_, v)->flags & (LAZYT_VALUE_HOST_SCALAR | LAZYT_VALUE_WEAK)),
                  "value {}: a result is no host scalar", v);
    }
    for (uint64_t i = 0; i < p_->outputs.count; i++) {
      const lazyt_output_t* out = lazyt_output(p_, i);
      LAZYT_CHECK(out->value < p_->values.count, "output {}: no value {}", i, out->value);
      LAZYT_CHECK(out->donor == kNone || out->donor < p_->inputs.count, "output {}: no input {}", i,
                  out->donor);
    }
    return {};
  }

  base::Status check_constants() {
    uint64_t total = 0;
    for (uint64_t i = 0; i < p_->constants.count; i++) {
      const lazyt_constant_t* c = lazyt_constant(p_, i);
      LAZYT_CHECK(c->file.size == 0, "constant {}: constants beside the block are not read by this host", i);
      LAZYT_CHECK(c->offset <= p_->data.count && c->size <= p_->data.count - c->offset,
                  "constant {}: outside the data", i);
      total += c->size;
      LAZYT_CHECK(total <= p_->data.count, "constant {}: constants share bytes", i);
      uint8_t hash[16];
      base::hash128(bytes_.data() + p_->data.offset + c->offset, c->size).write_canonical(hash);
      LAZYT_CHECK(std::memcmp(hash, c->hash, sizeof(hash)) == 0,
                  "constant {}: its bytes do not have its hash", i);
    }
    return {};
  }

  base::Status check_notes() {
    for (uint64_t i = 0; i < p_->notes.count; i++) {
      const lazyt_note_t* n = lazyt_note(p_, i);
      LAZYT_CHECK(in_strings(n->file) && in_strings(n->module), "note {}: outside the strings", i);
    }
    return {};
  }

  std::span<const uint8_t> bytes_;
  const lazyt_program_t* p_;
};

#undef LAZYT_CHECK

}  // namespace

base::Status verify(std::span<const uint8_t> block) {
  LAZYT_RETURN_IF_ERROR(BlockVerifier(block).run());
  base::Status status = verify(read_block(*reinterpret_cast<const lazyt_program_t*>(block.data())));
  if (status.ok()) return status;
  return base::data_loss(std::string(status.message()));
}

}  // namespace lazyt::ir
