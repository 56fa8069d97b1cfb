// Training steps of small control networks beside U-Nets that are not trained, against diffusers'
// networks with torch's autograd and AdamW (tools/golden/finetune_control_golden.py), and what a
// new control network begins as.
#include <gtest/gtest.h>

#include <algorithm>

#include "diffusion/loss.h"
#include "io/image.h"
#include "pipeline/control.h"
#include "pipeline/control_names.h"
#include "pipeline/text_in_loss.h"
#include "pipeline/train_control.h"
#include "pipeline/train_encoders.h"
#include "support/files.h"
#include "support/golden_file.h"
#include "support/golden_steps.h"
#include "support/ldm_case.h"
#include "support/small_checkpoint.h"
#include "train/model_weights.h"

namespace ebb::golden_finetune_control_test {
namespace {

using namespace ebb::testing;
using nlohmann::json;

const json& golden() {
  static const json j = read_golden("finetune_control");
  return j;
}

class ControlCase {
 public:
  explicit ControlCase(const json& c)
      : c_(c),
        both_{
            .model = find_component("ldm_unet").model, .config = unet_config(c), .diffusion = {}} {
    const Model& control = *find_component("control_net").model;
    both_.controls = {{&control, LdmCase::configured(control, c["config"]), ""}};
    both_.diffusion.precond = c["prediction"];
    both_.diffusion.betas = "scaled_linear";
  }

  // The network's conditions, as batches bring them.
  std::vector<nn::Condition> conditions() const {
    const Shape hint = shape_of("hint.0");
    std::vector<nn::Condition> out =
        control_conditions(both_, {.width = hint[2], .height = hint[1]});
    for (nn::Condition c : both_.model->conditions(both_.config))
      if (c_["inputs"].contains(c.name)) {
        const Shape shape = shape_of(c.name);
        c.shape = shape.slice(1, shape.rank());
        out.push_back(c);
      }
    return out;
  }

  Graph loss() const {
    Graph g;
    const Precond precond(both_.diffusion);
    NoisyImages in{.images = g.input("images", {DType::f32, shape_of("images")})};
    const int64_t n = in.images.shape()[0];
    in.noise = g.input("noise", {DType::f32, shape_of("images")});
    in.level = {g.input("sigma", {DType::f32, {n}}), g.input("argument", {DType::f32, {n}}), {}};
    for (const nn::Condition& c : conditions()) in.conditions[c.name] = g.input(c.name, c.type(n));
    const nn::Network network = network_of(both_, conditions_of(both_));
    g.output("loss", denoising_loss(precond, network, in, {}).loss);
    return with_params(g, [](std::string_view name) { return name.starts_with(prefix_of(0)); });
  }

  NamedTensors inputs() const {
    NamedTensors out;
    for (const auto& [name, sizes] : c_["inputs"].items())
      out[name] = hashed_input("input." + name, shape_of(name));
    const Precond precond(both_.diffusion);
    std::vector<float> sigma, argument, sizes;
    for (const int64_t t : golden()["timesteps"]) {
      sigma.push_back(static_cast<float>(precond.table().sigma[static_cast<size_t>(t)]));
      argument.push_back(static_cast<float>(t));
    }
    const auto n = std::ssize(sigma);
    out["sigma"] = tensor_of(sigma, {n});
    out["argument"] = tensor_of(argument, {n});
    for (const json& row : golden()["sizes"])
      for (const float v : row) sizes.push_back(v);
    if (out.contains("size")) out["size"] = tensor_of(sizes, shape_of("size"));
    for (const nn::Condition& c : conditions())
      if (c.name == strength_of(0)) out[c.name] = c.nulls(n);
    return out;
  }

  nn::Weights weights() const {
    nn::Weights out = ebb::weights_of(*both_.model, both_.config);
    for (nn::Weight& w : out) w.trained = false;
    const Component& control = both_.controls.front();
    for (nn::Weight w : ebb::weights_of(*control.model, control.config)) {
      w.name = str(prefix_of(0), '.', w.name);
      out.push_back(std::move(w));
    }
    return out;
  }

