#include "train/buckets.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "io/resize.h"

namespace ebb::train {
namespace {

double ratio_of(PictureSize s) {
  return static_cast<double>(s.width) / static_cast<double>(s.height);
}

int64_t rounded(double v) { return static_cast<int64_t>(v + 0.5); }

// The bucket with the nearest ratio; of equally near ones the first.
PictureSize nearest(PictureSize picture, const std::vector<PictureSize>& buckets) {
  if (std::ranges::binary_search(buckets, picture)) return picture;
  return *std::ranges::min_element(
      buckets, {}, [&](PictureSize b) { return std::abs(ratio_of(b) - ratio_of(picture)); });
}

// So that it covers the bucket.
PictureSize covering(PictureSize picture, PictureSize bucket) {
  const bool by_height = ratio_of(picture) > ratio_of(bucket);
  const double scale =
      by_height ? static_cast<double>(bucket.height) / static_cast<double>(picture.height)
                : static_cast<double>(bucket.width) / static_cast<double>(picture.width);
  return {std::max(rounded(static_cast<double>(picture.width) * scale), bucket.width),
          std::max(rounded(static_cast<double>(picture.height) * scale), bucket.height)};
}

// Of the area that buckets may have at most, with one side a multiple of the step: the side for
// which the other one, rounded down as well, changes the ratio less.
PictureSize shrunk(PictureSize picture, const BucketOptions& o) {
  const double ratio = ratio_of(picture);
  const auto area = static_cast<double>(o.resolution * o.resolution);
  const double width = std::sqrt(area * ratio), height = area / width;
  const auto down = [&](double v) { return rounded(v) - rounded(v) % o.step; };
  const int64_t w = std::max(down(width), o.step), h = std::max(down(height), o.step);
  const auto other_h = std::max(down(static_cast<double>(w) / ratio), o.step);
  const auto other_w = std::max(down(static_cast<double>(h) * ratio), o.step);
  const double by_width = std::abs(ratio_of({w, other_h}) - ratio);
  const double by_height = std::abs(ratio_of({other_w, h}) - ratio);
  if (by_width < by_height) return {w, rounded(static_cast<double>(w) / ratio)};
  return {rounded(static_cast<double>(h) * ratio), h};
}

Fit without_upscale(PictureSize picture, const BucketOptions& o) {
  Fit out{picture, {}};
  if (picture.width * picture.height > o.resolution * o.resolution) out.scaled = shrunk(picture, o);
  out.bucket = {out.scaled.width - out.scaled.width % o.step,
                out.scaled.height - out.scaled.height % o.step};
  require(out.bucket.width > 0 && out.bucket.height > 0, "buckets: the picture must not be ",
          "smaller than a step of ", o.step, " pixels where nothing is enlarged (", picture.width,
          "x", picture.height, ")");
  return out;
}

}  // namespace

void check(const BucketOptions& o) {
  constexpr int64_t largest = 16384;
  require(o.step >= 8 && o.step % 8 == 0 && o.step <= largest,
          "bucket_step: must be a multiple of 8 from 8 on (", o.step, ")");
  require(o.resolution >= o.step && o.resolution <= largest && o.resolution % 8 == 0,
          "resolution: must be a multiple of 8, at least bucket_step (", o.step, ") and at most ",
          largest, " (", o.resolution, ")");
  if (!o.buckets) return;
  require(o.min >= o.step && o.min % o.step == 0 && o.max % o.step == 0 && o.max <= largest,
          "bucket_min, bucket_max: must be multiples of bucket_step (", o.step, "), at most ",
          largest, " (", o.min, ", ", o.max, ")");
  require(o.min <= o.resolution && o.resolution <= o.max,
          "resolution: must be between bucket_min (", o.min, ") and bucket_max (", o.max, ") (",
          o.resolution, ")");
}

std::vector<PictureSize> bucket_sizes(const BucketOptions& o) {
  if (!o.buckets) return {{o.resolution, o.resolution}};
  const int64_t area = o.resolution * o.resolution, square = o.resolution / o.step * o.step;
  std::set<PictureSize> out{{square, square}};
  for (int64_t width = o.min; width <= o.max; width += o.step) {
    const int64_t height = std::min(o.max, area / width / o.step * o.step);
    if (height < o.min) continue;
    out.insert({width, height});
    out.insert({height, width});
  }
  return {out.begin(), out.end()};
}

Fit fit_of(PictureSize picture, const BucketOptions& o) {
  if (o.buckets && o.no_upscale) return without_upscale(picture, o);
  const PictureSize bucket = nearest(picture, bucket_sizes(o));
  return {covering(picture, bucket), bucket};
}

Tensor fitted(const Tensor& picture, const Fit& fit) {
  const auto& [scaled, bucket] = fit;
  const bool same = picture.shape()[0] == scaled.height && picture.shape()[1] == scaled.width;
  const Tensor resized = same ? picture : io::resize(picture, scaled.height, scaled.width);
  if (scaled == bucket) return resized;
  return io::crop(resized, (scaled.height - bucket.height) / 2, (scaled.width - bucket.width) / 2,
                  bucket.height, bucket.width);
}

}  // namespace ebb::train
