// oneDNN's results against plain loops in double, on the shapes that break such code.
#include "backend/cpu/onednn.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "support/files.h"
#include "support/random_values.h"

namespace ebb::cpu {
namespace {

// Values as a tensor of `dtype` holds them, and the same values in double.
struct Values {
  DType dtype = DType::f32;
  std::vector<unsigned char> bytes;
  std::vector<double> exact;

  const void* data() const { return bytes.data(); }
};

template <class T>
void fill(Values& v, uint32_t seed) {
  const auto all = test::random_floats(static_cast<int64_t>(v.exact.size()), seed);
  for (size_t i = 0; i < v.exact.size(); ++i) {
    const T value(all[i]);
    std::memcpy(&v.bytes[i * sizeof(T)], &value, sizeof(T));
    v.exact[i] = static_cast<float>(value);
  }
}

Values random_values(DType dtype, int64_t count, uint32_t seed) {
  Values v{dtype, {}, {}};
  v.bytes.resize(static_cast<size_t>(count * size_of(dtype)));
  v.exact.resize(static_cast<size_t>(count));
  dtype == DType::bf16 ? fill<bf16>(v, seed) : fill<float>(v, seed);
  return v;
}

// A result buffer with sentinels behind it.
class Result {
 public:
  Result(DType dtype, int64_t count)
      : dtype_(dtype), count_(count), bytes_(used() + kSentinel, 0xAB) {}
  void* data() { return bytes_.data(); }
  double operator[](int64_t i) const {
    const auto* at = &bytes_[static_cast<size_t>(i * size_of(dtype_))];
    if (dtype_ == DType::f32) return load<float>(at);
    return static_cast<float>(load<bf16>(at));
  }
  void set(const Values& v) { std::memcpy(bytes_.data(), v.data(), used()); }
  bool intact() const {
    for (size_t i = used(); i < bytes_.size(); ++i) {
      if (bytes_[i] != 0xAB) return false;
    }
    return true;
  }
  DType dtype() const { return dtype_; }

