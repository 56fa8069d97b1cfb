// PNG through libpng. libpng reports errors by longjmp: the functions that set the jump hold no
// C++ objects, and every allocation of ours happens outside of them.
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/utf8.h"
#include "io/image_decoders.h"
#include "io/image_encoders.h"
#include "io/json_cursor.h"

namespace ebb::io {
namespace {

// What the callbacks of libpng reach: where reading stands and the first error.
struct Stream {
  std::span<const uint8_t> in;
  size_t at = 0;
  std::vector<uint8_t>* out = nullptr;
  char error[200] = "";
};

void on_error(png_structp png, png_const_charp message) {
  auto* s = static_cast<Stream*>(png_get_error_ptr(png));
  std::strncpy(s->error, message, sizeof s->error - 1);
  png_longjmp(png, 1);
}
void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep to, size_t n) {
  auto* s = static_cast<Stream*>(png_get_io_ptr(png));
  if (n > s->in.size() - s->at) png_error(png, "file ends too early");
  std::memcpy(to, s->in.data() + s->at, n);
  s->at += n;
}

void on_write(png_structp png, png_bytep from, size_t n) {
  auto* s = static_cast<Stream*>(png_get_io_ptr(png));
  bool full = false;
  try {
    s->out->insert(s->out->end(), from, from + n);
  } catch (const std::exception&) {
    full = true;
  }
  if (full) png_error(png, "out of memory");
}
void on_flush(png_structp) {}

// ---- reading ----

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

// Every chunk must lie within the file: libpng takes memory for some by the length they claim.
void check_chunks(std::span<const uint8_t> bytes, const std::string& name) {
  constexpr size_t frame = 12;  // length, type, checksum
  for (size_t at = 8; at < bytes.size();) {
    const size_t left = bytes.size() - at;
    const size_t length = left < frame ? 0 : big_endian(bytes.data() + at);
    require(left >= frame && length <= left - frame, "image: broken PNG (chunk of ", length,
            " bytes in the last ", left, ")  ", name);
    if (std::memcmp(bytes.data() + at + 4, "IEND", 4) == 0) return;
    at += length + frame;
  }
}

// The data of the first chunk of this type, of a file that check_chunks() has passed.
std::vector<uint8_t> chunk(std::span<const uint8_t> bytes, const char* type) {
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const size_t length = big_endian(bytes.data() + at);
    const uint8_t* data = bytes.data() + at + 8;
    if (std::memcmp(bytes.data() + at + 4, type, 4) == 0) return {data, data + length};
    if (std::memcmp(bytes.data() + at + 4, "IEND", 4) == 0) break;
    at += length + 12;
  }
  return {};
}

// A file that check_chunks() has passed, up to its end and with an empty chunk in the place of its
// pixels: libpng takes a chunk that it does not unpack as a whole, however large it is.
std::vector<uint8_t> without_pixels(std::span<const uint8_t> bytes) {
  constexpr uint8_t no_pixels[] = {0, 0, 0, 0, 'I', 'D', 'A', 'T', 0x35, 0xaf, 0x06, 0x1e};
  constexpr size_t signature = 8;
  std::vector<uint8_t> out(bytes.begin(), bytes.begin() + std::min(signature, bytes.size()));
  bool passed = false;  // by the first of their chunks
  for (size_t at = signature, size = 0; at < bytes.size(); at += size) {
    const uint8_t* from = bytes.data() + at;
    size = big_endian(from) + sizeof no_pixels;
    if (std::memcmp(from + 4, "IDAT", 4) != 0)
      out.insert(out.end(), from, from + size);
    else if (!std::exchange(passed, true))
      out.insert(out.end(), std::begin(no_pixels), std::end(no_pixels));
    if (std::memcmp(from + 4, "IEND", 4) == 0) break;
  }
  return out;
}

