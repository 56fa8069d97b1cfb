// The same settings give the picture of `ebb generate`, bit for bit, through each protocol.
#include <gtest/gtest.h>

#include "apps/server/base64.h"
#include "pipeline/model_in_the_box.h"
#include "support/comfy_graph.h"
#include "support/generate_program.h"
#include "support/pictures.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

std::unique_ptr<server::Engine> engine_of(const server::Catalogue& c) {
  cli::CommonOptions device;
  device.device = "cpu", device.threads = 1;
  return server::pipeline_engine(c, device, "auto");
}

class SamePicture : public GenerateProgram {
 protected:
  void SetUp() override {
    GenerateProgram::SetUp();
    if (IsSkipped()) return;
    std::filesystem::create_directories(folder_ / "models");
    model_ = checkpoint({unet(), text(), autoencoder()}, "models/small");
    start({folder_ / "models", {}});
  }
  void start(const server::CatalogueFolder& models) {
    server_ = std::make_unique<TestServer>(
        folder_.path(), 1, [&](auto& o) { o.folders = {models}; }, engine_of);
    server_->service().catalogue().wait_for_scan();
  }
  Tensor generated(const std::string& flags) {
    const std::string model = model_.empty() ? "" : " --model " + model_;
    const Output out = run_program(str("generate --device cpu --threads 1 --prompt fox", model,
                                       " --overwrite --out ", png(), " ", flags));
    EXPECT_EQ(out.code, 0) << out.text;
    return io::read_image(png(), 3);
  }
  static Tensor decoded(const std::string& coded) {
    const auto bytes = server::base64_decoded(coded);
    return io::decode_image({reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()}, "x",
                            3);
  }
  Tensor of_sdapi(const std::string& task, const nlohmann::json& body) {
    const auto a = server_->post("/sdapi/v1/" + task, body);
    EXPECT_EQ(a.status, 200) << a.body;
    return decoded(a.json()["images"][0].get<std::string>());
  }
  // By the native protocol.
  Tensor of_native(const nlohmann::json& body) {
    const auto job = server_->post("/ebb/v1/jobs", body);
    EXPECT_EQ(job.status, 202) << job.body;
    const auto done = server_->finished(job.json()["id"]);
    EXPECT_EQ(done["status"], "completed") << done.dump();
    const auto image = server_->get(done["images"][0]["url"].get<std::string>());
    return io::decode_image(
        {reinterpret_cast<const uint8_t*>(image.body.data()), image.body.size()}, "made", 3);
  }
  // By ComfyUI's.
  Tensor of_comfy(const nlohmann::json& graph) {
    const auto a = server_->post("/prompt", {{"prompt", graph}});
    EXPECT_EQ(a.status, 200) << a.body;
    const std::string id = a.json()["prompt_id"];
    server_->finished(id);
    const auto done = server_->get("/history/" + id).json()[id];
    const auto image = server_->get(
        "/view?filename=" + done["outputs"]["9"]["images"][0]["filename"].get<std::string>());
    EXPECT_EQ(image.status, 200) << done.dump();
    return io::decode_image(
        {reinterpret_cast<const uint8_t*>(image.body.data()), image.body.size()}, "made", 3);
  }
  std::string model_;
  std::unique_ptr<TestServer> server_;
};

// A server of the model that comes with ebb, which no request names.
class BoxPicture : public SamePicture {
 protected:
  void SetUp() override {
    GenerateProgram::SetUp();
    if (IsSkipped()) return;
    start({std::filesystem::path(model_in_the_box()).parent_path().string(), {}, true});
  }
};

void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(largest_difference(a, b), 0);
}

}  // namespace

TEST_F(SamePicture, native__is_generates) {
  const auto job = server_->post(
      "/ebb/v1/jobs",
      {{"prompt", "fox"}, {"size", "64x48"}, {"steps", 2}, {"seed", 7}, {"model", "small"}});
  ASSERT_EQ(job.status, 202) << job.body;
  const auto done = server_->finished(job.json()["id"]);
  ASSERT_EQ(done["status"], "completed") << done.dump();
  EXPECT_NE(done["warnings"].dump().find("no preset of ldm_unet"), std::string::npos);
  const auto image = server_->get(done["images"][0]["url"].get<std::string>());
  const Tensor made = io::decode_image(
      {reinterpret_cast<const uint8_t*>(image.body.data()), image.body.size()}, "made", 3);
  expect_same(made, generated("--size 64x48 --steps 2 --seed 7"));
  const auto meta = server_->get(done["images"][0]["url"].get<std::string>() + "/meta").json();
  EXPECT_EQ(meta["settings"]["model"], "small.safetensors") << meta.dump();
  const std::string parameters = meta["parameters"];
  EXPECT_NE(parameters.find("Model: small, "), std::string::npos) << parameters;
  EXPECT_EQ(parameters.find(folder_.path()), std::string::npos);
}

