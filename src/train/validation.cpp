#include "train/validation.h"

#include <algorithm>

#include "base/error.h"
#include "nn/network.h"
#include "ops/prim/all_reduce/op.h"
#include "ops/prim/pointwise/op.h"
#include "train/augment.h"
#include "train/dataset_sources.h"
#include "train/step_plans.h"

namespace ebb::train {
namespace {

constexpr int64_t fewest_to_split = 100, one_in = 20, most_held_out = 256;

// Some images of another set.
class Subset final : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> of, std::vector<int64_t> images)
      : of_(std::move(of)), images_(std::move(images)) {
    class_names_ = of_->class_names();
    warnings_ = of_->warnings();
  }
  int64_t size() const override { return static_cast<int64_t>(images_.size()); }
  Shape image_shape() const override { return of_->image_shape(); }
  int64_t get(int64_t index, uint8_t* pixels) const override { return of_->get(at(index), pixels); }
  int64_t get_f32(int64_t index, float* pixels) const override {
    return of_->get_f32(at(index), pixels);
  }

 private:
  int64_t at(int64_t index) const {
    require(index >= 0 && index < size(), "dataset: index out of range (", index, " of ", size(),
            ")");
    return images_[static_cast<size_t>(index)];
  }
  std::shared_ptr<const Dataset> of_;
  std::vector<int64_t> images_;
};

// Off: 0. Throws Error.
int64_t count_asked_for(const std::string& setting, int64_t images) {
  if (setting == "auto")
    return images < fewest_to_split ? 0 : std::min(images / one_in, most_held_out);
  const std::string subject = "validation (auto, off, a number of images or a share like 5%)";
  if (!setting.ends_with('%')) return parse_integer(setting, subject);
  const double percent = parse_number(setting.substr(0, setting.size() - 1), subject);
  require(percent >= 0 && percent < 100, "validation: a share must be from 0% to below 100% (",
          setting, ")");
  if (percent == 0) return 0;
  return std::max<int64_t>(static_cast<int64_t>(static_cast<double>(images) * percent / 100), 1);
}

}  // namespace

// A validation costs about a third of as many training steps as it has batches.
int64_t validation_interval(const TrainConfig& c, int64_t batches) {
  constexpr int64_t steps_a_batch = 33, round = 50;
  if (c.validation_every > 0) return c.validation_every;
  return (batches * steps_a_batch + round - 1) / round * round;
}

int64_t held_out_count(const std::string& setting, int64_t images, int64_t test_images) {
  if (setting == "off") return 0;
  const bool own = test_images > 0;
  if (own && setting == "auto") return std::min(test_images, most_held_out);
  const int64_t n = count_asked_for(setting, own ? test_images : images);
  require(n >= 0, "validation: must not be negative (", n, ")");
  require(n <= (own ? test_images : images - 1), "validation: must leave images to train on (", n,
          " of ", own ? test_images : images, own ? " in the test split)" : ")");
  return n;
}

std::string too_few_to_hold_out(int64_t images) {
  return str("validation: none, as auto holds out images of ", fewest_to_split, " and more, and ",
             "there are ", images, "; --validation 10% holds out a tenth");
}

namespace {

HeldOut hold_out_test_images(std::unique_ptr<Dataset> data, const std::string& path,
                             DatasetOptions options, const std::string& setting) {
  options.split = "test";
  options.limit = 0;
  std::shared_ptr<const Dataset> test = open_dataset(path, options);
  HeldOut out{.training = std::move(data)};
  if (test->image_shape() != out.training->image_shape() ||
      test->classes() > out.training->classes()) {
    require(setting == "auto", "validation: the test split's images must be of the sizes and ",
            "classes of the others; --validation off trains without them  ", path);
    out.note = "validation: none, as the test split is of other sizes or classes";
    return out;
  }
  const int64_t n = held_out_count(setting, out.training->size(), test->size());
  if (n == 0) return out;
  out.note = str("validation: the loss of ", n, " of ", test->size(), " images of the test split");
  std::vector<int64_t> images = spread(test->size(), n);
  out.validation = std::make_unique<Subset>(std::move(test), std::move(images));
  return out;
}

}  // namespace

