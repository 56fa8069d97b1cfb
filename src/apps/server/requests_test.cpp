// What requests say: limits, values that stand for none, and settings that the server decides.
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/server/base64.h"
#include "apps/server/fault.h"
#include "apps/server/request_limits.h"
#include "io/image.h"
#include "support/pictures.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

class Requests : public ::testing::Test {
 protected:
  static json body(const json& changes) {
    json out = {{"prompt", "fox"}, {"steps", 1}, {"width", 64}, {"height", 64}};
    out.update(changes);
    return out;
  }
  static std::string picture() { return server::base64(io::encode_png(gradient(16, 16, 3))); }
  Folder folder_;
  TestServer server_{folder_.path()};
};

}  // namespace

TEST_F(Requests, pictures__are_bounded_in_number) {
  server::SettingsBuilder builder(server_.service().source());
  const Tensor pixels(DType::u8, {1, 1, 3});
  for (size_t i = 0; i < server::most_pictures; ++i) builder.picture(str("p", i), pixels);
  EXPECT_NO_THROW(builder.picture("p0", pixels)) << "in place of the one before";
  EXPECT_THROW(builder.picture("one_more", pixels), server::HttpFault);
  const json many(std::vector<std::string>(server::most_pictures + 1, picture()));
  for (const auto& [route, field] : {std::pair{"/controlnet/detect", "controlnet_input_images"},
                                     {"/sdapi/v1/extra-batch-images", "imageList"}}) {
    json request = {{field, json::array()}};
    for (const auto& image : many)
      request[field].push_back(std::string(field) == "imageList" ? json{{"data", image}} : image);
    const auto a = server_.post(route, request);
    EXPECT_EQ(a.status, 422) << a.body;
    EXPECT_NE(a.body.find("at most 17 pictures"), std::string::npos) << a.body;
  }
}

// A unit whose model is not there is read before that is told (400).
TEST_F(Requests, empty_texts__stand_for_none) {
  const auto status = [&](const char* task, const json& unit, json more = json::object()) {
    json changes = {{"alwayson_scripts", {{"controlnet", {{"args", json::array({unit})}}}}}};
    changes.update(more);
    const auto a = server_.post(str("/sdapi/v1/", task), body(changes));
    return std::pair(a.status, a.body.find("not in the catalogue") != std::string::npos);
  };
  const auto read = std::pair(400, true);
  const json unit = {{"model", "none.such"}, {"image", picture()}};
  json empty = unit;
  for (const char* field : {"mask", "mask_image", "effective_region_mask", "union_control_type"})
    empty[field] = "";
  EXPECT_EQ(status("txt2img", empty), read);
  empty["mask"] = picture();
  EXPECT_EQ(status("txt2img", empty).first, 422);
  const json init = {{"init_images", {picture()}}, {"latent_mask", ""}};
  for (const char* no_image : {"", "input_image"}) {
    json of_init = {{"model", "none.such"}, {"image", ""}};
    if (*no_image != '\0') of_init[no_image] = "";
    EXPECT_EQ(status("img2img", of_init, init), read) << "the start picture is its picture";
    EXPECT_EQ(status("txt2img", of_init).first, 422);
  }
  json masked = init;
  masked["latent_mask"] = picture();
  EXPECT_EQ(server_.post("/sdapi/v1/img2img", body(masked)).status, 422);
  EXPECT_EQ(server_.post("/sdcpp/v1/img_gen", {{"prompt", "x"}, {"control_image", ""}}).status,
            202);
}

TEST_F(Requests, hr_scale__is_not_looked_at_where_hr_resize_takes_its_place) {
  const auto status = [&](const json& changes) {
    json all = {{"enable_hr", true}, {"hr_scale", 0}};
    all.update(changes);
    return server_.post("/sdapi/v1/txt2img", body(all)).status;
  };
  EXPECT_EQ(status({{"hr_resize_x", 128}, {"hr_resize_y", 128}}), 200);
  EXPECT_EQ(status(json::object()), 422);
}

// As A1111 does: there is no second pass of the same size.
TEST_F(Requests, hr_scale_1__makes_no_second_pass) {
  json all = body({{"enable_hr", true}, {"hr_scale", 1}, {"force_task_id", "once"}});
  ASSERT_EQ(server_.post("/sdapi/v1/txt2img", all).status, 200);
  const json settings = server_.get("/ebb/v1/jobs/once").json()["settings"];
  EXPECT_FALSE(settings.contains("hires")) << settings.dump();
}

