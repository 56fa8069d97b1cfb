// Pictures of jobs that are made together, against those of `ebb generate`, with the model that
// comes with ebb.
#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/model_in_the_box.h"
#include "support/generate_program.h"
#include "support/pictures.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

double psnr(const Tensor& a, const Tensor& b) {
  double sum = 0;
  const auto x = a.span<uint8_t>(), y = b.span<uint8_t>();
  for (size_t i = 0; i < x.size(); ++i) sum += std::pow(double(x[i]) - double(y[i]), 2);
  return sum == 0 ? 200 : 10 * std::log10(255.0 * 255.0 * static_cast<double>(x.size()) / sum);
}

class BatchPicture : public GenerateProgram {
 protected:
  void start(int64_t most) {
    server_ = std::make_unique<TestServer>(
        folder_.path(), 1,
        [&](auto& o) {
          const std::filesystem::path box = model_in_the_box();
          o.folders = {{box.parent_path().string(), {}, true}};
          o.max_batch = most, o.batch_window = most > 1 ? 30'000 : 0;
        },
        [](const server::Catalogue& c) {
          cli::CommonOptions device;
          device.device = "cpu", device.threads = 1;
          return server::pipeline_engine(c, device, "auto");
        });
    server_->service().catalogue().wait_for_scan();
  }
  std::string post(const json& changes) const {
    json body = {{"prompt", "fox"}, {"steps", 3}, {"dtype", "f32"}};
    body.update(changes);
    const auto job = server_->post("/ebb/v1/jobs", body);
    EXPECT_EQ(job.status, 202) << job.body;
    return job.json()["id"];
  }
  // The first picture of a job, and what is told of it.
  Tensor made(const std::string& id, json* image = nullptr, std::string* parameters = nullptr) {
    const json done = server_->finished(id);
    EXPECT_EQ(done["status"], "completed") << done.dump();
    const std::string url = done["images"][0]["url"];
    if (image) *image = done["images"][0];
    if (parameters) *parameters = server_->get(url + "/meta").json()["parameters"];
    const auto bytes = server_->get(url).body;
    return io::decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "made",
                            3);
  }
  Tensor generated(const std::string& flags) {
    const Output out = run_program(str("generate --device cpu --threads 1 --steps 3 --dtype f32 ",
                                       "--overwrite --out ", png(), " ", flags));
    EXPECT_EQ(out.code, 0) << out.text;
    return io::read_image(png(), 3);
  }
  const std::vector<json> asked_ = {{{"prompt", "fox"}, {"seed", 7}},
                                    {{"prompt", "a red circle"}, {"seed", 8}},
                                    {{"prompt", "a blue square"}, {"seed", 7}}};
  const std::vector<std::string> flags_ = {"--prompt fox --seed 7",
                                           "--prompt 'a red circle' --seed 8",
                                           "--prompt 'a blue square' --seed 7"};
  std::unique_ptr<TestServer> server_;
};

}  // namespace

// Kernels are chosen for the whole batch, so the last bits may be others.
TEST_F(BatchPicture, made_together__is_generates_within_50_db) {
  start(3);
  post({{"n", 3}});  // loads the model: only then others join
  std::vector<std::string> ids;
  for (const json& a : asked_) ids.push_back(post(a));
  for (size_t i = 0; i < ids.size(); ++i) {
    json image;
    std::string parameters;
    const Tensor picture = made(ids[i], &image, &parameters), alone = generated(flags_[i]);
    ASSERT_EQ(picture.shape(), alone.shape());
    EXPECT_GE(psnr(picture, alone), 50) << i;
    EXPECT_EQ(image["batch"], 3) << image.dump();
    EXPECT_NE(parameters.find("Batch size: 3"), std::string::npos) << parameters;
  }
}

// What is promised where nothing else is asked for.
TEST_F(BatchPicture, by_default__each_has_generates_bits_whoever_else_asks) {
  start(1);
  std::vector<std::string> ids;
  for (const json& a : asked_) ids.push_back(post(a));
  for (size_t i = 0; i < ids.size(); ++i) {
    const Tensor picture = made(ids[i]), alone = generated(flags_[i]);
    ASSERT_EQ(picture.shape(), alone.shape());
    EXPECT_EQ(largest_difference(picture, alone), 0) << i;
  }
}

}  // namespace ebb::testing