class PngReader {
 public:
  PngReader(std::span<const uint8_t> bytes, const std::string& name) : name_(name) {
    check_chunks(bytes, name);
    stream_.in = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &stream_, on_error, on_warning);
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    if (!info_) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      fail("image: libpng does not start  ", name);
    }
    png_set_read_fn(png_, &stream_, on_read);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // ImageLimits are asked later
    png_set_chunk_malloc_max(png_, size_t{16} << 20);
    png_set_chunk_cache_max(png_, 1000);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Reads up to the pixels.
  void read_info() { check(try_info()); }
  // From here on samples are 8-bit: grey, grey and alpha, RGB or RGB and alpha. Returns the number
  // of channels.
  int64_t expand_to_8_bits() {
    check(try_expand());
    return png_get_channels(png_, info_);
  }
  void read_rows(std::span<png_bytep> rows) { check(try_rows(rows.data())); }
  // In front of read_info(), of a file without_pixels(): that there are none is no error.
  void leave_pixels() {
    png_set_benign_errors(png_, 1);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_ALWAYS,
                                reinterpret_cast<png_const_bytep>("IDAT"), 1);
    png_set_read_user_chunk_fn(png_, nullptr, [](png_structp, png_unknown_chunkp) { return 1; });
  }
  // Reads the chunks after the pixels.
  void read_end() { check(try_end()); }

  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }
  // The colours of the samples, where they are not sRGB. A profile that libpng takes for broken is
  // not there any more.
  void read_colours(ImageMetadata& m) const {
    png_charp label = nullptr;
    png_bytep profile = nullptr;
    png_uint_32 bytes = 0;
    int compression = 0, intent = 0;
    if (png_get_iCCP(png_, info_, &label, &compression, &profile, &bytes) != 0) {
      m.icc.assign(profile, profile + bytes);
    } else if (!chunk(stream_.in, "iCCP").empty()) {
      m.broken_icc = "it cannot be read";
    } else if (png_get_sRGB(png_, info_, &intent) == 0) {
      read_gamma(m);
    }
  }
  std::span<const png_text_struct> texts() const {
    png_textp list = nullptr;
    int count = 0;
    png_get_text(png_, info_, &list, &count);
    return {list, static_cast<size_t>(count)};
  }

 private:
  void read_gamma(ImageMetadata& m) const {
    double file_gamma = 0;
    Primaries p;
    auto& c = p.xy;
    if (png_get_gAMA(png_, info_, &file_gamma) == 0 || !(file_gamma > 0)) return;
    constexpr double usual = 0.45455;  // what encoders of sRGB write
    const bool srgb_curve = std::abs(file_gamma - usual) < 0.01;
    if (!srgb_curve) p.gamma = 1 / file_gamma;
    const bool other =
        png_get_cHRM(png_, info_, &c[0], &c[1], &c[2], &c[3], &c[4], &c[5], &c[6], &c[7]) != 0;
    if (other || !srgb_curve) m.primaries = p;
  }
  void check(bool ok) const { require(ok, "image: broken PNG (", stream_.error, ")  ", name_); }

  bool try_info() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_info(png_, info_);
    return true;
  }
  bool try_expand() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_expand(png_);    // palettes, 1/2/4-bit grey and transparent colours
    png_set_scale_16(png_);  // rounds
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool try_rows(png_bytep* rows) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }
  bool try_end() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_end(png_, info_);
    return true;
  }

  const std::string& name_;
  Stream stream_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

std::string latin1_to_utf8(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<uint8_t>(c);
    if (u >= 0x80) out += static_cast<char>(0xC0 | u >> 6);
    out += static_cast<char>(u >= 0x80 ? 0x80 | (u & 0x3F) : u);
  }
  return out;
}

// ---- writing ----

struct PngWriter {
  Stream stream;
  std::vector<uint8_t> bytes;
  png_structp png = nullptr;
  png_infop info = nullptr;
  ~PngWriter() { png_destroy_write_struct(&png, &info); }
};

struct PngPicture {
  png_uint_32 height = 0, width = 0;
  int colour_type = 0;
  png_bytepp rows = nullptr;
  png_textp texts = nullptr;
  int text_count = 0;
};

bool try_write(PngWriter& w, const PngPicture& p) {
  if (setjmp(png_jmpbuf(w.png))) return false;
  png_set_IHDR(w.png, w.info, p.width, p.height, 8, p.colour_type, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  // Runs of filtered bytes alone: two to three times as fast as zlib's search for repeats, which
  // generated pictures hardly have (files are 0 to 13 % larger).
  png_set_compression_strategy(w.png, Z_RLE);
  if (p.text_count > 0) png_set_text(w.png, w.info, p.texts, p.text_count);
  png_write_info(w.png, w.info);
  png_write_image(w.png, p.rows);
  png_write_end(w.png, nullptr);
  return true;
}

bool is_ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<uint8_t>(c) >= 0x80) return false;
  return true;
}

