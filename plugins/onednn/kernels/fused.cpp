#include "fused.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lazyt::onednn {

using vm::kBlock;
using vm::Type;

namespace {

// Elements that are worth a second thread.
constexpr int64_t kGrain = 32768;
// Pieces in which a long reduction is added up: fixed, so that results do not depend on the thread count.
constexpr int64_t kPiece = 65536;
constexpr size_t kTileBytes = tile::kMaxTile * 4;

bool is_half(lazyt_dtype_t d) { return d == LAZYT_DTYPE_FLOAT16 || d == LAZYT_DTYPE_BFLOAT16; }

vm::Convert loader(lazyt_dtype_t d) { return d == LAZYT_DTYPE_FLOAT16 ? vm::table().load_f16 : vm::table().load_bf16; }
vm::Convert storer(lazyt_dtype_t d) { return d == LAZYT_DTYPE_FLOAT16 ? vm::table().store_f16 : vm::table().store_bf16; }

void set_number(const Frame& frame, const Number& n, Type type, void* out, int count) {
  auto fill = [&](auto value) { std::fill_n(static_cast<decltype(value)*>(out), count, value); };
  switch (type) {
    case Type::kBool: return fill(static_cast<uint8_t>(n.constant && !n.integral ? n.d != 0 : frame.as_double(n) != 0));
    case Type::kU8: return fill(static_cast<uint8_t>(frame.as_int(n)));
    case Type::kI8: return fill(static_cast<int8_t>(frame.as_int(n)));
    case Type::kI16: return fill(static_cast<int16_t>(frame.as_int(n)));
    case Type::kI32: return fill(static_cast<int32_t>(frame.as_int(n)));
    case Type::kI64: return fill(frame.as_int(n));
    case Type::kF32: return fill(static_cast<float>(frame.as_double(n)));
    default: return fill(frame.as_double(n));
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
    std::memcpy(out, in, static_cast<size_t>(n) * static_cast<size_t>(size));
  } else {
    switch (size) {
      case 1: return run(uint8_t{});
      case 2: return run(uint16_t{});
      case 4: return run(uint32_t{});
      default: return run(uint64_t{});
    }
  }
}
void scatter(std::byte* out, const std::byte* in, int64_t stride, int n, int size) {
  auto run = [&]<class T>(T) {
    auto* o = reinterpret_cast<T*>(out);
    auto* p = reinterpret_cast<const T*>(in);
    for (int i = 0; i < n; ++i) o[i * stride] = p[i];
  };
  if (stride == 1) {
    std::memcpy(out, in, static_cast<size_t>(n) * static_cast<size_t>(size));
  } else {
    switch (size) {
      case 1: return run(uint8_t{});
      case 2: return run(uint16_t{});
      case 4: return run(uint32_t{});
      default: return run(uint64_t{});
    }
  }
}

// Calls f(element offset, stride, first element of the run, count) for the runs along the innermost loop that make up
// the linear range [begin, begin + n) of the loops.
template <class F>
void for_each_run(const Dims& loops, const Dims& strides, int64_t begin, int n, F&& f) {
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
    f(offset, strides[inner], done, count);
    done += count;
    index[inner] += count;
    offset += count * strides[inner];
    for (size_t d = inner; d > 0 && index[d] == loops[d]; --d) {
      offset += strides[d - 1] - index[d] * strides[d];
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

// How a total is kept while it grows.
union Total {
  double d;
  int64_t i;
};

template <class T, ReduceKind kind>
struct Reducer {
  static constexpr bool kFloat = std::is_floating_point_v<T>;
  using Acc = std::conditional_t<kFloat, double, int64_t>;
  static Acc identity() {
    if constexpr (kind == ReduceKind::kProd || kind == ReduceKind::kAll) return 1;
    if constexpr (kind == ReduceKind::kMax) return kFloat ? static_cast<Acc>(-INFINITY) : static_cast<Acc>(INT64_MIN);
    if constexpr (kind == ReduceKind::kMin) return kFloat ? static_cast<Acc>(INFINITY) : static_cast<Acc>(INT64_MAX);
    return 0;
  }
  static Acc join(Acc a, Acc b) {
    if constexpr (kind == ReduceKind::kSum) return static_cast<Acc>(kFloat ? a + b : static_cast<Acc>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)));
    if constexpr (kind == ReduceKind::kProd) return static_cast<Acc>(kFloat ? a * b : static_cast<Acc>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)));
    if constexpr (kind == ReduceKind::kMax) return a != a || a > b ? a : b;
    if constexpr (kind == ReduceKind::kMin) return a != a || a < b ? a : b;
    if constexpr (kind == ReduceKind::kAny) return a != 0 || b != 0;
    if constexpr (kind == ReduceKind::kAll) return a != 0 && b != 0;
  }
  static Acc lift(T v) { return static_cast<Acc>(v); }
  static void row(Total& total, const void* in, int n) {
    auto* p = static_cast<const T*>(in);
    Acc acc = kFloat ? static_cast<Acc>(total.d) : static_cast<Acc>(total.i);
    if constexpr (std::is_same_v<T, float> && kind == ReduceKind::kSum) {
      double sum = 0;
      vm::table().sum_f32(&sum, p, n);
      acc = acc + sum;
    } else if constexpr (std::is_same_v<T, float> && (kind == ReduceKind::kMax || kind == ReduceKind::kMin)) {
      acc = join(acc, static_cast<double>((kind == ReduceKind::kMax ? vm::table().max_f32 : vm::table().min_f32)(p, n)));
    } else {
      for (int i = 0; i < n; ++i) acc = join(acc, lift(p[i]));
    }
    if constexpr (kFloat) total.d = acc; else total.i = acc;
  }
  static void columns(Total* totals, const void* in, int n) {
    auto* p = static_cast<const T*>(in);
    for (int i = 0; i < n; ++i) {
      if constexpr (kFloat) totals[i].d = join(totals[i].d, lift(p[i]));
      else totals[i].i = join(totals[i].i, lift(p[i]));
    }
  }
  static void combine(Total& a, const Total& b) {
    if constexpr (kFloat) a.d = join(a.d, b.d); else a.i = join(a.i, b.i);
  }
  static Total start() {
    Total t;
    if constexpr (kFloat) t.d = identity(); else t.i = identity();
    return t;
  }
};

