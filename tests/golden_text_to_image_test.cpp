// Whole runs from text to pixels against transformers and diffusers
// (tools/golden/text_to_image_golden.py), and the stages between them.
#include <gtest/gtest.h>

#include <limits>

#include "pipeline/latent_decoder.h"
#include "pipeline/loras.h"
#include "pipeline/pipeline.h"
#include "pipeline/text_stage.h"
#include "support/adapter_file.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_file.h"
#include "support/golden_runs.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::golden_text_to_image_test {
namespace {

using nlohmann::json;

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
    if (g.contains("tensors")) apply_lora();
  }

  void apply_lora() const {
    const Folder folder;
    const auto networks =
        networks_of(denoiser, encoder_rules(*denoiser.model, denoiser.config, texts, {}));
    const auto use = adapter_use(write_adapter(folder / "lora.safetensors", golden),
                                 golden["strength"].get<double>());
    EXPECT_TRUE(adapters::check({use}, networks).empty());
    adapters::apply({use}, networks);
  }

  RunConditions conditions(const Context& context, const std::string& prompt,
                           text::PromptSyntax syntax = text::PromptSyntax::diffusers,
                           text::EmbeddingFolder embeddings = {}) const {
    TextStage stage(*denoiser.model, denoiser.config,
                    encoder_rules(*denoiser.model, denoiser.config, texts, {}),
                    text::builtin_clip_vocabulary(), DType::f32, context, std::move(embeddings));
    return stage
        .encode({.prompt = prompt,
                 .negative = golden["negative"],
                 .syntax = syntax,
                 .steps = golden["steps"],
                 .size = size})
        .conditions;
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
                         recorded_request(golden).options);
    return pipeline.generate(r, {}, conditions);
  }
};

// Then those with a LoRA (tools/golden/adapter_golden.py).
const json& runs() {
  static const json all = [] {
    json out = read_golden("text_to_image")["runs"];
    const json adapters = read_golden("adapters");
    for (json run : adapters["runs"]) {
      run["case"] = run["case"].get<std::string>() + "_lora";
      out.push_back(std::move(run));
    }
    return out;
  }();
  return all;
}

class GoldenTextToImage : public GoldenRunOn {
 protected:
  GoldenRun run_{run()};
};

INSTANTIATE_TEST_SUITE_P(cpu, GoldenTextToImage, ::testing::ValuesIn(runs_on(runs(), "cpu")),
                         name_of_run);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenTextToImage, ::testing::ValuesIn(runs_on(runs(), "cuda")),
                         name_of_run);

// Twenty steps multiply the error of the first one.
constexpr double of_states = 1e-5, of_run = 1e-4;

}  // namespace

TEST_P(GoldenTextToImage, whole_run__ends_at_the_references_latents_and_pixels) {
  const json& g = run_.golden;
  const RunConditions conditions = run_.conditions(context_, g["prompt"]);
  const auto numbers = [](const Tensor& t) { return t.span<float>(); };
  EXPECT_LT(distance("states", numbers(conditions.steps[0].values().at("text")), g["states"]),
            of_states);
  const Generated made = run_.generate(context_, conditions);
  EXPECT_LT(distance("latents", numbers(made.latents), g["latents"]), of_run);
  EXPECT_LT(distance("pixels", numbers(made.images), g["pixels"]), of_run);
}

// ---- the text stage ------------------------------------------------------------------------

namespace {

class TextStageOf : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  }
  std::vector<float> states(const std::string& prompt, text::PromptSyntax syntax,
                            text::EmbeddingFolder embeddings = {}) const {
    const RunConditions c = run_.conditions(context_, prompt, syntax, std::move(embeddings));
    const Tensor& t = c.steps.at(0).values().at("text");
    return {t.span<float>().begin(), t.span<float>().end()};
  }
  static constexpr auto a1111 = text::PromptSyntax::a1111, comfyui = text::PromptSyntax::comfyui;

  Context context_ = open_context("cpu", {.threads = 2});
  GoldenRun run_{runs()[0]};
};

double mean_of(const std::vector<float>& v, size_t first, size_t count) {
  double sum = 0;
  for (size_t i = first; i < first + count; ++i) sum += double{v[i]};
  return sum / static_cast<double>(count);
}

constexpr size_t width = 32, chunk = 77 * width;

}  // namespace

TEST_F(TextStageOf, embedding_of_a_tokens_own_vector__is_that_token) {
  const int32_t fox = text::ClipTokenizer(text::builtin_clip_vocabulary()).encode("fox").at(0);
  const Component& c = run_.texts[0].component;
  Tensor table;
  for (const nn::Weight& w : weights_of(*c.model, c.config))
    if (w.name == "text_model.embeddings.token_embedding.weight") table = hashed_weight(w);
  text::EmbeddingFolder folder;
  folder.embeddings["inkfox"] = {"inkfox", {table.rows(fox, fox + 1).clone()}};
  EXPECT_EQ(states("a inkfox in snow", a1111, folder), states("a fox in snow", a1111));
  EXPECT_NE(states("a inkfox in snow", a1111), states("a fox in snow", a1111));
}

