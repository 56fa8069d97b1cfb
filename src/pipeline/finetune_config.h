// FinetuneConfig: settings of training on a checkpoint, beside those of every training.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "adapters/trainable.h"
#include "train/adversary.h"
#include "train/buckets.h"
#include "train/captions.h"

namespace ebb {

struct FinetuneConfig {
  std::string train = "unet", adapter = "none", targets = "attentions";
  std::string text_targets = "self_attn,mlp", names = "kohya", save_dtype = "f16";
  std::string frozen_weights = "dtype";
  double text_lr = 0, kl_weight = 1e-6;
  double disc_weight = 0, disc_lr = 0;
  int64_t disc_start = 0, disc_channels = 64;
  std::string embedding, init_text = "*";
  int64_t vectors = 1;
  bool unit_latents = false, decompose = false;
  int64_t rank = 16, factor = -1;
  double alpha = 16;
  std::string text_encoder, vae, variant;
  int64_t resolution = 0;
  bool buckets = true, no_upscale = false, shuffle_tags = false;
  int64_t bucket_step = 64, bucket_min = 0, bucket_max = 0, keep_tags = 0;
  double caption_dropout = 0;
  std::string caption_prefix, cache_dir, prior, sample_prompts, sample_controls;
  int64_t sample_pictures = 2;
  double prior_weight = 1;
  std::string control_images, control_model;
  // Hashes of what the run began with; no flags.
  std::string base, base_encoders, base_data, base_validation, base_controls;

