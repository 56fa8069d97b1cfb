// Generated kernels as text: that the assembler takes them, and what shapes share.
#include "backend/cuda/ptx/emit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>

#include "codegen/expr_writer.h"
#include "codegen/loops/map_flat.h"
#include "codegen/loops/map_strided.h"
#include "codegen/loops/pixel_kernel.h"
#include "codegen/loops/reduce_kernel.h"
#include "ir/expr_inputs.h"
#include "support/every_function.h"
#include "support/files.h"

namespace ebb::cuda {
namespace {

using namespace codegen;

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

TEST(ptx, every_function_and_dtype__assembles_for_every_target) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  const Expr all = testing::every_function();
  const std::vector<DType> types = {DType::f32, DType::bf16, DType::f16,
                                    DType::i32, DType::i64,  DType::u8};
  for (const int target : {75, 80, 90})
    for (size_t k = 0; k < all.results().size(); k += types.size()) {
      std::vector<Scalar> in = {Scalar::input(0), Scalar::input(1), Scalar::input(2)};
      std::vector<Scalar> some;
      const auto results = all.apply(in);
      for (size_t i = k; i < std::min(k + types.size(), results.size()); ++i)
        some.push_back(results[i]);
      FlatForm form{
          Expr(3, some), {FlatOperand::full, FlatOperand::full, FlatOperand::scalar}, {}, {}};
      for (size_t i = 0; i < 3; ++i) form.in.push_back(types[(k + i) % types.size()]);
      form.out.assign(types.begin(), types.begin() + static_cast<int64_t>(some.size()));
      expect_assembles(ptxas, emit_ptx(write_flat(form, target_of(target)).kernel, target), target);
    }
}

TEST(ptx, segments__assemble) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  const Scalar r[] = {Scalar::input(0) * Scalar::input(1)};
  const FlatForm form{Expr(2, r),
                      {FlatOperand::full, FlatOperand::scalar},
                      {DType::f32, DType::f32},
                      {DType::bf16},
                      512,
                      true};
  const FlatKernel made = write_flat(form, target_of(90));
  EXPECT_LE(made.parameter_bytes, most_parameters);
  expect_assembles(ptxas, emit_ptx(made.kernel, 90), 90);
}

StridedForm strided(const Shape& shape, const std::vector<Type>& in, DType out) {
  const Scalar a = Scalar::input(0) * Scalar::input(1) + Scalar::input(2);
  const Scalar r[] = {a * sigmoid(a)};
  StridedForm f{Expr(3, r), {}, {out}, {}, shape.numel()};
  std::vector<Type> all = in;
  all.push_back({DType::f32, shape});
  for (const Type& t : in) f.in.push_back(t.dtype);
  f.space = make_iteration_space(shape, all, std::vector<bool>(static_cast<size_t>(shape.rank())));
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
  expect_assembles(ptxas, emit_ptx(write_strided(f, target_of(90)).kernel, 90), 90);
  f.unaligned = true;
  expect_assembles(ptxas, emit_ptx(write_strided(f, target_of(90)).kernel, 90), 90);
  const Type group{DType::f32, {2, 1, 4, 1}};
  const Shape shape = {2, 9, 4, 6};
  const auto groups = strided(shape, {{DType::f16, shape}, group, {DType::f32, {6}}}, DType::f16);
  expect_assembles(ptxas, emit_ptx(write_strided(groups, target_of(90)).kernel, 90), 90);
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
      const LoopKernel made = write_strided(f, target_of(90));
      expect_assembles(ptxas, emit_ptx(made.kernel, 90), 90);
      EXPECT_EQ(made.pointers.size(), 2 + 2 * widths.size());
    }
  EXPECT_EQ(emit_ptx(write_strided(segmented(2, 8, {64, 128}), target_of(90)).kernel, 90),
            emit_ptx(write_strided(segmented(32, 16, {32, 16}), target_of(90)).kernel, 90));
}

