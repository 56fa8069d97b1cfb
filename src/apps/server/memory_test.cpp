// Memory of a server that has made many pictures, and changed models many times.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/generate_program.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

int64_t resident_bytes() {
  ::malloc_trim(0);
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

class ServerMemory : public GenerateProgram {
 protected:
  void SetUp() override {
#ifdef EBB_SANITIZE
    GTEST_SKIP() << "a sanitizer keeps memory that is free";
#endif
    GenerateProgram::SetUp();
    if (IsSkipped()) return;
    std::filesystem::create_directories(folder_ / "models");
    for (const char* name : {"models/a", "models/b"})
      checkpoint({unet(), text(), autoencoder()}, name);
  }
  // `known`: finished jobs that are kept.
  void start(const server::Service::MakeEngine& engine, size_t known) {
    server_ = std::make_unique<TestServer>(
        folder_.path(), 0,
        [&](auto& o) {
          o.folders = {{.path = folder_ / "models", .kind = {}}};
          o.queue.known = known;
        },
        engine);
    server_->service().catalogue().wait_for_scan();
  }
  // So many pictures, the model changed behind every `same`.
  void make_many(int pictures, int same) {
    for (int i = 0; i < pictures; ++i) {
      const json body = {
          {"prompt", "fox"},
          {"steps", 1},
          {"width", 32},
          {"height", 32},
          {"seed", 7},
          {"override_settings", {{"sd_model_checkpoint", made_++ / same % 2 == 0 ? "a" : "b"}}}};
      ASSERT_EQ(server_->post("/sdapi/v1/txt2img", body).status, 200) << i;
    }
  }
  // Behind a first part, which fills what is kept, the rest needs no more than 1 %, and the ids of
  // finished jobs, of which 10,000 are known.
  void expect_flat(int before, int rest, int same) {
    constexpr int64_t bytes_of_id = 128;
    make_many(before, same);
    const int64_t first = resident_bytes();
    make_many(rest, same);
    const int64_t last = resident_bytes();
    EXPECT_LE(last - first, first / 100 + rest * bytes_of_id) << first << " bytes, then " << last;
  }
  std::unique_ptr<TestServer> server_;
  int made_ = 0;
};

}  // namespace

TEST_F(ServerMemory, row_26__many_jobs_and_changes_of_the_model__need_no_more) {
  start({}, 100);
  expect_flat(1500, 1500, 15);  // 200 changes
}

TEST_F(ServerMemory, row_26__models_that_are_loaded_again_and_again__need_no_more) {
  constexpr int known = 20;
  const auto engine = [](const server::Catalogue& c) {
    cli::CommonOptions device;
    device.device = "cpu", device.threads = 1;
    return server::pipeline_engine(c, device, "auto");
  };
  start(engine, known);
  expect_flat(known + 10, 30, 1);
}

}  // namespace ebb::testing
