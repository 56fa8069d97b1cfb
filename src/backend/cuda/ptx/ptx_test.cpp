// Generated kernels as text: that the assembler takes them, what shapes share, divisions.
#include "backend/cuda/ptx/ptx.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>

#include "backend/cuda/generated/map_flat.h"
#include "backend/cuda/generated/map_strided.h"
#include "backend/cuda/generated/reduce_text.h"
#include "backend/cuda/generated/spatial_text.h"
#include "backend/cuda/ptx/expr_writer.h"
#include "ir/expr_inputs.h"
#include "support/files.h"

namespace ebb::cuda {
namespace {

using Kind = SegmentedMap::Operand;

std::string find_ptxas() {
  for (const char* path : {"ptxas", "/usr/local/cuda/bin/ptxas"})
    if (std::system(str(path, " --version >/dev/null 2>&1").c_str()) == 0) return path;
  return "";
}

// Assembles a text and expects it to be taken, without spilled registers.
void expect_assembles(const std::string& ptxas, const std::string& text, int target) {
  const testing::Folder folder;
  const std::string base = folder / "kernel";
  std::ofstream(base + ".ptx") << text;
  const std::string command = str(ptxas, " -warn-spills -Werror -arch=sm_", target, " ", base,
                                  ".ptx -o ", base, ".cubin 2>", base, ".log");
  if (std::system(command.c_str()) == 0) return;
  std::ifstream log(base + ".log");
  ADD_FAILURE() << std::string(std::istreambuf_iterator<char>(log), {}) << text;
}

// Every function, one result each.
Expr every_function() {
  const Scalar x[] = {Scalar::input(0), Scalar::input(1), Scalar::input(2)};
  std::vector<Scalar> r;
  for (int op = static_cast<int>(ScalarOp::add); op <= static_cast<int>(ScalarOp::select); ++op) {
    const auto f = static_cast<ScalarOp>(op);
    r.push_back(scalar_of(f, std::span(x).first(static_cast<size_t>(info_of(f).arguments))));
  }
  r.push_back(select(less(x[0], x[1]), x[2], Scalar(2.0)));
  return Expr(3, r);
}

TEST(ptx, every_function_and_dtype__assembles_for_every_target) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  const Expr all = every_function();
  const std::vector<DType> types = {DType::f32, DType::bf16, DType::f16,
                                    DType::i32, DType::i64,  DType::u8};
  for (const int target : {75, 80, 90})
    for (size_t k = 0; k < all.results().size(); k += types.size()) {
      std::vector<Scalar> in = {Scalar::input(0), Scalar::input(1), Scalar::input(2)};
      std::vector<Scalar> some;
      const auto results = all.apply(in);
      for (size_t i = k; i < std::min(k + types.size(), results.size()); ++i)
        some.push_back(results[i]);
      FlatForm form{Expr(3, some), {Kind::full, Kind::full, Kind::scalar}, {}, {}};
      for (size_t i = 0; i < 3; ++i) form.in.push_back(types[(k + i) % types.size()]);
      form.out.assign(types.begin(), types.begin() + static_cast<int64_t>(some.size()));
      expect_assembles(ptxas, write_flat(form, target).text, target);
    }
}

TEST(ptx, segments__assemble) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  const Scalar r[] = {Scalar::input(0) * Scalar::input(1)};
  const FlatForm form{
      Expr(2, r), {Kind::full, Kind::scalar}, {DType::f32, DType::f32}, {DType::bf16}, 512, true};
  const FlatText text = write_flat(form, 90);
  EXPECT_LE(text.parameter_bytes, most_parameters);
  expect_assembles(ptxas, text.text, 90);
}

StridedForm strided(const Shape& shape, const std::vector<Type>& in, DType out) {
  const Scalar a = Scalar::input(0) * Scalar::input(1) + Scalar::input(2);
  const Scalar r[] = {a * sigmoid(a)};
  StridedForm f{Expr(3, r), {}, {out}, {}, shape.numel()};
  std::vector<Type> all = in;
  all.push_back({DType::f32, shape});
  for (const Type& t : in) f.in.push_back(t.dtype);
  f.space = make_space(shape, all, std::vector<bool>(static_cast<size_t>(shape.rank())));
  return f;
}
// A norm's coefficients on an image.
StridedForm coefficients(int64_t n, int64_t size, int64_t c) {
  const Type k{DType::f32, {n, 1, 1, c}};
  return strided({n, size, size, c}, {{DType::bf16, {n, size, size, c}}, k, k}, DType::bf16);
}

