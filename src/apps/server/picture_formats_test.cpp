// Pictures of other programs, made here by what is known of their texts, through the routes that
// read them.
#include <gtest/gtest.h>

#include "apps/cli/picture_formats.h"
#include "apps/server/base64.h"
#include "io/image.h"
#include "io/image_encoders.h"
#include "io/picture_file.h"
#include "support/pictures.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;
using Texts = std::map<std::string, std::string>;

std::string coded(const std::vector<uint8_t>& bytes) { return server::base64(bytes); }

class PictureFormats : public ::testing::Test {
 protected:
  std::string coded_png(const Texts& text) const {
    return coded(io::encode_png(gradient(8, 8, 3), text));
  }
  json inspected(const std::string& image) const {
    return server_.post("/ebb/v1/inspect", {{"image", image}}).json();
  }
  json info(const std::string& image) const {
    return server_.post("/sdapi/v1/png-info", {{"image", image}}).json();
  }
  Folder folder_;
  TestServer server_{folder_.path()};
};

const Texts of_easy_diffusion{{"prompt", "a fox"},
                              {"negative_prompt", "blurry"},
                              {"seed", "42"},
                              {"use_stable_diffusion_model", "folder/sd-v1-5.safetensors"},
                              {"clip_skip", "True"},
                              {"use_vae_model", "None"},
                              {"sampler_name", "euler_a"},
                              {"width", "512"},
                              {"height", "768"},
                              {"num_inference_steps", "25"},
                              {"guidance_scale", "7.5"},
                              {"use_lora_model", "['ink', 'more/line.safetensors']"},
                              {"lora_alpha", "[0.5, 0.7]"},
                              {"tiling", "none"},
                              {"use_face_correction", "GFPGANv1.4"}};

json graph() {
  return json::parse(R"({
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sub\\box.safetensors"}},
    "2": {"class_type": "LoraLoader", "inputs": {"lora_name": "ink.safetensors",
          "strength_model": 0.8, "strength_clip": 0.6, "model": ["1", 0], "clip": ["1", 1]}},
    "3": {"class_type": "CLIPSetLastLayer",
          "inputs": {"stop_at_clip_layer": -2, "clip": ["2", 1]}},
    "4": {"class_type": "CLIPTextEncode", "inputs": {"text": ["12", 0], "clip": ["3", 0]}},
    "5": {"class_type": "CLIPTextEncode", "inputs": {"text": "blurry", "clip": ["3", 0]}},
    "6": {"class_type": "EmptyLatentImage",
          "inputs": {"width": 512, "height": 768, "batch_size": 1}},
    "7": {"class_type": "KSampler", "inputs": {"model": ["2", 0], "positive": ["4", 0],
          "negative": ["5", 0], "latent_image": ["6", 0], "seed": 18446744073709551615,
          "steps": 23, "cfg": 6.5, "sampler_name": "dpmpp_2m", "scheduler": "karras",
          "denoise": 1}},
    "8": {"class_type": "VAEDecode", "inputs": {"samples": ["7", 0], "vae": ["1", 2]}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["8", 0], "filename_prefix": "x"}},
    "12": {"class_type": "PrimitiveString", "inputs": {"value": "a fox"}}})");
}

// A TIFF file with one text in the tag Model.
std::vector<uint8_t> exif_of_camera(const std::string& text) {
  const auto size = static_cast<uint32_t>(text.size() + 1);
  std::vector<uint8_t> out{'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 0x01, 0x10, 0, 2};
  for (const uint32_t v : {size, 26U, 0U})
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(v >> shift));
  out.insert(out.end(), text.begin(), text.end());
  out.push_back(0);
  return out;
}

}  // namespace

