#include "pipeline/adapter_regions.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "base/error.h"
#include "base/fields.h"
#include "base/names.h"
#include "base/text.h"
#include "io/resize.h"
#include "models/family.h"
#include "nn/ldm_unet.h"
#include "pipeline/latent_resize.h"

namespace ebb {
namespace {

// "up.0.1" of "output_blocks.1.", where `stages` of these are a block of diffusers.
std::string block_of(std::string_view weight, int64_t stages) {
  if (weight.starts_with("middle_block.")) return "mid";
  const bool down = weight.starts_with("input_blocks.");
  const size_t dot = weight.find('.');
  const int64_t number =
      parse_integer(std::string(weight.substr(dot + 1, weight.find('.', dot + 1) - dot - 1)),
                    "number of a block") -
      (down ? 1 : 0);
  return str(down ? "down." : "up.", number / stages, '.', number % stages);
}

// Of another way to write it: "up_blocks.0.attentions.1", "up.block_0.1".
std::string plain_block(std::string_view name) {
  std::string out(trimmed(name));
  for (const std::string_view part : {"_blocks", "_block", "block_", ".attentions"})
    if (const size_t at = out.find(part); at != std::string::npos) out.erase(at, part.size());
  return out;
}

bool lies_in(std::string_view block, std::string_view name) {
  return block == name || (block.starts_with(name) && block[name.size()] == '.');
}

double factor(std::string_view text, std::string_view all) {
  const auto v = as_number(text);
  require(v && std::isfinite(*v) && std::abs(*v) <= 10,
          "control: strengths of blocks must be numbers up to 10 (found '", text, "' in '", all,
          "')");
  return *v;
}

// The names of the blocks, each once: down, mid, up.
std::vector<std::string> names_of(const std::vector<std::string>& layers) {
  std::vector<std::string> out;
  for (const std::string_view part : {"down", "mid", "up"})
    for (const std::string& layer : layers)
      if (lies_in(layer, part) && std::ranges::find(out, layer) == out.end()) out.push_back(layer);
  return out;
}

// The blocks that a name stands for: itself, or those of the family.
std::vector<std::string> meant(std::string_view name, const LoadedModel& m) {
  const std::string small = small_letters(name);
  const bool style = small == "style", layout = small == "layout" || small == "composition";
  if (!style && !layout) return {plain_block(small)};
  const Family* family = find_family(m.config);
  const std::string blocks = family == nullptr ? ""
                             : style           ? family->style_blocks
                                               : family->layout_blocks;
  require(!blocks.empty(), "control: which blocks make the ", small, " is not known of ",
          family == nullptr ? m.model->name : family->name);
  std::vector<std::string> out;
  for (const std::string_view block : parted(blocks, ",")) out.emplace_back(block);
  return out;
}

// By the names of blocks, or what these begin with.
std::map<std::string, double> strengths_by_name(std::string_view text, const LoadedModel& m,
                                                const std::vector<std::string>& blocks) {
  std::map<std::string, double> out;
  for (const std::string_view item : parted(text, ",+")) {
    const size_t equals = item.find('=');
    const double of = equals == item.npos ? 1 : factor(trimmed(item.substr(equals + 1)), text);
    for (const std::string& name : meant(item.substr(0, equals), m)) {
      require(std::ranges::any_of(blocks, [&](const auto& b) { return lies_in(b, name); }),
              "control: no block '", name, "' of the denoiser attends to images: it has ",
              listed(blocks), "; style, layout (got '", text, "')");
      const auto known = out.emplace(name, of).first;
      require(known->second == of, "control: the block '", name, "' is given two strengths, ",
              known->second, " and ", of, " (got '", text, "')");
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> adapter_blocks(const LoadedModel& m) {
  const int64_t blocks = parse_integer(
      field_text(find_field(ModelConfig(m.config).fields(), "num_res_blocks", m.model->name)),
      "num_res_blocks");
  std::vector<std::string> down, up, mid;
  for (const nn::Weight& w : weights_of(*m.model, m.config)) {
    if (!w.name.ends_with(".attn2.to_k.weight")) continue;
    const std::string block = block_of(w.name, blocks + 1);
    (block == "mid" ? mid : block.starts_with("down") ? down : up).push_back(block);
  }
  for (const auto* more : {&up, &mid}) std::ranges::copy(*more, std::back_inserter(down));
  return down;
}

std::vector<double> block_strengths(std::string_view text, const LoadedModel& m) {
  const std::vector<std::string> layers = adapter_blocks(m), blocks = names_of(layers);
  if (trimmed(text).empty()) return std::vector<double>(layers.size(), 1);
  std::map<std::string, double> by_name;
  const std::vector<std::string_view> items = parted(text, ",");
  if (std::ranges::all_of(items, [](std::string_view i) { return as_number(i).has_value(); })) {
    require(items.size() == blocks.size(), "control: there must be a strength for each of the ",
            blocks.size(), " blocks ", listed(blocks), " (got ", items.size(), " in '", text, "')");
    for (size_t i = 0; i < items.size(); ++i) by_name[blocks[i]] = factor(items[i], text);
  } else {
    by_name = strengths_by_name(text, m, blocks);
  }
  std::vector<double> out;
  for (const std::string& layer : layers) {
    double strength = 0;
    for (const auto& [name, of] : by_name)  // the longest one comes last
      if (lies_in(layer, name)) strength = of;
    out.push_back(strength);
  }
  return out;
}

Tensor region_mask(const Tensor& mask, const Shape& latents, int64_t factor) {
  const int64_t height = latents[0] * factor, width = latents[1] * factor;
  const Tensor bytes = io::resize(mask, height, width);
  Tensor image(DType::f32, {1, height, width, 1});
  std::ranges::transform(bytes.span<uint8_t>(), image.span<float>().begin(),
                         [](uint8_t v) { return v >= 128 ? 1.f : 0.f; });
  std::vector<float> all;
  for (Shape sides = latents;; sides = nn::halved(sides)) {
    const Tensor small = resized(image, sides[0], sides[1], LatentFilter::bicubic);
    std::ranges::copy(small.span<float>(), std::back_inserter(all));
    if (sides.numel() == 1) break;
  }
  return tensor_of(all, {1, std::ssize(all)});
}

}  // namespace ebb
