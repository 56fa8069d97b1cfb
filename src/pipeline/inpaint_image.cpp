#include "pipeline/inpaint_image.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "io/resize.h"
#include "pipeline/decoder.h"
#include "pipeline/picture_bytes.h"
#include "pipeline/picture_dialect.h"

namespace ebb {
namespace {

// What networks that were trained to inpaint take: the mask [1,h,w,1], 1 where there is none, and
// the latents f32 [1,h,w,C] of the picture without what is masked.
void add_concat(const Tensor& mask, const Tensor& masked, RunInputs& inputs) {
  const Shape& s = masked.shape();
  const int64_t channels = s[3], count = s[1] * s[2];
  Tensor beside(DType::f32, {1, s[1], s[2], channels + 1});
  const auto to = beside.span<float>();
  for (int64_t i = 0; i < count; ++i) {
    to[static_cast<size_t>(i * (channels + 1))] =
        mask.defined() ? mask.span<float>()[static_cast<size_t>(i)] : 1;
    std::copy_n(masked.span<float>().begin() + i * channels, channels,
                to.begin() + i * (channels + 1) + 1);
  }
  inputs.conditions.add(nn::concat_image, beside);
}

class UnmaskedMode : public RunMode {
 public:
  UnmaskedMode(ImageSize pixels, const ResolvedRequest& r)
      : pixels_(pixels),
        latents_(r.sample),
        known_(picture_dialect(r.options.dialect).grey_latents) {}
  void prepare(const RunTools& tools, RunInputs& inputs) const override {
    if (std::ssize(known_) == latents_[2]) {
      Tensor latents(DType::f32, {1, latents_[0], latents_[1], latents_[2]});
      const auto to = latents.span<float>();
      for (size_t i = 0; i < to.size(); ++i) to[i] = known_[i % known_.size()];
      return add_concat({}, latents, inputs);
    }
    Tensor grey(DType::f32, {1, pixels_.height, pixels_.width, 3});
    std::ranges::fill(grey.span<float>(), 0.0f);
    add_concat({}, tools.encode(grey).mean, inputs);
  }

 private:
  ImageSize pixels_;
  Shape latents_;
  std::span<const float> known_;
};

class InpaintMode : public RunMode {
 public:
  InpaintMode(InpaintPictures p, const MaskImage& mask, const ResolvedRequest& r, int64_t extra)
      : pictures_(std::move(p)),
        content_(mask.content),
        overlay_(mask.overlay),
        trained_(extra > 0),
        latents_({.height = r.sample[0], .width = r.sample[1]}),
        dialect_(r.options.dialect),
        where_(known_regions(dialect_, r.options.sampler)) {}

  void prepare(const RunTools& tools, RunInputs& inputs) const override {
    const Tensor mask = latent_mask(pictures_.mask, latents_, picture_dialect(dialect_).mask);
    if (content_ == MaskedContent::noise) inputs.noise_instead = mask;
    if (content_ == MaskedContent::nothing) {
      const auto m = mask.span<float>();
      const auto data = inputs.data.span<float>();
      const size_t channels = data.size() / m.size();
      for (size_t i = 0; i < data.size(); ++i) data[i] *= 1 - m[i / channels];
    }
    if (!trained_ || picture_dialect(dialect_).restores_always) inputs.known = {mask, where_};
    if (trained_) add_masked(tools, inputs);
  }

  Tensor finish(Tensor pixels) const override {
    if (!overlay_) return pixels;
    if (!pictures_.region) return overlaid(pixels, pictures_.base, pictures_.base_mask);
    const Region& r = *pictures_.region;
    const Tensor small = io::resize(
        image_at(
            picture_bytes(pixels.reshape({1, pixels.shape()[0], pixels.shape()[1], 3}), dialect_),
            0),
        r.height, r.width);
    const Tensor whole = signed_pixels(pictures_.base);
    const int64_t width = whole.shape()[2];
    const auto to = whole.span<float>();
    const Tensor made = signed_pixels(small);
    const auto from = made.span<float>();
    for (int64_t y = 0; y < r.height; ++y)
      std::copy_n(from.begin() + y * r.width * 3, r.width * 3,
                  to.begin() + ((r.top + y) * width + r.left) * 3);
    return overlaid(image_at(whole, 0), pictures_.base, pictures_.base_mask);
  }

 private:
  void add_masked(const RunTools& tools, RunInputs& inputs) const {
    const Tensor mask =
        latent_mask(pictures_.mask, latents_, picture_dialect(dialect_).mask_beside);
    const Tensor pixels = signed_pixels(pictures_.picture);
    const auto m = pictures_.mask.span<uint8_t>();
    const auto v = pixels.span<float>();
    for (size_t i = 0; i < v.size(); ++i)
      if (m[i / 3] >= 128) v[i] = 0;
    add_concat(mask, tools.encode(pixels).mean, inputs);
  }

