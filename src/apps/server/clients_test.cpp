// What known clients send and read, protocol by protocol, written from their sources' behaviour.
#include <gtest/gtest.h>

#include <thread>

#include "apps/server/base64.h"
#include "io/image.h"
#include "support/pictures.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

std::string coded(const Tensor& t) { return server::base64(io::encode_png(t)); }

std::string png_of(const std::string& text) { return *server::base64_decoded(text); }

json request_of(const std::string& prompt, int64_t steps = 2) {
  return {{"prompt", prompt}, {"steps", steps}, {"width", 64}, {"height", 64}, {"seed", 9}};
}

class Clients : public ::testing::Test {
 protected:
  Folder folder_;
  TestServer server_{folder_.path(), 5};
};

// Fields of a form, and files named by "@".
std::string form_body(const std::vector<std::pair<std::string, std::string>>& parts) {
  std::string out;
  for (const auto& [name, value] : parts) {
    const bool file = name.starts_with('@');
    out += "--xyz\r\nContent-Disposition: form-data; name=\"" + name.substr(file ? 1 : 0) + "\"" +
           (file ? "; filename=\"a.png\"\r\nContent-Type: image/png" : "") + "\r\n\r\n" + value +
           "\r\n";
  }
  return out + "--xyz--\r\n";
}
const std::string form_type = "Content-Type: multipart/form-data; boundary=xyz\r\n";

}  // namespace

// Open WebUI reads options, sends all of them back, and takes images[] and info.
TEST_F(Clients, open_webui__options_are_sent_back_whole) {
  const auto options = server_.get("/sdapi/v1/options", "Authorization: Basic \r\n");
  EXPECT_EQ(options.header("content-type"), "application/json");
  json all = options.json();
  for (const char* key : {"samples_format", "sd_model_checkpoint", "forge_preset", "sd_vae"})
    EXPECT_TRUE(all.contains(key)) << key;
  all["CLIP_stop_at_last_layers"] = 2;
  const auto set = server_.post("/sdapi/v1/options", all);
  EXPECT_EQ(set.status, 200) << set.body;
  EXPECT_EQ(set.body, "null");
  EXPECT_EQ(server_.get("/sdapi/v1/options").json()["CLIP_stop_at_last_layers"], 2);
  json body = request_of("fox");
  body["batch_size"] = 2;
  const json made = server_.post("/sdapi/v1/txt2img", body).json();
  ASSERT_EQ(made["images"].size(), 2u);
  EXPECT_EQ(png_of(made["images"][0]).substr(1, 3), "PNG");
  const json info = json::parse(made["info"].get<std::string>());
  EXPECT_EQ(info["all_seeds"], (json{9, 10}));
  EXPECT_EQ(info["clip_skip"], 2);
  EXPECT_EQ(made["parameters"]["steps"], 2);
  EXPECT_EQ(made["parameters"]["sampler_index"], "Euler");
}

TEST_F(Clients, sillytavern__lists_and_its_extra_fields) {
  EXPECT_EQ(server_.get("/sdapi/v1/upscalers").json()[0]["name"], "None");
  EXPECT_EQ(server_.get("/sdapi/v1/latent-upscale-modes").json()[0]["name"], "Latent");
  for (const char* list : {"samplers", "schedulers", "sd-vae", "sd-modules", "sd-models", "loras",
                           "prompt-styles", "extensions", "face-restorers"})
    EXPECT_TRUE(server_.get(str("/sdapi/v1/", list)).json().is_array()) << list;
  const json samplers = server_.get("/sdapi/v1/samplers").json();
  EXPECT_EQ(samplers[5]["name"], "Euler a");
  EXPECT_EQ(samplers[5]["aliases"][0], "k_euler_a");
  json body = request_of("fox");
  body.update({{"save_images", true},
               {"send_images", true},
               {"restore_faces", false},
               {"url", "http://x"},
               {"auth", "y"},
               {"sampler_name", "k_euler_a"},
               {"scheduler", "karras"},
               {"enable_hr", true},
               {"hr_upscaler", "Latent"},
               {"hr_scale", 1.5},
               {"hr_second_pass_steps", 0},
               {"denoising_strength", 0.7},
               {"override_settings", {{"CLIP_stop_at_last_layers", 1}, {"sd_vae", "Automatic"}}}});
  const auto a = server_.post("/sdapi/v1/txt2img", body);
  EXPECT_EQ(a.status, 200) << a.body;
  EXPECT_EQ(a.header("x-ebb-ignored"), "auth, url");
  EXPECT_EQ(server_.get("/ebb/v1/images").json()["images"].size(), 1u);  // it was to be saved
  body["alwayson_scripts"] = {{"ADetailer", {{"args", json::array()}}}};
  const auto b = server_.post("/sdapi/v1/txt2img", body);
  EXPECT_EQ(b.status, 422);
  EXPECT_NE(b.json()["message"].get<std::string>().find("ADetailer not found"), std::string::npos);
}

