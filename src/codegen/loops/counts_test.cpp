// Instructions of generated kernels, as recorded: a change that makes a loop longer shows in the
// file's diff. With EBB_RECORD=1 the file is written anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "codegen/expr_writer.h"
#include "codegen/loops/map_flat.h"
#include "codegen/loops/map_strided.h"
#include "codegen/loops/pixel_kernel.h"
#include "codegen/loops/reduce_kernel.h"
#include "codegen/loops/row_kernel.h"
#include "support/expressions.h"
#include "support/files.h"
#include "support/source_folder.h"

namespace ebb::codegen {
namespace {

using testing::in;
using testing::silu;
using testing::target;

Expr made(int64_t inputs, const std::vector<Scalar>& results) {
  return simplified(Expr(inputs, results));
}

// "name: instructions, of these in loops; accesses, shuffles, barriers".
std::string line(std::string_view name, const Kernel& k) {
  const Regions regions(k);
  int in_loops = 0, accesses = 0, shuffles = 0, barriers = 0;
  for (size_t c = 0; c < k.code.size(); ++c) {
    const Op op = k.code[c].op;
    in_loops += regions.loop_of[c] >= 0;
    accesses += op >= Op::load && op <= Op::store_shared && op != Op::shared_address &&
                op != Op::shared_move;
    shuffles += op == Op::shuffle_xor || op == Op::shuffle_down;
    barriers += op == Op::barrier || op == Op::cluster_wait;
  }
  return str(name, ": ", k.code.size(), " instructions, ", in_loops, " in loops; ", accesses,
             " accesses, ", shuffles, " shuffles, ", barriers, " barriers\n");
}

Kernel flat(const std::vector<Scalar>& r, const std::vector<FlatOperand>& kinds, DType dtype) {
  const auto inputs = static_cast<int64_t>(kinds.size());
  return write_flat({made(inputs, r), kinds, std::vector<DType>(kinds.size(), dtype),
                     std::vector<DType>(r.size(), dtype), r.size() > 1 ? 64 : 1, r.size() > 1},
                    target)
      .kernel;
}

Kernel adamw() {
  const Scalar m = 0.9 * in(2) + 0.1 * in(1), s = 0.999 * in(3) + 0.001 * in(1) * in(1);
  const Scalar p = in(0) - in(4) * (m / (sqrt(s) + 1e-8) + 0.01 * in(0));
  return flat({p, m, s},
              {FlatOperand::full, FlatOperand::full, FlatOperand::full, FlatOperand::full,
               FlatOperand::scalar},
              DType::f32);
}

// A group norm's affine map.
Kernel affine() {
  const Type x{DType::bf16, {2, 8, 8, 64}}, k{DType::f32, {2, 1, 1, 64}};
  const Type all[] = {x, k, k, {DType::f32, x.shape}};
  StridedForm f{made(3, {silu(in(0) * in(1) + in(2))}),
                {x.dtype, k.dtype, k.dtype},
                {DType::bf16},
                make_iteration_space(x.shape, all, std::vector<bool>(4)),
                x.shape.numel()};
  return write_strided(f, target).kernel;
}

Kernel reduction(size_t dim) {
  const Type x[] = {{DType::bf16, {4096, 1024}}};
  std::vector<bool> reduced(2);
  reduced[dim] = true;
  ReduceForm f{
      made(1, {in(0) * in(0)}), {DType::bf16}, make_iteration_space(x[0].shape, x, reduced)};
  f.kept_dims = dim;
  f.run_end = dim + 1;
  return write_reduce(f, layout_of(f, target), target).kernel;
}

Kernel rows(const std::vector<Scalar>& r, const std::vector<bool>& maximum,
            const std::vector<DType>& out, const std::vector<RowExtent>& extents, int64_t partial) {
  const Type x{DType::bf16, {16384, 1152}};
  const Type all[] = {x, x, {DType::f32, {1152}}, {DType::f32, x.shape}};
  RowForm f{.expr = made(static_cast<int64_t>(3 + maximum.size()), r),
            .in = {x.dtype, x.dtype, DType::f32},
            .out = out,
            .maximum = maximum,
            .extents = extents,
            .partial_rows = partial,
            .space = make_iteration_space(x.shape, all, {false, true})};
  return write_rows(f, row_layout(f, target), target).kernel;
}
constexpr double inverse = 1.0 / 1152;
Kernel layer_norm() {
  const Scalar rest = in(0) - in(3) * inverse;
  return rows({in(0), rest * rest, rest * rsqrt(in(4) * inverse + 1e-6) * in(2)}, {false, false},
              {DType::bf16}, {RowExtent::element}, 0);
}
Kernel softmax() {
  const Scalar e = exp(in(0) - in(3));
  return rows({in(0), e, e / in(4)}, {true, false}, {DType::bf16}, {RowExtent::element}, 0);
}
Kernel norm_gradient() {
  const Scalar g = in(1) * in(2);
  return rows({g, g * in(0), g - (in(3) + in(0) * in(4)) * inverse, in(1) * in(0)}, {false, false},
              {DType::bf16, DType::f32}, {RowExtent::element, RowExtent::partial}, 32);
}

Kernel group_norm(int64_t pixels, int64_t channels) {
  const double each = 32.0 / static_cast<double>(pixels * channels);
  const Scalar rest = in(0) - in(2) * each;
  const Scalar results[] = {in(0), in(1), rest * rest, in(3),
                            silu(rest * rsqrt(in(4) * each + 1e-6))};
  const PixelForm f = in_one_sweep({.expr = Expr(5, results),
                                    .in = {{.dtype = DType::bf16, .streams = true}},
                                    .reductions = {PixelReduction::pixels, PixelReduction::groups,
                                                   PixelReduction::pixels, PixelReduction::groups},
                                    .out = {DType::bf16},
                                    .per_channel = {false},
                                    .images = 32,
                                    .pixels = pixels,
                                    .channels = channels,
                                    .groups = 32});
  return write_pixels(f, pixel_layouts(f, target).at(0), target).kernel;
}

TEST(generated_kernels, instructions__are_what_is_recorded) {
  std::string text =
      line("flat map, SiLU, bf16", flat({silu(in(0))}, {FlatOperand::full}, DType::bf16));
  text += line("flat map, SiLU, f32", flat({silu(in(0))}, {FlatOperand::full}, DType::f32));
  text += line("flat map of segments, AdamW, f32", adamw());
  text += line("strided map, affine and SiLU, bf16", affine());
  text += line("reduction of rows, bf16", reduction(1));
  text += line("reduction of columns, bf16", reduction(0));
  text += line("rows, layer norm, bf16 of 1152", layer_norm());
  text += line("rows, softmax, bf16 of 1152", softmax());
  text += line("rows, gradient of a norm, bf16 of 1152", norm_gradient());
  text += line("pixels, group norm and SiLU, bf16 [64,64,192]", group_norm(4096, 192));
  text += line("pixels, group norm and SiLU, bf16 [8,8,768]", group_norm(64, 768));
  const std::string path = testing::source_folder() + "/tests/golden/generated_kernels.txt";
  if (std::getenv("EBB_RECORD")) std::ofstream(path) << text;
  EXPECT_EQ(text, testing::file_bytes(path));
}

}  // namespace
}  // namespace ebb::codegen
