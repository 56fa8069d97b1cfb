// Feature networks of users' files: what is refused, and that rows belong to their images.
#include "train/features.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "ops/mul/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "support/files.h"

namespace ebb::train {
namespace {

// Means of the channels times a weight each, for batches of `batch` images.
Graph means(int64_t batch) {
  Graph g;
  const Value x = g.input("images", {DType::f32, {batch, 2, 2, 3}});
  const Value w = g.source(Source::Kind::param, "gain", {DType::f32, {3}});
  g.output("features", ops::reshape(ops::mean(x, {1, 2}), {batch, 3}) * w);
  return g;
}

Tensor filled(const Shape& shape, float value) {
  Tensor t(DType::f32, shape);
  std::ranges::fill(t.span<float>(), value);
  return t;
}

void expect_refused(const Graph& g, const NamedTensors& weights, std::string_view error) {
  testing::expect_error([&] { FeatureNet(g, weights, open_context("cpu", {.threads = 1})); },
                        error);
}

TEST(feature_net, images_of_a_partial_batch__have_their_rows) {
  FeatureNet net(means(2), {{"gain", filled({3}, 2)}}, open_context("cpu", {.threads = 1}));
  Tensor images(DType::f32, {3, 2, 2, 3});
  for (int64_t i = 0; i < 3; ++i)
    std::ranges::fill(images.rows(i, i + 1).span<float>(), static_cast<float>(i));
  const Tensor f = net.run(images).features;
  EXPECT_EQ(f.shape(), (Shape{3, 3}));
  for (int64_t i = 0; i < 9; ++i)
    EXPECT_EQ(f.span<float>()[static_cast<size_t>(i)], static_cast<float>(2 * (i / 3))) << i;
}

TEST(feature_net, tensors_that_the_graph_has_not_or_that_are_missing__are_named) {
  expect_refused(means(2), {}, "features: the graph's tensor 'gain' is missing");
  expect_refused(means(2), {{"gain", filled({3}, 1)}, {"gains", filled({3}, 1)}},
                 "features: the graph has no tensor 'gains' (did you mean 'gain'?)");
  expect_refused(means(2), {{"gain", filled({4}, 1)}}, "weights: 'gain' is stored as f32[4]");
}

TEST(feature_net, graph_that_is_no_network_of_images__is_refused) {
  const NamedTensors gain = {{"gain", filled({3}, 1)}};
  expect_refused(means(0), gain, "features: the graph takes no images");
  Graph other = means(2);
  other.input("mask", {DType::f32, {2}});
  expect_refused(other, gain, "features: the graph must take images alone  mask");
  Graph fewer = means(2);
  fewer.output("features", ops::slice(fewer.take_output("features"), 0, 0, 1));
  expect_refused(fewer, gain, "features: output 'features' must be f32 [B,D], B 2  f32[1,3]");
  Graph updating = means(2);
  updating.update("gain", updating.source(Source::Kind::param, "next", {DType::f32, {3}}));
  expect_refused(updating, {{"gain", filled({3}, 1)}, {"next", filled({3}, 1)}},
                 "features: the graph must not update tensors");
}

}  // namespace
}  // namespace ebb::train
