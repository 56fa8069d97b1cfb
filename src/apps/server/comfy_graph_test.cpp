// Graphs of ComfyUI's API: what they mean, and those that cannot be run.
#include <gtest/gtest.h>
#include <png.h>

#include "support/comfy_server.h"
#include "support/pictures.h"

namespace ebb::testing {
namespace {

using nlohmann::json;
using ComfyGraph = ComfyServer;

// A PNG of u8 [H,W,3] whose first columns are transparent.
std::vector<uint8_t> with_transparent_columns(const Tensor& picture, int64_t columns) {
  const int64_t h = picture.shape()[0], w = picture.shape()[1];
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < h * w; ++i) {
    const auto rgb = picture.span<uint8_t>().begin() + 3 * i;
    pixels.insert(pixels.end(), rgb, rgb + 3);
    pixels.push_back(i % w < columns ? 0 : 255);
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION, image.format = PNG_FORMAT_RGBA;
  image.width = static_cast<png_uint_32>(w), image.height = static_cast<png_uint_32>(h);
  std::vector<uint8_t> out(pixels.size() + 4096);
  png_alloc_size_t size = out.size();
  EXPECT_TRUE(png_image_write_to_memory(&image, out.data(), &size, 0, pixels.data(), 0, nullptr));
  out.resize(size);
  return out;
}

json lora_node() {
  return comfy_node("LoraLoader", {{"model", comfy_link("4")},
                                   {"clip", comfy_link("4", 1)},
                                   {"lora_name", "fine.safetensors"},
                                   {"strength_model", 0.5},
                                   {"strength_clip", 0.25}});
}

}  // namespace

// ---- what graphs mean
TEST_F(ComfyGraph, loras_layers_and_loaders__become_settings) {
  json graph = graph_;
  graph["20"] = lora_node();
  graph["21"] =
      comfy_node("CLIPSetLastLayer", {{"clip", comfy_link("20", 1)}, {"stop_at_clip_layer", -2}});
  graph["22"] = comfy_node("VAELoader", {{"vae_name", "other.safetensors"}});
  graph["23"] = comfy_node("FluxGuidance", {{"conditioning", comfy_link("6")}, {"guidance", 3.5}});
  graph["3"]["inputs"]["model"] = comfy_link("20");
  graph["3"]["inputs"]["positive"] = comfy_link("23");
  for (const char* n : {"6", "7"}) graph[n]["inputs"]["clip"] = comfy_link("21");
  graph["8"]["inputs"]["vae"] = comfy_link("22");
  const cli::GenerateFlags o = settings(graph);
  EXPECT_EQ(o.lora.text(), folder_ / "loras/fine.safetensors" + ":0.5:0.25");
  EXPECT_EQ(o.clip_skip, 2);
  EXPECT_EQ(o.vae, folder_ / "vae/other.safetensors");
  EXPECT_EQ(o.generate.dialect, "comfy");
  EXPECT_EQ(o.generate.guidance, 7);
  EXPECT_EQ(o.negative, "dog");
  graph["7"]["inputs"]["clip"] = comfy_link("4", 1);
  EXPECT_EQ(fault(graph, "3")["extra_info"]["input_name"], "negative");
}

// A LoRA that the texts do not pass has no strength there.
TEST_F(ComfyGraph, lora_on_the_model_alone__leaves_the_texts) {
  json graph = graph_;
  graph["20"] = lora_node();
  graph["3"]["inputs"]["model"] = comfy_link("20");
  EXPECT_EQ(settings(graph).lora.text(), folder_ / "loras/fine.safetensors" + ":0.5:0");
}

TEST_F(ComfyGraph, advanced_sampler__runs_the_last_steps) {
  EXPECT_EQ(upload("a.png", io::encode_png(gradient(16, 16, 3))).status, 200);
  json graph = comfy_edit_graph("small.safetensors", "a.png");
  json& inputs = graph["3"]["inputs"];
  graph["3"]["class_type"] = "KSamplerAdvanced";
  inputs.update({{"add_noise", "enable"},
                 {"noise_seed", 18446744073709551615u},
                 {"steps", 20},
                 {"start_at_step", 7},
                 {"end_at_step", 10000},
                 {"return_with_leftover_noise", "disable"}});
  const cli::GenerateFlags o = settings(graph);
  EXPECT_EQ(o.generate.steps, 13);
  EXPECT_EQ(static_cast<int64_t>(13 / o.modes.strength), 20);
  EXPECT_EQ(uint64_t{o.generate.seed}, 18446744073709551615u);
  inputs["start_at_step"] = 20;
  EXPECT_EQ(fault(graph, "3")["extra_info"]["input_name"], "start_at_step");
  inputs["start_at_step"] = 0, inputs["end_at_step"] = 10;
  EXPECT_EQ(fault(graph, "3")["extra_info"]["input_name"], "end_at_step");
  inputs["start_at_step"] = 7, inputs["end_at_step"] = 10000;
  inputs["latent_image"] = comfy_link("50");
  graph["50"] = comfy_node("EmptyLatentImage", {{"width", 64}, {"height", 64}, {"batch_size", 1}});
  EXPECT_EQ(fault(graph, "3")["extra_info"]["input_name"], "start_at_step")
      << "the node has no denoise";
}

TEST_F(ComfyGraph, two_samplers_with_a_larger_latent_between__are_a_second_pass) {
  json graph = graph_;
  graph["5"]["inputs"].update({{"width", 384}, {"height", 192}});
  graph["30"] = comfy_node("LatentUpscale", {{"samples", comfy_link("3")},
                                             {"upscale_method", "nearest-exact"},
                                             {"width", 512},
                                             {"height", 256},
                                             {"crop", "disabled"}});
  graph["31"] = graph["3"];
  graph["31"]["inputs"].update(
      {{"steps", 5}, {"denoise", 0.5}, {"latent_image", comfy_link("30")}});
  graph["8"]["inputs"]["samples"] = comfy_link("31");
  const cli::GenerateFlags o = settings(graph);
  double scale = 0;
  int steps = 0;
  ASSERT_EQ(std::sscanf(o.modes.hires.c_str(), "%lf:latent-nearest-exact:%d:0.5", &scale, &steps),
            2)
      << o.modes.hires;
  EXPECT_EQ(static_cast<int64_t>(384 * scale), 512);
  EXPECT_EQ(static_cast<int64_t>(192 * scale), 256);
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(o.generate.steps, 2);
  graph["31"]["inputs"]["cfg"] = 3;
  EXPECT_EQ(fault(graph, "31")["extra_info"]["input_name"], "cfg");
  graph["31"]["inputs"]["cfg"] = 7, graph["30"]["inputs"]["height"] = 512;
  EXPECT_EQ(fault(graph, "31")["extra_info"]["input_name"], "width");
}

// What is transparent is generated, and a little beside it: by the fake engine, which keeps the
// rest.
TEST_F(ComfyGraph, inpainting__keeps_what_is_opaque) {
  const Tensor picture = gradient(32, 32, 3);
  EXPECT_EQ(upload("a.png", with_transparent_columns(picture, 8)).status, 200);
  json graph = comfy_edit_graph("small.safetensors", "a.png");
  graph["5"] = comfy_node("VAEEncodeForInpaint", {{"pixels", comfy_link("10")},
                                                  {"vae", comfy_link("4", 2)},
                                                  {"mask", comfy_link("10", 1)},
                                                  {"grow_mask_by", 6}});
  const json done = finished(prompt(graph).json()["prompt_id"]);
  const Tensor made = viewed(done["outputs"]["9"]["images"][0]);
  const auto differs = [&](int64_t x) {
    int most = 0;
    for (int64_t y = 0; y < 32; ++y)
      for (int64_t c = 0; c < 3; ++c) {
        const auto i = static_cast<size_t>((y * 32 + x) * 3 + c);
        most = std::max(most, std::abs(made.span<uint8_t>()[i] - picture.span<uint8_t>()[i]));
      }
    return most > 0;
  };
  for (const int64_t x : {0, 7, 8, 10}) EXPECT_TRUE(differs(x)) << x;
  for (const int64_t x : {11, 12, 31}) EXPECT_FALSE(differs(x)) << x;
  EXPECT_EQ(upload("a.png", io::encode_png(picture), "/upload/image", true).status, 200);
  EXPECT_NE(fault(graph, "3")["message"].get<std::string>().find("no transparent part"),
            std::string::npos);
}

// ---- graphs that cannot be run
TEST_F(ComfyGraph, unknown_node__is_named) {
  json graph = graph_;
  graph["40"] = comfy_node("FaceDetailer", json::object());
  const auto a = prompt(graph);
  EXPECT_EQ(a.status, 400);
  const json error = a.json()["error"];
  EXPECT_EQ(error["message"], "Cannot execute because node FaceDetailer does not exist.");
  EXPECT_EQ(error["details"], "Node ID '#40'");
  for (const char* key : {"type", "extra_info"}) EXPECT_TRUE(error.contains(key));
  EXPECT_EQ(a.json()["node_errors"], json::object());
}

TEST_F(ComfyGraph, broken_inputs__are_told_by_node_and_input) {
  const auto type = [&](const std::string& node, const char* input, const json& value) {
    json graph = graph_;
    graph[node]["inputs"][input] = value;
    const json f = fault(graph, node);
    EXPECT_EQ(f["extra_info"]["input_name"], input);
    return f["type"];
  };
  EXPECT_EQ(type("3", "steps", nullptr), "required_input_missing");
  EXPECT_EQ(type("3", "model", "4"), "bad_linked_input");
  EXPECT_EQ(type("3", "model", {"99", 0}), "bad_linked_input");
  EXPECT_EQ(type("3", "model", {"4", 3}), "bad_linked_input");
  EXPECT_EQ(type("3", "model", {"4", -1}), "bad_linked_input");
  EXPECT_EQ(type("3", "model", {"4"}), "bad_linked_input");
  EXPECT_EQ(type("3", "model", {"4", 1}), "return_type_mismatch");
  EXPECT_EQ(type("3", "steps", {"4", 0}), "return_type_mismatch");
  EXPECT_EQ(type("3", "steps", "many"), "invalid_input_type");
  EXPECT_EQ(type("3", "steps", 1.5), "invalid_input_type");
  EXPECT_EQ(type("3", "steps", json::object()), "invalid_input_type");
  EXPECT_EQ(type("3", "steps", 0), "value_smaller_than_min");
  EXPECT_EQ(type("3", "steps", 1001), "value_bigger_than_max");
  EXPECT_EQ(type("3", "seed", -1), "value_smaller_than_min");
  EXPECT_EQ(type("3", "seed", 1e300), "invalid_input_type");
  EXPECT_EQ(type("3", "cfg", "NaN"), "invalid_input_type");
  EXPECT_EQ(type("3", "sampler_name", "nothing"), "value_not_in_list");
  EXPECT_EQ(type("3", "scheduler", "nothing"), "value_not_in_list");
  EXPECT_EQ(type("3", "denoise", 0.5), "not_supported");  // of an empty latent
  EXPECT_EQ(type("4", "ckpt_name", "../small"), "value_not_in_list");
  EXPECT_EQ(type("4", "ckpt_name", std::string(5000, 'x')), "value_not_in_list");
  EXPECT_EQ(type("5", "width", 100000), "value_bigger_than_max");
  EXPECT_EQ(type("6", "text", json::array()), "bad_linked_input");
  EXPECT_EQ(type("9", "images", {"9", 0}), "bad_linked_input");
}

TEST_F(ComfyGraph, links_that_are_wrong__are_told_as_they_came) {
  const auto received = [&](const json& value) {
    json graph = graph_;
    graph["3"]["inputs"]["model"] = value;
    return fault(graph, "3")["extra_info"]["received_value"];
  };
  for (const json& link : {json{"99", 0}, json{"4", 3}, json{"4", 1}, json{"4"}})
    EXPECT_EQ(received(link), link);
  EXPECT_EQ(received("4"), "4");
  json graph = graph_;
  graph["3"]["inputs"].erase("model");
  EXPECT_FALSE(fault(graph, "3")["extra_info"].contains("received_value"));
}

TEST_F(ComfyGraph, graphs_that_are_none__are_told) {
  const auto error = [&](const json& graph) { return prompt(graph).json()["error"]["type"]; };
  EXPECT_EQ(server_->post("/prompt", json::object()).json()["error"]["type"], "no_prompt");
  EXPECT_EQ(error(json::object()), "prompt_no_outputs");
  EXPECT_EQ(error({{"1", 5}}), "invalid_prompt");
  EXPECT_EQ(error({{"1", {{"inputs", json::object()}}}}), "invalid_prompt");
  EXPECT_EQ(error({{"1", {{"class_type", 3}}}}), "invalid_prompt");
  EXPECT_EQ(error({{"1", {{"class_type", "SaveImage"}, {"inputs", 3}}}}),
            "prompt_outputs_failed_validation");
  EXPECT_EQ(prompt("text").status, 400);
  json graph = graph_;
  graph.erase("9");
  EXPECT_EQ(error(graph), "prompt_no_outputs");
  EXPECT_EQ(server_->service().queue().all().size(), 0u);
}

TEST_F(ComfyGraph, cycles__are_told) {
  json graph = graph_;
  graph["30"] = comfy_node("LatentUpscale", {{"samples", comfy_link("3")},
                                             {"upscale_method", "bilinear"},
                                             {"width", 512},
                                             {"height", 512},
                                             {"crop", "disabled"}});
  graph["3"]["inputs"]["latent_image"] = comfy_link("30");
  EXPECT_EQ(fault(graph, "30")["type"], "dependency_cycle");
  graph["3"]["inputs"]["latent_image"] = comfy_link("3");
  EXPECT_EQ(fault(graph, "3")["type"], "dependency_cycle");
}

TEST_F(ComfyGraph, graph_2000_nodes_deep__is_read_or_told) {
  json graph = graph_;
  constexpr int depth = 2000;
  for (int i = 0; i < depth; ++i)
    graph[str('c', i)] =
        comfy_node("CLIPSetLastLayer",
                   {{"clip", i + 1 < depth ? comfy_link(str('c', i + 1)) : comfy_link("4", 1)},
                    {"stop_at_clip_layer", -1 - i % 2}});
  for (const char* n : {"6", "7"}) graph[n]["inputs"]["clip"] = comfy_link("c0");
  EXPECT_EQ(settings(graph).clip_skip, 1);
  json samplers = graph_;  // through the values of all
  for (int i = 0; i < 2000; ++i) {
    samplers[str('s', i)] = graph_["3"];
    samplers[str('s', i)]["inputs"]["latent_image"] =
        i == 0 ? comfy_link("3") : comfy_link(str('s', i - 1));
  }
  samplers["8"]["inputs"]["samples"] = comfy_link("s1999");
  EXPECT_EQ(fault(samplers, "s0")["type"], "not_supported");
  json loras = graph_;
  for (int i = 0; i < 200; ++i)
    loras[str('l', i)] =
        comfy_node("LoraLoader", {{"model", i == 0 ? comfy_link("4") : comfy_link(str('l', i - 1))},
                                  {"clip", comfy_link("4", 1)},
                                  {"lora_name", "fine.safetensors"},
                                  {"strength_model", 1},
                                  {"strength_clip", 1}});
  loras["3"]["inputs"]["model"] = comfy_link("l199");
  EXPECT_EQ(fault(loras, "l64")["extra_info"]["input_name"], "lora_name");
}

TEST_F(ComfyGraph, many_broken_nodes__have_a_short_answer) {
  json graph;
  for (int i = 0; i < 2000; ++i) graph[str(i)] = comfy_node("SaveImage", json::object());
  const auto a = prompt(graph);
  EXPECT_EQ(a.status, 400);
  EXPECT_LT(a.body.size(), 100'000u);
  for (int i = 2000; i < 2049; ++i) graph[str(i)] = json::object();
  EXPECT_NE(prompt(graph).body.find("names of an object are at most 2048"), std::string::npos);
}

TEST_F(ComfyGraph, two_pictures_of_one_prompt__are_told_and_one_picture_may_be_shown_twice) {
  json graph = graph_;
  graph["50"] = comfy_node("PreviewImage", {{"images", comfy_link("8")}});
  const json done = finished(prompt(graph).json()["prompt_id"]);
  EXPECT_EQ(done["outputs"]["9"]["images"][0]["filename"],
            done["outputs"]["50"]["images"][0]["filename"]);
  EXPECT_EQ(done["outputs"]["50"]["images"][0]["type"], "temp");
  graph["51"] = graph["8"];
  graph["50"]["inputs"]["images"] = comfy_link("51");
  const json f = fault(graph, "9");
  EXPECT_EQ(f["extra_info"]["input_name"], "images");
}

TEST_F(ComfyGraph, inputs_without_effect__are_told) {
  json graph = graph_;
  graph["3"]["inputs"]["control_after_generate"] = "fixed";
  const auto a = prompt(graph, {{"odd", 1}, {"extra_data", json::object()}});
  EXPECT_EQ(a.header("x-ebb-ignored"), "3.control_after_generate, odd");
}

}  // namespace ebb::testing
