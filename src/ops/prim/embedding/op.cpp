#include "ops/prim/embedding/op.h"

#include <algorithm>

#include "base/error.h"
#include "ops/prim/embedding_grad/op.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 2 && s.in[0].shape.rank() == 2, "embedding: needs table [rows,d] and ids",
          "  at ", s.at);
  require(s.in[1].dtype == DType::i64, "embedding: ids must be i64  ids: ", s.in[1], "  at ", s.at);
  Shape y = s.in[1].shape;
  y.push_back(s.in[0].shape[1]);
  return {{s.in[0].dtype, y}};
}

std::vector<Value> vjp(const VjpCall& c) {
  const Value dtable = embedding_grad(c.dout[0], c.in[1], c.in[0].shape()[0]);
  return {cast(dtable, c.in[0].dtype()), {}};
}

void reference(const Signature&, std::span<const RefArray> in, std::span<RefArray> out) {
  const int64_t rows = in[0].shape[0], d = in[0].shape[1];
  auto to = out[0].v.begin();
  for (const double id : in[1].v) {
    require(id >= 0 && id < static_cast<double>(rows), "embedding: id ", id, " is out of range (",
            rows, " rows)");
    to = std::copy_n(in[0].v.begin() + static_cast<int64_t>(id) * d, d, to);
  }
}

std::vector<Example> examples() {
  return {
      {.label = "rows", .in = {{DType::f32, {7, 5}}, {DType::i64, {11}}}, .integers = 7},
      {.label = "grid", .in = {{DType::f32, {3, 37}}, {DType::i64, {2, 3}}}, .integers = 3},
      {.label = "none", .in = {{DType::f32, {3, 4}}, {DType::i64, {0}}}, .integers = 3},
  };
}

}  // namespace

const OpDef& def::embedding() {
  static const OpDef d{.name = "embedding",
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .gathers = true,
                       .cost =
                           +[](const Signature& s) {
                             return Cost{.bytes = 2.0 * static_cast<double>(s.out[0].bytes())};
                           },
                       .examples = examples};
  return d;
}

Value embedding(Value table, Value ids) {
  return table.graph->add1(def::embedding(), {}, {table, ids});
}

}  // namespace ebb::ops
