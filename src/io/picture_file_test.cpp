#include "io/picture_file.h"

#include <gtest/gtest.h>

#include "io/exif_text.h"
#include "io/image.h"
#include "support/files.h"
#include "support/pictures.h"

namespace ebb::io {
namespace {

using namespace ebb::testing;
using Texts = std::map<std::string, std::string>;

const Texts settings{{"parameters", "a fox, \u96ea \U0001f98a\nNegative prompt: \"x\"\nSteps: 2"},
                     {"ebb", R"({"prompt":"a fox, \u96ea","steps":2})"},
                     {"Software", "ebb 0.1"}};

TEST(PictureFile, formats__keep_pixels_and_texts) {
  struct Case {
    PictureFormat format;
    int quality, difference;
  };
  for (const Case& c : {Case{PictureFormat::png, 1, 0},
                        {PictureFormat::jpeg, 95, 6},
                        {PictureFormat::webp, 90, 8},
                        {PictureFormat::webp, 100, 0}})
    for (const int64_t channels : {1, 3})
      for (const Texts& text : {Texts{}, settings, Texts{{"parameters", "x"}}}) {
        const Tensor image = gradient(21, 34, channels);
        const auto bytes = encode_picture(c.format, image, text, c.quality);
        EXPECT_EQ(picture_text(bytes, "test"), text);
        EXPECT_LE(largest_difference(decode_image(bytes, "test", channels), image), c.difference);
      }
}

TEST(PictureFile, format__follows_the_extension) {
  EXPECT_EQ(picture_format("a/b.PNG"), PictureFormat::png);
  EXPECT_EQ(picture_format("a.b/c.jpg"), PictureFormat::jpeg);
  EXPECT_EQ(picture_format("c.Jpeg"), PictureFormat::jpeg);
  EXPECT_EQ(picture_format("c.webp"), PictureFormat::webp);
  EXPECT_EQ(picture_format("c.gif"), std::nullopt);
  EXPECT_EQ(picture_format("png"), std::nullopt);
}

TEST(PictureFile, limits_of_formats__are_errors) {
  const Texts much{{"parameters", std::string(40000, 'x')}};
  const Tensor image = gradient(8, 8, 3);
  expect_error([&] { encode_picture(PictureFormat::jpeg, image, much); },
               "longer than a JPEG file holds (80");
  EXPECT_EQ(picture_text(encode_picture(PictureFormat::webp, image, much), "test"), much);
  EXPECT_EQ(picture_text(encode_picture(PictureFormat::png, image, much), "test"), much);
  expect_error(
      [&] {
        encode_picture(PictureFormat::webp, Tensor(DType::u8, {1, 16384, 3}));
      },
      "sides of 1 to 16383");
  expect_error(
      [&] {
        encode_picture(PictureFormat::jpeg, Tensor(DType::f32, {4, 4, 3}));
      },
      "must be u8[H,W,C]");
  expect_error([&] { encode_picture(PictureFormat::jpeg, image, {}, 0); }, "quality must be");
}

// The UserComment as other programs write it: low byte first, or ASCII.
TEST(PictureFile, comments_of_other_programs__are_read) {
  using Bytes = std::vector<uint8_t>;
  const auto file = [](const std::string& comment) {
    const auto length = static_cast<uint8_t>(comment.size());
    Bytes out{'I', 'I', 42,   0,    8, 0, 0,      0,                     // the header
              1,   0,   0x69, 0x87, 4, 0, 1,      0, 0, 0, 26, 0, 0, 0,  // where the EXIF tags are
              0,   0,   0,    0,                                         //
              1,   0,   0x86, 0x92, 7, 0, length, 0, 0, 0, 44, 0, 0, 0,  // a UserComment
              0,   0,   0,    0};
    for (const char c : comment) out.push_back(static_cast<uint8_t>(c));
    return out;
  };
  EXPECT_EQ(text_of_exif(file(std::string("UNICODE\0f\0o\0x\0", 14))).at("parameters"), "fox");
  EXPECT_EQ(text_of_exif(file(std::string("UNICODE\0\0f\0o\0x", 14))).at("parameters"), "fox");
  EXPECT_EQ(text_of_exif(file(std::string("ASCII\0\0\0fox", 11))).at("parameters"), "fox");
  // nothing of a file that is cut short
  const Bytes whole = file(std::string("UNICODE\0f\0o\0x\0", 14));
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_TRUE(text_of_exif({whole.data(), n}).empty()) << n;
}

// A million arrays within each other are a text like any other.
TEST(PictureFile, nested_description__is_text) {
  const std::string nested =
      R"({"ebb":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  std::vector<uint8_t> exif{'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x0E, 0, 2};
  for (const size_t v : {nested.size(), size_t{26}, size_t{0}})
    for (int bits = 24; bits >= 0; bits -= 8) exif.push_back(static_cast<uint8_t>(v >> bits));
  exif.insert(exif.end(), nested.begin(), nested.end());
  EXPECT_EQ(text_of_exif(exif).at("description"), nested);
}

TEST(PictureFile, files_that_are_none__are_errors) {
  const std::vector<uint8_t> junk{1, 2, 3};
  expect_error([&] { picture_text(junk, "junk.png"); }, "must be a PNG, JPEG or WebP");
  auto cut = encode_picture(PictureFormat::jpeg, gradient(64, 64, 3), settings);
  cut.resize(cut.size() / 2);
  expect_error([&] { picture_text(cut, "cut.jpg"); }, "broken JPEG");
  // the end of a thumbnail is not the picture's
  const std::vector<uint8_t> thumbnail{0xff, 0xe1, 0, 10, 'E', 'x', 'i', 'f', 0, 0, 0xff, 0xd9};
  cut = encode_picture(PictureFormat::jpeg, gradient(64, 64, 3), settings);
  cut.insert(cut.begin() + 2, thumbnail.begin(), thumbnail.end());
  EXPECT_NO_THROW(picture_text(cut, "whole.jpg"));
  cut.resize(cut.size() - 10);
  expect_error([&] { picture_text(cut, "cut.jpg"); }, "broken JPEG (it has no end)");
  cut = encode_picture(PictureFormat::webp, gradient(64, 64, 3), settings);
  cut.resize(cut.size() - 3);
  expect_error([&] { picture_text(cut, "cut.webp"); }, "broken WebP");
}

}  // namespace
}  // namespace ebb::io