TEST_F(Clients, kobold_lite__numbers_as_floats_and_zeros) {
  json body = request_of("fox");
  body.update({{"eta", 0},
               {"s_churn", 0},
               {"s_tmax", 0},
               {"s_tmin", 0},
               {"s_noise", 1},
               {"override_settings",
                {{"eta_noise_seed_delta", 0},
                 {"CLIP_stop_at_last_layers", 1.0},
                 {"ddim_discretize", "uniform"},
                 {"img2img_fix_steps", false},
                 {"sd_hypernetwork", "None"},
                 {"inpainting_mask_weight", 1},
                 {"initial_noise_multiplier", 1},
                 {"comma_padding_backtrack", 20}}}});
  EXPECT_EQ(server_.post("/sdapi/v1/txt2img", body).status, 200);
  body["init_images"] = {coded(gradient(20, 20, 3))};
  body["denoising_strength"] = 0.6;
  EXPECT_EQ(server_.post("/sdapi/v1/img2img", body).status, 200);
  EXPECT_EQ(server_.post("/sdapi/v1/interrogate", {{"image", "x"}}).status, 404);
}

TEST_F(Clients, memory__of_the_host_is_partly_in_use) {
  const json ram = server_.get("/sdapi/v1/memory").json()["ram"];
  const int64_t free = ram["free"], used = ram["used"], total = ram["total"];
  EXPECT_GT(free, 0);
  EXPECT_GT(used, 0) << "by this program";
  EXPECT_EQ(free + used, total);
}

TEST_F(Clients, sampler_names__have_a_schedule_behind_them_or_not) {
  for (const auto& [name, sampler, schedule] :
       {std::tuple{"DPM++ 2M Karras", "DPM++ 2M Karras", ""},
        {"DPM++ 2M Align Your Steps", "DPM++ 2M", "Align Your Steps"},
        {"Euler Automatic", "Euler", ""},
        {"k_dpmpp_2m", "DPM++ 2M", ""},
        {"dpmpp_2m_beta", "dpmpp_2m_", "Beta"}}) {
    json body = request_of("fox");
    body.update({{"sampler_name", name}, {"force_task_id", name}});
    ASSERT_EQ(server_.post("/sdapi/v1/txt2img", body).status, 200) << name;
    const auto v = server_.service().queue().find(name);
    EXPECT_EQ(v->job->spec.flags.generate.sampler, sampler);
    const std::string own = v->job->spec.flags.generate.schedule;
    EXPECT_EQ(own == "auto" ? "" : own, schedule);
  }
}

TEST_F(Clients, tag_of_no_lora__is_told_before_the_job_is_queued) {
  for (const char* tag : {"<lora:../../x:1>", "<lora:nothing:0.5>"})
    EXPECT_EQ(server_.post("/sdapi/v1/txt2img", request_of(str("fox ", tag))).status, 400) << tag;
  json body = request_of("fox <lora:nothing:1>");
  body["disable_extra_networks"] = true;
  EXPECT_EQ(server_.post("/sdapi/v1/txt2img", body).status, 200);
}

