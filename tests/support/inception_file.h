// The Inception network with hashed weights and hashed pictures, as
// tools/golden/inception_golden.py has them.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "support/hashed_weights.h"
#include "train/inception.h"

namespace ebb::testing {

// f32 [n,h,w,3] of 8-bit values as in [-1,1]: squares of one colour each.
inline Tensor hashed_pictures(std::string_view name, int64_t n, int64_t h, int64_t w,
                              int64_t side) {
  const int64_t rows = h / side + 1, columns = w / side + 1;
  const Tensor colours = hashed(name, {n, rows, columns, 3}, 1);
  Tensor out(DType::f32, {n, h, w, 3});
  for (int64_t i = 0; i < n * h * w * 3; ++i) {
    const int64_t c = i % 3, x = i / 3 % w / side, y = i / (3 * w) % h / side, of = i / (3 * w * h);
    const float v =
        colours.span<float>()[static_cast<size_t>(((of * rows + y) * columns + x) * 3 + c)];
    const double eight_bits = std::floor(128 * (double{v} + 1));
    out.span<float>()[static_cast<size_t>(i)] = static_cast<float>(eight_bits / 127.5 - 1);
  }
  return out;
}

// A safetensors file of 87 MB.
inline void write_hashed_inception(const std::string& path) {
  Graph g;
  nn::Weights weights;
  train::inception_features(nn::Params(g, "", &weights),
                            g.input("images", {DType::f32, {1, 8, 8, 3}}));
  std::vector<io::NamedTensor> tensors;
  for (const nn::Weight& w : weights) {
    const Shape shape = nn::file_shape(w);
    tensors.push_back({w.name, w.name.ends_with("running_var")
                                   ? hashed(w.name, shape, 0.1, 0.5)
                                   : hashed_file_tensor(w.name, shape)});
  }
  io::write_safetensors(path, tensors);
}

}  // namespace ebb::testing
