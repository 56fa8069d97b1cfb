// Generated loops along rows, run on the host as in loops_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "codegen/loops/row_kernel.h"
#include "support/expressions.h"
#include "support/host_loops.h"

namespace ebb::codegen {
namespace {

using testing::in;
using testing::target;

// The reductions of an expression along `length` elements: `at(i, e)` is input i at element e.
std::vector<double> reductions_of(const Expr& e, size_t inputs, const std::vector<bool>& maximum,
                                  int64_t length,
                                  const std::function<double(size_t, int64_t)>& at) {
  std::vector<double> x(inputs + maximum.size());
  for (size_t t = 0; t < maximum.size(); ++t) {
    double all = maximum[t] ? -INFINITY : 0;
    for (int64_t i = 0; i < length; ++i) {
      for (size_t k = 0; k < inputs; ++k) x[k] = at(k, i);
      const double v = evaluated(e, x)[t];
      all = maximum[t] ? std::max(all, v) : all + v;
    }
    x[inputs + t] = all;
  }
  return x;
}

struct Rows {
  std::vector<Scalar> results;
  std::vector<Type> in;
  std::vector<bool> maximum;
  std::vector<DType> out;
  std::vector<RowExtent> extents;
  int64_t partial_rows = 0;
  std::vector<int64_t> runs = {};  // of swapped inputs
  int64_t row_dims = 1;
  SlicesForm slices = {};
  RowSegments segments = {};  // dim: of the shape
  std::vector<int64_t> same = {};
};

Target one_sm(Target on = target) {
  on.sm_count = 1;
  return on;
}

// The tensors of input `whole`: itself, or its segments. Where they repeat, so does the input.
std::vector<Buffer> tensors_of(const Rows& r, size_t i, Buffer& whole, bool unaligned) {
  std::vector<Buffer> all;
  const Shape& s = r.in[i].shape;
  const int64_t outer = s.slice(0, r.segments.dim).numel(), total = s[r.segments.dim],
                inner = s.numel() / outer / total;
  int64_t first = 0;
  for (const int64_t width : r.segments.widths) {
    const int64_t own = r.segments.repeated[i] ? 1 : width;
    Buffer& to = all.emplace_back(whole.dtype(), outer * own * inner, unaligned);
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t t = 0; t < width; ++t)
        for (int64_t e = 0; e < inner; ++e) {
          const int64_t at = (o * total + first + t) * inner + e;
          const int64_t there = (o * own + t % own) * inner + e;
          if (t >= own) whole.set(at, to.get(there));
          to.set(there, whole.get(at));
        }
    first += width;
  }
  return all;
}

// The elements of the tensor that input i is, or is a slice of.
int64_t elements_of(const Rows& r, size_t i) {
  const int64_t n = r.in[i].shape.numel();
  if (!r.slices.has(i)) return n;
  return n / r.slices.pitch[i].kept * r.slices.pitch[i].width;
}

// The form of rows of this shape.
RowForm form_of(const Rows& r, const Shape& shape, bool unaligned) {
  RowForm f{.expr = Expr(static_cast<int64_t>(r.in.size() + r.maximum.size()), r.results),
            .in = {},
            .out = r.out,
            .maximum = r.maximum,
            .extents = r.extents,
            .partial_rows = r.partial_rows,
            .space = {},
            .unaligned = unaligned};
  std::vector<Type> all = r.in;
  all.push_back({DType::f32, shape});
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()));
  std::fill(reduced.end() - r.row_dims, reduced.end(), true);
  f.slices = r.slices;
  if (r.segments.any()) {  // keeps their dim
    Shape along = shape;
    for (int64_t d = 0; d < shape.rank(); ++d)
      if (d != r.segments.dim) along[d] = 1;
    all.push_back({DType::f32, along});
  }
  f.segments = r.segments;
  f.space = make_iteration_space(shape, all, reduced, r.slices.pitch);
  if (r.segments.any()) {
    f.segments.dim = std::ranges::find(f.space.strides.back(), 1) - f.space.strides.back().begin();
    f.space.strides.pop_back();
  }
  for (const Type& t : r.in) f.in.push_back(t.dtype);
  f.swaps.runs = r.runs;
  f.same = r.same;
  return f;
}

