#include "pipeline/train_autoencoder.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "io/file.h"
#include "models/config_fields.h"
#include "nn/ops.h"
#include "nn/patch_discriminator.h"
#include "pipeline/finetune_metadata.h"
#include "pipeline/held_out_pictures.h"
#include "pipeline/latent_space.h"
#include "pipeline/tensor_cache.h"
#include "pipeline/train_encoders.h"
#include "train/loader.h"
#include "train/many_files.h"

namespace ebb {
namespace {

const LoadedComponent& autoencoder_in(const CheckpointParts& parts, const std::string& file) {
  require(parts.autoencoder.has_value(), "train: the checkpoint has no autoencoder  ", file);
  const Component& c = parts.autoencoder->component;
  require(c.model->name == "autoencoder_kl", "train: autoencoders of ", c.model->name,
          " are not trained  ", file);
  return *parts.autoencoder;
}

// Their sum over all elements and the results of `f`, f32[].
Value sum_of(std::initializer_list<Value> in, auto&& f) {
  return ops::reshape(ops::sum_of(in, {0, 1, 2, 3}, f), {});
}

}  // namespace

AutoencoderLoss autoencoder_loss(const Component& c, Value images,
                                 const std::function<Value(const Shape&)>& noise,
                                 double kl_weight) {
  const nn::Params p(*images.graph);
  const Shape shape = images.shape();  // a copy: the graph grows
  const nn::ValuesByName coded =
      find_entry(*c.model, "encode").build(p, c.config, {{"pixels", images}});
  const Value mean = coded.at("mean"), logvar = coded.at("logvar");
  const Value latents = ops::map({mean, logvar, noise(mean.shape())},
                                 [](auto v) { return v[0] + exp(v[1] * 0.5) * v[2]; });
  const Value made =
      find_entry(*c.model, "decode").build(p, c.config, {{"latents", latents}}).at("pixels");
  const double share = 1.0 / static_cast<double>(shape.numel());
  const Value l1 = sum_of({images, made}, [=](auto v) { return abs(v[0] - v[1]) * share; });
  const Value kl = sum_of({mean, logvar}, [=](auto v) {
    return (v[0] * v[0] + exp(v[1]) - 1.0 - v[1]) * (0.5 * share);
  });
  return {ops::map({l1, kl}, [=](auto v) { return v[0] + v[1] * kl_weight; }), l1, kl, made};
}

Graph autoencoder_loss_graph(const Component& c, const Shape& shape,
                             const AutoencoderLossOptions& o) {
  Graph g;
  const Value images = g.input("images", {DType::f32, shape});
  ops::RandomKeys key;
  key.seed = g.input("seed", {DType::i64, {}});
  key.image = g.input("image", {DType::i64, {shape[0]}});
  key.step = g.input("step", {DType::i64, {}});
  const auto noise = [&](const Shape& latents) {
    return ops::random_normal(key, latents.slice(1, latents.rank()), "loss.latent");
  };
  const AutoencoderLoss loss = autoencoder_loss(c, images, noise, o.kl_weight);
  g.output("loss", loss.loss);
  if (o.adversary.weight == 0) return g;
  const train::MadePictures made{"made", "l1", std::string(last_layer), o.ranks};
  g.output(made.pictures, loss.made);
  g.output(made.reconstruction, loss.l1);
  return with_adversary(g, o.adversary, made);
}

NamedTensors with_scaled_latents(NamedTensors weights, const std::string& prefix, double factor) {
  const auto own = [&](const char* name) {
    const auto it = weights.find(prefix + name);
    require(it != weights.end(),
            "unit_latents: the autoencoder has no 1x1 convolutions around its ", "latents (", name,
            ")");
    it->second = it->second.clone();
    return it->second.span<float>();
  };
  const auto k = static_cast<float>(factor);
  // the upper half of the rows makes the mean, the lower the logarithm of the variance
  const auto rows = own("quant_conv.weight"), bias = own("quant_conv.bias");
  for (float& v : rows.first(rows.size() / 2)) v *= k;
  for (float& v : bias.first(bias.size() / 2)) v *= k;
  for (float& v : bias.last(bias.size() / 2)) v += 2 * std::log(k);
  for (float& v : own("post_quant_conv.weight")) v /= k;
  return weights;
}

AutoencoderTraining::AutoencoderTraining(FinetuneRequest request, const Context& context)
    : request_(std::move(request)),
      c_(request_.train),
      f_(request_.config),
      context_(context),
      parts_(open_checkpoint(request_)),
      writer_(request_) {
  const LoadedComponent& own = autoencoder_in(parts_, c_.model);
  require(!f_.unit_latents || text_in(own.component.config, "quant_conv") == "true",
          "unit_latents: the autoencoder has no 1x1 convolutions around its latents  ", c_.model);
  const std::string cache = cache_folder(request_);
  io::check_can_fill(cache, "cache_dir");
  keep(f_.base, hash_text(*own.weights), "the autoencoder", c_.model);
  weights_ = weights_of(*own.component.model, own.component.config);
  for (const nn::Weight& w : weights_) {
    request_.between();
    given_[w.name] = weight_of(w, *own.weights);
  }
  if (has_adversary()) add_adversary();
  pictures_ = read_train_pictures(request_, cache);
  const int64_t multiple = own.component.model->size_multiple(own.component.config);
  for (const train::Fit& fit : pictures_.fits) {
    const train::PictureSize s = fit.bucket;
    require(s.width % multiple == 0 && s.height % multiple == 0,
            "train: sides of buckets must be multiples of ", multiple,
            ", which the autoencoder halves (", s.width, "x", s.height, ")");
    constexpr int64_t least = nn::least_discriminated_side;
    require(!has_adversary() || (s.width >= least && s.height >= least),
            "disc_weight: a discriminator needs buckets with sides of at least ", least, " (",
            s.width, "x", s.height, ")");
  }
}

void AutoencoderTraining::add_adversary() {
  const nn::Weights own = weights_of(f_.adversary(), 3);
  weights_.insert(weights_.end(), own.begin(), own.end());
  request_.say(str("trains ", nn::count_elements(own), " weights of a discriminator beside it",
                   f_.disc_start > 0 ? str(", from step ", f_.disc_start, " on") : ""));
}

// The discriminator may have a learning rate of its own.
std::map<std::string, double> AutoencoderTraining::rates() const {
  std::map<std::string, double> out;
  if (f_.disc_lr == 0) return out;
  for (const nn::Weight& w : weights_)
    if (w.name.starts_with(train::adversary_prefix)) out[w.name] = f_.disc_lr / c_.lr;
  return out;
}

NamedTensors AutoencoderTraining::batch(const PictureBatch& of) const {
  const int64_t n = std::ssize(of.pictures);
  Tensor images(DType::f32, {n, of.bucket.height, of.bucket.width, 3}), index(DType::i64, {n});
  for (int64_t row = 0; row < n; ++row)
    index.span<int64_t>()[static_cast<size_t>(row)] = of.first + row;
  train::parallel(n, request_.threads, [&](int64_t row) {
    const auto k = static_cast<size_t>(of.pictures[static_cast<size_t>(row)]);
    const bool mirrored = c_.flip && !of.measured && train::flips(c_.seed, of.first + row);
    put_row(images, row, signed_pixels(pictures_.data.pictures[k], pictures_.fits[k], mirrored));
  });
  NamedTensors out;
  out.emplace("images", images);
  out.emplace("image", index);
  return out;
}

// Of the latents of some pictures, drawn from the autoencoder's posterior, around their mean.
double AutoencoderTraining::latent_deviation(const train::TrainState& state) const {
  constexpr int64_t most = 64;
  const Component& c = autoencoder_in(parts_, c_.model).component;
  const std::vector<int64_t> trained = pictures_.trained();
  const int64_t count = std::min<int64_t>(most, std::ssize(trained));
  std::map<train::PictureSize, std::unique_ptr<Plan>> plans;
  double sum = 0, square = 0, numbers = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto k =
        static_cast<size_t>(trained[static_cast<size_t>(i * std::ssize(trained) / count)]);
    const train::PictureSize size = pictures_.fits[k].bucket;
    std::unique_ptr<Plan>& plan = plans[size];
    if (!plan) {
      plan = std::make_unique<Plan>(
          entry_graph(
              *c.model, c.config,
              {"encode", {{"pixels", {1, size.height, size.width, 3}}}, {"mean", "logvar"}}),
          context_);
      for (const nn::Weight& w : weights_)
        if (plan->graph().find_source(w.name))
          plan->bind(w.name, state.tensors.at(writer_.prefix() + w.name));
    }
    const NamedTensors out = plan->run(
        {{"pixels", signed_pixels(pictures_.data.pictures[k], pictures_.fits[k], false)}});
    const auto mean = out.at("mean").span<float>(), logvar = out.at("logvar").span<float>();
    for (size_t j = 0; j < mean.size(); ++j) {
      sum += double{mean[j]};
      square += double{mean[j]} * double{mean[j]} + std::exp(double{logvar[j]});
    }
    numbers += static_cast<double>(mean.size());
  }
  return std::sqrt(std::max(square / numbers - sum / numbers * (sum / numbers), 1e-12));
}