TEST_F(SamePicture, sdapi__is_generates_in_the_dialect_a1111) {
  const nlohmann::json body = {{"prompt", "fox"}, {"negative_prompt", "dog"},
                               {"steps", 2},      {"width", 64},
                               {"height", 48},    {"seed", 7}};
  const std::string flags =
      "--dialect a1111 --negative dog --size 64x48 --steps 2 --seed 7 --guidance 7 --batch 1 ";
  expect_same(of_sdapi("txt2img", body), generated(flags + "--sampler Euler"));
  nlohmann::json other = body;
  other.update({{"sampler_name", "DPM++ 2M Karras"}, {"subseed", 3}, {"subseed_strength", 0.5}});
  expect_same(of_sdapi("txt2img", other),
              generated(flags + "--sampler 'DPM++ 2M Karras' --variation 3:0.5"));
}

TEST_F(SamePicture, sdapi_resize_modes__are_generates_fits) {
  const Tensor init = gradient(40, 100, 3);
  io::write_png(folder_ / "init.png", init);
  nlohmann::json body = {{"prompt", "fox"},
                         {"steps", 3},
                         {"width", 64},
                         {"height", 48},
                         {"seed", 7},
                         {"denoising_strength", 0.6},
                         {"init_images", {server::base64(io::encode_png(init))}}};
  std::vector<Tensor> all;
  for (const char* fit : {"stretch", "crop", "fill", "latent"}) {
    body["resize_mode"] = all.size();
    all.push_back(of_sdapi("img2img", body));
    expect_same(all.back(),
                generated(str("--dialect a1111 --sampler Euler --guidance 7 --size 64x48 --steps 3 "
                              "--seed 7 --strength 0.6 --init ",
                              folder_ / "init.png", " --fit ", fit)));
    for (size_t i = 0; i + 1 < all.size(); ++i)
      EXPECT_GT(largest_difference(all[i], all.back()), 0);
  }
}

// With the seeds of one batch.
TEST_F(SamePicture, sdapi_several_start_pictures__are_generates) {
  nlohmann::json body = {{"prompt", "fox"},   {"steps", 3},     {"width", 64},
                         {"height", 48},      {"seed", 7},      {"denoising_strength", 0.6},
                         {"init_images", {}}, {"batch_size", 2}};
  for (const int64_t side : {48, 64})
    body["init_images"].push_back(server::base64(io::encode_png(gradient(48, side, 3))));
  const auto a = server_->post("/sdapi/v1/img2img", body);
  ASSERT_EQ(a.status, 200) << a.body;
  io::write_png(folder_ / "init.png", gradient(48, 64, 3));
  expect_same(decoded(a.json()["images"][1].get<std::string>()),
              generated(str("--dialect a1111 --sampler Euler --guidance 7 --size 64x48 --steps 3 "
                            "--seed 8 --strength 0.6 --init ",
                            folder_ / "init.png")));
}

TEST_F(SamePicture, sdapi_img2img_with_a_mask__is_generates) {
  const Tensor init = gradient(48, 64, 3);
  Tensor mask(DType::u8, {48, 64, 1});
  for (size_t i = 0; i < mask.span<uint8_t>().size(); ++i)
    mask.span<uint8_t>()[i] = i % 64 < 24 ? 255 : 0;
  io::write_png(folder_ / "init.png", init);
  io::write_png(folder_ / "mask.png", mask);
  const nlohmann::json body = {{"prompt", "fox"},
                               {"steps", 3},
                               {"width", 64},
                               {"height", 48},
                               {"seed", 7},
                               {"denoising_strength", 0.6},
                               {"init_images", {server::base64(io::encode_png(init))}},
                               {"mask", server::base64(io::encode_png(mask))},
                               {"inpainting_fill", 1},
                               {"inpaint_full_res", 0}};
  expect_same(
      of_sdapi("img2img", body),
      generated(str("--dialect a1111 --size 64x48 --steps 3 --seed 7 --guidance 7 --batch 1 "
                    "--sampler Euler --strength 0.6 --init ",
                    folder_ / "init.png", " --mask ", folder_ / "mask.png")));
}