TEST_F(PictureFormats, easy_diffusion__png) {
  json seen = inspected(coded_png(of_easy_diffusion));
  json s = seen["settings"];
  EXPECT_EQ(s["prompt"], "a fox") << seen.dump();
  EXPECT_EQ(s["negative"], "blurry");
  EXPECT_EQ(s["seed"], 42);
  EXPECT_EQ(s["steps"], 25);
  EXPECT_EQ(s["sampler"], "euler_a");
  EXPECT_EQ(s["guidance"], 7.5);
  EXPECT_EQ(s["size"], "512x768");
  EXPECT_EQ(s["clip_skip"], 2);
  EXPECT_EQ(s["model"], "sd-v1-5");
  EXPECT_EQ(s["lora"], "ink:0.5;line:0.7");
  EXPECT_EQ(s["dialect"], "a1111");
  EXPECT_EQ(seen["notes"], json::parse(R"(["not followed: Face restoration: GFPGANv1.4"])"));
  json told = info(coded_png(of_easy_diffusion));
  EXPECT_EQ(told["parameters"]["Prompt"], "a fox <lora:ink:0.5> <lora:line:0.7>") << told.dump();
  EXPECT_EQ(told["parameters"]["Size-2"], "768");
  EXPECT_EQ(told["items"]["num_inference_steps"], "25");
}

// In JPEG and WebP the same is one JSON object in UserComment; beside pictures there are text
// files.
TEST_F(PictureFormats, easy_diffusion__jpeg_webp_and_text) {
  json all = of_easy_diffusion;
  all["clip_skip"] = false, all["lora_alpha"] = {0.5, 0.7}, all["steps"] = nullptr;
  all["use_lora_model"] = {"ink", "line"};
  for (const auto format : {io::PictureFormat::jpeg, io::PictureFormat::webp}) {
    json s = inspected(coded(
        io::encode_picture(format, gradient(8, 8, 3), {{"parameters", all.dump()}})))["settings"];
    EXPECT_EQ(s["steps"], 25) << s.dump();
    EXPECT_EQ(s["lora"], "ink:0.5;line:0.7");
    EXPECT_FALSE(s.contains("clip_skip"));
  }
  const char* text =
      "a fox: red\nNegative Prompt: blurry\nSeed: 42\nStable Diffusion model: sd-v1-5\n"
      "Sampler: euler_a\nWidth: 512\nHeight: 768\nSteps: 25\nGuidance Scale: 7.5\n"
      "LoRA model: ink, line\nLoRA Strength: 0.5, 0.7\n";
  json s = server_.post("/ebb/v1/inspect", {{"text", text}}).json()["settings"];
  EXPECT_EQ(s["prompt"], "a fox: red") << s.dump();
  EXPECT_EQ(s["size"], "512x768");
  EXPECT_EQ(s["lora"], "ink:0.5;line:0.7");
}

TEST_F(PictureFormats, comfyui__links_are_followed) {
  const Texts text{{"prompt", graph().dump()}, {"workflow", "{}"}};
  json seen = inspected(coded_png(text));
  json s = seen["settings"];
  EXPECT_EQ(s["prompt"], "a fox") << seen.dump();
  EXPECT_EQ(s["negative"], "blurry");
  EXPECT_EQ(s["seed"], 18446744073709551615U);
  EXPECT_EQ(s["steps"], 23);
  EXPECT_EQ(s["sampler"], "dpmpp_2m");
  EXPECT_EQ(s["schedule"], "karras");
  EXPECT_EQ(s["guidance"], 6.5);
  EXPECT_EQ(s["size"], "512x768");
  EXPECT_EQ(s["clip_skip"], 2);
  EXPECT_EQ(s["model"], "box");
  EXPECT_EQ(s["lora"], "ink:0.8:0.6");
  EXPECT_EQ(s["dialect"], "comfy");
  EXPECT_FALSE(s.contains("strength"));
  EXPECT_EQ(seen["notes"], json::array());
  const std::string info_text = info(coded_png(text))["info"];
  EXPECT_EQ(info_text,
            "a fox <lora:ink:0.8:0.6>\nNegative prompt: blurry\nSteps: 23, Sampler: dpmpp_2m, "
            "Schedule type: karras, CFG scale: 6.5, Seed: 18446744073709551615, Size: 512x768, "
            "Clip skip: 2, Model: box");
  const auto exif = exif_of_camera("prompt:" + graph().dump());
  const json webp = inspected(coded(io::encode_webp(gradient(8, 8, 3), exif, 90)));
  EXPECT_EQ(webp["settings"], s) << webp.dump();
  EXPECT_EQ(server_.post("/ebb/v1/inspect", {{"text", graph().dump()}}).json()["settings"], s);
}

