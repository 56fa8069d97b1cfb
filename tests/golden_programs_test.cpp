// Whole runs of other programs, by their own code: ComfyUI's (tools/golden/comfyui_golden.py) and
// A1111's (tools/golden/webui_golden.py).
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "diffusion/solver/host_latents.h"
#include "pipeline/batch_run.h"
#include "pipeline/run_start.h"
#include "support/adapter_file.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_pictures.h"
#include "support/golden_runs.h"
#include "support/patterns.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::golden_programs_test {
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
  q.count = g.value("count", 1);
  if (g.contains("init"))
    q.init = InitImage{.picture = golden_picture(q.size.height, q.size.width),
                       .strength = g["strength"]};
  if (g.contains("mask"))
    q.mask =
        MaskImage{.picture = golden_mask(q.size.height, q.size.width, g.value("mask_shift", 0)),
                  .blur = 0,
                  .content = masked_content(g.value("content", "original")),
                  .overlay = false};
  for (const json& c : g.value("controls", json::array()))
    q.controls.push_back({.image = pattern(q.size.height, q.size.width, c["seed"]),
                          .strength = c["strength"],
                          .start = c.value("start", 0.0),
                          .end = c.value("end", 1.0)});
  add_passes(q, g);
  return q;
}

CheckpointParts parts_of(const json& g) {
  CheckpointParts out = small_checkpoint(g);
  if (g.contains("lora"))
    out.denoiser.weights = hashed_file_store(*out.denoiser.model, out.denoiser.config);
  if (g.contains("controls"))
    out.denoiser = with_controls(
        out.denoiser, std::vector<LoadedComponent>(g["controls"].size(),
                                                   component("control_net", g["control_net"])));
  if (!g.contains("refiner")) return out;
  out.refiner = denoiser_of(g["refiner"]["unet"]);
  out.refiner_encoders = out.text_encoders;
  return out;
}

class GoldenPrograms : public GoldenRunOn {
 public:
  static void TearDownTestSuite() { pipelines().clear(); }

 protected:
  // With the files that the run names: a LoRA in a tag or by a flag, an embedding in the prompt.
  Picture made() {
    const json& g = run();
    TextToImageRequest q = request_of(g);
    if (g.contains("lora")) {
      q.lora_dir = files_ / "loras";
      std::filesystem::create_directories(q.lora_dir);
      const std::string file = q.lora_dir + "/fox.safetensors";
      io::write_safetensors(file, adapter_tensors(g["lora_tensors"]));
      if (q.prompt.find("<lora:") == std::string::npos)
        q.loras = {{.file = file,
                    .strength = g["lora"]["strength"],
                    .text_strength = g["lora"]["text_strength"]}};
    }
    return picture_of(pipeline(), q);
  }

 private:
  // Runs of a network alone share one: most of a short run's time is loading it.
  TextToImage& pipeline() {
    const json& g = run();
    const bool alone = !g.contains("lora") && !g.contains("controls") && !g.contains("refiner");
    std::unique_ptr<TextToImage>& out =
        pipelines()[alone ? g["network"].get<std::string>() : "of one run"];
    if (out && alone) return *out;
    TextToImageOptions options;
    if (g.contains("embedding_tensors")) {
      text::TextualInversion& foxes = options.embeddings.embeddings["foxes"];
      foxes.name = "foxes";
      for (const io::NamedTensor& t : adapter_tensors(g["embedding_tensors"]))
        foxes.vectors.push_back(t.tensor);
    }
    out = std::make_unique<TextToImage>(parts_of(g), context_, options);
    return *out;
  }
  static std::map<std::string, std::unique_ptr<TextToImage>>& pipelines() {
    static std::map<std::string, std::unique_ptr<TextToImage>> all;
    return all;
  }

  Folder files_;
};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenPrograms, ::testing::ValuesIn(runs_on(runs(), "cpu")),
                         name_of_run);

}  // namespace

TEST_P(GoldenPrograms, run__ends_at_the_programs_latents_and_pixels) {
  const json& g = run();
  const Picture picture = made();
  // Programs compute their samplers, and Brownian paths, in f32.
  const double of_run = g["sampler"].get<std::string>().ends_with("SDE") ? 5e-3 : 1e-3;
  EXPECT_LT(distance("latents", picture.latents.span<float>(), g["latents"]), of_run);
  EXPECT_LT(distance("pixels", picture.pixels.span<float>(), g["pixels"]), of_run);
}

// What the web UI's extensions are told of the steps, and ControlNet's goes by: in each evaluation
// the number of the step that was last reported, and the number of all steps.
TEST(control, a1111__counts_steps_as_it_tells_extensions) {
  int compared = 0;
  for (const json& g : runs()) {
    if (!g.contains("counts")) continue;
    const ResolvedTextToImage run = resolve(parts_of(g), request_of(g));
    const ResolvedRequest& r = run.first();
    RunConditions c{.controls_look_back = true};
    for (int64_t step = 1; step < std::ssize(r.call.sigmas); ++step)
      c.steps.push_back({.end_step = 1, .branches = {{}}, .end_control = step});
    std::vector<int64_t> told;
    const RunInputs inputs{.conditions = c};
    RunClock clock(inputs);
    HostLatents<double> x(
        4,
        [&](std::span<const double> in, double, std::span<double> out, std::span<double> uncond) {
          clock.begin_evaluation();
          told.push_back(&clock.of(c) - c.steps.data());
          std::ranges::transform(in, out.begin(), [](double v) { return v / 2; });
          std::ranges::copy(out.first(uncond.size()), uncond.begin());
        },
        [](std::span<double> z, const NoiseDraw&) { std::ranges::fill(z, 0.0); });
    SampleCall call = r.call;
    call.progress = [&](const Progress&) {
      clock.end_step();
      return true;
    };
    sample(r.sampler, x, x.put(std::vector<double>(4, r.call.sigmas[0])), call);
    EXPECT_EQ(told, g["counts"][0].get<std::vector<int64_t>>()) << g["case"];
    EXPECT_EQ(counted_steps(r), g["counts"][1].get<int64_t>()) << g["case"];
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

// masking.fill, byte by byte.
TEST(mask_fill, pictures__are_those_of_the_web_ui) {
  for (const json& g : read_golden("webui_runs")["fills"]) {
    const int64_t h = g["height"], w = g["width"];
    Tensor mask = golden_mask(h, w);
    if (g["mask"] == "soft_mask")
      for (int64_t y = 0, i = 0; y < h; ++y)
        for (int64_t x = 0; x < w; ++x, ++i)
          mask.span<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(5 * x + 3 * y);
    const Tensor made = filled(golden_picture(h, w), mask).to(DType::f32);
    EXPECT_LT(distance("filled", made.span<float>(), g["filled"]), 1e-7) << g["mask"] << h << w;
  }
}

}  // namespace ebb::testing::golden_programs_test
