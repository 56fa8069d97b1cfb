// Generated loops run on the host, value by value and with the registers that the PTX emitter
// shares, against their expressions in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "codegen/loops/map_flat.h"
#include "codegen/loops/map_strided.h"
#include "codegen/loops/pixel_kernel.h"
#include "codegen/loops/reduce_kernel.h"
#include "support/expressions.h"
#include "support/host_loops.h"

namespace ebb::codegen {
namespace {

using testing::in;
using testing::silu;
using testing::target;

// ---- maps --------------------------------------------------------------------------------------

void expect_flat(int64_t count, bool unaligned, DType dtype, const Target& on = target) {
  const Scalar r[] = {silu(in(0)) + in(1) * in(2), max(in(0), in(1))};
  const FlatForm form{.expr = Expr(3, r),
                      .kinds = {FlatOperand::full, FlatOperand::full, FlatOperand::scalar},
                      .in = {dtype, DType::f32, DType::f32},
                      .out = {dtype, DType::f32},
                      .unaligned = unaligned};
  const FlatKernel made = write_flat(form, on);
  std::vector<Buffer> x, out;
  for (int i = 0; i < 3; ++i)
    x.push_back(Buffer::random(form.in[static_cast<size_t>(i)], i == 2 ? 1 : count, i, unaligned));
  for (const DType t : form.out) out.emplace_back(t, count, unaligned);
  Parameters p;
  p.add(made.parameter_bytes);
  p.set(8, static_cast<uint64_t>(count));
  for (size_t i = 0; i < 3; ++i) p.set(16 + 8 * static_cast<int64_t>(i), x[i].data());
  for (size_t k = 0; k < 2; ++k) p.set(40 + 8 * static_cast<int64_t>(k), out[k].data());
  const auto blocks = static_cast<int>((count + made.chunk - 1) / made.chunk);
  expect_results(made.kernel, p.data(), {.blocks = blocks, .threads = made.threads}, out,
                 [&](size_t k, int64_t i) {
                   return evaluated(form.expr, {x[0].get(i), x[1].get(i), x[2].get(0)})[k];
                 });
}

TEST(loops_on_host, flat_map__gives_the_expression) {
  for (const int64_t count : {1, 1000, 5003})
    for (const bool unaligned : {false, true})
      for (const DType t : {DType::f32, DType::bf16, DType::f16}) expect_flat(count, unaligned, t);
}

// 1 MB of bf16 would be 64 blocks of four vectors a thread, for 132 processors.
TEST(loops_on_host, small_maps__have_blocks_for_all_processors) {
  const Scalar r[] = {in(0) * 3.0};
  FlatForm flat{Expr(1, r), {FlatOperand::full}, {DType::bf16}, {DType::bf16}};
  flat.elements = int64_t{1} << 27;
  EXPECT_EQ(write_flat(flat, target).chunk, 4 * 2048);
  flat.elements = int64_t{1} << 19;
  EXPECT_EQ(write_flat(flat, target).chunk, 2048);
  const Scalar scaled[] = {in(0) * in(1)};
  for (const int64_t tokens : {64, 8192}) {
    const Type x{DType::bf16, {tokens, 32, 128}}, table{DType::bf16, {tokens, 1, 128}};
    const Type all[] = {x, table, x};
    StridedForm f{Expr(2, scaled), {x.dtype, table.dtype}, {x.dtype}, {}, x.shape.numel()};
    f.space = make_iteration_space(x.shape, all, std::vector<bool>(3));
    f.elements = x.shape.numel();
    EXPECT_EQ(write_strided(f, target).steps, tokens == 64 ? 1 : 4) << tokens;
  }
}

// Three segments of different counts in one launch.
TEST(loops_on_host, segmented_flat_map__finds_its_segment) {
  const Scalar r[] = {in(0) * 3.0};
  const FlatForm form{Expr(1, r), {FlatOperand::full}, {DType::f32}, {DType::f32}, 8, true};
  const FlatKernel made = write_flat(form, target);
  const int64_t counts[] = {5000, 3, 9000};
  std::vector<Buffer> x, out;
  Parameters p;
  p.add(made.parameter_bytes);
  p.set(0, uint32_t{3});
  int64_t blocks = 0;
  for (int64_t s = 0; s < 3; ++s) {
    x.push_back(Buffer::random(DType::f32, counts[s], static_cast<int>(s)));
    out.emplace_back(DType::f32, counts[s]);
  }
  for (int64_t s = 0; s < 3; ++s) {
    const int64_t at = made.first_entry + s * made.entry_bytes;
    p.set(at, static_cast<uint32_t>(blocks));
    p.set(at + 8, static_cast<uint64_t>(counts[s]));
    p.set(at + 16, x[static_cast<size_t>(s)].data());
    p.set(at + 24, out[static_cast<size_t>(s)].data());
    blocks += (counts[s] + made.chunk - 1) / made.chunk;
  }
  expect_results(made.kernel, p.data(),
                 {.blocks = static_cast<int>(blocks), .threads = made.threads}, out,
                 [&](size_t k, int64_t i) { return 3 * x[k].get(i); });
}

// Operands of these types, broadcast to the shape.
void set_operands(StridedForm& f, const std::vector<Type>& types, const Shape& shape) {
  std::vector<Type> all = types;
  all.push_back({DType::f32, shape});
  for (const Type& t : types) f.in.push_back(t.dtype);
  f.space = make_iteration_space(shape, all, std::vector<bool>(static_cast<size_t>(shape.rank())));
}

void expect_strided(const Shape& shape, const std::vector<Type>& types, bool unaligned,
                    const Target& on = target) {
  const Scalar a = in(0) * in(1) + in(2), r[] = {silu(a)};
  StridedForm f{Expr(3, r), {}, {types[0].dtype}, {}, shape.numel(), unaligned};
  set_operands(f, types, shape);
  LoopKernel made = write_strided(f, on);
  std::vector<Buffer> x, out;
  for (size_t i = 0; i < types.size(); ++i)
    x.push_back(Buffer::random(f.in[i], types[i].shape.numel(), static_cast<int>(i), unaligned));
  out.emplace_back(f.out[0], shape.numel(), unaligned);
  const auto blocks = static_cast<int>(made.blocks);
  expect_results(made, x, out, {.blocks = blocks}, [&](size_t, int64_t i) {
    std::vector<double> at;
    for (size_t k = 0; k < x.size(); ++k) at.push_back(element(f.space, k, x[k], i));
    return evaluated(f.expr, at)[0];
  });
}

TEST(loops_on_host, strided_map__broadcasts) {
  for (const bool unaligned : {false, true}) {
    const Type image{DType::bf16, {2, 6, 6, 16}}, number{DType::f32, {2, 1, 1, 16}};
    expect_strided(image.shape, {image, number, number}, unaligned);
    const Shape odd = {2, 9, 4, 6};
    expect_strided(odd, {{DType::f16, odd}, {DType::f32, {2, 1, 4, 1}}, {DType::f32, {6}}},
                   unaligned);
  }
}

// Of three results the last two are columns of one tensor.
void expect_columns(const Shape& shape, const std::vector<Type>& types, DType dtype,
                    bool unaligned) {
  const Scalar r[] = {in(0) * in(1), in(0) + in(2), silu(in(0)) - in(1)};
  StridedForm f{Expr(3, r), {}, {dtype, dtype, dtype}, {}, shape.numel(), unaligned};
  set_operands(f, types, shape);
  std::vector<int64_t> wide = f.full_strides();
  for (size_t d = 0; d + 1 < wide.size(); ++d) wide[d] *= 2;
  f.space.strides.push_back(wide);
  f.concatenated = 2;
  LoopKernel made = write_strided(f, target);
  std::vector<Buffer> x, out;
  for (size_t i = 0; i < types.size(); ++i)
    x.push_back(Buffer::random(f.in[i], types[i].shape.numel(), static_cast<int>(i), unaligned));
  for (const int64_t results : {1, 2}) out.emplace_back(dtype, results * shape.numel(), unaligned);
  const int64_t width = shape[-1];
  std::vector<void*> all;
  for (const size_t i : made.used) all.push_back(x[i].data());
  for (Buffer& b : out) all.push_back(b.data());
  all.push_back(static_cast<char*>(out[1].data()) + width * size_of(dtype));
  ASSERT_EQ(all.size(), made.pointers.size());
  for (size_t k = 0; k < all.size(); ++k) made.parameters.set(made.pointers[k], all[k]);
  const testing::HostLaunch launch{.blocks = static_cast<int>(made.blocks),
                                   .threads = made.threads};
  expect_results(made.kernel, made.parameters.data(), launch, out, [&](size_t b, int64_t i) {
    const int64_t columns = b == 0 ? width : 2 * width, row = i / columns, column = i % columns;
    std::vector<double> at;
    for (size_t k = 0; k < x.size(); ++k)
      at.push_back(element(f.space, k, x[k], row * width + column % width));
    return evaluated(f.expr, at)[b == 0 ? 0 : static_cast<size_t>(1 + column / width)];
  });
}

TEST(loops_on_host, strided_map__writes_columns) {
  for (const bool unaligned : {false, true})
    for (const DType t : {DType::bf16, DType::f32}) {
      const auto expect = [&](const Shape& shape, const Shape& a, const Shape& b) {
        expect_columns(shape, {{t, shape}, {DType::f32, a}, {DType::f32, b}}, t, unaligned);
      };
      expect({2, 6, 6, 16}, {2, 1, 1, 16}, {16});
      expect({4, 8, 64}, {4, 1, 64}, {64});  // several rows a thread
      expect({2, 9, 4, 6}, {2, 1, 4, 1}, {6});
      expect({3, 5, 13}, {5, 1}, {13});
    }
}

// in(0) in(2) + in(1) in(3), where in(1) has swapped runs.
void expect_rotated(const Shape& shape, int64_t run, DType dtype, bool unaligned, bool same) {
  const Scalar r[] = {in(0) * in(2) + in(1) * in(3)};
  const Type x{dtype, shape}, table{DType::f32, {shape[1], 1, shape[-1]}};
  StridedForm f{Expr(4, r), {}, {dtype}, {}, shape.numel(), unaligned};
  f.swaps.runs = {0, run, 0, 0};
  if (same) f.same = {-1, 0, -1, -1};
  const std::vector<Type> types = {x, x, table, table};
  set_operands(f, types, shape);
  LoopKernel made = write_strided(f, target);
  std::vector<Buffer> from, out;
  for (size_t i = 0; i < types.size(); ++i)
    from.push_back(Buffer::random(f.in[i], types[i].shape.numel(), static_cast<int>(i), unaligned));
  if (same) from[1] = from[0].copy();
  if (same && run == 1) {
    EXPECT_EQ(made.used.size(), unaligned ? 4u : 3u);
  }
  out.emplace_back(dtype, shape.numel(), unaligned);
  const auto blocks = static_cast<int>(made.blocks);
  expect_results(made, from, out, {.blocks = blocks}, [&](size_t, int64_t i) {
    const int64_t width = shape[-1], row = i / width * width;
    std::vector<double> at;
    for (size_t k = 0; k < from.size(); ++k)
      at.push_back(element(f.space, k, from[k], row + swapped(i % width, f.swaps.runs[k])));
    return evaluated(f.expr, at)[0];
  });
}

TEST(loops_on_host, strided_map__swaps_runs) {
  for (const bool unaligned : {false, true})
    for (const bool same : {false, true})
      for (const DType t : {DType::bf16, DType::f32}) {
        expect_rotated({2, 3, 2, 16}, 1, t, unaligned, same);   // in a vector
        expect_rotated({2, 3, 2, 16}, 8, t, unaligned, same);   // of whole vectors
        expect_rotated({1, 3, 2, 64}, 16, t, unaligned, same);  // two pairs of runs
        expect_rotated({1, 4, 2, 12}, 3, t, unaligned, same);   // of single elements
        expect_rotated({1, 4, 2, 24}, 2, t, unaligned, same);
        expect_rotated({1, 4, 1, 10}, 5, t, unaligned, same);
      }
}

// ---- reductions
// ----------------------------------------------------------------------------------

void expect_reduced(const Shape& shape, size_t dim, bool maximum, bool direct, DType dtype,
                    bool unaligned, const Target& on = target) {
  const Scalar r[] = {silu(in(0)), in(0) * in(0)};
  const Type types[] = {{dtype, shape}};
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()));
  reduced[dim] = true;
  ReduceForm f{Expr(1, r), {dtype}, make_iteration_space(shape, types, reduced)};
  f.kept_dims = dim;
  f.run_end = dim + 1;
  f.maximum = maximum;
  f.scale = 0.5f;
  f.unaligned = unaligned;
  f.out = {dtype, DType::f32};
  Target few = on;
  few.sm_count = 4;
  ReduceLayout layout = layout_of(f, few);
  layout.direct = direct && layout.chunks == 1;
  LoopKernel made = write_reduce(f, layout, few);
  std::vector<Buffer> x, out;
  x.push_back(Buffer::random(dtype, shape.numel(), 1, unaligned));
  const int64_t kept = f.kept(), inner = f.inner(), chunks = layout.direct ? 1 : layout.chunks;
  for (int k = 0; k < (layout.direct ? 2 : 1); ++k)
    out.emplace_back(layout.direct ? f.out[static_cast<size_t>(k)] : DType::f32,
                     kept * chunks * inner * (layout.direct ? 1 : 2), unaligned);
  const int64_t along = f.rows() ? layout.vector : 1;  // elements of a unit of per_chunk
  expect_results(
      made, x, out, {.blocks = static_cast<int>(made.blocks)}, [&](size_t buffer, int64_t i) {
        const int64_t i_inner = i % inner, chunk = i / inner % chunks,
                      i_kept = i / inner / chunks % kept;
        const size_t k = layout.direct ? buffer : static_cast<size_t>(i / inner / chunks / kept);
        double all = maximum ? -INFINITY : 0;
        const int64_t first = chunk * layout.per_chunk * along;
        const int64_t end = std::min(f.run(), first + layout.per_chunk * along);
        for (int64_t s = first; s < end; ++s) {
          const double v =
              evaluated(f.expr, {x[0].get((i_kept * f.run() + s) * inner + i_inner)})[k];
          all = maximum ? std::max(all, v) : all + v;
        }
        return layout.direct && !maximum ? all * 0.5 : all;
      });
}

