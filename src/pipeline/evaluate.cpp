#include "pipeline/evaluate.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "io/pixels.h"
#include "pipeline/evaluate_doubts.h"
#include "pipeline/feature_space.h"
#include "pipeline/pipeline_group.h"
#include "train/classifier.h"
#include "train/frechet.h"
#include "train/metrics.h"
#include "train/rotations.h"

namespace ebb {
namespace {

using train::Dataset;
using train::FeatureNet;

// Samples of which a classifier's figures say something: a share's two standard errors are 1/8.
// Below, the minutes of its training would be for nothing.
constexpr int64_t few = 64;

struct Sets {
  std::unique_ptr<Dataset> training, held_out;
  bool seen = false;  // the held-out images are some of the training images
  Shape original;     // of the first image, before it is fitted
};

Sets open_sets(const std::string& path, const CommonConfig& c,
               const std::function<void()>& between) {
  train::DatasetOptions o{
      .size = c.image_size, .channels = c.in_channels == 1 ? 1 : 3, .between = between};
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

// As a file of 8 bits has them: the images that they are compared with come of such.
Tensor in_8_bits(Tensor images) {
  const Tensor pixels = to_pixels(images);
  images = {};  // many images are large
  Tensor out(DType::f32, pixels.shape());
  io::signed_pixels(pixels.span<uint8_t>(), out.span<float>());
  return out;
}

// Classes 0, 1, ... in turn. Throws Error for models that make no pictures.
ResolvedRequest request_for(const LoadedModel& model, const EvaluateOptions& options,
                            size_t devices) {
  require(decoder_of(*model.model, model.config).has_value(), "eval: compares pictures, and ",
          model.model->name, " makes ", samples_text(*model.model, model.config));
  const int64_t classes = model.config.common().classes;
  GenerateRequest request;
  for (int64_t i = 0; i < options.n; ++i) request.classes.push_back(classes > 0 ? i % classes : -1);
  ResolvedRequest r = resolve(model, request, options.generate);
  if (options.generate.batch == 0) divide(r, devices);
  return r;
}

// Why samples of the model's classes cannot be told apart by the data's; "" if they can.
std::string unlike_classes(const LoadedModel& model, const Dataset& data) {
  const int64_t classes = model.config.common().classes;
  if (data.classes() < 2 || data.classes() != classes)
    return str("the model has ", classes, " classes, the data ", data.classes());
  if (model.class_names.empty()) return "";  // a published file: by number
  const auto [ours, other] = std::ranges::mismatch(model.class_names, data.class_names());
  if (ours == model.class_names.end()) return "";
  return str("class ", ours - model.class_names.begin(), " is '", *ours, "' in the model and '",
             *other, "' in the data");
}

// A line every ten per cent of some work on images, with the time left.
class Tenths {
 public:
  Tenths(std::string what, std::function<void(std::string_view)> log)
      : what_(std::move(what)), log_(std::move(log)) {}
  void at(double share) {
    const auto tenth = static_cast<int64_t>(share * 10);
    if (tenth <= shown_) return;
    shown_ = tenth;
    log_(str(what_, " images: ", tenth * 10, " %", train::left_text(start_, share)));
  }

 private:
  std::string what_;
  int64_t shown_ = -1;
  std::function<void(std::string_view)> log_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Evaluation {
 public:
  Evaluation(const LoadedModel& model, const EvaluateOptions& options,
             const std::vector<Context>& devices, const EvaluateHooks& hooks)
      : model_(model), options_(options), devices_(devices), context_(devices[0]), hooks_(hooks) {
    q_.n = options.n;
  }

  Quality run() {
    const auto start = std::chrono::steady_clock::now();
    const ResolvedRequest request = request_for(model_, options_, devices_.size());
    for (const std::string& w : request.warnings) log(w);
    open();
    warn();  // before the work
    if (!space_ || q_.conditional) make_classifier();
    warn();
    measure(request);
    q_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(q_);
  }

 private:
  void look() const {
    if (hooks_.stop && hooks_.stop()) throw Cancelled("eval: cancelled");
  }
  void log(std::string_view line) const {
    look();
    hooks_.log(line);
  }
  std::function<void()> looking() const {
    return [this] { look(); };
  }
  std::function<void(std::string_view)> logging() const {
    return [this](std::string_view line) { log(line); };
  }
  void open();
  void make_classifier();
  void warn();
  Tensor held_out_features(FeatureNet& net) const;
  void measure(const ResolvedRequest& request);

  const LoadedModel& model_;
  const EvaluateOptions& options_;
  const std::vector<Context>& devices_;
  const Context& context_;  // of the first
  const EvaluateHooks& hooks_;
  Sets sets_;
  std::unique_ptr<FeatureNet> classifier_, space_;
  bool tells_classes_ = false;  // the classifier does
  Quality q_;
};

// The data, and whose features are compared.
void Evaluation::open() {
  const CommonConfig& c = model_.config.common();
  sets_ = open_sets(options_.data, c, looking());
  for (const std::string& w : sets_.training->warnings()) log(w);
  q_.held_out = sets_.held_out->size();
  q_.held_out_seen = sets_.seen;
  require(q_.held_out >= 2, "eval: needs at least 2 held-out images (", q_.held_out, ")  ",
          options_.data);
  if (sets_.seen)
    log(str("the data has no test split: ", q_.held_out,
            " of the training images stand for held-out ones"));
  const std::string unlike = unlike_classes(model_, *sets_.training);
  q_.conditional = unlike.empty();
  if (!q_.conditional) log("no class accuracy: " + unlike);
  if (q_.conditional && q_.n < few) {
    q_.conditional = false;
    log(str("no class accuracy: of ", q_.n, " samples it says little, from ", few, " on there is"));
  }
  q_.inception = names_inception(options_.features);
  if (options_.features.empty()) {
    q_.turns = sets_.training->classes() <= 1;
    q_.features = q_.turns ? "quarter turns" : "classifier";
    return;
  }
  q_.features = q_.inception ? "inception" : options_.features;
  space_ = std::make_unique<FeatureNet>(
      open_features(options_.features, sets_.training->image_shape(), context_));
}

// Of the data's classes, or else of quarter turns, with its accuracy.
void Evaluation::make_classifier() {
  const auto make = [&](const Dataset& training, const Dataset& held_out) {
    classifier_ = std::make_unique<FeatureNet>(
        train::cached_classifier(training, options_.data, context_, {logging(), looking()}));
    q_.classifier_accuracy = train::class_accuracy(*classifier_, held_out, looking());
  };
  if (!q_.turns) return make(*sets_.training, *sets_.held_out);
  log("the data has no classes: features are those of a network that tells by how many quarter "
      "turns an image was rotated");
  make(train::Rotations(*sets_.training), train::Rotations(*sets_.held_out));
}

// Says what was not said yet: some doubts are known before there is a classifier.
void Evaluation::warn() {
  const Evidence e{.model = sets_.training->image_shape(),
                   .data = sets_.original,
                   .samples = q_.n,
                   .held_out = q_.held_out,
                   .features = space_ ? space_->features() : train::ClassifierConfig{}.features,
                   .accuracy = q_.classifier_accuracy.value_or(-1),
                   .classes = q_.turns ? 4 : sets_.training->classes(),
                   .conditional = q_.conditional,
                   .own_features = !space_,
                   .inception = q_.inception};
  const std::vector<std::string> before = std::exchange(q_.doubts, doubts(e));
  for (const std::string& d : q_.doubts)
    if (std::ranges::find(before, d) == before.end()) log("warning: " + d);
  tells_classes_ = tells_classes(e);
}

// Of all held-out images, in their order: [N,D].
Tensor Evaluation::held_out_features(FeatureNet& net) const {
  const Dataset& data = *sets_.held_out;
  const Shape s = data.image_shape();
  Tensor out(DType::f32, {data.size(), net.features()});
  Tenths shown("features of held-out", logging());
  constexpr int64_t batch = 256;
  for (int64_t at = 0; at < data.size(); at += batch) {
    const int64_t n = std::min(batch, data.size() - at);
    Tensor images(DType::f32, {n, s[0], s[1], s[2]});
    for (int64_t i = 0; i < n; ++i)
      data.get_f32(at + i, images.rows(i, i + 1).span<float>().data());
    const Tensor part = net.run(images, looking()).features;
    std::ranges::copy(part.span<float>(), out.rows(at, at + n).span<float>().begin());
    if (q_.inception)  // others take no time
      shown.at(static_cast<double>(at + n) / static_cast<double>(data.size()));
  }
  return out;
}

void Evaluation::measure(const ResolvedRequest& request) {
  Tenths shown(str("sampling ", q_.n), logging());
  const auto progress = [&](double share) {
    look();
    shown.at(share);
    return true;
  };
  const Tensor images =
      in_8_bits(PipelineGroup(model_, devices_).generate(request, progress).images);
  FeatureNet& net = space_ ? *space_ : *classifier_;
  if (q_.inception) log("features of the samples");
  const FeatureNet::Result seen = net.run(images, looking());
  const Tensor real = held_out_features(net);
  log("distances");
  q_.frechet_distance = train::frechet_distance(seen.features, real);
  q_.kernel_distance = train::kernel_distance(seen.features, real, context_, {}, looking());
  if (!q_.conditional || !tells_classes_) return;
  const Tensor logits = space_ ? classifier_->run(images, looking()).logits : seen.logits;
  q_.class_accuracy =
      static_cast<double>(train::count_right(logits, request.classes)) / static_cast<double>(q_.n);
}

}  // namespace

size_t used_devices(const LoadedModel& model, const EvaluateOptions& options, size_t devices) {
  if (devices == 1 || options.n < 2) return 1;  // evaluate() says what is wrong
  return used_devices(options.n, request_for(model, options, devices).batch, devices);
}

Quality evaluate(const LoadedModel& model, const EvaluateOptions& options,
                 const std::vector<Context>& devices, const EvaluateHooks& hooks) {
  require(options.n >= 2, "eval: n must be at least 2 (got ", options.n, ")");
  require(options.n >= few || !options.features.empty(), "eval: n must be at least ", few,
          " for a classifier to say anything (got ", options.n, "); --features takes fewer");
  return Evaluation(model, options, devices, hooks).run();
}

}  // namespace ebb