TEST(ptx, broadcasting__assembles) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  StridedForm f = coefficients(2, 8, 64);
  expect_assembles(ptxas, write_strided(f, 90).text, 90);
  f.unaligned = true;
  expect_assembles(ptxas, write_strided(f, 90).text, 90);
  const Type group{DType::f32, {2, 1, 4, 1}};
  const Shape shape = {2, 9, 4, 6};
  const auto groups = strided(shape, {{DType::f16, shape}, group, {DType::f32, {6}}}, DType::f16);
  expect_assembles(ptxas, write_strided(groups, 90).text, 90);
}

// A segmented image and result.
StridedForm segmented(int64_t n, int64_t size, const std::vector<int64_t>& widths) {
  int64_t c = 0;
  for (const int64_t w : widths) c += w;
  StridedForm f = coefficients(n, size, c);
  f.segments = {widths, {true, false, false}, {true}};
  return f;
}

TEST(ptx, segmented_tensors__assemble) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  for (const auto& widths : {std::vector<int64_t>{64, 128}, {8, 20}, {7, 16}, {8, 8, 16}})
    for (const bool unaligned : {false, true}) {
      StridedForm f = segmented(2, 8, widths);
      f.unaligned = unaligned;
      const StridedText text = write_strided(f, 90);
      expect_assembles(ptxas, text.text, 90);
      EXPECT_EQ(text.pointers.size(), 2 + 2 * widths.size());
      EXPECT_EQ(text.alignment.size(), text.pointers.size());
    }
  EXPECT_EQ(write_strided(segmented(2, 8, {64, 128}), 90).text,
            write_strided(segmented(32, 16, {32, 16}), 90).text);
}

// x -> (x - mean) / deviation, in one sweep.
SpatialForm norm_of(int64_t pixels, int64_t channels, int64_t groups) {
  const double inverse = static_cast<double>(groups) / static_cast<double>(pixels * channels);
  const auto in = [](int64_t i) { return Scalar::input(i); };
  const Scalar x = in(0), rest = x - in(2) * inverse;
  const Scalar results[] = {x, in(1), rest * rest, in(3), rest * rsqrt(in(4) * inverse + 1e-6)};
  return in_one_sweep({.expr = Expr(5, results),
                       .in = {{.dtype = DType::bf16, .streams = true}},
                       .reductions = {SpatialReduction::pixels, SpatialReduction::groups,
                                      SpatialReduction::pixels, SpatialReduction::groups},
                       .out = {DType::bf16},
                       .per_channel = {false},
                       .images = 2,
                       .pixels = pixels,
                       .channels = channels,
                       .groups = groups});
}

TEST(ptx, images__assemble) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  for (const auto& f : {norm_of(4096, 192, 32), norm_of(35, 12, 4)})
    for (const bool unaligned : {false, true}) {
      const auto layouts = spatial_layouts(f, {}, unaligned);
      ASSERT_FALSE(layouts.empty());
      expect_assembles(ptxas, write_spatial(f, layouts[0], 90).text, 90);
    }
}

TEST(ptx, images_with_outputs_side_by_side__differ_in_their_strides) {
  constexpr uint32_t channels = 192;
  SpatialForm f = norm_of(4096, channels, 32);
  std::vector<Scalar> x;
  for (int64_t i = 0; i < f.expr.inputs(); ++i) x.push_back(Scalar::input(i));
  std::vector<Scalar> results = f.expr.apply(x);
  results.push_back(x[2]);  // sums of channels
  results.push_back(x[3]);
  f.expr = Expr(f.expr.inputs(), results);
  f.out = {DType::bf16, DType::f32, DType::f32};
  f.per_channel = {false, true, true};
  const SpatialLayout layout = spatial_layouts(f, {}, false).at(0);
  SpatialText separate = write_spatial(f, layout, 90);
  f.concatenated = 2;
  SpatialText concatenated = write_spatial(f, layout, 90);
  EXPECT_EQ(separate.text, concatenated.text);
  EXPECT_EQ(separate.pointers, concatenated.pointers);
  int strides = 0;
  for (int64_t at = 0; at + 4 <= separate.parameters.size(); at += 4) {
    uint32_t before = 0, after = 0;
    std::memcpy(&before, static_cast<char*>(separate.parameters.data()) + at, 4);
    std::memcpy(&after, static_cast<char*>(concatenated.parameters.data()) + at, 4);
    if (before == after) continue;
    EXPECT_EQ(before, channels);
    EXPECT_EQ(after, 2 * channels);
    ++strides;
  }
  EXPECT_EQ(strides, 2);
}

