#include "ops/prim/conv2d/upsampled.h"

#include "ops/prim/conv2d/op.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/literal/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/permute/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/resample/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

// Which weight of the convolution tap `r` of the transposed one adds up, along one axis: an output
// pixel p reads pixel i of the images by its weights k - 1 - r + j, j = 0 .. up - 1, where
// p = up i - (k - 1 - pad) + r.
bool adds(int64_t r, int64_t weight, int64_t k, int64_t up) {
  const int64_t j = weight - (k - 1 - r);
  return j >= 0 && j < up;
}

// Weights [O,KH,KW,I] of a convolution as those [I,KH+up-1,KW+up-1,O] of the transposed one.
Value summed_weights(Value w, int64_t up) {
  const Shape s = w.shape();
  const int64_t kh = s[1], kw = s[2], th = kh + up - 1, tw = kw + up - 1;
  std::vector<double> which;
  for (int64_t tap = 0; tap < th * tw; ++tap)
    for (int64_t weight = 0; weight < kh * kw; ++weight) {
      const bool both = adds(tap / tw, weight / kw, kh, up) && adds(tap % tw, weight % kw, kw, up);
      which.push_back(both ? 1 : 0);
    }
  const Value sums = matmul(literal(*w.graph, which, {th * tw, kh * kw}),
                            reshape(cast(w, DType::f32), {s[0], kh * kw, s[3]}));
  const Value turned = permute(cast(sums, w.dtype()), {2, 1, 0});
  return reshape(turned, {s[3], th, tw, s[0]});
}

// How many times a use repeats each row and column of its images; 1: it does something else.
int64_t repeats_of(const Signature& s) {
  if (s.op != &def::resample()) return 1;
  const auto& a = s.as<Resample>();
  const bool even =
      a.kind == ResampleKind::nearest && a.down == 1 && a.size.empty() && !a.transposed;
  return even ? a.up : 1;
}

}  // namespace

std::optional<Contraction::Folded> conv2d_of_upsampled(const Signature& conv,
                                                       const Signature& producer) {
  const auto& a = conv.as<Conv2d>();
  const Shape &w = conv.in[1].shape, &y = conv.out[0].shape;
  const int64_t up = repeats_of(producer), kh = w[1], kw = w[2];
  // padding past the filter's reach would be cut off
  const bool fits = a.pad[0] < kh && a.pad[1] < kw && a.pad[2] < kh && a.pad[3] < kw;
  // the products of a pixel of the result: taps of its phase
  const bool fewer = (kh + up - 1) * (kw + up - 1) < kh * kw * up * up;
  if (up == 1 || a.stride != 1 || !fits || !fewer || !is_sum_of_one_product(conv)) return {};
  const Conv2dDx dx{up,
                    {kh - 1 - a.pad[0], kw - 1 - a.pad[1], kh - 1 - a.pad[2], kw - 1 - a.pad[3]},
                    {y[1], y[2]},
                    a.dtype};
  Signature use{&def::conv2d_dx(), dx, conv.in, conv.out, conv.at};
  use.in[0] = producer.in[0];
  use.in[1].shape = {w[3], kh + up - 1, kw + up - 1, w[0]};
  return Contraction::Folded{std::move(use), [up](Value v) { return summed_weights(v, up); }};
}

}  // namespace ebb::ops
