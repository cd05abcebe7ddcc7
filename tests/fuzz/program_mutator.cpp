// Mutates program blocks by their records, and mends what only a hash or a name can tell, so that inputs get
// behind the first checks. One input in eight is left as libFuzzer makes it.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/hash.h"
#include "ir/registry.h"
#include "lazyt/program.h"

using namespace lazyt;

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

constexpr size_t kTrailer = 24;  // of a .lzp file: "LZPHASH1" and the hash

struct Block {
  uint8_t* data;
  size_t size;
  lazyt_program_t h;

  bool holds(const lazyt_table_t& t) const {
    uint64_t bytes, end;
    return t.stride && t.count && !__builtin_mul_overflow(t.count, t.stride, &bytes) &&
           !__builtin_add_overflow(t.offset, bytes, &end) && end <= size;
  }
  template <class T>
  bool record(const lazyt_table_t& t, uint64_t i, T& out) const {
    if (t.stride < sizeof(T)) return false;
    std::memcpy(&out, data + t.offset + i * t.stride, sizeof(T));
    return true;
  }
  std::string_view text(lazyt_text_t t) const {
    if (!holds(h.strings) || uint64_t{t.start} + t.size > h.strings.count) return {};
    return {reinterpret_cast<const char*>(data) + h.strings.offset + t.start, t.size};
  }
};

void change_record(Block& b, std::minstd_rand& random) {
  const lazyt_table_t* tables[] = {&b.h.values, &b.h.nodes,   &b.h.args,      &b.h.args, &b.h.ints,
                                   &b.h.inputs, &b.h.outputs, &b.h.constants, &b.h.notes};
  const lazyt_table_t& t = *tables[random() % std::size(tables)];
  if (!b.holds(t)) return;
  uint8_t* to = b.data + t.offset + random() % t.count * t.stride;
  if (random() % 2) {
    std::memmove(to, b.data + t.offset + random() % t.count * t.stride, t.stride);
  } else if (t.stride >= 4) {
    static const uint32_t odd[] = {LAZYT_NONE, 0x7fffffff, 0x80000000, 64, 4097};
    uint32_t field = random() % 8 ? static_cast<uint32_t>(random() % 12) : odd[random() % std::size(odd)];
    std::memcpy(to + random() % (t.stride / 4) * 4, &field, 4);
  }
}

void mend(Block& b) {
  b.h.magic = LAZYT_PROGRAM_MAGIC;
  b.h.format = LAZYT_PROGRAM_FORMAT;
  b.h.total_size = b.size;
  b.h.flags &= ~LAZYT_PROGRAM_HAS_RANDOM;
  for (uint64_t i = 0; b.holds(b.h.nodes) && i < b.h.nodes.count; i++) {
    lazyt_node_t n;
    if (!b.record(b.h.nodes, i, n)) break;
    const ir::OpInfo* op = ir::find_op(b.text(n.name), b.text(n.overload));
    n.op = op ? op->number : 0;
    n.op_version = op ? op->version : 0;
    if (op && op->random) b.h.flags |= LAZYT_PROGRAM_HAS_RANDOM;
    std::memcpy(b.data + b.h.nodes.offset + i * b.h.nodes.stride, &n, sizeof(n));
  }
  for (uint64_t i = 0; b.holds(b.h.constants) && i < b.h.constants.count; i++) {
    lazyt_constant_t c;
    if (!b.record(b.h.constants, i, c)) break;
    uint64_t end;
    if (b.h.data.offset > b.size || __builtin_add_overflow(c.offset, c.size, &end) ||
        end > b.size - b.h.data.offset)
      continue;
    base::hash128(b.data + b.h.data.offset + c.offset, c.size).write_canonical(c.hash);
    std::memcpy(b.data + b.h.constants.offset + i * b.h.constants.stride, &c, sizeof(c));
  }
  std::memcpy(b.data, &b.h, sizeof(b.h));
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  random.discard(4);  // seeds are small numbers
  if (random() % 8 == 0 || max_size < sizeof(lazyt_program_t)) return LLVMFuzzerMutate(data, size, max_size);

  if (size >= kTrailer && std::memcmp(data + size - kTrailer, "LZPHASH1", 8) == 0) size -= kTrailer;
  const bool by_record = random() % 3 != 0 && size >= sizeof(lazyt_program_t);
  if (!by_record) size = LLVMFuzzerMutate(data, size, max_size);
  if (size % 8 && size + 8 <= max_size) {
    std::memset(data + size, 0, 8 - size % 8);
    size += 8 - size % 8;
  }
  if (size < sizeof(lazyt_program_t)) return size;
  Block b{data, size, {}};
  std::memcpy(&b.h, data, sizeof(b.h));
  if (by_record)
    for (size_t n = 1 + random() % 3; n > 0; n--) change_record(b, random);
  mend(b);
#ifdef LAZYT_FUZZ_TRAILER
  if (random() % 2 && size + kTrailer <= max_size) {
    std::memcpy(data + size, "LZPHASH1", 8);
    base::hash128(data, size).write_canonical(data + size + 8);
    size += kTrailer;
  }
#endif
  return size;
}