// Two results that are columns of one tensor.
StridedForm columns(int64_t n, int64_t size, int64_t c) {
  StridedForm f = coefficients(n, size, c);
  const std::vector<Scalar> y = f.expr.apply(inputs_as_scalars(f.expr));
  const Scalar results[] = {y[0], y[0] * 2.0};
  f.expr = Expr(f.expr.inputs(), results);
  f.out.push_back(f.out[0]);
  std::vector<int64_t> wide = f.full_strides();
  for (size_t d = 0; d + 1 < wide.size(); ++d) wide[d] *= 2;
  f.space.strides.push_back(wide);
  f.concatenated = 2;
  return f;
}

TEST(ptx, columns_of_one_tensor__assemble) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  for (const int64_t c : {64, 12, 7}) {
    const LoopKernel made = write_strided(columns(2, 8, c), target_of(90));
    expect_assembles(ptxas, emit_ptx(made.kernel, 90), 90);
    EXPECT_EQ(made.pointers.size(), 5u);
  }
  EXPECT_EQ(emit_ptx(write_strided(columns(2, 8, 64), target_of(90)).kernel, 90),
            emit_ptx(write_strided(columns(32, 16, 192), target_of(90)).kernel, 90));
}

// x -> (x - mean) / deviation, in one sweep.
PixelForm norm_of(int64_t pixels, int64_t channels, int64_t groups) {
  const double inverse = static_cast<double>(groups) / static_cast<double>(pixels * channels);
  const auto in = [](int64_t i) { return Scalar::input(i); };
  const Scalar x = in(0), rest = x - in(2) * inverse;
  const Scalar results[] = {x, in(1), rest * rest, in(3), rest * rsqrt(in(4) * inverse + 1e-6)};
  return in_one_sweep({.expr = Expr(5, results),
                       .in = {{.dtype = DType::bf16, .streams = true}},
                       .reductions = {PixelReduction::pixels, PixelReduction::groups,
                                      PixelReduction::pixels, PixelReduction::groups},
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
  for (PixelForm f : {norm_of(4096, 192, 32), norm_of(35, 12, 4)})
    for (const bool unaligned : {false, true}) {
      f.unaligned = unaligned;
      const auto layouts = pixel_layouts(f, target_of(90));
      ASSERT_FALSE(layouts.empty());
      expect_assembles(ptxas, emit_ptx(write_pixels(f, layouts[0], target_of(90)).kernel, 90), 90);
    }
}

TEST(ptx, images_with_outputs_side_by_side__differ_in_their_strides) {
  constexpr uint32_t channels = 192;
  PixelForm f = norm_of(4096, channels, 32);
  const std::vector<Scalar> x = inputs_as_scalars(f.expr);
  std::vector<Scalar> results = f.expr.apply(x);
  results.push_back(x[2]);  // sums of channels
  results.push_back(x[3]);
  f.expr = Expr(f.expr.inputs(), results);
  f.out = {DType::bf16, DType::f32, DType::f32};
  f.per_channel = {false, true, true};
  const PixelLayout layout = pixel_layouts(f, target_of(90)).at(0);
  LoopKernel separate = write_pixels(f, layout, target_of(90));
  f.concatenated = 2;
  LoopKernel concatenated = write_pixels(f, layout, target_of(90));
  EXPECT_EQ(emit_ptx(separate.kernel, 90), emit_ptx(concatenated.kernel, 90));
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
  EXPECT_EQ(emit_ptx(write_strided(coefficients(2, 8, 64), target_of(90)).kernel, 90),
            emit_ptx(write_strided(coefficients(32, 16, 192), target_of(90)).kernel, 90));
  EXPECT_NE(emit_ptx(write_strided(coefficients(2, 8, 64), target_of(90)).kernel, 90),
            emit_ptx(write_strided(coefficients(2, 8, 66), target_of(90)).kernel, 90));
}

TEST(ptx, reductions__assemble) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  const Scalar x = Scalar::input(0), r[] = {x * sigmoid(x), x};
  const Shape shapes[] = {{64, 4096}, {4096, 64}, {7, 5}, {3, 1}};
  for (const Shape& shape : shapes)
    for (const size_t run : {0u, 1u}) {
      const Type in[] = {{DType::bf16, shape}};
      ReduceForm f{
          Expr(1, r), {DType::bf16}, make_iteration_space(shape, in, {run == 0, run == 1})};
      const auto reduced = std::find(f.space.reduced.begin(), f.space.reduced.end(), true);
      if (reduced == f.space.reduced.end()) continue;
      f.kept_dims = static_cast<size_t>(reduced - f.space.reduced.begin());
      f.run_end = f.kept_dims + 1;
      for (const bool unaligned : {false, true}) {
        f.unaligned = unaligned;
        expect_assembles(
            ptxas, emit_ptx(write_reduce(f, layout_of(f, target_of(90)), target_of(90)).kernel, 90),
            90);
      }
    }
}

// The operations of extensions that the target has.
void put_extensions(codegen::Builder& b, const codegen::Target& target, codegen::U64 in,
                    codegen::SharedAddress own, codegen::U32 n) {
  using namespace codegen;
  if (target.async_copy) {
    b.put(Op::copy_async, {own.base, in}, 0, int64_t{16} << 32);
    b.put(Op::copy_commit, {});
    b.put(Op::copy_wait, {});
  }
  if (target.cluster) {
    const U32 rank(b.make(Op::cluster_rank, codegen::Kind::u32, {}));
    const U32 barrier = b.dynamic_shared(n).base;
    b.when(b.thread_index() == 0u, [&] { b.put(Op::transaction_init, {barrier, n}); });
    b.put(Op::transaction_fence, {});
    b.put(Op::cluster_arrive, {});
    b.put(Op::cluster_wait, {});
    const U32 there(b.make(Op::remote_address, codegen::Kind::u32, {own.base, rank}));
    b.put(Op::remote_store, {there, b.f32(1), there});
    b.loop([&] {
      b.break_unless(invert(Pred(b.make(Op::transaction_done, codegen::Kind::pred, {barrier}))));
    });
  }
}

// Every operation at least once; those of extensions where the target has them.
codegen::Kernel every_operation(const codegen::Target& target) {
  using namespace codegen;
  Builder b("every_operation", target);
  std::vector<int64_t> pointers;
  const U64 in = b.pointer(pointers), out = b.pointer(pointers);
  const U32 tid = b.thread_index(), block = b.block_index(), n = b.number(7);
  const U32 field = b.param_at<codegen::Kind::u32>(block << 2, 0);
  const F32 x = b.element(b.load(DType::f32, 1, {in}), 0), y = x + 1.0f;
  std::vector<F32> r = {sum(x, y), difference(x, y), product(x, y), x - y,     x * y,    -x, abs(x),
                        floor(x),  copysign(x, y),   fma(x, y, x),  min(x, y), max(x, y)};
  for (const Op op : {Op::min_nan, Op::max_nan, Op::less, Op::div}) r.push_back(binary(op, x, y));
  for (const Op op : {Op::rcp, Op::sqrt, Op::rsqrt, Op::exp2}) r.push_back(unary(op, x));
  r.push_back(select(both(x < y, invert(tid == n)), x, y));
  r.push_back(to_f32((as_i32(x) - 3) >> 2));
  r.push_back(as_f32(((as_u32(x) | 3u) ^ (tid & field)) << 1));
  const U64 wide = mul_wide_add(tid, n, mul_wide(mul_hi(tid, n), 3)) + widen(max(tid, n));
  r.push_back(to_f32(mul_add(low(min(wide, in)), 5, tid)));
  const SharedArray memory = b.shared_array(4, 64);
  const SharedAddress own = b.at(memory, tid);
  b.store(std::span(r).first(1), own);
  b.barrier();
  b.subgroup_barrier();
  r.push_back(to_f32(b.lane() + b.subgroup_index(8)));
  r.push_back(b.shuffle_xor(r[0], 4));
  r.push_back(b.shuffle_down(r[1], 2));
  const auto v = b.var(x);
  b.when(
      x < y, [&] { v.set(y); }, [&] { v.set(x * 2.0f); });
  const auto left = b.var(n);
  b.loop([&] {
    v.set(v.get() + y);
    left.set(left.get() - 1);
    b.break_unless(left.get() != 0u);
  });
  r.push_back(v.get());
  r.push_back(b.element(b.load(DType::f32, 1, b.move(own, n)), 0));
  for (const DType t : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8})
    for (const int count : {1, 8}) {
      const Words w = b.load(t, count, {in, 128, x < y});
      std::vector<F32> values;
      for (int e = 0; e < count; ++e) values.push_back(b.element(w, e));
      b.store(t, values, {out, 1024, x < y});
    }
  put_extensions(b, target, in, own, n);
  b.store(DType::f32, r, {out});
  return b.finish(64, 1);
}

