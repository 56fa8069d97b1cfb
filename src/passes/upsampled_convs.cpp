#include "passes/upsampled_convs.h"

#include <optional>

#include "ops/prim/conv2d/op.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/literal/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/permute/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/resample/op.h"
#include "ops/prim/reshape/op.h"
#include "passes/prepare.h"
#include "passes/simplify.h"

namespace ebb {
namespace {

// What a convolution becomes.
struct Transposed {
  int32_t images = -1;  // before they were enlarged
  int64_t up = 1;
  Signature with;
};

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
  const Value sums = ops::matmul(ops::literal(*w.graph, which, {th * tw, kh * kw}),
                                 ops::reshape(ops::cast(w, DType::f32), {s[0], kh * kw, s[3]}));
  const Value turned = ops::permute(ops::cast(sums, w.dtype()), {2, 1, 0});
  return ops::reshape(turned, {s[3], th, tw, s[0]});
}

class Transposer {
 public:
  Transposer(const Graph& g, const std::function<bool(const Source&)>& is_weight,
             const std::function<bool(const Signature&, const Signature&)>& supports)
      : g_(g), from_weights_(values_from_weights(g, is_weight)), supports_(supports) {}

  Graph run() const {
    Rewriter rw(g_);
    rw.copy_sources();
    bool any = false;
    for (const Node& n : g_.nodes()) {
      const std::optional<Transposed> t = transposed(n);
      if (!t) {
        rw.copy(n);
        continue;
      }
      any = true;
      const AtScope scope(rw.to(), n.at);
      std::vector<Value> in{rw.map(t->images), summed_weights(rw.map(n.in[1]), t->up)};
      for (size_t k = 2; k < n.in.size(); ++k) in.push_back(rw.map(n.in[k]));
      rw.set(n.out[0], rw.to().add(*t->with.op, t->with.attrs, in)[0]);
    }
    if (!any) return g_;
    rw.copy_ends();
    return dead_code(rw.take());
  }

 private:
  std::optional<Transposed> transposed(const Node& n) const {
    if (n.op != &ops::def::conv2d() || g_.producer(n.in[0]) < 0) return {};
    if (!from_weights_[static_cast<size_t>(n.in[1])]) return {};
    const Node& p = g_.nodes()[static_cast<size_t>(g_.producer(n.in[0]))];
    if (p.op != &ops::def::resample()) return {};
    const auto& enlarged = p.attrs.as<ops::Resample>();
    const bool repeats = enlarged.kind == "nearest" && enlarged.up > 1 && enlarged.down == 1 &&
                         enlarged.size.empty() && !enlarged.transposed;
    const auto& a = n.attrs.as<ops::Conv2d>();
    const Shape &w = g_.type(n.in[1]).shape, &y = g_.type(n.out[0]).shape;
    const int64_t up = enlarged.up, kh = w[1], kw = w[2];
    // padding past the filter's reach would be cut off
    const bool fits = a.pad[0] < kh && a.pad[1] < kw && a.pad[2] < kh && a.pad[3] < kw;
    // the products of a pixel of the result: taps of its phase
    const bool fewer = (kh + up - 1) * (kw + up - 1) < kh * kw * up * up;
    if (!repeats || a.stride != 1 || !fits || !fewer) return {};
    const ops::Conv2dDx dx{
        up,
        {kh - 1 - a.pad[0], kw - 1 - a.pad[1], kh - 1 - a.pad[2], kw - 1 - a.pad[3]},
        {y[1], y[2]},
        a.dtype};
    const Signature plain = g_.signature(n);
    Signature s{&ops::def::conv2d_dx(), dx, plain.in, plain.out, n.at};
    s.in[0] = g_.type(p.in[0]);
    s.in[1].shape = {w[3], kh + up - 1, kw + up - 1, w[0]};
    if (!supports_(plain, s)) return {};
    return Transposed{p.in[0], up, std::move(s)};
  }

  const Graph& g_;
  std::vector<bool> from_weights_;  // by value
  const std::function<bool(const Signature&, const Signature&)>& supports_;
};

}  // namespace

Graph transpose_upsampled_convs(
    const Graph& g, const std::function<bool(const Source&)>& is_weight,
    const std::function<bool(const Signature&, const Signature&)>& supports) {
  return Transposer(g, is_weight, supports).run();
}

}  // namespace ebb
