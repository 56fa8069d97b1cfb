// Orientation and colour of pictures whose files are made here: a picture of one format with EXIF
// data and profiles put into it byte by byte.
#include "io/image_metadata.h"

#include <gtest/gtest.h>
#include <webp/encode.h>
#include <zlib.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "io/image.h"
#include "io/image_size.h"
#include "support/jpeg.h"

namespace ebb::io {
namespace {

using Bytes = std::vector<uint8_t>;

void add(Bytes& to, std::string_view text) { to.insert(to.end(), text.begin(), text.end()); }
void add(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }
void add_number(Bytes& to, uint64_t v, size_t size, bool little = false) {
  for (size_t i = 0; i < size; ++i)
    to.push_back(static_cast<uint8_t>(v >> 8 * (little ? i : size - 1 - i)));
}

// TIFF data with the orientation behind another tag.
Bytes exif(int orientation, bool little) {
  Bytes b;
  add(b, little ? "II" : "MM");
  add_number(b, 42, 2, little);
  add_number(b, 8, 4, little);
  add_number(b, 2, 2, little);
  for (const auto& [tag, value] : {std::pair{0x0100, 17}, {0x0112, orientation}}) {
    add_number(b, static_cast<uint64_t>(tag), 2, little);
    add_number(b, 3, 2, little);
    add_number(b, 1, 4, little);
    add_number(b, static_cast<uint64_t>(value), 2, little);
    add_number(b, 0, 2, little);
  }
  add_number(b, 0, 4, little);
  return b;
}

// ---- profiles ----

struct Colours {
  double gamma = 2.2;
  double columns[3][3] = {};  // XYZ of red, green, blue under D50
};
// Published matrices (bruce lindbloom's for Adobe RGB (1998), ICC's own for sRGB), under D50.
constexpr Colours adobe{563 / 256.0,
                        {{0.6097559, 0.3111242, 0.0194811},
                         {0.2052401, 0.6256560, 0.0608902},
                         {0.1492240, 0.0632197, 0.7448387}}};
constexpr Colours srgb_primaries{2.2,
                                 {{0.4360747, 0.2225045, 0.0139322},
                                  {0.3850649, 0.7168786, 0.0971045},
                                  {0.1430804, 0.0606169, 0.7141733}}};

Bytes number_type(double v) {
  Bytes b;
  add_number(b, static_cast<uint32_t>(std::lround(v * 65536)), 4);
  return b;
}

Bytes gamma_curve(double gamma) {
  Bytes b;
  add(b, "curv");
  add_number(b, 0, 4);
  add_number(b, 1, 4);
  add_number(b, static_cast<uint64_t>(std::lround(gamma * 256)), 2);
  add_number(b, 0, 2);
  return b;
}

Bytes table_curve(double gamma) {
  Bytes b;
  add(b, "curv");
  add_number(b, 0, 4);
  add_number(b, 1024, 4);
  for (int i = 0; i < 1024; ++i)
    add_number(b, static_cast<uint64_t>(std::lround(65535 * std::pow(i / 1023.0, gamma))), 2);
  return b;
}

Bytes srgb_curve() {
  Bytes b;
  add(b, "para");
  add_number(b, 0, 4);
  add_number(b, 3, 2);
  add_number(b, 0, 2);
  for (const double v : {2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045}) add(b, number_type(v));
  return b;
}

using Tags = std::vector<std::pair<std::string, Bytes>>;

Bytes profile(std::string_view space, const Tags& tags) {
  Bytes b(128);
  std::copy(space.begin(), space.end(), b.begin() + 16);
  for (const auto& [text, at] :
       {std::pair<std::string, int>{"mntr", 12}, {"XYZ ", 20}, {"acsp", 36}})
    std::copy(text.begin(), text.end(), b.begin() + at);
  b[8] = 4;
  for (const auto& [v, at] : {std::pair<double, int>{0.9642, 68}, {1.0, 72}, {0.8249, 76}}) {
    const Bytes n = number_type(v);
    std::copy(n.begin(), n.end(), b.begin() + at);
  }
  add_number(b, tags.size(), 4);
  size_t at = 132 + 12 * tags.size();
  for (const auto& [name, data] : tags) {
    add(b, name);
    add_number(b, at, 4);
    add_number(b, data.size(), 4);
    at += data.size();
  }
  for (const auto& [name, data] : tags) add(b, data);
  for (size_t i = 0; i < 4; ++i) b[i] = static_cast<uint8_t>(b.size() >> 8 * (3 - i));
  return b;
}

Bytes rgb_profile(const Colours& c, const Bytes& curve) {
  Tags tags;
  const char* names[][2] = {{"rXYZ", "rTRC"}, {"gXYZ", "gTRC"}, {"bXYZ", "bTRC"}};
  for (size_t k = 0; k < 3; ++k) {
    Bytes xyz;
    add(xyz, "XYZ ");
    add_number(xyz, 0, 4);
    for (const double v : c.columns[k]) add(xyz, number_type(v));
    tags.push_back({names[k][0], xyz});
    tags.push_back({names[k][1], curve});
  }
  return profile("RGB ", tags);
}

// ---- files ----

struct Extras {
  Bytes exif, icc;
  size_t icc_chunk = 1 << 15;  // bytes of a profile in a marker of JPEG
  bool all_chunks = true;
};

void add_chunk(Bytes& png, std::string_view type, const Bytes& data) {
  add_number(png, data.size(), 4);
  Bytes body;
  add(body, type);
  add(body, data);
  add(png, body);
  add_number(png, crc32(0, body.data(), static_cast<uInt>(body.size())), 4);
}

Bytes png_of(const Tensor& image, const Extras& extras) {
  const Bytes plain = encode_png(image);
  constexpr std::ptrdiff_t header = 8 + 25;
  Bytes out(plain.begin(), plain.begin() + header);
  if (!extras.icc.empty()) {
    Bytes packed(compressBound(extras.icc.size())), data;
    uLongf size = packed.size();
    compress(packed.data(), &size, extras.icc.data(), extras.icc.size());
    packed.resize(size);
    add(data, std::string_view("p\0\0", 3));
    add(data, packed);
    add_chunk(out, "iCCP", data);
  }
  if (!extras.exif.empty()) add_chunk(out, "eXIf", extras.exif);
  out.insert(out.end(), plain.begin() + header, plain.end());
  return out;
}

Bytes jpeg_of(const Tensor& image, const Extras& extras) {
  testing::Jpeg how{.quality = 100};
  if (!extras.exif.empty()) {
    Bytes b;
    add(b, std::string_view("Exif\0\0", 6));
    add(b, extras.exif);
    how.markers.emplace_back(1, b);
  }
  const size_t chunks = (extras.icc.size() + extras.icc_chunk - 1) / extras.icc_chunk;
  for (size_t i = chunks; i-- > (extras.all_chunks ? 0u : 1u);) {  // last first: any order will do
    Bytes b;
    add(b, std::string_view("ICC_PROFILE\0", 12));
    b.push_back(static_cast<uint8_t>(i + 1));
    b.push_back(static_cast<uint8_t>(chunks));
    const size_t from = i * extras.icc_chunk;
    const size_t to = std::min(from + extras.icc_chunk, extras.icc.size());
    b.insert(b.end(), extras.icc.begin() + static_cast<std::ptrdiff_t>(from),
             extras.icc.begin() + static_cast<std::ptrdiff_t>(to));
    how.markers.emplace_back(2, b);
  }
  return testing::jpeg_of(image, how);
}

Bytes webp_of(const Tensor& image, const Extras& extras) {
  const int h = static_cast<int>(image.shape()[0]), w = static_cast<int>(image.shape()[1]);
  uint8_t* memory = nullptr;
  const size_t size = WebPEncodeLosslessRGB(image.span<uint8_t>().data(), w, h, w * 3, &memory);
  const Bytes picture(memory + 12, memory + size);
  WebPFree(memory);
  Bytes body;
  const auto chunk = [&](std::string_view name, const Bytes& data) {
    add(body, name);
    add_number(body, data.size(), 4, true);
    add(body, data);
    if (data.size() % 2) body.push_back(0);
  };
  Bytes head;
  add_number(head, (extras.icc.empty() ? 0u : 32u) | (extras.exif.empty() ? 0u : 8u), 4, true);
  add_number(head, static_cast<uint64_t>(w - 1), 3, true);
  add_number(head, static_cast<uint64_t>(h - 1), 3, true);
  chunk("VP8X", head);
  if (!extras.icc.empty()) chunk("ICCP", extras.icc);
  add(body, picture);
  if (!extras.exif.empty()) chunk("EXIF", extras.exif);
  Bytes out;
  add(out, "RIFF");
  add_number(out, body.size() + 4, 4, true);
  add(out, "WEBP");
  add(out, body);
  return out;
}

struct Format {
  std::string name;
  Bytes (*encode)(const Tensor&, const Extras&);
  int error;  // levels that the format loses
};
void PrintTo(const Format& f, std::ostream* out) { *out << f.name; }

class Metadata : public ::testing::TestWithParam<Format> {
 protected:
  Tensor decode(const Tensor& image, const Extras& extras) {
    return decode_image(GetParam().encode(image, extras), "t", 0, {}, &notes_);
  }
  void expect_near(const Tensor& got, const Tensor& want, int more = 0) {
    ASSERT_EQ(got.type(), want.type());
    for (size_t i = 0; i < got.span<uint8_t>().size(); ++i)
      ASSERT_NEAR(got.span<uint8_t>()[i], want.span<uint8_t>()[i], GetParam().error + more)
          << "at " << i;
  }
  ImageNotes notes_;
};

Tensor slopes() {
  Tensor t(DType::u8, {16, 24, 3});
  uint8_t* p = t.span<uint8_t>().data();
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 24; ++x)
      for (int k = 0; k < 3; ++k) *p++ = static_cast<uint8_t>(20 + 6 * y + 2 * x + 10 * k);
  return t;
}

Tensor plain(int r, int g, int b) {
  Tensor t(DType::u8, {16, 16, 3});
  const int v[] = {r, g, b};
  for (size_t i = 0; i < t.span<uint8_t>().size(); ++i)
    t.span<uint8_t>()[i] = static_cast<uint8_t>(v[i % 3]);
  return t;
}

// Turns and mirrors in steps that the table of EXIF does not know.
Tensor turned(const Tensor& t) {  // a quarter clockwise
  const int64_t h = t.shape()[0], w = t.shape()[1];
  Tensor out(DType::u8, {w, h, 3});
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x)
      std::copy_n(t.span<uint8_t>().data() + (y * w + x) * 3, 3,
                  out.span<uint8_t>().data() + (x * h + h - 1 - y) * 3);
  return out;
}
Tensor mirrored(const Tensor& t) {  // left for right
  const int64_t h = t.shape()[0], w = t.shape()[1];
  Tensor out(DType::u8, t.shape());
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x)
      std::copy_n(t.span<uint8_t>().data() + (y * w + x) * 3, 3,
                  out.span<uint8_t>().data() + (y * w + w - 1 - x) * 3);
  return out;
}

