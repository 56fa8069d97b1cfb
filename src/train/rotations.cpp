#include "train/rotations.h"

#include <algorithm>

#include "base/error.h"

namespace ebb::train {
namespace {

template <class T>
void turn(const std::vector<T>& in, int64_t side, int64_t channels, int64_t quarters, T* out) {
  for (int64_t y = 0; y < side; ++y)
    for (int64_t x = 0; x < side; ++x) {
      int64_t row = y, column = x;
      for (int64_t k = 0; k < quarters; ++k) {  // what comes here in a quarter turn
        const int64_t above = side - 1 - column;
        column = row;
        row = above;
      }
      std::copy_n(in.data() + (row * side + column) * channels, channels,
                  out + (y * side + x) * channels);
    }
}

}  // namespace

Rotations::Rotations(const Dataset& data) : data_(data) {
  const Shape s = data.image_shape();
  require(s[0] == s[1], "rotations: images must be square (", s[1], "x", s[0], ")");
  class_names_ = {"0", "90", "180", "270"};
}

int64_t Rotations::get(int64_t index, uint8_t* pixels) const {
  const Shape s = data_.image_shape();
  std::vector<uint8_t> image(static_cast<size_t>(s.numel()));
  data_.get(index / 4, image.data());
  turn(image, s[0], s[2], index % 4, pixels);
  return index % 4;
}

int64_t Rotations::get_f32(int64_t index, float* pixels) const {
  const Shape s = data_.image_shape();
  std::vector<float> image(static_cast<size_t>(s.numel()));
  data_.get_f32(index / 4, image.data());
  turn(image, s[0], s[2], index % 4, pixels);
  return index % 4;
}

}  // namespace ebb::train
