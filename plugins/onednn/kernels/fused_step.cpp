#include "fused_step.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "bytes.h"
#include "clones.h"
#include "fused.h"
#include "prefetch.h"
#include "streams.h"
#include "strided.h"
#include "team.h"

namespace lazyt::onednn {

using vm::kBlock;
using vm::Type;

namespace {

constexpr size_t kTileBytes = tile::kMaxTileBytes;

void set_number(const Frame& frame, const Number& n, Type type, void* out, int count) {
  auto fill = [&](auto value) { std::fill_n(static_cast<decltype(value)*>(out), count, value); };
  switch (type) {
    case Type::kBool:
      return fill(static_cast<uint8_t>(n.constant && !n.integral ? n.d != 0 : frame.as_double(n) != 0));
    case Type::kU8:
      return fill(static_cast<uint8_t>(frame.as_int(n)));
    case Type::kI8:
      return fill(static_cast<int8_t>(frame.as_int(n)));
    case Type::kI16:
      return fill(static_cast<int16_t>(frame.as_int(n)));
    case Type::kI32:
      return fill(static_cast<int32_t>(frame.as_int(n)));
    case Type::kI64:
      return fill(frame.as_int(n));
    case Type::kF32:
      return fill(static_cast<float>(frame.as_double(n)));
    default:
      return fill(frame.as_double(n));
  }
}

// f(an unsigned integer of so many bytes)
template <class F>
auto by_size(int size, F&& f) {
  switch (size) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    default: return f(uint64_t{});
  }
}

// out[i] = in[i * stride] for elements of `size` bytes.
void gather(std::byte* out, const std::byte* in, int64_t stride, int n, int size) {
  auto run = [&]<class T>(T) {
    auto* o = reinterpret_cast<T*>(out);
    auto* p = reinterpret_cast<const T*>(in);
    if (stride == 0) {
      std::fill_n(o, n, *p);
    } else {
      for (int i = 0; i < n; ++i) o[i] = p[i * stride];
    }
  };
  if (stride == 1) {
    copy_bytes(out, in, static_cast<size_t>(n) * static_cast<size_t>(size));
  } else {
    by_size(size, run);
  }
}
void scatter(std::byte* out, const std::byte* in, int64_t stride, int n, int size) {
  auto run = [&]<class T>(T) {
    auto* o = reinterpret_cast<T*>(out);
    auto* p = reinterpret_cast<const T*>(in);
    for (int i = 0; i < n; ++i) o[i * stride] = p[i];
  };
  if (stride == 1) {
    copy_bytes(out, in, static_cast<size_t>(n) * static_cast<size_t>(size));
  } else {
    by_size(size, run);
  }
}

// Calls f(element offset, first element, runs, count) for groups of equal runs along the innermost loop that make up the linear range
// [begin, begin + n) of the loops; in memory, the runs of a group are the stride of the loop around it apart.
template <class F>
void for_each_group(const Dims& loops, const Dims& strides, int64_t begin, int n, F&& f) {
  const size_t inner = loops.size() - 1;
  int64_t index[16];
  int64_t rest = begin, offset = 0;
  for (size_t d = loops.size(); d-- > 0;) {
    index[d] = rest % loops[d];
    rest /= loops[d];
    offset += index[d] * strides[d];
  }
  for (int done = 0; done < n;) {
    const int count = static_cast<int>(std::min<int64_t>(n - done, loops[inner] - index[inner]));
    // Whole rows but the last of the loop around them, behind which the loops outside move on.
    const int64_t whole = count == loops[inner] && inner > 0 ? std::min<int64_t>((n - done) / count, loops[inner - 1] - index[inner - 1]) : 1;
    f(offset, done, static_cast<int>(whole), count);
    done += static_cast<int>(whole) * count;
    if (whole > 1) {
      offset += (whole - 1) * strides[inner - 1];
      index[inner - 1] += whole - 1;
    }
    index[inner] += count;
    offset += count * strides[inner];
    for (size_t d = inner; d > 0 && index[d] == loops[d]; --d) {
      offset += strides[d - 1] - index[d] * strides[d];
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

// Calls f(element offset, stride, first element of the run, count) for each of these runs.
template <class F>
void for_each_run(const Dims& loops, const Dims& strides, int64_t begin, int n, F&& f) {
  const int64_t stride = strides.back(), apart = strides.size() > 1 ? strides[strides.size() - 2] : 0;
  for_each_group(loops, strides, begin, n, [&](int64_t offset, int first, int runs, int count) {
    for (int run = 0; run < runs; ++run) f(offset + run * apart, stride, first + run * count, count);
  });
}

template <class T>
LAZYT_INLINE void fill_runs_of(std::byte* out, const std::byte* in, int64_t apart, int runs, int64_t bytes) {
  typedef T Vector __attribute__((vector_size(sizeof(Bytes64))));  // GCC takes no alias of a dependent type
  for (int run = 0; run < runs; ++run, out += bytes, in += apart) {
    T value;
    std::memcpy(&value, in, sizeof value);
    const Vector v = Vector{} + value;
    for (int64_t i = 0; i < bytes; i += sizeof v) std::memcpy(out + i, &v, sizeof v);
  }
}
// Runs of `bytes` bytes, one behind the other, each filled with an element of `size` bytes; those lie `apart` bytes apart. Writes up to
// a vector past the end of a run.
LAZYT_CLONES void fill_runs(std::byte* out, const std::byte* in, int64_t apart, int runs, int64_t bytes, int size) {
  switch (size) {
    case 1: return fill_runs_of<uint8_t>(out, in, apart, runs, bytes);
    case 2: return fill_runs_of<uint16_t>(out, in, apart, runs, bytes);
    case 4: return fill_runs_of<uint32_t>(out, in, apart, runs, bytes);
    default: return fill_runs_of<uint64_t>(out, in, apart, runs, bytes);
  }
}
template <class Vector>
LAZYT_INLINE void copy_short_runs_of(std::byte* out, const std::byte* in, int64_t apart, int runs, int64_t bytes) {
  for (int run = 0; run < runs; ++run, out += bytes, in += apart) {
    Vector v;
    std::memcpy(&v, in, sizeof v);
    std::memcpy(out, &v, sizeof v);
  }
}
// Runs of less than a vector, copied from where they lie `apart` bytes apart to one behind the other. Reads and writes up to a vector past
// the end of a run.
LAZYT_CLONES void copy_short_runs(std::byte* out, const std::byte* in, int64_t apart, int runs, int64_t bytes) {
  if (bytes <= 16) return copy_short_runs_of<Bytes16>(out, in, apart, runs, bytes);
  if (bytes <= 32) return copy_short_runs_of<Bytes32>(out, in, apart, runs, bytes);
  copy_short_runs_of<Bytes64>(out, in, apart, runs, bytes);
}

// Elements [begin, begin + n) of the loops, of an operand that does not lie as they run. room: elements that `out` has place for.
template <class T>
void bring(T* out, const T* in, const Dims& loops, const Dims& strides, int64_t begin, int n, int64_t room) {
  const int64_t inner = loops.back(), step = strides.back();
  if (inner < n && step != 0 && FusedStep::repeats_row(strides)) {
    const int64_t first = begin % inner;
    int64_t done = 0;
    for (int64_t i = first; i < inner; ++i) out[done++] = in[i * step];
    for (int64_t i = 0; i < first; ++i) out[done++] = in[i * step];
    for (; done < n; done *= 2) std::memcpy(out + done, out, static_cast<size_t>(std::min(done, n - done)) * sizeof(T));
    return;
  }
  constexpr int64_t kSize = sizeof(T), kVector = sizeof(Bytes64);
  const int64_t apart = (loops.size() > 1 ? strides[strides.size() - 2] : 0) * kSize;
  for_each_group(loops, strides, begin, n, [&](int64_t offset, int first, int runs, int count) {
    auto* to = reinterpret_cast<std::byte*>(out + first);
    auto* from = reinterpret_cast<const std::byte*>(in + offset);
    const int64_t bytes = count * kSize;
    // Runs with room for a vector behind them, where the next one is written.
    const int64_t fit = (room - first - kVector / kSize) / count;
    int done = 0;
    if (step == 0) {
      done = static_cast<int>(std::clamp<int64_t>(fit, 0, runs));
      fill_runs(to, from, apart, done, bytes, kSize);
    } else if (step == 1) {
      if (bytes < kVector && apart > 0) {  // those behind which a vector can be read: the last one's end is the end of what there is
        const int64_t last = (runs - 1) * apart + bytes - kVector;
        done = last < 0 ? 0 : static_cast<int>(std::clamp<int64_t>(std::min(fit, last / apart + 1), 0, runs));
        copy_short_runs(to, from, apart, done, bytes);
      }
      return copy_rows(to + done * bytes, bytes, from + done * apart, apart, runs - done, bytes);
    }
    for (; done < runs; ++done) gather(to + done * bytes, from + done * apart, step, count, kSize);
  });
}
// The same of elements of `size` bytes; room in bytes.
void bring(std::byte* out, const std::byte* in, const Dims& loops, const Dims& strides, int64_t begin, int n, int size, int64_t room) {
  const auto run = [&]<class T>(T) {
    bring(reinterpret_cast<T*>(out), reinterpret_cast<const T*>(in), loops, strides, begin, n, room / static_cast<int64_t>(sizeof(T)));
  };
  by_size(size, run);
}

// Whether an element of n, of so many bytes, is zero.
bool has_zero(const void* elements, int size, int n) {
  const auto any = [&]<class T>(T) {
    auto* p = static_cast<const T*>(elements);
    bool zero = false;
    for (int i = 0; i < n; ++i) zero |= p[i] == 0;
    return zero;
  };
  return by_size(size, any);
}

void execute(const FusedStep::Instruction& i, void* const* slot, int n) {
  if (i.convert) {
    i.convert(slot[i.out], slot[i.a], n);
  } else {
    i.function(slot[i.out], slot[i.a], slot[i.b], slot[i.c], n);
  }
}

}  // namespace

std::string ChoiceStep::describe() const { return "choice of " + if_true->describe() + " or " + if_false->describe(); }

void ChoiceStep::run(const Frame& frame) const {
  alignas(64) std::byte memory[64][64];
  void* slot[64];
  for (uint16_t s = 0; s < slots; ++s) slot[s] = memory[s];
  for (const FusedStep::NumberFill& f : numbers) set_number(frame, f.number, f.type, slot[f.slot], 1);
  for (const FusedStep::Instruction& i : code) execute(i, slot, 1);
  (*static_cast<const uint8_t*>(slot[condition]) ? if_true : if_false)->run(frame);
}

std::string FusedStep::describe() const {
  return (tiled_ ? "tiled " : "") + std::string(reductions_.empty() ? "pointwise of " : "reduction of ") +
         std::to_string(instructions_) + " instructions";
}

void FusedStep::run(const Frame& frame) const {
  std::atomic<bool> by_zero = false;
  if (fills_) {
    run_fills(frame, by_zero);
  } else if (reductions_.empty()) {
    run_pointwise(frame, by_zero);
  } else {
    run_reductions(frame, by_zero);
  }
  if (by_zero) throw plugin::Error(LAZYT_CODE_INVALID_ARGUMENT, "ZeroDivisionError");  // PyTorch's words
}

void FusedStep::perform(const Instruction& i, Block& b, int n) {
  if (i.divisor && has_zero(b.slot[i.b], i.divisor, n)) b.by_zero = true;
  execute(i, b.slot, n);
}

std::byte* FusedStep::scratch() const {
  struct Aligned {
    std::byte* p = nullptr;
    size_t size = 0;
    ~Aligned() { std::free(p); }
  };
  thread_local Aligned own;
  const size_t bytes = static_cast<size_t>(slots_) * kBlock * 8 +
                       (tiled_ ? (tile_.scratch_tiles + tile_.operands.size()) * kTileBytes + tile_.code.size() * sizeof(tile::Bound) : 0);
  const size_t need = (bytes + 63) / 64 * 64;  // aligned_alloc wants a multiple
  if (own.size < need) {
    std::free(own.p);
    own.p = static_cast<std::byte*>(std::aligned_alloc(64, need));
    own.size = own.p ? need : 0;
    if (!own.p) throw std::bad_alloc();
  }
  return own.p;
}

bool FusedStep::stores_over_loads(const Frame& frame) const {
  return std::any_of(stores_.begin(), stores_.end(), [&](const Store& s) {
    const auto to = reinterpret_cast<uintptr_t>(frame.at<std::byte>(s.place));
    return std::any_of(loads_.begin(), loads_.end(), [&](const Load& l) {
      const auto from = reinterpret_cast<uintptr_t>(frame.at<std::byte>(l.place));
      return from - to < static_cast<uint64_t>(count_ * s.size) || to - from < static_cast<uint64_t>(count_ * l.size);
    });
  });
}

void FusedStep::begin(const Frame& frame, Block& b, int64_t longest) const {
  b.streams = streams_ && !stores_over_loads(frame);
  std::byte* memory = scratch();
  for (uint16_t s = 0; s < slots_; ++s) b.slot[s] = b.memory[s] = memory + size_t{s} * kBlock * 8;
  const int n = numbers_by_tile_ ? tile::kMaxTile : static_cast<int>(std::min<int64_t>(std::max<int64_t>(longest, tile::kMaxTile), std::clamp<int64_t>(block_, kBlock, 2 * kBlock)));
  for (const NumberFill& f : numbers_) set_number(frame, f.number, f.type, b.slot[f.slot], n);
  for (const Load& l : loads_) {
    if (l.repeats) b.repeated[&l - loads_.data()].count = 0;
    if (!l.single) continue;
    const std::byte* at = frame.at<std::byte>(l.place);
    if (l.convert) {
      l.convert(b.slot[l.slot], at, 1);
      gather(b.memory[l.slot], b.memory[l.slot], 0, n, 4);
    } else {
      gather(b.memory[l.slot], at, 0, n, l.size);
    }
  }
  for (const Instruction& i : once_) perform(i, b, n);
}

void FusedStep::Rows::seek(const FusedStep& step, int64_t to) {
  if (to == at) return;
  const Dims& loops = step.loops_;
  const size_t inner = loops.size() - 1, count = step.loads_.size();
  const auto move = [&](size_t d, int64_t by) {
    for (size_t k = 0; k < count; ++k) offset[k] += step.loads_[k].strides[d] * by;
  };
  if (at >= 0 && to == at + loops[inner]) {
    for (size_t d = inner; d-- > 0;) {
      move(d, 1);
      if (++index[d] < loops[d]) break;
      move(d, -loops[d]);
      index[d] = 0;
    }
  } else {
    std::fill_n(offset, count, 0);
    int64_t rest = to / loops[inner];
    for (size_t d = inner; d-- > 0; rest /= loops[d]) move(d, index[d] = rest % loops[d]);
  }
  at = to;
}

void FusedStep::block(const Frame& frame, Block& b, int64_t at, int n) const {
  const int64_t row = by_rows_ || own_rows_ ? at / loops_.back() * loops_.back() : 0;
  if (by_rows_ || own_rows_) b.rows.seek(*this, row);
  const auto offset_of = [&](const Load& l) { return b.rows.offset[&l - loads_.data()] + (at - row) * l.strides.back(); };
  for (const Load& l : loads_) {
    if (l.single) continue;
    const std::byte* from = frame.at<std::byte>(l.place);
    if (l.linear) {
      from += at * l.size;
      const int64_t bytes = int64_t{n} * l.size;
      if (!tiled_ && n <= kBlock) prefetch_block(from + bytes, static_cast<size_t>(bytes));  // while this one is computed
      if (l.direct) {
        b.slot[l.slot] = const_cast<std::byte*>(from);
      } else {
        l.convert(b.slot[l.slot], from, n);
      }
      continue;
    }
    if (l.in_row && period_) {
      b.slot[l.slot] = const_cast<std::byte*>(from);
      continue;
    }
    if (l.in_row) {
      b.slot[l.slot] = const_cast<std::byte*>(from + offset_of(l) * l.size);
      continue;
    }
    std::byte* to = b.memory[l.slot];
    if (l.repeats) {
      auto& there = b.repeated[&l - loads_.data()];
      const int64_t first = at % loops_.back();
      if (there.first == first && there.count >= n) continue;
      there = {first, n};
    }
    if (l.one_a_row) {
      from += offset_of(l) * l.size;
      if (l.convert) {
        l.convert(to, from, 1);
        fill_runs(to, to, 0, 1, int64_t{tile::kMaxTile} * 4, 4);
      } else {
        fill_runs(to, from, 0, 1, int64_t{tile::kMaxTile} * l.size, l.size);
      }
      continue;
    }
    if (!l.convert) {
      bring(to, from, loops_, l.strides, at, n, l.size, kBlock * 8);
    } else {
      alignas(64) std::byte raw[kBlock * 2];
      bring(raw, from, loops_, l.strides, at, n, 2, sizeof raw);
      l.convert(to, raw, n);
    }
  }
  for (const Store& s : stores_)
    if (s.direct) b.slot[s.slot] = frame.at<std::byte>(s.place) + at * s.size;
  for (const IndexFill& f : indices_) {
    if (f.is_float) {
      for_each_run(loops_, f.strides, at, n, [&](int64_t offset, int64_t stride, int first, int count) {
        vm::table().ramp(reinterpret_cast<double*>(b.slot[f.slot]) + first, offset, stride, frame.as_double(f.first), frame.as_double(f.step), count);
      });
      continue;
    }
    auto* out = reinterpret_cast<int64_t*>(b.slot[f.slot]);
    // What is too large wraps around.
    const auto begin = static_cast<uint64_t>(frame.as_int(f.first)),
               step = static_cast<uint64_t>(frame.as_int(f.step));
    for_each_run(loops_, f.strides, at, n, [&](int64_t offset, int64_t stride, int first, int count) {
      vm::table().iota(out + first, begin + static_cast<uint64_t>(offset) * step,
                       static_cast<uint64_t>(stride) * step, count);
    });
  }
  for (const RandomFill& f : randoms_) {
    // Blocks begin at multiples of kBlock, which is a multiple of 4.
    alignas(64) uint32_t words[kBlock];
    const auto offset = static_cast<uint64_t>(frame.as_int(f.offset)) + static_cast<uint64_t>(at / 4);
    vm::table().philox(static_cast<uint64_t>(frame.as_int(f.seed)), offset, words, (n + 3) / 4 * 4);
    auto* out = reinterpret_cast<float*>(b.memory[f.slot]);
    for (int i = 0; i < n; ++i) out[i] = static_cast<float>(words[i] >> 8) * 0x1p-24f;
  }
  if (tiled_) run_tiles(b, n);
  for (const Instruction& i : code_) perform(i, b, n);
  for (const Store& s : stores_) {
    if (s.direct) continue;
    std::byte* to = frame.at<std::byte>(s.place);
    const auto* from = static_cast<const std::byte*>(b.slot[s.slot]);
    alignas(64) std::byte raw[kBlock * 2];
    if (s.convert) {
      if (s.linear) {
        s.convert(to + at * s.size, from, n);
        continue;
      }
      s.convert(raw, from, n);
      from = raw;
    }
    if (s.linear) {
      copy_bytes(to + at * s.size, from, static_cast<size_t>(n) * static_cast<size_t>(s.size));
    } else {
      for_each_run(loops_, s.strides, at, n, [&](int64_t offset, int64_t stride, int first, int count) {
        scatter(to + offset * s.size, from + first * s.size, stride, count, s.size);
      });
    }
  }
}

bool FusedStep::is_in_place(const tile::Operand* operands, int n) const {
  const auto begin = [&](size_t k) { return reinterpret_cast<uintptr_t>(operands[k].base); };
  const auto end = [&](size_t k) { return begin(k) + size_t{tile_operands_[k].size} * static_cast<size_t>(n); };
  for (size_t w = 0; w < tile_.operands.size(); ++w) {
    if (!tile_.operands[w].running || !tile_.operands[w].written) continue;
    for (size_t r = 0; r < tile_.operands.size(); ++r)
      if (tile_.operands[r].running && !tile_.operands[r].written && begin(w) < end(r) && begin(r) < end(w)) return true;
  }
  return false;
}

void FusedStep::run_tiles(Block& b, int n) const {
  const tile::Machine& m = tile::machine(tile_.type);
  const int full = n / m.tile * m.tile, rest = n - full;
  std::byte* scratch = b.memory[0] + size_t{slots_} * kBlock * 8;
  auto* code = reinterpret_cast<tile::Bound*>(scratch + (tile_.scratch_tiles + tile_.operands.size()) * kTileBytes);
  tile::Operand operands[256];
  auto run = [&](int elements) {
    const size_t last = tile_.code.size() - 1;
    for (size_t k = 0; k < last; ++k) code[k] = {tile_.code[k].function, operands[tile_.code[k].a], operands[tile_.code[k].b]};
    code[last] = {tile_.code[last].function, {nullptr, static_cast<int64_t>(last)}, {}};
    if (!b.streams)
      for (const tile::Code::Stream& s : tile_.streams) code[s.instruction].function = s.through;
    m.run(code, elements);
  };
  for (size_t k = 0; k < tile_.operands.size(); ++k) {
    const tile::Code::Operand& o = tile_.operands[k];
    operands[k] = {o.scratch ? scratch + size_t{o.index} * kTileBytes : b.slot[tile_operands_[k].slot],
                   !o.running                      ? 0
                   : period_ && tile_operands_[k].in_row ? period_ - 1
                                                  : -1};
  }
  if (full) run(full);
  if (!rest) return;
  if (full && !period_ && !is_in_place(operands, n)) {  // the last tile lies over elements that are done
    for (size_t k = 0; k < tile_.operands.size(); ++k)
      if (tile_.operands[k].running) operands[k].base = static_cast<std::byte*>(operands[k].base) + size_t{tile_operands_[k].size} * static_cast<size_t>(n - m.tile);
    return run(m.tile);
  }
  // The last tile runs on copies: a tensor's memory ends where it ends. Behind it are zeros: what happens to lie
  // there may be denormal, for which a Xeon takes 50 times as long.
  std::byte* pad = scratch + size_t{tile_.scratch_tiles} * kTileBytes;
  for (size_t k = 0; k < tile_.operands.size(); ++k) {
    const tile::Code::Operand& o = tile_.operands[k];
    if (!o.running) continue;
    const size_t size = size_t{tile_operands_[k].size};
    auto* base = static_cast<std::byte*>(operands[k].base) + static_cast<size_t>(full) * size;
    const size_t bytes = static_cast<size_t>(rest) * size;
    if (!o.written) std::memcpy(pad + k * kTileBytes, base, bytes);
    if (!o.written || tile_operands_[k].direct) base = pad + k * kTileBytes;
    if (!o.written) std::memset(base + bytes, 0, static_cast<size_t>(m.tile) * size - bytes);
    operands[k].base = base;
  }
  run(m.tile);
  for (size_t k = 0; k < tile_.operands.size(); ++k) {
    if (!tile_.operands[k].written || !tile_operands_[k].direct) continue;
    const size_t size = size_t{tile_operands_[k].size};
    std::memcpy(static_cast<std::byte*>(b.slot[tile_operands_[k].slot]) + static_cast<size_t>(full) * size,
                operands[k].base, static_cast<size_t>(rest) * size);
  }
}

void FusedStep::run_pointwise(const Frame& frame, std::atomic<bool>& by_zero) const {
  if (count_ == 0) return;
  const int threads = threads_for(frame, count_);
  const int64_t row = by_rows_ ? loops_.back() : count_;
  // Long enough that beginning one costs little, and some for each thread.
  const auto share = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(row / (8 * threads))));
  const int64_t length = std::min(block_, std::max(kLongBlock, share));
  const int64_t in_row = (row + length - 1) / length, blocks = count_ / row * in_row;
  auto part = [&](int64_t first, int64_t last) {
    Block b(by_zero);
    begin(frame, b, count_);
    for (int64_t k = first; k < last; ++k) {
      const int64_t start = k % in_row * length;
      block(frame, b, k / in_row * row + start, static_cast<int>(std::min(length, row - start)));
    }
  };
  in_parts(threads, blocks, part);
}

void FusedStep::run_fills(const Frame& frame, std::atomic<bool>& by_zero) const {
  if (count_ == 0) return;
  Block b(by_zero);
  begin(frame, b, 1);
  const int threads = threads_for(frame, count_);
  for (const Store& s : stores_) {
    std::byte value[8];
    const auto size = static_cast<size_t>(s.size);
    const int64_t bytes = count_ * s.size, vectors = bytes / static_cast<int64_t>(sizeof(Bytes64));
    if (s.convert) {
      s.convert(value, b.slot[s.slot], 1);
    } else {
      std::memcpy(value, b.slot[s.slot], size);
    }
    std::byte* to = frame.at<std::byte>(s.place);
    in_parts(threads, vectors, [&](int64_t first, int64_t last) {
      constexpr int64_t kVector = sizeof(Bytes64);
      if (!streams_) return fill_runs(to + first * kVector, value, 0, 1, (last - first) * kVector, s.size);
      constexpr int64_t kVectors = 64;
      alignas(64) std::byte filled[kVectors * kVector];
      fill_runs(filled, value, 0, 1, sizeof filled, s.size);
      for (int64_t k = first; k < last; k += kVectors)
        stream_bytes(to + k * kVector, filled, static_cast<size_t>(std::min(kVectors, last - k) * kVector));
    });
    for (auto at = static_cast<size_t>(vectors) * sizeof(Bytes64); at < static_cast<size_t>(bytes); at += size) std::memcpy(to + at, value, size);
  }
}

}  // namespace lazyt::onednn
