// random: noise as a function of (seed, image, step, use); see base/random.h.
#pragma once

#include <string>

#include "base/enum_field.h"
#include "ir/op.h"

namespace ebb::ops {

enum class Distribution : uint8_t { normal, uniform };  // standard normal; in (0, 1)
constexpr ValueNames<2> value_names(Distribution) {
  return {"random: dist", {"normal", "uniform"}};
}

// Inputs: seed i64[], image i64[N], step i64[]. Output: f32 [N, shape...]; element e of image n is
// element e of the stream RandomKey{seed, image[n], step, random_use(use)}.
struct Random {
  EnumField<Distribution> dist = Distribution::normal;
  std::string use;             // what it is for; equal uses draw equal numbers
  std::vector<int64_t> shape;  // of one image
  void fields(auto&& f) {
    f("dist", dist);
    f("use", use);
    f("shape", shape);
  }
};

// Where the randomness of a graph comes from: values i64[], i64[N], i64[].
struct RandomKeys {
  Value seed, image, step;
};

namespace def {
const OpDef& random();
}

// `shape` is that of one image.
Value random_normal(const RandomKeys& key, const Shape& shape, std::string use);
Value random_uniform(const RandomKeys& key, const Shape& shape, std::string use);

}  // namespace ebb::ops