TEST(loops_on_host, reductions__give_sums_and_maxima) {
  for (const DType t : {DType::f32, DType::bf16})
    for (const bool direct : {false, true})
      for (const bool maximum : {false, true})
        for (const bool unaligned : {false, true}) {
          expect_reduced({37, 24}, 1, maximum, direct, t, unaligned);   // few lanes
          expect_reduced({6, 2000}, 1, maximum, direct, t, unaligned);  // a block
          expect_reduced({40, 70}, 0, maximum, direct, t, unaligned);   // columns
          expect_reduced({2, 50, 12}, 1, maximum, direct, t, unaligned);
        }
}

TEST(loops_on_host, maps_and_reductions__for_subgroups_of_other_sizes) {
  for (const int subgroup : {8, 16, 32, 64}) {
    SCOPED_TRACE(subgroup);
    Target on = target;
    on.subgroup = subgroup;
    expect_flat(1000, false, DType::bf16, on);
    const Type image{DType::bf16, {2, 6, 6, 16}}, number{DType::f32, {2, 1, 1, 16}};
    expect_strided(image.shape, {image, number, number}, false, on);
    for (const bool maximum : {false, true})
      for (const bool direct : {false, true}) {
        expect_reduced({37, 24}, 1, maximum, direct, DType::f32, false, on);    // a thread each
        expect_reduced({37, 48}, 1, maximum, direct, DType::f32, true, on);     // several a block
        expect_reduced({6, 2000}, 1, maximum, direct, DType::bf16, false, on);  // a subgroup
        expect_reduced({3, 2000}, 1, maximum, direct, DType::f32, true, on);    // a block
        expect_reduced({100, 24}, 0, maximum, direct, DType::bf16, false, on);  // columns
        expect_reduced({40, 70}, 0, maximum, direct, DType::f32, true, on);
      }
  }
}

