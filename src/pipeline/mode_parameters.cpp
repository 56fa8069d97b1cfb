#include "pipeline/mode_parameters.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/names.h"
#include "base/text.h"

namespace ebb {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;
struct Names {
  std::string_view menu, own;
};

constexpr std::array contents = {
    Names{"fill", "fill"},
    Names{"original", "original"},
    Names{"latent noise", "noise"},
    Names{"latent nothing", "nothing"},
};

std::string own_name(std::string_view menu, const auto& names) {
  for (const Names& n : names)
    if (same_name(n.menu, menu)) return std::string(n.own);
  return "";
}

std::string stem(const std::string& path) { return std::filesystem::path(path).stem().string(); }

void add_mask(Pairs& out, const TextToImageRequest& q) {
  const MaskImage& m = *q.mask;
  out.emplace_back("Mask blur", str(mask_blur(m, q.options.dialect)));
  if (m.content != MaskedContent::original)
    out.emplace_back("Masked content", contents[static_cast<size_t>(m.content)].menu);
  if (m.invert) out.emplace_back("Mask mode", "Inpaint not masked");
  if (!m.only_masked) return;
  out.emplace_back("Inpaint area", "Only masked");
  out.emplace_back("Masked area padding", str(m.padding));
}

void add_hires(Pairs& out, const Hires& h) {
  out.emplace_back("Hires upscale", str(h.scale));
  if (h.steps > 0) out.emplace_back("Hires steps", str(h.steps));
  out.emplace_back("Hires upscaler", h.network ? stem(h.upscaler) : hires_menu_name(h.upscaler));
}

std::string control_text(const ControlInput& c, const std::string& model) {
  constexpr std::string_view resizes[] = {"Crop and Resize", "Just Resize", "Resize and Fill"};
  constexpr std::string_view modes[] = {"Balanced", "My prompt is more important",
                                        "ControlNet is more important",
                                        "ControlNet is more important"};
  return str("Module: ", c.kind, ", Model: ", model, ", Weight: ", c.strength,
             ", Resize Mode: ", resizes[static_cast<size_t>(c.resize)],
             ", Guidance Start: ", c.start, ", Guidance End: ", c.end,
             ", Control Mode: ", modes[static_cast<size_t>(c.mode)]);
}

// A tag names file and strengths.
std::string lora_tag(const LoraChoice& l) {
  const bool same = l.strength == l.text_strength;
  return str("<lora:", stem(l.file), ':', same ? std::string() : str(l.text_strength, ':'),
             l.strength, '>');
}

// The web UI has no key for LoRAs that the refiner alone has.
std::string refiner_lora_text(const TextToImageRequest& q) {
  std::string out;
  for (const LoraChoice& l : q.refiner_loras) out += str(out.empty() ? "" : " ", lora_tag(l));
  return out;
}

// Each file once.
std::string lora_hashes(const ResolvedTextToImage& r, const ModeFiles& files) {
  constexpr size_t digits = 12;
  std::vector<std::string> found;
  size_t i = 0;
  for (const auto* uses : {&r.loras, &r.refiner_loras})
    for (const adapters::AdapterUse& use : *uses) {
      if (i == files.lora_hashes.size()) break;
      std::string one = str(stem(use.file->path()), ": ", files.lora_hashes[i++].substr(0, digits));
      if (std::ranges::find(found, one) == found.end()) found.push_back(std::move(one));
    }
  return listed(found);
}

}  // namespace

std::string masked_content_of(std::string_view menu) { return own_name(menu, contents); }

std::string with_lora_tags(const TextToImageRequest& q) {
  std::string out = q.prompt;
  for (const LoraChoice& l : q.loras) out += " " + lora_tag(l);
  return out;
}

Pairs mode_parameters(const ResolvedTextToImage& r, const ModeFiles& files) {
  const TextToImageRequest& q = r.request;
  Pairs out;
  if (q.init) out.emplace_back("Denoising strength", str(q.init->strength));
  if (q.hires && !q.init) out.emplace_back("Denoising strength", str(q.hires->strength));
  if (q.image_guidance != default_image_guidance)
    out.emplace_back("Image CFG scale", str(q.image_guidance));
  if (q.tiling.any()) out.emplace_back("Tiling", "True");
  if (q.mask) add_mask(out, q);
  if (q.hires) add_hires(out, *q.hires);
  if (q.refine) {
    out.emplace_back("Refiner", files.refiner);
    out.emplace_back("Refiner switch at", str(q.refine->share));
    if (!q.refiner_loras.empty()) out.emplace_back("Refiner loras", refiner_lora_text(q));
  }
  for (size_t k = 0; k < q.controls.size(); ++k)
    out.emplace_back(str("ControlNet ", k),
                     control_text(q.controls[k], files.control_models.at(k)));
  if (const std::string hashes = lora_hashes(r, files); !hashes.empty())
    out.emplace_back("Lora hashes", hashes);
  return out;
}

}  // namespace ebb
