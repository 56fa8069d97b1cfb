#include "ops/prim/moments/op.h"

#include "base/error.h"
#include "ir/loop_form.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Moments>();
  const Shape& x = s.in.at(0).shape;
  require(0 <= a.axis && a.axis < x.rank(), "moments: axis ", a.axis,
          " is out of range  x: ", s.in[0], "  at ", s.at);
  require(a.groups > 0 && x[-1] % a.groups == 0, "moments: channels (", x[-1],
          ") must be divisible by groups (", a.groups, ")  x: ", s.in[0], "  at ", s.at);
  Shape out = x;
  for (int64_t d = a.axis; d < x.rank(); ++d) out[d] = 1;
  out[-1] = a.groups;
  return {{DType::f32, out}, {DType::f32, out}};
}

int64_t count(const Shape& x, const Moments& a) {
  int64_t n = x[-1] / a.groups;
  for (int64_t d = a.axis; d < x.rank() - 1; ++d) n *= x[d];
  return n;
}

// d mean / dx = 1/M; d var / dx = 2 (x - mean) / M.
std::vector<Value> vjp(const VjpCall& c) {
  const auto& a = c.sig.as<Moments>();
  const Value x = c.in[0];
  const double inv = 1.0 / static_cast<double>(count(x.shape(), a));
  const auto wide = [&](Value v) { return expand_groups(v, x.shape()[-1]); };
  const DType dtype = x.dtype();
  if (!c.dout[1]) {
    const Value dm = map({c.dout[0]}, [&](auto v) { return v[0] * inv; });
    return {broadcast_to(cast(wide(dm), x.dtype()), x.shape())};
  }
  const Value dv = map({c.dout[1]}, [&](auto v) { return v[0] * (2 * inv); });
  if (!c.dout[0])
    return {map(
        {x, wide(c.out[0]), wide(dv)}, [](auto v) { return (v[0] - v[1]) * v[2]; }, dtype)};
  const Value dm = map({c.dout[0]}, [&](auto v) { return v[0] * inv; });
  return {map(
      {x, wide(c.out[0]), wide(dv), wide(dm)}, [](auto v) { return (v[0] - v[1]) * v[2] + v[3]; },
      dtype)};
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const auto& a = s.as<Moments>();
  const Shape& x = in[0].shape;
  int64_t outer = 1;
  for (int64_t d = 0; d < a.axis; ++d) outer *= x[d];
  const int64_t channels = x[-1], group_channels = channels / a.groups, n = count(x, a);
  const int64_t pixels = group_channels ? n / group_channels : 0;
  for (int64_t o = 0; o < outer * a.groups; ++o) {
    const double* p =
        in[0].v.data() + o / a.groups * pixels * channels + o % a.groups * group_channels;
    double mean = 0, var = 0;
    const auto each = [&](auto&& f) {
      for (int64_t i = 0; i < pixels; ++i)
        for (int64_t k = 0; k < group_channels; ++k) f(p[i * channels + k]);
    };
    each([&](double v) { mean += v / static_cast<double>(n); });
    each([&](double v) { var += (v - mean) * (v - mean) / static_cast<double>(n); });
    out[0].v[static_cast<size_t>(o)] = mean;
    out[1].v[static_cast<size_t>(o)] = var;
  }
}

// Of rows, also of several dims, or of pixels and groups of channels.
std::optional<LoopForm> loop(const Signature& s) {
  const auto& a = s.as<Moments>();
  const Shape& x = s.in[0].shape;
  const bool rows = a.axis == x.rank() - 1 || (a.groups == 1 && a.axis > 1);
  if (rows ? a.groups != 1 : a.axis != 1) return {};
  LoopForm f{.space = x, .groups = rows ? 0 : a.groups, .starts = true};
  for (int64_t d = a.axis; d < x.rank() - (rows ? 0 : 1); ++d) f.dims.push_back(d);
  f.scale = static_cast<double>(s.out[0].shape.numel()) / static_cast<double>(x.numel());
  f.write = +[](const Signature&, std::span<const Scalar> in, LoopReductions& reductions) {
    const Scalar mean = reductions.reduced(in[0]), distance = in[0] - mean;
    return std::vector<Scalar>{mean, reductions.reduced(distance * distance)};
  };
  return f;
}

Cost cost(const Signature& s) {
  const double n = static_cast<double>(s.in[0].shape.numel());
  return {.bytes = static_cast<double>(s.in[0].bytes()), .flops = 4 * n};
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "group_norm", .attrs = Moments{1, 4}, .in = {f32({2, 5, 7, 12})}},
      {.label = "one_channel_groups", .attrs = Moments{1, 6}, .in = {f32({3, 4, 4, 6})}},
      {.label = "layer_norm", .attrs = Moments{2, 1}, .in = {f32({2, 9, 37})}},
      {.label = "whole", .attrs = Moments{0, 1}, .in = {f32({131})}},
      {.label = "groups_of_six", .attrs = Moments{1, 32}, .in = {f32({1, 13, 11, 192})}},
      {.label = "many_pixels", .attrs = Moments{1, 4}, .in = {f32({1, 61, 67, 16})}},
      {.label = "row", .attrs = Moments{1, 1}, .in = {f32({3, 1160})}},
      {.label = "long_row", .attrs = Moments{1, 1}, .in = {f32({1, 40000})}},
      {.label = "image64", .attrs = Moments{1, 16}, .in = {f32({32, 64, 64, 64})}, .bench = true},
      {.label = "tokens", .attrs = Moments{2, 1}, .in = {f32({16, 256, 384})}, .bench = true},
  };
}

}  // namespace

const OpDef& def::moments() {
  static const OpDef d{.name = "moments",
                       .attrs = +[] { return Attrs(Moments{}); },
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .loop = loop,
                       .cost = cost,
                       .examples = examples};
  return d;
}

MeanVar moments(Value x, const Moments& attrs) {
  const Value in[] = {x};
  const std::vector<Value> out = x.graph->add(def::moments(), attrs, in);
  return {out[0], out[1]};
}

Value expand_groups(Value v, int64_t channels) {
  const int64_t groups = v.shape()[-1];
  if (groups == channels || groups == 1) return v;
  Shape split = v.shape(), wide = v.shape();
  split.push_back(1);
  wide.push_back(channels / groups);
  Shape out = v.shape();
  out[-1] = channels;
  return reshape(broadcast_to(reshape(v, split), wide), out);
}

}  // namespace ebb::ops
