#include "pipeline/checkpoint_training.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "pipeline/convert.h"
#include "pipeline/finetune.h"
#include "pipeline/held_out_pictures.h"
#include "pipeline/init_image.h"
#include "pipeline/train_autoencoder.h"
#include "pipeline/train_control.h"

namespace ebb {
namespace {

// A file can say that it predicts v, or by nothing that it predicts eps. Another prediction would
// be sampled as one of them without a word, unless the checkpoint brought it and its marks.
void check_prediction(const FinetuneRequest& r, const PartFiles& files) {
  for (const auto& [field, value] : r.diffusion) {
    if (field != "precond" || value == "eps" || value == "v") continue;
    const std::string own =
        of_training([&] { return load_parts(files); }).denoiser.diffusion.precond;
    require(value == own, "train: --precond must be eps, v or what the checkpoint has (", own,
            "), as its file could not say another (", value, ")  ", r.train.model);
  }
}

// Of those that are held out, or of all.
std::string hash_of(const train::Captioned& data, bool captions, bool held_out = false) {
  uint64_t h = 0;
  for (const train::CaptionedPicture& p : data.pictures) {
    if (held_out && !p.held_out) continue;
    h = splitmix64(h ^ p.hash);
    if (captions)
      for (const std::string& caption : p.captions) h = splitmix64(h ^ fnv1a(caption));
    h = splitmix64(h ^ static_cast<uint64_t>(p.repeats));
  }
  return str(h);
}

// The prior's pictures behind the others.
void add_prior(train::Captioned& to, train::Captioned prior, const FinetuneRequest& r) {
  check_apart(to, true, prior, "prior: a picture that is held out must not be trained on");
  for (train::CaptionedPicture& p : prior.pictures) {
    p.weight = r.config.prior_weight;
    p.prior = true;
    to.pictures.push_back(std::move(p));
  }
  r.say(str("an epoch has ", train::images_of(to), " pictures to learn and ",
            train::images_of(to, true), " of the prior, with the weight ", r.config.prior_weight));
  to.warnings.insert(to.warnings.end(), prior.warnings.begin(), prior.warnings.end());
}

// What sampling has to know of it.
DiffusionConfig of_sampling(DiffusionConfig d) {
  DiffusionConfig defaults;
  for (const Field& f : fields_of(d))
    if (only_training(f.name))
      set_field(f, field_text(find_field(fields_of(defaults), f.name, "diffusion")));
  return d;
}

// What names alone tell of the data, before the checkpoint is read, which may take long.
void check_data(const FinetuneRequest& r) {
  train::check_captioned(r.train.data);
  const auto check = [](std::string_view subject, const std::string& data) {
    as_errors_of(subject, "data: ", [&] { train::check_captioned(data); });
  };
  if (!r.config.prior.empty()) check("prior: ", r.config.prior);
  if (names_pictures(r.train.validation)) check("validation: ", r.train.validation);
  if (r.config.trains("controlnet")) check_control_images(r);
}

}  // namespace

std::unique_ptr<CheckpointTraining> begin_training(FinetuneRequest request,
                                                   const Context& context) {
  check_data(request);
  if (request.config.trains("autoencoder"))
    return std::make_unique<AutoencoderTraining>(std::move(request), context);
  return std::make_unique<Finetune>(std::move(request), context);
}

CheckpointParts open_checkpoint(FinetuneRequest& r) {
  PartFiles files{.model = r.train.model, .autoencoder = r.config.vae, .variant = r.config.variant};
  if (!r.config.text_encoder.empty()) files.text_encoders = {r.config.text_encoder};
  check_prediction(r, files);
  CheckpointParts out = of_training([&] { return load_parts(files, r.diffusion); });
  require(out.denoiser.controls.empty(),
          "train: the checkpoint has control networks, which are "
          "not trained  ",
          r.train.model);
  r.config.take_resolution(own_size(out.denoiser).width);
  train::check(r.config.bucket_options());
  return out;
}

Tensor weight_of(const nn::Weight& w, const WeightStore& store) {
  const auto it = store.weights().find(w.name);
  require(it != store.weights().end(), "train: the checkpoint lacks the weight ", w.name);
  const StoredWeight& stored = it->second;
  Tensor bytes(stored.type);
  stored.read(0, {static_cast<uint8_t*>(bytes.raw()), static_cast<size_t>(bytes.bytes())});
  stored.forget();
  return nn::from_file(w, {.name = w.name, .transposed = stored.transposed}, bytes.to(DType::f32));
}

void keep(std::string& recorded, const std::string& now, std::string_view what,
          const std::string& file) {
  require(recorded.empty() || recorded == now, "resume: ", what,
          " is not the one that the run began with  ", file);
  recorded = now;
}

std::string cache_folder(const FinetuneRequest& r) {
  return r.config.cache_dir.empty() ? (std::filesystem::path(r.train.out) / "cache").string()
                                    : r.config.cache_dir;
}

void put_row(Tensor& to, int64_t row, const Tensor& value) {
  const int64_t bytes = value.bytes();
  std::memcpy(static_cast<uint8_t*>(to.raw()) + row * bytes, value.raw(),
              static_cast<size_t>(bytes));
}

std::vector<int64_t> TrainPictures::trained() const {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < std::ssize(data.pictures); ++i)
    if (!data.pictures[static_cast<size_t>(i)].held_out) out.push_back(i);
  return out;
}

