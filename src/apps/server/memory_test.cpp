// Memory of a server that has made many pictures, and changed models many times.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/generate_program.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

// Not what is resident: that depends on how tests before this one left the heap's pieces. The least
// of half a second, as threads let go of the last job behind its answer. What threads keep for
// their next allocations counts.
int64_t bytes_in_use() {
  size_t least = SIZE_MAX;
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto heap = ::mallinfo2();
    least = std::min(least, heap.uordblks + heap.hblkhd);
  }
  return static_cast<int64_t>(least);
}

// Mapped parts of the files in this folder.
int64_t mappings_of(const std::string& folder) {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(folder) != line.npos;
  return count;
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
  // `known`: finished jobs that are kept, with as many events each as a picture has.
  void start(const server::Service::MakeEngine& engine, size_t known) {
    server_ = std::make_unique<TestServer>(
        folder_.path(), 0,
        [&](auto& o) {
          o.folders = {{.path = folder_ / "models", .kind = {}}};
          o.queue.known = known;
          o.queue.events = known * 8;
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
  // Behind a first part, which fills what is kept, the rest needs no more than the ids of finished
  // jobs, of which 10,000 are known, and what differs from picture to picture.
  void expect_flat(int before, int rest, int same) {
    constexpr int64_t bytes_of_id = 128, differs = 256 << 10;
    const std::string models = folder_ / "models";
    make_many(before, same);
    const int64_t first = bytes_in_use(), mappings = mappings_of(models);
    make_many(rest, same);
    const int64_t last = bytes_in_use();
    EXPECT_LE(mappings_of(models), mappings);
    EXPECT_LE(last - first, differs + rest * bytes_of_id) << first << " bytes, then " << last;
  }
  std::unique_ptr<TestServer> server_;
  int made_ = 0;
};

}  // namespace

TEST_F(ServerMemory, row_26__many_jobs_and_changes_of_the_model__need_no_more) {
  start({}, 100);
  expect_flat(500, 500, 5);  // 200 changes
}

TEST_F(ServerMemory, row_26__models_that_are_loaded_again_and_again__need_no_more) {
  constexpr int known = 4;
  const auto engine = [](const server::Catalogue& c) {
    cli::CommonOptions device;
    device.device = "cpu", device.threads = 1;
    return server::pipeline_engine(c, device, "auto");
  };
  start(engine, known);
  expect_flat(known + 6, 10, 1);
}

}  // namespace ebb::testing
