// Every kernel of convolutions and their gradients on the CPU, on images of 8 to 1024 pixels,
// against sums in double. Values are multiples of 1/4 of at most 1 and results are small multiples
// of 1/16, so that f32 sums are exact in any order: a result is the exact sum, rounded once. Only
// some results of each are looked at, of every tap of a kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backends.h"
#include "guarded.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/conv2d_dw/op.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/table.h"

namespace ebb::test::conv_sizes_test {
namespace {

using ops::ConvGeometry;

struct Layer {
  int64_t in, out, size, stride = 1;
};

ConvGeometry geometry(const Layer& l, int64_t h, int64_t w) {
  const int64_t pad = l.size / 2;
  return {1, h, w, l.in, l.out, l.size, l.size, l.stride, pad, pad, pad, pad};
}

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

// Element i of tensor `seed`.
float value(uint64_t seed, int64_t i) {
  const auto step = static_cast<int>(mixed(seed << 56 | static_cast<uint64_t>(i)) % 9) - 4;
  return static_cast<float>(step) / 4;
}

template <class T>
Bytes bytes_of(uint64_t seed, int64_t count) {
  Bytes b(static_cast<size_t>(count) * sizeof(T));
  for (int64_t i = 0; i < count; ++i) {
    const T v(value(seed, i));
    std::memcpy(&b[static_cast<size_t>(i) * sizeof(T)], &v, sizeof(T));
  }
  return b;
}

Bytes values(uint64_t seed, const Type& t) {
  const int64_t count = t.shape.numel();
  return t.dtype == DType::bf16 ? bytes_of<bf16>(seed, count) : bytes_of<float>(seed, count);
}

float element(const Bytes& b, DType dtype, int64_t i) {
  const unsigned char* at = &b[static_cast<size_t>(i * size_of(dtype))];
  bf16 narrow;
  float wide = 0;
  if (dtype == DType::f32) {
    std::memcpy(&wide, at, sizeof wide);
    return wide;
  }
  std::memcpy(&narrow, at, sizeof narrow);
  return static_cast<float>(narrow);
}

float rounded_float(double v, DType dtype) {
  const auto f = static_cast<float>(v);
  return dtype == DType::f32 ? f : static_cast<float>(bf16(f));
}

// One of the three ops: which seeds its inputs have, and one exact element of its result.
enum Seed : uint64_t { image = 1, weight = 2, result = 3, bias = 4 };

struct OpCase {
  const OpDef* op;
  Attrs attrs;
  std::vector<Shape> in;
  std::vector<uint64_t> seeds;
  int64_t (*sample)(const ConvGeometry&, uint64_t i);
  double (*exact)(const ConvGeometry&, int64_t at);
};

// A pixel of the image; 0 outside.
double image_at(const ConvGeometry& g, int64_t y, int64_t x, int64_t c) {
  if (y < 0 || y >= g.h || x < 0 || x >= g.w) return 0;
  return value(image, (y * g.w + x) * g.c + c);
}

double exact_forward(const ConvGeometry& g, int64_t at) {
  const int64_t o = at % g.o, q = at / g.o % g.out_w(), p = at / g.o / g.out_w();
  double sum = value(bias, o);
  for (int64_t t = 0; t < g.kh * g.kw; ++t)
    for (int64_t c = 0; c < g.c; ++c)
      sum += image_at(g, p * g.stride - g.top + t / g.kw, q * g.stride - g.left + t % g.kw, c) *
             value(weight, (o * g.kh * g.kw + t) * g.c + c);
  return sum;
}

double exact_dx(const ConvGeometry& g, int64_t at) {
  const int64_t c = at % g.c, x = at / g.c % g.w, y = at / g.c / g.w;
  double sum = 0;
  for (int64_t t = 0; t < g.kh * g.kw; ++t) {
    const int64_t down = y + g.top - t / g.kw, right = x + g.left - t % g.kw;
    if (down < 0 || right < 0 || down % g.stride != 0 || right % g.stride != 0) continue;
    const int64_t p = down / g.stride, q = right / g.stride;
    if (p >= g.out_h() || q >= g.out_w()) continue;
    for (int64_t o = 0; o < g.o; ++o)
      sum += static_cast<double>(value(result, (p * g.out_w() + q) * g.o + o)) *
             value(weight, (o * g.kh * g.kw + t) * g.c + c);
  }
  return sum;
}

double exact_dw(const ConvGeometry& g, int64_t at) {
  const int64_t c = at % g.c, t = at / g.c % (g.kh * g.kw), o = at / g.c / (g.kh * g.kw);
  double sum = 0;
  for (int64_t p = 0; p < g.out_h(); ++p)
    for (int64_t q = 0; q < g.out_w(); ++q)
      sum += image_at(g, p * g.stride - g.top + t / g.kw, q * g.stride - g.left + t % g.kw, c) *
             value(result, (p * g.out_w() + q) * g.o + o);
  return sum;
}

int64_t anywhere(int64_t count, uint64_t i) {
  if (i < 2) return i == 0 ? 0 : count - 1;
  return static_cast<int64_t>(mixed(i) % static_cast<uint64_t>(count));
}

OpCase forward(const ConvGeometry& g) {
  return {&ops::def::conv2d(),
          ops::Conv2d{g.stride, {g.top, g.left, g.bottom, g.right}},
          {g.x(), g.weight(), {g.o}},
          {image, weight, bias},
          [](const ConvGeometry& v, uint64_t i) { return anywhere(v.y().numel(), i); },
          exact_forward};
}

OpCase input_gradient(const ConvGeometry& g) {
  return {&ops::def::conv2d_dx(),
          ops::Conv2dDx{g.stride, {g.top, g.left, g.bottom, g.right}, {g.h, g.w}},
          {g.y(), g.weight()},
          {result, weight},
          [](const ConvGeometry& v, uint64_t i) { return anywhere(v.x().numel(), i); },
          exact_dx};
}

// Samples cycle through the taps, of some channels.
OpCase weight_gradient(const ConvGeometry& g) {
  return {&ops::def::conv2d_dw(),
          ops::Conv2dDw{g.stride, {g.top, g.left, g.bottom, g.right}, {g.kh, g.kw}, true},
          {g.x(), g.y()},
          {image, result},
          [](const ConvGeometry& v, uint64_t i) {
            const auto taps = static_cast<uint64_t>(v.kh * v.kw);
            const auto tap = static_cast<int64_t>(i % taps);
            const int64_t o = anywhere(v.o, i), c = anywhere(v.c, i / taps);
            return (o * v.kh * v.kw + tap) * v.c + c;
          },
          exact_dw};
}

class ConvSizes : public OnBackend, public ::testing::WithParamInterface<DType> {
  void SetUp() override { open("cpu"); }