TEST_F(SamePicture, openai_and_sdcpp__are_generates) {
  const auto a =
      server_->post("/v1/images/generations",
                    {{"prompt", "fox"}, {"size", "64x48"}, {"ebb", {{"steps", 2}, {"seed", 7}}}});
  ASSERT_EQ(a.status, 200) << a.body;
  expect_same(decoded(a.json()["data"][0]["b64_json"].get<std::string>()),
              generated("--size 64x48 --steps 2 --seed 7"));
  const auto job = server_->post(
      "/sdcpp/v1/img_gen", {{"prompt", "fox"},
                            {"width", 64},
                            {"height", 48},
                            {"seed", 7},
                            {"sample_params", {{"sample_method", "euler"}, {"sample_steps", 2}}}});
  ASSERT_EQ(job.status, 202) << job.body;
  server_->finished(job.json()["id"]);
  const auto done = server_->get(job.json()["poll_url"].get<std::string>()).json();
  ASSERT_EQ(done["status"], "completed") << done.dump();
  expect_same(decoded(done["result"]["images"][0]["b64_json"].get<std::string>()),
              generated("--dialect sdcpp --size 64x48 --steps 2 --seed 7 --sampler euler"));
}

TEST_F(SamePicture, comfy__is_generates_in_the_dialect_comfy) {
  nlohmann::json graph = comfy_graph("small.safetensors");
  const std::string flags =
      "--dialect comfy --negative dog --size 64x48 --steps 2 --seed 7 --guidance 7 ";
  expect_same(of_comfy(graph), generated(flags + "--sampler euler --schedule normal"));
  graph["3"]["inputs"].update({{"sampler_name", "dpmpp_2m"}, {"scheduler", "karras"}});
  graph["30"] = comfy_node("LatentUpscale", {{"samples", comfy_link("3")},
                                             {"upscale_method", "bilinear"},
                                             {"width", 128},
                                             {"height", 96},
                                             {"crop", "disabled"}});
  graph["31"] = graph["3"];
  graph["31"]["inputs"].update({{"denoise", 0.5}, {"latent_image", comfy_link("30")}});
  graph["8"]["inputs"]["samples"] = comfy_link("31");
  expect_same(of_comfy(graph),
              generated(flags + "--sampler dpmpp_2m --schedule karras --hires 2:latent:2:0.5"));
}

TEST_F(SamePicture, comfy_from_a_picture__is_generates) {
  const Tensor init = gradient(48, 64, 3);
  io::write_png(folder_ / "init.png", init);
  const auto png = io::encode_png(init);
  const std::string body =
      str("--xyz\r\nContent-Disposition: form-data; name=\"image\"; filename=\"init.png\"\r\n\r\n",
          std::string(png.begin(), png.end()), "\r\n--xyz--\r\n");
  ASSERT_EQ(ask(server_->port(), "POST", "/upload/image", body,
                "Content-Type: multipart/form-data; boundary=xyz\r\n")
                .status,
            200);
  expect_same(of_comfy(comfy_edit_graph("small.safetensors", "init.png")),
              generated(str("--dialect comfy --negative dog --size 64x48 --steps 2 --seed 7 "
                            "--guidance 7 --sampler euler --schedule normal --strength 0.6 --init ",
                            folder_ / "init.png")));
}

// Row 8 of the table: a file that lies about itself is told, and the model before stays.
TEST_F(SamePicture, row_8__broken_checkpoint__is_told_and_the_other_still_works) {
  const std::string whole = file_bytes(model_);
  put_file(folder_ / "models/cut.safetensors", whole.substr(0, whole.size() / 2));
  put_file(folder_ / "models/lies.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}"));
  EXPECT_EQ(server_->post("/sdapi/v1/refresh-checkpoints", nlohmann::json::object()).status, 200);
  for (const char* name : {"cut", "lies"}) {
    const auto a = server_->post("/sdapi/v1/options", {{"sd_model_checkpoint", name}});
    EXPECT_EQ(a.status, 422) << a.body;
    EXPECT_NE(a.body.find("safetensors"), std::string::npos) << a.body;
  }
  const nlohmann::json body = {
      {"prompt", "fox"}, {"steps", 1}, {"width", 64}, {"height", 48}, {"seed", 7}};
  EXPECT_EQ(server_->post("/sdapi/v1/txt2img", body).status, 200);
}