TEST_F(Clients, faults__have_the_keys_that_clients_read) {
  const auto sampler = server_.post("/sdapi/v1/txt2img", {{"sampler_name", "nothing"}});
  EXPECT_EQ(sampler.status, 400);
  EXPECT_NE(sampler.json()["detail"].get<std::string>().find("Sampler not found"),
            std::string::npos);
  for (const char* key : {"error", "detail", "body", "errors", "message"})
    EXPECT_TRUE(sampler.json().contains(key)) << key;
  EXPECT_FALSE(sampler.json().contains("images"));
  EXPECT_EQ(server_.post("/sdapi/v1/img2img", request_of("x")).status, 404);
  EXPECT_EQ(server_.post("/sdapi/v1/txt2img", {{"script_name", "x/y"}}).status, 422);
  EXPECT_EQ(server_.post("/sdapi/v1/txt2img", {{"restore_faces", true}}).status, 422);
  EXPECT_EQ(server_.post("/sdapi/v1/txt2img", request_of("fail")).status, 500);
  EXPECT_EQ(server_.post("/sdapi/v1/server-kill", {}).status, 404);
}

TEST_F(Clients, png_info__reads_what_txt2img_wrote) {
  const json made = server_.post("/sdapi/v1/txt2img", request_of("a fox, (red:1.2)")).json();
  const json info = server_.post("/sdapi/v1/png-info", {{"image", made["images"][0]}}).json();
  const json said = json::parse(made["info"].get<std::string>());
  EXPECT_EQ(info["info"], said["infotexts"][0]);
  EXPECT_EQ(info["parameters"]["Seed"], "9");
  EXPECT_EQ(info["parameters"]["Prompt"], "a fox, (red:1.2)");
}

TEST_F(Clients, extras__make_larger_pictures) {
  const json one = server_
                       .post("/sdapi/v1/extra-single-image", {{"image", coded(gradient(20, 30, 3))},
                                                              {"upscaler_1", "Lanczos"},
                                                              {"upscaling_resize", 2}})
                       .json();
  const std::string png = png_of(one["image"]);
  const Tensor large =
      io::decode_image({reinterpret_cast<const uint8_t*>(png.data()), png.size()}, "large", 3);
  EXPECT_EQ(large.shape(), (Shape{40, 60, 3}));
  const json image = {{"data", coded(gradient(8, 8, 3))}, {"name", "a"}};
  const json two = server_
                       .post("/v1/sdapi/v1/extra-batch-images",
                             {{"imageList", {image, image}}, {"upscaler_1", "None"}})
                       .json();
  EXPECT_EQ(two["images"].size(), 2u) << two.dump();
  EXPECT_EQ(server_
                .post("/sdapi/v1/extra-single-image",
                      {{"image", coded(gradient(8, 8, 3))}, {"gfpgan_visibility", 1}})
                .status,
            422);
}

TEST_F(Clients, controlnet__lists_and_maps) {
  EXPECT_EQ(server_.get("/controlnet/version").json()["version"], 2);
  EXPECT_EQ(server_.get("/controlnet/module_list?alias_names=true").json()["module_list"][1],
            "canny");
  const json body = {{"controlnet_module", "canny"},
                     {"controlnet_input_images", {coded(gradient(16, 16, 3))}}};
  const auto a = server_.post("/controlnet/detect", body);
  EXPECT_EQ(a.json()["images"].size(), 1u) << a.body;
  EXPECT_EQ(
      server_
          .post("/controlnet/detect", {{"controlnet_module", "openpose"},
                                       {"controlnet_input_images", {coded(gradient(8, 8, 3))}}})
          .status,
      422);
}

TEST_F(Clients, controlnet__detect_follows_its_thresholds) {
  const std::string image = coded(gradient(16, 16, 1));
  const auto map = [&](const json& changes) {
    json body = {{"controlnet_module", "threshold"}, {"controlnet_input_images", {image}}};
    body.update(changes);
    return server_.post("/controlnet/detect", body).json()["images"][0].get<std::string>();
  };
  EXPECT_EQ(map(json::object()), map({{"controlnet_threshold_a", 64}}));
  EXPECT_NE(map(json::object()), map({{"controlnet_threshold_a", 200}}));
  EXPECT_EQ(map({{"controlnet_threshold_a", 200.75}}), map({{"controlnet_threshold_a", 200}}));
}

