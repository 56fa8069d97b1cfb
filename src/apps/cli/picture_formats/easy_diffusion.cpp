// Easy Diffusion: a text by each name of its request ("num_inference_steps"), or by the label that
// its text files have ("Steps"). Names and labels: easydiffusion/utils/save_utils.py of its 3.0.
#include <algorithm>

#include "apps/cli/picture_formats.h"
#include "base/error.h"
#include "base/names.h"
#include "base/text.h"

namespace ebb::cli::picture_formats {
namespace {

struct Name {
  std::string_view field, label;
  const char* key;  // of A1111's text; null: none, or read in another way
};
constexpr Name names[] = {
    {"num_inference_steps", "Steps", "Steps"},
    {"sampler_name", "Sampler", "Sampler"},
    {"scheduler_name", "Scheduler", "Schedule type"},
    {"guidance_scale", "Guidance Scale", "CFG scale"},
    {"seed", "Seed", "Seed"},
    {"prompt_strength", "Prompt Strength", "Denoising strength"},
    {"prompt", "Prompt", nullptr},
    {"negative_prompt", "Negative Prompt", nullptr},
    {"width", "Width", nullptr},
    {"height", "Height", nullptr},
    {"use_stable_diffusion_model", "Stable Diffusion model", nullptr},
    {"use_vae_model", "VAE model", nullptr},
    {"clip_skip", "Clip Skip", nullptr},
    {"tiling", "Seamless Tiling", nullptr},
    {"use_lora_model", "LoRA model", nullptr},
    {"lora_alpha", "LoRA Strength", nullptr},
};
// What ebb does in another way, or not at all.
constexpr Name others[] = {
    {"use_controlnet_model", "ControlNet model", "ControlNet model"},
    {"use_face_correction", "Use Face Correction", "Face restoration"},
    {"use_upscale", "Use Upscaling", "Upscaler"},
    {"use_hypernetwork_model", "Hypernetwork model", "Hypernet"},
    {"use_embeddings_model", "Embedding models", "Embedding models"},
};

bool says_nothing(std::string_view value) {
  for (const std::string_view none : {"", "None", "none", "null", "False", "false", "[]"})
    if (value == none) return true;
  return false;
}

// "" where there is none, or it says so.
std::string value_of(const TextsOfPicture& text, std::string_view field, std::string_view label) {
  for (const std::string_view name : {field, label})
    if (const std::string_view value = trimmed(text_of(text, std::string(name))); !value.empty())
      return says_nothing(value) ? std::string() : std::string(value);
  return "";
}

std::string value_of(const TextsOfPicture& text, std::string_view field) {
  const auto* at = std::ranges::find(names, field, &Name::field);
  return value_of(text, at->field, at->label);
}

// "Label: value" lines, the prompt first or under its own label. None without a known label.
TextsOfPicture texts_of_lines(const std::string& all) {
  TextsOfPicture out;
  for (const std::string_view line : parted(all, "\n")) {
    const size_t colon = line.find(':');
    const std::string_view label = trimmed(line.substr(0, std::min(colon, line.size())));
    const auto has = [&](const Name& n) { return same_name(n.label, label); };
    const auto* known = std::ranges::find_if(names, has);
    const auto* other = std::ranges::find_if(others, has);
    if (colon != line.npos && known != std::end(names))
      out.emplace(known->field, trimmed(line.substr(colon + 1)));
    else if (colon != line.npos && other != std::end(others))
      out.emplace(other->field, trimmed(line.substr(colon + 1)));
    else if (out.empty() && !line.empty())
      out.emplace("prompt", line);
  }
  return out;
}

// "['a', 'b']", "[\"a\",\"b\"]" and "a, b".
std::vector<std::string> list_of(const std::string& text) {
  std::string_view inner = trimmed(text);
  if (inner.starts_with('[') && inner.ends_with(']')) inner = inner.substr(1, inner.size() - 2);
  std::vector<std::string> out;
  for (std::string_view one : parted(inner, ",")) {
    if (one.size() >= 2 && (one[0] == '\'' || one[0] == '"')) one = one.substr(1, one.size() - 2);
    if (!one.empty() && one != "None") out.emplace_back(one);
  }
  return out;
}

std::vector<std::string> loras_of(const TextsOfPicture& text) {
  const auto files = list_of(value_of(text, "use_lora_model"));
  const auto strengths = list_of(value_of(text, "lora_alpha"));
  std::vector<std::string> out;
  for (size_t i = 0; i < files.size(); ++i)
    out.push_back(str(file_stem(files[i]), ':', i < strengths.size() ? strengths[i] : "1"));
  return out;
}

std::optional<FoundSettings> read(const TextsOfPicture& all) {
  TextsOfPicture text = all;
  if (value_of(text, "num_inference_steps").empty() && text.contains("parameters"))
    text = texts_of_lines(text_of(text, "parameters"));
  const std::string model = value_of(text, "use_stable_diffusion_model");
  if (value_of(text, "num_inference_steps").empty() || model.empty()) return {};
  FoundSettings out;
  out.text.prompt = value_of(text, "prompt");
  out.text.negative = value_of(text, "negative_prompt");
  for (const Name& n : names)
    if (n.key) add_value(out.text, n.key, value_of(text, n.field));
  const std::string width = value_of(text, "width"), height = value_of(text, "height");
  if (!width.empty() && !height.empty()) add_value(out.text, "Size", str(width, 'x', height));
  add_value(out.text, "Model", file_stem(model));
  add_value(out.text, "VAE", file_stem(value_of(text, "use_vae_model")));
  if (!value_of(text, "clip_skip").empty()) add_value(out.text, "Clip skip", "2");
  const std::string tiling = value_of(text, "tiling");
  if (tiling == "xy")
    add_value(out.text, "Tiling", "True");
  else
    add_value(out.text, "Seamless tiling", tiling);
  for (const Name& n : others) add_value(out.text, n.key, value_of(text, n.field, n.label));
  out.loras = loras_of(text);
  return out;
}

}  // namespace

const PictureFormat& easy_diffusion() {
  static const PictureFormat f{"Easy Diffusion", "a1111", read};
  return f;
}

}  // namespace ebb::cli::picture_formats