  InpaintPictures pictures_;
  MaskedContent content_;
  bool overlay_, trained_;
  ImageSize latents_;
  std::string dialect_;
  KnownRegions where_;
};

// Twice the mask: what is generated in part at least by half is laid over whole.
Tensor doubled(const Tensor& mask) {
  Tensor out = mask.clone();
  for (uint8_t& v : out.span<uint8_t>()) v = static_cast<uint8_t>(std::min(2 * int{v}, 255));
  return out;
}

// The picture with its edges repeated.
Tensor extended(const Tensor& picture, Outpaint o) {
  const Shape& s = picture.shape();
  const int64_t height = s[0] + o.top + o.bottom, width = s[1] + o.left + o.right, c = s[2];
  Tensor out(DType::u8, {height, width, c});
  const uint8_t* from = picture.span<uint8_t>().data();
  uint8_t* to = out.span<uint8_t>().data();
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x, to += c) {
      const int64_t sy = std::clamp<int64_t>(y - o.top, 0, s[0] - 1),
                    sx = std::clamp<int64_t>(x - o.left, 0, s[1] - 1);
      std::copy_n(from + (sy * s[1] + sx) * c, c, to);
    }
  return out;
}

}  // namespace

MaskedContent masked_content(std::string_view name) {
  if (name == "fill") return MaskedContent::fill;
  if (name == "original") return MaskedContent::original;
  if (name == "noise") return MaskedContent::noise;
  require(name == "nothing",
          "generate: --masked-content must be fill, original, noise or nothing (got '", name, "')");
  return MaskedContent::nothing;
}

// ---- outpainting ---------------------------------------------------------------------------

Outpaint parse_outpaint(std::string_view text) {
  constexpr int64_t most = 8192;
  Outpaint out;
  const char *at = text.data(), *end = text.data() + text.size();
  for (int64_t* side : {&out.left, &out.right, &out.top, &out.bottom}) {
    const auto read = std::from_chars(at, end, *side);
    const bool last = side == &out.bottom;
    const bool good = read.ec == std::errc() && *side >= 0 && *side <= most &&
                      (last ? read.ptr == end : read.ptr != end && *read.ptr == ',');
    require(good, "generate: --outpaint must be left,right,top,bottom, each 0 to ", most,
            " pixels (got '", text, "')");
    at = read.ptr + (last ? 0 : 1);
  }
  require(out != Outpaint{}, "generate: --outpaint adds nothing (got '", text, "')");
  return out;
}

void extend(InitImage& init, std::optional<MaskImage>& mask, Outpaint o, int64_t multiple) {
  const Shape& s = init.picture.shape();
  const auto up = [multiple](int64_t side) { return (multiple - side % multiple) % multiple; };
  if (!mask) mask = MaskImage{.picture = {}, .content = MaskedContent::fill};
  o.right += up(s[1] + o.left + o.right), o.bottom += up(s[0] + o.top + o.bottom);
  Tensor grey(DType::u8, {s[0], s[1], 1});
  std::ranges::fill(grey.span<uint8_t>(), uint8_t{0});
  if (mask->picture.defined())
    grey = mask->invert ? inverted(mask->picture) : mask->picture.clone();
  require(grey.shape()[0] == s[0] && grey.shape()[1] == s[1], "generate: --mask (", grey.shape()[1],
          "x", grey.shape()[0], ") must have the size of --init (", s[1], "x", s[0],
          ") with --outpaint");
  mask->invert = false;
  init.picture = extended(init.picture, o);
  mask->picture = extended(grey, o);
  const int64_t height = mask->picture.shape()[0], width = mask->picture.shape()[1];
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      if (y < o.top || y >= height - o.bottom || x < o.left || x >= width - o.right)
        mask->picture.span<uint8_t>()[static_cast<size_t>(y * width + x)] = 255;
}

// ---- the run -------------------------------------------------------------------------------

int64_t mask_blur(const MaskImage& mask, std::string_view dialect) {
  return mask.blur.value_or(picture_dialect(dialect).mask_blur);
}

InpaintPictures inpaint_pictures(const InitImage& init, const MaskImage& m, ImageSize size,
                                 std::string_view dialect) {
  constexpr int64_t most_padding = 16384;  // as pictures may have
  require(m.padding >= 0 && m.padding <= most_padding, "generate: --mask-padding must be 0 to ",
          most_padding, " (got ", m.padding, ")");
  const Shape& s = init.picture.shape();
  const int64_t blur = mask_blur(m, dialect);
  Tensor mask = io::resize(m.picture, s[0], s[1]);
  if (m.invert) mask = inverted(mask);
  mask = blurred(mask, blur);
  InpaintPictures out;
  if (m.only_masked) {
    out.region = of_ratio(masked_region(mask, m.padding), size, {.height = s[0], .width = s[1]});
    out.base = init.picture, out.base_mask = mask;
    out.picture = fitted(cropped(init.picture, *out.region), size, FitRule::stretch);
    out.mask = fitted(cropped(mask, *out.region), size, FitRule::stretch);
  } else {
    out.picture = fitted(init.picture, size, init.fit);
    out.mask = fitted(mask, size, init.fit);
    masked_region(out.mask, 0);  // for its error
    out.base = out.picture, out.base_mask = doubled(out.mask);
  }
  if (m.content != MaskedContent::original) out.picture = filled(out.picture, out.mask);
  return out;
}

std::shared_ptr<const RunMode> unmasked_mode(ImageSize pixels, const ResolvedRequest& r) {
  return std::make_shared<UnmaskedMode>(pixels, r);
}

std::shared_ptr<const RunMode> inpaint_mode(const InpaintPictures& pictures, const MaskImage& mask,
                                            const ResolvedRequest& r, int64_t extra) {
  require(extra == 0 || extra == r.sample[-1] + 1, "generate: --mask: the network takes ", extra,
          " channels beside its latents, and a mask and masked latents are ", r.sample[-1] + 1);
  return std::make_shared<InpaintMode>(pictures, mask, r, extra);
}

}  // namespace ebb
