// Requests of A1111's API whose fields come from elsewhere: texts of settings, options that stay,
// maps of ControlNet units, old hashes of models.
#include <gtest/gtest.h>

#include <fstream>

#include "apps/server/base64.h"
#include "io/image.h"
#include "pipeline/file_hash.h"
#include "pipeline/model_in_the_box.h"
#include "support/generate_program.h"
#include "support/pictures.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

std::string coded_png(const Tensor& t) { return server::base64(io::encode_png(t)); }

json request() {
  return {{"prompt", "fox"}, {"steps", 2}, {"width", 64}, {"height", 64}, {"seed", 9}};
}

struct SdapiRequests : ::testing::Test {
  // The settings of the job that a request becomes.
  json settings_of(const std::string& task, json body) {
    body["force_task_id"] = "task-" + std::to_string(++count_);
    const auto answer = server_.post("/sdapi/v1/" + task, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return server_.get("/ebb/v1/jobs/" + body["force_task_id"].get<std::string>())
        .json()["settings"];
  }
  Folder folder_;
  TestServer server_{folder_.path(), 1};
  int count_ = 0;
};

}  // namespace

TEST_F(SdapiRequests, infotext__fills_second_pass_variation_and_noise) {
  const char* text =
      "a cat\nNegative prompt: dog\nSteps: 3, Sampler: Euler a, Schedule type: Karras, CFG scale: "
      "5, Seed: 11, Size: 128x64, Variation seed: 4, Variation seed strength: 0.3, Seed resize "
      "from: 64x32, Denoising strength: 0.6, ENSD: 31337, RNG: CPU, Hires upscale: 1.5, Hires "
      "steps: 2, Hires upscaler: Latent (nearest), Eta: 0.7, Tiling: True";
  const json s = settings_of("txt2img", {{"infotext", text}, {"seed", 5}});
  json expected = {{"prompt", "a cat"},
                   {"negative", "dog"},
                   {"seed", 5},
                   {"size", "128x64"},
                   {"variation", "4:0.3"},
                   {"seed_resize", "64x32"},
                   {"hires", "1.5:Latent (nearest):2:0.6"},
                   {"options", "eta=0.7"},
                   {"ensd", 31337},
                   {"noise_options", "generator=torch_cpu"},
                   {"tiling", "both"}};
  for (const auto& [name, value] : expected.items())
    EXPECT_EQ(s.value(name, json()), value) << name;
}

TEST_F(SdapiRequests, infotext__fills_masks) {
  json body = {{"init_images", {coded_png(gradient(64, 64, 3))}},
               {"mask", coded_png(gradient(64, 64, 1))},
               {"infotext",
                "Steps: 3, Sampler: Euler, Seed: 11, Size: 64x64, Denoising strength: 0.6, Mask "
                "blur: 7, Masked content: latent noise, Mask mode: Inpaint not masked, Inpaint "
                "area: Only masked, Masked area padding: 12"}};
  json s = settings_of("img2img", body);
  json expected = {{"strength", 0.6},     {"mask_blur", 7},      {"masked_content", "noise"},
                   {"mask_invert", true}, {"only_masked", true}, {"mask_padding", 12}};
  for (const auto& [name, value] : expected.items())
    EXPECT_EQ(s.value(name, json()), value) << name;
  // What the text does not say is not A1111's default of requests, but what its page had.
  body["infotext"] = "Steps: 3, Sampler: Euler, Seed: 11, Size: 64x64, Mask blur: 7";
  s = settings_of("img2img", body);
  EXPECT_EQ(s["masked_content"], "original");
  EXPECT_FALSE(s.contains("only_masked")) << s.dump();
}

TEST_F(SdapiRequests, override_settings__stay_where_they_are_not_to_be_restored) {
  const auto format = [&] {
    return server_.get("/sdapi/v1/options").json()["samples_format"].get<std::string>();
  };
  json body = request();
  body["override_settings"] = {{"samples_format", "webp"}};
  settings_of("txt2img", body);
  EXPECT_EQ(format(), "png");
  body["override_settings_restore_afterwards"] = false;
  settings_of("txt2img", body);
  EXPECT_EQ(format(), "webp");
}

