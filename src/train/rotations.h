// Images and their quarter turns as a labelled data set, for feature spaces of images that have no
// labels: a network that tells how an image was turned has to know what is in it (Gidaris et al.
// 2018, https://arxiv.org/abs/1803.07728).
#pragma once

#include "train/dataset.h"

namespace ebb::train {

// Image i of `data` is 4i to 4i + 3 here, turned by label quarters clockwise. Throws Error for
// images that are not square. `data` must outlive it.
class Rotations final : public Dataset {
 public:
  explicit Rotations(const Dataset& data);
  int64_t size() const override { return 4 * data_.size(); }
  Shape image_shape() const override { return data_.image_shape(); }
  int64_t get(int64_t index, uint8_t* pixels) const override;
  int64_t get_f32(int64_t index, float* pixels) const override;

 private:
  const Dataset& data_;
};

}  // namespace ebb::train
