#include "pipeline/finetune_metadata.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/names.h"
#include "base/text.h"
#include "base/version.h"
#include "models/family.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

std::string python(bool v) { return v ? "True" : "False"; }

// How often each part of a caption between commas comes, as {"data": {"part": count}}: of what is
// learnt, in each of a picture's captions.
std::string tag_counts(const train::Captioned& data, const std::string& name) {
  std::map<std::string, int64_t> counts;
  for (const train::CaptionedPicture& p : data.pictures) {
    if (p.prior || p.held_out) continue;
    for (const std::string& caption : p.captions)
      for (const std::string& tag : train::tags_of(caption)) counts[tag] += p.repeats;
  }
  return nlohmann::json{{name, counts}}.dump(-1, ' ', false,
                                             nlohmann::json::error_handler_t::replace);
}

// What trained it, of kohya's: LyCORIS all but plain LoRAs.
std::map<std::string, std::string> network_facts(const adapters::TrainableAdapter& of,
                                                 const FinetuneConfig& f) {
  constexpr const char* lycoris = "lycoris.kohya";
  const std::string module = of.decomposed() ? lycoris : of.kind().kohya_module;
  std::map<std::string, std::string> out = {{"ss_network_module", module},
                                            {"ss_network_dim", str(f.rank)},
                                            {"ss_network_alpha", str(f.alpha)}};
  nlohmann::json args;
  if (module == lycoris) args["algo"] = small_letters(of.kind().name);
  if (of.decomposed()) args["dora_wd"] = python(true);
  if (!args.empty()) out["ss_network_args"] = args.dump();
  return out;
}

}  // namespace

std::map<std::string, std::string> finetune_metadata(const FinetuneFacts& of) {
  const train::TrainConfig& c = of.train;
  const FinetuneConfig& f = of.config;
  const DiffusionConfig& d = of.model.diffusion;
  std::map<std::string, std::string> out = {
      {"ss_sd_model_name", fs::path(c.model).filename().string()},
      {"ss_learning_rate", str(c.lr)},
      {"ss_unet_lr", f.trains("unet") ? str(c.lr) : "None"},
      {"ss_text_encoder_lr",
       f.trains("text_encoder") ? str(f.text_lr > 0 ? f.text_lr : c.lr) : "None"},
      {"ss_lr_scheduler", c.schedule},
      {"ss_lr_warmup_steps", str(c.warmup)},
      {"ss_optimizer",
       str("ebb.", c.optimizer, "(betas=(", c.beta1, ",", train::optimizer_settings(c).beta2,
           "),weight_decay=", c.weight_decay, ")")},
      {"ss_max_train_steps", str(c.steps)},
      {"ss_steps", str(of.step)},
      {"ss_seed", str(uint64_t{c.seed})},
      {"ss_batch_size_per_device", str(c.micro_batch() / of.ranks)},
      {"ss_gradient_accumulation_steps", str(c.accumulation)},
      {"ss_max_grad_norm", str(c.clip)},
      {"ss_num_train_images", str(train::images_of(of.data))},
      {"ss_num_reg_images", str(train::images_of(of.data, true))},
      {"ss_resolution", str("(", f.resolution, ", ", f.resolution, ")")},
      {"ss_enable_bucket", python(f.buckets)},
      {"ss_bucket_no_upscale", python(f.no_upscale)},
      {"ss_min_bucket_reso", str(f.bucket_min)},
      {"ss_max_bucket_reso", str(f.bucket_max)},
      {"ss_caption_dropout_rate", str(f.caption_dropout)},
      {"ss_shuffle_caption", python(f.shuffle_tags)},
      {"ss_keep_tokens", str(f.keep_tags)},
      {"ss_flip_aug", python(c.flip)},
      {"ss_cache_latents", "True"},
      {"ss_noise_offset", d.noise_offset > 0 ? str(d.noise_offset) : "None"},
      {"ss_min_snr_gamma", d.weighting == "min_snr" ? str(d.min_snr_gamma) : "None"},
      {"ss_zero_terminal_snr", python(d.zero_snr != "no")},
      {"ss_v2", "False"},
      {"ss_training_comment", str("trained with ebb ", version)}};
  if (of.adapter) out.merge(network_facts(*of.adapter, f));
  if (d.precond == "v") out["modelspec.prediction_type"] = "v";
  if (d.precond == "eps") out["modelspec.prediction_type"] = "epsilon";
  if (const Family* family = find_family(of.model.config)) {
    if (!family->kohya_version.empty()) out["ss_base_model_version"] = family->kohya_version;
    out["ss_v2"] = python(family->kohya_version.starts_with("sd_v2"));
  }
  out["ss_tag_frequency"] = tag_counts(of.data, fs::path(c.data).filename().string());
  return out;
}

}  // namespace ebb
