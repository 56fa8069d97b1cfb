#include "pipeline/finetune.h"

#include <algorithm>
#include <filesystem>

#include "base/choices.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/random.h"
#include "base/text.h"
#include "diffusion/loss.h"
#include "pipeline/convert.h"
#include "pipeline/finetune_metadata.h"
#include "pipeline/loras.h"
#include "train/loader.h"

namespace ebb {
namespace {

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    require(end > at, "targets: one of several parts is empty ('", list, "')");
    out.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

adapters::TrainableOptions adapter_options(const FinetuneConfig& f) {
  return {.kind = f.adapter,
          .sizes = {.rank = f.rank, .factor = f.factor},
          .alpha = f.alpha,
          .names = adapters::parse_file_names(f.names),
          .targets = parts_of(f.targets)};
}

// f32 in the network's layout.
Tensor weight_of(const nn::Weight& w, const WeightStore& store) {
  const auto it = store.weights().find(w.name);
  require(it != store.weights().end(), "train: the checkpoint lacks the weight ", w.name);
  const StoredWeight& stored = it->second;
  Tensor bytes(stored.type);
  stored.read(0, {static_cast<uint8_t*>(bytes.raw()), static_cast<size_t>(bytes.bytes())});
  stored.forget();
  return nn::from_file(w, {.name = w.name, .transposed = stored.transposed}, bytes.to(DType::f32));
}

// Residuals of control networks and features of adapters are `rare`, and none is trained with.
void check_conditions(const LoadedModel& m, const std::string& file) {
  for (const nn::Condition& c : m.model->conditions(m.config))
    require(c.rare || TrainTexts::gives(c.name), "train: the network needs the input '", c.name,
            "' beside captions, which training does not give yet  ", file);
}

// A file can say that it predicts v, or by nothing that it predicts eps. Another prediction would
// be sampled as one of them without a word, unless the checkpoint brought it and its marks.
void check_prediction(const FinetuneRequest& r, const PartFiles& files) {
  for (const auto& [field, value] : r.diffusion) {
    if (field != "precond" || value == "eps" || value == "v") continue;
    const std::string own = load_parts(files).denoiser.diffusion.precond;
    require(value == own, "train: --precond must be eps, v or what the checkpoint has (", own,
            "), as its file could not say another (", value, ")  ", r.train.model);
  }
}

CheckpointParts open_checkpoint(const FinetuneRequest& r) {
  PartFiles files{.model = r.train.model, .autoencoder = r.config.vae, .variant = r.config.variant};
  if (!r.config.text_encoder.empty()) files.text_encoders = {r.config.text_encoder};
  check_prediction(r, files);
  CheckpointParts out = load_parts(files, r.diffusion);
  require(out.denoiser.controls.empty(),
          "train: the checkpoint has control networks, which are "
          "not trained  ",
          r.train.model);
  check_conditions(out.denoiser, r.train.model);
  return out;
}

// What a run began with stays; `recorded` is empty in new runs.
void keep(std::string& recorded, const std::string& now, std::string_view what,
          const std::string& file) {
  require(recorded.empty() || recorded == now, "resume: ", what,
          " is not the one that the run began with  ", file);
  recorded = now;
}

std::string hash_of(const train::Captioned& data) {
  uint64_t h = 0;
  for (const train::CaptionedPicture& p : data.pictures) {
    h = splitmix64(h ^ p.hash);
    h = splitmix64(h ^ fnv1a(p.caption));
    h = splitmix64(h ^ static_cast<uint64_t>(p.repeats));
  }
  return str(h);
}

std::string cache_folder(const FinetuneRequest& r) {
  return r.config.cache_dir.empty() ? (std::filesystem::path(r.train.out) / "cache").string()
                                    : r.config.cache_dir;
}

// What sampling has to know of it.
DiffusionConfig of_sampling(DiffusionConfig d) {
  DiffusionConfig defaults;
  for (const Field& f : fields_of(d))
    if (only_training(f.name))
      set_field(f, field_text(find_field(fields_of(defaults), f.name, "diffusion")));
  return d;
}

// Rows of a tensor [N,...] get `value`, [1,...] or [...].
void put_row(const Tensor& to, int64_t row, const Tensor& value) {
  std::ranges::copy(value.span<float>(), to.span<float>().begin() + row * value.numel());
}

}  // namespace

void check(const FinetuneConfig& f) {
  check_choices(f, [](std::string_view field) { return str(field, ": unknown value"); });
  const FinetuneConfig defaults;
  if (f.adapts()) {
    check(adapter_options(f));
  } else {
    require(f.rank == defaults.rank && f.factor == defaults.factor && f.alpha == defaults.alpha &&
                f.targets == defaults.targets && f.names == defaults.names,
            "adapter: rank, factor, alpha, targets and names are an adapter's (--adapter lora)");
    // the files of a run have all components, of its checkpoint alone
    for (const auto& [flag, file] : {std::pair{"--vae", f.vae}, {"--text-encoder", f.text_encoder}})
      require(
          file.empty(), "train: ", flag,
          " is for adapters (--adapter lora): a whole network is written with the "
          "checkpoint's own autoencoder and text encoders, not with those it was trained with  ",
          file);
  }
  train::check(f.bucket_options());
  train::check(f.caption_options());
}

Finetune::Finetune(FinetuneRequest request, const Context& context)
    : request_(std::move(request)),
      c_(request_.train),
      f_(request_.config),
      parts_(open_checkpoint(request_)),
      cache_(cache_folder(request_), request_.say) {
  read_weights();
  latents_ = std::make_unique<TrainLatents>(parts_, context, cache_);
  texts_ = std::make_unique<TrainTexts>(parts_, context, cache_);
  keep(f_.base_encoders, str(fnv1a(latents_->settings()), ' ', fnv1a(texts_->settings())),
       "the autoencoder or a text encoder", c_.model);
  read_pictures();
  encode_all();
}

void Finetune::read_weights() {
  const LoadedModel& m = parts_.denoiser;
  keep(f_.base, hash_text(*m.weights), "the checkpoint", c_.model);
  weights_ = weights_of(*m.model, m.config);
  for (const nn::Weight& w : weights_) {
    request_.between();
    given_[w.name] = weight_of(w, *m.weights);
  }
  if (!f_.adapts()) return;
  adapter_ =
      std::make_unique<adapters::TrainableAdapter>(networks_of(m, {}).front(), adapter_options(f_));
  weights_ = adapter_->weights();
  request_.say(str("trains ", adapter_->elements(), " weights of an adapter of ",
                   adapter_->layers(), " layers"));
}

void Finetune::read_pictures() {
  data_ = train::open_captioned(c_.data, {.needs_captions = f_.caption_prefix.empty(),
                                          .threads = c_.threads,
                                          .between = request_.between});
  for (const std::string& w : data_.warnings) request_.say(w);
  keep(f_.base_data, hash_of(data_), "the data (pictures, captions or repeats)", c_.data);
  std::vector<train::BucketOrder::Item> items;
  for (const train::CaptionedPicture& p : data_.pictures) {
    try {
      fits_.push_back(train::fit_of({.width = p.width, .height = p.height}, f_.bucket_options()));
    } catch (const Error& e) {
      fail(e.what(), "  ", p.name);
    }
    items.push_back({fits_.back().bucket, p.repeats});
  }
  order_ = std::make_unique<train::BucketOrder>(items, micro_batch(), c_.seed);
  std::string sizes;
  for (const auto& b : order_->buckets())
    sizes += str(sizes.empty() ? "" : ", ", b.size.width, "x", b.size.height, " (",
                 b.pictures.size(), ")");
  const int64_t filling = order_->filling();
  request_.say(str(data_.pictures.size(), " pictures in ", order_->buckets().size(),
                   " buckets: ", sizes, "; an epoch is ", order_->batches(), " batches",
                   filling > 0 ? str(", filled up by ", filling, " pictures") : ""));
}

void Finetune::encode_all() {
  const auto count = std::ssize(data_.pictures);
  empty_ = texts_->of("", order_->buckets().front().size, true);
  if (!f_.shuffle_tags && f_.caption_dropout > 0)
    for (const auto& b : order_->buckets()) texts_->of("", b.size, true);
  for (int64_t i = 0; i < count; ++i) {
    const auto k = static_cast<size_t>(i);
    const train::CaptionedPicture& p = data_.pictures[k];
    const int64_t before = cache_.made();
    latents_->of(p, fits_[k], false);
    if (c_.flip) latents_->of(p, fits_[k], true);
    if (!f_.shuffle_tags) {
      train::CaptionOptions whole = f_.caption_options();
      whole.dropout = 0;
      texts_->of(train::caption_of(p.caption, whole, c_.seed, 0), fits_[k].bucket, true);
    }
    request_.between();
    if (cache_.made() > before) request_.progress(i + 1, count);
  }
  latents_->release();
  if (!f_.shuffle_tags) texts_->release();
  if (const auto& cut = texts_->cut(); cut.count > 0)
    request_.say(str(cut.count, cut.count == 1 ? " caption is" : " captions are",
                     " cut after 75 tokens, the first: ", cut.first));
}

// ---- batches -------------------------------------------------------------------------------

void Finetune::add_latents(NamedTensors& to, int64_t row, int64_t picture, int64_t image) {
  const auto k = static_cast<size_t>(picture);
  const bool mirrored = c_.flip && train::flips(c_.seed, image);
  const NamedTensors posterior = latents_->of(data_.pictures[k], fits_[k], mirrored);
  Tensor latent = posterior.at("mean");
  if (const auto deviation = posterior.find("deviation"); deviation != posterior.end()) {
    std::vector<float> noise(static_cast<size_t>(latent.numel() + 3) / 4 * 4);
    fill_normal({c_.seed, static_cast<uint64_t>(image), 0, random_use("latent")}, 0, noise);
    const auto v = latent.span<float>(), d = deviation->second.span<float>();
    for (size_t i = 0; i < v.size(); ++i) v[i] += d[i] * noise[i];
  }
  put_row(to.at("images"), row, latent);
}

void Finetune::add_texts(NamedTensors& to, int64_t row, int64_t picture, int64_t image) {
  const auto k = static_cast<size_t>(picture);
  const std::string caption =
      train::caption_of(data_.pictures[k].caption, f_.caption_options(), c_.seed, image);
  const bool kept = !f_.shuffle_tags || caption.empty(), none_cut = texts_->cut().count == 0;
  for (const auto& [name, value] : texts_->of(caption, fits_[k].bucket, kept)) {
    if (row == 0) {
      std::vector<int64_t> sizes = value.shape().sizes();
      sizes[0] = micro_batch();
      to.emplace(name, Tensor(DType::f32, Shape(sizes)));
    }
    put_row(to.at(name), row, value);
  }
  if (none_cut && texts_->cut().count > 0)  // of those that encode_all() left to the batches
    request_.say(str("captions are cut after 75 tokens, the first: ", texts_->cut().first));
}

NamedTensors Finetune::batch(int64_t number) {
  const auto of = order_->at(number);
  const int64_t n = micro_batch(), factor = latents_->factor();
  const int64_t channels = parts_.denoiser.config.common().in_channels;
  NamedTensors out;
  out.emplace("images", Tensor(DType::f32,
                               {n, of.bucket.height / factor, of.bucket.width / factor, channels}));
  const Tensor index(DType::i64, {n});
  for (int64_t row = 0; row < n; ++row) {
    const int64_t image = number * n + row;
    index.span<int64_t>()[static_cast<size_t>(row)] = image;
    add_latents(out, row, of.pictures[static_cast<size_t>(row)], image);
    add_texts(out, row, of.pictures[static_cast<size_t>(row)], image);
  }
  out.emplace("image", index);
  return out;
}

// One for each bucket, the largest first, which needs most memory.
std::vector<Graph> Finetune::losses() {
  const LoadedModel& m = parts_.denoiser;
  std::vector<train::PictureSize> sizes;
  for (const auto& b : order_->buckets()) sizes.push_back(b.size);
  std::ranges::stable_sort(sizes, std::greater(),
                           [](train::PictureSize s) { return s.width * s.height; });
  std::vector<nn::Condition> conditions;
  for (const nn::Condition& c : m.model->conditions(m.config)) {
    if (!TrainTexts::gives(c.name)) continue;
    c.check_shape(empty_.at(c.name).shape(), 1, "train");
    conditions.push_back(c.sized_as(empty_.at(c.name)));
  }
  std::vector<Graph> out;
  const int64_t factor = latents_->factor();
  for (const train::PictureSize s : sizes) {
    const Graph loss =
        loss_graph(m.diffusion, network_of(*m.model, m.config),
                   {.batch = micro_batch(),
                    .image = {s.height / factor, s.width / factor, m.config.common().in_channels},
                    .conditions = conditions});
    out.push_back(adapter_ ? adapter_->adapted(loss) : loss);
  }
  return out;
}

train::TrainJob Finetune::job() {
  std::vector<Graph> all = losses();
  train::TrainJob out{.config = c_, .info = {}, .loss = std::move(all.front()), .batches = {}};
  out.other_losses.assign(std::make_move_iterator(all.begin() + 1),
                          std::make_move_iterator(all.end()));
  DiffusionConfig diffusion = parts_.denoiser.diffusion;
  out.info = {.model = parts_.denoiser.model->name,
              .model_config = fields_json(fields_of(f_)),
              .diffusion_config = fields_json(fields_of(diffusion)),
              .train_config = {},
              .class_names = {},
              .task = finetune_task};
  out.weights = weights_;
  out.given = std::move(given_);
  out.data = str(data_.pictures.size(), " pictures  ", c_.data);
  out.batches = [this](int64_t first) -> train::NextBatch {
    return [this, next = first]() mutable { return batch(next++); };
  };
  out.write_model = [this](const std::string& path, const train::TrainState& state,
                           const std::map<std::string, std::string>& metadata) {
    write_model(path, state, metadata);
  };
  out.hooks.log = request_.say;
  return out;
}

// ---- files ---------------------------------------------------------------------------------

void Finetune::write_model(const std::string& path, const train::TrainState& state,
                           const std::map<std::string, std::string>& metadata) const {
  const DType dtype = parse_dtype(f_.save_dtype);
  if (adapter_) {
    std::map<std::string, std::string> all = finetune_metadata({.train = c_,
                                                                .config = f_,
                                                                .kind = adapter_->kind(),
                                                                .model = parts_.denoiser,
                                                                .data = data_,
                                                                .step = state.step});
    all.insert(metadata.begin(), metadata.end());
    adapter_->write(path, state.tensors, prefix(), {.dtype = dtype, .metadata = std::move(all)});
    return;
  }
  std::map<std::string, const nn::Weight*, std::less<>> known;
  for (const nn::Weight& w : state.weights) known[w.name] = &w;
  ConvertOptions how{.in = c_.model,
                     .out = path,
                     .overwrite = true,
                     .layout = CheckpointLayout::original,
                     .dtype = dtype,
                     .variant = f_.variant};
  how.trained =
      TrainedDenoiser{.weight =
                          [&](const std::string& name) {
                            return nn::to_file(*known.at(name), state.tensors.at(prefix() + name));
                          },
                      .diffusion = of_sampling(parts_.denoiser.diffusion),
                      .metadata = metadata};
  for (const std::string& w : convert_checkpoint(how).warnings)
    if (said_.insert(w).second) request_.say(w);
}

}  // namespace ebb
