#include "pipeline/latent_space.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "pipeline/folder_json.h"

namespace ebb {
namespace {

using nlohmann::json;

double at(const std::vector<double>& of_channels, size_t channel, double otherwise) {
  return of_channels.empty() ? otherwise : of_channels[channel];
}

// f(number, mean, deviation) of all.
void change(Tensor& latents, const LatentScaling& s, auto&& f) {
  const auto channels = static_cast<size_t>(latents.shape()[-1]);
  for (const auto* of_channels : {&s.mean, &s.deviation})
    require(of_channels->empty() || of_channels->size() == channels, "latents: the model has ",
            of_channels->size(), " channels of means and deviations, the autoencoder ", channels);
  const auto v = latents.span<float>();
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>(f(double{v[i]}, at(s.mean, i % channels, 0) + s.space.shift,
                                at(s.deviation, i % channels, 1)));
}

// A field that configs of denoisers may have.
std::vector<double> numbers_of(const ModelConfig& config, std::string_view field) {
  ModelConfig copy = config;
  for (const Field& f : copy.fields())
    if (f.name == field) return *std::get<std::vector<double>*>(f.ref);
  return {};
}

class VaeConfig {
 public:
  explicit VaeConfig(const std::string& path)
      : path_(path), json_(read_folder_json(path, "vae config")) {}

  std::optional<double> number(const char* name) const {
    const auto it = json_.find(name);
    if (it == json_.end() || it->is_null()) return {};
    return checked(name, *it);
  }
  std::vector<double> numbers(const char* name) const {
    const auto it = json_.find(name);
    std::vector<double> out;
    if (it == json_.end() || it->is_null()) return out;
    require(it->is_array() && it->size() <= 256, "vae config: ", name,
            " must be a list of numbers  ", path_);
    for (const json& v : *it) out.push_back(checked(name, v));
    return out;
  }

 private:
  double checked(const char* name, const json& v) const {
    require(v.is_number() && std::abs(v.get<double>()) <= 1e6, "vae config: ", name,
            " must be of numbers within 1e6  ", path_);
    return v.get<double>();
  }
  std::string path_;
  json json_;
};

std::string list_text(const std::vector<double>& numbers) {
  std::string out;
  for (const double v : numbers) out += str(out.empty() ? "" : ",", number_text(v));
  return str('[', out, ']');
}

}  // namespace

LatentScaling latent_scaling(const Model& denoiser, const ModelConfig& config) {
  const auto space = denoiser.latents(config);
  require(space.has_value(), "latents: ", denoiser.name, " works on pixels");
  return {*space, numbers_of(config, "latent_mean"), numbers_of(config, "latent_deviation")};
}

LatentScaling read_by(const Component& autoencoder, const LatentScaling& denoiser) {
  const auto own = autoencoder.model->latents(autoencoder.config);
  if (!own || !own->scaled) return denoiser;
  return LatentSpace{.factor = denoiser.space.factor, .of = denoiser.space.of};
}

void to_denoiser(Tensor& latents, const LatentScaling& s) {
  change(latents, s, [&](double v, double mean, double deviation) {
    return (v - mean) * s.space.scale / deviation;
  });
}

void to_autoencoder(Tensor& latents, const LatentScaling& s) {
  change(latents, s, [&](double v, double mean, double deviation) {
    return v * deviation / s.space.scale + mean;
  });
}

void scale_deviation(Tensor& deviation, const LatentScaling& s) {
  change(deviation, s, [&](double v, double, double d) { return v * s.space.scale / d; });
}

void read_latent_scaling(ModelConfig& denoiser, const std::string& vae_config) {
  const VaeConfig said(vae_config);
  const std::vector<Field> fields = denoiser.fields();
  const auto set = [&](const char* field, const std::string& text) {
    const auto f = std::ranges::find(fields, field, &Field::name);
    if (f != fields.end()) set_field(*f, text);
  };
  const auto scale = said.number("scaling_factor"), shift = said.number("shift_factor");
  require(scale.value_or(1) > 0, "vae config: scaling_factor must be above 0 (", scale.value_or(1),
          ")  ", vae_config);
  if (scale) set("latent_scale", number_text(*scale));
  if (shift) set("latent_shift", number_text(*shift));
  // diffusers heeds both or none
  const std::vector<double> mean = said.numbers("latents_mean"),
                            deviation = said.numbers("latents_std");
  if (mean.empty() || deviation.empty()) return;
  require(mean.size() == deviation.size() &&
              std::ranges::all_of(deviation, [](double v) { return v > 0; }),
          "vae config: latents_mean (", mean.size(), ") and latents_std (", deviation.size(),
          ") must be as many, and the latter above 0  ", vae_config);
  set("latent_mean", list_text(mean));
  set("latent_deviation", list_text(deviation));
}

}  // namespace ebb
