// Families of text-to-image networks: which a network is of, and what is said of each.
#include "models/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/config_fields.h"
#include "pipeline/checkpoint_layouts.h"
#include "pipeline/text_stage.h"
#include "support/files.h"
#include "text/text_encoder.h"

namespace ebb::testing::families_test {
namespace {

ModelConfig config_with(const std::string& preset, const std::string& fields) {
  ModelConfig out = find_component(preset).config;
  parse_fields(out.fields(), fields);
  return out;
}

std::string family(const ModelConfig& config) {
  const Family* f = find_family(config);
  return f ? f->name : "none";
}

}  // namespace

TEST(find_family, of_published_networks__is_theirs) {
  for (const auto& [preset, name] : {std::pair("sd15", "Stable Diffusion 1"),
                                     {"sd15_inpaint", "Stable Diffusion 1"},
                                     {"lcm_sd15", "Stable Diffusion 1"},
                                     {"sd2", "Stable Diffusion 2"},
                                     {"sd2_depth", "Stable Diffusion 2"},
                                     {"sdxl", "Stable Diffusion XL"},
                                     {"ssd1b", "Stable Diffusion XL"},
                                     {"sdxl_refiner", "Stable Diffusion XL refiner"},
                                     {"control_sd2", "Stable Diffusion 2"},
                                     {"control_sdxl", "Stable Diffusion XL"},
                                     {"dit_xl2", "none"},
                                     {"ip_adapter", "none"}})
    EXPECT_EQ(family(find_component(preset).config), name) << preset;
}

TEST(find_family, of_other_sizes__is_a_similar_one) {
  const ModelConfig small = config_with("sd15", "{context=64}"),
                    small_xl = config_with("sdxl", "{context=64 vector=1600}");
  EXPECT_EQ(family(small), "latent diffusion");
  EXPECT_EQ(find_family(small)->is(small), Likeness::similar);
  EXPECT_EQ(family(config_with("sd15", "{context=0}")), "latent diffusion");
  EXPECT_EQ(family(small_xl), "Stable Diffusion XL");
  // what encoders there are decides where the network does not
  EXPECT_EQ(find_family(small_xl, {24, 40})->name, "Stable Diffusion XL");
  EXPECT_EQ(find_family(small_xl, {64})->name, "Stable Diffusion XL refiner");
  EXPECT_EQ(find_family(small_xl, {32})->name, "Stable Diffusion XL");
  EXPECT_EQ(find_family(small, {64})->name, "latent diffusion");
}

TEST(family_reading, text_encoders__are_of_whom_they_were_published_with) {
  const auto name = [](const std::vector<int64_t>& widths) { return family_reading(widths).name; };
  EXPECT_EQ(name({768}), "Stable Diffusion 1");
  EXPECT_EQ(name({1024}), "Stable Diffusion 2");
  EXPECT_EQ(name({768, 1280}), "Stable Diffusion XL");
  EXPECT_EQ(name({1280, 768}), "Stable Diffusion XL");
  EXPECT_EQ(name({1280}), "Stable Diffusion XL refiner");
  EXPECT_EQ(name({24, 40}), "Stable Diffusion XL");
  EXPECT_EQ(name({}), "Stable Diffusion 1");
  EXPECT_EQ(family_reading({64}).texts.size(), 1u);
}

TEST(texts_among, encoders__are_taken_in_the_order_in_which_they_are_joined) {
  const Family &xl = *find_family(find_component("sdxl").config),
               &sd1 = *find_family(find_component("sd15").config);
  EXPECT_EQ(texts_among(xl, 2048, {1280, 768}), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(texts_among(xl, 2048, {1024, 768, 768, 1280}), (std::vector<size_t>{1, 3}));
  EXPECT_EQ(texts_among(xl, 128, {64, 64}), (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(texts_among(xl, 2048, {1280}).empty());
  EXPECT_TRUE(texts_among(xl, 2048, {2048}).empty());
  EXPECT_EQ(texts_among(sd1, 768, {1280, 768}), (std::vector<size_t>{1}));
  EXPECT_TRUE(texts_among(sd1, 768, {}).empty());
}

TEST(families, all__agree_with_the_tables_of_encoders_and_networks) {
  for (const Family* f : all_families()) {
    ASSERT_FALSE(f->texts.empty()) << f->name;
    int64_t channels = 0;
    for (const FamilyText& t : f->texts) {
      EXPECT_EQ(text::text_encoder(t.encoder).width, width_of(t)) << t.encoder;
      channels += width_of(t);
    }
    for (const auto& [preset, name] : f->variants) {
      const NamedModel m = find_model(preset);
      EXPECT_EQ(find_family(m.config), f) << preset;
      EXPECT_EQ(text_channels(m.config), channels) << preset;
      EXPECT_EQ(m.config.common().image_size, f->image_size) << preset;
      EXPECT_EQ(m.model->latents(m.config)->scale, f->latents.scale) << preset;
      const auto known = m.model->conditions(m.config);
      const auto sizes = std::ranges::find(known, nn::size_numbers, &nn::Condition::name);
      EXPECT_EQ(sizes != known.end(), f->sizes != nullptr) << preset;
      if (sizes != known.end()) {
        EXPECT_EQ(sizes->shape, Shape({std::ssize(f->sizes({8, 16}, false))})) << preset;
      }
      const auto pooled = std::ranges::find(known, nn::pooled_text, &nn::Condition::name);
      EXPECT_EQ(pooled == known.end() ? 0 : pooled->shape[0], f->pooled) << preset;
    }
  }
}

TEST(families, sizes__are_those_of_the_picture_and_of_the_refiner_a_score) {
  const Family &xl = *find_family(find_component("sdxl").config),
               &refiner = *find_family(find_component("sdxl_refiner").config);
  const ImageSize size{.height = 832, .width = 1216};
  EXPECT_EQ(xl.sizes(size, true), (std::vector<float>{832, 1216, 0, 0, 832, 1216}));
  EXPECT_EQ(refiner.sizes(size, false), (std::vector<float>{832, 1216, 0, 0, 6}));
  EXPECT_EQ(refiner.sizes(size, true), (std::vector<float>{832, 1216, 0, 0, 2.5}));
}

// A layer is left out of Stable Diffusion 2's encoder alone.
TEST(families, text_encoders_of_diffusers_folders__have_the_layers_that_they_have) {
  const auto layers = [](const std::string& denoiser, const std::string& fields) {
    const Component net{find_component(denoiser).model, find_component(denoiser).config, ""};
    const NamedModel clip = find_component("clip_l");
    Component text{clip.model, clip.config, ""};
    parse_fields(text.config.fields(), fields);
    const auto files = diffusers_files({net, text}, {});
    const auto json = nlohmann::json::parse(files.at("text_encoder/config.json"));
    return json.at("num_hidden_layers").get<int64_t>();
  };
  EXPECT_EQ(layers("sd15", "{layers=1}"), 1);
  EXPECT_EQ(layers("sd15", "{layers=12}"), 12);
  EXPECT_EQ(layers("sd2", "{width=1024 layers=24}"), 23);
  EXPECT_EQ(layers("sd2", "{width=1024 layers=23}"), 23);
}

// What diffusers makes of its config: names of residual and transformer blocks, with the channels
// that they have.
std::map<std::string, int64_t> blocks_by_config(const nlohmann::json& j) {
  std::map<std::string, int64_t> out;
  const auto channels = j.at("block_out_channels").get<std::vector<int64_t>>();
  const size_t levels = channels.size(), blocks = j.at("layers_per_block");
  const auto put = [&](const std::string& at, int64_t width, size_t count, const auto& attends,
                       const nlohmann::json& depths) {
    for (size_t b = 0; b < count; ++b) {
      out[str(at, ".resnets.", b)] = width;
      const int64_t depth = depths.is_array() ? depths.at(b) : depths;
      for (int64_t t = 0; attends && t < depth; ++t)
        out[str(at, ".attentions.", b, ".transformer_blocks.", t)] = width;
    }
  };
  const nlohmann::json& down = j.at("transformer_layers_per_block");
  nlohmann::json up(down);
  std::reverse(up.begin(), up.end());
  if (j.contains("reverse_transformer_layers_per_block"))
    up = j["reverse_transformer_layers_per_block"];
  for (size_t i = 0; i < levels; ++i) {
    put(str("down_blocks.", i), channels[i], blocks,
        j.at("down_block_types")[i] == "CrossAttnDownBlock2D", down.at(i));
    put(str("up_blocks.", i), channels[levels - 1 - i], blocks + 1,
        j.at("up_block_types")[i] == "CrossAttnUpBlock2D", up.at(i));
  }
  if (j.at("mid_block_type").is_null()) return out;
  const bool attends = j["mid_block_type"] == "UNetMidBlock2DCrossAttn";
  out["mid_block.resnets.0"] = channels.back();
  if (attends) put("mid_block", channels.back(), 1, attends, down.back());
  if (attends) out["mid_block.resnets.1"] = channels.back();
  return out;
}

TEST(families, unet_configs_of_diffusers_folders__have_the_blocks_of_the_network) {
  const Model& model = *find_component("sd15").model;
  for (const Preset& preset : model.presets) {
    SCOPED_TRACE(preset.name);
    const Component net{&model, preset.config, ""};
    const auto places = diffusers_places({net})[0].places;
    std::map<std::string, int64_t> is;
    for (const nn::Weight& w : weights_of(model, preset.config)) {
      const std::string name = places(w.name).name;
      for (const std::string end : {".conv1.weight", ".attn1.to_q.weight"})
        if (name.ends_with(end))
          is[name.substr(0, name.size() - end.size())] = nn::file_shape(w)[0];
    }
    const auto config = nlohmann::json::parse(diffusers_files({net}, {}).at("unet/config.json"));
    EXPECT_EQ(blocks_by_config(config), is) << config;
  }
}

TEST(families, unet_that_diffusers_cannot_have__is_an_error) {
  for (const char* fields : {"{input_depths=[1,1,0,1,1,1,0,0]}", "{middle_depth=0}",
                             "{input_depths=[1,1,1,1,1,1,2,2]}"}) {
    Component net{find_component("sd15").model, find_component("sd15").config, ""};
    parse_fields(net.config.fields(), fields);
    EXPECT_TRUE(
        error_of([&] { diffusers_files({net}, {}); }).starts_with("convert: in diffusers' layout"))
        << fields;
  }
}

TEST(families, scheduler_that_is_written__says_what_the_config_does) {
  const Component net{find_component("sd15").model, find_component("sd15").config, ""};
  const auto scheduler = [&](const DiffusionConfig& d) {
    return nlohmann::json::parse(diffusers_files({net}, d).at("scheduler/scheduler_config.json"));
  };
  auto j = scheduler({.precond = "x0", .betas = "cosine"});
  EXPECT_EQ(j.at("prediction_type"), "sample");
  EXPECT_EQ(j.at("beta_schedule"), "squaredcos_cap_v2");
  j = scheduler({.precond = "eps", .betas = "linear", .timesteps = 500});
  EXPECT_EQ(j.at("beta_schedule"), "linear");
  EXPECT_EQ(j.at("beta_end"), 0.02);
  EXPECT_EQ(j.at("num_train_timesteps"), 500);
  EXPECT_NE(error_of([&] { scheduler({.precond = "eps", .betas = "sigmoid"}); }), "");
}

// One choice for all: how encoders are read, sizes, empty prompts.
TEST(encoder_rules, family__is_the_one_that_the_encoders_can_be_read_by) {
  const ModelConfig xl = config_with("sdxl", "{context=64 vector=1600}");
  const NamedModel clip = find_component("clip_g");
  LoadedComponent text{{clip.model, clip.config, ""}, nullptr};
  parse_fields(text.component.config.fields(), "{width=64 layers=4}");
  const auto rules = encoder_rules(*find_component("sdxl").model, xl, {text}, {});
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].family->name, "Stable Diffusion XL refiner");
}

// A1111 counts another layer of Stable Diffusion 1's encoder alone; others do of every one.
TEST(encoder_rules, clip_skip__is_followed_by_the_encoders_that_the_program_follows_it_by) {
  const auto layers = [](const char* denoiser, const std::vector<const char*>& texts,
                         ClipSkip skip) {
    std::vector<LoadedComponent> encoders;
    for (const char* name : texts) {
      const NamedModel m = find_component(name);
      encoders.push_back({{m.model, m.config, ""}, nullptr});
    }
    const NamedModel net = find_component(denoiser);
    std::vector<int64_t> out;
    for (const EncoderRule& r : encoder_rules(*net.model, net.config, encoders, skip))
      out.push_back(r.reading.layer);
    return out;
  };
  using Layers = std::vector<int64_t>;
  const std::vector<const char*> xl{"clip_l", "clip_g"};
  EXPECT_EQ(layers("sdxl", xl, {}), (Layers{2, 2}));
  EXPECT_EQ(layers("sdxl", xl, {3, "a1111"}), (Layers{2, 2}));
  EXPECT_EQ(layers("sdxl", xl, {3, "comfy"}), (Layers{3, 3}));
  EXPECT_EQ(layers("sdxl_refiner", {"clip_g"}, {3, "a1111"}), (Layers{2}));
  EXPECT_EQ(layers("sd2", {"clip_h"}, {3, "a1111"}), (Layers{2}));
  EXPECT_EQ(layers("sd2", {"clip_h"}, {3, "ebb"}), (Layers{3}));
  EXPECT_EQ(layers("sd15", {"clip_l"}, {3, "a1111"}), (Layers{3}));
}

}  // namespace ebb::testing::families_test