HeldOut hold_out(std::unique_ptr<Dataset> data, const std::string& path,
                 const DatasetOptions& options, const std::string& setting) {
  if (setting != "off" && has_test_split(path))
    return hold_out_test_images(std::move(data), path, options, setting);
  const int64_t all = data->size(), n = held_out_count(setting, all, 0);
  if (n == 0)
    return {.training = std::move(data),
            .validation = {},
            .note = setting == "auto" ? too_few_to_hold_out(all) : std::string()};
  const std::vector<int64_t> held = spread(all, n);
  std::vector<int64_t> rest;
  for (int64_t i = 0; i < all; ++i)
    if (!std::ranges::binary_search(held, i)) rest.push_back(i);
  const std::shared_ptr<const Dataset> whole = std::move(data);
  return {.training = std::make_unique<Subset>(whole, std::move(rest)),
          .validation = std::make_unique<Subset>(whole, held),
          .note = str("validation: ", n, " of ", all,
                      " images are held out; --validation off trains on all")};
}

Validation validation_of(const Dataset& data, const TrainConfig& c, const Split& split) {
  const int64_t all = c.micro_batch(), batch = all / split.ranks;
  Validation v;
  v.batches = (std::max(data.size(), fewest_items) + all - 1) / all;
  v.every = validation_interval(c, v.batches);
  v.batch = [&data, all, batch, split, augmented = c.augment > 0](int64_t number) {
    const Shape s = data.image_shape();
    Tensor images(DType::f32, {batch, s[0], s[1], s[2]}), labels(DType::i64, {batch}),
        item(DType::i64, {batch});
    for (int64_t i = 0; i < batch; ++i) {
      const int64_t k = number * all + split.rank * batch + i;
      item.span<int64_t>()[static_cast<size_t>(i)] = k;
      labels.span<int64_t>()[static_cast<size_t>(i)] =
          data.get_f32(k % data.size(), images.span<float>().data() + i * s.numel());
    }
    NamedTensors out{{"images", images}, {std::string(nn::class_id), labels}, {"image", item}};
    if (augmented)
      out[std::string(nn::augment_labels)] =
          Tensor(DType::f32, {batch, augment_labels});  // zeros: none
    return out;
  };
  return v;
}

namespace {

// The graph of the loss, the mean of all ranks'.
Graph validation_graph(const Graph& loss, const StepOptions& o) {
  Graph g = loss_of_rank(loss, o);
  if (o.split.ranks == 1) return g;
  const Value sum = ops::all_reduce(g.take_output("loss"), o.split.ranks);
  const auto ranks = static_cast<double>(o.split.ranks);
  g.output("loss", ops::map({sum}, [&](auto x) { return x[0] / ranks; }));
  return g;
}

}  // namespace

Validator::Validator(Validation validation, const TrainConfig& config, const StepOptions& options,
                     const Context& context, const Plan& training)
    : validation_(std::move(validation)), seed_(config.seed), training_(training) {
  const auto add = [&](const Graph& loss) {
    plans_.push_back(std::make_unique<Plan>(validation_graph(loss, options), context));
    if (plans_.size() > 1) plans_.back()->share_arena(*plans_.front());
  };
  add(validation_.loss);
  for (const Graph& loss : validation_.other_losses) add(loss);
  bind_averages();
  for (const auto& plan : plans_) plan->check_memory();
}

void Validator::bind_averages() {
  for (const Source& s : validation_.loss.sources()) {  // the same of all shapes
    if (s.kind == Source::Kind::input) continue;
    const Tensor& now = training_.bound(s.kind == Source::Kind::param ? "ema." + s.name : s.name);
    for (const auto& plan : plans_) plan->bind(s.name, now);
  }
}

Plan& Validator::plan_of(const NamedTensors& batch) {
  const auto found = std::ranges::find_if(plans_, [&](const auto& p) { return takes(*p, batch); });
  require(found != plans_.end(), "validation: there is no plan for batches of this shape (",
          batch.empty() ? Type{} : batch.begin()->second.type(), ")");
  return **found;
}

double Validator::loss(const std::function<void()>& between) {
  // Again each time: the averages have changed, and what a plan makes of its weights with them.
  bind_averages();
  double sum = 0;
  for (int64_t i = 0; i < validation_.batches; ++i) {
    if (between) between();
    NamedTensors in = validation_.batch(i);
    in["seed"] = scalar_tensor(static_cast<int64_t>(seed_));
    in["step"] = scalar_tensor(validation_step);
    Plan& plan = plan_of(in);
    std::erase_if(in, [&](const auto& one) { return !plan.graph().find_source(one.first); });
    sum += plan.run(in).find("loss")->second.span<float>()[0];
  }
  return sum / static_cast<double>(validation_.batches);
}

}  // namespace ebb::train