// A unit is read before its model is looked up, which no test has.
TEST_F(Clients, controlnet__what_a_unit_asks_for_and_ebb_does_not_have_is_422) {
  const auto status = [&](const json& changes) {
    json unit = {
        {"model", "none.such"}, {"image", coded(gradient(16, 16, 3))}, {"module", "canny"}};
    unit.update(changes);
    json body = request_of("fox");
    body["alwayson_scripts"]["ControlNet"]["args"] = json::array({unit});
    return server_.post("/sdapi/v1/txt2img", body).status;
  };
  json no_list = request_of("fox");
  no_list["alwayson_scripts"]["ControlNet"]["args"] = {{"model", "none.such"}};
  EXPECT_EQ(server_.post("/sdapi/v1/txt2img", no_list).status, 422);
  EXPECT_EQ(status(json::object()), 400);
  EXPECT_EQ(status({{"threshold_a", 50}, {"threshold_b", 90}, {"hr_option", "Both"}}), 400);
  for (const json& known :
       {json(0), json(1), json(1.0), json("Crop and Resize"), json(2), json("Resize and Fill")})
    EXPECT_EQ(status({{"resize_mode", known}, {"control_mode", 2}}), 400) << known;
  for (const json& refused :
       {json{{"hr_option", "Low res only"}}, json{{"union_control_type", "Depth"}},
        json{{"mask", "x"}}, json{{"module", "openpose"}}, json{{"threshold_a", 1e6}},
        json{{"resize_mode", 3}}, json{{"resize_mode", 1e300}}, json{{"control_mode", 3}}})
    EXPECT_EQ(status(refused), 422) << refused;
}

// Easy Diffusion polls before the job is there, and stops at completed alone.
TEST_F(Clients, easy_diffusion__its_progress_loop_ends_also_where_the_job_fails) {
  const auto poll = [&](const std::string& id) {
    const json p = server_
                       .post("/v1/internal/progress",
                             {{"id_task", id}, {"live_preview", true}, {"id_live_preview", -1}})
                       .json();
    for (const char* key : {"active", "queued", "completed", "progress", "eta", "live_preview",
                            "id_live_preview", "textinfo"})
      EXPECT_TRUE(p.contains(key)) << key;
    return p;
  };
  EXPECT_EQ(server_.get("/v1/internal/ping").body, "{}");
  EXPECT_EQ(server_
                .post("/v1/sdapi/v1/options", {{"show_progress_every_n_steps", 3},
                                               {"show_progress_grid", true},
                                               {"live_previews_enable", false},
                                               {"forge_additional_modules", json::array()}})
                .status,
            200);
  EXPECT_FALSE(poll("one")["completed"].get<bool>());
  json body = request_of("fox", 60);
  body.update({{"force_task_id", "one"},
               {"sampler_name", nullptr},
               {"scheduler", "karras"},
               {"distilled_cfg_scale", 3.5},
               {"negative_prompt", ""}});
  std::jthread render(
      [&, body] { EXPECT_EQ(server_.post("/v1/sdapi/v1/txt2img", body).status, 200); });
  bool active = false;
  for (json p; !(p = poll("one"))["completed"].get<bool>();) active |= p["active"].get<bool>();
  EXPECT_TRUE(active);
  render.join();
  body["prompt"] = "fail", body["force_task_id"] = "two";
  const auto failed = server_.post("/v1/sdapi/v1/txt2img", body);
  EXPECT_EQ(failed.status, 500);
  EXPECT_NE(failed.json()["message"], "");
  EXPECT_TRUE(poll("two")["completed"].get<bool>());
  body["sampler_name"] = "nothing";  // 400 elsewhere: this client reads 500 alone
  EXPECT_EQ(server_.post("/v1/sdapi/v1/txt2img", body).status, 500);
}