PictureBatch batch_of(const train::BucketOrder& order, int64_t number, const train::Split& split) {
  const auto all = order.at(number);
  const int64_t n = std::ssize(all.pictures), share = n / split.ranks, begin = split.rank * share;
  return {.bucket = all.bucket,
          .pictures = {all.pictures.begin() + begin, all.pictures.begin() + begin + share},
          .first = number * n + begin};
}

std::vector<train::PictureSize> sizes_of(const train::BucketOrder& order) {
  std::vector<train::PictureSize> out;
  for (const auto& b : order.buckets()) out.push_back(b.size);
  std::ranges::stable_sort(out, std::greater(),
                           [](train::PictureSize s) { return s.width * s.height; });
  return out;
}

namespace {

// Says which sizes there are.
void make_order(TrainPictures& to, const FinetuneRequest& r) {
  const train::TrainConfig& c = r.train;
  std::vector<train::BucketOrder::Item> items, held;
  for (const train::CaptionedPicture& p : to.data.pictures) {
    try {
      to.fits.push_back(
          train::fit_of({.width = p.width, .height = p.height}, r.config.bucket_options()));
    } catch (const Error& e) {
      fail(e.what(), "  ", p.name);
    }
    items.push_back({to.fits.back().bucket, p.held_out ? 0 : p.repeats});
    held.push_back({to.fits.back().bucket, p.held_out ? 1 : 0});
  }
  const auto trained = std::ssize(to.trained());
  to.order = std::make_unique<train::BucketOrder>(items, c.micro_batch(), c.seed);
  if (trained < std::ssize(items))
    to.held_out = std::make_unique<train::BucketOrder>(held, c.micro_batch(), c.seed);
  std::string sizes;
  for (const auto& b : to.order->buckets())
    sizes += str(sizes.empty() ? "" : ", ", b.size.width, "x", b.size.height, " (",
                 b.pictures.size(), ")");
  const int64_t filling = to.order->filling();
  const auto counted = [](int64_t n, std::string_view one, std::string_view several) {
    return str(n, ' ', n == 1 ? one : several);
  };
  const auto pictures = [&](int64_t n) { return counted(n, "picture", "pictures"); };
  r.say(str(pictures(trained), " in ",
            counted(std::ssize(to.order->buckets()), "bucket", "buckets"), ": ", sizes,
            "; an epoch is ", counted(to.order->batches(), "batch", "batches"),
            filling > 0 ? str(", filled up by ", pictures(filling)) : ""));
}

}  // namespace

TrainPictures read_train_pictures(FinetuneRequest& r, const std::string& cache) {
  const train::TrainConfig& c = r.train;
  FinetuneConfig& f = r.config;
  TrainPictures out;
  const bool captions = !f.trains("autoencoder");
  const auto read = [&](const std::string& data, const char* index) {
    return train::open_captioned(
        data,
        {.needs_captions = f.caption_prefix.empty(),
         .reads_captions = captions,
         .threads = r.threads,
         .between = r.between,
         .progress = [&](int64_t done, int64_t all) { r.progress("reads pictures", done, all); },
         .index = (std::filesystem::path(cache) / index).string()});
  };
  out.data = read(c.data, "pictures.jsonl");
  const std::string held_out = hold_out(out.data, c.validation, [&](const std::string& path) {
    return as_errors_of("validation: ", "data: ", [&] { return read(path, "validation.jsonl"); });
  });
  if (!f.prior.empty()) add_prior(out.data, read(f.prior, "prior.jsonl"), r);
  for (const std::string& w : out.data.warnings) r.say(w);
  if (!held_out.empty()) r.say(held_out);
  if (names_pictures(c.validation))
    keep(f.base_validation, hash_of(out.data, captions, true),
         captions ? "validation (pictures or captions)" : "validation (pictures)", c.validation);
  keep(f.base_data, hash_of(out.data, captions),
       captions ? "the data (pictures, captions or repeats)" : "the data (pictures or repeats)",
       c.data);
  make_order(out, r);
  return out;
}

bool is_from(const LoadedComponent& c, const CheckpointWeight& w) {
  return c.path == w.file && c.component.prefix == w.component.prefix;
}

std::string CheckpointWriter::prefix() const {
  return request_.train.ema > 0 || request_.train.ema_halflife > 0 ? "ema." : "";
}

void CheckpointWriter::write(
    const std::string& path, const train::TrainState& state, const Facts& facts,
    const std::function<std::optional<std::string>(const CheckpointWeight&)>& name) {
  ConvertOptions how{.in = request_.train.model,
                     .out = path,
                     .overwrite = true,
                     .layout = CheckpointLayout::original,
                     .dtype = parse_dtype(request_.config.save_dtype),
                     .variant = request_.config.variant};
  const auto trained = [&](const std::string& file, const Component& component,
                           const std::string& weight) -> std::function<Tensor()> {
    const auto known = name({file, component, weight});
    if (!known) return {};
    const auto w = std::ranges::find(state.weights, *known, &nn::Weight::name);
    if (w == state.weights.end() || !w->trained) return {};
    return [w, t = state.tensors.at(prefix() + w->name)] { return nn::to_file(*w, t); };
  };
  how.trained = TrainedWeights{
      .of = trained, .diffusion = of_sampling(facts.diffusion), .metadata = facts.metadata};
  for (const std::string& w : convert_checkpoint(how).warnings)
    if (said_.insert(w).second) request_.say(w);
}

}  // namespace ebb
