#include "pipeline/upscaler.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "diffusion/solver/run.h"
#include "io/pixels.h"
#include "io/resize.h"
#include "io/safetensors.h"
#include "pipeline/component.h"
#include "pipeline/decoder.h"
#include "pipeline/file_purpose.h"

namespace ebb {
namespace {

// Sides of tiles that are tried in this order: features at the end are k times as large.
constexpr std::array<int64_t, 6> tile_sides = {512, 384, 256, 192, 128, 64};
constexpr int most_times = 3;

// An overlap of 0: an eighth. The outer quarters of an overlap lack their surroundings.
std::vector<Tiling> tilings(const UpscaleOptions& o, int64_t multiple) {
  std::vector<int64_t> sides(tile_sides.begin(), tile_sides.end());
  if (o.tile > 0) sides = {(o.tile + multiple - 1) / multiple * multiple};
  std::vector<Tiling> out;
  for (const int64_t side : sides) {
    const int64_t shared = o.overlap > 0 ? o.overlap : side / 8;
    out.push_back({.tile = side,
                   .overlap = shared,
                   .margin = shared / 4,
                   .multiple = multiple,
                   .circular = o.circular});
  }
  return out;
}

EntryCall call_of(const Shape& image) { return {"upscale", {{"pixels", image}}, {"pixels"}}; }

int64_t multiple_of(const Component& c) { return c.model->size_multiple(c.config); }

// Mirrored below and to the right to sides that are multiples.
Tensor padded(const Tensor& image, int64_t multiple) {
  const Shape& s = image.shape();
  const auto up = [&](int64_t n) { return (n + multiple - 1) / multiple * multiple; };
  if (up(s[1]) == s[1] && up(s[2]) == s[2]) return image;
  Tensor out(DType::f32, {s[0], up(s[1]), up(s[2]), s[3]});
  const auto mirrored = [](int64_t i, int64_t n) {
    return i < n ? i : std::max<int64_t>(2 * n - 2 - i, 0);
  };
  const float* from = image.span<float>().data();
  float* to = out.span<float>().data();
  for (int64_t n = 0; n < s[0]; ++n)
    for (int64_t y = 0; y < out.shape()[1]; ++y)
      for (int64_t x = 0; x < out.shape()[2]; ++x, to += s[3])
        std::copy_n(from + ((n * s[1] + mirrored(y, s[1])) * s[2] + mirrored(x, s[2])) * s[3], s[3],
                    to);
  return out;
}

// The upper left part, clipped.
Tensor cropped(const Tensor& image, int64_t height, int64_t width) {
  const Shape& s = image.shape();
  Tensor out(DType::f32, {s[0], height, width, s[3]});
  float* to = out.span<float>().data();
  for (int64_t n = 0; n < s[0]; ++n)
    for (int64_t y = 0; y < height; ++y) {
      const float* row = image.span<float>().data() + (n * s[1] + y) * s[2] * s[3];
      to = std::transform(row, row + width * s[3], to,
                          [](float v) { return std::clamp(v, -1.f, 1.f); });
    }
  return out;
}

// f32 in [-1,1] of u8 images, one by one, of another size.
Tensor resized(const Tensor& pixels, int64_t height, int64_t width, CircularAxes circular) {
  const Tensor bytes = to_pixels(pixels);
  const Shape& s = pixels.shape();
  const io::CircularSides sides{.y = circular.y, .x = circular.x};
  Tensor out(DType::f32, {s[0], height, width, s[3]});
  for (int64_t i = 0; i < s[0]; ++i) {
    const Tensor one =
        io::resize(image_at(bytes, i), height, width, io::ResizeFilter::lanczos, sides);
    io::signed_pixels(one.span<uint8_t>(), out.rows(i, i + 1).span<float>());
  }
  return out;
}

}  // namespace

int64_t scale_of_upscaler(const Component& c) {
  const int64_t side = multiple_of(c);
  const Graph g = entry_graph(*c.model, c.config, call_of({1, side, side, 3}));
  return g.type(g.outputs().at(0).value).shape[1] / side;
}

LoadedComponent load_upscaler(const std::string& file, std::string_view flag) {
  const auto open = std::make_shared<const io::TensorFile>(io::TensorFile::open(file));
  const Component c = component_in(*open, file, ModelKind::upscaler, flag);
  ModelConfig config = c.config;
  for (const Field& f : config.fields())
    require(f.name != "image_channels" || field_text(f) == "3",
            "upscale: the network must work on pictures of 3 channels (", field_text(f), ")  ",
            file);
  return {c, open_component(open, file, c)};
}

Upscaler::Upscaler(LoadedComponent network, Context context, const UpscaleOptions& options)
    : network_(std::move(network)),
      context_(std::move(context)),
      options_(options),
      // bf16 has too few bits for pixels
      dtype_(context_.device->fast_in(DType::f16) ? DType::f16 : DType::f32),
      scale_(scale_of_upscaler(network_.component)),
      plans_(
          [this](const Shape& tile) {
            return entry_plan(network_.component, call_of(tile), dtype_, network_.weights, context_,
                              options_.circular);
          },
          [this](const Shape&) { return tilings(options_, multiple_of(network_.component)); }) {
  require(options.tile == 0 || options.tile >= 32,
          "upscale: a tile must have a side of 32 pixels or more (", options.tile, ")");
}

std::span<const int64_t> Upscaler::sides() { return tile_sides; }

PlanNeeds Upscaler::needs(const Shape& image, double scale, int64_t side) {
  const int64_t multiple = multiple_of(network_.component);
  Shape s = image;
  for (int i = 1; i < times_for(scale); ++i) s[1] *= scale_, s[2] *= scale_;
  for (size_t k : {1, 2}) s[k] = (s[k] + multiple - 1) / multiple * multiple;
  return plans_.needs(s, side);
}

Shape Upscaler::scaled(const Shape& image, double scale) {
  const auto side = [&](int64_t n) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(n) * scale));
  };
  return {image[0], side(image[1]), side(image[2]), image[3]};
}