// Of columns of bf16; on an H200.
ReduceLayout layout_of_columns(int64_t rows, int64_t columns) {
  const Scalar r[] = {in(0) * in(1)};
  const Type x{DType::bf16, {rows, columns}};
  const Type types[] = {x, x};
  const ReduceForm f{.expr = Expr(2, r),
                     .in = {x.dtype, x.dtype},
                     .space = make_iteration_space(x.shape, types, {true, false}),
                     .run_end = 1};
  return layout_of(f, target);
}

TEST(loops_on_host, sums_of_few_rows__are_one_launch) {
  for (const int64_t rows : {2, 31, 64, 127})
    EXPECT_EQ(layout_of_columns(rows, 4096).chunks, 1) << rows;
  EXPECT_GT(layout_of_columns(2048, 4096).chunks, 1);
  EXPECT_EQ(layout_of_columns(2048, 128).chunks, 1);  // of a part of a line each
  EXPECT_GT(layout_of_columns(4096, 128).chunks, 1);
  EXPECT_GT(layout_of_columns(16384, 4608).chunks, 1);             // whole lines, or none
  expect_reduced({100, 512}, 0, false, true, DType::bf16, false);  // a cache line across
}

// ---- pixels ------------------------------------------------------------------------------------

// A group norm with SiLU, and the sums of its channels.
PixelForm group_norm(DType t, int64_t images, int64_t pixels, int64_t channels, int64_t groups) {
  const double inverse = static_cast<double>(groups) / static_cast<double>(pixels * channels);
  const Scalar rest = in(0) - in(4) * inverse;
  const Scalar results[] = {
      in(0), in(3), rest * rest, in(5), silu(rest * rsqrt(in(6) * inverse + 1e-5) * in(1) + in(2)),
      in(3)};
  return in_one_sweep({.expr = Expr(7, results),
                       .in = {{.dtype = t, .streams = true},
                              {.dtype = DType::f32, .channel_stride = 1},
                              {.dtype = DType::f32, .channel_stride = 1}},
                       .reductions = {PixelReduction::pixels, PixelReduction::groups,
                                      PixelReduction::pixels, PixelReduction::groups},
                       .out = {t, DType::f32},
                       .per_channel = {false, true},
                       .images = images,
                       .pixels = pixels,
                       .channels = channels,
                       .groups = groups});
}