  void fields(auto&& f) {
    f("train", train,
      "what is trained: unet, text_encoder (all that the model reads) or both, unet,text_encoder; "
      "or, alone, autoencoder, embedding (textual inversion) or controlnet (a new network beside "
      "the U-Net)");
    f("embedding", embedding, "train embedding: its name in captions");
    f("vectors", vectors, "train embedding: tokens that the name stands for");
    f("init_text", init_text, "train embedding: a text whose tokens the vectors begin as");
    f("control_images", control_images,
      "train controlnet: what it sees, as --data has pictures: to a.jpg there, a.png or another "
      "picture of that name here");
    f("control_model", control_model,
      "train controlnet: a file with one to train further; empty: a new one, as the U-Net's "
      "encoder");
    adapter_fields(f);
    f("text_lr", text_lr, "learning rate of text encoders; 0: lr");
    f("kl_weight", kl_weight, "autoencoder: of the divergence of latents from normal noise");
    f("disc_weight", disc_weight,
      "autoencoder: of what a discriminator, trained beside it, adds to its loss, times the weight "
      "that it finds for itself (0.5 is usual); 0: there is none");
    f("disc_start", disc_start, "steps before the discriminator begins");
    f("disc_lr", disc_lr, "learning rate of the discriminator; 0: lr");
    f("disc_channels", disc_channels, "channels of the discriminator's first layer");
    f("unit_latents", unit_latents,
      "autoencoder: in its files latents are scaled to what a denoiser trained from scratch wants");
    f("save_dtype", save_dtype, "of the model files: f32, f16 or bf16; resuming always has f32");
    f("text_encoder", text_encoder, "a file with the text encoder, if the model lacks it");
    f("vae", vae, "a file or folder with another autoencoder");
    f("variant", variant, "of the files in a folder of diffusers: fp16");
    f("resolution", resolution,
      "pictures have about the pixels of a square of this side; 0: as the model makes them");
    f("buckets", buckets, "several aspect ratios; off: all pictures are cropped to the square");
    f("bucket_step", bucket_step, "pixels between sides of buckets");
    f("bucket_min", bucket_min, "smallest side of a bucket; 0: half of resolution");
    f("bucket_max", bucket_max, "largest side of a bucket; 0: twice resolution");
    f("no_upscale", no_upscale, "no picture is enlarged: small ones get buckets of their own");
    f("caption_dropout", caption_dropout, "probability that training sees no caption");
    f("shuffle_tags", shuffle_tags, "shuffle the parts of captions between commas");
    f("keep_tags", keep_tags, "shuffle_tags: so many parts at the start stay there");
    f("caption_prefix", caption_prefix, "text before every caption");
    f("prior", prior,
      "pictures of what the model knows already and should not forget, as --data has them: with a "
      "dog of that name in --data, other dogs (prior preservation, DreamBooth)");
    f("prior_weight", prior_weight, "prior: weight of their loss; that of the others is 1");
    f("cache_dir", cache_dir,
      "folder of latents, of text states, and of pictures.jsonl, which has the sizes and hashes "
      "of pictures; empty: cache/ in `out`");
    f("sample_prompts", sample_prompts,
      "of the pictures of --sample-every: a .txt file with a prompt in each line, or prompts with "
      "';' between; without it: the first captions");
    f("sample_controls", sample_controls,
      "train controlnet: the images of sample_prompts, one for all or one each, ';' between");
    f("sample_pictures", sample_pictures, "of each of these prompts, from noise that stays");
    f("base", base, "hash of the weights that the run began with");
    f("base_encoders", base_encoders, "of the autoencoder and the text encoders, and their use");
    f("base_data", base_data, "of the pictures and captions");
    f("base_validation", base_validation, "of the pictures of a --validation that names them");
    f("base_controls", base_controls, "of the control images");
  }
  void adapter_fields(auto&& f) {
    f("adapter", adapter, "what is trained in place of the networks; none: these themselves");
    f("decompose", decompose,
      "adapter: the lengths of the weights' rows are trained beside it (DoRA); --adapter dora is "
      "lora with them");
    f("rank", rank, "adapter: columns of its factors");
    f("factor", factor, "adapter lokr: rows and columns of the first factor, at most; -1: any");
    f("alpha", alpha, "adapter: its change is scaled by alpha / rank");
    f("targets", targets,
      "adapter: layers of the U-Net with one of these parts, between commas, in their names, the "
      "original's or diffusers': attentions, to_q,to_v, ...");
    f("text_targets", text_targets, "adapter: likewise of text encoders: self_attn,mlp, q_proj");
    f("names", names, "adapter: whose names its file has: kohya (A1111, ComfyUI) or peft");
    f("frozen_weights", frozen_weights,
      "of matrices that stay as they are, on the device: dtype (that of matrix work) or q8, 8 bits "
      "with a scale for every 32 numbers");
  }
  void choices(auto&& f) {
    f("save_dtype", save_dtype, {"f32", "f16", "bf16"});
    f("frozen_weights", frozen_weights, {"dtype", "q8"});
  }

  train::Adversary adversary() const { return {disc_weight, disc_start, disc_channels}; }
  bool adapts() const { return adapter != "none"; }
  bool frozen_in_8_bits() const { return frozen_weights == "q8"; }
  // "unet", "text_encoder", "embedding", "controlnet"
  bool trains(std::string_view part) const;
  // Text encoders are in the loss, and read tokens.
  bool encodes_text() const { return trains("text_encoder") || trains("embedding"); }
  int64_t new_vectors() const { return trains("embedding") ? vectors : 0; }
  // Where the resolution is open, it is this one, the side of the squares that the model makes. The
  // sides of buckets follow, where they are open.
  void take_resolution(int64_t side);
  train::BucketOptions bucket_options() const {
    return {resolution, buckets, bucket_step, bucket_min, bucket_max, no_upscale};
  }
  train::CaptionOptions caption_options() const {
    return {caption_dropout, shuffle_tags, keep_tags, caption_prefix};
  }
};
// Throws Error for what cannot be, and for settings of an adapter where there is none.
void check(const FinetuneConfig& config);

// Parts of a list between commas. Throws Error, naming the field, for an empty one.
std::vector<std::string> listed_parts(const std::string& list, std::string_view field);
adapters::TrainableOptions adapter_options(const FinetuneConfig& config);

}  // namespace ebb