struct ReduceFunctions {
  void (*row)(Total&, const void*, int);
  void (*columns)(Total*, const void*, int);
  void (*combine)(Total&, const Total&);
  Total start;
  bool floating;
};

template <class T>
ReduceFunctions reduce_functions(ReduceKind kind) {
  auto of = [](auto reducer) {
    using R = decltype(reducer);
    return ReduceFunctions{R::row, R::columns, R::combine, R::start(), R::kFloat};
  };
  switch (kind) {
    case ReduceKind::kSum: return of(Reducer<T, ReduceKind::kSum>{});
    case ReduceKind::kProd: return of(Reducer<T, ReduceKind::kProd>{});
    case ReduceKind::kMax: return of(Reducer<T, ReduceKind::kMax>{});
    case ReduceKind::kMin: return of(Reducer<T, ReduceKind::kMin>{});
    case ReduceKind::kAny: return of(Reducer<T, ReduceKind::kAny>{});
    default: return of(Reducer<T, ReduceKind::kAll>{});
  }
}

ReduceFunctions reduce_functions(ReduceKind kind, Type type) {
  switch (type) {
    case Type::kBool: return reduce_functions<bool>(kind);
    case Type::kU8: return reduce_functions<uint8_t>(kind);
    case Type::kI8: return reduce_functions<int8_t>(kind);
    case Type::kI16: return reduce_functions<int16_t>(kind);
    case Type::kI32: return reduce_functions<int32_t>(kind);
    case Type::kI64: return reduce_functions<int64_t>(kind);
    case Type::kF32: return reduce_functions<float>(kind);
    default: return reduce_functions<double>(kind);
  }
}

}  // namespace

class FusedStep final : public Step {
 public:
  struct Load {
    Tensor tensor;
    Dims strides;       // by loop
    uint16_t slot;
    int size;           // of an element in memory
    vm::Convert convert;  // from f16, bf16
    bool linear;        // lies as the loops run
    bool single;        // one element for all
    bool direct;        // linear and needs no conversion: the register is the memory
  };
  struct Store {
    Tensor tensor;
    Dims strides;
    uint16_t slot;
    int size;
    vm::Convert convert;
    bool linear;
    bool direct;
  };
  struct Reduction {
    Tensor tensor;
    Dims strides;  // by loop; 0 for reduced loops
    uint16_t slot;
    ReduceFunctions f;
    double divisor;
    bool root;
    bool sums_f32;  // columns are added in f32 for some rows, then in f64
  };
  struct Instruction {
    vm::Function function;
    vm::Convert convert;
    uint16_t out, a, b, c;
  };
  struct NumberFill {
    Number number;
    Type type;
    uint16_t slot;
  };
  struct IndexFill {
    size_t loop_dim;
    Dims strides;  // of the index by loop
    uint16_t slot;
  };
  struct RandomFill {
    Number seed, offset;
    uint16_t slot;
  };

  // The code for the register machine, if it has a form there: code_ is then not run.
  bool tiled_ = false;
  tile::Code tile_;
  std::vector<uint16_t> tile_slots_;  // of tile_'s operands that are registers: the slot
  std::vector<bool> tile_direct_;     // and whether it is the memory of a tensor
  int64_t block_ = kBlock;            // elements brought in at a time

  std::string describe() const override {
    return (tiled_ ? "tiled " : "") + std::string(reductions_.empty() ? "pointwise of " : "reduction of ") + std::to_string(code_.size()) + " instructions";
  }

  void run(const Frame& frame) const override {
    if (reductions_.empty()) return run_pointwise(frame);
    run_reductions(frame);
  }

  std::vector<Instruction> code_;
  std::vector<Load> loads_;
  std::vector<Store> stores_;
  std::vector<Reduction> reductions_;
  std::vector<NumberFill> numbers_;
  std::vector<IndexFill> indices_;
  std::vector<RandomFill> randoms_;
  Dims loops_;
  int64_t count_ = 0;
  uint16_t slots_ = 0;
  // Of a kernel with reductions: loops [0, first_) are kept, [first_, last_) reduced, [last_, end) kept.
  size_t first_ = 0, last_ = 0;
  std::vector<Tensor> partials_;  // of each reduction: totals of pieces and threads