void Upscaler::release() {
  plans_.release();
  network_.weights->drop_unused(*context_.device);
}

int Upscaler::times_for(double scale) const {
  int times = 1;
  for (double have = static_cast<double>(scale_); have < scale && times < most_times && scale_ > 1;
       have *= static_cast<double>(scale_))
    ++times;
  return times;
}

Tensor Upscaler::run(const Tensor& pixels, const std::function<bool(double)>& progress) {
  const Shape& s = pixels.shape();
  require(s.rank() == 4 && s[3] == 3 && pixels.dtype() == DType::f32,
          "upscale: pixels must be f32 [N,H,W,3]  ", s);
  const int64_t multiple = multiple_of(network_.component);
  require((!options_.circular.y || s[1] % multiple == 0) &&
              (!options_.circular.x || s[2] % multiple == 0),
          "upscale: pictures that go on at their opposite side must have sides that are multiples "
          "of ",
          multiple, "  ", s);
  const Tensor image = padded(pixels, multiple);
  const Shape one = {1, image.shape()[1], image.shape()[2], 3};
  const auto tell = [&](double share) {
    if (progress && !progress(share)) throw Cancelled("upscale: stopped");
  };
  tell(0);  // before a plan is compiled
  const auto [plan, tiling, chosen] = plans_.use(one);
  Tensor out(DType::f32, {s[0], s[1] * scale_, s[2] * scale_, 3});
  const double tiles = static_cast<double>(s[0] * tile_count(one, tiling));
  double done = 0;
  const Watched watched(plan, [&](double share) { tell((done + share) / tiles); });
  for (int64_t i = 0; i < s[0]; ++i) {
    const Tensor large =
        in_tiles(image.rows(i, i + 1), tiling, [&, &plan = plan](const Tensor& tile) {
          Tensor made = plan.run({{"pixels", tile}}).at("pixels");
          tell(++done / tiles);
          return made;
        });
    const auto from = large.span<float>();
    require(std::ranges::all_of(from, [](float v) { return std::isfinite(v); }),
            "upscale: the pixels of image ", i, " are not finite in ", dtype_, "  ",
            network_.component.model->name);
    std::ranges::copy(cropped(large, s[1] * scale_, s[2] * scale_).span<float>(),
                      out.rows(i, i + 1).span<float>().begin());
  }
  return out;
}

Tensor Upscaler::run(const Tensor& pixels, double scale,
                     const std::function<bool(double)>& progress) {
  require(scale > 0 && scale <= 16, "upscale: the scale must be more than 0 and at most 16 (",
          scale, ")");
  const Shape& s = pixels.shape();
  require(s.rank() == 4, "upscale: pixels must be f32 [N,H,W,3]  ", s);
  const Shape large = scaled(s, scale);
  const int times = times_for(scale);
  Tensor out = pixels;
  for (int i = 0; i < times; ++i)
    out = run(out, [&](double share) { return !progress || progress((i + share) / times); });
  if (out.shape()[1] == large[1] && out.shape()[2] == large[2]) return out;
  return resized(out, large[1], large[2], options_.circular);
}

}  // namespace ebb