TEST_F(PictureFormats, comfyui__second_pass_and_start_picture) {
  json two = graph();
  two["20"] = {
      {"class_type", "LatentUpscaleBy"},
      {"inputs", {{"samples", {"7", 0}}, {"upscale_method", "nearest-exact"}, {"scale_by", 1.5}}}};
  two["21"] = two["7"];
  two["21"]["inputs"].update(
      {{"latent_image", {"20", 0}}, {"denoise", 0.5}, {"steps", 12}, {"seed", 1}});
  two["8"]["inputs"]["samples"] = {"21", 0};
  json s = inspected(coded_png({{"prompt", two.dump()}}))["settings"];
  EXPECT_EQ(s["hires"], "1.5:latent-nearest-exact:12:0.5") << s.dump();
  EXPECT_EQ(s["steps"], 23);
  EXPECT_EQ(s["seed"], 18446744073709551615U);

  json one = graph();
  one["6"] = {{"class_type", "VAEEncode"}, {"inputs", {{"pixels", {"30", 0}}, {"vae", {"1", 2}}}}};
  one["30"] = {{"class_type", "LoadImage"}, {"inputs", {{"image", "a.png"}}}};
  one["7"]["inputs"]["denoise"] = 0.4;
  json from = inspected(coded_png({{"prompt", one.dump()}}));
  EXPECT_EQ(from["settings"]["strength"], 0.4) << from.dump();
  EXPECT_EQ(from["notes"].size(), 1u);
}

// Samplers whose settings stand in nodes of their own, as for guiders.
TEST_F(PictureFormats, comfyui__settings_in_several_nodes) {
  json g = graph();
  g["7"] = {{"class_type", "SamplerCustomAdvanced"},
            {"inputs",
             {{"noise", {"40", 0}},
              {"guider", {"41", 0}},
              {"sampler", {"42", 0}},
              {"sigmas", {"43", 0}},
              {"latent_image", {"6", 0}}}}};
  g["40"] = {{"class_type", "RandomNoise"}, {"inputs", {{"noise_seed", 7}}}};
  g["41"] = {{"class_type", "CFGGuider"},
             {"inputs",
              {{"model", {"2", 0}}, {"positive", {"4", 0}}, {"negative", {"5", 0}}, {"cfg", 5}}}};
  g["42"] = {{"class_type", "KSamplerSelect"}, {"inputs", {{"sampler_name", "euler"}}}};
  g["43"] = {{"class_type", "BasicScheduler"},
             {"inputs", {{"scheduler", "simple"}, {"steps", 9}, {"denoise", 1}}}};
  json s = inspected(coded_png({{"prompt", g.dump()}}))["settings"];
  EXPECT_EQ(s["seed"], 7) << s.dump();
  EXPECT_EQ(s["steps"], 9);
  EXPECT_EQ(s["guidance"], 5);
  EXPECT_EQ(s["schedule"], "simple");
  EXPECT_EQ(s["model"], "box");
  EXPECT_EQ(s["negative"], "blurry");
}

