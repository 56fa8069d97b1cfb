#include "pipeline/hires.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "base/names.h"
#include "base/options.h"
#include "base/text.h"
#include "io/resize.h"
#include "pipeline/decoder.h"
#include "pipeline/init_image.h"
#include "pipeline/latent_resize.h"
#include "pipeline/picture_bytes.h"

namespace ebb {
namespace {

// Without a filter of latents, pixels are enlarged.
constexpr struct {
  std::string_view name, menu;
  std::optional<LatentFilter> filter;
} upscalers[] = {
    {"latent", "Latent", LatentFilter::bilinear},
    {"latent-antialiased", "Latent (antialiased)", LatentFilter::bilinear_antialias},
    {"latent-bicubic", "Latent (bicubic)", LatentFilter::bicubic},
    {"latent-bicubic-antialiased", "Latent (bicubic antialiased)", LatentFilter::bicubic_antialias},
    {"latent-nearest", "Latent (nearest)", LatentFilter::nearest},
    {"latent-nearest-exact", "Latent (nearest-exact)", LatentFilter::nearest_exact},
    {"lanczos", "Lanczos", {}},
};

std::optional<LatentFilter> filter_of(std::string_view name) {
  for (const auto& u : upscalers)
    if (u.name == name) return u.filter;
  return {};
}

}  // namespace

bool enlarges_pixels(const Hires& hires) { return hires.network || !filter_of(hires.upscaler); }

namespace {

class HiresMode : public RunMode {
 public:
  HiresMode(const Hires& hires, const ResolvedRequest& r)
      : hires_(hires), dialect_(r.options.dialect), height_(r.sample[0]), width_(r.sample[1]) {
    if (!enlarges_pixels(hires)) filter_ = filter_of(hires.upscaler);
  }

  void begin(const RunTools& tools, const Tensor& before, RunInputs& inputs) const override {
    if (filter_) {
      inputs.data = resized(before, height_, width_, *filter_);
      return;
    }
    std::vector<Tensor> latents;
    for (int64_t i = 0; i < before.shape()[0]; ++i) {
      Tensor pixels = tools.decode(before.rows(i, i + 1));
      const int64_t factor = pixels.shape()[1] / before.shape()[1];
      if (hires_.network) pixels = tools.upscale(pixels, hires_.scale);
      const Tensor picture = image_at(picture_bytes(pixels, dialect_), 0);
      const Tensor large = io::resize(picture, height_ * factor, width_ * factor);
      latents.push_back(image_at(tools.encode(signed_pixels(large)).mean, 0));
    }
    inputs.data = stacked(latents);
  }

 private:
  Hires hires_;
  std::string dialect_;
  int64_t height_, width_;
  std::optional<LatentFilter> filter_;  // none: pixels are enlarged
};

double number(std::string_view text, std::string_view what, std::string_view whole) {
  const auto out = as_number(text);
  require(out && std::isfinite(*out), "generate: --hires: ", what, " must be a number (got '", text,
          "' in '", whole, "')");
  return *out;
}

}  // namespace

std::string hires_menu_name(std::string_view upscaler) {
  for (const auto& u : upscalers)
    if (u.name == upscaler) return std::string(u.menu);
  return std::string(upscaler);
}

std::vector<std::string> hires_upscalers() {
  std::vector<std::string> out;
  for (const auto& u : upscalers) out.emplace_back(u.name);
  return out;
}

std::string hires_upscaler(std::string_view name) {
  for (const auto& u : upscalers)
    if (same_name(u.name, name)) return std::string(u.name);
  return "";
}

Hires parse_hires(std::string_view text) {
  std::vector<std::string_view> parts = parted(text, ":");
  require(!text.empty() && parts.size() <= 4,
          "generate: --hires must be SCALE[:upscaler[:steps[:strength]]] (got '", text, "')");
  parts.resize(4);
  Hires out;
  out.scale = number(parts[0], "the scale", text);
  const std::string known = hires_upscaler(parts[1]);
  if (!parts[1].empty()) out.upscaler = known.empty() ? parts[1] : known;
  out.network = known.empty() && !parts[1].empty();
  if (!parts[2].empty()) {
    const double steps = number(parts[2], "the steps", text);
    require(steps >= 0 && steps <= 10000 && steps == std::floor(steps),
            "generate: --hires: the steps must be 0 to 10000 (got '", parts[2], "')");
    out.steps = static_cast<int64_t>(steps);
  }
  if (!parts[3].empty()) out.strength = number(parts[3], "the strength", text);
  return out;
}

void check(const Hires& hires) {
  require(hires.scale > 1 && hires.scale <= 8,
          "generate: --hires: the scale must be above 1 and at most 8 (got ", hires.scale, ")");
  require(hires.strength >= 0 && hires.strength <= 1,
          "generate: --hires: the strength must lie in [0, 1] (got ", hires.strength, ")");
}

ImageSize hires_size(const Hires& hires, ImageSize size, int64_t multiple) {
  const auto scaled = [&](int64_t side) {
    const auto large = static_cast<int64_t>(static_cast<double>(side) * hires.scale);
    return std::max(large / multiple, int64_t{1}) * multiple;
  };
  const ImageSize out{.height = scaled(size.height), .width = scaled(size.width)};
  require(out.height != size.height || out.width != size.width, "generate: --hires: the scale ",
          hires.scale, " leaves the size as it is (", size.width, "x", size.height,
          "): sides are multiples of ", multiple);
  return out;
}

std::shared_ptr<const RunMode> hires_mode(const Hires& hires, const ResolvedRequest& request) {
  if (!hires.network)
    check_known("generate: --hires: unknown upscaler", hires.upscaler, hires_upscalers());
  return std::make_shared<HiresMode>(hires, request);
}

}  // namespace ebb
