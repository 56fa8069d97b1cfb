// Files of the server's own folders that others broke: told, and nothing else is touched.
#include "apps/server/store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "apps/server/queue.h"
#include "io/image.h"
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

// Opening a pipe would wait for its writer.
TEST(Store, links_folders_and_pipes__are_no_pictures) {
  const ebb::testing::Folder folder;
  const auto place = [&](char last) {
    return folder / str("20261101-000000-1-0123456789abcde", last, ".png");
  };
  fs::create_symlink("/etc/passwd", place('1'));
  fs::create_directory(place('2'));
  ASSERT_EQ(::mkfifo(place('3').c_str(), 0600), 0);
  Store store(folder.path());
  EXPECT_TRUE(store.list("", 50).empty());
  const std::string id = store.add(picture(), {.seed = 1});
  fs::remove(folder / (id + ".png"));
  ASSERT_EQ(::mkfifo((folder / (id + ".png")).c_str(), 0600), 0);
  EXPECT_TRUE(store.bytes(id)->empty());
  fs::remove(folder / (id + ".png"));
  fs::create_directory(folder / (id + ".png"));
  ASSERT_TRUE(store.facts(id)) << "the gallery lists the others";
  EXPECT_EQ(store.facts(id)->width, 0);
}

TEST(Store, list__is_in_order_of_time_also_within_a_second) {
  const ebb::testing::Folder folder;
  std::optional<Store> store(folder.path());
  const auto now = std::chrono::system_clock::now();
  const auto add = [&](uint64_t seed, int nanoseconds) {
    const auto made =
        std::chrono::floor<std::chrono::seconds>(now) + std::chrono::nanoseconds(nanoseconds);
    return store->add(picture(), {.seed = seed, .made = made});
  };
  const std::string third = add(1, 999'999'999), first = add(9, 1), second = add(5, 20);
  const std::vector<std::string> listed = {third, second, first};
  EXPECT_EQ(store->list("", 50), listed);
  EXPECT_EQ(store->list(second, 50), std::vector{first});
  store.reset();
  EXPECT_EQ(Store(folder.path()).list("", 50), listed);
}

TEST(Store, picture_that_cannot_be_written__is_told_with_the_folder_and_stays_in_memory) {
  const ebb::testing::Folder folder;
  Store store(folder / "out");
  fs::remove(folder / "out");
  std::string fault;
  const std::string id = store.add(picture(), {.seed = 1}, &fault);
  EXPECT_NE(fault.find("the picture is not saved (No such file or directory)"), fault.npos);
  EXPECT_NE(fault.find(folder / "out"), fault.npos) << fault;
  EXPECT_TRUE(store.bytes(id));
  EXPECT_TRUE(store.list("", 50).empty());
}

// A search reads thousands of them: their pixels are not looked at.
TEST(Store, facts_of_a_png__are_those_in_front_of_and_behind_its_pixels) {
  Store store("");
  Tensor noise(DType::u8, {40, 240, 3});  // more than one chunk
  uint32_t v = 1;
  for (uint8_t& p : noise.span<uint8_t>()) p = static_cast<uint8_t>((v = 1664525 * v + 1013) >> 24);
  auto bytes = io::encode_png(noise, {{"parameters", "a fox"}});
  constexpr std::string_view name = "IDAT";
  const auto data =
      std::search(bytes.begin(), bytes.end(), name.begin(), name.end()) + std::ssize(name);
  const auto size = static_cast<size_t>(data[-5]) + 256u * data[-6];
  std::fill_n(data, size, uint8_t{0x55});  // pixels that cannot be unpacked, in a whole chunk
  const auto sum = ::crc32(0, &data[-4], static_cast<uInt>(4 + size));
  for (size_t i = 0; i < 4; ++i)
    data[static_cast<std::ptrdiff_t>(size + i)] = static_cast<uint8_t>(sum >> (24 - 8 * i));
  const auto id = store.add(std::move(bytes), {.keep = false});
  EXPECT_THROW(store.thumb(id), Error);
  const auto facts = store.facts(id);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->parameters, "a fox");
  EXPECT_EQ(facts->width, 240);
  EXPECT_EQ(facts->height, 40);
}

TEST(Store, pictures_in_memory__go_by_time_and_by_their_bytes) {
  const size_t bytes = picture().size();
  Store by_time("", {.seconds = 0.05});
  const std::string old = by_time.add(picture(), {.keep = false});
  ASSERT_TRUE(by_time.bytes(old));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  by_time.forget();
  EXPECT_FALSE(by_time.bytes(old)) << "though no other was added";
  Store by_bytes("", {.bytes = 2 * bytes});
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(by_bytes.add(picture(), {.keep = false}));
  EXPECT_FALSE(by_bytes.find(ids[0]) || by_bytes.find(ids[1]));
  EXPECT_TRUE(by_bytes.bytes(ids[2]) && by_bytes.bytes(ids[3]));
  EXPECT_TRUE(by_bytes.remove(ids[2]));
  by_bytes.add(picture(), {.keep = false});
  EXPECT_TRUE(by_bytes.bytes(ids[3])) << "what was removed does not count";
}

// Of this thread, whatever else the machine does.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Processor time of 1000 questions.
double time_of_tags(const Store& store, const std::string& tag) {
  const double start = processor_seconds();
  for (int k = 0; k < 1000; ++k) EXPECT_NE(store.with_tag(tag), "");
  return processor_seconds() - start;
}

TEST(Store, with_tag__takes_no_longer_in_a_large_gallery) {
  const std::string tag = "ffffffff";
  const ebb::testing::Folder folder;
  const auto filled = [&](const std::string& name, int pictures) {
    const std::string in = folder / name;
    fs::create_directories(in);
    for (int i = 0; i < pictures; ++i)
      ebb::testing::put_file(str(in, "/20260101-000000-", i, "-", 10000000 + i, ".png"), "x");
    ebb::testing::put_file(str(in, "/20260102-000000-1-", tag, ".png"), "x");
    return in;
  };
  Store small(filled("few", 20)), large(filled("many", 4000));
  EXPECT_EQ(large.with_tag(tag), "20260102-000000-1-" + tag);
  EXPECT_EQ(large.with_tag("10000007"), "20260101-000000-7-10000007");
  EXPECT_EQ(large.with_tag("1000000"), "");
  double least_large = 1e9, least_small = 1e9;  // in turns: both meet the same machine
  for (int i = 0; i < 9; ++i) {
    least_small = std::min(least_small, time_of_tags(small, tag));
    least_large = std::min(least_large, time_of_tags(large, tag));
  }
  EXPECT_LT(least_large, 20 * least_small) << "of 200 times as many pictures";
  EXPECT_TRUE(large.remove("20260102-000000-1-" + tag));
  EXPECT_EQ(large.with_tag(tag), "");
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
  for (const char* words : {"format must be a whole number from 0 to 2, not 7", "first.json",
                            "../../other", "second.json"})
    EXPECT_NE(all.find(words), all.npos) << words << " in " << all;
  EXPECT_EQ(folder.files(), 2u);
}

}  // namespace
}  // namespace ebb::server
