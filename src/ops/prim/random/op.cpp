#include "ops/prim/random/op.h"

#include "base/error.h"
#include "base/random.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Random>();
  require(s.in.size() == 3 && s.in[0] == Type{DType::i64, {}} && s.in[2] == Type{DType::i64, {}} &&
              s.in[1].dtype == DType::i64 && s.in[1].shape.rank() == 1,
          "random: needs seed i64[], image i64[N] and step i64[]  at ", s.at);
  std::vector<int64_t> shape = {s.in[1].shape[0]};
  shape.insert(shape.end(), a.shape.begin(), a.shape.end());
  return {{DType::f32, Shape(shape)}};
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const auto& a = s.as<Random>();
  const auto word = [](double v) { return static_cast<uint64_t>(static_cast<int64_t>(v)); };
  const Shape one(a.shape);
  std::vector<float> numbers(static_cast<size_t>(one.numel()));
  auto to = out[0].v.begin();
  for (const double image : in[1].v) {
    const RandomKey key{word(in[0].v[0]), word(image), static_cast<uint32_t>(word(in[2].v[0])),
                        random_use(a.use)};
    a.dist == Distribution::normal ? fill_normal(key, 0, numbers) : fill_uniform(key, 0, numbers);
    to = std::copy(numbers.begin(), numbers.end(), to);
  }
}

std::vector<Example> examples() {
  using enum Distribution;
  const auto keys = [](int64_t n) {
    return std::vector<Type>{{DType::i64, {}}, {DType::i64, {n}}, {DType::i64, {}}};
  };
  return {
      {.label = "normal",
       .attrs = Random{normal, "noise", {5, 3}},
       .in = keys(3),
       .integers = 1000},
      {.label = "uniform",
       .attrs = Random{uniform, "dropout.1", {7, 11, 13}},
       .in = keys(2),
       .integers = 1000},
      {.label = "many", .attrs = Random{normal, "noise", {5003}}, .in = keys(2), .integers = 1000},
      {.label = "one_each", .attrs = Random{normal, "sigma", {}}, .in = keys(5), .integers = 1000},
      {.label = "empty", .attrs = Random{normal, "noise", {3}}, .in = keys(0), .integers = 1000},
      {.label = "images",
       .attrs = Random{normal, "noise", {64, 64, 3}},
       .in = keys(64),
       .bench = true,
       .integers = 1000},
  };
}

Value draw(const RandomKeys& key, Random attrs) {
  return key.image.graph->add1(def::random(), std::move(attrs), {key.seed, key.image, key.step});
}

}  // namespace

const OpDef& def::random() {
  static const OpDef d{.name = "random",
                       .attrs = +[] { return Attrs(Random{}); },
                       .infer = infer,
                       .reference = reference,
                       .by_index = true,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

Value random_normal(const RandomKeys& key, const Shape& shape, std::string use) {
  return draw(key, {Distribution::normal, std::move(use), shape.sizes()});
}

Value random_uniform(const RandomKeys& key, const Shape& shape, std::string use) {
  return draw(key, {Distribution::uniform, std::move(use), shape.sizes()});
}

}  // namespace ebb::ops
