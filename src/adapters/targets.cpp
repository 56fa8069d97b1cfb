#include "adapters/targets.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/names.h"
#include "models/family.h"

namespace ebb::adapters {
namespace {

using Part = Network::Part;

struct Prefix {
  std::string_view text;
  Part part;
  int64_t number = 1;
};

// kohya and LyCORIS; PEFT and diffusers; OneTrainer; ComfyUI. "" is a network saved by itself.
constexpr std::array prefixes = {
    Prefix{"lora_unet__", Part::denoiser},
    Prefix{"lora_unet_", Part::denoiser},
    Prefix{"lycoris_unet_", Part::denoiser},
    Prefix{"lycoris_te1_", Part::text, 1},
    Prefix{"lycoris_te2_", Part::text, 2},
    Prefix{"lycoris_te_", Part::text, 1},
    Prefix{"lycoris_", Part::denoiser},
    Prefix{"lora_te1_", Part::text, 1},
    Prefix{"lora_te2_", Part::text, 2},
    Prefix{"lora_te_", Part::text, 1},
    Prefix{"lora_prior_unet_", Part::denoiser},
    Prefix{"unet.", Part::denoiser},
    Prefix{"text_encoder.", Part::text, 1},
    Prefix{"text_encoder_2.", Part::text, 2},
    Prefix{"model.diffusion_model.", Part::denoiser},
    Prefix{"diffusion_model.", Part::denoiser},
    Prefix{"text_encoders.clip_l.transformer.", Part::text, 1},
    Prefix{"text_encoders.clip_g.transformer.", Part::text, 2},
    Prefix{"text_encoders.clip_h.transformer.", Part::text, 1},
    Prefix{"", Part::denoiser},
    Prefix{"", Part::text, 1},
};

std::string underscored(std::string text) {
  std::ranges::replace(text, '.', '_');
  return text;
}

bool replace_once(std::string& text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) return false;
  text.replace(at, from.size(), to);
  return true;
}

// The names of diffusers before it used PEFT: attention processors had the layers.
std::string of_processor(std::string stem) {
  replace_once(stem, ".processor", "");
  if (stem.ends_with(".to_out")) stem += ".0";
  for (const char* n : {"q", "k", "v"})
    if (stem.ends_with(str("self_attn.to_", n)))
      replace_once(stem, str("self_attn.to_", n), str("self_attn.", n, "_proj"));
  replace_once(stem, "self_attn.to_out.0", "self_attn.out_proj");
  return stem;
}

std::string without_wrapper(const std::string& stem) {
  constexpr std::string_view peft = "base_model.model.";
  return stem.starts_with(peft) ? stem.substr(peft.size()) : stem;
}

// Names by which Model::places() knows a U-Net in diffusers' names.
nn::FileShapes of_diffusers() {
  return {{"conv_in.weight", {}}, {"down_blocks.0.resnets.0.conv1.weight", {}}};
}

// What files call a layer of the network, without prefixes.
std::vector<std::string> spellings(const std::string& layer, const std::string& diffusers) {
  std::vector<std::string> out = {layer, diffusers};
  constexpr std::string_view text_model = "text_model.";
  if (layer.starts_with(text_model)) out.push_back(layer.substr(text_model.size()));
  for (size_t i = 0, n = out.size(); i < n; ++i) out.push_back(underscored(out[i]));
  return out;
}

}  // namespace

std::string Network::name_of(Part part, int64_t number) {
  return part == Part::denoiser ? "the U-Net" : str("text encoder ", number);
}

LayerNames::LayerNames(const Network& n, bool several_texts)
    : part_(n.part),
      number_(n.number),
      kohya_original_(false),
      numbered_(several_texts || n.number > 1),
      diffusers_(n.model->places(n.config, of_diffusers())) {
  const Family* family = n.part == Part::denoiser ? find_family(n.config) : nullptr;
  if (family) kohya_original_ = family->kohya_original;
}

std::string LayerNames::diffusers(const std::string& layer) const {
  if (!diffusers_) return layer;
  constexpr std::string_view ending = ".weight";
  const std::string name = diffusers_(str(layer, ending)).name;
  return name.substr(0, name.size() - ending.size());
}

std::string LayerNames::peft_prefix() const {
  if (part_ == Part::denoiser) return "unet.";
  return number_ == 1 ? "text_encoder." : "text_encoder_2.";
}

std::string LayerNames::written(const std::string& layer, FileNames names) const {
  if (names == FileNames::peft) return peft_prefix() + diffusers(layer);
  const std::string own = kohya_original_ ? layer : diffusers(layer);
  if (part_ == Part::denoiser) return "lora_unet_" + underscored(own);
  return str("lora_te", numbered_ ? str(number_) : "", '_', underscored(own));
}

Targets::Targets(const std::vector<Network>& networks) {
  for (const Network& n : networks) {
    Names names{{}, n.part, n.number};
    const nn::FilePlaces diffusers = n.model->places(n.config, of_diffusers());
    for (const nn::Weight& w : weights_of(*n.model, n.config)) {
      const size_t dot = w.name.rfind('.');
      if (dot == std::string::npos) continue;
      const std::string layer = w.name.substr(0, dot);
      const std::string other = diffusers ? diffusers(w.name).name : w.name;
      for (std::string& s : spellings(layer, other.substr(0, other.rfind('.'))))
        names.layers.emplace(std::move(s), layer);
    }
    names_.push_back(std::move(names));
  }
}

std::optional<Target> Targets::find(const std::string& name) const {
  const std::string stem = without_wrapper(name);
  for (const Prefix& p : prefixes) {
    if (!stem.starts_with(p.text)) continue;
    const std::string rest = stem.substr(p.text.size());
    for (size_t i = 0; i < names_.size(); ++i) {
      const Names& n = names_[i];
      if (n.part != p.part || n.number != p.number) continue;
      for (const std::string& s : {rest, of_processor(rest)})
        if (const auto it = n.layers.find(s); it != n.layers.end()) return Target{i, it->second};
    }
  }
  return {};
}

std::string Targets::nearest(const std::string& name) const {
  const std::string stem = without_wrapper(name);
  for (const Prefix& p : prefixes) {
    if (p.text.empty() || !stem.starts_with(p.text)) continue;
    const std::string rest = stem.substr(p.text.size());
    for (const Names& n : names_) {
      if (n.part != p.part || n.number != p.number) continue;
      std::vector<std::string> known;
      for (const auto& [spelling, layer] : n.layers)
        if ((spelling.find('.') == std::string::npos) == (rest.find('.') == std::string::npos))
          known.push_back(spelling);
      const std::string near = nearest_name(rest, known);
      return near.empty() ? "" : str(p.text, near);
    }
  }
  return "";
}

std::string Targets::meant(const std::string& name) {
  const std::string stem = without_wrapper(name);
  for (const Prefix& p : prefixes)
    if (!p.text.empty() && stem.starts_with(p.text)) return Network::name_of(p.part, p.number);
  return "";
}

}  // namespace ebb::adapters
