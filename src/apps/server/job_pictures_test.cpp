// Answers have all pictures of a job, or say why not.
#include "apps/server/job_pictures.h"

#include <gtest/gtest.h>

#include "apps/server/fault.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

// Its picture number 1 cannot be encoded.
class OddPictures final : public server::Engine {
 public:
  void run(const server::Job& job, int64_t, server::JobEvents& events) override {
    for (int64_t i = 0; i < job.spec.images(); ++i)
      events.picture({i, Tensor(i == 1 ? DType::f32 : DType::u8, {8, 8, 3}), {}, 0});
  }
  Joins joins(const server::Job&) override { return {}; }
  void run_batch(std::span<server::BatchMember>) override {}
  server::JobMemory plan(const server::Job&) override { return {}; }
  void release() override {}
  std::string loaded() const override { return ""; }
};

const json two = {{"prompt", "x"}, {"steps", 1}, {"width", 64}, {"height", 64}, {"n_iter", 2}};

}  // namespace

TEST(job_pictures, picture_that_is_not_encoded__makes_a_failed_job_of_it) {
  const Folder folder;
  TestServer s(folder.path(), 0, {}, [](const auto&) { return std::make_unique<OddPictures>(); });
  const auto a = s.post("/sdapi/v1/txt2img", two);
  EXPECT_EQ(a.status, 500) << a.body;
  EXPECT_NE(a.body.find("1 of the job's 2 pictures could not be encoded: "), std::string::npos)
      << a.body;
  const json job = s.post("/ebb/v1/jobs", {{"prompt", "x"}, {"n", 3}}).json();
  const json done = s.finished(job["id"]);
  EXPECT_EQ(done["status"], "failed");
  EXPECT_EQ(done["images"].size(), 2u) << "those that are finished stay";
}

TEST(job_pictures, pictures_that_are_gone__are_told_by_their_number) {
  server::Store store("", {.bytes = 100});
  server::JobView v;
  for (int64_t i = 0; i < 3; ++i)
    v.images.push_back({.index = i, .id = store.add(std::vector<uint8_t>(60), {.keep = false})});
  try {
    server::files_of_pictures(store, v);
    ADD_FAILURE();
  } catch (const server::HttpFault& f) {
    EXPECT_EQ(f.status, 507);
    EXPECT_NE(std::string(f.what()).find("2 of the 3 pictures"), std::string::npos) << f.what();
  }
  v.images.erase(v.images.begin(), v.images.begin() + 2);
  EXPECT_EQ(server::files_of_pictures(store, v), std::vector{std::string(60, '\0')});
}

// Whichever of them is encoded first, and though all are of one second.
TEST(job_pictures, gallery__has_them_in_the_order_in_which_they_were_made) {
  const Folder folder;
  TestServer s(folder.path(), 0);
  std::vector<std::string> made, listed;
  for (const int seed : {50, 7}) {
    const json job = {{"prompt", "x"}, {"size", "64x64"}, {"seed", seed}, {"n", 12}};
    const json done = s.finished(s.post("/ebb/v1/jobs", job).json()["id"]);
    for (const json& i : done["images"]) made.insert(made.begin(), i["id"]);
  }
  const json images = s.get("/ebb/v1/images?limit=100").json()["images"];
  for (const json& i : images) listed.push_back(i["id"]);
  EXPECT_EQ(made.size(), 24u);
  EXPECT_EQ(listed, made);
}

TEST(job_pictures, one_that_is_deleted__is_told_to_all) {
  const Folder folder;
  TestServer s(folder.path(), 0);
  const json done = s.finished(s.post("/ebb/v1/jobs", {{"prompt", "x"}, {"n", 2}}).json()["id"]);
  const std::string since = s.get("/ebb/v1/state").json()["seq"].dump();
  const std::string id = done["images"][0]["id"];
  EXPECT_EQ(ask(s.port(), "DELETE", "/ebb/v1/images/" + id).status, 200);
  EXPECT_EQ(ask(s.port(), "DELETE", "/ebb/v1/images/" + id).status, 404) << "which is not told";
  const json events = s.get("/ebb/v1/state?since=" + since).json()["events"];
  ASSERT_EQ(events.size(), 1u) << events.dump();
  EXPECT_EQ(events[0]["event"], "deleted");
  EXPECT_EQ(events[0]["data"], (json{{"ids", {id}}}));
}

// In each protocol whose pictures lie in memory.
TEST(job_pictures, job_whose_pictures_would_not_fit__422_before_it_is_made) {
  const Folder folder;
  TestServer s(folder.path(), 0, [](auto& o) { o.memory.bytes = 3 * 64 * 64 * 3; });
  json many = two;
  EXPECT_EQ(s.post("/sdapi/v1/txt2img", many).status, 200);
  many["n_iter"] = 4;
  const auto a = s.post("/sdapi/v1/txt2img", many);
  EXPECT_EQ(a.status, 422) << a.body;
  EXPECT_NE(a.body.find("4 pictures of 4096 pixels may have 49152 bytes"), std::string::npos)
      << a.body;
  many["save_images"] = true;
  EXPECT_EQ(s.post("/sdapi/v1/txt2img", many).status, 200) << "they are kept in the folder";
  EXPECT_EQ(s.post("/v1/images/generations", {{"prompt", "x"}, {"size", "128x128"}}).status, 422);
  EXPECT_EQ(s.post("/sdcpp/v1/img_gen", {{"prompt", "x"}, {"width", 128}, {"height", 128}}).status,
            400);
}

}  // namespace ebb::testing