TEST(ptx, every_operation__assembles_for_every_target) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "there is no ptxas here";
  for (const int target : {75, 80, 90})
    expect_assembles(ptxas, emit_ptx(every_operation(target_of(target)), target), target);
}

// What is read from a variable is what it was then.
TEST(ptx, value_read_before_a_write__is_the_old_one) {
  using namespace codegen;
  Builder b("k", target_of(90));
  std::vector<int64_t> pointers;
  const U64 out = b.pointer(pointers);
  const auto v = b.var(b.number(1));
  const U32 before = v.get();
  v.set(before + 1);
  b.store(DType::f32, std::vector<F32>{to_f32(before)}, {out});
  b.store(DType::f32, std::vector<F32>{to_f32(v.get())}, {out, 4});
  const std::string text = emit_ptx(b.finish(32, 0), 90);
  EXPECT_NE(text.find("ld.param.b32 %r0"), std::string::npos) << text;  // the variable
  EXPECT_NE(text.find("mov.b32 %r1, %r0"), std::string::npos) << text;
  EXPECT_NE(text.find("add.u32 %r0, %r1, 1"), std::string::npos) << text;
  EXPECT_NE(text.find("cvt.rn.f32.u32 %f0, %r1"), std::string::npos) << text;
  EXPECT_NE(text.find("cvt.rn.f32.u32 %f1, %r0"), std::string::npos) << text;
}

