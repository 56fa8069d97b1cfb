#include "pipeline/finetune_config.h"

#include <algorithm>
#include <cmath>

#include "base/choices.h"
#include "base/error.h"
#include "base/names.h"
#include "nn/patch_discriminator.h"
#include "text/chunks.h"

namespace ebb {
namespace {

const std::vector<std::string> trained_parts = {"unet", "text_encoder", "autoencoder", "embedding",
                                                "controlnet"};

void check_discriminator(const FinetuneConfig& f) {
  const FinetuneConfig defaults;
  require(f.disc_weight >= 0 && std::isfinite(f.disc_weight),
          "disc_weight: must be finite and not negative (", f.disc_weight, ")");
  require(f.disc_weight == 0 || f.trains("autoencoder"),
          "disc_weight: is of an autoencoder that is trained (--train autoencoder)");
  if (f.disc_weight == 0)
    require(f.disc_start == defaults.disc_start && f.disc_lr == defaults.disc_lr &&
                f.disc_channels == defaults.disc_channels,
            "disc_start, disc_lr, disc_channels: are of a discriminator, and there is none "
            "(--disc-weight 0.5)");
  require(f.disc_start >= 0, "disc_start: must not be negative (", f.disc_start, ")");
  require(f.disc_lr >= 0 && std::isfinite(f.disc_lr), "disc_lr: must be finite and not negative (",
          f.disc_lr, ")");
  constexpr int64_t most = 1024, step = nn::discriminator_channels_step;
  require(f.disc_channels >= step && f.disc_channels <= most && f.disc_channels % step == 0,
          "disc_channels: must be a multiple of ", step, ", at most ", most, " (", f.disc_channels,
          ")");
}

// An autoencoder is trained on pictures, and is no part of what the denoiser is trained with.
void check_autoencoder(const FinetuneConfig& f) {
  const FinetuneConfig defaults;
  check_discriminator(f);
  require(f.kl_weight >= 0, "kl_weight: must not be negative (", f.kl_weight, ")");
  if (!f.trains("autoencoder")) {
    require(f.kl_weight == defaults.kl_weight && !f.unit_latents,
            "kl_weight, unit_latents: are of an autoencoder that is trained (--train "
            "autoencoder)");
    return;
  }
  require(f.train == "autoencoder", "train: an autoencoder is trained alone, before the networks ",
          "that read its latents (--train ", f.train, ")");
  require(!f.adapts(), "train: there are no adapters of autoencoders (--adapter ", f.adapter, ")");
  require(f.caption_dropout == defaults.caption_dropout && f.caption_prefix.empty() &&
              !f.shuffle_tags && f.keep_tags == defaults.keep_tags,
          "train: captions are not read where an autoencoder is trained (caption_dropout, "
          "caption_prefix, shuffle_tags, keep_tags)");
}

// Vectors that captions name, while all networks stay as they are.
void check_embedding(const FinetuneConfig& f) {
  const FinetuneConfig defaults;
  if (!f.trains("embedding")) {
    require(
        f.embedding.empty() && f.vectors == defaults.vectors && f.init_text == defaults.init_text,
        "embedding, vectors, init_text: are of an embedding that is trained (--train "
        "embedding)");
    return;
  }
  require(f.train == "embedding", "train: an embedding is trained alone (--train ", f.train, ")");
  require(!f.adapts(), "train: an embedding is trained without an adapter (--adapter ", f.adapter,
          ")");
  require(!f.embedding.empty() && f.embedding.find_first_of(" ,\t\n") == std::string::npos,
          "embedding: must be a name without spaces and commas, as captions have it ('",
          f.embedding, "')");
  require(f.vectors >= 1 && f.vectors <= text::chunk_room, "vectors: must be from 1 to ",
          text::chunk_room, ", which a caption has room for (", f.vectors, ")");
  require(small_letters(f.init_text).find(small_letters(f.embedding)) == std::string::npos,
          "init_text: must not have the name of the embedding, which it is for ('", f.init_text,
          "')");
}

// A network beside the others, which stay as they are.
void check_control(const FinetuneConfig& f) {
  if (!f.trains("controlnet")) {
    require(f.control_images.empty() && f.control_model.empty(),
            "control_images, control_model: are of a control network that is trained (--train "
            "controlnet)");
    return;
  }
  require(f.train == "controlnet", "train: a control network is trained alone, beside networks ",
          "that stay as they are (--train ", f.train, ")");
  require(!f.adapts(), "train: a control network is trained without an adapter (--adapter ",
          f.adapter, ")");
  require(!f.control_images.empty(),
          "control_images: is missing: the images that the control network sees, one for each of "
          "--data (--train controlnet)");
  require(f.prior.empty(), "prior: is not for control networks: the U-Net forgets nothing, as it ",
          "is not trained  ", f.prior);
}

void check_prior(const FinetuneConfig& f) {
  const FinetuneConfig defaults;
  if (f.prior.empty()) {
    require(f.prior_weight == defaults.prior_weight,
            "prior_weight: is of the pictures of --prior, and there are none");
    return;
  }
  require(!f.trains("autoencoder"), "prior: is not for autoencoders (--train autoencoder)");
  require(f.prior_weight > 0 && std::isfinite(f.prior_weight),
          "prior_weight: must be above 0 and finite (", f.prior_weight, ")");
  require(f.caption_prefix.empty(),
          "prior: must come without caption_prefix, which stands before its captions, too, and "
          "would make its pictures those of the name that is taught ('",
          f.caption_prefix, "')");
}

void check_parts(const FinetuneConfig& f) {
  const std::vector<std::string> parts = listed_parts(f.train, "train");
  for (const std::string& part : parts) {
    if (std::ranges::find(trained_parts, part) == trained_parts.end())
      fail_unknown("train: unknown part", part, trained_parts);
    require(std::ranges::count(parts, part) == 1, "train: a part is named twice (", part, ")");
  }
  const FinetuneConfig defaults;
  require(f.text_lr >= 0, "text_lr: must not be negative (", f.text_lr, ")");
  require(f.trains("text_encoder") ||
              (f.text_lr == defaults.text_lr && f.text_targets == defaults.text_targets),
          "train: text_lr and text_targets are of text encoders that are trained (--train "
          "unet,text_encoder)");
  check_autoencoder(f);
  check_embedding(f);
  check_control(f);
  check_prior(f);
  require(f.trains("unet") || f.targets == defaults.targets,
          "train: targets are of a U-Net that is trained, text_targets of text encoders (--train ",
          f.train, ")");
}

void check_adapter(const FinetuneConfig& f) {
  const FinetuneConfig defaults;
  if (f.adapts()) {
    listed_parts(f.targets, "targets");
    listed_parts(f.text_targets, "text_targets");
    return check(adapter_options(f));
  }
  require(f.rank == defaults.rank && f.factor == defaults.factor && f.alpha == defaults.alpha &&
              f.targets == defaults.targets && f.text_targets == defaults.text_targets &&
              f.names == defaults.names && !f.decompose,
          "adapter: rank, factor, alpha, targets, text_targets, decompose and names are an "
          "adapter's (--adapter lora)");
  if (f.trains("controlnet")) return;
  // the files of a run have all components, of its checkpoint alone
  for (const auto& [flag, file] : {std::pair{"--vae", f.vae}, {"--text-encoder", f.text_encoder}})
    require(file.empty(), "train: ", flag,
            " is for adapters (--adapter lora): a whole network is written with the "
            "checkpoint's own autoencoder and text encoders, not with those it was trained with  ",
            file);
}

}  // namespace

std::vector<std::string> listed_parts(const std::string& list, std::string_view field) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    require(end > at, field, ": one of several parts is empty ('", list, "')");
    out.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

adapters::TrainableOptions adapter_options(const FinetuneConfig& f) {
  return {.kind = f.adapter,
          .sizes = {.rank = f.rank, .factor = f.factor},
          .alpha = f.alpha,
          .decomposed = f.decompose,
          .names = adapters::parse_file_names(f.names)};
}

bool FinetuneConfig::trains(std::string_view part) const {
  const std::vector<std::string> parts = listed_parts(train, "train");
  return std::ranges::find(parts, part) != parts.end();
}

void FinetuneConfig::take_resolution(int64_t side) {
  if (resolution == 0) resolution = side;
  constexpr int64_t beyond_all = int64_t{1} << 20;
  if (!buckets || bucket_step < 1 || resolution > beyond_all) return;  // check() says what is wrong
  const auto whole = [&](int64_t pixels) {
    return std::max(bucket_step, pixels / bucket_step * bucket_step);
  };
  if (bucket_min == 0) bucket_min = whole(resolution / 2);
  if (bucket_max == 0) bucket_max = whole(resolution * 2);
}

void check(const FinetuneConfig& f) {
  check_choices(f, [](std::string_view field) { return str(field, ": unknown value"); });
  const FinetuneConfig defaults;
  check_parts(f);
  check_adapter(f);
  require(!f.frozen_in_8_bits() || f.adapts() || !f.trains("unet"),
          "frozen_weights: nothing stays as it is where the networks themselves are trained; q8 is "
          "for adapters (--adapter lora), embeddings and control networks (--train ",
          f.train, ")");
  require(!f.frozen_in_8_bits() || !f.trains("autoencoder"),
          "frozen_weights: is not for autoencoders, of which nothing stays (--train autoencoder)");
  // runs of older versions recorded these numbers where nobody gave any
  const bool recorded = f.bucket_min == 256 && f.bucket_max == 1024;
  const bool open = f.bucket_min == 0 && f.bucket_max == 0;
  require(
      f.buckets || (!f.no_upscale && f.bucket_step == defaults.bucket_step && (open || recorded)),
      "buckets: no_upscale, bucket_step, bucket_min and bucket_max are of several buckets, and "
      "have no effect with --no-buckets");
  if (f.resolution != 0) {  // else when the checkpoint is known
    FinetuneConfig whole = f;
    whole.take_resolution(f.resolution);
    train::check(whole.bucket_options());
  }
  train::check(f.caption_options());
  constexpr int64_t most_pictures = 16;
  require(f.sample_pictures >= 1 && f.sample_pictures <= most_pictures,
          "sample_pictures: must be 1 to ", most_pictures, " (", f.sample_pictures, ")");
}

}  // namespace ebb