 private:
  // Registers of one thread for one run.
  struct Block {
    std::byte* memory[64 + 64];
    void* slot[64 + 64];
  };

  std::byte* scratch() const {
    struct Aligned {
      std::byte* p = nullptr;
      size_t size = 0;
      ~Aligned() { std::free(p); }
    };
    thread_local Aligned own;
    const size_t need = static_cast<size_t>(slots_) * kBlock * 8 +
                        (tiled_ ? (tile_.scratch_tiles + tile_.operands.size()) * kTileBytes : 0);
    if (own.size < need) {
      std::free(own.p);
      own.p = static_cast<std::byte*>(std::aligned_alloc(64, need));
      own.size = own.p ? need : 0;
      if (!own.p) throw std::bad_alloc();
    }
    return own.p;
  }

  void begin(const Frame& frame, Block& b, int64_t longest) const {
    std::byte* memory = scratch();
    for (uint16_t s = 0; s < slots_; ++s) b.slot[s] = b.memory[s] = memory + size_t{s} * kBlock * 8;
    const int n = static_cast<int>(std::min<int64_t>(std::max<int64_t>(longest, tile::kMaxTile), kBlock));
    for (const NumberFill& f : numbers_) set_number(frame, f.number, f.type, b.slot[f.slot], n);
    for (const Load& l : loads_) {
      if (!l.single) continue;
      const std::byte* at = base(frame, l.tensor);
      if (l.convert) {
        l.convert(b.slot[l.slot], at, 1);
        gather(b.memory[l.slot], b.memory[l.slot], 0, n, 4);
      } else {
        gather(b.memory[l.slot], at, 0, n, l.size);
      }
    }
  }

  static std::byte* base(const Frame& frame, const Tensor& t) {
    return frame.storages[t.storage] + t.layout.offset * static_cast<int64_t>(t.element());
  }