void expect_rows(const Rows& r, const Shape& shape, bool unaligned, const Target& on = target) {
  const RowForm f = form_of(r, shape, unaligned);
  LoopKernel made = write_rows(f, row_layout(f, one_sm(on)), on);
  const int64_t length = f.length(), rows = f.rows();
  std::vector<Buffer> x, out;
  for (size_t i = 0; i < r.in.size(); ++i)
    x.push_back(Buffer::random(f.in[i], elements_of(r, i), static_cast<int>(i), unaligned));
  for (size_t i = 0; i < r.same.size(); ++i)
    if (r.same[i] >= 0) x[i] = x[static_cast<size_t>(r.same[i])].copy();
  for (size_t k = 0; k < r.out.size(); ++k)
    out.emplace_back(r.out[k],
                     r.extents[k] == RowExtent::element ? rows * length
                     : r.extents[k] == RowExtent::row   ? rows
                                                        : rows / r.partial_rows * length,
                     unaligned);
  std::vector<Buffer> tensors;
  for (size_t i = 0; r.segments.any() && i < x.size(); ++i)
    if (f.segments.of(i) > 1)
      for (Buffer& b : tensors_of(r, i, x[i], unaligned)) tensors.push_back(std::move(b));
    else
      tensors.push_back(x[i].copy());
  const auto read = [&](size_t i, int64_t row, int64_t e) {
    return element(f.space, i, x[i], row * length + swapped(e, f.swaps.run(i)));
  };
  std::vector<std::vector<double>> reduced_rows;
  for (int64_t row = 0; row < rows; ++row)
    reduced_rows.push_back(reductions_of(f.expr, x.size(), f.maximum, length,
                                         [&](size_t i, int64_t e) { return read(i, row, e); }));
  const auto of_row = [&](size_t k, int64_t row, int64_t e) {
    std::vector<double> all = reduced_rows[static_cast<size_t>(row)];
    for (size_t i = 0; i < x.size(); ++i) all[i] = read(i, row, e);
    return evaluated(f.expr, all)[f.reductions() + k];
  };
  std::vector<Buffer>& given = r.segments.any() ? tensors : x;
  const auto of = [&](size_t k, int64_t i) {
    if (r.extents[k] == RowExtent::row) return of_row(k, i, 0);
    if (r.extents[k] == RowExtent::element) return of_row(k, i / length, i % length);
    double sum = 0;
    for (int64_t s = 0; s < r.partial_rows; ++s)
      sum += of_row(k, i / length * r.partial_rows + s, i % length);
    return sum;
  };
  expect_results(made, given, out, {.blocks = static_cast<int>(made.blocks)}, of);
}

// A layer norm with its statistics; a softmax; the gradient of a norm with sums across rows.
Rows norm_of(const Shape& s, DType t) {
  const double inverse = 1.0 / static_cast<double>(s[-1]);
  const Scalar rest = in(0) - in(3) * inverse, scale = rsqrt(in(4) * inverse + 1e-5);
  const Type w{DType::f32, {s[-1]}};
  return {{in(0), rest * rest, rest * scale * in(1) + in(2), in(3) * inverse},
          {{t, s}, w, w},
          {false, false},
          {t, DType::f32},
          {RowExtent::element, RowExtent::row}};
}
Rows softmax_of(const Shape& s, DType t) {
  const Scalar e = exp(in(0) - in(1));
  return {{in(0), e, e / in(2)}, {{t, s}}, {true, false}, {t}, {RowExtent::element}};
}
Rows gradient_of(const Shape& s, DType t) {
  const double inverse = 1.0 / static_cast<double>(s[-1]);
  const Scalar g = in(1) * in(2);
  const Type w{DType::f32, {s[-1]}};
  return {{g, g * in(0), g - (in(3) + in(0) * in(4)) * inverse, in(1) * in(0)},
          {{t, s}, {t, s}, w},
          {false, false},
          {t, DType::f32},
          {RowExtent::element, RowExtent::partial},
          4};
}

TEST(loops_on_host, rows__give_norms_softmax_and_gradients) {
  for (const DType t : {DType::f32, DType::bf16})
    for (const bool unaligned : {false, true})
      for (const Shape& s : {Shape{8, 24}, Shape{8, 70}, Shape{4, 600}}) {
        expect_rows(norm_of(s, t), s, unaligned);
        expect_rows(softmax_of(s, t), s, unaligned);
        expect_rows(gradient_of(s, t), s, unaligned);
      }
}

