#include "pipeline/noise_parameters.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"

namespace ebb {
namespace {

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

int64_t number(const std::string& text) {
  int64_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
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
                     str(number(option(r, "subseed")) + std::max<int64_t>(image, 0)));
    out.emplace_back("Variation seed strength", option(r, "subseed_strength"));
  }
  const int64_t height = number(option(r, "resize_height")),
                width = number(option(r, "resize_width"));
  if (height > 0 && width > 0)
    out.emplace_back("Seed resize from", str(width * latent_pixels, 'x', height * latent_pixels));
  const std::string generator = option(r, "generator");
  if (generator == "torch_cpu") out.emplace_back("RNG", "CPU");
  if (generator == "nv") out.emplace_back("RNG", "NV");
  if (const int64_t delta = number(option(r, "ensd")); delta != 0)
    out.emplace_back("ENSD", str(delta));
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
    const size_t by = std::min(size.find('x'), size.size());
    put(out, "resize_height",
        str(number(size.substr(std::min(by + 1, size.size()))) / latent_pixels));
    put(out, "resize_width", str(number(size.substr(0, by)) / latent_pixels));
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
