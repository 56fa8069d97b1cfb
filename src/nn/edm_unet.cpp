#include "nn/edm_unet.h"

#include <algorithm>

#include "base/error.h"

namespace ebb::nn {
namespace {

Value attend(const Params& p, Value x, const EdmStyle& s, int64_t heads) {
  const Value qkv = self_attention(p / "qkv", edm_norm(p / "norm2", x, s.eps),
                                   {.heads = heads,
                                    .order = QkvOrder::head_channel_qkv,
                                    .qkv = {.init = s.init_attention, .file_dims = 2}});
  const Value y = conv(p / "proj", qkv, x.shape()[-1], {.kernel = 1, .init = s.init_zero});
  const AtScope at = p.enter();
  return s.skip_scale == 1 ? y + x : (y + x) * s.skip_scale;
}

}  // namespace

Value resample(Value x, Resample how, const std::vector<double>& taps) {
  if (how == Resample::none) return x;
  const bool up = how == Resample::up;
  if (taps == std::vector<double>{1, 1}) return up ? ops::upsample_nearest2(x) : ops::avg_pool2(x);
  return ops::fir_resample(x, {.up = up ? 2 : 1, .down = up ? 1 : 2, .taps = taps});
}

Value halve_inside(Value x, const std::vector<double>& taps) {
  if (taps == std::vector<double>{1, 1}) return ops::avg_pool2(x);
  return ops::fir_resample(x, {.down = 2, .taps = taps, .pad = 0});
}

Value edm_norm(const Params& p, Value x, double eps) {
  const int64_t c = x.shape()[-1];
  return group_norm(p, x, {.groups = std::min<int64_t>(32, c / 4), .eps = eps});
}

Value edm_block(const Params& p, Value x, Value emb, const EdmStyle& s, const EdmBlock& b) {
  const AtScope at = p.enter();
  const int64_t in = x.shape()[-1];
  Value h = ops::silu(edm_norm(p / "norm0", x, s.eps));
  h = conv(p / "conv0", resample(h, b.resample, s.taps), b.out, {.init = s.init});

  if (s.adaptive_scale) {
    const Value scale_shift = linear(p / "affine", emb, 2 * b.out, {.init = s.init});
    const auto parts = ops::split(scale_shift, 1, 2);
    h = ops::modulate(edm_norm(p / "norm1", h, s.eps), parts[1], parts[0]);
  } else {
    h = h + per_sample(linear(p / "affine", emb, b.out, {.init = s.init}), h);
    h = edm_norm(p / "norm1", h, s.eps);
  }
  h = dropout(p, ops::silu(h), s.dropout, s.random);
  h = conv(p / "conv1", h, b.out, {.init = s.init_zero});

  Value skip = resample(x, b.resample, s.taps);
  const bool resampled = b.resample != Resample::none;
  if (b.out != in || (resampled && s.resample_proj))
    skip = conv(p / "skip", skip, b.out, {.kernel = 1, .init = s.init});
  h = h + skip;
  if (s.skip_scale != 1) h = h * s.skip_scale;
  return b.heads > 0 ? attend(p, h, s, b.heads) : h;
}

}  // namespace ebb::nn