// States are kept between requests, by the tokens and by the weights that they are of.
TEST_F(TextStageOf, request_behind_others__has_the_states_of_the_first) {
  const std::vector<LoadedComponent>& texts = run_.texts;
  TextStage stage(*run_.denoiser.model, run_.denoiser.config,
                  encoder_rules(*run_.denoiser.model, run_.denoiser.config, texts, {}),
                  text::builtin_clip_vocabulary(), DType::f32, context_);
  const auto states_of = [&](const std::string& prompt) {
    const auto c =
        stage.encode({.prompt = prompt, .negative = "x", .syntax = a1111, .size = run_.size});
    const Tensor& t = c.conditions.steps.at(0).values().at("text");
    return std::vector<float>(t.span<float>().begin(), t.span<float>().end());
  };
  const auto fox = states_of("a fox");
  EXPECT_EQ(fox, states("a fox", a1111));
  stage.sketch({.prompt = "a fox", .syntax = a1111, .size = run_.size});  // of zeros
  for (int i = 0; i < 70; ++i) states_of(str("fox ", i));                 // more than are kept
  EXPECT_EQ(states_of("fox 69"), states("fox 69", a1111));
  EXPECT_EQ(states_of("a fox"), fox);
}

TEST_F(TextStageOf, emphasis__follows_each_programs_rule) {
  const auto plain = states("a fox", a1111), one = states("a (fox:1.5)", a1111),
             other = states("a (fox:1.5)", comfyui), empty = states("", comfyui);
  ASSERT_EQ(plain.size(), chunk);
  EXPECT_NEAR(mean_of(one, 0, chunk), mean_of(plain, 0, chunk), 1e-6);  // A1111 restores it
  const size_t a = width, fox = 2 * width;  // the tokens behind the start
  const double scale = double{one[a]} / double{plain[a]};
  for (size_t i = 0; i < width; ++i) {
    EXPECT_NEAR(one[fox + i], 1.5 * scale * double{plain[fox + i]}, 1e-5);
    EXPECT_EQ(other[a + i], plain[a + i]);
    const double from = double{empty[fox + i]};
    EXPECT_NEAR(other[fox + i], from + 1.5 * (double{plain[fox + i]} - from), 1e-5);
  }
}

TEST_F(TextStageOf, prompts_of_other_lengths__are_repeated_to_one) {
  const RunConditions c = run_.conditions(context_, "fox BREAK snow BREAK dawn", a1111);
  ASSERT_EQ(c.steps.size(), 1u);
  const Tensor &three = c.steps[0].values().at("text"), &one = c.steps[0].negative().at("text");
  EXPECT_EQ(three.shape(), (Shape{1, 3 * 77, 32}));
  EXPECT_EQ(one.shape(), three.shape());
  const auto n = one.span<float>(), p = three.span<float>();
  for (size_t i = 0; i < chunk; ++i) {
    EXPECT_EQ(n[i], n[chunk + i]);
    EXPECT_EQ(n[i], n[2 * chunk + i]);
  }
  EXPECT_FALSE(std::equal(p.begin(), p.begin() + chunk, p.begin() + chunk));
}

TEST_F(TextStageOf, prompt_that_is_edited__changes_at_its_step) {
  const RunConditions c = run_.conditions(context_, "[day:night:5]", a1111);
  ASSERT_EQ(c.steps.size(), 2u);
  EXPECT_EQ(c.steps[0].end_step, 5);
  EXPECT_EQ(&c.at(5, 5), &c.steps[0]);
  EXPECT_EQ(&c.at(6, 6), &c.steps[1]);
  const auto numbers = [](const Tensor& t) {
    return std::vector<float>(t.span<float>().begin(), t.span<float>().end());
  };
  EXPECT_EQ(numbers(c.steps[0].values().at("text")), states("day", a1111));
  EXPECT_EQ(numbers(c.steps[1].values().at("text")), states("night", a1111));
}

TEST_F(TextStageOf, images_of_a_batch__are_those_made_alone) {
  const RunConditions c = run_.conditions(context_, run_.golden["prompt"]);
  const Generated one = run_.generate(context_, c), three = run_.generate(context_, c, 3);
  const auto a = one.latents.span<float>(), b = three.latents.span<float>();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-3) << i;
}

TEST(latent_decoder, pixels_that_are_not_finite__are_an_error) {
  const json& g = runs()[0];
  const Decoder d = latent_decoder(component("autoencoder_kl", g["autoencoder"]),
                                   LatentSpace{.factor = 8, .of = "x"}, DType::f32,
                                   open_context("cpu", {.threads = 2}));
  Tensor latents(DType::f32, {2, 4, 4, 4});
  std::ranges::fill(latents.span<float>(), 0.5f);
  latents.span<float>()[64] = std::numeric_limits<float>::quiet_NaN();
  const std::string error = error_of([&] { d.decode(latents); });
  EXPECT_EQ(error.find("decode: the pixels of image 1 are not finite in f32"), 0u) << error;
}

}  // namespace ebb::testing::golden_text_to_image_test
