// JPEG through libjpeg-turbo. The library reports errors by a callback that must not return: ours
// jumps, and the functions that set the jump hold no C++ objects.
#include <csetjmp>
#include <cstdio>
// jpeglib.h needs stdio first.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>

#include "io/image_decoders.h"

namespace ebb::io {
namespace {

// A hostile progressive file can have any number of scans over the whole picture.
constexpr int scan_limit = 100;

class JpegReader {
 public:
  explicit JpegReader(const std::string& name) : name_(name) {
    d_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    errors_.output_message = [](j_common_ptr) {};
    progress_.progress_monitor = on_progress;
    d_.client_data = this;
    check(try_create());
    d_.progress = &progress_;
  }
  ~JpegReader() { jpeg_destroy_decompress(&d_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  void read_header(std::span<const uint8_t> bytes) {
    check(try_header(bytes.data(), bytes.size()));
  }
  void read_pixels(uint8_t* out) { check(try_pixels(out)); }
  size_t unread() const { return d_.src->bytes_in_buffer; }  // of the header's reader
  int64_t height() const { return d_.image_height; }
  int64_t width() const { return d_.image_width; }
  int64_t channels() const { return d_.out_color_components; }
  bool adobe() const { return d_.saw_Adobe_marker; }
  ImageMetadata metadata() const {
    ImageMetadata m;
    if (const auto exif = markers(JPEG_APP0 + 1, {"Exif\0\0", 6}); !exif.empty())
      m.exif.assign(exif[0].begin(), exif[0].end());
    assemble(markers(JPEG_APP0 + 2, {"ICC_PROFILE\0", 12}), m);
    return m;
  }

 private:
  using Bytes = std::span<const uint8_t>;

  // What follows `prefix` in the markers of this code.
  std::vector<Bytes> markers(int code, std::string_view prefix) const {
    std::vector<Bytes> out;
    for (auto* m = d_.marker_list; m; m = m->next)
      if (m->marker == code && m->data_length >= prefix.size() &&
          std::equal(prefix.begin(), prefix.end(), m->data))
        out.push_back(Bytes(m->data, m->data_length).subspan(prefix.size()));
    return out;
  }

  // A profile in numbered chunks: [number from 1][how many][bytes].
  static void assemble(const std::vector<Bytes>& chunks, ImageMetadata& m) {
    for (size_t number = 1; number <= chunks.size(); ++number) {
      const auto at = std::ranges::find_if(chunks, [&](Bytes c) {
        return c.size() >= 2 && c[0] == number && c[1] == chunks.size();
      });
      if (at == chunks.end()) {
        m.icc.clear();
        m.broken_icc = "its chunks are not complete";
        return;
      }
      m.icc.insert(m.icc.end(), at->begin() + 2, at->end());
    }
  }

  static JpegReader* self(j_common_ptr d) { return static_cast<JpegReader*>(d->client_data); }

  [[noreturn]] static void on_error(j_common_ptr d) {
    d->err->format_message(d, self(d)->text_);
    std::longjmp(self(d)->jump_, 1);
  }
  // Warnings that mean missing pixels are errors; the rest (stray bytes, odd markers) is harmless.
  static void on_message(j_common_ptr d, int level) {
    const int code = d->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
                      code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC))
      on_error(d);
  }
  static void on_progress(j_common_ptr d) {
    if (reinterpret_cast<j_decompress_ptr>(d)->input_scan_number <= scan_limit) return;
    std::snprintf(self(d)->text_, sizeof self(d)->text_, "more than %d scans", scan_limit);
    std::longjmp(self(d)->jump_, 1);
  }
  void check(bool ok) const { require(ok, "image: broken JPEG (", text_, ")  ", name_); }

  bool try_create() {
    if (setjmp(jump_)) return false;
    jpeg_create_decompress(&d_);
    return true;
  }
  bool try_header(const uint8_t* bytes, size_t n) {
    if (setjmp(jump_)) return false;
    jpeg_mem_src(&d_, bytes, n);
    jpeg_save_markers(&d_, JPEG_APP0 + 1, 0xffff);  // EXIF
    jpeg_save_markers(&d_, JPEG_APP0 + 2, 0xffff);  // ICC
    jpeg_read_header(&d_, TRUE);
    const bool four = d_.jpeg_color_space == JCS_CMYK || d_.jpeg_color_space == JCS_YCCK;
    const bool grey = d_.jpeg_color_space == JCS_GRAYSCALE;
    d_.out_color_space = four ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
    d_.dct_method = JDCT_ISLOW;
    jpeg_calc_output_dimensions(&d_);
    return true;
  }
  bool try_pixels(uint8_t* out) {
    if (setjmp(jump_)) return false;
    jpeg_start_decompress(&d_);
    const size_t row = size_t{d_.output_width} * static_cast<size_t>(d_.output_components);
    while (d_.output_scanline < d_.output_height) {
      JSAMPROW to = out + d_.output_scanline * row;
      jpeg_read_scanlines(&d_, &to, 1);
    }
    jpeg_finish_decompress(&d_);
    return true;
  }

  const std::string& name_;
  jpeg_decompress_struct d_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_{};
  char text_[JMSG_LENGTH_MAX] = "";
};

// Ink to light, without a colour profile: what remains of white under both inks. Files with an
// Adobe marker hold the complement of the ink.
Tensor cmyk_to_rgb(const Tensor& cmyk, bool inverted) {
  Tensor rgb(DType::u8, {cmyk.shape()[0], cmyk.shape()[1], 3});
  const uint8_t* in = cmyk.span<uint8_t>().data();
  uint8_t* out = rgb.span<uint8_t>().data();
  for (int64_t i = 0; i < rgb.numel() / 3; ++i) {
    const auto light = [&](int64_t c) -> unsigned {
      return inverted ? in[4 * i + c] : 255u - in[4 * i + c];
    };
    for (int64_t c = 0; c < 3; ++c)
      out[3 * i + c] = static_cast<uint8_t>((light(c) * light(3) + 127) / 255);
  }
  return rgb;
}

}  // namespace

DecodedImage decode_jpeg(std::span<const uint8_t> bytes, const std::string& name,
                         const ImageLimits& limits) {
  JpegReader reader(name);
  reader.read_header(bytes);
  check_image_size(reader.height(), reader.width(), name, limits);
  const ImageMetadata metadata = reader.metadata();  // gone with the last row
  Tensor image(DType::u8, {reader.height(), reader.width(), reader.channels()});
  reader.read_pixels(image.span<uint8_t>().data());
  return {reader.channels() == 4 ? cmyk_to_rgb(image, reader.adobe()) : image, metadata};
}

ImageHeader jpeg_header(std::span<const uint8_t> bytes, const std::string& name) {
  JpegReader reader(name);
  reader.read_header(bytes);
  return {reader.height(), reader.width(), reader.metadata().exif};
}

ImageMetadata jpeg_metadata(std::span<const uint8_t> bytes, const std::string& name) {
  constexpr uint8_t end[] = {0xff, 0xd9};
  JpegReader reader(name);
  reader.read_header(bytes);
  // Segments in front of the pixels may hold pictures of their own, with ends of theirs.
  const auto pixels = bytes.subspan(bytes.size() - reader.unread());
  require(
      std::find_end(pixels.begin(), pixels.end(), std::begin(end), std::end(end)) != pixels.end(),
      "image: broken JPEG (it has no end)  ", name);
  return reader.metadata();
}

}  // namespace ebb::io
