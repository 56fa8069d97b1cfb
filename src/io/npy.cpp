#include "io/npy.h"

#include "base/error.h"
#include "io/file.h"

namespace ebb::io {
namespace {

std::string descr_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "<f4";
    case DType::i64: return "<i8";
    case DType::u8: return "|u1";
    default: fail("npy: has no dtype for ", dtype);
  }
}

// Magic, version, length and the dictionary, padded so that the data begin at a multiple of 64.
std::string header_of(const Tensor& t) {
  std::string sizes;
  for (const int64_t n : t.shape()) sizes += std::to_string(n) + ",";
  std::string text = str("{'descr': '", descr_of(t.dtype()),
                         "', 'fortran_order': False, 'shape': (", sizes, "), }");
  constexpr size_t before = 10, alignment = 64;
  text.append(alignment - 1 - (before + text.size()) % alignment, ' ');
  text += '\n';
  std::string out = "\x93NUMPY";
  out += {'\1', '\0', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return out + text;
}

}  // namespace

void write_npy(const std::string& path, const Tensor& t, Existing existing) {
  AtomicFile file(path, "npy");
  file.write(header_of(t));
  file.write(std::string_view(static_cast<const char*>(t.raw()), static_cast<size_t>(t.bytes())));
  file.commit(existing);
}

}  // namespace ebb::io
