#include "pipeline/tiles.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace ebb {
namespace {

// Where tiles begin along one side, as far apart as the overlap allows, and the same everywhere up
// to rounding. On a circle the last one is followed by the first.
std::vector<int64_t> first_pixels(int64_t size, const Tiling& t, bool circular) {
  if (size <= t.tile) return {0};
  const int64_t step = t.tile - t.overlap - t.multiple + 1, way = circular ? size : size - t.tile,
                gaps = (way + step - 1) / step;
  std::vector<int64_t> out;
  for (int64_t i = 0; i < gaps + (circular ? 0 : 1); ++i)
    out.push_back(i * way / gaps / t.multiple * t.multiple);
  return out;
}

struct Grid {
  std::vector<int64_t> rows, columns;  // where tiles begin
  size_t count() const { return rows.size() * columns.size(); }
};

Grid grid_of(const Shape& image, const Tiling& t) {
  return {first_pixels(image[1], t, t.circular.y), first_pixels(image[2], t, t.circular.x)};
}

// Results for pixels: `up` times as many along a side, or a part of `down`.
struct Ratio {
  int64_t up = 1, down = 1;

  static Ratio of(int64_t results, int64_t pixels) {
    return results >= pixels ? Ratio{results / pixels, 1}
                             : Ratio{1, results > 0 ? pixels / results : 1};
  }
  int64_t operator()(int64_t pixels) const { return pixels / down * up; }
};

// One side of the image in results: where tiles begin, and the weight of every result of each.
struct Side {
  std::vector<int64_t> first;
  std::vector<std::vector<float>> weights;  // [tile][of the tile]; those of a result sum to 1

  Side(int64_t pixels, const std::vector<int64_t>& begins, const Tiling& t, Ratio results,
       bool circular) {
    const int64_t size = results(pixels), tile = results(std::min(pixels, t.tile)),
                  margin = results(t.margin);
    std::vector<float> sums(static_cast<size_t>(size));
    const bool seamless = circular && tile < size;
    const auto ramp =
        static_cast<float>(results(std::max<int64_t>(t.overlap - 2 * t.margin, results.down)));
    for (const int64_t pixel : begins) {
      const int64_t begin = first.emplace_back(results(pixel));
      std::vector<float>& w = weights.emplace_back();
      for (int64_t i = 0; i < tile; ++i) {
        const auto from = static_cast<float>(i - margin) + 0.5f,
                   to = static_cast<float>(tile - margin - i) - 0.5f;
        float weight = 1;
        if (begin > 0 || seamless) weight = std::min(weight, from / ramp);
        if (begin + tile < size || seamless) weight = std::min(weight, to / ramp);
        w.push_back(std::max(weight, 0.0f));
        sums[static_cast<size_t>((begin + i) % size)] += w.back();
      }
    }
    for (size_t k = 0; k < first.size(); ++k)
      for (size_t i = 0; i < weights[k].size(); ++i)
        weights[k][i] /= sums[(static_cast<size_t>(first[k]) + i) % sums.size()];
  }
};

// [N,h,w,C] from row `y` and column `x` on, of f32 [N,H,W,C], which goes on at its opposite side.
Tensor cut(const Tensor& image, int64_t y, int64_t x, const Shape& shape) {
  const Shape& s = image.shape();
  Tensor out(DType::f32, shape);
  const float* from = image.span<float>().data();
  float* to = out.span<float>().data();
  const int64_t before = std::min(shape[2], s[2] - x);  // columns up to the image's end
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t i = 0; i < shape[1]; ++i) {
      const float* row = from + (n * s[1] + (y + i) % s[1]) * s[2] * s[3];
      to = std::copy_n(row + x * s[3], before * s[3], to);
      to = std::copy_n(row, (shape[2] - before) * s[3], to);
    }
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
      float* to_row = image.span<float>().data() + (n * s[1] + (at.y + i) % s[1]) * s[2] * s[3];
      for (int64_t j = 0; j < t[2]; ++j) {
        const float weight = row * at.of_columns[static_cast<size_t>(j)];
        float* to = to_row + (at.x + j) % s[2] * s[3];
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
  return static_cast<int64_t>(grid_of(image, t).count());
}

Tensor in_tiles(const Tensor& image, const Tiling& tiling,
                const std::function<Tensor(const Tensor&)>& f) {
  const Shape shape = tile_shape(image.shape(), tiling), &size = image.shape();
  const Grid grid = grid_of(size, tiling);
  const auto& [rows, columns] = grid;
  if (grid.count() == 1) return f(image);
  Tensor out;
  Ratio ratio;
  std::vector<Side> sides;  // of rows and columns, once the ratio is known
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t j = 0; j < columns.size(); ++j) {
      const Tensor y = f(cut(image, rows[i], columns[j], shape));
      const Shape& have = y.shape();
      require(have.rank() == 4, "tiles: results must be images  ", have);
      if (!out.defined()) ratio = Ratio::of(have[1], shape[1]);
      require(have == Shape({shape[0], ratio(shape[1]), ratio(shape[2]), have[3]}) &&
                  tiling.multiple % ratio.down == 0,
              "tiles: all results must be as many times as large as their tile  ", have);
      require(tiling.margin % ratio.down == 0 && tiling.overlap % ratio.down == 0,
              "tiles: margins (", tiling.margin, ") and overlaps (", tiling.overlap,
              ") must be multiples of what results are smaller by (", ratio.down, ")");
      if (!out.defined()) {
        out = Tensor(DType::f32, {size[0], ratio(size[1]), ratio(size[2]), have[3]});
        sides.emplace_back(size[1], rows, tiling, ratio, tiling.circular.y);
        sides.emplace_back(size[2], columns, tiling, ratio, tiling.circular.x);
      }
      add(out, y, {sides[0].first[i], sides[1].first[j], sides[0].weights[i], sides[1].weights[j]});
    }
  return out;
}

}  // namespace ebb
