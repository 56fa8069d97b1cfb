#include "pipeline/evaluate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "train/classifier.h"
#include "train/frechet.h"

namespace ebb {
namespace {

using train::Dataset;
using train::FeatureNet;

struct Sets {
  std::unique_ptr<Dataset> training, held_out;
  bool seen = false;  // the held-out images are some of the training images
};

Sets open_sets(const std::string& path, const CommonConfig& c) {
  train::DatasetOptions o{.size = c.image_size, .channels = c.in_channels == 1 ? 1 : 3};
  Sets s{open_dataset(path, o), nullptr, !train::has_test_split(path)};
  if (s.seen) {
    const int64_t n = s.training->size();
    o.limit = std::max(n / 10, std::min<int64_t>(n, 2));
  } else {
    o.split = "test";
  }
  s.held_out = open_dataset(path, o);
  return s;
}

// Feature statistics of a data set, in its order.
train::FeatureStatistics statistics(FeatureNet& net, const Dataset& data,
                                    const std::function<void()>& between) {
  train::FeatureStatistics out;
  const Shape s = data.image_shape();
  constexpr int64_t batch = 256;
  for (int64_t at = 0; at < data.size(); at += batch) {
    const int64_t n = std::min(batch, data.size() - at);
    Tensor images(DType::f32, {n, s[0], s[1], s[2]});
    for (int64_t i = 0; i < n; ++i)
      data.get_f32(at + i, images.rows(i, i + 1).span<float>().data());
    out.add(net.run(images, between).features);
  }
  return out;
}

}  // namespace

Quality evaluate(const LoadedModel& model, const EvaluateOptions& options, const Context& context,
                 const EvaluateHooks& hooks) {
  const auto look = [&] {
    if (hooks.stop && hooks.stop()) throw Cancelled("eval: cancelled");
  };
  const auto log = [&](std::string_view line) {
    look();
    hooks.log(line);
  };
  require(options.n >= 2, "eval: n must be at least 2 (got ", options.n, ")");
  const auto start = std::chrono::steady_clock::now();
  const CommonConfig& c = model.config.common();
  GenerateRequest request;
  for (int64_t i = 0; i < options.n; ++i)
    request.classes.push_back(c.classes > 0 ? i % c.classes : -1);
  check(model, request, options.generate);
  for (const std::string& w : warnings(model, request, options.generate)) log(w);
  const Sets sets = open_sets(options.data, c);
  if (sets.seen)
    log(str("the data has no test split: ", sets.held_out->size(),
            " of the training images stand for held-out ones"));
  Quality q{.n = options.n, .held_out = sets.held_out->size(), .held_out_seen = sets.seen};
  const bool labels = sets.training->classes() > 1;
  q.conditional = labels && c.classes == sets.training->classes();
  if (!q.conditional)
    log(str("no class accuracy: the model has ", c.classes, " classes, the data ",
            sets.training->classes()));
  require(labels || !options.features.empty(),
          "eval: the data has no classes to train the default features on; give --features  ",
          options.data);
  std::unique_ptr<FeatureNet> classifier, space;
  if (!options.features.empty())
    space = std::make_unique<FeatureNet>(FeatureNet::load(options.features, context));
  if (labels) {
    classifier = std::make_unique<FeatureNet>(
        train::cached_classifier(*sets.training, options.data, context, {log, look}));
    q.classifier_accuracy = train::class_accuracy(*classifier, *sets.held_out, look);
  }
  FeatureNet& features = space ? *space : *classifier;
  int64_t shown = -1;
  const Generated g = generate(model, request, options.generate, context, [&](double share) {
    look();
    if (static_cast<int64_t>(share * 10) > shown) {
      shown = static_cast<int64_t>(share * 10);
      log(str("sampling ", options.n, " images: ", shown * 10, " %"));
    }
    return true;
  });
  const FeatureNet::Result seen = features.run(g.images, look);
  train::FeatureStatistics samples;
  samples.add(seen.features);
  q.frechet_distance = train::frechet_distance(samples, statistics(features, *sets.held_out, look));
  if (q.conditional) {
    const Tensor logits = space ? classifier->run(g.images, look).logits : seen.logits;
    q.class_accuracy =
        static_cast<double>(train::count_right(logits, request.classes)) / static_cast<double>(q.n);
  }
  q.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return q;
}

}  // namespace ebb