std::vector<png_text_struct> text_chunks(const std::map<std::string, std::string>& text) {
  std::vector<png_text_struct> chunks;
  for (const auto& [key, value] : text) {
    bool printable = !key.empty() && key.size() <= 79 && key.front() != ' ' && key.back() != ' ';
    for (const char c : key) printable = printable && c >= 0x20 && c < 0x7f;
    printable = printable && key.find("  ") == std::string::npos;
    require(printable, "image: PNG keyword must be 1 to 79 printable characters without spaces at ",
            "the ends or in a row (", shown(key), ")");
    require(valid_utf8(value) && value.find('\0') == std::string::npos,
            "image: PNG text must be UTF-8 without NUL (", shown(key), ")");
    png_text_struct t{};
    t.compression = is_ascii(value) ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
    t.key = const_cast<char*>(key.c_str());  // libpng only reads them
    t.text = const_cast<char*>(value.c_str());
    chunks.push_back(t);
  }
  return chunks;
}

}  // namespace

ImageHeader png_header(std::span<const uint8_t> bytes, const std::string& name) {
  PngReader reader(bytes, name);
  reader.read_info();
  return {reader.height(), reader.width(), chunk(bytes, "eXIf")};
}

DecodedImage decode_png(std::span<const uint8_t> bytes, const std::string& name,
                        const ImageLimits& limits) {
  PngReader reader(bytes, name);
  reader.read_info();
  const int64_t h = reader.height(), w = reader.width();
  check_image_size(h, w, name, limits);
  const int64_t channels = reader.expand_to_8_bits();
  Tensor image(DType::u8, {h, w, channels});
  std::vector<png_bytep> rows(static_cast<size_t>(h));
  for (int64_t y = 0; y < h; ++y)
    rows[static_cast<size_t>(y)] = image.span<uint8_t>().data() + y * w * channels;
  reader.read_rows(rows);
  ImageMetadata metadata;
  metadata.exif = chunk(bytes, "eXIf");
  reader.read_colours(metadata);
  return {image, metadata};
}

std::map<std::string, std::string> png_text(std::span<const uint8_t> bytes,
                                            const std::string& name) {
  check_chunks(bytes, name);
  const std::vector<uint8_t> rest = without_pixels(bytes);
  PngReader reader(rest, name);
  reader.leave_pixels();
  reader.read_info();
  check_image_size(reader.height(), reader.width(), name, ImageLimits{});
  reader.read_end();
  std::map<std::string, std::string> out;
  for (const png_text_struct& t : reader.texts()) {
    const bool unicode = t.compression >= PNG_ITXT_COMPRESSION_NONE;
    const std::string_view value(t.text, unicode ? t.itxt_length : t.text_length);
    const bool as_is = unicode && valid_utf8(value);
    out.emplace(latin1_to_utf8(t.key), as_is ? std::string(value) : latin1_to_utf8(value));
  }
  return out;
}

std::vector<uint8_t> encode_png(const Tensor& image,
                                const std::map<std::string, std::string>& text) {
  const Shape& s = image.shape();
  require(image.dtype() == DType::u8 && s.rank() == 3 && s[0] > 0 && s[1] > 0 && s[0] <= png_side &&
              s[1] <= png_side && (s[2] == 1 || s[2] == 3),
          "image: a PNG must be u8[H,W,C] with C 1 or 3 and sides of 1 to ", png_side, "  ",
          image.type());
  std::vector<png_bytep> rows(static_cast<size_t>(s[0]));
  for (int64_t y = 0; y < s[0]; ++y)
    rows[static_cast<size_t>(y)] = image.span<uint8_t>().data() + y * s[1] * s[2];
  std::vector<png_text_struct> texts = text_chunks(text);
  PngWriter w;
  w.stream.out = &w.bytes;
  w.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &w.stream, on_error, on_warning);
  w.info = w.png ? png_create_info_struct(w.png) : nullptr;
  require(w.info != nullptr, "image: libpng does not start");
  png_set_write_fn(w.png, &w.stream, on_write, on_flush);
  const PngPicture picture{static_cast<png_uint_32>(s[0]),
                           static_cast<png_uint_32>(s[1]),
                           s[2] == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
                           rows.data(),
                           texts.data(),
                           static_cast<int>(texts.size())};
  const bool ok = try_write(w, picture);
  require(ok, "image: cannot encode PNG (", w.stream.error, ")");
  return std::move(w.bytes);
}

}  // namespace ebb::io
