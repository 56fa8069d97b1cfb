#include "pipeline/noise_parameters.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/fields.h"

namespace ebb {
namespace {

// In its texts, the web UI takes latents of any network to be of so many pixels (its opt_f).
constexpr int64_t latent_pixels = 8;

std::string joined(const OptionTexts& options) {
  std::string out;
  for (const auto& [name, value] : options) out += str(out.empty() ? "" : ",", name, '=', value);
  return out;
}

void put(OptionTexts& options, std::string_view name, const std::string& value) {
  std::erase_if(options, [name](const auto& o) { return o.first == name; });
  options.emplace_back(name, value);
}

// As the source reads it: "" where it is not said.
std::string option(const ResolvedRequest& r, std::string_view name) {
  for (const auto& [key, value] : r.noise_options)
    if (key == name) return value;
  return "";
}

// 0 where it is not said. Throws Error for what is no number.
int64_t number(const std::string& text, std::string_view what) {
  return text.empty() ? 0 : parse_integer(text, what);
}
int64_t number_of(const ResolvedRequest& r, std::string_view name) {
  return number(option(r, name), str("noise: ", name));
}

bool is_web_uis(const ResolvedRequest& r) { return r.noise.source == "a1111"; }

bool varies(const ResolvedRequest& r) {
  return is_web_uis(r) && !option(r, "subseed_strength").empty() &&
         std::stod(option(r, "subseed_strength")) > 0;
}

}  // namespace

std::string varied(const std::string& options, const NoiseVariation& v) {
  OptionTexts all = parse_options(options, "generate: --noise-options");
  if (!v.seed.empty()) put(all, "subseed", v.seed), put(all, "subseed_strength", v.strength);
  if (v.drawn_for.height > 0) {
    put(all, "resize_height", str(v.drawn_for.height / latent_pixels));
    put(all, "resize_width", str(v.drawn_for.width / latent_pixels));
  }
  if (v.seed_delta != 0) put(all, "ensd", str(v.seed_delta));
  return joined(all);
}

Seed seed_of_picture(const ResolvedRequest& r, int64_t image) {
  const uint64_t seed = r.options.seed;
  return is_web_uis(r) && !varies(r) && image > 0 ? seed + static_cast<uint64_t>(image) : seed;
}

std::vector<std::pair<std::string, std::string>> noise_parameters(const ResolvedRequest& r,
                                                                  int64_t image) {
  std::vector<std::pair<std::string, std::string>> out;
  if (!is_web_uis(r)) return out;
  if (varies(r)) {
    out.emplace_back("Variation seed",
                     str(static_cast<int64_t>(static_cast<uint64_t>(number_of(r, "subseed")) +
                                              static_cast<uint64_t>(std::max<int64_t>(image, 0)))));
    out.emplace_back("Variation seed strength", option(r, "subseed_strength"));
  }
  const int64_t height = number_of(r, "resize_height"), width = number_of(r, "resize_width");
  if (height > 0 && width > 0)
    out.emplace_back("Seed resize from", str(width * latent_pixels, 'x', height * latent_pixels));
  const std::string generator = option(r, "generator");
  if (generator == "torch_cpu") out.emplace_back("RNG", "CPU");
  if (generator == "nv") out.emplace_back("RNG", "NV");
  if (const int64_t delta = number_of(r, "ensd"); delta != 0) out.emplace_back("ENSD", str(delta));
  return out;
}

std::string noise_options_of(const Infotext& text) {
  OptionTexts out;
  const std::string generator = text.value("RNG");
  if (generator == "CPU") put(out, "generator", "torch_cpu");
  if (generator == "NV") put(out, "generator", "nv");
  if (const std::string strength = text.value("Variation seed strength"); !strength.empty()) {
    put(out, "subseed", text.value("Variation seed"));
    put(out, "subseed_strength", strength);
  }
  if (const std::string size = text.value("Seed resize from"); !size.empty()) {
    const std::string_view what = "like: Seed resize from";
    const size_t by = size.find('x');
    require(by != size.npos, what, " must be WIDTHxHEIGHT (got '", size, "')");
    put(out, "resize_height", str(number(size.substr(by + 1), what) / latent_pixels));
    put(out, "resize_width", str(number(size.substr(0, by), what) / latent_pixels));
  }
  if (const std::string delta = text.value("ENSD"); !delta.empty()) put(out, "ensd", delta);
  return joined(out);
}

bool is_noise_key(std::string_view key) {
  constexpr std::array keys = {"RNG", "Variation seed", "Variation seed strength",
                               "Seed resize from", "ENSD"};
  return std::ranges::find(keys, key) != keys.end();
}

}  // namespace ebb
