// Buckets: sizes near the aspect ratios of pictures, as kohya's training scripts choose them, so
// that the pictures of a batch have one size and little of them is cut off.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "train/captioned.h"

namespace ebb::train {

struct PictureSize {
  int64_t width = 0, height = 0;
  auto operator<=>(const PictureSize&) const = default;
};

struct BucketOptions {
  int64_t resolution = 512;  // buckets have at most the pixels of a square of this side
  bool buckets = true;       // false: all pictures are cropped to that square
  int64_t step = 64;         // sides of buckets are multiples of it
  int64_t min = 256, max = 1024;
  bool no_upscale = false;  // the largest size that the picture fills, however small
};
void check(const BucketOptions& options);  // throws Error

// What becomes of a picture: it is resized to `scaled`, which covers `bucket`, and its middle is
// taken.
struct Fit {
  PictureSize scaled, bucket;
  bool operator==(const Fit&) const = default;
};
// All buckets but those of no_upscale, ascending by width, then height.
std::vector<PictureSize> bucket_sizes(const BucketOptions& options);
// Throws Error for pictures that are smaller than a step and may not be enlarged.
Fit fit_of(PictureSize picture, const BucketOptions& options);

// The middle of the resized picture, u8 [H,W,3].
Tensor fitted(const Tensor& picture, const Fit& fit);

}  // namespace ebb::train