// Size and guidance that a request leaves open are the model's: 128x128 and 3.
TEST_F(BoxPicture, requests_that_name_no_model__get_its_defaults_in_all_protocols) {
  const Tensor plain = generated("--steps 2 --seed 7");
  EXPECT_EQ(plain.shape(), (Shape{128, 128, 3}));
  expect_same(of_native({{"prompt", "fox"}, {"steps", 2}, {"seed", 7}}), plain);
  const auto openai = server_->post("/v1/images/generations",
                                    {{"prompt", "fox"}, {"ebb", {{"steps", 2}, {"seed", 7}}}});
  ASSERT_EQ(openai.status, 200) << openai.body;
  expect_same(decoded(openai.json()["data"][0]["b64_json"].get<std::string>()), plain);
  const auto web_ui =
      server_->post("/sdapi/v1/txt2img", {{"prompt", "fox"}, {"steps", 2}, {"seed", 7}});
  ASSERT_EQ(web_ui.status, 200) << web_ui.body;
  const auto parameters = web_ui.json()["parameters"];
  EXPECT_EQ(parameters["width"], 128);
  EXPECT_EQ(parameters["cfg_scale"], 3.0);
  expect_same(decoded(web_ui.json()["images"][0].get<std::string>()),
              generated("--dialect a1111 --steps 2 --seed 7 --batch 1 --sampler Euler"));
  const auto job =
      server_->post("/sdcpp/v1/img_gen",
                    {{"prompt", "fox"}, {"seed", 7}, {"sample_params", {{"sample_steps", 2}}}});
  ASSERT_EQ(job.status, 202) << job.body;
  server_->finished(job.json()["id"]);
  const auto done = server_->get(job.json()["poll_url"].get<std::string>()).json();
  expect_same(decoded(done["result"]["images"][0]["b64_json"].get<std::string>()),
              generated("--dialect sdcpp --steps 2 --seed 7"));
}

TEST_F(BoxPicture, catalogue_and_menus__have_it_with_its_defaults) {
  const auto models = server_->get("/ebb/v1/catalogue").json()["models"];
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0]["name"], "box");
  const nlohmann::json defaults = {{"size", "128x128"}, {"steps", 20}, {"guidance", 3.0}};
  EXPECT_EQ(models[0]["defaults"], defaults);
  EXPECT_EQ(server_->get("/sdapi/v1/sd-models").json()[0]["model_name"], "box");
  const std::string chosen = server_->get("/sdapi/v1/options").json()["sd_model_checkpoint"];
  EXPECT_EQ(chosen.find("box.safetensors"), 0u) << chosen;
}

TEST_F(BoxPicture, plan__is_of_this_model_and_grows_with_the_size) {
  const auto bytes = [&](const char* size) {
    const auto a = server_->post("/ebb/v1/plan", {{"size", size}, {"steps", 1}});
    EXPECT_EQ(a.status, 200) << a.body;
    return a.json()["bytes"].get<int64_t>();
  };
  const int64_t small = bytes("128x128");
  EXPECT_GT(small, 10'000'000);  // its weights alone have more
  EXPECT_GT(bytes("256x256"), small);
  of_native({{"prompt", "fox"}, {"steps", 1}});  // it is loaded
  EXPECT_EQ(bytes("128x128"), small);
}

TEST_F(SamePicture, skip_before_the_first_picture__leaves_that_one_out) {
  server::Catalogue catalogue({{folder_ / "models", {}}});
  const auto engine = engine_of(catalogue);
  server::Job job;
  job.spec.flags.model = model_, job.spec.flags.prompt = "fox", job.spec.flags.size = "64x48";
  job.spec.flags.generate.steps = 1, job.spec.flags.generate.batch = 1, job.spec.flags.n = 3;
  job.skip = true;
  KeptEvents events(job);
  engine->run(job, 0, events);
  EXPECT_EQ(events.indices, (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(job.skip);
}

}  // namespace ebb::testing