TEST_P(Metadata, orientation__all_eight_come_upright) {
  const Tensor t = slopes();
  const Tensor half = turned(turned(t));
  const Tensor want[] = {t,
                         mirrored(t),
                         half,
                         mirrored(half),
                         mirrored(turned(t)),
                         turned(t),
                         mirrored(turned(half)),
                         turned(half)};
  for (int o = 1; o <= 8; ++o)
    for (const bool little : {false, true}) {
      SCOPED_TRACE(str("orientation ", o));
      expect_near(decode(t, {.exif = exif(o, little)}), want[o - 1]);
      EXPECT_EQ(notes_.orientation, "");
      const Tensor& upright = want[o - 1];
      EXPECT_EQ(image_size(GetParam().encode(t, {.exif = exif(o, little)}), "t"),
                Shape({upright.shape()[0], upright.shape()[1]}));
    }
}

TEST_P(Metadata, broken_exif__is_noted_and_the_picture_taken) {
  Bytes cut = exif(6, true);
  cut.resize(20);
  Bytes far = exif(6, false);
  far[4] = 0x7f;
  for (const Bytes& b : {Bytes{'I', 'I', 42}, cut, far, exif(9, true), Bytes(40, 0xff)}) {
    expect_near(decode(slopes(), {.exif = b}), slopes());
    EXPECT_TRUE(notes_.orientation.starts_with("EXIF ")) << notes_.orientation;
  }
}

