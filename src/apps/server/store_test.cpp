// Files of the server's own folders that others broke: told, and nothing else is touched.
#include "apps/server/store.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "apps/server/queue.h"
#include "support/files.h"

namespace ebb::server {
namespace {

namespace fs = std::filesystem;

std::vector<uint8_t> picture() {
  return io::encode_picture(io::PictureFormat::png, Tensor(DType::u8, {4, 4, 3}), {}, 80);
}

TEST(Store, file_that_is_gone__is_no_picture_and_one_that_cannot_be_read_is_an_error) {
  const ebb::testing::Folder folder;
  Store store(folder.path());
  const std::string gone = store.add(picture(), {.seed = 1});
  const std::string broken = store.add(picture(), {.seed = 2});
  ASSERT_TRUE(store.bytes(gone) && store.bytes(broken));
  fs::remove(folder / (gone + ".png"));
  EXPECT_FALSE(store.bytes(gone));
  EXPECT_FALSE(store.find(gone));
  fs::remove(folder / (broken + ".png"));
  fs::create_directory(folder / (broken + ".png"));
  EXPECT_THROW(store.bytes(broken), Error);
  EXPECT_TRUE(store.find(broken)) << "it may be read another time";
}

// A job's file, with these as its format and the name of its input.
std::string job_text(int format, const std::string& input) {
  return str(R"({"id":"a","created":1,"done":0,"kind":"generate","client":"","format":)", format,
             R"(,"quality":80,"shown":{},"given":[],"inputs":[")", input,
             R"("],"settings":{},"upscale":{}})");
}

TEST(read_jobs, formats_and_inputs_that_there_are_not__are_refused_with_the_file) {
  const ebb::testing::Folder folder;
  ebb::testing::put_file(folder / "first.json", job_text(7, "init"));
  ebb::testing::put_file(folder / "second.json", job_text(0, "../../other"));
  std::vector<std::string> told;
  const auto jobs = read_jobs(folder.path(), [&](const std::string& t) { told.push_back(t); });
  EXPECT_TRUE(jobs.empty());
  ASSERT_EQ(told.size(), 2u);
  const std::string all = told[0] + told[1];
  for (const char* words :
       {"format must be 0 to 2, not 7", "first.json", "../../other", "second.json"})
    EXPECT_NE(all.find(words), all.npos) << words << " in " << all;
  EXPECT_EQ(folder.files(), 2u);
}

}  // namespace
}  // namespace ebb::server