 protected:
  // All kernels and their choices for one case.
  void check(const ConvGeometry& g, const OpCase& c);
  // Cases of all sizes.
  void check_all(OpCase (*make)(const ConvGeometry&));

 private:
  void check(const ConvGeometry& g, const OpCase& c, const Signature& s, const Program& program);
};

void ConvSizes::check(const ConvGeometry& g, const OpCase& c, const Signature& s,
                      const Program& program) {
  GuardedArrays memory(*context_.device);
  std::vector<size_t> in, out;
  for (size_t i = 0; i < s.in.size(); ++i) in.push_back(memory.add(values(c.seeds[i], s.in[i]), 0));
  for (const Type& t : s.out) out.push_back(memory.add_poisoned(t.bytes(), 0));
  const size_t workspace = memory.add_poisoned(program.workspace, 0);
  memory.upload();
  Call call{{}, {}, memory.address(workspace)};
  for (const size_t i : in) call.in.push_back(memory.address(i));
  for (const size_t i : out) call.out.push_back(memory.address(i));
  program.run(call);
  memory.download();
  for (const size_t i : out) ASSERT_TRUE(memory.intact(i)) << "wrote outside of an output";
  ASSERT_TRUE(memory.intact(workspace)) << "wrote outside of its workspace";
  const Bytes got = memory.content(out[0]);
  const double terms = c.op == &ops::def::conv2d_dw()
                           ? static_cast<double>(g.y().numel()) / static_cast<double>(g.o)
                           : static_cast<double>(g.kh * g.kw * g.c);
  const auto samples = static_cast<uint64_t>(std::clamp(4e5 / terms, 18.0, 400.0));
  for (uint64_t i = 0; i < samples; ++i) {
    const int64_t at = c.sample(g, i);
    ASSERT_EQ(element(got, s.out[0].dtype, at), rounded_float(c.exact(g, at), s.out[0].dtype))
        << "at " << at;
  }
}

void ConvSizes::check(const ConvGeometry& g, const OpCase& c) {
  Signature s{c.op, c.attrs, {}, {}, ""};
  for (const Shape& shape : c.in) s.in.push_back({GetParam(), shape});
  s.out = c.op->infer(s);
  for (const Kernel* k : kernels_of(c.op->name, "cpu")) {
    if (!k->supports(s, *context_.device)) continue;
    std::vector<Tune> tunes = {Tune{}};
    if (k->space) tunes = k->space(s, *context_.device);
    for (size_t t = 0; t < tunes.size(); ++t) {
      SCOPED_TRACE(str(k->name, ", choice ", t, ", ", s.text()));
      check(g, c, s, k->prepare(s, tunes[t], *context_.device));
      if (HasFatalFailure()) return;
    }
  }
}

void ConvSizes::check_all(OpCase (*make)(const ConvGeometry&)) {
  std::vector<ConvGeometry> cases;
  for (const Layer& l :
       {Layer{16, 16, 3}, {3, 40, 3}, {40, 3, 3}, {16, 24, 3, 2}, {24, 16, 1}, {8, 16, 1, 2}})
    for (const int64_t w : {8, 9, 31, 64, 128, 200, 256, 280, 336, 384, 512, 640, 768, 1024})
      cases.push_back(geometry(l, std::min<int64_t>(w, 12), w));
  for (const int64_t w : {224, 226, 240, 264, 288, 296, 304, 416, 448, 480, 1000})
    cases.push_back(geometry({16, 16, 3}, 7, w));
  for (const int64_t size : {64, 256, 280, 512}) cases.push_back(geometry({16, 16, 3}, size, size));
  cases.push_back(geometry({3, 16, 3}, 1024, 1024));
  cases.push_back(geometry({16, 16, 3}, 3, 4096));
  for (const ConvGeometry& g : cases) {
    check(g, make(g));
    if (HasFatalFailure()) return;
  }
}

TEST_P(ConvSizes, conv2d__is_exact) { check_all(forward); }
TEST_P(ConvSizes, conv2d_dx__is_exact) { check_all(input_gradient); }
TEST_P(ConvSizes, conv2d_dw__is_exact) { check_all(weight_gradient); }

INSTANTIATE_TEST_SUITE_P(cpu, ConvSizes, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace ebb::test::conv_sizes_test