TEST_F(SdapiRequests, options__act_on_what_they_are_for) {
  json body = request();
  body["override_settings"] = {{"img2img_fix_steps", true}};
  EXPECT_FALSE(settings_of("txt2img", body).contains("exact_steps"));
  body["init_images"] = {coded_png(gradient(64, 64, 3))};
  EXPECT_EQ(settings_of("img2img", body).value("exact_steps", json()), true);

  ASSERT_EQ(server_.post("/sdapi/v1/options", {{"CLIP_stop_at_last_layers", 2}}).status, 200);
  body = request();
  EXPECT_EQ(settings_of("txt2img", body).value("clip_skip", json()), 2);
  body["clip_skip"] = 1;  // A1111's for the model's own
  EXPECT_EQ(settings_of("txt2img", body).value("clip_skip", json(0)), 0);
}

TEST_F(SdapiRequests, parameters__are_numbers_of_what_ran) {
  json body = request();
  body["width"] = nullptr, body["height"] = "64", body["steps"] = "2", body["cfg_scale"] = nullptr;
  body["denoising_strength"] = "0.6", body["styles"] = nullptr;
  const json a = server_.post("/sdapi/v1/txt2img", body).json();
  for (const char* name : {"width", "height", "steps", "cfg_scale", "seed", "denoising_strength"})
    EXPECT_TRUE(a["parameters"][name].is_number()) << name << ": " << a["parameters"][name];
  const json info = json::parse(a["info"].get<std::string>());
  for (const char* name : {"width", "height", "denoising_strength"})
    EXPECT_TRUE(info[name].is_number()) << name << ": " << info[name];
}

class SdapiModels : public GenerateProgram {
 protected:
  void start() {
    server_ = std::make_unique<TestServer>(folder_.path(), 1, [&](auto& o) {
      o.folders = {{.path = folder_ / "models", .kind = {}}};
    });
    server_->service().catalogue().wait_for_scan();
  }
  std::unique_ptr<TestServer> server_;
};

// A client takes images[0], so maps stand behind, and only where they are asked for.
TEST_F(SdapiModels, save_detected_map__appends_the_map) {
  std::filesystem::create_directories(folder_ / "models");
  checkpoint({{"control_net",
               "{model_channels=64 channel_mult=[1,2] num_res_blocks=1 input_depths=[1,0] "
               "middle_depth=1 num_heads=0 num_head_channels=64 context=64 "
               "conv_projection=false hint_channels=[8,8,8,8]}",
               "control_model."}},
             "models/control");
  start();
  json body = request();
  json unit = {
      {"model", "control"}, {"module", "canny"}, {"image", coded_png(gradient(40, 60, 3))}};
  for (const bool asked : {false, true}) {
    if (asked) unit["save_detected_map"] = true;
    body["alwayson_scripts"] = {{"controlnet", {{"args", {unit}}}}};
    const auto a = server_->post("/sdapi/v1/txt2img", body);
    ASSERT_EQ(a.status, 200) << a.body;
    ASSERT_EQ(a.json()["images"].size(), asked ? 2u : 1u);
    EXPECT_EQ(a.header("x-ebb-ignored"), "");
    if (!asked) continue;
    const std::string map = *server::base64_decoded(a.json()["images"][1].get<std::string>());
    EXPECT_EQ(
        io::decode_image({reinterpret_cast<const uint8_t*>(map.data()), map.size()}, "x").shape(),
        Shape({40, 60, 3}));
  }
}

TEST_F(SdapiModels, old_hash__finds_a_model) {
  std::filesystem::create_directories(folder_ / "models");
  const std::string file = folder_ / "models/a.safetensors";
  std::filesystem::copy_file(model_in_the_box(), file);
  start();
  std::ifstream in(file, std::ios::binary);
  std::string part(0x10000, '\0');
  in.seekg(0x100000).read(part.data(), 0x10000);
  std::ofstream(folder_ / "part", std::ios::binary) << part;
  const std::string hash = sha256_of(folder_ / "part").substr(0, 8);
  const auto& all = server_->service().catalogue();
  for (const std::string& name : {hash, "gone.ckpt [" + hash + "]"}) {
    const auto found = all.lookup(server::FileKind::model, name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->name, "a");
  }
  EXPECT_FALSE(all.lookup(server::FileKind::model, "gone.ckpt [00000000]"));
}

}  // namespace ebb::testing
