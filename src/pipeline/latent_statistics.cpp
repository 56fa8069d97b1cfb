#include "pipeline/latent_statistics.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/file.h"

namespace ebb {
namespace {

using nlohmann::json;

const LatentStatistics& playground() {
  static const LatentStatistics s{.mean = {-1.6574, 1.886, -1.383, 2.5155},
                                  .deviation = {8.4927, 5.9022, 6.5498, 5.2299}};
  return s;
}

bool near(const json& given, const std::vector<double>& wanted) {
  if (!given.is_array() || given.size() != wanted.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!given[i].is_number() || std::abs(given[i].get<double>() - wanted[i]) > 1e-3) return false;
  return true;
}

}  // namespace

LatentStatistics latent_statistics(const Model& denoiser, ModelConfig config) {
  if (denoiser.name != "ldm_unet") return {};
  const std::vector<Field> fields = config.fields();
  const bool edm = field_text(find_field(fields, "prediction", "config")) == "edm";
  return edm ? playground() : LatentStatistics{};
}

void take_latent_statistics(const Model& denoiser, ModelConfig& config,
                            const std::string& autoencoder) {
  constexpr int64_t config_limit = 1 << 20;  // bytes
  const auto path = std::filesystem::path(autoencoder).parent_path() / "config.json";
  if (denoiser.name != "ldm_unet" || !std::filesystem::is_regular_file(path)) return;
  const json j =
      json::parse(io::read_whole_file(path.string(), "config", config_limit), nullptr, false);
  require(j.is_object(), "config: must be a JSON object  ", path.string());
  const json mean = j.value("latents_mean", json()), deviation = j.value("latents_std", json());
  if (mean.is_null() && deviation.is_null()) return;
  require(near(mean, playground().mean) && near(deviation, playground().deviation),
          "config: latents_mean and latents_std must be those of Playground 2.5 (", mean.dump(),
          ", ", deviation.dump(), ")  ", path.string());
  const std::vector<Field> fields = config.fields();
  set_field(find_field(fields, "prediction", "config"), "edm");
}

}  // namespace ebb