// The numbers are those of LittleCMS 2.14, relative colorimetric, for the same space.
TEST_P(Metadata, profile_of_a_wider_space__is_converted) {
  for (const Bytes& curve : {gamma_curve(adobe.gamma), table_curve(adobe.gamma)}) {
    const Bytes icc = rgb_profile(adobe, curve);
    expect_near(decode(plain(128, 128, 128), {.icc = icc}), plain(129, 129, 129), 1);
    expect_near(decode(plain(200, 100, 50), {.icc = icc}), plain(227, 100, 42), 1);
    expect_near(decode(plain(90, 140, 200), {.icc = icc}), plain(53, 141, 203), 1);
    expect_near(decode(plain(30, 20, 10), {.icc = icc}), plain(27, 12, 2), 1);
    expect_near(decode(plain(0, 255, 0), {.icc = icc}), plain(0, 255, 0), 1);
    EXPECT_EQ(notes_.colour, "");
  }
}

TEST_P(Metadata, profile_in_chunks__is_put_together) {
  const Extras extras{.icc = rgb_profile(adobe, table_curve(adobe.gamma)), .icc_chunk = 500};
  expect_near(decode(plain(200, 100, 50), extras), plain(227, 100, 42), 1);
}

TEST_P(Metadata, profile_of_srgb__leaves_the_bits) {
  const Bytes icc = rgb_profile(srgb_primaries, srgb_curve());
  const Tensor with = decode(slopes(), {.icc = icc}), without = decode(slopes(), {});
  EXPECT_TRUE(std::ranges::equal(with.span<uint8_t>(), without.span<uint8_t>()));
  EXPECT_EQ(notes_.colour, "");
}

