// eye, tril, triu: rows are copied and cleared in runs, where a fused kernel would compare indices for each element.
#include <algorithm>
#include <cstring>

#include "bytes.h"
#include "elements.h"

namespace lazyt::onednn {
namespace {

Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  if (!all_tensors(program, node, is_real)) return refuse_dtype(result(program, node, 0).dtype);
  return accepted();
}

void lower_eye(Builder& b, const lazyt_node_t& node) {
  const Tensor out = b.make_dense(node.results);
  b.fill(out, {true, true, 0, 0, 0, LAZYT_DTYPE_INT64});
  const int64_t n = out.dims()[0], columns = out.dims()[1];
  if (out.count()) b.fill(toolkit::reshaped(out, {std::min(n, columns)}, {columns + 1}), {true, true, 1, 1, 0, LAZYT_DTYPE_INT64});
}

template <bool kLower>
void lower_triangle(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const Tensor in = b.dense(tensor_at(b, args[0])), out = b.make_dense(node.results);
  if (out.count() == 0) return;
  const Number diagonal = b.number_of(args[1]);
  const int64_t columns = out.dims().back(), height = out.dims()[out.dims().size() - 2], rows = out.count() / columns;
  const auto bytes = static_cast<int64_t>(out.element());
  b.add(kLower ? "tril" : "triu", {}, out, {in}, {}, [=](const Frame& frame) {
    const std::byte* x = frame.storages[in.storage] + in.layout.offset * bytes;
    std::byte* y = frame.storages[out.storage] + out.layout.offset * bytes;
    const int64_t shift = std::clamp(frame.as_int(diagonal), -height, columns);
    parallel(frame, rows, out.count(), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        // Elements before `edge` are below the diagonal that is asked for, or on it for tril.
        const int64_t edge = std::clamp<int64_t>(r % height + shift + kLower, 0, columns) * bytes, all = columns * bytes;
        const int64_t from = kLower ? 0 : edge, to = kLower ? edge : all;
        const std::byte* source = x + r * all;
        std::byte* row = y + r * all;
        if (row != source) copy_bytes(row + from, source + from, static_cast<size_t>(to - from));
        std::memset(row, 0, static_cast<size_t>(from));
        std::memset(row + to, 0, static_cast<size_t>(all - to));
      }
    });
  });
}

}  // namespace

void register_triangle(Operators& all) {
  all.add(LAZYT_OP_EYE, {toolkit::Role::kOpaque, accept, lower_eye});
  all.add(LAZYT_OP_TRIL, {toolkit::Role::kOpaque, accept, lower_triangle<true>});
  all.add(LAZYT_OP_TRIU, {toolkit::Role::kOpaque, accept, lower_triangle<false>});
}

}  // namespace lazyt::onednn
