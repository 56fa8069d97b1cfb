#include "train/classifier.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iomanip>

#include "base/error.h"
#include "base/hash.h"
#include "nn/layers.h"
#include "nn/weights.h"
#include "ops/cross_entropy/op.h"
#include "ops/prim/max_pool/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/relu/op.h"
#include "train/loader.h"
#include "train/metrics.h"
#include "train/step.h"

namespace ebb::train {
namespace {

struct Outputs {
  Value features, logits;
};

// Convolutions with relu, halving the image until it is at most 8 pixels wide; two linear layers.
Outputs build(const nn::Params& p, Value x, int64_t classes, const ClassifierConfig& c) {
  int64_t width = c.width;
  for (int64_t level = 0;; ++level, width = std::min<int64_t>(2 * width, 256)) {
    x = ops::relu(nn::conv(p / "conv" / level, x, width));
    if (x.shape()[1] <= 8 || x.shape()[2] <= 8) break;
    x = ops::max_pool2(x);
  }
  x = ops::reshape(x, {x.shape()[0], -1});
  const Value features = ops::relu(nn::linear(p / "hidden", x, c.features));
  return {features, nn::linear(p / "logits", features, classes)};
}

Graph inference_graph(const Shape& image, int64_t classes, const ClassifierConfig& c,
                      nn::Weights* weights) {
  Graph g;
  const Value x = g.input("images", {DType::f32, {c.batch, image[0], image[1], image[2]}});
  const Outputs out = build(nn::Params(g, "", weights), x, classes, c);
  g.output("features", out.features);
  g.output("logits", out.logits);
  return g;
}

Graph training_graph(const Shape& image, int64_t classes, const ClassifierConfig& c) {
  Graph g;
  const Value x = g.input("images", {DType::f32, {c.batch, image[0], image[1], image[2]}});
  const Value labels = g.input("labels", {DType::i64, {c.batch}});
  g.output("loss", ops::cross_entropy(build(nn::Params(g), x, classes, c).logits, labels));
  return g;
}

// Names the data set by where it is, how large it is and a sample of its pixels, and the config.
std::string cache_name(const Dataset& data, const std::string& path) {
  ClassifierConfig c;
  uint64_t h = fnv1a(str(std::filesystem::absolute(path).string(), data.size(), data.image_shape(),
                         data.classes(), fields_text(fields_of(c)), " v1"));
  std::vector<uint8_t> pixels(static_cast<size_t>(data.image_shape().numel()));
  for (int64_t i = 0; i < 16; ++i) {
    const int64_t label = data.get(data.size() * i / 16, pixels.data());
    for (const uint8_t v : pixels) h = splitmix64(h ^ v);
    h = splitmix64(h ^ static_cast<uint64_t>(label));
  }
  std::ostringstream name;
  name << "classifier-" << std::hex << std::setw(16) << std::setfill('0') << h << ".safetensors";
  return name.str();
}

}  // namespace

FeatureNet train_classifier(const Dataset& data, const ClassifierConfig& config,
                            const Context& context, const ClassifierHooks& progress) {
  require(data.classes() > 1, "classifier: the data set has no classes");
  ClassifierConfig c = config;
  c.batch = std::min(c.batch, data.size());
  const int64_t steps = std::max({int64_t{1}, c.min_steps, c.epochs * data.size() / c.batch});
  const bool fast = context.device->fast_in(DType::bf16);
  nn::Weights specs;
  const Graph forward = inference_graph(data.image_shape(), data.classes(), c, &specs);
  const StepOptions options{.dtype = fast ? DType::bf16 : DType::f32,
                            .ema = false,
                            .undecayed = nn::without_decay(specs)};
  Plan plan(train_step(training_graph(data.image_shape(), data.classes(), c), options), context);
  NamedTensors weights;
  for (const auto& [name, tensor] : nn::initial_tensors(specs, c.seed)) {
    weights[name] = tensor;
    plan.bind(name, tensor);
  }
  plan.bind_missing();
  BatchLoader loader(data, {.batch = c.batch, .seed = c.seed});
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds between_lines(5);
  Clock::time_point start = Clock::now(), said = start;
  for (int64_t s = 0; s < steps; ++s) {
    if (progress.between) progress.between();
    if (s == 1) start = Clock::now();  // the first step is slower than the others
    const Batch b = loader.next();
    const double left = 1 - static_cast<double>(s) / static_cast<double>(steps);
    NamedTensors in = step_inputs({.step = s, .lr = c.lr * left}, options);
    in["images"] = b.images;
    in["labels"] = b.labels;
    const float loss = plan.run(in).at("loss").span<float>()[0];
    require(std::isfinite(loss), "classifier: the loss is not finite at step ", s);
    if (s > 1 && s + 1 < steps && Clock::now() - said < between_lines) continue;
    said = Clock::now();
    const std::string time =
        s > 0 ? left_text(start, static_cast<double>(s) / static_cast<double>(steps - 1)) : "";
    progress.log(
        str("training the classifier: step ", s + 1, " of ", steps, ", loss ", loss, time));
  }
  for (auto& [name, tensor] : weights) tensor = plan.fetch(name);
  return {forward, std::move(weights), context};
}

int64_t count_right(const Tensor& logits, std::span<const int64_t> labels) {
  int64_t right = 0;
  for (int64_t i = 0; i < logits.shape()[0]; ++i) {
    const auto row = logits.rows(i, i + 1).span<float>();
    right +=
        std::max_element(row.begin(), row.end()) - row.begin() == labels[static_cast<size_t>(i)];
  }
  return right;
}

double class_accuracy(FeatureNet& net, const Dataset& data, const std::function<void()>& between) {
  require(net.has_logits() && data.size() > 0, "classifier: needs logits and images");
  const Shape image = data.image_shape();
  constexpr int64_t batch = 256;
  int64_t right = 0;
  for (int64_t at = 0; at < data.size(); at += batch) {
    const int64_t n = std::min(batch, data.size() - at);
    Tensor images(DType::f32, {n, image[0], image[1], image[2]});
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < n; ++i)
      labels.push_back(data.get_f32(at + i, images.rows(i, i + 1).span<float>().data()));
    right += count_right(net.run(images, between).logits, labels);
  }
  return static_cast<double>(right) / static_cast<double>(data.size());
}

FeatureNet cached_classifier(const Dataset& data, const std::string& path, const Context& context,
                             const ClassifierHooks& progress) {
  const std::string file = cache_path(cache_name(data, path));
  if (!file.empty() && std::filesystem::exists(file)) {
    try {
      return FeatureNet::load(file, context);
    } catch (const Error& e) {
      progress.log(str("the cached classifier is of no use and is made anew: ", e.what()));
    }
  }
  FeatureNet net = train_classifier(data, {}, context, progress);
  if (file.empty()) return net;
  try {
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    net.save(file, {{"data", path}});
  } catch (const std::exception& e) {
    progress.log(str("the classifier could not be cached: ", e.what()));
  }
  return net;
}

}  // namespace ebb::train
