#include "apps/cli/mode_flags.h"

#include <array>

#include "apps/cli/picture_output.h"
#include "base/by_flag.h"
#include "base/error.h"
#include "base/names.h"
#include "diffusion/solver/dialect.h"
#include "io/image.h"
#include "io/mask_file.h"
#include "pipeline/noise_parameters.h"

namespace ebb::cli {
namespace {

void add_mask(const ModeFlags& f, TextToImageRequest& q) {
  if (f.mask.empty() && f.outpaint.empty()) return;
  require(f.mask_blur >= -1, "generate: --mask-blur must be -1 or more (got ", f.mask_blur, ")");
  q.mask = MaskImage{.picture = {},
                     .invert = f.mask_invert,
                     .only_masked = f.only_masked,
                     .padding = f.mask_padding};
  if (!f.mask.empty())
    q.mask->picture = by_flag("generate: --mask", [&] { return io::read_mask(f.mask); });
  if (f.mask_blur >= 0) q.mask->blur = f.mask_blur;
  if (f.masked_content != "auto")
    q.mask->content = masked_content(f.masked_content);
  else if (!f.outpaint.empty())
    q.mask->content = MaskedContent::fill;
}

void add_noise(const ModeFlags& f, GenerateOptions& o) {
  if (f.variation.empty() && f.seed_resize.empty() && f.ensd == 0) return;
  const std::string source =
      o.noise == "auto" ? find_dialect(o.dialect).noise : find_source(o.noise).name;
  require(source == "a1111",
          "generate: --variation, --seed-resize and --ensd need the noise "
          "of --dialect a1111 (got --noise ",
          source, ")");
  NoiseVariation v{.seed_delta = f.ensd};
  if (!f.variation.empty()) {
    const size_t colon = f.variation.find(':');
    require(colon != std::string::npos && colon > 0 && colon + 1 < f.variation.size(),
            "generate: --variation must be SEED:STRENGTH (got '", f.variation, "')");
    v.seed = f.variation.substr(0, colon), v.strength = f.variation.substr(colon + 1);
  }
  if (!f.seed_resize.empty()) v.drawn_for = image_size(f.seed_resize, "generate: --seed-resize");
  o.noise_options = varied(o.noise_options, v);
}

}  // namespace

namespace {

struct Tiling {
  std::string_view name;
  CircularAxes axes;
};
constexpr std::array all_tilings = {
    Tiling{"none", {}},
    Tiling{"x", {.x = true, .y = false}},
    Tiling{"y", {.x = false, .y = true}},
    Tiling{"both", {.x = true, .y = true}},
};

}  // namespace

std::vector<std::string> tilings() {
  std::vector<std::string> out;
  for (const Tiling& t : all_tilings) out.emplace_back(t.name);
  return out;
}

CircularAxes circular_axes(const std::string& tiling, std::string_view command) {
  return find_known(str(command, ": unknown --tiling"), tiling, all_tilings, &Tiling::name).axes;
}

std::string ModeFlags::refiner_file() const {
  std::string file = refiner;
  parse_refiner(file);
  return file;
}

std::string ModeFlags::upscaler_file() const {
  if (hires.empty()) return "";
  const Hires h = parse_hires(hires);
  return h.network ? h.upscaler : "";
}

std::optional<UnusedField> ModeFlags::unused() const {
  const UnusedRule rules[] = {
      {init.empty(),
       {"strength", "image_guidance", "exact_steps", "fit", "mask", "mask_invert", "mask_blur",
        "masked_content", "only_masked", "mask_padding", "outpaint"},
       "without",
       "init"},
      {!outpaint.empty(), {"fit"}, "with", "outpaint"},
      {mask.empty() && outpaint.empty(),
       {"mask_invert", "mask_blur", "masked_content", "only_masked", "mask_padding"},
       "without",
       "mask"},
      {!only_masked, {"mask_padding"}, "without", "only_masked"},
      {only_masked, {"fit"}, "with", "only_masked"},
      {mask.empty(), {"mask_invert"}, "without", "mask"},
  };
  ModeFlags given = *this, plain;
  return unused_field(fields_of(given), fields_of(plain), rules);
}

void ModeFlags::add_to(TextToImageRequest& q) const {
  q.tiling = circular_axes(tiling, "generate");
  add_noise(*this, q.options);
  q.refiner_loras = parse_loras(refiner_lora.text(), "--refiner-lora");
  if (!hires.empty()) q.hires = parse_hires(hires);
  if (std::string file = refiner; !file.empty()) q.refine = parse_refiner(file);
  require_used(unused());
  if (init.empty()) return;
  q.image_guidance = image_guidance;
  q.init =
      InitImage{.picture = by_flag("generate: --init", [&] { return io::read_image(init, 3); }),
                .strength = strength,
                .exact_steps = exact_steps,
                .fit = fit_rule(fit)};
  add_mask(*this, q);
  if (!outpaint.empty()) q.outpaint = parse_outpaint(outpaint);
}

}  // namespace ebb::cli