  void block(const Frame& frame, Block& b, int64_t at, int n) const {
    for (const Load& l : loads_) {
      if (l.single) continue;
      const std::byte* from = base(frame, l.tensor);
      if (l.linear) {
        from += at * l.size;
        if (l.direct) {
          b.slot[l.slot] = const_cast<std::byte*>(from);
        } else {
          l.convert(b.slot[l.slot], from, n);
        }
        continue;
      }
      std::byte* to = b.memory[l.slot];
      if (!l.convert) {
        for_each_run(loops_, l.strides, at, n, [&](int64_t offset, int64_t stride, int first, int count) {
          gather(to + first * l.size, from + offset * l.size, stride, count, l.size);
        });
      } else {
        alignas(64) std::byte raw[kBlock * 2];
        for_each_run(loops_, l.strides, at, n, [&](int64_t offset, int64_t stride, int first, int count) {
          gather(raw + first * 2, from + offset * 2, stride, count, 2);
        });
        l.convert(to, raw, n);
      }
    }
    for (const IndexFill& f : indices_) {
      auto* out = reinterpret_cast<int64_t*>(b.memory[f.slot]);
      for_each_run(loops_, f.strides, at, n, [&](int64_t offset, int64_t stride, int first, int count) {
        for (int i = 0; i < count; ++i) out[first + i] = offset + i * stride;
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
    for (const Store& s : stores_)
      if (s.direct) b.slot[s.slot] = base(frame, s.tensor) + at * s.size;
    if (tiled_) run_tiles(b, n);
    for (const Instruction& i : code_) {
      if (tiled_) break;
      if (i.convert) {
        i.convert(b.slot[i.out], b.slot[i.a], n);
      } else {
        i.function(b.slot[i.out], b.slot[i.a], b.slot[i.b], b.slot[i.c], n);
      }
    }
    for (const Store& s : stores_) {
      if (s.direct) continue;
      std::byte* to = base(frame, s.tensor);
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
        std::memcpy(to + at * s.size, from, static_cast<size_t>(n) * static_cast<size_t>(s.size));
      } else {
        for_each_run(loops_, s.strides, at, n, [&](int64_t offset, int64_t stride, int first, int count) {
          scatter(to + offset * s.size, from + first * s.size, stride, count, s.size);
        });
      }
    }
  }

  void run_tiles(Block& b, int n) const {
    const tile::Machine& m = tile::machine();
    const int full = n / m.tile * m.tile, rest = n - full;
    tile::Operand operands[256];
    std::byte* scratch = b.memory[0] + size_t{slots_} * kBlock * 8;
    for (size_t k = 0; k < tile_.operands.size(); ++k) {
      const tile::Code::Operand& o = tile_.operands[k];
      operands[k] = {o.scratch ? scratch + size_t{o.index} * kTileBytes : b.slot[tile_slots_[k]], o.running ? -1 : 0};
    }
    if (full) m.run(tile_.code.data(), operands, full);
    if (!rest) return;
    // The last tile runs on copies: a tensor's memory ends where it ends.
    std::byte* pad = scratch + size_t{tile_.scratch_tiles} * kTileBytes;
    for (size_t k = 0; k < tile_.operands.size(); ++k) {
      const tile::Code::Operand& o = tile_.operands[k];
      if (!o.running) continue;
      const size_t size = static_cast<size_t>(tile_sizes_[k]);
      operands[k].base = static_cast<std::byte*>(operands[k].base) + static_cast<size_t>(full) * size;
      if (!tile_direct_[k]) continue;
      if (!o.written) std::memcpy(pad + k * kTileBytes, operands[k].base, static_cast<size_t>(rest) * size);
      operands[k].base = pad + k * kTileBytes;
    }
    m.run(tile_.code.data(), operands, m.tile);
    for (size_t k = 0; k < tile_.operands.size(); ++k) {
      if (!tile_.operands[k].written || !tile_direct_[k]) continue;
      const size_t size = static_cast<size_t>(tile_sizes_[k]);
      std::memcpy(static_cast<std::byte*>(b.slot[tile_slots_[k]]) + static_cast<size_t>(full) * size, operands[k].base, static_cast<size_t>(rest) * size);
    }
  }

  void run_pointwise(const Frame& frame) const {
    const int64_t blocks = (count_ + block_ - 1) / block_;
    const int threads = static_cast<int>(std::min<int64_t>(frame.threads, std::max<int64_t>(1, count_ / kGrain)));
    auto part = [&](int64_t first, int64_t last) {
      Block b;
      begin(frame, b, count_);
      for (int64_t k = first; k < last; ++k)
        block(frame, b, k * block_, static_cast<int>(std::min<int64_t>(block_, count_ - k * block_)));
    };
    if (threads <= 1) return part(0, blocks);
#pragma omp parallel num_threads(threads)
    {
      const int t = omp_get_thread_num(), all = omp_get_num_threads();
      part(blocks * t / all, blocks * (t + 1) / all);
    }
  }

  void finish(const Reduction& r, Total total, std::byte* out) const {
    double d = r.f.floating ? total.d : static_cast<double>(total.i);
    const bool plain_int = !r.f.floating && r.divisor == 1 && !r.root;
    if (r.divisor != 1) d /= r.divisor;
    if (r.root) d = std::sqrt(d);
    switch (r.tensor.dtype) {
      case LAZYT_DTYPE_FLOAT32: *reinterpret_cast<float*>(out) = static_cast<float>(d); break;
      case LAZYT_DTYPE_FLOAT64: *reinterpret_cast<double*>(out) = d; break;
      case LAZYT_DTYPE_FLOAT16: case LAZYT_DTYPE_BFLOAT16: {
        const float f = static_cast<float>(d);
        storer(r.tensor.dtype)(out, &f, 1);
        break;
      }
      default: {
        const int64_t i = plain_int ? total.i : static_cast<int64_t>(d);
        switch (r.tensor.element()) {
          case 1: *reinterpret_cast<int8_t*>(out) = r.tensor.dtype == LAZYT_DTYPE_BOOL ? i != 0 : static_cast<int8_t>(i); break;
          case 2: *reinterpret_cast<int16_t*>(out) = static_cast<int16_t>(i); break;
          case 4: *reinterpret_cast<int32_t*>(out) = static_cast<int32_t>(i); break;
          default: *reinterpret_cast<int64_t*>(out) = i;
        }
      }
    }
  }

  // Where the kept loops [first, last) at linear index k put a result, in elements.
  int64_t place(const Reduction& r, size_t first, size_t last, int64_t k) const {
    int64_t offset = 0;
    for (size_t d = last; d-- > first;) {
      offset += (k % loops_[d]) * r.strides[d];
      k /= loops_[d];
    }
    return offset;
  }

  int64_t product(size_t first, size_t last) const {
    int64_t n = 1;
    for (size_t d = first; d < last; ++d) n *= loops_[d];
    return n;
  }

  void run_reductions(const Frame& frame) const {
    const int64_t outer = product(0, first_), length = product(first_, last_), inner = product(last_, loops_.size());
    if (outer == 0 || inner == 0) return;
    if (inner == 1) {
      rows(frame, outer, length);
    } else {
      columns(frame, outer, length, inner);
    }
  }

  // Totals of the elements [at, at + n) of one row, added to `totals`.
  void row(const Frame& frame, Block& b, int64_t at, int64_t n, Total* totals) const {
    for (int64_t done = 0; done < n; done += kBlock) {
      const int count = static_cast<int>(std::min<int64_t>(kBlock, n - done));
      block(frame, b, at + done, count);
      for (size_t k = 0; k < reductions_.size(); ++k) reductions_[k].f.row(totals[k], b.slot[reductions_[k].slot], count);
    }
  }

  void rows(const Frame& frame, int64_t outer, int64_t length) const {
    const size_t count = reductions_.size();
    const int threads = static_cast<int>(std::min<int64_t>(frame.threads, std::max<int64_t>(1, outer * length / kGrain)));
    const int64_t pieces = (length + kPiece - 1) / kPiece;
    if (pieces > 1) {  // few long rows: their pieces are shared out
      auto* totals = reinterpret_cast<Total*>(frame.storages[partials_[0].storage]);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
      for (int64_t p = 0; p < outer * pieces; ++p) {
        Block b;
        begin(frame, b, kBlock);
        Total* mine = totals + p * static_cast<int64_t>(count);
        for (size_t k = 0; k < count; ++k) mine[k] = reductions_[k].f.start;
        const int64_t from = p % pieces * kPiece;
        row(frame, b, p / pieces * length + from, std::min(kPiece, length - from), mine);
      }
      for (int64_t o = 0; o < outer; ++o) {
        for (size_t k = 0; k < count; ++k) {
          Total total = reductions_[k].f.start;
          for (int64_t p = 0; p < pieces; ++p) reductions_[k].f.combine(total, totals[(o * pieces + p) * static_cast<int64_t>(count) + static_cast<int64_t>(k)]);
          put(frame, reductions_[k], place(reductions_[k], 0, first_, o), total);
        }
      }
      return;
    }
    // Short rows share a block.
    const int64_t together = length > 0 && length <= kBlock ? kBlock / length : 1;
    const int64_t groups = (outer + together - 1) / together;
    auto part = [&](int64_t first, int64_t last) {
      Block b;
      begin(frame, b, kBlock);
      Total totals[16];
      for (int64_t g = first; g < last; ++g) {
        const int64_t o = g * together, rows_here = std::min(together, outer - o);
        if (together > 1) {
          block(frame, b, o * length, static_cast<int>(rows_here * length));
          for (size_t k = 0; k < count; ++k) {
            const Reduction& r = reductions_[k];
            for (int64_t i = 0; i < rows_here; ++i) {
              Total total = r.f.start;
              r.f.row(total, static_cast<std::byte*>(b.slot[r.slot]) + i * length * element_[k], static_cast<int>(length));
              put(frame, r, place(r, 0, first_, o + i), total);
            }
          }
          continue;
        }
        for (size_t k = 0; k < count; ++k) totals[k] = reductions_[k].f.start;
        row(frame, b, o * length, length, totals);
        for (size_t k = 0; k < count; ++k) put(frame, reductions_[k], place(reductions_[k], 0, first_, o), totals[k]);
      }
    };
    if (threads <= 1) return part(0, groups);
#pragma omp parallel num_threads(threads)
    {
      const int t = omp_get_thread_num(), all = omp_get_num_threads();
      part(groups * t / all, groups * (t + 1) / all);
    }
  }

  void columns(const Frame& frame, int64_t outer, int64_t length, int64_t inner) const {
    const size_t count = reductions_.size();
    const int64_t strips = (inner + kBlock - 1) / kBlock;
    // Rows of a strip are added up in fixed portions, each a piece of work.
    const int64_t portion = std::max<int64_t>(1, kPiece / std::min<int64_t>(inner, kBlock));
    const int64_t portions = std::max<int64_t>(1, (length + portion - 1) / portion);
    const int threads = static_cast<int>(std::min<int64_t>(frame.threads, std::max<int64_t>(1, outer * length * inner / kGrain)));
    auto* all = reinterpret_cast<Total*>(frame.storages[partials_[0].storage]);
    const int64_t per_portion = static_cast<int64_t>(count) * inner;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
      Block b;
      begin(frame, b, kBlock);
#pragma omp for schedule(static)
      for (int64_t w = 0; w < outer * portions * strips; ++w) {
        const int64_t strip = w % strips, p = w / strips % portions, o = w / strips / portions;
        const int64_t column = strip * kBlock;
        const int n = static_cast<int>(std::min<int64_t>(kBlock, inner - column));
        Total* totals = all + (o * portions + p) * per_portion + column;
        for (size_t k = 0; k < count; ++k) std::fill_n(totals + static_cast<int64_t>(k) * inner, n, reductions_[k].f.start);
        const int64_t last = std::min(length, (p + 1) * portion);
        alignas(64) float sums[kBlock];
        // Narrow rows share a block.
        const int64_t together = strips == 1 ? kBlock / inner : 1;
        for (size_t k = 0; k < count; ++k)
          if (reductions_[k].sums_f32 && count == 1) std::fill_n(sums, n, 0.0f);
        int64_t since = 0;
        for (int64_t r = p * portion; r < last; r += together) {
          const int64_t rows_here = std::min(together, last - r);
          block(frame, b, (o * length + r) * inner + column, static_cast<int>(strips == 1 ? rows_here * inner : n));
          for (size_t k = 0; k < count; ++k) {
            const Reduction& red = reductions_[k];
            for (int64_t i = 0; i < rows_here; ++i) {
              const std::byte* in = static_cast<std::byte*>(b.slot[red.slot]) + i * inner * element_[k];
              if (red.sums_f32 && count == 1) {
                vm::table().add_columns_f32(sums, reinterpret_cast<const float*>(in), n);
                if (++since == 32) flush(totals, sums, n), since = 0;
              } else {
                red.f.columns(totals + static_cast<int64_t>(k) * inner, in, n);
              }
            }
          }
        }
        if (count == 1 && reductions_[0].sums_f32) flush(totals, sums, n);
      }
    }
    for (int64_t o = 0; o < outer; ++o) {
      for (size_t k = 0; k < count; ++k) {
        const Reduction& r = reductions_[k];
        const int64_t start = place(r, 0, first_, o);
        for (int64_t c = 0; c < inner; ++c) {
          Total total = r.f.start;
          for (int64_t p = 0; p < portions; ++p)
            r.f.combine(total, all[(o * portions + p) * per_portion + static_cast<int64_t>(k) * inner + c]);
          put(frame, r, start + place(r, last_, loops_.size(), c), total);
        }
      }
    }
  }

  static void flush(Total* totals, float* sums, int n) {
    for (int i = 0; i < n; ++i) totals[i].d += sums[i], sums[i] = 0;
  }

  void put(const Frame& frame, const Reduction& r, int64_t offset, Total total) const {
    finish(r, total, base(frame, r.tensor) + offset * static_cast<int64_t>(r.tensor.element()));
  }

 public:
  std::vector<uint8_t> tile_sizes_;  // of tile_'s operands that run: bytes of an element
  std::vector<int64_t> element_;  // bytes of a register element of each reduction
};

// ---- writing a kernel

Reg FusedKernel::load(const Tensor& t) {
  for (const Load& l : loads_)
    if (l.tensor.storage == t.storage && l.tensor.dtype == t.dtype && l.tensor.layout.offset == t.layout.offset &&
        l.tensor.layout.dims == t.layout.dims && l.tensor.layout.strides == t.layout.strides)
      return l.reg;
  const Reg r = add_register(vm::type_of(t.dtype), Source::kLoad, static_cast<uint32_t>(loads_.size()));
  loads_.push_back({t, r});
  return r;
}

Reg FusedKernel::number(const Number& n, Type type) {
  for (const NumberSource& s : numbers_)
    if (registers_[s.reg].type == type && s.number.constant == n.constant && s.number.integral == n.integral &&
        s.number.i == n.i && std::memcmp(&s.number.d, &n.d, 8) == 0 && s.number.input == n.input)
      return s.reg;
  const Reg r = add_register(type, Source::kNumber, static_cast<uint32_t>(numbers_.size()));
  numbers_.push_back({n, r});
  return r;
}

Reg FusedKernel::op(vm::Op op, Reg a, Reg b, Reg c) {
  const Type operand = registers_[op == vm::Op::kWhere ? b : a].type;
  const vm::Function f = vm::table().functions[static_cast<int>(op)][static_cast<int>(operand)];
  if (!f) {
    throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "onednn: instruction " + std::to_string(static_cast<int>(op)) +
                                                      " has no form for register type " + std::to_string(static_cast<int>(operand)));
  }
  const bool boolean = (op >= vm::Op::kEq && op <= vm::Op::kGe) || op == vm::Op::kIsNan || op == vm::Op::kIsInf;
  const Reg out = add_register(boolean ? Type::kBool : operand);
  code_.push_back({f, nullptr, out, a, b, c, tile::Source::Kind::kOp, op});
  return out;
}

