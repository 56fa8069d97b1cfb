#include "diffusion/loss.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "base/error.h"
#include "ops/add/op.h"
#include "ops/mul/op.h"
#include "ops/prim/embedding/op.h"
#include "ops/prim/literal/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/split/op.h"
#include "ops/stop_gradient/op.h"

namespace ebb {
namespace {

using Scalars = std::span<const Scalar>;

// [N] as [N,1,1,1], for [N,H,W,C].
Value per_image(Value v) { return ops::reshape(v, {v.shape()[0], 1, 1, 1}); }

// Column `k` of table rows [N,K], for [N,H,W,C].
Value column(Value rows, int64_t k) {
  return per_image(ops::reshape(ops::slice(rows, 1, k, k + 1), {rows.shape()[0]}));
}

// The mean over all elements of an expression of broadcast inputs, f32[].
Value mean_of(std::initializer_list<Value> in, Shape shape,
              const std::function<Scalar(Scalars)>& f) {
  std::vector<int64_t> all(static_cast<size_t>(shape.rank()));
  std::iota(all.begin(), all.end(), 0);
  const double inverse = 1.0 / static_cast<double>(std::max<int64_t>(shape.numel(), 1));
  const Value total = ops::reshape(ops::sum_of(in, all, f), {});
  return ops::map({total}, [inverse](auto v) { return v[0] * inverse; });
}

// ---- noise levels --------------------------------------------------------------------------

constexpr const char* level_use = "loss.level";

NoiseLevels from_sigma(const Precond& precond, Value sigma) {
  const Value argument = ops::map(
      {sigma}, [&](auto v) { return *precond.expressions(v[0]).noise; }, DType::f32);
  return {sigma, argument, {}};
}

NoiseLevels draw_timesteps(const Precond& precond, Value uniform) {
  Graph& g = *uniform.graph;
  const auto count = static_cast<double>(precond.config().timesteps);
  // The largest uniform number may round to 1.
  const Value t =
      ops::map({uniform}, [count](auto v) { return min(floor(v[0] * count), count - 1); });
  const Value index = ops::cast(t, DType::i64);
  const std::vector<double>& sigmas = precond.table().sigma;
  const Value table = ops::literal(g, sigmas, {static_cast<int64_t>(sigmas.size()), 1});
  return {ops::reshape(ops::embedding(table, index), {t.shape()[0]}), t, index};
}

// Times of a flow model as noise levels. Never exactly 0, where x contains no information on the
// noise.
Value draw_flow_levels(const DiffusionConfig& c, const ops::RandomKeys& key) {
  constexpr double least = 1e-5;
  const bool uniform = c.times == "uniform";
  const Value drawn =
      uniform ? ops::random_uniform(key, {}, level_use) : ops::random_normal(key, {}, level_use);
  return ops::map({drawn}, [&](auto v) {
    const Scalar t = max(uniform ? v[0] : sigmoid(v[0] * c.t_std + c.t_mean), least);
    return c.shift == 1 ? t : t * c.shift / (t * (c.shift - 1) + 1.0);
  });
}

}  // namespace

NoiseLevels draw_noise_levels(const Precond& precond, const ops::RandomKeys& key) {
  const DiffusionConfig& c = precond.config();
  if (c.precond == "edm") {
    const Value z = ops::random_normal(key, {}, level_use);
    return from_sigma(precond,
                      ops::map({z}, [&](auto v) { return exp(v[0] * c.P_std + c.P_mean); }));
  }
  if (c.precond == "flow") return from_sigma(precond, draw_flow_levels(c, key));
  const Value u = ops::random_uniform(key, {}, level_use);
  if (c.discrete()) return draw_timesteps(precond, u);
  if (c.precond == "ve") {
    const double low = std::log(ve_sigma_min), range = std::log(ve_sigma_max) - low;
    return from_sigma(precond, ops::map({u}, [=](auto v) { return exp(v[0] * range + low); }));
  }
  const Value t = ops::map({u}, [](auto v) { return v[0] * (vp_smallest_time - 1) + 1.0; });
  const Value sigma = ops::map({t}, [](auto v) { return vp_sigma(v[0]); });
  return {sigma, ops::map({t}, [](auto v) { return v[0] * vp_time_scale; }), {}};
}

// ---- the objective -------------------------------------------------------------------------

namespace {

// Per image, [N,1,1,1]: the network's input is from_data * images + from_noise * noise, its target
// target_data * images + target_noise * noise.
struct LossFactors {
  Value from_data, from_noise, target_data, target_noise, weight, out;
};

LossFactors factors(const Precond& precond, Value sigma) {
  const DiffusionConfig& c = precond.config();
  const Scalar s = Scalar::input(0);
  const PrecondExpressions f = precond.expressions(s);
  const bool flow = precond.levels().space == Space::flow;
  Scalar weight = 1.0, in_of_data = f.in, snr = 1.0 / (s * s);
  if (flow) {
    in_of_data = f.in * (1.0 - s);
    snr = (1.0 - s) * (1.0 - s) / (s * s);
  }
  if (c.weighting == "min_snr") weight = min(snr, c.min_snr_gamma) * (f.out * f.out);
  const Scalar results[] = {in_of_data, f.in * s, f.rest / f.out, -(f.skip * s / f.out),
                            weight,     f.out};
  const Value in[] = {per_image(sigma)};
  const auto v = ops::pointwise(*sigma.graph, {Expr(1, results), {}, DType::f32}, in);
  return {v[0], v[1], v[2], v[3], v[4], v[5]};
}

// Half the channels: F of the mean and, if learned, that of the variance.
struct Output {
  Value mean, variance;
};

Output call_network(const Precond& precond, const nn::Network& network, const NoisyImages& in,
                    const nn::NetworkInputs& call) {
  const Value f = network(*in.images.graph, call);
  Shape want = in.images.shape();
  if (precond.config().learn_sigma) want[-1] *= 2;
  require(f.shape() == want, "loss: the network must return ", want, "  got ", f.type(),
          precond.config().learn_sigma ? "  (learn_sigma)" : "");
  if (!precond.config().learn_sigma) return {f, {}};
  const auto parts = ops::split(f, 3, 2);
  return {parts[0], parts[1]};
}

// ---- the variational bound -----------------------------------------------------------------

// Columns of the table of timesteps.
enum Column : int64_t { mean_x0, log_variance, gap, first, columns };

Value bound_rows(const Precond& precond, Value timestep) {
  const BetaTable& t = precond.table();
  std::vector<double> values;
  for (size_t i = 0; i < t.beta.size(); ++i) {
    values.push_back(t.mean_x0[i]);
    values.push_back(t.posterior_log_variance[i]);
    values.push_back(std::log(t.beta[i]) - t.posterior_log_variance[i]);
    values.push_back(i == 0 ? 1 : 0);
  }
  const Shape shape{static_cast<int64_t>(t.beta.size()), columns};
  return ops::embedding(ops::literal(*timestep.graph, std::move(values), shape), timestep);
}

// exp(-d) - 1 + d, by its series near 0 to avoid cancellation.
Scalar exp_rest(const Scalar& d) {
  const Scalar series =
      d * d * (0.5 - d * (1.0 / 6 - d * (1.0 / 24 - d * (1.0 / 120 - d * (1.0 / 720)))));
  return select(less(abs(d), 0.25), series, exp(-d) - 1.0 + d);
}

// The cumulative normal distribution, by the tanh approximation that the published losses use:
// (1 + tanh z) / 2 = sigmoid(2 z), which keeps its digits in the lower tail.
Scalar normal_cdf(const Scalar& x) {
  const double root = std::sqrt(2 / std::numbers::pi);
  return sigmoid((x + x * x * x * 0.044715) * (2 * root));
}

// -ln of the probability of the 8-bit value x in [-1, 1] under a normal distribution around
// x - distance; its ends take the tails.
Scalar decoder_nll(const Scalar& x, const Scalar& distance, const Scalar& log_std) {
  constexpr double half_step = 1.0 / 255, least = 1e-12;
  const Scalar inverse = exp(-log_std);
  const Scalar below = normal_cdf((distance + half_step) * inverse);
  const Scalar above = normal_cdf((half_step - distance) * inverse);  // 1 - cdf of the lower edge
  const Scalar far = abs(distance);
  const Scalar inside =
      normal_cdf((half_step - far) * inverse) - normal_cdf(-((far + half_step) * inverse));
  const Scalar p = select(less(x, -0.999), below, select(less(0.999, x), above, inside));
  return -log(max(p, least));
}

// L_t of every timestep t in bits: the divergence between q(x_{t-1} | x_t, x_0) and the model's
// normal distribution, at t = 0 the likelihood of the image. The mean is taken as given.
Value bound(const Precond& precond, const NoisyImages& in, const Output& f, const LossFactors& k) {
  const Value rows = bound_rows(precond, in.level.timestep);
  const Value mean = ops::stop_gradient(f.mean);
  // The model's mean minus the true one.
  const Value error = ops::map(
      {mean, in.images, in.noise, k.target_data, k.target_noise, k.out, column(rows, mean_x0)},
      [](auto v) { return (v[0] - (v[1] * v[3] + v[2] * v[4])) * (v[5] * v[6]); }, DType::f32);
  return mean_of(
      {f.variance, error, in.images, column(rows, log_variance), column(rows, gap),
       column(rows, first)},
      in.images.shape(), [](auto v) {
        const Scalar above = (v[0] + 1.0) * 0.5 * v[4];  // ln of the variance over the smallest
        const Scalar log_variance = v[3] + above;
        const Scalar divergence = (exp_rest(above) + v[1] * v[1] * exp(-log_variance)) * 0.5;
        const Scalar likelihood = decoder_nll(v[2], -v[1], log_variance * 0.5);
        return select(v[5], likelihood, divergence) * (1 / std::numbers::ln2);
      });
}

}  // namespace

LossTerms denoising_loss(const Precond& precond, const nn::Network& network, const NoisyImages& in,
                         const std::optional<ops::RandomKeys>& random) {
  const DiffusionConfig& c = precond.config();
  require(in.images.shape().rank() == 4 && in.noise.shape() == in.images.shape(),
          "loss: needs images and noise [N,H,W,C]  got ", in.images.type(), ", ", in.noise.type());
  const LossFactors k = factors(precond, in.level.sigma);
  const Value x = ops::map({in.images, in.noise, k.from_data, k.from_noise},
                           [](auto v) { return v[0] * v[2] + v[1] * v[3]; });
  const Output f = call_network(
      precond, network, in,
      {.x = x, .noise = in.level.argument, .conditions = in.conditions, .random = random});
  require(!in.weight || !c.learn_sigma, "loss: weights of images are not for learned variances");
  const Value weight = in.weight ? k.weight * per_image(in.weight) : k.weight;
  const Value mse = mean_of({f.mean, in.images, in.noise, k.target_data, k.target_noise, weight},
                            in.images.shape(), [](auto v) {
                              const Scalar d = v[0] - (v[1] * v[3] + v[2] * v[4]);
                              return d * d * v[5];
                            });
  if (!c.learn_sigma) return {mse, mse, {}};
  const Value vb = bound(precond, in, f, k);
  return {mse + vb * (c.vb_weight * static_cast<double>(c.timesteps)), mse, vb};
}

namespace {

// Standard normal noise [N,H,W,C] and, with an offset, a normal number for each channel of an image
// on top of it (noise_offset).
Value draw_noise(const DiffusionConfig& c, const Shape& images, const ops::RandomKeys& key) {
  const Value noise = ops::random_normal(key, images.slice(1, images.rank()), "loss.noise");
  if (c.noise_offset == 0) return noise;
  const Value offset = ops::random_normal(key, {1, 1, images[-1]}, "loss.noise_offset");
  return ops::map({noise, offset}, [&](auto v) { return v[0] + v[1] * c.noise_offset; });
}

// The condition, replaced by its null value for a fraction `p` of the images, with its own draws.
Value dropped(const GivenCondition& given, double p, const ops::RandomKeys& key) {
  const nn::Condition& c = given.condition;
  if (!c.guided || p == 0) return given.value;
  // The class's draws have been called so from the start: a run goes on as it began.
  const std::string use = c.name == nn::class_id ? "loss.label" : "loss.drop." + c.name;
  Value u = ops::random_uniform(key, {}, use);
  if (c.shape.rank() > 0) {
    Shape per_sample{given.value.shape()[0]};
    for (int64_t i = 0; i < c.shape.rank(); ++i) per_sample.push_back(1);
    u = ops::reshape(u, per_sample);
  }
  return ops::map(
      {u, given.value}, [&](auto v) { return select(less(v[0], p), c.null, v[1]); }, c.dtype);
}

}  // namespace

LossTerms diffusion_loss(const Precond& precond, const nn::Network& network, const LossInputs& in) {
  const Shape shape = in.images.shape();  // a copy: the graph grows
  NoisyImages noisy{.images = in.images, .weight = in.weight};
  const double p = in.dropout ? precond.config().label_dropout : 0;
  for (const GivenCondition& c : in.conditions)
    noisy.conditions[c.condition.name] = dropped(c, p, in.key);
  noisy.noise = draw_noise(precond.config(), shape, in.key);
  noisy.level = draw_noise_levels(precond, in.key);
  return denoising_loss(precond, network, noisy, in.dropout ? std::optional(in.key) : std::nullopt);
}

Graph loss_graph(const DiffusionConfig& config, const nn::Network& network,
                 const LossShape& shape) {
  Graph g;
  require(shape.image.rank() == 3 && shape.batch > 0,
          "loss: needs images {H,W,C} and a batch  got ", shape.image, ", ", shape.batch);
  const int64_t n = shape.batch;
  Shape images{n};
  for (const int64_t size : shape.image) images.push_back(size);
  LossInputs in;
  in.images = g.input("images", {DType::f32, images});
  for (const nn::Condition& c : shape.conditions)
    in.conditions.push_back({c, g.input(c.name, c.type(n))});
  in.key.seed = g.input("seed", {DType::i64, {}});
  in.key.image = g.input("image", {DType::i64, {n}});
  in.key.step = g.input("step", {DType::i64, {}});
  in.dropout = shape.dropout;
  if (shape.weighted) in.weight = g.input("weight", {DType::f32, {n}});
  g.output("loss", diffusion_loss(Precond(config), network, in).loss);
  return g;
}

}  // namespace ebb
