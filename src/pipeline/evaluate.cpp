#include "pipeline/evaluate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "pipeline/evaluate_doubts.h"
#include "train/classifier.h"
#include "train/frechet.h"
#include "train/rotations.h"

namespace ebb {
namespace {

using train::Dataset;
using train::FeatureNet;

struct Sets {
  std::unique_ptr<Dataset> training, held_out;
  bool seen = false;  // the held-out images are some of the training images
  Shape original;     // of the first image, before it is fitted
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
  s.original = train::open_dataset(path, {.limit = 1, .check = false})->image_shape();
  return s;
}

// Of all images of a data set, in its order: [N,D].
Tensor features_of(const Dataset& data, FeatureNet& net, const std::function<void()>& between) {
  Tensor out;
  const Shape s = data.image_shape();
  constexpr int64_t batch = 256;
  for (int64_t at = 0; at < data.size(); at += batch) {
    const int64_t n = std::min(batch, data.size() - at);
    Tensor images(DType::f32, {n, s[0], s[1], s[2]});
    for (int64_t i = 0; i < n; ++i)
      data.get_f32(at + i, images.rows(i, i + 1).span<float>().data());
    const Tensor part = net.run(images, between).features;
    if (!out.defined()) out = Tensor(DType::f32, {data.size(), part.shape()[1]});
    std::ranges::copy(part.span<float>(), out.rows(at, at + n).span<float>().begin());
  }
  return out;
}

// Classes 0, 1, ... in turn. Throws Error for models that make no pictures.
ResolvedRequest request_for(const LoadedModel& model, const EvaluateOptions& options) {
  require(decoder_of(*model.model, model.config).has_value(), "eval: compares pictures, and ",
          model.model->name, " makes ", samples_text(*model.model, model.config));
  const int64_t classes = model.config.common().classes;
  GenerateRequest request;
  for (int64_t i = 0; i < options.n; ++i) request.classes.push_back(classes > 0 ? i % classes : -1);
  return resolve(model, request, options.generate);
}

// Of the data's classes, or else of quarter turns, with its accuracy.
std::unique_ptr<FeatureNet> classifier_of(const Sets& sets, const std::string& path,
                                          const Context& context, const train::Progress& progress,
                                          Quality& q) {
  const auto make = [&](const Dataset& training, const Dataset& held_out) {
    auto net =
        std::make_unique<FeatureNet>(train::cached_classifier(training, path, context, progress));
    q.classifier_accuracy = train::class_accuracy(*net, held_out, progress.between);
    return net;
  };
  if (!q.turns) return make(*sets.training, *sets.held_out);
  progress.log(
      "the data has no classes: features are those of a network that tells by how many "
      "quarter turns an image was rotated");
  return make(train::Rotations(*sets.training), train::Rotations(*sets.held_out));
}

Evidence evidence(const Quality& q, const Sets& sets, const Tensor& samples, const Tensor& features,
                  bool judged) {
  return {.model = samples.shape().slice(1, 4),
          .data = sets.original,
          .samples = q.n,
          .held_out = q.held_out,
          .features = features.shape()[1],
          .accuracy = judged ? q.classifier_accuracy : -1,
          .classes = q.turns ? 4 : sets.training->classes(),
          .conditional = q.conditional};
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
  const ResolvedRequest request = request_for(model, options);
  for (const std::string& w : request.warnings) log(w);
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
  q.turns = !labels && options.features.empty();
  std::unique_ptr<FeatureNet> classifier, space;
  if (!options.features.empty())
    space = std::make_unique<FeatureNet>(FeatureNet::load(options.features, context));
  if (labels || q.turns) classifier = classifier_of(sets, options.data, context, {log, look}, q);
  FeatureNet& features = space ? *space : *classifier;
  int64_t shown = -1;
  const Generated g = Pipeline(model, context).generate(request, [&](double share) {
    look();
    if (static_cast<int64_t>(share * 10) > shown) {
      shown = static_cast<int64_t>(share * 10);
      log(str("sampling ", options.n, " images: ", shown * 10, " %"));
    }
    return true;
  });
  const FeatureNet::Result seen = features.run(g.images, look);
  q.frechet_distance =
      train::frechet_distance(seen.features, features_of(*sets.held_out, features, look));
  if (q.conditional) {
    const Tensor logits = space ? classifier->run(g.images, look).logits : seen.logits;
    q.class_accuracy =
        static_cast<double>(train::count_right(logits, request.classes)) / static_cast<double>(q.n);
  }
  q.doubts = doubts(evidence(q, sets, g.images, seen.features, classifier != nullptr));
  for (const std::string& d : q.doubts) log("caution: " + d);
  q.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return q;
}

}  // namespace ebb