// Protocols send `eta` to all samplers; what is asked for by name fails before the job is made.
TEST_F(Requests, options__are_those_of_the_sampler) {
  const auto sdcpp = [&](const json& params) {
    return server_.post("/sdcpp/v1/img_gen", {{"prompt", "fox"}, {"sample_params", params}});
  };
  const auto status_of = [&](const HttpAnswer& a) {
    EXPECT_EQ(a.status, 202) << a.body;
    return server_.finished(a.json()["id"])["status"];
  };
  EXPECT_EQ(status_of(sdcpp({{"sample_method", "dpmpp_2m"}, {"eta", 0}})), "completed");
  EXPECT_EQ(status_of(sdcpp({{"eta", 0}})), "completed");
  const auto ignored = sdcpp({{"sample_method", "dpmpp_2m"}, {"eta", 0.5}});
  EXPECT_EQ(ignored.header("x-ebb-ignored"), "sample_params.eta");
  EXPECT_EQ(sdcpp({{"sample_method", "ddim"}, {"eta", 0.5}}).header("x-ebb-ignored"), "");
  EXPECT_EQ(sdcpp({{"sample_method", "none.such"}, {"eta", 0}}).status, 400);
  for (const auto& [sampler, options, status] : {std::tuple{"ddim", "eta=0.5", 202},
                                                 {"dpmpp_2m", "eta=0.5", 422},
                                                 {"auto", "eta=0.5", 422},
                                                 {"ddim", "eta=x", 422},
                                                 {"ddim", "none=1", 422},
                                                 {"DPM++ 2M Karras", "", 202}}) {
    const auto a =
        server_.post("/ebb/v1/jobs", {{"prompt", "x"}, {"sampler", sampler}, {"options", options}});
    EXPECT_EQ(a.status, status) << sampler << ' ' << options << a.body;
  }
}

// Flags of the command line are none of a client's.
TEST_F(Requests, errors_of_size_and_lora_tags__name_no_flags) {
  const auto size = server_.post("/ebb/v1/jobs", {{"prompt", "fox"}, {"size", "abc"}});
  EXPECT_EQ(size.status, 422);
  EXPECT_EQ(size.json()["error"]["message"],
            "size: must be auto, N or WIDTHxHEIGHT in pixels, 1 to 4096 a side (got 'abc')");
  const auto tag = server_.post("/ebb/v1/jobs", {{"prompt", "fox <lora:none:1>"}});
  EXPECT_EQ(tag.status, 400);
  EXPECT_EQ(tag.json()["error"]["message"], "prompt: <lora:none>: the catalogue has no LoRA files");
}

// A client whose body was lost does not get a picture of nothing.
TEST_F(Requests, body_of_a_job__may_say_nothing_but_has_to_be_there) {
  for (const char* body : {"", " \n"}) {
    const auto a = ask(server_.port(), "POST", "/ebb/v1/jobs", body);
    EXPECT_EQ(a.status, 400);
    EXPECT_NE(a.body.find("the body is empty"), std::string::npos) << a.body;
  }
  const auto open = server_.post("/ebb/v1/jobs", json::object());
  EXPECT_EQ(open.status, 202) << open.body;
  EXPECT_TRUE(open.json()["settings"].contains("seed")) << "which was drawn";
  const json all = server_.get("/ebb/v1/catalogue").json()["settings"];
  const auto seed =
      std::ranges::find_if(all, [](const json& setting) { return setting["name"] == "seed"; });
  ASSERT_NE(seed, all.end());
  EXPECT_EQ((*seed)["default"], -1);
}

TEST_F(Requests, numbers_in_queries__say_their_range) {
  const auto error = [&](const char* target) {
    return server_.get(str("/ebb/v1/", target)).json()["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(error("images?limit=-1"), "limit: must be a whole number from 1 to 200 (got '-1')");
  EXPECT_EQ(error("images?limit=201"), "limit: must be a whole number from 1 to 200 (got '201')");
  EXPECT_EQ(error("images?limit=0"), "limit: must be a whole number from 1 to 200 (got '0')");
  EXPECT_EQ(error("state?since=x"), "since: must be a whole number (got 'x')");
}

// As they were sent.
TEST_F(Requests, samplers_that_are_unknown__are_named) {
  for (const std::string name : {"Eulr", "dpmp_2m", "Eulr Karras"}) {
    const auto sampler = server_.post("/ebb/v1/jobs", {{"sampler", name}});
    EXPECT_EQ(sampler.status, 400);
    EXPECT_NE(sampler.body.find("unknown name '" + name + "'"), std::string::npos) << sampler.body;
  }
  EXPECT_EQ(server_.post("/ebb/v1/jobs", {{"sampler", "DPM++ 2M Karras"}}).status, 202);
}

// At once, not by the job that waits for its turn.
TEST_F(Requests, settings_without_effect__are_refused_before_they_are_queued) {
  const struct {
    json settings;
    std::string error;
  } cases[] = {
      {{{"strength", 0.5}}, "strength: has no effect without init"},
      {{{"mask", picture()}}, "mask: has no effect without init"},
      {{{"init", picture()}, {"mask_blur", 3}}, "mask_blur: has no effect without mask"},
      {{{"init", picture()}, {"mask", picture()}, {"mask_padding", 5}},
       "mask_padding: has no effect without only_masked"},
      {{{"init", picture()}, {"outpaint", "8,0,0,0"}, {"fit", "crop"}},
       "fit: has no effect with outpaint"},
      {{{"init", picture()}, {"mask", picture()}, {"mask_blur", -2}},
       "mask_blur: must be from -1 to"},
      {{{"control_mode", "prompt"}}, "control_mode: has no effect without control"},
  };
  for (const auto& c : cases) {
    json job = {{"prompt", "fox"}, {"steps", 1}, {"size", "64x64"}};
    job.update(c.settings);
    const auto a = server_.post("/ebb/v1/jobs", job);
    EXPECT_EQ(a.status, 422) << a.body;
    EXPECT_NE(a.body.find(c.error), std::string::npos) << a.body;
  }
}

}  // namespace ebb::testing