void expect_group_norm(const PixelForm& f, const PixelLayout& layout) {
  const bool unaligned = f.unaligned;
  LoopKernel made = write_pixels(f, layout, target);
  const int64_t elements = f.images * f.pixels * f.channels;
  std::vector<Buffer> x, out;
  x.push_back(Buffer::random(f.in[0].dtype, elements, 0, unaligned));
  for (int i = 1; i < 3; ++i) x.push_back(Buffer::random(DType::f32, f.channels, i, unaligned));
  out.emplace_back(f.out[0], elements, unaligned);
  out.emplace_back(DType::f32, f.images * f.channels, unaligned);
  const auto at = [&](int64_t image, int64_t pixel, int64_t channel) {
    return x[0].get((image * f.pixels + pixel) * f.channels + channel);
  };
  expect_results(
      made, x, out,
      {.blocks = static_cast<int>(made.blocks), .cluster = made.cluster, .shared = made.shared},
      [&](size_t k, int64_t i) {
        const int64_t c = i % f.channels, first = c / f.group() * f.group();
        const int64_t image = k == 1 ? i / f.channels : i / f.channels / f.pixels;
        double sum = 0, squares = 0, own = 0;
        for (int64_t p = 0; p < f.pixels; ++p) {
          own += at(image, p, c);
          for (int64_t d = first; d < first + f.group(); ++d) sum += at(image, p, d);
        }
        if (k == 1) return own;
        const double n = static_cast<double>(f.pixels * f.group()), mean = sum / n;
        for (int64_t p = 0; p < f.pixels; ++p)
          for (int64_t d = first; d < first + f.group(); ++d)
            squares += (at(image, p, d) - mean) * (at(image, p, d) - mean);
        const double y =
            (x[0].get(i) - mean) / std::sqrt(squares / n + 1e-5) * x[1].get(c) + x[2].get(c);
        return y / (1 + std::exp(-y));
      });
}

TEST(loops_on_host, group_norm__in_one_block_and_in_clusters) {
  for (const DType t : {DType::f32, DType::bf16})
    for (const bool unaligned : {false, true}) {
      PixelForm f = group_norm(t, 2, 35, 16, 4);
      f.unaligned = unaligned;
      const auto layouts = pixel_layouts(f, target);
      ASSERT_FALSE(layouts.empty());
      int clusters = 0;
      for (const PixelLayout& l : layouts) {
        if (l.cluster > 3 || l.threads > 256 || (clusters & 1 << l.cluster) != 0) continue;
        clusters |= 1 << l.cluster;
        expect_group_norm(f, l);
      }
      EXPECT_EQ(clusters, 0b1110);
    }
}

}  // namespace
}  // namespace ebb::codegen
