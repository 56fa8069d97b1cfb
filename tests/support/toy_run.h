// A run of training that takes milliseconds, and its checkpoints byte by byte.
#pragma once

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors.h"
#include "nn/params.h"
#include "ops/mse/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/random/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/silu/op.h"
#include "train/loop.h"

namespace ebb::testing {

inline constexpr int64_t toy_pixels = 12;

// A denoiser of one hidden layer: images plus noise in, images out.
inline Graph toy_loss(int64_t batch, nn::Weights* weights = nullptr) {
  Graph g;
  const nn::Params p(g, "", weights);
  const Value images = g.input("images", {DType::f32, {batch, 2, 2, 3}});
  const ops::RandomKeys key{g.input("seed", {DType::i64, {}}),
                            g.input("image", {DType::i64, {batch}}),
                            g.input("step", {DType::i64, {}})};
  const Value x = ops::reshape(images, {batch, toy_pixels});
  const Value noise = ops::random_normal(key, {toy_pixels}, "noise");
  const Value noisy = ops::map({x, noise}, [](auto v) { return v[0] + 0.1 * v[1]; });
  const AtScope at(g, "toy.hidden");
  const Value h = ops::silu(
      ops::linear(noisy, p.param("w1", {16, toy_pixels}, {.init = "normal", .scale = 0.3}),
                  p.param("b1", {16})));
  const Value y = ops::linear(h, p.param("w2", {toy_pixels, 16}, {.init = "normal", .scale = 0.3}),
                              p.param("b2", {toy_pixels}));
  g.output("loss", ops::mse(y, x));
  return g;
}

// Images that are a function of their number: points on a line.
inline NamedTensors toy_batch(int64_t micro_batch, int64_t batch) {
  Tensor images(DType::f32, {batch, 2, 2, 3}), index(DType::i64, {batch});
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t n = micro_batch * batch + i;
    index.span<int64_t>()[static_cast<size_t>(i)] = n;
    for (int64_t k = 0; k < toy_pixels; ++k)
      images.span<float>()[static_cast<size_t>(i * toy_pixels + k)] =
          static_cast<float>(std::sin(static_cast<double>(n % 17) + static_cast<double>(k)));
  }
  return {{"images", images}, {"image", index}, {"class", index}};
}

inline train::TrainConfig toy_config(const std::string& out) {
  return {.out = out,
          .steps = 20,
          .batch = 8,
          .seed = 5,
          .lr = 3e-3,
          .schedule = "cosine",
          .warmup = 3,
          .weight_decay = 0.01,
          .dtype = "f32",
          .checkpoint_every = 7,
          .keep = 0};
}

inline train::TrainJob toy_job(const train::TrainConfig& c) {
  const int64_t batch = c.batch / c.accumulation;
  train::TrainJob job{.config = c, .info = {.model = "toy"}, .loss = {}};
  job.loss = toy_loss(batch, &job.weights);
  job.batches = [batch](int64_t first) -> train::NextBatch {
    return [micro_batch = first, batch]() mutable { return toy_batch(micro_batch++, batch); };
  };
  return job;
}

// Every tensor of a checkpoint's two files, as bytes.
inline std::map<std::string, std::string> checkpoint_bytes(const std::string& folder,
                                                           int64_t step) {
  std::map<std::string, std::string> out;
  for (const std::string& path :
       {train::model_file(folder, step), train::state_file(folder, step)}) {
    const auto file = io::TensorFile::open(path);
    for (const auto& e : file.entries()) {
      const Tensor t = file.load(e);
      out[path.substr(folder.size()) + e.name] =
          std::string(static_cast<const char*>(t.raw()), static_cast<size_t>(t.bytes()));
    }
  }
  return out;
}

// The lines of its metrics.
inline std::vector<nlohmann::json> metrics(const std::string& folder) {
  std::vector<nlohmann::json> out;
  std::ifstream in(folder + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

}  // namespace ebb::testing
