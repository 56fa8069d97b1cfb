// Any bytes as an image: an Error or pixels. PNG chunks get their checksums mended after each
// mutation, else nearly all of them would end there.
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "io/image.h"
#include "io/picture_file.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

void mend_png(uint8_t* data, size_t size) {
  if (size < 8 || std::memcmp(data, "\x89PNG\r\n\x1a\n", 8) != 0) return;
  for (size_t at = 8; at + 12 <= size;) {
    const size_t length = big_endian(data + at);
    if (length > size - at - 12) return;
    const uint32_t crc =
        static_cast<uint32_t>(crc32(0, data + at + 4, static_cast<uInt>(length + 4)));
    for (int i = 0; i < 4; ++i)
      data[at + 8 + length + static_cast<size_t>(i)] = static_cast<uint8_t>(crc >> (24 - 8 * i));
    at += length + 12;
  }
}

template <class F>
void may_fail(F&& f) {
  try {
    f();
  } catch (const ebb::Error&) {
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  size = LLVMFuzzerMutate(data, size, max_size);
  mend_png(data, size);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t channels[] = {0, 1, 3};
  const int64_t wanted = channels[size % 3];
  may_fail([&] {
    const ebb::Tensor t =
        ebb::io::decode_image({data, size}, "input", wanted, {.side = 512, .pixels = 1 << 16});
    const int64_t c = t.shape()[2];
    if (wanted ? c != wanted : c != 1 && c != 3) __builtin_trap();
    if (t.shape()[0] * t.shape()[1] > 1 << 16) __builtin_trap();
  });
  may_fail([&] { ebb::io::picture_text({data, size}, "input"); });
  return 0;
}
