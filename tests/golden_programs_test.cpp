// Whole runs of other programs, by their own code: ComfyUI's (tools/golden/comfyui_golden.py) and
// A1111's (tools/golden/webui_golden.py).
#include <gtest/gtest.h>

#include "support/golden_distance.h"
#include "support/golden_pictures.h"
#include "support/golden_runs.h"
#include "support/small_checkpoint.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

// A run with its networks. `sets`: all networks of its file.
json completed(json run, const json& sets) {
  run.update(sets[run["network"].get<std::string>()]);
  if (run.contains("refiner"))
    run["refiner"]["unet"] = sets[run["refiner"]["network"].get<std::string>()]["unet"];
  run["case"] = run["dialect"].get<std::string>() + "_" + run["case"].get<std::string>();
  return run;
}

const json& runs() {
  static const json all = [] {
    json out = json::array();
    for (const char* file : {"comfyui_runs", "webui_runs"}) {
      const json golden = read_golden(file);
      for (const json& run : golden["runs"]) out.push_back(completed(run, golden["networks"]));
    }
    return out;
  }();
  return all;
}

void add_passes(TextToImageRequest& q, const json& g) {
  if (const auto h = g.find("hires"); h != g.end())
    q.hires =
        parse_hires(str(h->at("scale").get<double>(), ':', h->at("upscaler").get<std::string>(),
                        ':', h->at("steps").get<int64_t>(), ':', h->at("strength").get<double>()));
  if (const auto r = g.find("refiner"); r != g.end()) q.refine = Refine{.share = r->at("share")};
}

TextToImageRequest request_of(const json& g) {
  TextToImageRequest q = recorded_request(g);
  q.options.noise_options = g.value("noise_options", "");
  if (g.contains("init"))
    q.init = InitImage{.picture = golden_picture(q.size.height, q.size.width),
                       .strength = g["strength"]};
  if (g.contains("mask"))
    q.mask = MaskImage{.picture = golden_mask(q.size.height, q.size.width),
                       .blur = 0,
                       .content = masked_content(g.value("content", "original")),
                       .overlay = false};
  add_passes(q, g);
  return q;
}

CheckpointParts parts_of(const json& g) {
  CheckpointParts out = small_checkpoint(g);
  if (!g.contains("refiner")) return out;
  out.refiner = denoiser_of(g["refiner"]["unet"]);
  out.refiner_encoders = out.text_encoders;
  return out;
}

class GoldenPrograms : public GoldenRunOn {};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenPrograms, ::testing::ValuesIn(runs_on(runs(), "cpu")),
                         name_of_run);

}  // namespace

TEST_P(GoldenPrograms, run__ends_at_the_programs_latents_and_pixels) {
  const json& g = run();
  const Picture made = picture_of(parts_of(g), request_of(g), context_);
  // Programs compute their samplers, and Brownian paths, in f32.
  const double of_run = g["sampler"].get<std::string>().ends_with("SDE") ? 5e-3 : 1e-3;
  EXPECT_LT(distance("latents", made.latents.span<float>(), g["latents"]), of_run);
  EXPECT_LT(distance("pixels", made.pixels.span<float>(), g["pixels"]), of_run);
}

}  // namespace ebb::testing
