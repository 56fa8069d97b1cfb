#include "ops/prim/permute/op.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& dims = s.as<Permute>().dims;
  const Shape& x = s.in.at(0).shape;
  std::vector<int64_t> sorted = dims, all(static_cast<size_t>(x.rank()));
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  require(sorted == all, "permute: dims must name every dim once (", Shape(dims), ")  x: ", s.in[0],
          "  at ", s.at);
  Shape out = x;
  for (int64_t k = 0; k < x.rank(); ++k) out[k] = x[dims[static_cast<size_t>(k)]];
  return {{s.in[0].dtype, out}};
}

std::vector<Value> vjp(const VjpCall& c) {
  const auto& dims = c.sig.as<Permute>().dims;
  std::vector<int64_t> back(dims.size());
  for (size_t k = 0; k < dims.size(); ++k)
    back[static_cast<size_t>(dims[k])] = static_cast<int64_t>(k);
  return {permute(c.dout[0], back)};
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const auto& dims = s.as<Permute>().dims;
  const auto from = in[0].shape.strides(), to = out[0].shape.strides();
  for (int64_t i = 0; i < out[0].shape.numel(); ++i) {
    int64_t at = 0, rest = i;
    for (size_t k = 0; k < dims.size(); ++k) {
      at += rest / to[k] * from[static_cast<size_t>(dims[k])];
      rest %= to[k];
    }
    out[0].v[static_cast<size_t>(i)] = in[0].v[static_cast<size_t>(at)];
  }
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "heads", .attrs = Permute{{0, 2, 1, 3}}, .in = {f32({2, 5, 3, 7})}},
      {.label = "transpose", .attrs = Permute{{1, 0}}, .in = {f32({37, 67})}},
      {.label = "reverse", .attrs = Permute{{3, 2, 1, 0}}, .in = {f32({2, 3, 1, 41})}},
      {.label = "patches", .attrs = Permute{{0, 1, 3, 2, 4, 5}}, .in = {f32({2, 3, 2, 5, 2, 3})}},
      {.label = "integers", .attrs = Permute{{1, 0}}, .in = {{DType::i64, {5, 3}}}, .integers = 99},
      {.label = "channels_first", .attrs = Permute{{0, 3, 1, 2}}, .in = {f32({2, 9, 10, 32})}},
      {.label = "bytes", .attrs = Permute{{1, 0}}, .in = {{DType::u8, {132, 40}}}, .integers = 99},
      {.label = "scalar", .attrs = Permute{}, .in = {f32({})}},
      {.label = "empty", .attrs = Permute{{1, 0}}, .in = {f32({0, 3})}},
      {.label = "large",
       .attrs = Permute{{0, 2, 1, 3}},
       .in = {f32({16, 256, 6, 64})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::permute() {
  static const OpDef d{.name = "permute",
                       .attrs = +[] { return Attrs(Permute{}); },
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .permutation = +[](const Signature& s) { return s.as<Permute>().dims; },
                       .examples = examples};
  return d;
}

Value permute(Value x, std::vector<int64_t> dims) {
  if (std::is_sorted(dims.begin(), dims.end()) &&
      static_cast<int64_t>(dims.size()) == x.shape().rank())
    return x;
  return x.graph->add1(def::permute(), Permute{std::move(dims)}, {x});
}

}  // namespace ebb::ops
