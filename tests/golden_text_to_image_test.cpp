// Whole runs from text to pixels against transformers and diffusers
// (tools/golden/text_to_image_golden.py), and the stages between them.
#include <gtest/gtest.h>

#include "backends.h"
#include "nn/storage.h"
#include "pipeline/latent_decoder.h"
#include "pipeline/load_model.h"
#include "pipeline/pipeline.h"
#include "pipeline/text_stage.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_file.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

std::shared_ptr<WeightStore> hashed_store(const Model& model, const ModelConfig& config) {
  WeightStore::Weights out;
  for (const nn::Weight& w : weights_of(model, config))
    out.emplace(w.name, stored_tensor(hashed_weight(w)));
  return std::make_shared<WeightStore>(std::move(out));
}

ModelConfig config_of(const Model& model, const json& values) {
  ModelConfig config = model.presets[0].config;
  const auto fields = config.fields();
  for (const auto& [key, value] : values.items())
    set_field(find_field(fields, key, model.name),
              value.is_string() ? value.get<std::string>() : value.dump());
  return config;
}

LoadedComponent component(const std::string& name, const json& values) {
  const NamedModel m = find_component(name);
  const Component c{m.model, config_of(*m.model, values), ""};
  return {c, hashed_store(*c.model, c.config)};
}

LoadedModel denoiser_of(const json& values) {
  const Model& m = *find_component("ldm_unet").model;
  const ModelConfig config = config_of(m, values);
  return {.model = &m,
          .config = config,
          .diffusion = usual_diffusion(m, config),
          .class_names = {},
          .weights = hashed_store(m, config)};
}

// A golden run on a device.
struct GoldenRun {
  const json& golden;
  LoadedModel denoiser;
  std::vector<LoadedComponent> texts;
  ImageSize size;

  explicit GoldenRun(const json& g)
      : golden(g),
        denoiser(denoiser_of(g["unet"])),
        size{g["height"].get<int64_t>(), g["width"].get<int64_t>()} {
    for (const json& t : g["texts"]) texts.push_back(component("clip_text", t));
  }

  RunConditions conditions(const Context& context, const std::string& prompt,
                           text::PromptSyntax syntax = text::PromptSyntax::diffusers) const {
    TextStage stage(*denoiser.model, denoiser.config,
                    encoder_rules(*denoiser.model, denoiser.config, texts, 0),
                    text::builtin_clip_vocabulary(), DType::f32, context);
    return stage
        .encode({.prompt = prompt,
                 .negative = golden["negative"],
                 .syntax = syntax,
                 .steps = golden["steps"],
                 .size = size})
        .conditions;
  }

  GenerateOptions options() const {
    GenerateOptions o{.steps = golden["steps"],
                      .sampler = golden["sampler"],
                      .schedule = golden["schedule"],
                      .dtype = "f32",
                      .seed = Seed(golden["seed"].get<uint64_t>()),
                      .guidance = golden["guidance"],
                      .dialect = "diffusers",
                      .noise = "torch_cpu"};
    if (golden.contains("schedule_options")) o.schedule_options = golden["schedule_options"];
    return o;
  }

  Generated generate(const Context& context, const RunConditions& conditions,
                     int64_t images = 1) const {
    PipelineOptions with;
    with.decoder = latent_decoder(component("autoencoder_kl", golden["autoencoder"]),
                                  *denoiser.model->latents(denoiser.config), DType::f32, context);
    Pipeline pipeline(denoiser, context, with);
    const ResolvedRequest r =
        pipeline.resolve({.classes = std::vector<int64_t>(static_cast<size_t>(images), -1),
                          .size = size,
                          .prompted = true},
                         options());
    return pipeline.generate(r, {}, conditions);
  }
};

const json& runs() {
  static const json all = read_golden("text_to_image")["runs"];
  return all;
}

struct On {
  size_t run;
  std::string backend;
};
void PrintTo(const On& on, std::ostream* out) {
  *out << runs()[on.run]["case"].get<std::string>() << " on " << on.backend;
}

std::vector<On> runs_on(const std::string& backend) {
  std::vector<On> out;
  for (size_t i = 0; i < runs().size() && !test::only(backend).empty(); ++i)
    out.push_back({i, backend});
  return out;
}

class GoldenTextToImage : public test::OnBackend, public ::testing::WithParamInterface<On> {
 protected:
  GoldenTextToImage() : run_(runs()[GetParam().run]) {}
  void SetUp() override { open(GetParam().backend); }
  GoldenRun run_;
};

const auto name_of_run = [](const auto& info) {
  return runs()[info.param.run]["case"].template get<std::string>();
};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenTextToImage, ::testing::ValuesIn(runs_on("cpu")), name_of_run);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenTextToImage, ::testing::ValuesIn(runs_on("cuda")),
                         name_of_run);

// Twenty steps multiply the error of the first one.
constexpr double of_states = 1e-5, of_run = 1e-3;

}  // namespace

TEST_P(GoldenTextToImage, whole_run__ends_at_the_references_latents_and_pixels) {
  const json& g = run_.golden;
  const RunConditions conditions = run_.conditions(context_, g["prompt"]);
  const auto numbers = [](const Tensor& t) { return t.span<float>(); };
  EXPECT_LT(distance("states", numbers(conditions.steps[0].values.at("text")), g["states"]),
            of_states);
  const Generated made = run_.generate(context_, conditions);
  EXPECT_LT(distance("latents", numbers(made.latents), g["latents"]), of_run);
  EXPECT_LT(distance("pixels", numbers(made.images), g["pixels"]), of_run);
}

}  // namespace ebb::testing
