#include "pipeline/tiles.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace ebb {
namespace {

// Where tiles begin along one side, as far apart as the overlap allows, and the same everywhere up
// to rounding.
std::vector<int64_t> first_pixels(int64_t size, const Tiling& t) {
  if (size <= t.tile) return {0};
  const int64_t step = t.tile - t.overlap - t.multiple + 1,
                gaps = (size - t.tile + step - 1) / step;
  std::vector<int64_t> out;
  for (int64_t i = 0; i <= gaps; ++i)
    out.push_back(i * (size - t.tile) / gaps / t.multiple * t.multiple);
  return out;
}

// One side of the image: where tiles begin, and the weight of every result of each.
struct Side {
  std::vector<int64_t> first;
  int64_t tile = 0;
  std::vector<std::vector<float>> weights;  // [tile][tile * factor]; those of a result sum to 1

  Side(int64_t size, const Tiling& t, int64_t factor)
      : first(first_pixels(size, t)), tile(std::min(size, t.tile)) {
    std::vector<float> sums(static_cast<size_t>(size * factor));
    const auto ramp = static_cast<float>(std::max<int64_t>(t.overlap - 2 * t.margin, 1) * factor);
    for (const int64_t begin : first) {
      std::vector<float>& w = weights.emplace_back();
      for (int64_t i = 0; i < tile * factor; ++i) {
        const auto from = static_cast<float>(i - t.margin * factor) + 0.5f,
                   to = static_cast<float>((tile - t.margin) * factor - i) - 0.5f;
        float weight = 1;
        if (begin > 0) weight = std::min(weight, from / ramp);
        if (begin + tile < size) weight = std::min(weight, to / ramp);
        w.push_back(std::max(weight, 0.0f));
        sums[static_cast<size_t>(begin * factor + i)] += w.back();
      }
    }
    for (size_t k = 0; k < first.size(); ++k)
      for (size_t i = 0; i < weights[k].size(); ++i)
        weights[k][i] /= sums[static_cast<size_t>(first[k] * factor) + i];
  }
};

// [N,h,w,C] from row `y` and column `x` on, of f32 [N,H,W,C].
Tensor cut(const Tensor& image, int64_t y, int64_t x, const Shape& shape) {
  const Shape& s = image.shape();
  Tensor out(DType::f32, shape);
  const float* from = image.span<float>().data();
  float* to = out.span<float>().data();
  const int64_t row = shape[2] * shape[3];
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t i = 0; i < shape[1]; ++i, to += row)
      std::copy_n(from + ((n * s[1] + y + i) * s[2] + x) * s[3], row, to);
  return out;
}

struct Place {
  int64_t y, x;  // of the tile's first result
  const std::vector<float>&of_rows, &of_columns;
};

void add(Tensor& image, const Tensor& tile, const Place& at) {
  const Shape &s = image.shape(), &t = tile.shape();
  const float* from = tile.span<float>().data();
  for (int64_t n = 0; n < t[0]; ++n)
    for (int64_t i = 0; i < t[1]; ++i) {
      const float row = at.of_rows[static_cast<size_t>(i)];
      float* to = image.span<float>().data() + ((n * s[1] + at.y + i) * s[2] + at.x) * s[3];
      for (int64_t j = 0; j < t[2]; ++j) {
        const float weight = row * at.of_columns[static_cast<size_t>(j)];
        for (int64_t c = 0; c < t[3]; ++c) *to++ += weight * *from++;
      }
    }
}

}  // namespace

Shape tile_shape(const Shape& image, const Tiling& t) {
  require(image.rank() == 4, "tiles: an image must be [N,H,W,C]  ", image);
  require(t.margin >= 0 && 2 * t.margin < t.overlap && t.overlap < t.tile, "tiles: two margins (",
          t.margin, ") must be less than the overlap (", t.overlap,
          "), and that less than a tile (", t.tile, ")");
  require(t.multiple > 0 && t.tile - t.overlap >= t.multiple &&
              (t.multiple == 1 || (image[1] % t.multiple == 0 && image[2] % t.multiple == 0 &&
                                   t.tile % t.multiple == 0)),
          "tiles: sides of images and tiles (", t.tile, ") must be multiples of ", t.multiple, "  ",
          image);
  return {image[0], std::min(image[1], t.tile), std::min(image[2], t.tile), image[3]};
}

int64_t tile_count(const Shape& image, const Tiling& t) {
  tile_shape(image, t);  // checks
  return static_cast<int64_t>(first_pixels(image[1], t).size() * first_pixels(image[2], t).size());
}

Tensor in_tiles(const Tensor& image, const Tiling& tiling,
                const std::function<Tensor(const Tensor&)>& f) {
  const Shape shape = tile_shape(image.shape(), tiling), &size = image.shape();
  const std::vector<int64_t> rows = first_pixels(size[1], tiling),
                             columns = first_pixels(size[2], tiling);
  if (rows.size() * columns.size() == 1) return f(image);
  Tensor out;
  std::vector<Side> sides;  // of rows and columns, once the factor is known
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t j = 0; j < columns.size(); ++j) {
      const Tensor y = f(cut(image, rows[i], columns[j], shape));
      const Shape& have = y.shape();
      const int64_t k = have.rank() == 4 ? have[1] / shape[1] : 0;
      require(k > 0 && have == Shape({shape[0], k * shape[1], k * shape[2], have[3]}) &&
                  (!out.defined() || out.shape()[1] == k * size[1]),
              "tiles: all results must be as many times as large as their tile  ", have);
      if (!out.defined()) {
        out = Tensor(DType::f32, {size[0], k * size[1], k * size[2], have[3]});
        sides.emplace_back(size[1], tiling, k);
        sides.emplace_back(size[2], tiling, k);
      }
      add(out, y, {k * rows[i], k * columns[j], sides[0].weights[i], sides[1].weights[j]});
    }
  return out;
}

}  // namespace ebb
