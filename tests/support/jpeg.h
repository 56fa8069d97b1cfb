// Test helpers: images as JPEG files.
#pragma once

// jpeglib.h needs stdio first.
#include <cstdio>
#include <jpeglib.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace ebb::testing {

struct Jpeg {
  J_COLOR_SPACE space = JCS_UNKNOWN;  // of the samples; unknown: grey or RGB, by the channels
  int quality = 98;
  bool progressive = false;
  std::vector<std::pair<int, std::vector<uint8_t>>> markers = {};  // n of APPn, bytes
};

// The file of a u8 [H,W,C] image.
inline std::vector<uint8_t> jpeg_of(const Tensor& image, const Jpeg& how = {}) {
  jpeg_compress_struct c{};
  jpeg_error_mgr errors{};
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &memory, &size);
  c.image_height = static_cast<JDIMENSION>(image.shape()[0]);
  c.image_width = static_cast<JDIMENSION>(image.shape()[1]);
  c.input_components = static_cast<int>(image.shape()[2]);
  c.in_color_space = how.space != JCS_UNKNOWN  ? how.space
                     : c.input_components == 1 ? JCS_GRAYSCALE
                                               : JCS_RGB;
  jpeg_set_defaults(&c);
  jpeg_set_quality(&c, how.quality, TRUE);
  if (how.progressive) jpeg_simple_progression(&c);
  jpeg_start_compress(&c, TRUE);
  for (const auto& [app, bytes] : how.markers)
    jpeg_write_marker(&c, JPEG_APP0 + app, bytes.data(), static_cast<unsigned>(bytes.size()));
  for (int64_t y = 0; y < image.shape()[0]; ++y) {
    JSAMPROW row = image.span<uint8_t>().data() + y * image.shape()[1] * image.shape()[2];
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  std::vector<uint8_t> out(memory, memory + size);
  std::free(memory);
  jpeg_destroy_compress(&c);
  return out;
}

}  // namespace ebb::testing