TEST_F(Clients, progress__is_zero_where_nothing_runs_and_rises) {
  const json idle = server_.get("/sdapi/v1/progress").json();
  EXPECT_EQ(idle["progress"], 0.0);
  EXPECT_EQ(idle["state"]["job_count"], 0);
  EXPECT_EQ(idle["current_image"], nullptr);
  std::jthread render([&] {
    const auto a = server_.post("/sdapi/v1/txt2img", request_of("fox", 1000));
    EXPECT_EQ(a.status, 200);
    EXPECT_EQ(a.json()["images"].size(), 0u);
  });
  json p;
  for (int i = 0; i < 500; ++i) {
    p = server_.get("/sdapi/v1/progress").json();
    if (p["current_image"].is_string()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(p["current_image"].is_string());
  EXPECT_GE(p["progress"].get<double>(), 0.01);
  EXPECT_EQ(p["state"]["sampling_steps"], 1000);
  EXPECT_EQ(server_.post("/sdapi/v1/interrupt", json::object()).body, "{}");
}

// Row 24: a client that leaves.
TEST_F(Clients, row_24__client_that_leaves__its_job_ends_and_the_next_one_is_whole) {
  auto gone = std::make_unique<Wire>(server_.port());
  gone->send(http_request("POST", "/sdapi/v1/txt2img", request_of("fox", 1000).dump()));
  while (!server_.service().queue().running()) {
  }
  const std::string first = server_.service().queue().running()->job->id;
  std::jthread other([&] {
    const auto a = server_.post("/sdapi/v1/txt2img", request_of("cat"));
    EXPECT_EQ(a.json()["images"].size(), 1u);
  });
  gone.reset();
  EXPECT_EQ(server_.finished(first)["status"], "cancelled");
}

TEST_F(Clients, openai__generations_edits_models_and_faults) {
  const auto a = server_.post("/v1/images/generations", {{"prompt", "fox"},
                                                         {"model", "dall-e-2"},
                                                         {"n", 2},
                                                         {"size", "64x64"},
                                                         {"quality", "low"},
                                                         {"user", "u"}});
  ASSERT_EQ(a.status, 200) << a.body;
  EXPECT_EQ(a.json()["data"].size(), 2u);
  EXPECT_EQ(png_of(a.json()["data"][0]["b64_json"]).substr(1, 3), "PNG");
  const auto url = server_.post("/v1/images/generations", {{"prompt", "fox"},
                                                           {"size", "64x64"},
                                                           {"response_format", "url"},
                                                           {"output_format", "webp"}});
  const auto file = server_.get(path_of(url.json()["data"][0]["url"]));
  EXPECT_EQ(file.header("content-type"), "image/webp");
  const auto unknown = server_.post("/v1/images/generations", {{"prompt", "x"}, {"model", "y"}});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.json()["error"]["code"], "model_not_found");
  EXPECT_EQ(unknown.json()["error"]["type"], "invalid_request_error");
  EXPECT_EQ(server_.post("/v1/images/generations", {{"prompt", "x"}, {"n", 11}}).status, 422);
  EXPECT_EQ(server_.get("/v1/models").json()["object"], "list");
  const std::vector<uint8_t> png = io::encode_png(gradient(64, 64, 3));
  const std::string image(png.begin(), png.end());
  const auto edit = ask(server_.port(), "POST", "/v1/images/edits",
                        form_body({{"prompt", "cat"}, {"@image[]", image}, {"n", "1"}}), form_type);
  EXPECT_EQ(edit.status, 200) << edit.body;
  EXPECT_EQ(edit.json()["size"], "64x64");
  EXPECT_EQ(ask(server_.port(), "POST", "/v1/images/variations", form_body({{"@image", image}}),
                form_type)
                .status,
            200);
}

// What a request says and its answer does not follow is told, whatever the protocol.
TEST_F(Clients, ignored_fields__are_told_by_all) {
  const auto told = [&](const std::string& path, const json& body) {
    const auto a = server_.post(path, body);
    EXPECT_LT(a.status, 300) << a.body;
    return a.header("x-ebb-ignored");
  };
  json body = request_of("fox");
  body["odd"] = 1, body["override_settings"] = {{"webp_lossless", true}};
  EXPECT_EQ(told("/sdapi/v1/txt2img", body), "webp_lossless, odd");
  EXPECT_EQ(told("/v1/images/generations",
                 {{"prompt", "x"}, {"size", "64x64"}, {"style", "vivid"}, {"moderation", "low"}}),
            "moderation, style");
  EXPECT_EQ(
      told("/sdcpp/v1/img_gen",
           {{"prompt", "x"},
            {"width", 64},
            {"height", 64},
            {"odd", 1},
            {"sample_params", {{"sample_steps", 1}, {"shift", 3}, {"guidance", {{"slg", 1}}}}}}),
      "sample_params.guidance.slg, sample_params.shift, odd");
  EXPECT_EQ(told("/sdapi/v1/extra-single-image",
                 {{"image", coded(gradient(8, 8, 3))}, {"odd", 1}, {"upscale_first", true}}),
            "odd");
  Wire wire(server_.port());
  wire.send(http_request(
      "POST", "/v1/images/generations",
      json{{"prompt", "x"}, {"size", "64x64"}, {"stream", true}, {"style", "vivid"}}.dump()));
  EXPECT_TRUE(wire.until("X-Ebb-Ignored: style\r\n"));
}

TEST_F(Clients, openai_stream__partial_pictures_then_the_whole_one) {
  Wire wire(server_.port());
  const json body = {{"prompt", "fox"},
                     {"size", "64x64"},
                     {"stream", true},
                     {"partial_images", 2},
                     {"ebb", {{"steps", 200}}}};
  wire.send(http_request("POST", "/v1/images/generations", body.dump()));
  ASSERT_TRUE(wire.until("event: image_generation.completed\n"));
  while (wire.more()) {
  }
  const size_t partial = wire.read.find("event: image_generation.partial_image\n");
  EXPECT_LT(partial, wire.read.find("event: image_generation.completed\n"));
  EXPECT_NE(wire.read.find("\"partial_image_index\":0"), std::string::npos);
  Wire failing(server_.port());
  failing.send(http_request("POST", "/v1/images/generations",
                            json{{"prompt", "fail"}, {"stream", true}}.dump()));
  EXPECT_TRUE(failing.until("event: error\n"));
}

// Row 13: forms that are none.
TEST_F(Clients, row_13__multipart__faults_are_told_at_once) {
  const auto post = [&](const std::string& body, const std::string& type = form_type) {
    return ask(server_.port(), "POST", "/v1/images/edits", body, type).status;
  };
  EXPECT_EQ(post(std::string(10'000'000, 'x')), 400);
  EXPECT_EQ(post("--xyz\r\n",
                 "Content-Type: multipart/form-data; boundary=" + std::string(8000, 'b') + "\r\n"),
            400);
  std::vector<std::pair<std::string, std::string>> many(10'000, {"a", "b"});
  EXPECT_EQ(post(form_body(many)), 400);
  EXPECT_EQ(post("--xyz\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\nabc"), 400);
  EXPECT_EQ(post("{}", "Content-Type: application/json\r\n"), 415);
}

TEST_F(Clients, sdcpp__job_is_polled_and_can_be_cancelled) {
  const json body = {{"prompt", "fox"},
                     {"width", 64},
                     {"height", 64},
                     {"sample_params", {{"sample_steps", 2}, {"guidance", {{"txt_cfg", 5}}}}}};
  const auto made = server_.post("/sdcpp/v1/img_gen", body);
  ASSERT_EQ(made.status, 202) << made.body;
  EXPECT_EQ(server_.finished(made.json()["id"])["status"], "completed");
  const json done = server_.get(made.json()["poll_url"].get<std::string>()).json();
  EXPECT_EQ(done["result"]["output_format"], "png");
  EXPECT_EQ(done["result"]["images"][0]["index"], 0);
  json slow = body;
  slow["sample_params"]["sample_steps"] = 1000;
  const std::string url = server_.post("/sdcpp/v1/img_gen", slow).json()["poll_url"];
  EXPECT_EQ(server_.post(url + "/cancel", {}).status, 200);
  EXPECT_EQ(server_.get("/sdcpp/v1/jobs/none").status, 404);
  EXPECT_EQ(server_.post("/sdcpp/v1/vid_gen", {}).status, 501);
  EXPECT_TRUE(server_.get("/sdcpp/v1/capabilities").json()["samplers"].is_array());
}

}  // namespace ebb::testing