Reg FusedKernel::cast(Reg a, Type to) {
  const Type from = registers_[a].type;
  if (from == to) return a;
  const Reg out = add_register(to);
  code_.push_back({nullptr, vm::table().casts[static_cast<int>(from)][static_cast<int>(to)], out, a, kNoReg, kNoReg,
                   tile::Source::Kind::kCast, vm::Op::kMove});
  return out;
}

Reg FusedKernel::round_to(Reg a, lazyt_dtype_t dtype) {
  if (!is_half(dtype)) return a;
  const Reg out = add_register(Type::kF32);
  code_.push_back({nullptr, dtype == LAZYT_DTYPE_FLOAT16 ? vm::table().round_f16 : vm::table().round_bf16, out, a, kNoReg, kNoReg,
                   tile::Source::Kind::kOther, vm::Op::kMove});
  return out;
}

Reg FusedKernel::index(size_t dim) {
  for (const auto& [d, r] : indices_)
    if (d == dim) return r;
  const Reg r = add_register(Type::kI64, Source::kIndex, static_cast<uint32_t>(indices_.size()));
  indices_.emplace_back(dim, r);
  return r;
}

Reg FusedKernel::uniform(const Number& seed, const Number& offset) {
  const Reg r = add_register(Type::kF32, Source::kUniform, static_cast<uint32_t>(randoms_.size()));
  randoms_.push_back({seed, offset, r});
  return r;
}

