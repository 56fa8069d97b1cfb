#include "ops/prim/embedding_grad/op.h"

#include <algorithm>

#include "base/error.h"
#include "ops/prim/embedding/op.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 2 && s.in[1].dtype == DType::i64 && s.in[0].shape.rank() > 0 &&
              s.in[0].shape.slice(0, s.in[0].shape.rank() - 1) == s.in[1].shape,
          "embedding_grad: needs dy [...,d] and ids i64[...]  at ", s.at);
  return {{DType::f32, {s.as<EmbeddingGrad>().rows, s.in[0].shape[-1]}}};
}

std::vector<Value> vjp(const VjpCall& c) {
  return {cast(embedding(c.dout[0], c.in[1]), c.in[0].dtype()), {}};
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const int64_t rows = s.as<EmbeddingGrad>().rows, d = in[0].shape[-1];
  std::fill(out[0].v.begin(), out[0].v.end(), 0.0);
  for (size_t i = 0; i < in[1].v.size(); ++i) {
    const auto id = static_cast<int64_t>(in[1].v[i]);
    require(id >= 0 && id < rows, "embedding_grad: id ", id, " is out of range (", rows, " rows)");
    for (int64_t k = 0; k < d; ++k)
      out[0].v[static_cast<size_t>(id * d + k)] +=
          in[0].v[i * static_cast<size_t>(d) + static_cast<size_t>(k)];
  }
}

Cost cost(const Signature& s) {
  return {.bytes = static_cast<double>(s.in[0].bytes() + s.out[0].bytes()),
          .flops = static_cast<double>(s.in[0].shape.numel())};
}

std::vector<Example> examples() {
  return {
      {.label = "rows",
       .attrs = EmbeddingGrad{7},
       .in = {{DType::f32, {11, 5}}, {DType::i64, {11}}},
       .integers = 7},
      {.label = "many",
       .attrs = EmbeddingGrad{3},
       .in = {{DType::f32, {97, 131}}, {DType::i64, {97}}},
       .integers = 3},
      {.label = "wide",
       .attrs = EmbeddingGrad{5},
       .in = {{DType::f32, {150, 600}}, {DType::i64, {150}}},
       .integers = 5},
      {.label = "few_rows_of_many",
       .attrs = EmbeddingGrad{9},
       .in = {{DType::f32, {300, 33}}, {DType::i64, {300}}},
       .integers = 2},
      {.label = "tile_of_ids",
       .attrs = EmbeddingGrad{3},
       .in = {{DType::f32, {2048, 2}}, {DType::i64, {2048}}},
       .integers = 2},
      {.label = "equal_ids_in_two_tiles",
       .attrs = EmbeddingGrad{3},
       .in = {{DType::f32, {2049, 2}}, {DType::i64, {2049}}},
       .integers = 2},
      {.label = "many_tiles_of_ids",
       .attrs = EmbeddingGrad{5000},
       .in = {{DType::f32, {20000, 3}}, {DType::i64, {20000}}},
       .integers = 5000},
      {.label = "captions",
       .attrs = EmbeddingGrad{49408},
       .in = {{DType::f32, {256, 77, 128}}, {DType::i64, {256, 77}}},
       .bench = true,
       .integers = 49408},
      {.label = "padding",
       .attrs = EmbeddingGrad{49408},
       .in = {{DType::f32, {256, 77, 128}}, {DType::i64, {256, 77}}},
       .bench = true,
       .integers = 2},
      {.label = "none",
       .attrs = EmbeddingGrad{3},
       .in = {{DType::f32, {0, 4}}, {DType::i64, {0}}},
       .integers = 3},
  };
}

}  // namespace

const OpDef& def::embedding_grad() {
  static const OpDef d{.name = "embedding_grad",
                       .attrs = +[] { return Attrs(EmbeddingGrad{}); },
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .cost = cost,
                       .examples = examples};
  return d;
}

Value embedding_grad(Value dy, Value ids, int64_t rows) {
  return dy.graph->add1(def::embedding_grad(), EmbeddingGrad{rows}, {dy, ids});
}

}  // namespace ebb::ops
