// (Log) softmax and their backwards along one axis. A team of threads has a line; a short line stays in its
// registers.
#include "softmax.h"

namespace lazyt::cuda {

// The thread's elements of a line: number k is element `i`. With few, kept[k] is a register.
const std::string_view kLineText = R"(
#define PER ((N + TEAM - 1) / TEAM)
#define KEEPS (PER <= 16)
#define EACH for (int k = 0; k < (int)PER; ++k) if (const long long i = lane + (long long)k * TEAM; i < n)
)";
const std::string_view kLineTextEnd = R"(
#undef PER
#undef KEEPS
#undef EACH
)";

const std::string_view kExponentsText = R"(
  using Team = lazyt_team<TEAM, COLUMNS, THREADS>;
  const int lane = Team::lane();
  for (long long base = blockIdx.x * (long long)Team::kLines; base < LINES; base += gridDim.x * (long long)Team::kLines) {
    const long long l = base + Team::line();
    const long long n = l < LINES ? N : 0;
    const T* x = (const T*)a.w[0] + (n ? LINE0(l) : 0);
    C kept[KEEPS ? PER : 1];
    C top = -LAZYT_INFINITY;
    EACH {
      const C v = lazyt_load(x, AT0(i));
      if (KEEPS) kept[KEEPS ? k : 0] = v;
      top = v > top ? v : top;
    }
    top = Team::all(top, lazyt_greatest());
    C sum = 0;
    EACH {
      const C e = exp((KEEPS ? kept[KEEPS ? k : 0] : lazyt_load(x, AT0(i))) - top);
      if (KEEPS && !LOG) kept[KEEPS ? k : 0] = e;
      sum += e;
    }
    sum = Team::all(sum, lazyt_plus());
)";

namespace {

constexpr std::string_view kForward = R"(
    T* y = (T*)a.w[1] + (n ? LINE1(l) : 0);
    const C scale = (C)1 / sum, log_sum = log(sum);
    EACH {
      if (LOG) {
        lazyt_store(y, AT1(i), (KEEPS ? kept[KEEPS ? k : 0] : lazyt_load(x, AT0(i))) - top - log_sum);
      } else {
        lazyt_store(y, AT1(i), (KEEPS ? kept[KEEPS ? k : 0] : exp(lazyt_load(x, AT0(i)) - top)) * scale);
      }
    }
  }
}
)";

constexpr std::string_view kBackward = R"(
LAZYT_KERNEL(KERNEL, 3, THREADS) {
  using Team = lazyt_team<TEAM, COLUMNS, THREADS>;
  const int lane = Team::lane();
  for (long long base = blockIdx.x * (long long)Team::kLines; base < LINES; base += gridDim.x * (long long)Team::kLines) {
    const long long l = base + Team::line();
    const long long n = l < LINES ? N : 0;
    T* out = (T*)a.w[0] + (n ? LINE0(l) : 0);
    const T* g = (const T*)a.w[1] + (n ? LINE1(l) : 0);
    const T* y = (const T*)a.w[2] + (n ? LINE2(l) : 0);
    C sum = 0;
    EACH sum += LOG ? lazyt_load(g, AT1(i)) : lazyt_load(g, AT1(i)) * lazyt_load(y, AT2(i));
    sum = Team::all(sum, lazyt_plus());
    EACH {
      const C gv = lazyt_load(g, AT1(i)), yv = lazyt_load(y, AT2(i));
      lazyt_store(out, AT0(i), LOG ? gv - exp(yv) * sum : (gv - sum) * yv);
    }
  }
}
)";

Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  if (!all_tensors(program, node, is_floating)) return refuse_dtype(operand(program, node, 0).dtype);
  return accepted();
}

void add(Builder& b, std::string_view name, std::string_view text, const Walk& walk, lazyt_dtype_t dtype,
         bool log, std::vector<Word> words, const std::vector<StorageId>& reads, StorageId write) {
  Defines defines = types_of(dtype);
  defines.emplace_back("LOG", log ? "true" : "false");
  std::string whole(kLineText);
  whole += text;
  whole += kLineTextEnd;
  add_lines(b, name, whole, walk, team_for(walk), std::move(defines), std::move(words), reads, {write});
}

template <bool kLog>
void lower_softmax(Builder& b, const lazyt_node_t& node) {
  const uint32_t v = node.results;
  Tensor in = tensor_at(b, b.program.args(node)[0]);
  if (in.dtype != b.dtype(v)) in = dense_as(b, in, b.dtype(v));  // half_to_float
  const Tensor out = b.make(v, b.result_strides(v, in.strides()));
  if (out.count() == 0) return;
  const Walk walk = walk_along({in.layout, out.layout}, static_cast<size_t>(int_at(b.program, node, 1)));
  const std::string text = "LAZYT_KERNEL(KERNEL, 2, THREADS) {" + std::string(kExponentsText) + std::string(kForward);
  add(b, kLog ? "log_softmax" : "softmax", text, walk, in.dtype, kLog,
      {Word::address(in), Word::address(out)}, {in.storage}, out.storage);
}

template <bool kLog>
void lower_backward(Builder& b, const lazyt_node_t& node) {
  if (const Epilogue* e = b.epilogue()) return lower_gradient_with_softmax(b, node, *e);
  const auto args = b.program.args(node);
  const Tensor grad = tensor_at(b, args[0]), y = tensor_at(b, args[1]);
  const lazyt_dtype_t dtype = grad.dtype;
  const Tensor turned = y.dtype == dtype ? y : dense_as(b, y, dtype);
  const Tensor out = toolkit::begin_result(b, node.results, dtype);
  if (out.count() != 0) {
    const Walk walk =
        walk_along({out.layout, grad.layout, turned.layout}, static_cast<size_t>(int_at(b.program, node, 2)));
    add(b, kLog ? "log_softmax_backward" : "softmax_backward", kBackward, walk, dtype, kLog,
        {Word::address(out), Word::address(grad), Word::address(turned)}, {grad.storage, turned.storage},
        out.storage);
  }
  toolkit::finish_result(b, node.results, out);
}

}  // namespace

void register_softmax(Operators& all) {
  using toolkit::Role;
  all.add(LAZYT_OP_SOFTMAX, {Role::kOpaque, accept, lower_softmax<false>});
  all.add(LAZYT_OP_LOG_SOFTMAX, {Role::kOpaque, accept, lower_softmax<true>});
  all.add(LAZYT_OP_SOFTMAX_BACKWARD_DATA, {Role::kOpaque, accept, lower_backward<false>});
  all.add(LAZYT_OP_LOG_SOFTMAX_BACKWARD_DATA, {Role::kOpaque, accept, lower_backward<true>});
}

}  // namespace lazyt::cuda
