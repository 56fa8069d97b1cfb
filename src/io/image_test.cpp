#include "io/image.h"

#include <gtest/gtest.h>
#include <png.h>
#include <webp/encode.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "io/mask_file.h"
#include "support/files.h"
#include "support/jpeg.h"
#include "support/pictures.h"

namespace ebb::io {
namespace {

using namespace ebb::testing;
using Bytes = std::vector<uint8_t>;

// ---- encoders of what write_png does not write ----

struct PngForm {
  int colour = PNG_COLOR_TYPE_RGB;
  int depth = 8;
  int interlace = PNG_INTERLACE_NONE;
  std::vector<png_color> palette{};
  Bytes palette_alpha{};
};

// `rows` as libpng wants them: samples of 16 bits big-endian, small ones packed.
Bytes png_of(const PngForm& form, int64_t h, int64_t w, Bytes samples) {
  Bytes out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep from, size_t n) {
        auto* to = static_cast<Bytes*>(png_get_io_ptr(p));
        to->insert(to->end(), from, from + n);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(w), static_cast<png_uint_32>(h), form.depth,
               form.colour, form.interlace, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!form.palette.empty())
    png_set_PLTE(png, info, form.palette.data(), static_cast<int>(form.palette.size()));
  if (!form.palette_alpha.empty())
    png_set_tRNS(png, info, form.palette_alpha.data(), static_cast<int>(form.palette_alpha.size()),
                 nullptr);
  std::vector<png_bytep> rows;
  const size_t stride = samples.size() / static_cast<size_t>(h);
  for (int64_t y = 0; y < h; ++y) rows.push_back(samples.data() + static_cast<size_t>(y) * stride);
  png_set_rows(png, info, rows.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return out;
}

Bytes jpeg_of(const Tensor& image, J_COLOR_SPACE space, bool progressive = false) {
  return testing::jpeg_of(image, {.space = space, .progressive = progressive});
}

Bytes webp_of(const Tensor& image) {
  const int h = static_cast<int>(image.shape()[0]), w = static_cast<int>(image.shape()[1]);
  const int c = static_cast<int>(image.shape()[2]);
  uint8_t* memory = nullptr;
  const uint8_t* in = image.span<uint8_t>().data();
  const size_t size =
      (c == 4 ? WebPEncodeLosslessRGBA : WebPEncodeLosslessRGB)(in, w, h, w * c, &memory);
  Bytes out(memory, memory + size);
  WebPFree(memory);
  return out;
}

Tensor pixels(const Bytes& values, Shape shape) { return tensor_of(values, std::move(shape)); }

// ---- PNG ----

TEST(png, grey_and_rgb__round_trip_exactly) {
  for (const int64_t c : {1, 3})
    for (const Shape& s : {Shape{1, 1, c}, Shape{7, 13, c}, Shape{64, 3, c}}) {
      const Tensor t = gradient(s[0], s[1], c);
      EXPECT_EQ(largest_difference(decode_image(encode_png(t), "t"), t), 0) << s;
    }
}

TEST(png, text__round_trips_with_unicode_and_keeps_pixels) {
  const Folder folder;
  const std::map<std::string, std::string> text{
      {"parameters", "a cat\nSteps: 20, Seed: 1"}, {"Title", "\u4e2d\u00e9"}, {"empty", ""}};
  const Tensor t = gradient(5, 4, 3);
  write_png(folder / "a.png", t, text);
  EXPECT_EQ(read_png_text(folder / "a.png"), text);
  EXPECT_EQ(largest_difference(read_image(folder / "a.png"), t), 0);
  EXPECT_EQ(folder.files(), 1u);
}

TEST(png, bad_text__is_an_error) {
  const Tensor t = gradient(2, 2, 1);
  expect_error([&] { encode_png(t, {{"", "x"}}); }, "1 to 79 printable");
  expect_error([&] { encode_png(t, {{std::string(80, 'k'), "x"}}); }, "1 to 79 printable");
  expect_error([&] { encode_png(t, {{" k", "x"}}); }, "1 to 79 printable");
  expect_error([&] { encode_png(t, {{"k\u00e9", "x"}}); }, "1 to 79 printable");
  expect_error([&] { encode_png(t, {{"k", "\xff"}}); }, "UTF-8 without NUL");
  expect_error([&] { encode_png(t, {{"k", std::string("a\0b", 3)}}); }, "UTF-8 without NUL");
}

TEST(png, other_types__are_refused_for_writing) {
  expect_error([&] { encode_png(Tensor(DType::f32, {2, 2, 3})); }, "must be u8[H,W,C]");
  expect_error([&] { encode_png(Tensor(DType::u8, {2, 2, 4})); }, "must be u8[H,W,C]");
  expect_error([&] { encode_png(Tensor(DType::u8, {0, 2, 3})); }, "must be u8[H,W,C]");
}

TEST(png, sixteen_bits__round_to_eight) {
  // 0x80ff / 257 = 128.5 - a little; 0x0102 / 257 = 1.004; 0xfeff / 257 = 254.0 + a little.
  const Bytes png =
      png_of({PNG_COLOR_TYPE_GRAY, 16}, 1, 4, {0x00, 0x00, 0x01, 0x02, 0xfe, 0xff, 0xff, 0xff});
  EXPECT_EQ(largest_difference(decode_image(png, "t"), pixels({0, 1, 254, 255}, {1, 4, 1})), 0);
}

TEST(png, palette_and_small_depths__expand) {
  PngForm form{PNG_COLOR_TYPE_PALETTE, 4, PNG_INTERLACE_NONE, {{9, 8, 7}, {200, 100, 50}}, {}};
  EXPECT_EQ(largest_difference(decode_image(png_of(form, 1, 2, {0x01}), "t"),
                               pixels({9, 8, 7, 200, 100, 50}, {1, 2, 3})),
            0);
  form.palette_alpha = {0, 255};  // the first colour is transparent
  EXPECT_EQ(largest_difference(decode_image(png_of(form, 1, 2, {0x01}), "t"),
                               pixels({255, 255, 255, 200, 100, 50}, {1, 2, 3})),
            0);
  EXPECT_EQ(largest_difference(decode_image(png_of({PNG_COLOR_TYPE_GRAY, 1}, 1, 3, {0xa0}), "t"),
                               pixels({255, 0, 255}, {1, 3, 1})),
            0);
}

TEST(png, alpha__goes_over_white) {
  const Bytes rgba{10, 20, 30, 255, 10, 20, 30, 0, 100, 0, 200, 128};
  const Tensor t = decode_image(png_of({PNG_COLOR_TYPE_RGB_ALPHA, 8}, 1, 3, rgba), "t");
  // 100*128/255 + 127 = 177.2; 127; 200*128/255 + 127 = 227.4
  EXPECT_EQ(largest_difference(t, pixels({10, 20, 30, 255, 255, 255, 177, 127, 227}, {1, 3, 3})),
            0);
  const Bytes grey{50, 255, 50, 0};
  EXPECT_EQ(
      largest_difference(decode_image(png_of({PNG_COLOR_TYPE_GRAY_ALPHA, 8}, 1, 2, grey), "t"),
                         pixels({50, 255}, {1, 2, 1})),
      0);
}

// White strokes on a transparent layer, and black ones.
TEST(read_mask, what_is_transparent__is_black) {
  const Folder folder;
  const auto mask = [&](const Bytes& file) {
    put_file(folder / "mask.png", std::string(file.begin(), file.end()));
    return read_mask(folder / "mask.png");
  };
  const Bytes rgba{255, 255, 255, 255, 255, 255, 255, 0, 255, 255, 255, 128, 0, 0, 0, 255};
  EXPECT_EQ(largest_difference(mask(png_of({PNG_COLOR_TYPE_RGB_ALPHA, 8}, 1, 4, rgba)),
                               pixels({255, 0, 128, 0}, {1, 4, 1})),
            0);
  EXPECT_EQ(
      largest_difference(mask(png_of({PNG_COLOR_TYPE_GRAY_ALPHA, 8}, 1, 2, {200, 255, 200, 0})),
                         pixels({200, 0}, {1, 2, 1})),
      0);
  EXPECT_EQ(largest_difference(mask(png_of({PNG_COLOR_TYPE_GRAY, 8}, 1, 2, {7, 255})),
                               pixels({7, 255}, {1, 2, 1})),
            0);
}

TEST(png, interlaced__equals_plain) {
  const Tensor t = gradient(19, 23, 3);
  const Bytes samples(t.span<uint8_t>().begin(), t.span<uint8_t>().end());
  const Bytes png = png_of({PNG_COLOR_TYPE_RGB, 8, PNG_INTERLACE_ADAM7}, 19, 23, samples);
  EXPECT_EQ(largest_difference(decode_image(png, "t"), t), 0);
}

TEST(png, latin1_text__becomes_utf8) {
  Bytes png = encode_png(gradient(1, 1, 1), {{"k", "caf?"}});
  const auto at = std::search(png.begin(), png.end(), std::begin("caf?"), std::end("caf?") - 1);
  ASSERT_NE(at, png.end());
  *(at + 3) = 0xe9;
  const size_t start = static_cast<size_t>(at - png.begin()) - 6;  // "tEXt" "k" NUL
  const uLong crc = crc32(0, png.data() + start, 10);
  for (int i = 0; i < 4; ++i) png[start + 10 + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
  EXPECT_EQ(png_text(png, "t"), (std::map<std::string, std::string>{{"k", "caf\u00e9"}}));
}

TEST(png, text_around_more_pixels_than_a_chunk_may_have__is_read) {
  Bytes png = encode_png(gradient(1, 1, 1), {{"k", "v"}});
  constexpr size_t length = size_t{17} << 20, frame = 12;  // of a chunk: length, type, checksum
  Bytes large(length + frame);
  std::copy_n("\x01\x10\x00\x00IDAT", 8, large.begin());
  png.insert(png.end() - frame, large.begin(), large.end());  // in front of IEND
  EXPECT_EQ(png_text(png, "t"), (std::map<std::string, std::string>{{"k", "v"}}));
}

// ---- channels ----

TEST(decode_image, channels__convert_as_requested) {
  const Bytes grey = encode_png(pixels({0, 77, 255}, {1, 3, 1}));
  EXPECT_EQ(largest_difference(decode_image(grey, "t", 3),
                               pixels({0, 0, 0, 77, 77, 77, 255, 255, 255}, {1, 3, 3})),
            0);
  const Bytes colour = encode_png(pixels({255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9}, {1, 4, 3}));
  // 255 x (0.299, 0.587, 0.114)
  EXPECT_EQ(largest_difference(decode_image(colour, "t", 1), pixels({76, 150, 29, 9}, {1, 4, 1})),
            0);
  expect_error([&] { decode_image(grey, "t", 2); }, "channels must be 0 (as in the file), 1 or 3");
}

// ---- JPEG ----

TEST(jpeg, rgb_and_grey__come_back_close) {
  for (const bool progressive : {false, true}) {
    const Tensor rgb = gradient(33, 20, 3), grey = gradient(33, 20, 1);
    // Quality 98 with halved chroma: a few levels.
    EXPECT_LE(largest_difference(decode_image(jpeg_of(rgb, JCS_RGB, progressive), "t"), rgb), 4);
    EXPECT_LE(
        largest_difference(decode_image(jpeg_of(grey, JCS_GRAYSCALE, progressive), "t"), grey), 2);
  }
}

TEST(jpeg, cmyk__becomes_light) {
  // libjpeg writes CMYK with an Adobe marker: samples are complements of the ink.
  Tensor cmyk(DType::u8, {16, 16, 4});
  for (size_t i = 0; i < cmyk.span<uint8_t>().size(); i += 4) {
    const uint8_t v[4] = {255, 128, 0, 200};
    std::copy_n(v, 4, cmyk.span<uint8_t>().data() + i);
  }
  Tensor expected(DType::u8, {16, 16, 3});
  for (size_t i = 0; i < expected.span<uint8_t>().size(); i += 3) {
    const uint8_t v[3] = {200, 100, 0};
    std::copy_n(v, 3, expected.span<uint8_t>().data() + i);
  }
  const Bytes adobe = jpeg_of(cmyk, JCS_CMYK);
  EXPECT_LE(largest_difference(decode_image(adobe, "t"), expected), 2);
  // Without the marker the samples are ink: light = (255-c)(255-k)/255.
  Bytes plain = adobe;
  const auto marker =
      std::search(plain.begin(), plain.end(), std::begin("Adobe"), std::end("Adobe") - 1);
  ASSERT_NE(marker, plain.end());
  *marker = 'X';
  const Tensor ink = decode_image(plain, "t");
  EXPECT_NEAR(ink.span<uint8_t>()[0], 0, 2);
  EXPECT_NEAR(ink.span<uint8_t>()[1], 127 * 55 / 255, 2);
  EXPECT_NEAR(ink.span<uint8_t>()[2], 55, 2);
}

// ---- WebP ----

TEST(webp, rgb_and_alpha__decode) {
  const Tensor rgb = gradient(9, 11, 3);
  EXPECT_EQ(largest_difference(decode_image(webp_of(rgb), "t"), rgb), 0);
  const Bytes rgba{10, 20, 30, 255, 10, 20, 30, 128};
  EXPECT_EQ(largest_difference(decode_image(webp_of(pixels(rgba, {1, 2, 4})), "t"),
                               pixels({10, 20, 30, 132, 137, 142}, {1, 2, 3})),
            0);
}

// ---- what is refused ----

TEST(decode_image, cut_files__are_errors_in_every_format) {
  const Tensor t = gradient(40, 40, 3);
  const std::vector<Bytes> files{encode_png(t), jpeg_of(t, JCS_RGB), jpeg_of(t, JCS_RGB, true),
                                 webp_of(t)};
  for (const Bytes& file : files)
    for (size_t n = 0; n + 2 < file.size(); n += 1 + file.size() / 100) {
      const std::span<const uint8_t> cut(file.data(), n);
      EXPECT_NE(error_of([&] { decode_image(cut, "cut.img"); }), "") << n << " of " << file.size();
    }
}

TEST(decode_image, broken_files__name_format_and_file) {
  Bytes png = encode_png(gradient(8, 8, 3)), jpeg = jpeg_of(gradient(8, 8, 3), JCS_RGB);
  png[png.size() / 2] ^= 0x55;
  expect_error([&] { decode_image(png, "x.jpg"); }, "image: broken PNG (");
  jpeg.resize(30);
  expect_error([&] { decode_image(jpeg, "x.png"); }, "image: broken JPEG (");
  const Bytes text{'h', 'i'};
  expect_error([&] { decode_image(text, "x.png"); },
               "must be a PNG, JPEG or WebP file (2 bytes)  x.png");
  expect_error([&] { decode_image(Bytes{}, "x.png"); }, "(0 bytes)");
  expect_error([&] { read_image("/nonexistent.png"); }, "image: cannot open");
}

TEST(decode_image, sizes_over_the_limits__are_refused_before_decoding) {
  const Tensor t = gradient(20, 30, 3);
  for (const Bytes& file : {encode_png(t), jpeg_of(t, JCS_RGB), webp_of(t)}) {
    EXPECT_NE(error_of([&] { decode_image(file, "t", 0, {.side = 29}); }), "");
    expect_error([&] { decode_image(file, "t", 0, {.pixels = 599}); }, "(30x20)");
    EXPECT_EQ(error_of([&] { decode_image(file, "t", 0, {.side = 30, .pixels = 600}); }), "");
  }
  expect_error([&] { decode_image(encode_png(gradient(1, 16385, 3)), "t"); },
               "image: must have 1 to 16384 pixels a side and at most 134217728 in all (16385x1)");
  // A header alone that claims 2^31-1 pixels a side.
  Bytes bomb = encode_png(gradient(1, 1, 1));
  for (const size_t at : {16, 20}) bomb[at] = 0x7f;
  const uLong crc = crc32(0, bomb.data() + 12, 17);
  for (int i = 0; i < 4; ++i) bomb[29 + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
  EXPECT_NE(error_of([&] { decode_image(bomb, "t"); }), "");
  expect_error([&] { png_text(bomb, "t"); }, "at most 134217728 in all (2130706433x2130706433)");
}

// libpng takes the memory that some chunks claim before it reads them.
TEST(decode_image, png_chunk_beyond_the_file__is_refused_before_memory_is_taken) {
  Bytes png = encode_png(gradient(4, 4, 3));
  const Bytes chunk{0x7f, 0xff, 0xff, 0xff, 'e', 'X', 'I', 'f'};
  png.insert(png.begin() + 33, chunk.begin(), chunk.end());
  expect_error([&] { decode_image(png, "t"); }, "image: broken PNG (chunk of 2147483647 bytes");
  expect_error([&] { png_text(png, "t"); }, "image: broken PNG (chunk of 2147483647 bytes");
}

// ---- grids ----

TEST(image_grid, last_row_short__is_padded_with_black) {
  const std::vector<Tensor> images{pixels({1}, {1, 1, 1}), pixels({2}, {1, 1, 1}),
                                   pixels({3}, {1, 1, 1})};
  EXPECT_EQ(largest_difference(image_grid(images, 2), pixels({1, 2, 3, 0}, {2, 2, 1})), 0);
  const Bytes padded{0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(largest_difference(image_grid(images, 2, 1), pixels(padded, {5, 5, 1})), 0);
  EXPECT_EQ(image_grid(images, 9).shape(), (Shape{1, 3, 1}));
}

TEST(image_grid, unlike_images__are_an_error) {
  const std::vector<Tensor> images{Tensor(DType::u8, {1, 1, 1}), Tensor(DType::u8, {1, 2, 1})};
  expect_error([&] { image_grid(images, 2); }, "images must be alike");
  expect_error([&] { image_grid({}, 2); }, "needs images");
  expect_error([&] { image_grid(images, 0); }, "at least one column");
}

}  // namespace
}  // namespace ebb::io
