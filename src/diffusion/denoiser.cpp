#include "diffusion/denoiser.h"

#include <cmath>

#include "base/error.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/split/op.h"
#include "passes/mixed_precision.h"

namespace ebb {
namespace {

Shape batch_shape(const DenoiserOptions& o) {
  require(o.image.rank() == 3 && o.batch > 0, "denoiser: needs images {H,W,C} and a batch  got ",
          o.image, ", ", o.batch);
  require(!o.guided || o.classes > 0, "denoiser: guidance needs a network with classes");
  Shape shape{o.batch};
  for (const int64_t size : o.image) shape.push_back(size);
  return shape;
}

// The network's answer for the mean; that for the variance is left out.
Value mean_part(const DiffusionConfig& config, Value f, Shape images) {
  const int64_t channels = images[-1];
  if (config.learn_sigma) images[-1] *= 2;
  require(f.shape() == images, "denoiser: the network must answer with ", images, "  got ",
          f.type(), config.learn_sigma ? "  (learn_sigma)" : "");
  return ops::slice(f, 3, 0, channels);
}

float as_float(double v) { return static_cast<float>(v); }

}  // namespace

Graph denoiser_graph(const DiffusionConfig& config, const nn::Network& network,
                     const DenoiserOptions& o) {
  Graph g;
  const Type number{DType::f32, {}};
  Shape images = batch_shape(o);
  const Value x = g.input("x", {DType::f32, images});
  const Value skip = g.input("skip", number), out = g.input("out", number);
  const Value in = g.input("in", number), noise = g.input("noise", number);
  nn::NetworkInputs call;
  call.x = ops::map({x, in}, [](auto v) { return v[0] * v[1]; });
  if (o.classes > 0) call.classes = g.input("classes", {DType::i64, {o.batch}});
  if (o.guided) {
    images[0] *= 2;
    call.x = ops::concat({call.x, call.x}, 0);
    const Value none = ops::constant(g, -1, {o.batch}, DType::i64);
    call.classes = ops::concat({call.classes, none}, 0);
  }
  call.noise = ops::broadcast_to(ops::reshape(noise, {1}), {images[0]});
  const Value f = mean_part(config, network(g, call), images);
  if (!o.guided) {
    g.output("denoised",
             ops::map(
                 {x, f, skip, out}, [](auto v) { return v[0] * v[2] + v[1] * v[3]; }, "f32"));
    return mixed_precision(g, o.dtype);
  }
  const Value scale = g.input("guidance", number);
  const auto halves = ops::split(f, 0, 2);
  g.output("denoised", ops::map(
                           {x, halves[0], halves[1], skip, out, scale},
                           [](auto v) {
                             const Scalar guided = v[2] + v[5] * (v[1] - v[2]);
                             return v[0] * v[3] + guided * v[4];
                           },
                           "f32"));
  return mixed_precision(g, o.dtype);
}

Denoiser::Denoiser(const DiffusionConfig& config, const nn::Network& network,
                   const DenoiserOptions& options, const Context& context)
    : precond_(config),
      options_(options),
      plan_(denoiser_graph(config, network, options), context),
      classes_(static_cast<size_t>(options.batch), -1) {}

void Denoiser::classes(std::vector<int64_t> classes) {
  require(static_cast<int64_t>(classes.size()) == options_.batch,
          "denoiser: needs a class for each of ", options_.batch, " images (got ", classes.size(),
          ")");
  for (const int64_t c : classes) {
    require(c < 0 || options_.classes > 0, "denoiser: the network has no classes (got ", c, ")");
    require(c >= -1 && c < options_.classes, "denoiser: class must lie in [0, ", options_.classes,
            ") or be -1 (", c, ")");
  }
  classes_ = std::move(classes);
}

void Denoiser::guidance(double scale) {
  require(std::isfinite(scale), "denoiser: guidance must be finite (", scale, ")");
  require(options_.guided || scale == 1, "denoiser: guidance (", scale,
          ") needs a denoiser made for it");
  guidance_ = scale;
}

State Denoiser::operator()(const State& x, double sigma) {
  Tensor xt(DType::f32, batch_shape(options_));
  const auto to = xt.span<float>();
  require(to.size() == x.size(), "denoiser: needs a state of ", to.size(), " numbers (got ",
          x.size(), ")");
  for (size_t i = 0; i < x.size(); ++i) to[i] = as_float(x[i]);
  const PrecondNumbers c = precond_.at(sigma);
  NamedTensors in = {{"x", xt},
                     {"skip", scalar_tensor(as_float(c.skip))},
                     {"out", scalar_tensor(as_float(c.out))},
                     {"in", scalar_tensor(as_float(c.in))},
                     {"noise", scalar_tensor(as_float(c.noise))}};
  if (options_.classes > 0) in["classes"] = tensor_of(classes_, {options_.batch});
  if (options_.guided) in["guidance"] = scalar_tensor(as_float(guidance_));
  const Tensor d = plan_.run(in).at("denoised");
  ++evaluations_;
  return State(d.span<float>().begin(), d.span<float>().end());
}

}  // namespace ebb