 private:
  static constexpr size_t kSentinel = 256;
  template <class T>
  static T load(const unsigned char* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }
  size_t used() const { return static_cast<size_t>(count_ * size_of(dtype_)); }
  DType dtype_;
  int64_t count_;
  std::vector<unsigned char> bytes_;
};

// Exact sums with the sum of magnitudes and the number of terms, which bound the rounding.
struct Sums {
  std::vector<double> value, magnitude;
  std::vector<int64_t> terms;
  explicit Sums(int64_t n)
      : value(static_cast<size_t>(n)), magnitude(value.size()), terms(value.size()) {}
  void add(int64_t i, double term) {
    const auto at = static_cast<size_t>(i);
    value[at] += term;
    magnitude[at] += std::abs(term);
    ++terms[at];
  }
};

// Summing n terms in f32 in any order errs by at most n * 2^-24 of the sum of magnitudes; a bf16
// result is rounded once more, by at most 2^-9 of itself (2^-8 leaves room for the sum's error).
void expect_close(const Result& got, const Sums& want) {
  for (size_t i = 0; i < want.value.size(); ++i) {
    const double sum_error = static_cast<double>(want.terms[i] + 1) * 0x1p-24 * want.magnitude[i];
    const double rounding = got.dtype() == DType::bf16 ? 0x1p-8 * std::abs(want.value[i]) : 0;
    ASSERT_NEAR(got[static_cast<int64_t>(i)], want.value[i], sum_error + rounding) << "at " << i;
  }
  EXPECT_TRUE(got.intact());
}

// Calls f(src index, weight index, dst index) for every product of a convolution.
template <class F>
void each_product(const ConvProblem& p, F f) {
  for (int64_t d = 0; d < p.n * p.out_h() * p.out_w(); ++d) {
    const int64_t q = d % p.out_w(), row = d / p.out_w() % p.out_h();
    const int64_t n = d / p.out_w() / p.out_h();
    for (int64_t tap = 0; tap < p.kh * p.kw; ++tap) {
      const int64_t y = row * p.stride - p.top + tap / p.kw;
      const int64_t x = q * p.stride - p.left + tap % p.kw;
      if (y < 0 || y >= p.h || x < 0 || x >= p.w) continue;
      for (int64_t oc = 0; oc < p.o * p.c; ++oc) {
        const int64_t o = oc / p.c, c = oc % p.c;
        f(((n * p.h + y) * p.w + x) * p.c + c, (o * p.kh * p.kw + tap) * p.c + c, d * p.o + o);
      }
    }
  }
}

struct ConvSizes {
  int64_t src, weights, dst;
};
ConvSizes sizes(const ConvProblem& p) {
  return {p.n * p.h * p.w * p.c, p.o * p.kh * p.kw * p.c, p.n * p.out_h() * p.out_w() * p.o};
}

std::vector<unsigned char> scratch_for(const OneDnnCall& call) {
  return std::vector<unsigned char>(static_cast<size_t>(call.scratch_bytes()), 0xCD);
}

void check_forward(const ConvProblem& p) {
  SCOPED_TRACE("forward " + to_string(p));
  const auto [ns, nw, nd] = sizes(p);
  const Values src = random_values(p.src, ns, 1), weights = random_values(p.weights, nw, 2);
  const Values bias = random_values(p.bias.value_or(DType::f32), p.o, 3);
  Sums want(nd);
  each_product(p, [&](int64_t s, int64_t w, int64_t d) {
    // f32 weights of a bf16 convolution are rounded to bf16 while they are packed
    const double weight = p.src == DType::bf16
                              ? static_cast<float>(bf16(static_cast<float>(weights.exact[w])))
                              : weights.exact[w];
    want.add(d, src.exact[s] * weight);
  });
  if (p.bias) {
    for (int64_t i = 0; i < nd; ++i) want.add(i, bias.exact[i % p.o]);
  }
  const ConvForward conv(p);
  Result dst(p.dst, nd);
  auto scratch = scratch_for(conv);
  for (int run = 0; run < 2; ++run) {
    conv.run({src.data(), weights.data(), bias.data(), dst.data(), scratch.data()});
    expect_close(dst, want);
  }
}

void check_backward_data(const ConvProblem& p) {
  SCOPED_TRACE("backward data " + to_string(p));
  const auto [ns, nw, nd] = sizes(p);
  const Values diff = random_values(p.dst, nd, 4);
  const Values weights = random_values(p.weights, nw, 5);
  Sums want(ns);
  each_product(
      p, [&](int64_t s, int64_t w, int64_t d) { want.add(s, diff.exact[d] * weights.exact[w]); });
  const ConvBackwardData conv(p);
  Result diff_src(p.src, ns);
  auto scratch = scratch_for(conv);
  conv.run({diff.data(), weights.data(), diff_src.data(), scratch.data()});
  expect_close(diff_src, want);
}

void check_backward_weights(const ConvProblem& p) {
  SCOPED_TRACE("backward weights " + to_string(p));
  const auto [ns, nw, nd] = sizes(p);
  const Values src = random_values(p.src, ns, 6), diff = random_values(p.dst, nd, 7);
  Sums want(nw), want_bias(p.o);
  each_product(p,
               [&](int64_t s, int64_t w, int64_t d) { want.add(w, diff.exact[d] * src.exact[s]); });
  for (int64_t i = 0; i < nd; ++i) want_bias.add(i % p.o, diff.exact[i]);
  const ConvBackwardWeights conv(p);
  Result diff_weights(p.weights, nw), diff_bias(p.bias.value_or(DType::f32), p.o);
  auto scratch = scratch_for(conv);
  conv.run({src.data(), diff.data(), diff_weights.data(), diff_bias.data(), scratch.data()});
  expect_close(diff_weights, want);
  if (p.bias) expect_close(diff_bias, want_bias);
}

void check_conv(ConvProblem p) {
  for (const DType t : {DType::f32, DType::bf16}) {
    if (!onednn_supports(t)) continue;
    p.src = p.weights = p.dst = t;
    p.bias = t;
    check_forward(p);
    check_backward_data(p);
    check_backward_weights(p);
    p.bias.reset();
    check_forward(p);
    check_backward_weights(p);
  }
}

ConvProblem same3x3(int64_t n, int64_t size, int64_t c, int64_t o) {
  return {.n = n,
          .h = size,
          .w = size,
          .c = c,
          .o = o,
          .kh = 3,
          .kw = 3,
          .top = 1,
          .left = 1,
          .bottom = 1,
          .right = 1};
}

TEST(onednn_conv, blocked_channels__equals_loops) { check_conv(same3x3(2, 8, 32, 16)); }
TEST(onednn_conv, odd_sizes__equals_loops) {
  check_conv({.n = 3,
              .h = 7,
              .w = 5,
              .c = 5,
              .o = 7,
              .kh = 3,
              .kw = 3,
              .top = 1,
              .left = 1,
              .bottom = 1,
              .right = 1});
}
TEST(onednn_conv, one_channel__equals_loops) {
  check_conv(same3x3(2, 9, 1, 17));
  check_conv(same3x3(2, 9, 17, 1));
  check_conv({.n = 1, .h = 1, .w = 1, .c = 1, .o = 1});
}
TEST(onednn_conv, three_channels__equals_loops) {
  check_conv(same3x3(2, 8, 3, 32));
  check_conv(same3x3(2, 8, 32, 3));
}
TEST(onednn_conv, stride_2__equals_loops) {
  ConvProblem p = same3x3(2, 8, 16, 24);
  p.stride = 2;
  check_conv(p);
  p.h = 7;
  check_conv(p);
}
TEST(onednn_conv, asymmetric_padding__equals_loops) {
  check_conv({.n = 2,
              .h = 8,
              .w = 6,
              .c = 16,
              .o = 16,
              .kh = 3,
              .kw = 3,
              .stride = 2,
              .bottom = 1,
              .right = 1});
  check_conv({.n = 1,
              .h = 5,
              .w = 6,
              .c = 3,
              .o = 5,
              .kh = 2,
              .kw = 4,
              .top = 2,
              .left = 0,
              .bottom = 1,
              .right = 3});
}
TEST(onednn_conv, one_by_one__equals_loops) {
  check_conv({.n = 2, .h = 6, .w = 7, .c = 32, .o = 48});
  check_conv({.n = 2, .h = 6, .w = 7, .c = 13, .o = 11});
}

TEST(onednn_conv, mixed_types__equals_loops) {
  if (!onednn_supports(DType::bf16)) GTEST_SKIP() << "no bf16 here";
  ConvProblem p = same3x3(2, 8, 16, 16);
  p.src = p.dst = DType::bf16;
  p.bias = DType::f32;
  check_forward(p);           // bf16 activations with f32 master weights
  check_backward_weights(p);  // f32 gradients of weights and bias
  p.dst = DType::f32;
  check_forward(p);
}

TEST(onednn_conv, empty_batch__writes_nothing_but_zero_weight_gradients) {
  const ConvProblem p = same3x3(0, 8, 4, 4);
  ConvForward(p).run({});
  ConvBackwardData(p).run({});
  EXPECT_EQ(ConvForward(p).scratch_bytes(), 0);
  check_backward_weights(p);
}

TEST(onednn_conv, kernel_outside_image__names_the_problem) {
  EXPECT_EQ(testing::error_of(
                [] { ConvForward({.n = 1, .h = 2, .w = 2, .c = 1, .o = 1, .kh = 3, .kw = 3}); }),
            "conv2d: the kernel must fit into the padded image  src: f32[1,2,2,1]  weights: "
            "f32[1,3,3,1]  dst: f32[1,0,0,1]  stride: 1  padding: 0,0,0,0");
}

TEST(onednn_conv, stride_0__is_refused) {
  ConvProblem p = same3x3(1, 4, 4, 4);
  p.stride = 0;
  EXPECT_THROW(ConvForward{p}, Error);
}

// oneDNN divides by a count of 32 bits there, which 2^28 pixels make 0.
TEST(onednn_conv, images_beyond_its_numbers__are_refused) {
  EXPECT_THROW(ConvForward{same3x3(1, int64_t{1} << 14, 16, 16)}, Error);
}

TEST(onednn_conv, f16__is_refused_by_name) {
  ConvProblem p = same3x3(1, 4, 4, 4);
  p.src = DType::f16;
  EXPECT_THROW(ConvForward{p}, Error);
}

TEST(onednn_conv, other_thread_count__equals_loops) {
  const int before = omp_get_max_threads();
  for (const int threads : {1, 3}) {
    omp_set_num_threads(threads);
    check_conv(same3x3(3, 8, 32, 32));
  }
  omp_set_num_threads(before);
}

TEST(onednn_conv, missing_scratch__is_an_error) {
  const ConvForward conv(same3x3(1, 4, 16, 16));
  ASSERT_GT(conv.scratch_bytes(), 0);
  EXPECT_THROW(conv.run({}), Error);
}

// ---- matrix products ----

int64_t offset(const MatrixLayout& layout, const MatrixLayout::Strides& dense, int64_t batch,
               int64_t head, int64_t row, int64_t col) {
  const MatrixLayout::Strides s = layout.strides.value_or(dense);
  const int64_t in_matrix = layout.transposed ? col * s.row + row : row * s.row + col;
  return batch * s.batch + head * s.head + in_matrix;
}

MatrixLayout::Strides dense(const MatmulProblem& p, int64_t rows, int64_t cols, bool transposed) {
  return {p.heads * rows * cols, rows * cols, transposed ? rows : cols};
}

void check_matmul(const MatmulProblem& p) {
  SCOPED_TRACE(to_string(p));
  const int64_t matrices = p.batch * p.heads, count = matrices * p.m * p.n;
  const Values a = random_values(p.a, matrices * p.m * p.k, 1);
  const Values b = random_values(p.b, matrices * p.k * p.n, 2);
  const Values bias = random_values(p.bias.value_or(DType::f32), p.n, 3);
  const Values old = random_values(p.c, count, 4);
  const MatrixLayout c_layout{false, p.c_strides};
  Sums want(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t col = i % p.n, row = i / p.n % p.m;
    const int64_t head = i / (p.n * p.m) % p.heads, batch = i / (p.n * p.m) / p.heads;
    const int64_t at = offset(c_layout, dense(p, p.m, p.n, false), batch, head, row, col);
    for (int64_t k = 0; k < p.k; ++k) {
      const auto da = dense(p, p.m, p.k, p.a_layout.transposed);
      const auto db = dense(p, p.k, p.n, p.b_layout.transposed);
      want.add(at, a.exact[offset(p.a_layout, da, batch, head, row, k)] *
                       b.exact[offset(p.b_layout, db, batch, head, k, col)]);
    }
    if (p.bias) want.add(at, bias.exact[col]);
    if (p.accumulate) want.add(at, old.exact[at]);
  }
  const Matmul product(p);
  Result c(p.c, count);
  c.set(old);
  auto scratch = scratch_for(product);
  product.run({a.data(), b.data(), bias.data(), c.data(), scratch.data()});
  expect_close(c, want);
}

// Every transpose, with and without bias and accumulation, f32 and bf16.
void check_matmuls(MatmulProblem p) {
  for (const DType t : {DType::f32, DType::bf16}) {
    if (!onednn_supports(t)) continue;
    for (int flags = 0; flags < 16; ++flags) {
      p.a = p.b = p.c = t;
      p.a_layout.transposed = flags & 1;
      p.b_layout.transposed = flags & 2;
      p.bias.reset();
      if (flags & 4) p.bias = t;
      p.accumulate = flags & 8;
      check_matmul(p);
    }
  }
}

TEST(onednn_matmul, odd_sizes__equals_loops) { check_matmuls({.m = 7, .n = 5, .k = 13}); }
TEST(onednn_matmul, one_element__equals_loops) { check_matmuls({}); }
TEST(onednn_matmul, vectors__equals_loops) {
  check_matmuls({.m = 1, .n = 33, .k = 17});
  check_matmuls({.m = 33, .n = 1, .k = 17});
}
TEST(onednn_matmul, many_rows_pack_b__equals_loops) { check_matmuls({.m = 2051, .n = 6, .k = 9}); }
TEST(onednn_matmul, batch_and_heads__equals_loops) {
  check_matmuls({.batch = 3, .m = 4, .n = 6, .k = 5});
  check_matmuls({.heads = 3, .m = 4, .n = 6, .k = 5});
  check_matmuls({.batch = 2, .heads = 3, .m = 4, .n = 6, .k = 5});
}

TEST(onednn_matmul, heads_inside_rows__equals_loops) {  // attention over [N,T,heads,K]
  const int64_t t = 10, heads = 3, k = 8;
  const MatrixLayout::Strides in_rows{t * heads * k, k, heads * k};
  for (const DType type : {DType::f32, DType::bf16}) {
    if (!onednn_supports(type)) continue;
    MatmulProblem scores{.batch = 2,
                         .heads = heads,
                         .m = t,
                         .n = t,
                         .k = k,
                         .a_layout = {false, in_rows},
                         .b_layout = {true, in_rows}};
    scores.a = scores.b = type;  // f32 scores of bf16 queries
    check_matmul(scores);
    MatmulProblem out{.batch = 2,
                      .heads = heads,
                      .m = t,
                      .n = k,
                      .k = t,
                      .b_layout = {false, in_rows},
                      .c_strides = in_rows};
    out.a = out.b = out.c = type;
    check_matmul(out);
  }
}

TEST(onednn_matmul, mixed_types__equals_loops) {
  if (!onednn_supports(DType::bf16)) GTEST_SKIP() << "no bf16 here";
  check_matmul({.m = 9,
                .n = 16,
                .k = 40,
                .a_layout = {true},
                .a = DType::bf16,
                .b = DType::bf16,
                .c = DType::f32,
                .bias = DType::f32,
                .accumulate = true});
}

TEST(onednn_matmul, empty__writes_nothing) {
  Matmul(MatmulProblem{.m = 0, .n = 3, .k = 4}).run({});
  Matmul(MatmulProblem{.batch = 0, .m = 2, .n = 3, .k = 4}).run({});
}

TEST(onednn_matmul, types_differ__names_the_problem) {
  EXPECT_THROW(Matmul(MatmulProblem{.m = 2, .n = 3, .k = 4, .a = DType::bf16}), Error);
}

}  // namespace
}  // namespace ebb::cpu
