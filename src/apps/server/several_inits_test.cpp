// Several init_images of A1111's img2img.
#include <gtest/gtest.h>

#include <set>

#include "apps/server/base64.h"
#include "io/image.h"
#include "support/pictures.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

std::string coded_level(const Tensor& t) { return server::base64(io::encode_png(t)); }

Tensor plain(uint8_t level) {
  Tensor t(DType::u8, {64, 64, 3});
  std::ranges::fill(t.span<uint8_t>(), level);
  return t;
}

json of_levels(const std::vector<uint8_t>& levels, int64_t batch, int64_t rounds = 1) {
  json images = json::array();
  for (const uint8_t level : levels) images.push_back(coded_level(plain(level)));
  return {{"prompt", "fox"},
          {"steps", 2},
          {"width", 64},
          {"height", 64},
          {"seed", 9},
          {"batch_size", batch},
          {"n_iter", rounds},
          {"init_images", images},
          {"denoising_strength", 0.5}};
}

struct Several : ::testing::Test {
  json made(const json& body) {
    const auto answer = server_.post("/sdapi/v1/img2img", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  Folder folder_;
  TestServer server_{folder_.path(), 1};
};

}  // namespace

// Each picture is that which its start picture and its seed make alone.
TEST_F(Several, init_images__one_for_each_picture_of_the_batch) {
  const json all = made(of_levels({20, 220}, 2, 2));
  ASSERT_EQ(all["images"].size(), 4u);
  const json info = json::parse(all["info"].get<std::string>());
  EXPECT_EQ(info["all_seeds"], (json{9, 10, 11, 12}));
  for (size_t i = 0; i < 4; ++i) {
    json one = of_levels({i % 2 == 0 ? uint8_t{20} : uint8_t{220}}, 1);
    one["seed"] = 9 + i;
    const auto pixels = [](const json& image) {
      const std::string bytes = *server::base64_decoded(image.get<std::string>());
      return io::decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x",
                              3);
    };
    EXPECT_EQ(largest_difference(pixels(all["images"][i]), pixels(made(one)["images"][0])), 0) << i;
  }
}

TEST_F(Several, init_images__are_as_many_as_batch_size) {
  for (const int64_t batch : {1, 3}) {
    const auto answer = server_.post("/sdapi/v1/img2img", of_levels({20, 220}, batch));
    EXPECT_EQ(answer.status, 422);
    EXPECT_EQ(answer.json()["message"],
              "init_images: one image is taken, or as many as batch_size, which is " +
                  std::to_string(batch) + " (got 2)");
  }
  EXPECT_EQ(made(of_levels({20}, 3))["images"].size(), 3u);
}

// A unit without an image would have another one in each picture.
TEST_F(Several, init_images__are_none_of_control_networks) {
  json body = of_levels({20, 220}, 2);
  body["alwayson_scripts"] = {{"controlnet", {{"args", {{{"model", "x"}}}}}}};
  const auto answer = server_.post("/sdapi/v1/img2img", body);
  EXPECT_EQ(answer.status, 422) << answer.body;
  EXPECT_NE(answer.json()["message"].get<std::string>().find("needs an image"), std::string::npos);
}

// They lie beside the job, and a process that goes on with it has them.
TEST(server_queue, several_start_pictures__survive_the_process) {
  Folder folder;
  json body = of_levels({20, 220}, 2, 2);
  body["save_images"] = true, body["force_task_id"] = "several";
  std::vector<std::string> before;
  {
    TestServer s(folder.path(), 100);
    const std::jthread asks([&] { s.post("/sdapi/v1/img2img", body); });
    while (s.get("/ebb/v1/jobs/several").json().value("images", json::array()).empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    s.service().stop();
  }
  TestServer s(folder.path(), 1);
  const json done = s.finished("several");
  EXPECT_EQ(done["status"], "completed") << done.dump();
  const json gallery = s.get("/ebb/v1/images").json()["images"];
  std::multiset<std::string> seeds;  // of names, "20260102-030405-123456789-SEED-TAG"
  for (const json& i : gallery) {
    const std::string id = i["id"];
    seeds.insert(id.substr(26, id.rfind('-') - 26));
  }
  EXPECT_EQ(seeds, (std::multiset<std::string>{"9", "10", "11", "12"})) << gallery.dump();
}

}  // namespace ebb::testing
