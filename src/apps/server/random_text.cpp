#include "apps/server/random_text.h"

#include <random>

namespace ebb::server {

std::string random_text(size_t length, std::string_view signs) {
  std::random_device numbers;  // of the kernel's generator
  std::uniform_int_distribution<size_t> sign(0, signs.size() - 1);
  std::string out;
  for (size_t i = 0; i < length; ++i) out += signs[sign(numbers)];
  return out;
}

}  // namespace ebb::server