// The state as files have it.
train::TrainState AutoencoderTraining::written(const train::TrainState& state) const {
  train::TrainState out = state;
  if (!f_.unit_latents) return out;
  const double scale = latent_scaling(*parts_.denoiser.model, parts_.denoiser.config).space.scale;
  const double deviation = latent_deviation(state);
  request_.say(
      str("latents have a deviation of ", deviation, ", which is ", 1 / scale, " in the file"));
  out.tensors =
      with_scaled_latents(std::move(out.tensors), writer_.prefix(), 1 / (scale * deviation));
  return out;
}

// One for each size, of a rank's share of a batch; what is measured meets no discriminator.
std::vector<Graph> AutoencoderTraining::losses(const std::vector<train::PictureSize>& sizes,
                                               bool measured) const {
  const Component& own = autoencoder_in(parts_, c_.model).component;
  const int64_t batch = c_.micro_batch() / request_.split.ranks;
  AutoencoderLossOptions how{.kl_weight = f_.kl_weight, .ranks = request_.split.ranks};
  if (!measured) how.adversary = f_.adversary();
  std::vector<Graph> out;
  for (const train::PictureSize s : sizes)
    out.push_back(autoencoder_loss_graph(own, {batch, s.height, s.width, 3}, how));
  return out;
}