void FusedKernel::store(Reg r, const Tensor& t) { stores_.push_back({t, r}); }

void FusedKernel::reduce(Reg r, ReduceKind kind, const Tensor& t, double divisor, bool root) {
  reductions_.push_back({t, r, kind, divisor, root});
}

namespace {

// Strides over the kernel's dims of a tensor that broadcasts to them.
Dims broadcast_strides(const Tensor& t, size_t rank, const Dims& dims) {
  Dims out(rank, 0);
  const size_t skip = rank - t.layout.rank();
  for (size_t i = 0; i < t.layout.rank(); ++i)
    if (t.layout.dims[i] != 1 || dims[skip + i] == 1) out[skip + i] = t.layout.strides[i];
  return out;
}

}  // namespace

Dims FusedKernel::widest(const Dims& dims) const {
  for (const Load& l : loads_)
    if (l.tensor.layout.dims == dims) return l.tensor.layout.strides;
  return {};
}

void FusedKernel::build(Builder& b, const std::vector<StorageId>& may_alias_inputs) {
  auto step = std::make_unique<FusedStep>();
  const size_t rank = dims_.size();
  step->count_ = toolkit::count_of(dims_);

  // Loops: of every operand, every result, and what the indices and the reduced dims need.
  std::vector<Dims> strides;
  for (const Load& l : loads_) strides.push_back(broadcast_strides(l.tensor, rank, dims_));
  for (const Store& s : stores_) strides.push_back(s.tensor.layout.strides);
  for (const Reduction& r : reductions_) strides.push_back(r.tensor.layout.strides);
  for (const auto& [dim, reg] : indices_) {
    Dims s(rank, 0);
    s[dim] = 1;
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
          walk = broadcast_strides(l.tensor, rank, dims_);
          break;
        }
    }
  }
  std::vector<size_t> order = randoms_.empty() ? toolkit::memory_order(dims_, walk) : toolkit::memory_order(dims_, toolkit::row_major(dims_));
  if (!reductions_.empty()) {
    // Kept dims, reduced dims, and the kept dims after the last reduced one in memory.
    size_t last_reduced = rank;
    for (size_t i = 0; i < order.size(); ++i)
      if (reduced_[order[i]] && dims_[order[i]] != 1) last_reduced = i;
    std::vector<size_t> front, middle, back;
    for (size_t i = 0; i < order.size(); ++i) {
      if (reduced_[order[i]]) middle.push_back(order[i]);
      else if (last_reduced != rank && i > last_reduced) back.push_back(order[i]);
      else front.push_back(order[i]);
    }
    order = front;
    order.insert(order.end(), middle.begin(), middle.end());
    order.insert(order.end(), back.begin(), back.end());
    // Kept loops join no reduced ones: of this, those have stride 0.
    Dims kept = toolkit::row_major(dims_);
    for (size_t d = 0; d < rank; ++d)
      if (reduced_[d]) kept[d] = 0;
    strides.push_back(kept);
  }
  toolkit::Loops loops = toolkit::collapse(dims_, strides, order);
  if (loops.dims.size() > 16) throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "onednn: a kernel of more than 16 loops");
  step->loops_ = loops.dims;
  if (!reductions_.empty()) {
    const Dims& kept = loops.strides.back();
    auto is_reduced = [&](size_t i) { return kept[i] == 0 && loops.dims[i] != 1; };
    size_t first = 0;
    while (first < loops.dims.size() && !is_reduced(first)) ++first;
    size_t last = first;
    while (last < loops.dims.size() && is_reduced(last)) ++last;
    step->first_ = first;
    step->last_ = last;
  }

  // Slots: sources keep theirs; results of instructions share by last use.
  const size_t registers = registers_.size();
  std::vector<uint16_t> slot(registers, UINT16_MAX);
  uint16_t slots = 0;
  for (size_t r = 0; r < registers; ++r)
    if (registers_[r].source != Source::kNone) slot[r] = slots++;
  constexpr size_t kForever = SIZE_MAX;
  std::vector<size_t> last(registers, 0);
  for (size_t i = 0; i < code_.size(); ++i)
    for (Reg r : {code_[i].a, code_[i].b, code_[i].c})
      if (r != kNoReg) last[r] = i;
  for (const Store& s : stores_) last[s.reg] = kForever;
  for (const Reduction& r : reductions_) last[r.reg] = kForever;

  auto linear = [&](const Dims& s) {
    int64_t expect = 1;
    for (size_t i = loops.dims.size(); i-- > 0;) {
      if (loops.dims[i] != 1 && s[i] != expect) return false;
      expect *= loops.dims[i];
    }
    return true;
  };
  // A store may let its register be the memory, if no load can be seen through it.
  std::vector<bool> direct(stores_.size(), false);
  std::vector<bool> stored(registers, false);
  for (size_t k = 0; k < stores_.size(); ++k) {
    const Store& s = stores_[k];
    const Dims& own = loops.strides[loads_.size() + k];
    const bool aliased = std::find(may_alias_inputs.begin(), may_alias_inputs.end(), s.tensor.storage) != may_alias_inputs.end();
    if (registers_[s.reg].source != Source::kNone || is_half(s.tensor.dtype) || aliased || stored[s.reg] || !linear(own)) continue;
    direct[k] = true;
    stored[s.reg] = true;
    slot[s.reg] = slots++;
  }
  std::vector<uint16_t> spare;
  for (size_t i = 0; i < code_.size(); ++i) {
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
    if (last[ins.out] == 0 && !stored[ins.out] && std::none_of(stores_.begin(), stores_.end(), [&](auto& s) { return s.reg == ins.out; }) &&
        std::none_of(reductions_.begin(), reductions_.end(), [&](auto& s) { return s.reg == ins.out; }))
      last[ins.out] = kForever;  // never read: keeps its slot
  }
  if (slots > 128) throw plugin::Error(LAZYT_CODE_UNIMPLEMENTED, "onednn: a kernel of more than 128 registers");
  step->slots_ = slots;
  auto slot_of = [&](Reg r) { return r == kNoReg ? uint16_t{0} : slot[r]; };
  for (const Instruction& i : code_) step->code_.push_back({i.function, i.convert, slot_of(i.out), slot_of(i.a), slot_of(i.b), slot_of(i.c)});

  std::vector<StorageId> reads, writes, in_place;
  for (size_t k = 0; k < loads_.size(); ++k) {
    const Tensor& t = loads_[k].tensor;
    FusedStep::Load l{t, loops.strides[k], slot[loads_[k].reg], static_cast<int>(t.element()), is_half(t.dtype) ? loader(t.dtype) : nullptr, false, false, false};
    l.single = std::all_of(l.strides.begin(), l.strides.end(), [](int64_t s) { return s == 0; });
    l.linear = !l.single && linear(l.strides);
    l.direct = l.linear && !l.convert;
    // In place: every result has the load's very geometry.
    bool same = reductions_.empty();
    for (size_t j = 0; same && j < stores_.size(); ++j)
      same = stores_[j].tensor.layout.offset == t.layout.offset && loops.strides[loads_.size() + j] == l.strides &&
             stores_[j].tensor.element() == t.element();
    (same ? in_place : reads).push_back(t.storage);
    step->loads_.push_back(std::move(l));
  }
  for (size_t k = 0; k < stores_.size(); ++k) {
    const Tensor& t = stores_[k].tensor;
    const Dims& own = loops.strides[loads_.size() + k];
    step->stores_.push_back({t, own, slot[stores_[k].reg], static_cast<int>(t.element()), is_half(t.dtype) ? storer(t.dtype) : nullptr, linear(own), direct[k]});
    writes.push_back(t.storage);
  }
  // The register machine, where it has all of it.
  tile::Source source;
  for (const Instruction& i : code_) source.code.push_back({i.kind, i.op, i.out, i.a, i.b, i.c});
  for (size_t r = 0; r < registers; ++r) {
    const bool outside = registers_[r].source != Source::kNone;
    bool running = outside && registers_[r].source != Source::kNumber;
    if (registers_[r].source == Source::kLoad) running = !step->loads_[registers_[r].source_index].single;
    const bool kept = !outside && last[r] == kForever;
    source.registers.push_back({registers_[r].type, outside, running, kept});
  }
  if (!code_.empty() && slots <= 64) {
    if (auto code = tile::compile(source); code && code->operands.size() <= 256) {
      step->tiled_ = true;
      step->tile_ = std::move(*code);
      for (const tile::Code::Operand& o : step->tile_.operands) {
        const bool scratch = o.scratch;
        const Reg r = o.index;
        step->tile_slots_.push_back(scratch ? uint16_t{0} : slot[r]);
        step->tile_sizes_.push_back(!scratch && registers_[r].type == Type::kBool ? 1 : 4);
        bool is_direct = false;
        if (!scratch && registers_[r].source == Source::kLoad) is_direct = step->loads_[registers_[r].source_index].direct;
        if (!scratch && registers_[r].source == Source::kNone) is_direct = stored[r];
        step->tile_direct_.push_back(is_direct);
      }
      // Nothing goes through registers in memory: blocks may be as long as the counters allow.
      const bool all_direct = reductions_.empty() && indices_.empty() && randoms_.empty() &&
                              std::all_of(step->loads_.begin(), step->loads_.end(), [](auto& l) { return l.single || l.direct; }) &&
                              std::all_of(step->stores_.begin(), step->stores_.end(), [](auto& s) { return s.direct; });
      if (all_direct) step->block_ = 16 * kBlock;
    }
  }
  for (const NumberSource& n : numbers_) step->numbers_.push_back({n.number, registers_[n.reg].type, slot[n.reg]});
  const size_t first_index = loads_.size() + stores_.size() + reductions_.size();
  for (size_t k = 0; k < indices_.size(); ++k) step->indices_.push_back({indices_[k].first, loops.strides[first_index + k], slot[indices_[k].second]});
  for (const Random& r : randoms_) step->randoms_.push_back({r.seed, r.offset, slot[r.reg]});
  for (size_t k = 0; k < reductions_.size(); ++k) {
    const Reduction& r = reductions_[k];
    const Type type = registers_[r.reg].type;
    step->reductions_.push_back({r.tensor, loops.strides[loads_.size() + stores_.size() + k], slot[r.reg], reduce_functions(r.kind, type),
                                 r.divisor, r.root, r.kind == ReduceKind::kSum && type == Type::kF32});
    step->element_.push_back(vm::size_of(type));
    writes.push_back(r.tensor.storage);
  }
  if (!reductions_.empty()) {
    // Totals of pieces (rows) or of portions and columns.
    int64_t outer = 1, length = 1, inner = 1;
    for (size_t i = 0; i < loops.dims.size(); ++i) (i < step->first_ ? outer : i < step->last_ ? length : inner) *= loops.dims[i];
    int64_t totals;
    if (inner == 1) {
      totals = length > kPiece ? outer * ((length + kPiece - 1) / kPiece) : 0;
    } else if (inner == 0) {
      totals = 0;
    } else {
      const int64_t portion = std::max<int64_t>(1, kPiece / std::min<int64_t>(inner, kBlock));
      totals = outer * std::max<int64_t>(1, (length + portion - 1) / portion) * inner;
    }
    step->partials_.push_back(b.scratch(LAZYT_DTYPE_INT64, {totals * static_cast<int64_t>(reductions_.size())}));
    writes.push_back(step->partials_[0].storage);
  }
  b.add(std::move(step), reads, writes, in_place);
}

}  // namespace lazyt::onednn
