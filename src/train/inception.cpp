#include "train/inception.h"

#include "base/error.h"
#include "core/out_of_memory.h"
#include "io/safetensors.h"
#include "nn/ops.h"
#include "ops/prim/pad/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/sqrt/op.h"
#include "train/model_weights.h"

namespace ebb::train {
namespace {

using nn::Params;

struct Conv {
  int64_t out = 0, height = 1, width = 1;
  int64_t stride = 1;
  bool same = true;  // padded with zeros, so that the size stays
};

// Convolution, batch norm with the statistics of training, ReLU. The norm is folded into filter and
// bias, which depend on weights alone: a plan prepares them once.
Value conv(const Params& p, Value x, const Conv& a) {
  const AtScope at = p.enter();
  constexpr double eps = 1e-3;
  const Params bn = p / "bn";
  const Value filter =
      (p / "conv")
          .param("weight", {a.out, a.height, a.width, x.shape()[-1]}, {.channels_last = true});
  const Value gain = bn.param("weight", {a.out}), offset = bn.param("bias", {a.out});
  const Value mean = bn.buffer("running_mean", {a.out}), var = bn.buffer("running_var", {a.out});
  const Value scale = gain / ops::sqrt(var + eps);
  const int64_t h = a.same ? a.height / 2 : 0, w = a.same ? a.width / 2 : 0;
  return ops::relu(ops::conv2d(x, filter * ops::reshape(scale, {a.out, 1, 1, 1}),
                               offset - mean * scale, {.stride = a.stride, .pad = {h, w, h, w}}));
}

Value max_pool3_halve(Value x) { return ops::max_pool(x, {.window = 3, .stride = 2}); }

// Of numbers that are not negative, as all behind a ReLU: zeros around them change no maximum.
Value max_pool3_same(Value x) {
  return ops::max_pool(ops::pad(x, {{0, 1, 1, 0}, {0, 1, 1, 0}}), {.window = 3, .stride = 1});
}

// ---- blocks, with the names of torchvision -------------------------------------------------

Value block_a(const Params& p, Value x, int64_t pooled) {
  const Value one = conv(p / "branch1x1", x, {64});
  const Value five = conv(p / "branch5x5_2", conv(p / "branch5x5_1", x, {48}), {64, 5, 5});
  Value three = conv(p / "branch3x3dbl_1", x, {64});
  three = conv(p / "branch3x3dbl_2", three, {96, 3, 3});
  three = conv(p / "branch3x3dbl_3", three, {96, 3, 3});
  return ops::concat({one, five, three, conv(p / "branch_pool", ops::box_mean3(x), {pooled})}, 3);
}

// 35x35 to 17x17.
Value block_b(const Params& p, Value x) {
  const Value three = conv(p / "branch3x3", x, {384, 3, 3, 2, false});
  Value twice = conv(p / "branch3x3dbl_1", x, {64});
  twice = conv(p / "branch3x3dbl_2", twice, {96, 3, 3});
  twice = conv(p / "branch3x3dbl_3", twice, {96, 3, 3, 2, false});
  return ops::concat({three, twice, max_pool3_halve(x)}, 3);
}

Value block_c(const Params& p, Value x, int64_t width) {
  const Value one = conv(p / "branch1x1", x, {192});
  Value seven = conv(p / "branch7x7_1", x, {width});
  seven = conv(p / "branch7x7_2", seven, {width, 1, 7});
  seven = conv(p / "branch7x7_3", seven, {192, 7, 1});
  Value twice = conv(p / "branch7x7dbl_1", x, {width});
  twice = conv(p / "branch7x7dbl_2", twice, {width, 7, 1});
  twice = conv(p / "branch7x7dbl_3", twice, {width, 1, 7});
  twice = conv(p / "branch7x7dbl_4", twice, {width, 7, 1});
  twice = conv(p / "branch7x7dbl_5", twice, {192, 1, 7});
  return ops::concat({one, seven, twice, conv(p / "branch_pool", ops::box_mean3(x), {192})}, 3);
}

// 17x17 to 8x8.
Value block_d(const Params& p, Value x) {
  const Value three = conv(p / "branch3x3_2", conv(p / "branch3x3_1", x, {192}),  //
                           {320, 3, 3, 2, false});
  Value seven = conv(p / "branch7x7x3_1", x, {192});
  seven = conv(p / "branch7x7x3_2", seven, {192, 1, 7});
  seven = conv(p / "branch7x7x3_3", seven, {192, 7, 1});
  seven = conv(p / "branch7x7x3_4", seven, {192, 3, 3, 2, false});
  return ops::concat({three, seven, max_pool3_halve(x)}, 3);
}

Value block_e(const Params& p, Value x, Value pooled) {
  const Value one = conv(p / "branch1x1", x, {320});
  const Value three = conv(p / "branch3x3_1", x, {384});
  const Value twice = conv(p / "branch3x3dbl_2", conv(p / "branch3x3dbl_1", x, {448}), {384, 3, 3});
  return ops::concat(
      {one,  //
       conv(p / "branch3x3_2a", three, {384, 1, 3}), conv(p / "branch3x3_2b", three, {384, 3, 1}),
       conv(p / "branch3x3dbl_3a", twice, {384, 1, 3}),
       conv(p / "branch3x3dbl_3b", twice, {384, 3, 1}), conv(p / "branch_pool", pooled, {192})},
      3);
}

}  // namespace

Value inception_features(const Params& p, Value images) {
  Value x = images;
  if (x.shape()[3] == 1) x = ops::concat({x, x, x}, 3);
  x = ops::resize_bilinear(x, 299, 299);
  x = conv(p / "Conv2d_1a_3x3", x, {32, 3, 3, 2, false});
  x = conv(p / "Conv2d_2a_3x3", x, {32, 3, 3, 1, false});
  x = max_pool3_halve(conv(p / "Conv2d_2b_3x3", x, {64, 3, 3}));
  x = conv(p / "Conv2d_3b_1x1", x, {80});
  x = max_pool3_halve(conv(p / "Conv2d_4a_3x3", x, {192, 3, 3, 1, false}));
  x = block_a(p / "Mixed_5b", x, 32);
  x = block_a(p / "Mixed_5c", x, 64);
  x = block_a(p / "Mixed_5d", x, 64);
  x = block_b(p / "Mixed_6a", x);
  x = block_c(p / "Mixed_6b", x, 128);
  x = block_c(p / "Mixed_6c", x, 160);
  x = block_c(p / "Mixed_6d", x, 160);
  x = block_c(p / "Mixed_6e", x, 192);
  x = block_d(p / "Mixed_7a", x);
  x = block_e(p / "Mixed_7b", x, ops::box_mean3(x));
  x = block_e(p / "Mixed_7c", x, max_pool3_same(x));
  return ops::reshape(ops::mean(x, {1, 2}), {x.shape()[0], inception_width});
}

FeatureNet load_inception(const std::string& path, const Shape& image, int64_t batch,
                          const Context& context) {
  require(image.rank() == 3 && (image[2] == 1 || image[2] == 3),
          "inception: takes images [H,W,1] or [H,W,3] (got ", image, ")");
  require(!path.ends_with(".pth") && !path.ends_with(".pt"),
          "inception: takes a safetensors file; docs/evaluation.md tells how to make one of  ",
          path);
  Graph g;
  nn::Weights weights;
  const Value x = g.input("images", {DType::f32, {batch, image[0], image[1], image[2]}});
  g.output("features", inception_features(Params(g, "", &weights), x));
  const auto ignored = [](std::string_view name) {
    return name.starts_with("fc.") || name.ends_with(".num_batches_tracked");
  };
  io::TensorFile::open(path);  // it is one
  NamedTensors tensors;
  try {
    tensors = load_model_weights(path, weights, {.ignored = ignored});
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    fail("inception: these are not its weights  ", path, "\n", e.what());
  }
  return {g, std::move(tensors), context};
}

}  // namespace ebb::train
