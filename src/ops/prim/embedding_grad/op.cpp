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

// Of a table of `rows`, with ids below `integers`.
Example example(std::string label, int64_t rows, const Shape& ids, int64_t width,
                int64_t integers) {
  std::vector<int64_t> dy = ids.sizes();
  dy.push_back(width);
  return {.label = std::move(label),
          .attrs = EmbeddingGrad{rows},
          .in = {{DType::f32, Shape(dy)}, {DType::i64, ids}},
          .integers = integers};
}

std::vector<Example> examples() {
  Example captions = example("captions", 49408, {256, 77}, 128, 49408),
          padding = example("padding", 49408, {256, 77}, 128, 2);
  captions.bench = padding.bench = true;
  return {example("rows", 7, {11}, 5, 7),
          example("many", 3, {97}, 131, 3),
          example("wide", 5, {150}, 600, 5),
          example("few_rows_of_many", 9, {300}, 33, 2),
          example("tile_of_ids", 3, {2048}, 2, 2),
          example("equal_ids_in_two_tiles", 3, {2049}, 2, 2),
          example("many_tiles_of_ids", 5000, {20000}, 3, 5000),
          std::move(captions),
          std::move(padding),
          example("none", 3, {0}, 4, 3)};
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