// Rows of fewer lanes than a subgroup share a block; of more, each has one, and its subgroups
// exchange what they reduced: up to 128 of 8 lanes, which then read several each.
TEST(loops_on_host, rows__for_subgroups_of_other_sizes) {
  for (const int subgroup : {8, 16, 32, 64}) {
    SCOPED_TRACE(subgroup);
    Target on = target;
    on.subgroup = subgroup;
    bool shared = false, exchanged = false;
    for (const Shape& s : {Shape{24, 24}, Shape{8, 70}, Shape{4, 600}, Shape{4, 1400}}) {
      const RowLayout l = row_layout(form_of(norm_of(s, DType::bf16), s, false), one_sm(on));
      shared = shared || l.threads > l.lanes;
      exchanged = exchanged || l.lanes > subgroup;
      EXPECT_TRUE(l.lanes <= subgroup || l.threads == l.lanes);
      for (const bool unaligned : {false, true}) {
        expect_rows(norm_of(s, DType::bf16), s, unaligned, on);
        expect_rows(softmax_of(s, DType::f32), s, unaligned, on);
        expect_rows(gradient_of(s, DType::bf16), s, unaligned, on);
      }
    }
    EXPECT_TRUE(shared && exchanged);
  }
}

// Threads of two subgroups must not reduce two rows of one block.
TEST(loops_on_host, rows_of_several_subgroups_in_one_block__are_refused) {
  Target on = target;
  on.subgroup = 8;
  const Shape s{8, 70};
  const RowForm f = form_of(norm_of(s, DType::f32), s, false);
  RowLayout l = row_layout(f, target);
  l.lanes = 16;
  l.threads = 128;
  EXPECT_THROW(write_rows(f, l, on), Error);
}

// The rotation of an RMS norm: x, its partners, gamma, its partners, cos, sin.
Rows rotated_norm_of(const Shape& s, DType t, int64_t run) {
  const Scalar rstd = rsqrt(in(6) * (1.0 / static_cast<double>(s[-1])) + 1e-5);
  const Type w{DType::f32, {s[-1]}}, table{DType::f32, {s[0], 1, s[-1]}};
  return {{in(0) * in(0), rstd * (in(0) * in(2) * in(4) + in(1) * in(3) * in(5))},
          {{t, s}, {t, s}, w, w, table, table},
          {false},
          {t},
          {RowExtent::element},
          0,
          {0, run, 0, run, 0, 0}};
}

// The gradient of an RMS norm behind a rotation, without its scale: x, dy, its partners, cos, sin.
Rows rotated_gradient_of(const Shape& s, DType t, int64_t run) {
  const Scalar d = in(1) * in(3) + in(2) * in(4), sum = in(5);
  const Type table{DType::f32, {s[-1]}};
  return {{d * in(0), d - in(0) * sum, d * in(0)},
          {{t, s}, {t, s}, {t, s}, table, table},
          {false},
          {t, DType::f32},
          {RowExtent::element, RowExtent::partial},
          4,
          {0, 0, run, 0, 0}};
}

TEST(loops_on_host, rows__swap_runs) {
  for (const DType t : {DType::f32, DType::bf16})
    for (const bool unaligned : {false, true})
      for (const auto& [width, run] : {std::pair<int64_t, int64_t>{64, 1},
                                       {64, 32},
                                       {128, 32},
                                       {96, 48},
                                       {70, 35},
                                       {600, 300},
                                       {600, 1},
                                       {72, 2}}) {
        const Shape s = {3, 2, width};
        expect_rows(rotated_norm_of(s, t, run), s, unaligned);
        const Shape rows = {8, width};
        expect_rows(rotated_gradient_of(rows, t, run), rows, unaligned);
        const Shape heads = {2, 3, 20, width};  // the tables are those of a token
        Rows gradient = rotated_gradient_of(heads, t, run);
        gradient.in[3].shape = gradient.in[4].shape = {1, 3, 1, width};
        gradient.partial_rows = 5;
        expect_rows(gradient, heads, unaligned);
      }
}

// The partners of x and of gamma are of the same tensors: within a vector they are read once.
TEST(loops_on_host, rows__read_a_tensor_once) {
  for (const bool unaligned : {false, true})
    for (const int64_t run : {1, 2, 32}) {
      const Shape s = {3, 2, 64};
      Rows norm = rotated_norm_of(s, DType::bf16, run);
      norm.same = {-1, 0, -1, 2, -1, -1};
      expect_rows(norm, s, unaligned);
      const RowForm f = form_of(norm, s, unaligned);
      const size_t tensors = write_rows(f, row_layout(f, one_sm()), target).used.size();
      EXPECT_EQ(tensors, unaligned || run == 32 ? 6u : 4u) << run;
      Rows gradient = rotated_gradient_of({8, 64}, DType::bf16, run);
      gradient.same = {-1, -1, 1, -1, -1};
      expect_rows(gradient, {8, 64}, unaligned);
    }
}

