// resample: NHWC images through one sparse linear map for rows and one for columns.
#pragma once

#include <vector>

#include "base/enum_field.h"
#include "ir/op.h"

namespace ebb::ops {

enum class ResampleKind : uint8_t { nearest, bilinear, average, box, fir };
constexpr ValueNames<5> value_names(ResampleKind) {
  return {"resample: kind", {"nearest", "bilinear", "average", "box", "fir"}};
}

// x [N,H,W,C] -> [N,P,Q,C]. Kinds, along each axis, from `in` to `out` samples:
//   nearest   out = in * up / down or `size`; y[i] = x[floor(i * in / out)]
//   bilinear  the same sizes; linear between x at the sample centres, clamped at the ends
//   average   out = in / down; the mean of `down` samples side by side
//   box       out = in; the mean of x[i - pad] to x[i + pad], as far as these are in the image
//   fir       taps f normalised to sum 1, padded by `pad` zeros on either side:
//             down: y[i] = sum_k f[k] x[i * down - pad + k], out = (in + 2 pad - taps) / down + 1
//             up:   y[i * up - pad + k] += up f[k] x[i],      out = (in - 1) up - 2 pad + taps
// transposed: the transposed map, which takes [N,P,Q,C] back to images of size `source`.
struct Resample {
  EnumField<ResampleKind> kind = ResampleKind::nearest;
  int64_t up = 1, down = 1;
  std::vector<int64_t> size;  // {P, Q}; []: from up and down
  std::vector<double> taps;
  int64_t pad = -1;  // -1: (taps - 1) / 2, of a filter
  bool transposed = false;
  std::vector<int64_t> source;  // {H, W}
  void fields(auto&& f) {
    f("kind", kind);
    f("up", up);
    f("down", down);
    f("size", size);
    f("taps", taps);
    f("pad", pad);
    f("transposed", transposed);
    f("source", source);
  }
};

// Resampling with a filter, of EDM (Karras et al. 2022) and StyleGAN: the filter is the outer
// product of `taps` with itself.
struct Fir {
  int64_t up = 1, down = 1;  // one of them is 1
  std::vector<double> taps = {1, 1};
  int64_t pad = -1;
};

// A sparse matrix [out, in] by rows: row i has entries first[i] .. first[i + 1].
struct AxisMap {
  int64_t in = 0, out = 0;
  std::vector<int64_t> first, index;
  std::vector<double> weight;
};

namespace def {
const OpDef& resample();
}

// What x is multiplied with along H (axis 0) or W (axis 1), from the type of x.
AxisMap axis_map(const Signature& s, int64_t axis);

Value resample(Value x, const Resample& attrs);
Value avg_pool2(Value x);          // the mean of 2x2 pixels
Value box_mean3(Value x);          // the mean of 3x3 pixels around each, less at the borders
Value upsample_nearest2(Value x);  // every pixel becomes 2x2
Value resize_bilinear(Value x, int64_t h, int64_t w);
Value fir_resample(Value x, const Fir& fir);

}  // namespace ebb::ops
