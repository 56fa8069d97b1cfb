// Writing JPEG through libjpeg-turbo. Its errors come by a callback that must not return: ours
// jumps, and the function that sets the jump holds no C++ objects.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
// jpeglib.h needs stdio first.
#include <jpeglib.h>

#include "base/error.h"
#include "io/image_encoders.h"

namespace ebb::io {
namespace {

static_assert(jpeg_side == JPEG_MAX_DIMENSION);

struct Picture {
  int64_t height = 0, width = 0, channels = 0;
  const uint8_t* pixels = nullptr;
  std::span<const uint8_t> exif;
  int quality = 0;
};

class JpegWriter {
 public:
  JpegWriter() {
    c_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr c) {
      auto* self = static_cast<JpegWriter*>(c->client_data);
      c->err->format_message(c, self->text_);
      std::longjmp(self->jump_, 1);
    };
    errors_.output_message = [](j_common_ptr) {};
    c_.client_data = this;
  }
  ~JpegWriter() {
    jpeg_destroy_compress(&c_);
    std::free(bytes_);  // libjpeg takes it by malloc
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  std::vector<uint8_t> write(const Picture& p) {
    require(try_write(p), "image: cannot encode JPEG (", text_, ")");
    return {bytes_, bytes_ + size_};
  }

 private:
  bool try_write(const Picture& p) {
    if (setjmp(jump_)) return false;
    jpeg_create_compress(&c_);
    jpeg_mem_dest(&c_, &bytes_, &size_);
    c_.image_height = static_cast<JDIMENSION>(p.height);
    c_.image_width = static_cast<JDIMENSION>(p.width);
    c_.input_components = static_cast<int>(p.channels);
    c_.in_color_space = p.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&c_);
    jpeg_set_quality(&c_, p.quality, TRUE);
    c_.optimize_coding = TRUE;
    constexpr int full_colour = 90;
    if (p.channels == 3 && p.quality >= full_colour)
      c_.comp_info[0].h_samp_factor = c_.comp_info[0].v_samp_factor = 1;
    jpeg_start_compress(&c_, TRUE);
    if (!p.exif.empty())
      jpeg_write_marker(&c_, JPEG_APP0 + 1, p.exif.data(),
                        static_cast<unsigned int>(p.exif.size()));
    while (c_.next_scanline < c_.image_height) {
      auto* row = const_cast<JSAMPROW>(p.pixels + c_.next_scanline * p.width * p.channels);
      jpeg_write_scanlines(&c_, &row, 1);
    }
    jpeg_finish_compress(&c_);
    return true;
  }

  jpeg_compress_struct c_{};
  jpeg_error_mgr errors_{};
  std::jmp_buf jump_{};
  char text_[JMSG_LENGTH_MAX] = "";
  unsigned char* bytes_ = nullptr;
  unsigned long size_ = 0;  // libjpeg's type
};

}  // namespace

std::vector<uint8_t> encode_jpeg(const Tensor& image, std::span<const uint8_t> exif, int quality) {
  const Shape& s = image.shape();
  require(image.dtype() == DType::u8 && s.rank() == 3 && s[0] > 0 && s[1] > 0 &&
              s[0] <= jpeg_side && s[1] <= jpeg_side && (s[2] == 1 || s[2] == 3),
          "image: a JPEG must be u8[H,W,C] with C 1 or 3 and sides of 1 to ", jpeg_side, "  ",
          image.type());
  return JpegWriter().write({.height = s[0],
                             .width = s[1],
                             .channels = s[2],
                             .pixels = image.span<uint8_t>().data(),
                             .exif = exif,
                             .quality = quality});
}

}  // namespace ebb::io
