// TensorBoard event files: known bytes, and read back by a second reading of the format.
#include "train/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "support/files.h"

namespace ebb::train {
namespace {

using namespace std::string_literals;

TEST(crc32c, check_value__is_that_of_the_standard) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);            // the catalogue's check value
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(tensorboard, scalar_event__has_these_bytes) {
  const NamedNumber loss[] = {{"loss", 0.5}};
  // wall_time 1.0 (field 1, fixed64), step 300 (2, varint), summary (5) of one value (1) with
  // tag (1) and simple_value (2, fixed32)
  EXPECT_EQ(scalars_event(1.0, 300, loss),
            "\x09\0\0\0\0\0\0\xf0\x3f"s
            "\x10\xac\x02"s
            "\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f"s);
  EXPECT_EQ(start_event(1.0, 5), "\x09\0\0\0\0\0\0\xf0\x3f\x10\x05\x3a\x02\x08\x01"s);
  EXPECT_EQ(version_event(1.0), "\x09\0\0\0\0\0\0\xf0\x3f\x1a\x0d"s + "brain.Event:2");
}

struct Frame {
  uint64_t length = 0;
  uint32_t length_crc = 0, data_crc = 0;
  std::string data;
};

std::vector<Frame> frames_of(const std::string& bytes) {
  std::vector<Frame> out;
  for (size_t at = 0; at < bytes.size();) {
    Frame f;
    std::memcpy(&f.length, bytes.data() + at, 8);
    std::memcpy(&f.length_crc, bytes.data() + at + 8, 4);
    f.data = bytes.substr(at + 12, f.length);
    std::memcpy(&f.data_crc, bytes.data() + at + 12 + f.length, 4);
    EXPECT_EQ(f.length_crc, masked_crc32c(bytes.substr(at, 8)));
    EXPECT_EQ(f.data_crc, masked_crc32c(f.data));
    at += 16 + f.length;
    out.push_back(f);
  }
  return out;
}

TEST(tensorboard, file__is_whole_frames_with_the_version_first) {
  const testing::Folder folder;
  TensorBoard board(folder.path(), 7);
  for (int64_t step = 7; step < 10; ++step) {
    const NamedNumber values[] = {{"loss", 1.0 / 3}, {"lr", 1e-4}};
    board.scalars(step, values);
  }
  board.flush();
  ASSERT_EQ(folder.files(), 1u);
  const auto file = std::filesystem::directory_iterator(folder.path())->path();
  EXPECT_TRUE(file.filename().string().starts_with("events.out.tfevents."));
  const auto frames = frames_of(testing::file_bytes(file.string()));
  ASSERT_EQ(frames.size(), 5u);
  EXPECT_NE(frames[0].data.find("brain.Event:2"), std::string::npos);
  EXPECT_EQ(frames[4].data.substr(9, 2), "\x10\x09"s);
}

}  // namespace
}  // namespace ebb::train
