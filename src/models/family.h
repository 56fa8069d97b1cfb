// Family: what a family of text-to-image networks is beside its denoiser: which text encoders it
// reads and how, its latents, what it was trained with, how files lay its components out.
// src/models/families/<f>.cpp defines `const Family& ebb::families::<f>()`; docs/pipeline.md says
// who asks it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/model.h"

namespace ebb {

// A text encoder as the family reads it. States of several lie side by side, along channels.
struct FamilyText {
  std::string encoder;     // the published one: a preset, and a name of text::text_encoder()
  int64_t layer = 1;       // counted from the last: the `n` of states.n
  bool normed = true;      // through the final norm
  bool projected = false;  // the projected text is the condition `pooled`
  // Files with so many layers lack the last one, which nothing reads; none: there are none.
  std::optional<int64_t> cut_layers = {};
  bool fixed = false;  // A1111's clip skip does not count another layer of it
  // In files.
  int64_t number = 1;                   // of adapters, which call it "te2"
  std::string original;                 // prefix of its tensors in files of all components
  bool open_clip = false;               // with OpenCLIP's names there, else Hugging Face's
  std::string folder = "text_encoder";  // of diffusers; "tokenizer" and what is behind is beside it
};

// What a network gets beside its noisy latents, the condition `concat`.
enum class Beside : uint8_t {
  nothing,
  mask_and_image,  // to inpaint
  image,           // to edit
  depth_map,
  unknown,
};

// Whether a network is of a family: `similar` ones have its form and other sizes, or lack what
// would tell it from another family.
enum class Likeness : uint8_t { none, similar, same };

struct Family {
  std::string name;  // for people: "Stable Diffusion XL"
  // By the fields of a network's config, or of what belongs to one: a control network's.
  Likeness (*is)(const ModelConfig&) = nullptr;
  // Presets of denoisers that adapters are made for, with what people call them.
  std::vector<std::pair<std::string, std::string>> variants = {};

  // ---- conditions
  std::vector<FamilyText> texts = {};  // in the order in which their states are joined
  int64_t pooled = 0;                  // channels of the condition `pooled`; 0: it has none
  // The condition `size` of a picture of such a size, pixels; null: it has none.
  std::vector<float> (*sizes)(ImageSize size, bool negative) = nullptr;
  // By the number of its channels.
  std::vector<std::pair<int64_t, Beside>> beside = {};
  // Trained with texts that were replaced by zeros: an empty negative prompt is zeros in most
  // dialects; in diffusers' if the folder says so, or else by `diffusers_zeros`.
  bool zeros_for_empty = false, diffusers_zeros = false;

  // ---- network and latents
  LatentSpace latents = {};
  int64_t image_size = 64;         // side in training, of latents
  int64_t heads = 0;               // of attention at every level; 0: heads of 64 channels
  std::string prediction = "eps";  // unless files say another
  std::string diffusion = "";      // fields of DiffusionConfig beside it, "betas=scaled_linear"
  std::string own_schedule = "";   // of multistep samplers in ebb's dialect; "": the published
  bool decoder_overflows = false;  // activations of the published autoencoder exceed f16
  // What the family's files alone tell, behind what all do (Model::examine).
  void (*examine)(ModelConfig&, const FileFacts&) = +[](ModelConfig&, const FileFacts&) {};

  // ---- image adapters
  // The blocks through whose layers IP-Adapters bring style and layout into a picture (Wang et al.
  // 2024, InstantStyle, arXiv:2404.02733), as block_strengths() reads them; "": not known.
  std::string style_blocks = "", layout_blocks = "";

  // ---- files of diffusers and of the original
  bool markers = false;           // tensors that are there or not tell what is predicted
  std::string pipeline = "";      // its class without what it does: "StableDiffusionXL"
  std::string does = "Pipeline";  // the ending of the class that makes pictures
  std::vector<std::string> other_pipelines = {};         // classes of what was made of it, likewise
  std::vector<std::pair<std::string, bool>> index = {};  // further fields of model_index.json
  std::string kohya_version = "";                        // what kohya's adapters call it: "sd_v1"
  bool kohya_original = false;  // kohya's adapters have the original's names of layers
  bool checker = false;         // model_index.json names a safety checker, which is left out
};

const std::vector<const Family*>& all_families();
// The one that a network with this config is of, or else the first that it is similar to; null
// where there is none: a denoiser that reads no text.
const Family* find_family(const ModelConfig& config);
// The same. Throws Error, which begins with `subject`, where there is none.
const Family& family_of(const ModelConfig& config, std::string_view subject);
// Whether a square of so many latents a side is a picture for the family's networks: of 64 pixels
// to four times the family's own side. Some tools write others into files.
bool plausible_side(const Family& family, int64_t latents);
// What a network gets by its family.
Beside beside_of(const ModelConfig& config);
// Of similar ones, the first that can be read with text encoders of these widths.
const Family* find_family(const ModelConfig& config, const std::vector<int64_t>& widths);
// The family that reads text encoders of these widths, for files without a denoiser: the one whose
// published encoders they are, or else the first one that reads as many, or else Stable
// Diffusion 1.
const Family& family_reading(const std::vector<int64_t>& widths);
// Which of the encoders with these widths the family's texts are, in its order, for a network that
// reads `channels`; empty: they do not make as many.
std::vector<size_t> texts_among(const Family& family, int64_t channels,
                                const std::vector<int64_t>& widths);
// The text that an encoder of this width, number `index` of the file's, is for the family: by the
// published width, or else by its place.
const FamilyText& text_of(const Family& family, int64_t width, size_t index);
int64_t width_of(const FamilyText& text);          // of the published encoder
int64_t text_channels(const ModelConfig& config);  // that the network reads; 0: it reads no text

}  // namespace ebb