// Of any shape: links in circles, to themselves, to nothing, values of other types.
TEST_F(PictureFormats, comfyui__hostile_graphs_end) {
  json circle = graph();
  circle["1"]["inputs"] = {{"model", {"2", 0}}};
  circle["4"]["inputs"] = {{"conditioning", {"4", 0}}, {"clip", {"4", 0}}};
  circle["6"]["inputs"] = {{"samples", {"7", 0}}};
  circle["12"]["inputs"]["value"] = {"12", 0};
  json odd = graph();
  odd["7"]["inputs"]["latent_image"] = {"99", 0};
  odd["7"]["inputs"]["steps"] = json::object();
  odd["4"]["inputs"] = json::array();
  odd["5"] = 3;
  for (const json& g : {circle, odd, json::object(), json::array({graph()})}) {
    const auto answer =
        server_.post("/ebb/v1/inspect", {{"image", coded_png({{"prompt", g.dump()}})}});
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
}

TEST_F(PictureFormats, novelai) {
  const json comment = {{"prompt", "{{1girl}}, [rain], 1.5::hat, red::, a (b)"},
                        {"steps", 28},
                        {"height", 1216},
                        {"width", 832},
                        {"scale", 5.5},
                        {"seed", 3071474384},
                        {"noise_schedule", "karras"},
                        {"sampler", "k_euler_ancestral"},
                        {"sm", true},
                        {"cfg_rescale", 0.0},
                        {"request_type", "PromptGenerateRequest"},
                        {"uc", "lowres"}};
  const Texts text{{"Software", "NovelAI"},
                   {"Source", "Stable Diffusion XL C1E1DE52"},
                   {"Description", "{{1girl}}"},
                   {"Comment", comment.dump()}};
  json seen = inspected(coded_png(text));
  json s = seen["settings"];
  EXPECT_EQ(s["prompt"], "((1girl:1.05):1.05), (rain:0.952381), (hat, red:1.5), a \\(b\\)")
      << seen.dump();
  EXPECT_EQ(s["negative"], "lowres");
  EXPECT_EQ(s["steps"], 28);
  EXPECT_EQ(s["sampler"], "euler_ancestral");
  EXPECT_EQ(s["schedule"], "karras");
  EXPECT_EQ(s["guidance"], 5.5);
  EXPECT_EQ(s["seed"], 3071474384);
  EXPECT_EQ(s["size"], "832x1216");
  EXPECT_FALSE(s.contains("clip_skip"));
  EXPECT_EQ(s["model"], "Stable Diffusion XL C1E1DE52");
  EXPECT_EQ(seen["notes"], json::parse(R"(["not followed: SMEA: True"])"));
  Texts first = text;
  first["Source"] = "Stable Diffusion 1D44365E";
  json of_first = info(coded_png(first))["parameters"];
  EXPECT_EQ(of_first["Clip skip"], "2") << of_first.dump();
  EXPECT_EQ(of_first["ENSD"], "31337");
}

// A program that writes both has written A1111's text for readers of it.
TEST_F(PictureFormats, text_of_a1111__is_taken_first) {
  json s = inspected(
      coded_png({{"prompt", graph().dump()},
                 {"parameters", "a cat\nSteps: 9, Sampler: Euler a, Seed: 3"}}))["settings"];
  EXPECT_EQ(s["steps"], 9) << s.dump();
}

// ---- what would take long to read
TEST_F(PictureFormats, graphs__of_many_nodes_or_links_in_a_ring_are_read_at_once) {
  std::string nodes;
  for (int i = 0; i < 100'000; ++i) nodes += str(i == 0 ? "" : ",", "\"", i, "\":0");
  const Texts many{{"prompt", "{" + nodes + "}"}};
  EXPECT_FALSE(cli::other_settings(many));

  json ring = graph();
  ring["2"]["inputs"]["model"] = {"2", 0};
  ring["3"]["inputs"]["clip"] = {"3", 0};
  const auto found = cli::other_settings({{"prompt", ring.dump()}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->found.loras, std::vector<std::string>{"ink:0.8:0.6"});
}

TEST_F(PictureFormats, text_of_more_than_2_mb__is_an_error_that_says_so) {
  const std::string braces((2 << 20) + 1, '{');
  for (const char* keyword : {"prompt", "parameters", "Comment"})
    expect_error(
        [&] {
          cli::other_settings({{keyword, braces}});
        },
        str("`", keyword, "` has 2097153 bytes"));
  const auto told = server_.post("/ebb/v1/inspect", {{"text", braces}});
  EXPECT_EQ(told.status, 422) << told.body.substr(0, 200);
}

}  // namespace ebb::testing
