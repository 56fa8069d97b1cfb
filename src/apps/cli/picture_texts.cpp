#include "apps/cli/picture_texts.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "apps/cli/generated_pictures.h"
#include "apps/cli/settings_file.h"
#include "base/utf8.h"
#include "base/version.h"
#include "pipeline/mode_parameters.h"
#include "pipeline/noise_parameters.h"
#include "pipeline/parameters.h"

namespace ebb::cli {

std::map<std::string, std::string> picture_texts(const PictureTexts& t) {
  const GenerateFlags& o = t.flags;
  const ResolvedTextToImage& r = t.request;
  GenerateFlags again = o;
  const int64_t index = t.picture.index, image = index < 0 ? index : o.first_image + index;
  again.generate = t.ran;
  again.modes.forget_noise();
  again.generate.batch = t.picture.batch;
  if (o.modes.outpaint.empty())  // which says the size
    again.size = str(r.request.size.width, 'x', r.request.size.height);
  if (index >= 0) {
    again.n = t.picture.batch;
    again.first_image = o.first_image + t.picture.batch_first;
  }
  const std::string json =
      settings_json(again.settings(has_quality(o)), o.diffusion, image, t.hashes);
  const auto stem = [](const std::string& path) {
    return std::filesystem::path(path).stem().string();
  };
  ModeFiles files{
      .refiner = stem(o.modes.refiner_file()), .control_models = {}, .lora_hashes = t.lora_hashes};
  for (const std::string& file : o.control.control_model.texts)
    files.control_models.push_back(stem(file));
  const auto model = t.hashes.find("model");
  GenerateOptions shown = t.ran;
  shown.seed = uint64_t{seed_of_picture(r.first(), image)};
  auto more = noise_parameters(r.first(), image);
  std::ranges::move(mode_parameters(r, files), std::back_inserter(more));
  std::map<std::string, std::string> out{
      {"Software", str("ebb ", version)},
      {std::string(settings_keyword), json},
      {"parameters", parameters_text({.prompt = with_lora_tags(r.request),
                                      .negative = o.negative,
                                      .model = stem(o.model),
                                      .model_hash = model == t.hashes.end() ? "" : model->second,
                                      .vae = stem(o.vae),
                                      .size = r.request.size,
                                      .clip_skip = o.clip_skip,
                                      .options = shown,
                                      .more = std::move(more)})}};
  for (auto& [key, text] : out) text = repaired_utf8(text);  // of prompts and names of files
  return out;
}

}  // namespace ebb::cli