train::TrainJob AutoencoderTraining::job() {
  const LoadedComponent& own = autoencoder_in(parts_, c_.model);
  std::vector<Graph> all = losses(sizes_of(*pictures_.order), false);
  train::TrainJob out{.config = c_, .info = {}, .loss = std::move(all.front()), .batches = {}};
  out.other_losses.assign(std::make_move_iterator(all.begin() + 1),
                          std::make_move_iterator(all.end()));
  DiffusionConfig diffusion = parts_.denoiser.diffusion;
  out.info = {.model = own.component.model->name,
              .model_config = fields_json(fields_of(f_)),
              .diffusion_config = fields_json(fields_of(diffusion)),
              .train_config = {},
              .class_names = {},
              .task = finetune_task};
  out.weights = weights_;
  out.rates = rates();
  out.given = std::move(given_);
  out.data = str(pictures_.trained().size(), " pictures  ", c_.data);
  out.batches = [this](int64_t first) -> train::NextBatch {
    const auto make = [this](int64_t number) {
      return batch(batch_of(*pictures_.order, number, request_.split));
    };
    return train::prefetched_batches(make, first);
  };
  out.batches_on_any_thread = true;
  out.validation = validation_of(pictures_, c_, request_.split,
                                 {[this](const auto& sizes) { return losses(sizes, true); },
                                  [this](const PictureBatch& of) { return batch(of); }});
  out.write_model = [this](const std::string& path, const train::TrainState& state,
                           const std::map<std::string, std::string>& metadata) {
    writer_.write(path, written(state), {parts_.denoiser.diffusion, metadata},
                  [&](const CheckpointWeight& w) -> std::optional<std::string> {
                    if (!is_from(*parts_.autoencoder, w)) return {};
                    return w.weight;
                  });
  };
  out.hooks.log = request_.say;
  return out;
}

}  // namespace ebb