TEST_P(Metadata, profile_that_is_broken_or_has_tables__is_noted) {
  Bytes cut = rgb_profile(adobe, table_curve(adobe.gamma));
  cut.resize(300);
  for (const Bytes& b : {cut, profile("CMYK", {}), profile("RGB ", {}), Bytes(300, 7)}) {
    expect_near(decode(slopes(), {.icc = b}), slopes());
    EXPECT_TRUE(notes_.colour.starts_with("colour profile: ")) << notes_.colour;
  }
}

INSTANTIATE_TEST_SUITE_P(of, Metadata,
                         ::testing::Values(Format{"png", png_of, 0}, Format{"jpeg", jpeg_of, 3},
                                           Format{"webp", webp_of, 0}),
                         [](const auto& info) { return info.param.name; });

TEST(metadata, jpeg_profile_with_a_missing_chunk__is_noted) {
  ImageNotes notes;
  const Extras extras{
      .icc = rgb_profile(adobe, table_curve(2.2)), .icc_chunk = 500, .all_chunks = false};
  decode_image(jpeg_of(slopes(), extras), "t", 0, {}, &notes);
  EXPECT_EQ(notes.colour, "colour profile: its chunks are not complete");
}

TEST(metadata, png_gamma_and_primaries__are_converted) {
  const auto file = [](uint64_t gamma, bool primaries) {
    const Bytes plain_file = encode_png(plain(128, 128, 128));
    Bytes out(plain_file.begin(), plain_file.begin() + 33), g, c;
    add_number(g, gamma, 4);
    add_chunk(out, "gAMA", g);
    for (const uint64_t v : {31270u, 32900u, 64000u, 33000u, 30000u, 60000u, 15000u, 6000u})
      add_number(c, v, 4);
    if (primaries) add_chunk(out, "cHRM", c);
    out.insert(out.end(), plain_file.begin() + 33, plain_file.end());
    return decode_image(out, "t").span<uint8_t>()[0];
  };
  EXPECT_EQ(file(45455, false), 128);
  EXPECT_EQ(file(45455, true), 128);
  EXPECT_NEAR(file(100000, false), 188, 1);  // linear light: 0.502 is 188 in sRGB
  EXPECT_NEAR(file(100000, true), 188, 1);
}

}  // namespace
}  // namespace ebb::io
