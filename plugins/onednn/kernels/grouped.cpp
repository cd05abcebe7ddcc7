// _grouped_mm: products of groups of rows, or of columns, with a matrix each, as mixtures of experts need them. Where groups end,
// offs says, which the device computes: one oneDNN product of a size that comes with the run, run once a group.
#include <algorithm>
#include <cstring>

#include "dnnl.h"
#include "elements.h"

namespace lazyt::onednn {
namespace {

using dnnl::memory;

// self, mat2, offs, bias, out_dtype. By ranks: [T, K] x [G, K, N] -> [T, N], groups of rows; [M, T] x [T, N] -> [G, M, N].
Refusal accept(const ProgramView& program, const lazyt_node_t& node) {
  if (!toolkit::has_arguments(program, node, "tttnn") || node.result_count != 1) return refuse_argument("groups without ends, a bias or another dtype");
  const lazyt_dtype_t dtype = result(program, node, 0).dtype;
  if (dtype != LAZYT_DTYPE_FLOAT32 && dtype != LAZYT_DTYPE_BFLOAT16 && dtype != LAZYT_DTYPE_FLOAT16) return refuse_dtype(dtype);
  const lazyt_value_t &a = operand(program, node, 0), &b = operand(program, node, 1), &ends = operand(program, node, 2);
  if (a.dtype != dtype || b.dtype != dtype || ends.dtype != LAZYT_DTYPE_INT32) return refuse_argument("operands of other dtypes");
  if (a.rank != 2 || (b.rank != 2 && b.rank != 3) || ends.rank != 1) return refuse_argument("groups of batches");
  const auto left = program.dims(a), right = program.dims(b), count = program.dims(ends);
  if (left[1] != right[b.rank - 2] || (b.rank == 3 && right[0] != count[0])) return refuse_argument("matrices that do not fit");
  const Dims made = b.rank == 3 ? Dims{left[0], right[2]} : Dims{count[0], left[0], right[1]};
  if (!std::ranges::equal(program.dims(result(program, node, 0)), made)) return refuse_argument("a result that does not fit");
  return accepted();
}

// As oneDNN reads a matrix: rows or columns that lie side by side.
Tensor readable(Builder& b, const Tensor& t) {
  const size_t rank = t.dims().size();
  const bool plain = t.strides()[rank - 1] == 1 || t.strides()[rank - 2] == 1;
  return plain && t.strides()[rank - 1] > 0 && t.strides()[rank - 2] > 0 ? t : b.dense(t);
}

// Of a matrix, which of its two sizes come with the run.
struct Open {
  bool rows, columns;
};
// The last two dims, with `count` for an open one.
memory::desc matrix(const Tensor& t, Open open, int64_t count) {
  const size_t rank = t.dims().size();
  return {{open.rows ? count : t.dims()[rank - 2], open.columns ? count : t.dims()[rank - 1]}, to_dnnl(t.dtype),
          memory::dims{t.strides()[rank - 2], t.strides()[rank - 1]}};
}
// Of matrix g, `count` rows or columns from `begin` on.
memory part(const Frame& frame, const Tensor& t, Open open, int64_t g, int64_t begin, int64_t count) {
  const size_t rank = t.dims().size();
  const int64_t offset = (rank == 3 ? g * t.strides()[0] : 0) + (open.rows ? begin * t.strides()[rank - 2] : 0) + (open.columns ? begin * t.strides()[rank - 1] : 0);
  return memory(matrix(t, open, count), cpu_engine(), address(frame, t) + offset * static_cast<int64_t>(t.element()));
}

void lower(Builder& b, const lazyt_node_t& node) {
  const auto args = b.program.args(node);
  const lazyt_dtype_t dtype = b.dtype(node.results);
  const lazyt_dtype_t computed = dtype == LAZYT_DTYPE_BFLOAT16 && has_bf16() ? dtype : LAZYT_DTYPE_FLOAT32;
  const auto matrices = [&](size_t i) { return readable(b, as_dtype(b, tensor_at(b, args[i]), computed)); };
  const Tensor left = matrices(0), right = matrices(1), ends = b.dense(tensor_at(b, args[2]));
  const Tensor out = begin_result(b, node.results, computed);
  const bool of_rows = right.dims().size() == 3;
  const Open open_left{of_rows, !of_rows}, open_right{!of_rows, false}, open_out{of_rows, false};
  const int64_t groups = ends.count(), whole = left.dims()[of_rows ? 0 : 1];
  if (left.count() == 0 || right.count() == 0 || groups == 0) {
    if (out.count()) b.fill(out, {true, true, 0, 0, 0, LAZYT_DTYPE_INT64});
    return finish_result(b, node.results, out);
  }

  const auto product = with_dnnl("_grouped_mm", thread_count(), [&] {
    const auto any = [](const Tensor& t, Open open) { return matrix(t, open, DNNL_RUNTIME_DIM_VAL); };
    return dnnl::matmul(dnnl::matmul::primitive_desc(cpu_engine(), any(left, open_left), any(right, open_right), any(out, open_out)));
  });
  b.add("grouped_mm", {left.storage, right.storage, ends.storage}, {out.storage}, [=](const Frame& frame) {
    const int32_t* end = frame.at<int32_t>(ends);
    // Dense: `count` of its rows, or matrices, from `first` on.
    const auto clear = [&](int64_t first, int64_t count) {
      const int64_t bytes = out.strides()[0] * static_cast<int64_t>(out.element());
      std::memset(address(frame, out) + first * bytes, 0, static_cast<size_t>(count * bytes));
    };
    with_dnnl("_grouped_mm", frame.threads, [&] {
      dnnl::stream stream(cpu_engine());
      int64_t begin = 0, covered = 0;
      for (int64_t g = 0; g < groups; ++g) {
        // Ends beyond the rows are the last row's, a group that ends before it begins is none, as slices are in eager.
        const int64_t stop = std::clamp<int64_t>(end[g], 0, whole), count = stop - begin;
        if (count > 0) {
          memory a = part(frame, left, open_left, g, begin, count);
          memory m = part(frame, right, open_right, g, begin, count);
          memory c = part(frame, out, open_out, g, begin, count);
          product.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, m}, {DNNL_ARG_DST, c}});
          covered = std::max(covered, stop);
        } else if (!of_rows) {
          clear(g, 1);
        }
        begin = stop;
      }
      stream.wait();
      if (of_rows) clear(covered, whole - covered);  // rows of no group; eager leaves what was there
    });
  });
  finish_result(b, node.results, out);
}

}  // namespace

void register_grouped(Operators& all) { all.add_named("aten::_grouped_mm", {toolkit::Role::kOpaque, accept, lower}); }

}  // namespace lazyt::onednn