TEST(ptx, lanes_and_subgroups__are_of_the_number_of_the_thread) {
  Builder b("k", target_of(90));
  const auto v = b.var(b.thread_index());  // whose register changes
  v.set(v.get() + 1);
  const U32 lane = b.lane(8), subgroup = b.subgroup_index();
  std::vector<int64_t> pointers;
  b.store(DType::f32, std::vector<F32>{to_f32(lane + v.get()), to_f32(subgroup)},
          {b.pointer(pointers)});
  const std::string text = emit_ptx(b.finish(32, 0), 90);
  EXPECT_NE(text.find("mov.u32 %r0, %tid.x"), std::string::npos) << text;
  EXPECT_NE(text.find("add.u32 %r0, %r0, 1"), std::string::npos) << text;
  EXPECT_NE(text.find("mov.u32 %r1, %tid.x;\n  and.b32 %r2, %r1, 7"), std::string::npos) << text;
  EXPECT_NE(text.find("mov.u32 %r3, %tid.x;\n  shr.u32 %r4, %r3, 5"), std::string::npos) << text;
}

TEST(ptx, short_regions__are_predicated) {
  using namespace codegen;
  Builder b("k", target_of(90));
  const auto v = b.var(b.f32(0));
  const Pred p = b.thread_index() < 3u;
  b.when(p, [&] { v.set(sum(v.get(), b.f32(1))); });
  const std::string text = emit_ptx(b.finish(32, 0), 90);
  EXPECT_NE(text.find("@%p0 add.f32 %f0, %f0, 0f3F800000"), std::string::npos) << text;
  EXPECT_EQ(text.find("bra"), std::string::npos) << text;
}

}  // namespace
}  // namespace ebb::cuda
