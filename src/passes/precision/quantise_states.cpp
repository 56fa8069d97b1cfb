#include "passes/precision/quantise_states.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "passes/simplify.h"
#include "passes/uses.h"

namespace ebb {
namespace {

constexpr float zero = 128;  // the code of 0

Shape codes_shape(const Shape& weight) {
  return {weight[0], weight.numel() / weight[0] / Quantised::block, Quantised::block};
}
Shape scales_shape(const Shape& weight) {
  Shape out = codes_shape(weight);
  out[2] = 1;
  return out;
}

// Of one value and what is copied of it: whether products alone read it, and one does.
class Reading {
 public:
  explicit Reading(const Graph& g) : g_(g), uses_(g) {}

  bool by_products(int32_t v) const {
    return std::ranges::all_of(uses_.readers(v), [&](size_t r) {
      if (r == g_.nodes().size()) return false;  // an output or an update
      const Node& n = g_.nodes()[r];
      if (n.op->renames || n.op->copy)
        return std::ranges::all_of(n.out, [&](int32_t out) { return by_products(out); });
      return n.op->contraction && n.in.size() > 1 && n.in[1] == v && n.in[0] != v;
    });
  }
  bool is_read(int32_t v) const { return !uses_.readers(v).empty(); }

 private:
  const Graph& g_;
  Uses uses_;
};

}  // namespace

bool Quantised::takes(const Shape& w) {
  return w.rank() >= 2 && w.numel() > 0 && w.numel() / w[0] % block == 0;
}

Quantised Quantised::of(const std::string& name, const Tensor& w) {
  Quantised out{Tensor(DType::u8, codes_shape(w.shape())),
                Tensor(DType::f16, scales_shape(w.shape()))};
  const auto values = w.span<float>();
  const auto codes = out.codes.span<uint8_t>();
  const auto scales = out.scales.span<f16>();
  for (size_t b = 0; b < scales.size(); ++b) {
    const auto from = values.subspan(b * block, block);
    float largest = 0;
    for (const float v : from) {
      require(std::isfinite(v), "frozen_weights: '", name, "' has a number that is not finite (", v,
              "), which 8 bits cannot hold");
      largest = std::max(largest, std::abs(v));
    }
    scales[b] = f16(largest / 127);
    const auto d = static_cast<float>(scales[b]);
    require(std::isfinite(d), "frozen_weights: '", name, "' has numbers up to ", largest,
            ", of which 8 bits have no scale in f16 (at most ", 127 * 65504, ")");
    for (size_t i = 0; i < from.size(); ++i) {
      const float steps = d > 0 ? std::clamp(std::nearbyint(from[i] / d), -127.0F, 127.0F) : 0.0F;
      codes[b * block + i] = static_cast<uint8_t>(zero + steps);
    }
  }
  return out;
}

Tensor Quantised::restored(const Shape& shape) const {
  Tensor out(DType::f32, shape);
  const auto codes_in = codes.span<uint8_t>();
  const auto scales_in = scales.span<f16>();
  for (size_t i = 0; i < codes_in.size(); ++i)
    out.span<float>()[i] =
        (static_cast<float>(codes_in[i]) - zero) * static_cast<float>(scales_in[i / block]);
  return out;
}

std::string codes_of(std::string_view state) { return std::string(state) + ".q8"; }
std::string scales_of(std::string_view state) { return std::string(state) + ".q8_scale"; }

std::set<std::string> weights_of_products(const Graph& g) {
  std::set<std::string> out;
  const Reading reading(g);
  for (const Source& s : g.sources())
    if (s.kind != Source::Kind::input && g.type(s.value).shape.rank() >= 2 &&
        reading.is_read(s.value) && reading.by_products(s.value))
      out.insert(s.name);
  return out;
}

Graph quantise_states(const Graph& g, const std::set<std::string>& names) {
  for (const std::string& name : names) {
    const Source* s = g.find_source(name);
    require(s && s->kind == Source::Kind::state && !is_updated(g, *s),
            "frozen_weights: no weight of this name stays as it is  ", name);
    const Type& t = g.type(s->value);
    require(t.dtype == DType::f32 && Quantised::takes(t.shape), "frozen_weights: '", name,
            "' must be f32 with rows of a multiple of ", Quantised::block, " numbers (", t, ")");
  }
  Rewriter rw(g);
  for (const Source& s : g.sources()) {
    const Type& t = g.type(s.value);
    if (!names.contains(s.name)) {
      rw.set(s.value, rw.to().source(s.kind, s.name, t));
      continue;
    }
    const auto state = [&](const std::string& name, const Type& type) {
      return rw.to().source(Source::Kind::state, name, type);
    };
    const Value codes = state(codes_of(s.name), {DType::u8, codes_shape(t.shape)});
    const Value scales = state(scales_of(s.name), {DType::f16, scales_shape(t.shape)});
    const Value restored = ops::map(
        {codes, scales}, [](auto x) { return (x[0] - double{zero}) * x[1]; }, DType::f32);
    rw.set(s.value, ops::reshape(restored, t.shape));
  }
  for (const Node& n : g.nodes()) rw.copy(n);
  rw.copy_ends();
  Graph out = rw.take();
  verify(out, "quantise_states");
  return out;
}

}  // namespace ebb