TEST(ptx, shapes_of_one_pattern__share_a_text) {
  EXPECT_EQ(write_strided(coefficients(2, 8, 64), 90).text,
            write_strided(coefficients(32, 16, 192), 90).text);
  EXPECT_NE(write_strided(coefficients(2, 8, 64), 90).text,
            write_strided(coefficients(2, 8, 66), 90).text);
}

TEST(ptx, reductions__assemble) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  const Scalar x = Scalar::input(0), r[] = {x * sigmoid(x), x};
  const Shape shapes[] = {{64, 4096}, {4096, 64}, {7, 5}, {3, 1}};
  for (const Shape& shape : shapes)
    for (const size_t run : {0u, 1u}) {
      const Type in[] = {{DType::bf16, shape}};
      ReduceForm f{Expr(1, r), {DType::bf16}, make_space(shape, in, {run == 0, run == 1})};
      const auto reduced = std::find(f.space.reduced.begin(), f.space.reduced.end(), true);
      if (reduced == f.space.reduced.end()) continue;
      f.kept_dims = static_cast<size_t>(reduced - f.space.reduced.begin());
      f.run_end = f.kept_dims + 1;
      for (const bool unaligned : {false, true})
        expect_assembles(ptxas, write_reduce(f, layout_of(f, 132, unaligned), 90).text, 90);
    }
}

TEST(ptx, divisor__is_exact_below_2_to_31) {
  const int64_t top = (int64_t{1} << 31) - 1;
  for (const int64_t d : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{192},
                          int64_t{65537}, top - 1, top}) {
    const Reciprocal by(d);
    for (const int64_t n :
         {int64_t{0}, d - 1, d, d + 1, 3 * d - 1, 3 * d, top / d * d - 1, top / d * d, top}) {
      if (n < 0 || n > top) continue;
      const uint64_t q = (2 * static_cast<uint64_t>(n) * by.multiplier >> 32) >> by.shift;
      EXPECT_EQ(static_cast<int64_t>(q), n / d) << n << " / " << d;
    }
  }
}

// gelu with tanh, and its derivative.
Expr gelu_tanh() {
  const Scalar x = Scalar::input(0), t = tanh(x * (0.7978845608 + 0.0356774081 * x * x));
  const Scalar r[] = {0.5 * x * (1.0 + t), 0.5 * (t + 1.0) + x * (1.0 - t * t)};
  return Expr(1, r);
}

TEST(ptx, simplified__is_the_same_function_without_tanh) {
  const Expr before = gelu_tanh(), after = simplified(before);
  for (const Expr::Instruction& i : after.code()) EXPECT_NE(i.op, ScalarOp::tanh);
  for (double x = -6; x <= 6; x += 0.01) {
    double want[2], got[2];
    before.evaluate(std::span(&x, 1), want);
    after.evaluate(std::span(&x, 1), got);
    for (int k = 0; k < 2; ++k) EXPECT_NEAR(got[k], want[k], 1e-14);
  }
}

TEST(ptx, simplified__keeps_other_expressions) {
  const Expr all = every_function();
  EXPECT_EQ(simplified(all).results().size(), all.results().size());
  const double in[] = {0.7, 1.3, -0.4};
  std::vector<double> want(all.results().size()), got = want;
  all.evaluate(in, want);
  simplified(all).evaluate(in, got);
  EXPECT_EQ(got, want);
}

TEST(ptx, precision__is_full_for_what_any_f32_result_needs) {
  const Scalar x = Scalar::input(0), e = exp(x);
  const Scalar r[] = {tanh(e), sin(x)};
  const Expr f(1, r);
  const auto full = precisions(f, {true, false});
  const auto narrow = precisions(f, {true, true});
  for (size_t i = 0; i < f.code().size(); ++i) {
    const ScalarOp op = f.code()[i].op;
    EXPECT_EQ(full[i] == Precision::full, op == ScalarOp::sin || op == ScalarOp::input);
    EXPECT_EQ(narrow[i], Precision::narrow);
  }
}

}  // namespace
}  // namespace ebb::cuda
