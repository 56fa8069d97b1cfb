#include "pipeline/finetune.h"

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "base/json.h"
#include "base/names.h"
#include "base/random.h"
#include "base/text.h"
#include "core/host_memory.h"
#include "diffusion/loss.h"
#include "io/safetensors.h"
#include "pipeline/control.h"
#include "pipeline/control_names.h"
#include "pipeline/finetune_metadata.h"
#include "pipeline/frozen_weights.h"
#include "pipeline/held_out_pictures.h"
#include "pipeline/loras.h"
#include "pipeline/text_in_loss.h"
#include "pipeline/train_control.h"
#include "train/loader.h"
#include "train/many_files.h"
#include "train/model_weights.h"
#include "train/state.h"

namespace ebb {
namespace {

// Of CLIP's text encoder, by the network's own names.
constexpr std::string_view token_table = "text_model.embeddings.token_embedding.weight";

// Residuals of control networks and features of adapters are `rare`, and none is trained with.
void check_conditions(const LoadedModel& m, const std::string& file) {
  for (const nn::Condition& c : m.model->conditions(m.config))
    require(c.rare || TrainTexts::gives(c.name), "train: the network needs the input '", c.name,
            "' beside captions, which training does not give yet  ", file);
}

// Bytes of latents and text states that stay in memory: as many MiB as are asked for, but at most
// half of what training leaves of the machine's memory, of which each rank on it has its share.
int64_t cache_memory(const nn::Weights& weights, const train::TrainConfig& c, int64_t ranks_here) {
  const int64_t left = free_host_memory() / ranks_here -
                       train::training_bytes(weights, train::find_optimizer(c.optimizer));
  return std::clamp<int64_t>(left / 2 >> 20, 0, c.cache) << 20;
}

// Of a row of a batch.
size_t picture_at(const PictureBatch& of, int64_t row) {
  return static_cast<size_t>(of.pictures[static_cast<size_t>(row)]);
}

}  // namespace

Finetune::Finetune(FinetuneRequest request, const Context& context)
    : request_(std::move(request)),
      c_(request_.train),
      f_(request_.config),
      parts_(open_checkpoint(request_)),
      cache_({.folder = cache_folder(request_), .say = request_.say}),
      writer_(request_),
      context_(context) {
  check_conditions(parts_.denoiser, c_.model);
  if (c_.sample_every > 0 && !f_.sample_prompts.empty()) begin_samples();
  keep(f_.base, hash_text(*parts_.denoiser.weights), "the checkpoint", c_.model);
  latents_ = std::make_unique<TrainLatents>(parts_, context, cache_);
  const TextForm form = f_.encodes_text() ? TextForm::tokens : TextForm::states;
  const NewVectors vectors{f_.embedding, f_.new_vectors()};
  texts_ = of_training(
      [&] { return std::make_unique<TrainTexts>(parts_, context, cache_, form, vectors); });
  read_weights();
  cache_.set_memory(cache_memory(weights_, c_, request_.ranks_here));
  keep(f_.base_encoders, str(fnv1a(latents_->settings()), ' ', fnv1a(texts_->settings())),
       "the autoencoder or a text encoder", c_.model);
  pictures_ = read_train_pictures(request_, cache_.folder());
  if (f_.trains("embedding")) check_embedded_captions();
  if (f_.trains("controlnet"))
    control_images_ = read_control_images(request_, pictures_.data, cache_.folder());
  if (c_.sample_every > 0 && !samples_) begin_samples_of_captions();
  encode_all();
}

void Finetune::add_weights(const nn::Weights& weights, const WeightStore& store,
                           const std::string& prefix, bool trained) {
  for (nn::Weight w : weights) {
    request_.between();
    Tensor value = weight_of(w, store);
    w.name = prefix + w.name;
    w.trained = w.trained && trained;
    given_[w.name] = std::move(value);
    weights_.push_back(std::move(w));
  }
}

void Finetune::read_weights() {
  const LoadedModel& m = parts_.denoiser;
  add_weights(weights_of(*m.model, m.config), *m.weights, "", f_.trains("unet"));
  const auto& rules = texts_->rules();
  for (size_t e = 0; f_.encodes_text() && e < rules.size(); ++e)
    add_weights(weights_read(rules[e]), *rules[e].encoder.weights, text_prefix(e),
                f_.trains("text_encoder"));
  if (f_.adapts()) add_adapter();
  if (f_.trains("embedding")) add_embedding();
  if (f_.trains("controlnet")) add_control();
}

void Finetune::add_adapter() {
  const LoadedModel& m = parts_.denoiser;
  const bool unet = f_.trains("unet"), texts = f_.trains("text_encoder");
  std::vector<adapters::AdaptedNetwork> networks;
  for (const adapters::Network& n : networks_of(m, texts_->rules())) {
    const bool denoiser = n.part == adapters::Network::Part::denoiser;
    if (denoiser) {
      networks.push_back({.network = n, .targets = {}, .weights = weights_of(*m.model, m.config)});
      if (unet) networks.back().targets = listed_parts(f_.targets, "targets");
    } else if (texts) {
      const size_t e = networks.size() - 1;
      networks.push_back({.network = n,
                          .targets = listed_parts(f_.text_targets, "text_targets"),
                          .prefix = text_prefix(e),
                          .weights = weights_read(texts_->rules()[e])});
    }
  }
  adapter_ = std::make_unique<adapters::TrainableAdapter>(std::move(networks), adapter_options(f_));
  weights_ = adapter_->weights();
  given_.merge(adapter_->given(given_));
  request_.say(str("trains ", adapter_->elements(), " weights of an adapter of ",
                   adapter_->layers(), " layers"));
}

// The vectors begin as rows of the table of tokens, those of the text again and again.
void Finetune::add_embedding() {
  const NamedTensors tokens = texts_->of(f_.init_text, {}, false);
  for (size_t e = 0; e < texts_->rules().size(); ++e) {
    const auto ids = tokens.at(token_input(e)).span<int64_t>();
    const int64_t count = tokens.at(end_input(e)).span<int64_t>()[0] - 1;  // without the start
    require(count >= 1, "init_text: must have a token ('", f_.init_text, "')");
    const Tensor& table = given_.at(text_prefix(e) + std::string(token_table));
    const int64_t width = table.shape()[1];
    Tensor first(DType::f32, {f_.vectors, width});
    for (int64_t i = 0; i < f_.vectors; ++i)
      std::copy_n(table.span<float>().begin() + ids[static_cast<size_t>(1 + i % count)] * width,
                  width, first.span<float>().begin() + i * width);
    weights_.push_back({.name = vectors_name(e),
                        .shape = first.shape(),
                        .spec = {.decay = false},
                        .trained = true});
    given_[vectors_name(e)] = std::move(first);
  }
  request_.say(str("trains ", f_.vectors, f_.vectors == 1 ? " vector" : " vectors",
                   " that captions name ", f_.embedding));
}

void Finetune::add_control() {
  const LoadedComponent control = control_to_train(parts_.denoiser, f_.control_model, c_.seed);
  const Component& c = control.component;
  const nn::Weights weights = weights_of(*c.model, c.config);
  add_weights(weights, *control.weights, str(prefix_of(0), '.'), true);
  parts_.denoiser = with_controls(parts_.denoiser, {control});
  request_.say(str("trains ", nn::count_elements(weights), " weights of a control network, ",
                   f_.control_model.empty() ? "which begins as the U-Net's encoder"
                                            : str("which goes on from  ", f_.control_model)));
}

void Finetune::check_embedded_captions() const {
  const std::string name = small_letters(f_.embedding);
  int64_t with = 0, all = 0;
  std::string first;
  for (const train::CaptionedPicture& p : pictures_.data.pictures) {
    if (p.prior || p.held_out) continue;
    for (const std::string& caption : p.captions) {
      const bool has =
          small_letters(f_.caption_prefix + ' ' + caption).find(name) != std::string::npos;
      ++all, with += has;
      if (!has && first.empty()) first = caption;
    }
  }
  require(with > 0, "embedding: no caption of ", all, " has the name '", f_.embedding,
          "'; --caption-prefix TEXT stands before all of them  ", c_.data);
  if (with < all)
    request_.say(str("embedding: ", all - with, " of ", all, " captions do not have the name ",
                     f_.embedding, ", the first: ", first));
}

// Text encoders may have a learning rate of their own.
std::map<std::string, double> Finetune::rates() const {
  std::map<std::string, double> out;
  if (f_.text_lr == 0) return out;
  const auto add = [&](const std::string& weight) { out[weight] = f_.text_lr / c_.lr; };
  if (adapter_) {
    for (const std::string& w : adapter_->factors_of(adapters::Network::Part::text)) add(w);
    return out;
  }
  for (size_t e = 0; e < texts_->rules().size(); ++e)
    for (const nn::Weight& w : weights_)
      if (w.trained && w.name.starts_with(text_prefix(e))) add(w.name);
  return out;
}

// Neither dropped nor shuffled.
train::CaptionOptions Finetune::whole_captions() const { return {.prefix = f_.caption_prefix}; }

// Whether something was made, and not kept already.
bool Finetune::encode(size_t k) {
  const train::CaptionedPicture& p = pictures_.data.pictures[k];
  const int64_t before = cache_.made();
  latents_->of(p, pictures_.fits[k], false);
  if (c_.flip && !p.held_out) latents_->of(p, pictures_.fits[k], true);
  if (!f_.shuffle_tags || p.held_out)
    for (const std::string& caption : p.captions)
      texts_->of(train::caption_of(caption, whole_captions(), c_.seed, 0), pictures_.fits[k].bucket,
                 true);
  return cache_.made() > before;
}

// Each rank begins at another place, and finds made by others what comes behind its share.
void Finetune::encode_all() {
  const auto count = std::ssize(pictures_.data.pictures);
  const int64_t begin = count * request_.split.rank / request_.split.ranks;
  empty_ = texts_->of("", pictures_.order->buckets().front().size, true);
  if (!f_.shuffle_tags && f_.caption_dropout > 0)
    for (const auto& b : pictures_.order->buckets()) texts_->of("", b.size, true);
  for (int64_t i = 0; i < count; ++i) {
    const bool fresh = encode(static_cast<size_t>((begin + i) % count));
    request_.between();
    if (fresh) request_.progress("encodes pictures and captions", i + 1, count);
  }
  latents_->release();
  if (!f_.shuffle_tags) texts_->release();
  if (const auto& cut = texts_->cut(); cut.count > 0)
    request_.say(str(cut.count, cut.count == 1 ? " caption is" : " captions are",
                     " cut after 75 tokens, the first: ", cut.first));
}

// ---- batches -------------------------------------------------------------------------------

// Only drawing takes long, and is done by several threads.
void Finetune::add_latents(NamedTensors& to, const PictureBatch& of) {
  const auto n = std::ssize(of.pictures);
  std::vector<NamedTensors> posteriors;
  for (int64_t row = 0; row < n; ++row) {
    const size_t k = picture_at(of, row);
    const bool mirrored = c_.flip && !of.measured && train::flips(c_.seed, of.first + row);
    posteriors.push_back(latents_->of(pictures_.data.pictures[k], pictures_.fits[k], mirrored));
  }
  Tensor& images = to.at("images");
  const bool draws = std::ranges::any_of(
      posteriors, [](const NamedTensors& p) { return p.contains("deviation"); });
  train::parallel(n, draws ? request_.threads : 1, [&](int64_t row) {
    const NamedTensors& posterior = posteriors[static_cast<size_t>(row)];
    Tensor latent = posterior.at("mean");
    if (const auto deviation = posterior.find("deviation"); deviation != posterior.end()) {
      std::vector<float> noise(static_cast<size_t>(latent.numel() + 3) / 4 * 4);
      const uint32_t step = of.measured ? train::validation_step : 0;
      fill_normal({c_.seed, static_cast<uint64_t>(of.first + row), step, random_use("latent")}, 0,
                  noise);
      latent = latent.clone();  // the cache has it, too
      const auto v = latent.span<float>(), d = deviation->second.span<float>();
      for (size_t i = 0; i < v.size(); ++i) v[i] += d[i] * noise[i];
    }
    put_row(images, row, latent);
  });
}

void Finetune::add_texts(NamedTensors& to, const PictureBatch& of, int64_t row) {
  const size_t k = picture_at(of, row);
  const int64_t image = of.first + row;
  const std::string caption =
      train::caption_of(train::pick_caption(pictures_.data.pictures[k].captions, c_.seed, image),
                        of.measured ? whole_captions() : f_.caption_options(), c_.seed, image);
  const bool kept = !f_.shuffle_tags || of.measured || caption.empty(),
             none_cut = texts_->cut().count == 0;
  for (const auto& [name, value] : texts_->of(caption, pictures_.fits[k].bucket, kept)) {
    if (row == 0) {
      std::vector<int64_t> sizes = value.shape().sizes();
      sizes[0] = std::ssize(of.pictures);
      to.emplace(name, Tensor(value.dtype(), Shape(sizes)));
    }
    put_row(to.at(name), row, value);
  }
  if (none_cut && texts_->cut().count > 0)  // of those that encode_all() left to the batches
    request_.say(str("captions are cut after 75 tokens, the first: ", texts_->cut().first));
}

void Finetune::add_controls(NamedTensors& to, const PictureBatch& of) {
  const auto n = std::ssize(of.pictures);
  for (const nn::Condition& c : control_conditions(parts_.denoiser, of.bucket)) {
    Tensor& all = to.emplace(c.name, c.nulls(n)).first->second;
    if (c.name != hint_of(0)) continue;
    train::parallel(n, request_.threads, [&](int64_t row) {
      const size_t k = picture_at(of, row);
      const bool mirrored = c_.flip && !of.measured && train::flips(c_.seed, of.first + row);
      put_row(all, row, control_pixels(control_images_[k], pictures_.fits[k], mirrored));
    });
  }
}

NamedTensors Finetune::batch(const PictureBatch& of) {
  const std::lock_guard lock(batches_);
  const int64_t n = std::ssize(of.pictures), factor = latents_->factor();
  const int64_t channels = parts_.denoiser.config.common().in_channels;
  NamedTensors out;
  out.emplace("images", Tensor(DType::f32,
                               {n, of.bucket.height / factor, of.bucket.width / factor, channels}));
  const Tensor index(DType::i64, {n});
  for (int64_t row = 0; row < n; ++row) {
    index.span<int64_t>()[static_cast<size_t>(row)] = of.first + row;
    add_texts(out, of, row);
  }
  add_latents(out, of);
  out.emplace("image", index);
  if (f_.trains("controlnet")) add_controls(out, of);
  if (f_.prior.empty() || of.measured) return out;
  const Tensor weight(DType::f32, {n});
  for (int64_t row = 0; row < n; ++row)
    weight.span<float>()[static_cast<size_t>(row)] =
        static_cast<float>(pictures_.data.pictures[picture_at(of, row)].weight);
  out.emplace("weight", weight);
  return out;
}

// One for each size, of a rank's share of a batch; that which is measured is not weighted.
std::vector<Graph> Finetune::losses(const std::vector<train::PictureSize>& sizes, bool measured) {
  const LoadedModel& m = parts_.denoiser;
  std::vector<nn::Condition> conditions;
  for (const nn::Condition& c : texts_->conditions()) {
    c.check_shape(empty_.at(c.name).shape(), 1, "train");
    conditions.push_back(c.sized_as(empty_.at(c.name)));
  }
  nn::Network network = network_of(m, conditions_of(m));
  if (f_.encodes_text())
    network = reading_tokens(std::move(network), texts_->rules(), f_.new_vectors());
  std::set<std::string, std::less<>> frozen;
  for (const nn::Weight& w : weights_)
    if (!w.trained) frozen.insert(w.name);
  std::vector<Graph> out;
  const int64_t factor = latents_->factor();
  for (const train::PictureSize s : sizes) {
    std::vector<nn::Condition> brought = conditions;
    for (nn::Condition& c : control_conditions(m, s)) brought.push_back(std::move(c));
    const Graph all =
        loss_graph(m.diffusion, network,
                   {.batch = c_.micro_batch() / request_.split.ranks,
                    .image = {s.height / factor, s.width / factor, m.config.common().in_channels},
                    .conditions = std::move(brought),
                    .dropout = !measured,
                    .weighted = !f_.prior.empty() && !measured});
    const Graph loss = with_params(all, [&](std::string_view w) { return !frozen.contains(w); });
    const Graph whole = adapter_ ? adapter_->adapted(loss) : loss;
    const auto say = out.empty() && !measured ? request_.say : nullptr;
    out.push_back(f_.frozen_in_8_bits() ? frozen_in_8_bits(whole, loss, say) : whole);
  }
  return out;
}

// Why batches cannot be made while the step before runs, on another thread: encoders may have to
// run for them. "": they can.
std::string Finetune::prefetch_obstacle() const {
  if (f_.shuffle_tags) return "--shuffle-tags makes other captions each time";
  if (cache_.holds_all()) return "";
  return str("latents and text states do not fit into ", cache_.memory() >> 20,
             " MiB of memory (the smaller of --cache ", c_.cache,
             " and half of what training leaves free)");
}

train::TrainJob Finetune::job() {
  std::vector<Graph> all = losses(sizes_of(*pictures_.order), false);
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
  out.rates = rates();
  out.data = str(pictures_.trained().size(), " pictures  ", c_.data);
  const std::string obstacle = prefetch_obstacle();
  if (!obstacle.empty())
    request_.say(str("batches are made between steps, not during them: ", obstacle));
  const auto make = [this](int64_t number) {
    return batch(batch_of(*pictures_.order, number, request_.split));
  };
  out.batches = [make, ahead = obstacle.empty()](int64_t first) -> train::NextBatch {
    if (ahead) return train::prefetched_batches(make, first);
    return [make, next = first]() mutable { return make(next++); };
  };
  out.batches_on_any_thread = obstacle.empty();
  out.validation = validation_of(pictures_, c_, request_.split,
                                 {[this](const auto& sizes) { return losses(sizes, true); },
                                  [this](const PictureBatch& of) { return batch(of); }});
  out.write_model = [this](const std::string& path, const train::TrainState& state,
                           const std::map<std::string, std::string>& metadata) {
    write_model(path, state, metadata);
  };
  out.hooks.log = request_.say;
  if (samples_)
    out.hooks.sample = [this](const train::TrainState& state, const train::StopSignals& signals) {
      samples_->draw(state, [&] { return signals.requested() != 0; });
    };
  return out;
}

// ---- samples -------------------------------------------------------------------------------

// Mistakes are told before work begins.
void Finetune::begin_samples() {
  TrainSamples::What what{.prompts = sample_prompts(f_.sample_prompts)};
  if (f_.trains("controlnet"))
    what.controls = sample_controls(f_.sample_controls, what.prompts.size());
  begin_samples(std::move(what));
}

// A few that differ, of pictures in their order, read as they are when they are trained.
void Finetune::begin_samples_of_captions() {
  constexpr size_t few = 4;
  TrainSamples::What what{.syntax = text::PromptSyntax::diffusers};
  for (size_t k = 0; k < pictures_.data.pictures.size() && what.prompts.size() < few; ++k) {
    const train::CaptionedPicture& p = pictures_.data.pictures[k];
    if (p.captions.empty() || p.held_out) continue;
    std::string prompt = train::caption_of(p.captions.front(), whole_captions(), c_.seed, 0);
    if (std::ranges::find(what.prompts, prompt) != what.prompts.end()) continue;
    what.prompts.push_back(std::move(prompt));
    if (f_.trains("controlnet")) what.controls.push_back(train::decode(control_images_[k]));
  }
  begin_samples(std::move(what));
}

void Finetune::begin_samples(TrainSamples::What what) {
  using File = TrainSamples::What::File;
  what.pictures = f_.sample_pictures;
  what.write = [this](const auto&... of) { write_model(of...); };
  if (f_.adapts()) what.file = File::adapter;
  if (f_.trains("embedding")) what.file = File::embedding;
  if (f_.trains("controlnet")) what.file = File::control;
  samples_ = std::make_unique<TrainSamples>(request_, parts_, context_, std::move(what));
}

// ---- files ---------------------------------------------------------------------------------

std::map<std::string, std::string> Finetune::facts(
    const train::TrainState& state, const std::map<std::string, std::string>& metadata) const {
  std::map<std::string, std::string> out = finetune_metadata({.train = c_,
                                                              .config = f_,
                                                              .adapter = adapter_.get(),
                                                              .model = parts_.denoiser,
                                                              .data = pictures_.data,
                                                              .ranks = request_.split.ranks,
                                                              .step = state.step});
  out.insert(metadata.begin(), metadata.end());
  return out;
}

void Finetune::write_model(const std::string& path, const train::TrainState& state,
                           const std::map<std::string, std::string>& metadata) {
  const DType dtype = parse_dtype(f_.save_dtype);
  if (f_.trains("embedding")) return write_embedding(path, state, metadata);
  if (adapter_)
    return adapter_->write(path, state.tensors, writer_.prefix(),
                           {.dtype = dtype, .metadata = facts(state, metadata)});
  if (f_.trains("controlnet"))
    return write_control_network({.path = path, .dtype = dtype, .metadata = facts(state, metadata)},
                                 parts_.denoiser.controls.front(), state.tensors, writer_.prefix());
  writer_.write(path, state, {parts_.denoiser.diffusion, metadata},
                [&](const CheckpointWeight& w) { return name_in_loss(w); });
}

// As diffusers, A1111 and ComfyUI read it: one tensor of the embedding's name, or of several
// encoders one each of theirs.
void Finetune::write_embedding(const std::string& path, const train::TrainState& state,
                               const std::map<std::string, std::string>& metadata) const {
  const auto& rules = texts_->rules();
  std::vector<io::NamedTensor> out;
  for (size_t e = 0; e < rules.size(); ++e) {
    const std::string name =
        rules.size() == 1 ? f_.embedding : std::string(rules[e].reading.encoder);
    out.push_back({name, train::rounded(name, state.tensors.at(writer_.prefix() + vectors_name(e)),
                                        parse_dtype(f_.save_dtype), "save_dtype")});
  }
  io::write_safetensors(path, out, metadata);
}

// None for what is not in the loss.
std::optional<std::string> Finetune::name_in_loss(const CheckpointWeight& of) const {
  if (of.component.model->kind == ModelKind::denoiser) return of.weight;
  const auto& rules = texts_->rules();
  for (size_t e = 0; e < rules.size(); ++e)
    if (is_from(rules[e].encoder, of)) return text_prefix(e) + of.weight;
  return {};
}

}  // namespace ebb