 private:
  static ModelConfig unet_config(const json& c) {
    return LdmCase::configured(*find_component("ldm_unet").model, c["unet"]);
  }
  Shape shape_of(const std::string& input) const {
    return Shape(c_["inputs"][input].get<std::vector<int64_t>>());
  }
  const json& c_;
  LoadedModel both_;
};

class golden_finetune_control : public ::testing::TestWithParam<const char*> {};

TEST_P(golden_finetune_control, steps__have_torchs_losses_gradients_and_weights) {
  const json& c = golden()["cases"][GetParam()];
  const ControlCase run(c);
  const GoldenSteps steps{run.weights(), run.inputs(), golden()["adamw"]};
  expect_gradients(run.loss(), steps, c["steps"]);
  expect_steps(run.loss(), steps, c["steps"]);
}

INSTANTIATE_TEST_SUITE_P(sd1_and_xl, golden_finetune_control, ::testing::Values("eps", "v", "xl"),
                         [](const auto& info) { return std::string(info.param); });

// ---- a new one -----------------------------------------------------------------------------

// A U-Net whose file says all of it, 8 pixels to a latent.
LoadedModel small_denoiser() {
  LoadedModel m = denoiser_of({{"model_channels", 64},
                               {"channel_mult", "[1,2]"},
                               {"num_res_blocks", 1},
                               {"input_depths", "[1,0]"},
                               {"output_depths", "[0,0,1,1]"},
                               {"num_heads", 0},
                               {"num_head_channels", 64},
                               {"context", 64},
                               {"conv_projection", "false"}});
  m.weights = hashed_file_store(*m.model, m.config);
  return m;
}

Tensor prediction(const LoadedModel& m, bool controlled) {
  std::set<size_t> controls;
  if (controlled) controls.insert(0);
  const Graph g = network_graph(m, controls, {8, 8});
  Plan plan(g, open_context("cpu", {.threads = 1}), {.weights = m.weights});
  NamedTensors inputs;
  for (const Source& s : g.sources())
    if (s.kind == Source::Kind::input)
      inputs[s.name] = hashed_input("input." + s.name, g.type(s.value).shape);
  return plan.run(inputs).at("y");
}

TEST(train_control, new_network__has_the_encoders_weights_and_changes_no_bit) {
  const LoadedModel alone = small_denoiser();
  const LoadedComponent control = control_to_train(alone, "", 7);
  const auto& base = alone.weights->weights();
  int64_t copied = 0;
  for (const nn::Weight& w : weights_of(*control.component.model, control.component.config)) {
    const Tensor is = weight_of(w, *control.weights);
    if (base.contains(w.name)) {
      const Tensor was = weight_of(w, *alone.weights);
      EXPECT_TRUE(std::ranges::equal(is.span<float>(), was.span<float>())) << w.name;
      ++copied;
    } else if (w.name.starts_with("zero_convs.") || w.name.starts_with("middle_block_out.") ||
               w.name.starts_with("input_hint_block.14.")) {
      EXPECT_TRUE(std::ranges::all_of(is.span<float>(), [](float v) { return v == 0; })) << w.name;
    } else {
      EXPECT_TRUE(w.name.starts_with("input_hint_block.")) << w.name;
      EXPECT_TRUE(std::ranges::any_of(is.span<float>(), [](float v) { return v != 0; })) << w.name;
    }
  }
  EXPECT_GT(copied, 80);
  const LoadedModel both = with_controls(alone, {control});
  const Tensor one = prediction(alone, false), other = prediction(both, true);
  EXPECT_TRUE(std::ranges::equal(one.span<float>(), other.span<float>()));
  // what is drawn is by the seed
  const LoadedComponent next = control_to_train(alone, "", 8);
  const auto drawn = [](const LoadedComponent& c) {
    const nn::Weights all = weights_of(*c.component.model, c.component.config);
    const auto w = std::ranges::find(all, "input_hint_block.0.weight", &nn::Weight::name);
    return weight_of(*w, *c.weights);
  };
  EXPECT_FALSE(std::ranges::equal(drawn(control).span<float>(), drawn(next).span<float>()));
}

TEST(train_control, new_network_of_a_published_u_net__is_the_published_control_network) {
  for (const auto& [unet, control] :
       {std::pair{"sd15", "control_sd15"}, {"sd2", "control_sd2"}, {"sdxl", "control_sdxl"}}) {
    const NamedModel m = find_model(unet);
    const LoadedModel denoiser{.model = m.model,
                               .config = m.config,
                               .diffusion = {},
                               .class_names = {},
                               .weights = train::described_weights(weights_of(*m.model, m.config))};
    const Component made = control_to_train(denoiser, "", 1).component;
    EXPECT_EQ(name_of(*made.model, made.config), control);
  }
}

// An image that is its picture is treated as it is.
TEST(train_control, image__is_resized_cropped_and_mirrored_as_its_picture) {
  const Folder folder;
  Tensor pixels(DType::u8, {40, 60, 3});
  for (int64_t i = 0; i < pixels.numel(); ++i)
    pixels.span<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(i * i / 97);
  const std::string file = folder / "a.png";
  io::write_png(file, pixels);
  const train::CaptionedPicture picture{.file = file, .name = file};
  const train::Fit fit{.scaled = {.width = 48, .height = 32},
                       .bucket = {.width = 40, .height = 32}};
  for (const bool mirrored : {false, true}) {
    const Tensor is = control_pixels(picture, fit, mirrored),
                 want = signed_pixels(picture, fit, mirrored);
    EXPECT_EQ(is.shape(), (Shape{32, 40, 3}));
    for (size_t i = 0; i < is.span<float>().size(); ++i)
      ASSERT_NEAR(is.span<float>()[i], (want.span<float>()[i] + 1) / 2, 1e-6) << i;
  }
}

TEST(train_control, network_that_a_file_could_not_say__is_refused) {
  LoadedModel m = small_denoiser();
  for (const Field& f : m.config.fields())
    if (f.name == "num_head_channels") set_field(f, "32");
  expect_error([&] { control_to_train(m, "", 1); }, "could not say all of it");
}

}  // namespace
}  // namespace ebb::golden_finetune_control_test
