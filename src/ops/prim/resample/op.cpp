#include "ops/prim/resample/op.h"

#include "base/error.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 1, "resample: takes x (got ", s.in.size(), " inputs)  at ", s.at);
  const int64_t p = axis_map(s, 0).out, q = axis_map(s, 1).out;
  return {{s.in[0].dtype, {s.in[0].shape[0], p, q, s.in[0].shape[3]}}};
}

std::vector<Value> vjp(const VjpCall& c) {
  Resample a = c.sig.as<Resample>();
  a.transposed = !a.transposed;
  a.source = a.transposed ? std::vector<int64_t>{c.in[0].shape()[1], c.in[0].shape()[2]}
                          : std::vector<int64_t>{};
  return {resample(c.dout[0], a)};
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const AxisMap rows = axis_map(s, 0), columns = axis_map(s, 1);
  const int64_t channels = in[0].shape[3];
  for (int64_t i = 0; i < out[0].shape.numel(); ++i) {
    const int64_t c = i % channels, q = i / channels % columns.out;
    const int64_t p = i / (channels * columns.out) % rows.out;
    const int64_t n = i / (channels * columns.out * rows.out);
    double sum = 0;
    for (auto a = static_cast<size_t>(rows.first[static_cast<size_t>(p)]);
         a < static_cast<size_t>(rows.first[static_cast<size_t>(p) + 1]); ++a)
      for (auto b = static_cast<size_t>(columns.first[static_cast<size_t>(q)]);
           b < static_cast<size_t>(columns.first[static_cast<size_t>(q) + 1]); ++b) {
        const int64_t pixel = (n * rows.in + rows.index[a]) * columns.in + columns.index[b];
        sum +=
            rows.weight[a] * columns.weight[b] * in[0].v[static_cast<size_t>(pixel * channels + c)];
      }
    out[0].v[static_cast<size_t>(i)] = sum;
  }
}

Cost cost(const Signature& s) {
  Cost c;
  c.bytes = static_cast<double>(s.in[0].bytes() + s.out[0].bytes());
  const AxisMap rows = axis_map(s, 0), columns = axis_map(s, 1);
  const auto lines = static_cast<double>(s.in[0].shape[0] * s.in[0].shape[3]);
  c.flops = 2 * lines *
            (static_cast<double>(rows.weight.size()) * static_cast<double>(columns.in) +
             static_cast<double>(columns.weight.size()) * static_cast<double>(rows.out));
  return c;
}

std::vector<Example> examples() {
  using enum ResampleKind;
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const std::vector<double> two{1, 1}, four{1, 3, 3, 1}, five{1, 2, 4, 3, 1};
  return {
      {.label = "nearest_up", .attrs = Resample{nearest, 2}, .in = {f32({2, 3, 5, 7})}},
      {.label = "nearest_size",
       .attrs = Resample{.kind = nearest, .size = {5, 3}},
       .in = {f32({1, 7, 2, 3})}},
      {.label = "bilinear_up",
       .attrs = Resample{.kind = bilinear, .size = {7, 11}},
       .in = {f32({2, 3, 5, 3})}},
      {.label = "bilinear_down",
       .attrs = Resample{.kind = bilinear, .size = {3, 4}},
       .in = {f32({2, 7, 11, 3})}},
      {.label = "average", .attrs = Resample{average, 1, 2}, .in = {f32({2, 7, 6, 5})}},
      {.label = "average_transposed",
       .attrs = Resample{.kind = average, .down = 2, .transposed = true, .source = {7, 6}},
       .in = {f32({2, 3, 3, 5})}},
      {.label = "box", .attrs = Resample{.kind = box, .pad = 1}, .in = {f32({2, 5, 4, 3})}},
      {.label = "box_aligned",
       .attrs = Resample{.kind = box, .pad = 1},
       .in = {f32({2, 7, 1, 16})}},
      {.label = "box_wide", .attrs = Resample{.kind = box, .pad = 3}, .in = {f32({1, 5, 2, 3})}},
      {.label = "fir2_up", .attrs = Resample{fir, 2, 1, {}, two}, .in = {f32({2, 3, 5, 3})}},
      {.label = "fir4_up", .attrs = Resample{fir, 2, 1, {}, four}, .in = {f32({2, 3, 5, 3})}},
      {.label = "fir4_up_unpadded",
       .attrs = Resample{fir, 2, 1, {}, four, 0},
       .in = {f32({1, 3, 5, 3})}},
      {.label = "fir4_down", .attrs = Resample{fir, 1, 2, {}, four}, .in = {f32({2, 6, 8, 3})}},
      {.label = "fir5_down", .attrs = Resample{fir, 1, 2, {}, five}, .in = {f32({1, 7, 5, 3})}},
      {.label = "fir4_down_transposed",
       .attrs = Resample{fir, 1, 2, {}, four, -1, true, {6, 8}},
       .in = {f32({2, 3, 4, 3})}},
      {.label = "nearest_up_aligned", .attrs = Resample{nearest, 2}, .in = {f32({2, 3, 5, 16})}},
      {.label = "average_aligned", .attrs = Resample{average, 1, 2}, .in = {f32({2, 6, 4, 16})}},
      {.label = "fir4_down_aligned",
       .attrs = Resample{fir, 1, 2, {}, four},
       .in = {f32({2, 6, 8, 16})}},
      {.label = "empty", .attrs = Resample{nearest, 2}, .in = {f32({0, 3, 5, 7})}},
      {.label = "up64",
       .attrs = Resample{nearest, 2},
       .in = {f32({16, 32, 32, 128})},
       .bench = true},
      {.label = "box35",
       .attrs = Resample{.kind = box, .pad = 1},
       .in = {f32({16, 35, 35, 288})},
       .bench = true},
      {.label = "fir64",
       .attrs = Resample{fir, 1, 2, {}, four},
       .in = {f32({16, 64, 64, 128})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::resample() {
  static const OpDef d{.name = "resample",
                       .attrs = +[] { return Attrs(Resample{}); },
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .cost = cost,
                       .examples = examples};
  return d;
}

Value resample(Value x, const Resample& attrs) {
  return x.graph->add1(def::resample(), attrs, {x});
}

Value avg_pool2(Value x) { return resample(x, Resample{.kind = ResampleKind::average, .down = 2}); }

Value box_mean3(Value x) { return resample(x, Resample{.kind = ResampleKind::box, .pad = 1}); }

Value upsample_nearest2(Value x) {
  return resample(x, Resample{.kind = ResampleKind::nearest, .up = 2});
}

Value resize_bilinear(Value x, int64_t h, int64_t w) {
  return resample(x, Resample{.kind = ResampleKind::bilinear, .size = {h, w}});
}

Value fir_resample(Value x, const Fir& f) {
  return resample(x, Resample{ResampleKind::fir, f.up, f.down, {}, f.taps, f.pad});
}

}  // namespace ebb::ops