// What heads share is loaded once for all of a thread's vectors, where it is at one place of each.
TEST(loops_on_host, rows__load_what_heads_share_once) {
  const auto loads = [](int lanes) {
    const Shape s = {1, 4, 32, 96};  // 12 vectors a head
    Rows norm = rotated_norm_of(s, DType::bf16, 1);
    norm.in[2].shape = norm.in[3].shape = {32, 96};
    norm.in[4].shape = norm.in[5].shape = {1, 4, 1, 96};
    norm.row_dims = 2;
    norm.same = {-1, 0, -1, 2, -1, -1};
    const RowForm f = form_of(norm, s, false);
    RowLayout l = row_layout(f, one_sm());
    l.lanes = l.threads = lanes;
    l.steps = 32 * 96 / l.vector / lanes;
    const Kernel code = write_rows(f, l, target).kernel;
    return std::ranges::count(code.code, Op::load, &Instruction::op);
  };
  EXPECT_EQ(loads(128), 3 * (1 + 2 + 4));
  EXPECT_EQ(loads(96), 4 * (1 + 2) + 4);
}

// The same over all heads: gamma differs from head to head, the tables do not.
TEST(loops_on_host, rows__of_all_heads) {
  for (const DType t : {DType::f32, DType::bf16})
    for (const bool unaligned : {false, true})
      for (const auto& [heads, width, run] : {std::tuple<int64_t, int64_t, int64_t>{4, 64, 1},
                                              {3, 64, 32},
                                              {6, 128, 64},
                                              {5, 70, 35},
                                              {24, 32, 16}}) {
        const Shape s = {2, 4, heads, width};
        Rows norm = rotated_norm_of(s, t, run);
        norm.in[2].shape = norm.in[3].shape = {heads, width};
        norm.in[4].shape = norm.in[5].shape = {1, 4, 1, width};
        norm.row_dims = 2;
        expect_rows(norm, s, unaligned);
        for (const Shape& table : {Shape{width}, Shape{1, 4, 1, width}}) {
          Rows gradient = rotated_gradient_of(s, t, run);
          gradient.in[3].shape = gradient.in[4].shape = table;
          gradient.row_dims = 2;
          gradient.partial_rows = table.rank() == 1 ? 4 : 2;
          expect_rows(gradient, s, unaligned);
        }
      }
}

// Text and image tokens in tensors of their own, with a gamma each.
TEST(loops_on_host, rows__of_tokens_in_segments) {
  for (const int64_t row_dims : {1, 2})
    for (const bool unaligned : {false, true}) {
      const Shape s = {2, 5, 3, 64};
      Rows norm = rotated_norm_of(s, DType::bf16, 32);
      norm.in[2].shape = norm.in[3].shape = {1, 5, row_dims == 2 ? 3 : 1, 64};
      norm.in[4].shape = norm.in[5].shape = {1, 5, 1, 64};
      norm.row_dims = row_dims;
      norm.segments = {.widths = {2, 3},
                       .segmented = {true, true, true, true, false, false},
                       .repeated = {false, false, true, true, false, false},
                       .dim = 1};
      expect_rows(norm, s, unaligned);
    }
}

// Queries of a tensor with all of q, k and v, [2,4,3,heads,width].
TEST(loops_on_host, rows__of_packed_heads) {
  for (const int64_t row_dims : {1, 2})
    for (const bool unaligned : {false, true}) {
      const int64_t heads = 4, width = 64;
      const Shape s = {2, 4, heads, width};
      Rows norm = rotated_norm_of(s, DType::bf16, 32);
      norm.in[4].shape = norm.in[5].shape = {1, 4, 1, width};
      norm.row_dims = row_dims;
      norm.slices.pitch.resize(6);
      norm.slices.begin.resize(6);
      norm.slices.pitch[0] = norm.slices.pitch[1] = {heads * width, 3 * heads * width};
      expect_rows(norm, s, unaligned);
    }
}

}  // namespace
}  // namespace ebb::codegen
